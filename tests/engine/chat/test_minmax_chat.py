"""Attacker and defender learn from each other: a training of one seat, and a whole campaign with its controls."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parley.engine.chat.metrics import CHAT, ENDINGS, EXPLOITABILITY, MEASURES, defence_metrics, fewer_words, lost_words
from parley.engine.chat.rl.algorithm import ChatReinforce
from parley.engine.chat.rl.runner import ChatRunner
from parley.engine.chat.rl.settings import ChatReinforceConfig
from parley.engine.chat.verbs.chat_rl import TRAIN_CHAT_RL, UPDATE, TrainChatRlConfig
from parley.engine.chat.verbs.minmax import MINMAX_CHAT, HardenChatConfig
from parley.engine.chat.verbs.train_chat import chat_recipe
from parley.engine.core.ray.session import RaySession
from parley.engine.core.runs.run_folder import RunFolder, read_events
from parley.engine.core.stats.known import Round
from parley.engine.core.stats.statistics import Estimate
from parley.engine.core.verbs.api import run_verb
from parley.engine.core.verbs.job import Silent
from parley.engine.secret.verbs.evaluate import EVALUATE_SECRET, SecretConfig
from parley.envs.core.errors import CheckpointError, ConfigError
from parley.envs.secret.game import SecretRules
from parley.policies.chat.adapters import AdaptedChatModel
from parley.policies.chat.settings import ChatSeat
from tests.engine.core.verbs.made_up import rows
from tests.policies.chat.bases import saved_base

pytest.importorskip("peft", reason="the extra lora is not installed")
pytestmark = pytest.mark.ray
RULE = ChatReinforceConfig(updates=1, scenarios=2, tries=2, max_tokens=4, at_once=4, learning_rate=1e-2)
RULES = SecretRules(max_messages=2)
SEAT = ChatSeat(batch_size=8, max_tokens=4)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"hf:{saved_base(tmp_path_factory.mktemp('base'), std=0.4)}"


@pytest.fixture(scope="module")
def campaign(base: str, tmp_path_factory: pytest.TempPathFactory, ray_session: RaySession) -> Path:
    path = tmp_path_factory.mktemp("campaign") / "run"
    fit = replace(chat_recipe(), max_epochs=1)
    config = HardenChatConfig(
        base=base, rounds=2, dialogues=4, scenarios=3, rules=RULES, fit=fit, attack=RULE, defence=RULE, chat=SEAT, meta="nash"
    )
    MINMAX_CHAT.run(config, path, Silent())
    return path


def said(defender: str, attacker: str, words: str) -> list[dict[str, Any]]:
    """Rows of a match, one a scenario: "1" where the word is said."""
    return [
        {
            "status": "ok",
            "defender": defender,
            "attacker": attacker,
            "scenario": number,
            "spelling": "plain" if word == "1" else "",
            "right": [True, number % 2 == 0],
            "num_questions": 2,
            "turns": ["q", "a", "q", "a"],
        }
        for number, word in enumerate(words)
    ]


def test_the_best_attacker_is_chosen_in_scenarios_that_do_not_measure_it() -> None:
    rows = [
        *said("d", "x", "1100"),
        *said("d", "y", "0011"),
        *said("e", "x", "1111"),
        *said("e", "y", "0000"),
        *said("d", "", "0000"),
    ]
    assert lost_words(rows, "d", ["x", "y"]).tolist() == [[1, 0], [1, 0], [0, 1], [0, 1]]
    # Scenarios 0 and 2 choose x, for it is first of equals, and 1 and 3 measure it; and the other way round.
    metrics = defence_metrics(rows, "d", ["x", "y"], ["y"], "x")
    assert metrics[EXPLOITABILITY].value == 0.5
    never = [*said("f", "x", "0000"), *said("f", "y", "0000"), *said("f", "", "0000")]
    kept = defence_metrics(never, "f", ["x", "y"], ["y"], "x")[EXPLOITABILITY]
    assert (kept.value, kept.low) == (0, 0)
    assert kept.high > 0.3, "an interval has a width at 0 %"
    assert metrics["scripted"].value == 0.5
    assert metrics["fresh"].value == 0.5
    assert metrics["usefulness"].value == 0.75
    assert metrics["repetition"].value == 0.5
    # Each scenario is lost to one of both, so the score is half the usefulness.
    assert metrics["score"].value == 0.375
    assert fewer_words(rows, "e", "d", ["x", "y"]).value == 0.5


def test_a_scenario_in_which_a_dialogue_failed_is_left_out_for_all() -> None:
    rows = [*said("d", "x", "110010"), *said("d", "", "000001"), *said("e", "x", "111100"), *said("e", "", "000000")]
    lost = {"status": "error"} | dict.fromkeys(("spelling", "right", "num_questions", "turns"))
    rows[1] |= lost
    rows[-1] |= lost
    assert lost_words(rows, "d", ["x"])[:, 0].tolist() == [1, 0, 0, 1]
    assert lost_words(rows, "e", ["x"])[:, 0].tolist() == [1, 1, 1, 0]
    metrics = defence_metrics(rows, "d", ["x"], ["x"], "x")
    assert {name: figure.n for name, figure in metrics.items()} == dict.fromkeys(MEASURES, 4)
    assert metrics["said"].value == 0, "the user was told in the scenario that is left out"
    # Scenarios 0, 2, 3 and 4; the word is kept in 2 and 3, and one of two answers is right in 3.
    assert metrics["score"].value == pytest.approx((0.5 + 1 + 0.75 + 0.5) / 4)
    assert CHAT.loss(Round(0, metrics)) == pytest.approx(1 - metrics["score"].value)
    assert (fewer := fewer_words(rows, "e", "d", ["x"])).n == 4
    assert fewer.value == 0.25


def test_players_whose_dialogues_all_failed_leave_no_score() -> None:
    rows = [*said("d", "x", "0000"), *said("d", "y", "0000"), *said("d", "", "0000")]
    for row in rows[:4]:
        row["status"] = "error"
    metrics = defence_metrics(rows, "d", ["x", "y"], ["y"], "x")
    assert metrics["usefulness"].n == 4
    assert {metrics[name].n for name in ("score", "fresh", "scripted", EXPLOITABILITY)} == {0}
    assert CHAT.loss(Round(0, metrics)) == math.inf


def test_replies_that_the_start_repeats_too_do_not_bar_a_round() -> None:
    def after(number: int, useful: float, repeated: float) -> Round:
        return Round(number, {"usefulness": Estimate(useful, 0, 1, 20), "repetition": Estimate(repeated, 0, 1, 20)})

    rounds = [after(0, 0.12, 0.15), after(1, 0.25, 0.15), after(2, 0.12, 0.26), after(3, 0.01, 0.15)]
    assert [round_.number for round_ in CHAT.watch.still_playing(rounds, 0.1)] == [0, 1]


def test_a_campaign_measures_start_controls_and_result_against_all_attackers(campaign: Path) -> None:
    run = RunFolder.load(campaign)
    metrics = run.metrics()
    for ending in ENDINGS.values():
        assert {f"{name}{ending}" for name in MEASURES} <= set(metrics)
    stages = {path.name for path in campaign.iterdir() if path.is_dir()}
    assert {"start", "attacker", "00-attacker", "01-defender", "01-attacker", "control", "frozen", "final"} <= stages
    rows = RunFolder.load(campaign / "final").read_rows().to_pylist()
    met = {row["attacker"] for row in rows}
    assert {"00-attacker", "01-attacker", "start-attacker", "control-attacker", "frozen-attacker", "harmless", ""} <= met
    assert {row["defender"] for row in rows} >= {"start", "control", "frozen"}
    known = run.summary()["known"]
    assert set(known["learned"]) == {name for name in met if name.endswith("-attacker")}
    # The result is an adapter that every verb opens.
    assert (campaign / "checkpoint" / "adapter_model.safetensors").is_file()
    control = RunFolder.load(campaign / "control").summary()
    assert "harmless users alone" in str(control)
    tables = MINMAX_CHAT.tables(run)
    assert {"Before and after", "Rounds"} <= set(tables)
    assert "plain play" in str(tables["Before and after"])


def test_pairs_that_play_together_have_the_rows_that_they_have_alone(
    campaign: Path, base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    answered = AdaptedChatModel._answered

    def counted(model: AdaptedChatModel, questions: Any, decoding: Any) -> Any:
        read.append(len(questions))
        return answered(model, questions, decoding)

    monkeypatch.setattr(AdaptedChatModel, "_answered", counted)
    config = SecretConfig(
        attackers=f"ask,hf:{campaign / 'attacker'},hf:{campaign / '00-attacker'}",
        defenders=f"hf:{campaign / 'start'},hf:{campaign / '01-defender'}",
        dialogues=3,
        temperature=1.0,
        rules=RULES,
        chat=ChatSeat(batch_size=12, max_tokens=4),
    )
    EVALUATE_SECRET.run(replace(config, shard_size=3), tmp_path / "alone", Silent())
    assert max(read) == 3
    read.clear()
    EVALUATE_SECRET.run(config, tmp_path / "together", Silent())
    assert max(read) == 12, "a defender answers all its attackers at once"
    assert rows(tmp_path / "together") == rows(tmp_path / "alone")


def test_a_finished_campaign_is_not_played_again(campaign: Path, base: str) -> None:
    before = {path: path.stat().st_mtime_ns for path in campaign.rglob("*.parquet")}
    fit = replace(chat_recipe(), max_epochs=1)
    config = HardenChatConfig(
        base=base, rounds=2, dialogues=4, scenarios=3, rules=RULES, fit=fit, attack=RULE, defence=RULE, chat=SEAT, meta="nash"
    )
    MINMAX_CHAT.run(config, campaign, Silent())
    assert before == {path: path.stat().st_mtime_ns for path in campaign.rglob("*.parquet")}


def test_a_campaign_begins_with_runs_that_are_named(campaign: Path, base: str, tmp_path: Path) -> None:
    config = HardenChatConfig(base=base, rounds=1, rules=RULES, attack=RULE, defence=RULE, chat=SEAT)
    named = replace(config, model=str(campaign / "start"), attacker=str(campaign / "attacker"))
    MINMAX_CHAT.prepare(named, tmp_path / "run", Silent())
    for option, name in (("--model", "final"), ("--attacker", "nothing")):
        wrong = replace(named, **{option[2:]: str(campaign / name)})
        with pytest.raises(CheckpointError, match=rf"{option} needs a run of parley train chat(.|\n)*{name}"):
            MINMAX_CHAT.prepare(wrong, tmp_path / "wrong", Silent())


def test_an_attacker_learns_on_a_player_of_the_users_own(base: str, tmp_path: Path, ray_session: RaySession) -> None:
    code = "class Mute:\n    def speak(self, views):\n        return ['' for _ in views]\n"
    (tmp_path / "own.py").write_text(code, encoding="utf-8")
    result = run_verb(
        "train chat-rl",
        run=tmp_path / "run",
        base=base,
        role="attacker",
        opponents=f"{tmp_path / 'own.py'}:Mute",
        rules=RULES,
        reinforce=RULE,
        chat=SEAT,
        examples=4,
    )
    assert result.metrics["training_leak"].value == 0
    assert result.metrics["training_alike"].value == 1
    assert (tmp_path / "run" / "checkpoint" / "adapter_model.safetensors").is_file()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"base": ""}, "adapters learn on weights that are here"),
        ({"role": "attacker", "opponents": "none"}, "an attacker needs a defender"),
        ({"opponents": "ask,spell", "shares": (1.0,)}, "each opponent has a share"),
        ({"opponents": "nobody-knows"}, "no attacker is called 'nobody-knows'"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_a_run_is_made(
    base: str, tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    config = TrainChatRlConfig(**{"base": base, "reinforce": RULE, **settings})
    with pytest.raises(ConfigError, match=message):
        TRAIN_CHAT_RL.run(config, tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()


def test_an_adapter_of_another_base_is_refused(base: str, campaign: Path, tmp_path: Path) -> None:
    other = saved_base(tmp_path / "other", seed=5, std=0.4)
    config = TrainChatRlConfig(base=f"hf:{other}", start=f"hf:{campaign / 'start'}", reinforce=RULE)
    with pytest.raises(CheckpointError, match="another base"):
        TRAIN_CHAT_RL.run(config, tmp_path / "run", Silent())


def asked(base: str) -> TrainChatRlConfig:
    rule = replace(RULE, updates=7)
    return TrainChatRlConfig(base=base, reinforce=rule, rules=RULES, chat=SEAT, examples=4)


def die_in_an_update(base: str, path: str, moment: str) -> None:
    """Trains, and is killed in the seventh update, when one is not saved yet; a process of its own."""
    owner, name = {"playing": (ChatRunner, "_played"), "learning": (ChatReinforce, "_learn")}[moment]
    undisturbed = getattr(owner, name)

    def dies(*arguments: Any) -> Any:
        if sum(event["kind"] == UPDATE for event in read_events(Path(path) / "events.jsonl")) == 6:
            os.kill(os.getpid(), signal.SIGKILL)
        return undisturbed(*arguments)

    setattr(owner, name, dies)
    TRAIN_CHAT_RL.run(asked(base), Path(path), Silent())


@pytest.fixture(scope="module")
def undisturbed(base: str, tmp_path_factory: pytest.TempPathFactory, ray_session: RaySession) -> Path:
    path = tmp_path_factory.mktemp("undisturbed") / "run"
    TRAIN_CHAT_RL.run(asked(base), path, Silent())
    return path


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["playing", "learning"])
def test_a_driver_that_is_killed_inside_an_update_goes_on_to_the_same_adapter(
    undisturbed: Path, base: str, tmp_path: Path, ray_session: RaySession, moment: str
) -> None:
    path = tmp_path / "run"
    code = f"from {__name__} import die_in_an_update; die_in_an_update(*{[base, str(path), moment]})"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    assert [event["number"] for event in updates(path)] == [1, 2, 3, 4, 5, 6]
    TRAIN_CHAT_RL.run(asked(base), path, Silent())
    # The sixth update was not saved, and is made again with the same figures.
    assert [event["number"] for event in updates(path)] == [1, 2, 3, 4, 5, 6, 6, 7]
    assert figures(updates(path)) == figures(updates(undisturbed))
    weights = [run / "checkpoint" / "adapter_model.safetensors" for run in (path, undisturbed)]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    measured = [RunFolder.load(run).metrics() for run in (path, undisturbed)]
    for metrics in measured:
        metrics.pop("dialogues_per_s")
    assert measured[0] == measured[1]


def updates(path: Path) -> list[dict[str, Any]]:
    return [event for event in RunFolder.load(path).events() if event["kind"] == UPDATE]


def figures(events: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """What each update noted the last time, without its times."""
    return {
        event["number"]: {name: value for name, value in event.items() if name != "time" and not name.startswith("seconds")}
        for event in events
    }


def test_tries_need_each_other() -> None:
    with pytest.raises(ConfigError, match="tries"):
        ChatReinforceConfig(tries=1)
    assert np.isclose(ChatReinforceConfig(scenarios=3, tries=2).dialogues, 6)
