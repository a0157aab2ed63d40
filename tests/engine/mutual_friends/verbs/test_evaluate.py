"""Bots that look for common friends: rows that no worker decides, runs that go on, and what is wrong with a setting."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from safetensors.torch import save_file

from parley.engine.core.ray.worker import Shard
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.job import USAGE, Silent
from parley.engine.mutual_friends.channels import UNHEARD
from parley.engine.mutual_friends.metrics.chats import (
    COMPLETION,
    FIRST,
    GAIN,
    MODEL,
    NORMAL,
    REPAIRS,
    TURNS,
    of,
)
from parley.engine.mutual_friends.verbs import agents
from parley.engine.mutual_friends.verbs import evaluate as worker
from parley.engine.mutual_friends.verbs.agents import OwnFriendsAgent, make_friends_agent
from parley.engine.mutual_friends.verbs.config import BLIND, MIXED, SCRIPTED, SELECTORS, MutualFriendsConfig
from parley.engine.mutual_friends.verbs.evaluate import (
    EVALUATE_MUTUAL_FRIENDS,
    ChatSpec,
    ChatWorker,
    PlayedChats,
    demo,
    located,
    pair_names,
)
from parley.envs.core.errors import CheckpointError, ConfigError, RunError
from parley.envs.mutual_friends.compiled import EMBEDDED_FRIENDS, load_friends
from parley.policies.chat.friend import ChatFriend
from parley.policies.chat.settings import ChatModelSettings, ChatSeat
from parley.policies.core.responder import WEIGHTS
from tests.engine.core.verbs.made_up import Notes, rows
from tests.engine.mutual_friends.verbs.made_up import drawn_dynonet

OWN = """
import os

class Mute:
    name = "mute"

    def join(self, view):
        return self

    def enter(self, rows):
        pass

    def hear(self, rows, events):
        pass

    def act(self, rows):
        return [("hello",) for _ in rows]


class Helped(Mute):
    def reply(self, said):
        raise RuntimeError("no chat model")


class Rude(Mute):
    def act(self, rows):
        raise RuntimeError("no")


class Deaf:
    def join(self, view):
        return object()


class Talker:
    def reply(self, messages):
        with open("ASKED", "a") as file:
            file.write("asked\\n")
        if os.path.exists("REFUSED") and open("REFUSED").read() in messages[0]["content"]:
            raise RuntimeError("refused by the model")
        said = sum(message["role"] == "assistant" for message in messages)
        if messages[-1]["content"].startswith("That cannot be read."):
            return "hello"
        return ("Know a gardener?", "SELECT 0", "select 1")[said % 3]


NOBODY = 3
"""

run = EVALUATE_MUTUAL_FRIENDS.run
SMALL = replace(demo(), scenarios=6, shard_size=5)


@pytest.fixture
def own(tmp_path: Path) -> str:
    (tmp_path / "own.py").write_text(
        OWN.replace("ASKED", str(tmp_path / "asked")).replace("REFUSED", str(tmp_path / "refused"))
    )
    return str(tmp_path / "own.py")


def test_scripted_bots_find_friends_and_fewer_where_they_mishear(tmp_path: Path) -> None:
    result = run(replace(demo(), scenarios=30), tmp_path / "run", Silent())
    normal, heard = (result.metrics[of(COMPLETION, MODEL, name)] for name in (NORMAL, "random-inputs"))
    assert normal.value > 0.7
    assert heard.low <= heard.value < normal.value
    assert result.metrics[of(TURNS, MODEL, NORMAL)].n == 30
    assert [table.columns[0] for table in result.tables.values()] == ["condition", "selections allowed", "attribute"]
    assert {row["strategy"] for row in rows(tmp_path / "run")} == {NORMAL, *MutualFriendsConfig().strategy_names}


def test_conditions_share_scenarios_and_seeds_and_each_bot_stands_beside_its_controls(tmp_path: Path) -> None:
    config = replace(SMALL, model="selector", controls=True, strategies="confusing-entity,random-swap", scenarios=2)
    pairs = {MODEL, SCRIPTED, MIXED, BLIND}
    run(config, tmp_path / "run", Silent())
    found = rows(tmp_path / "run")
    assert {row["pair"] for row in found} == {*pairs, SELECTORS}
    of_model = [row["strategy"] for row in found if row["pair"] == MODEL and row["scenario"] == "000000"]
    one_sided = ["one-sided-confusing-entity", "one-sided-random-swap"]
    controls = [UNHEARD, "random-inputs-strange-entities"]
    assert of_model == [NORMAL, "confusing-entity", "random-swap", *controls, *one_sided]
    assert {row["strategy"] for row in found if row["pair"] in (SELECTORS, BLIND)} == {NORMAL}
    assert len({(row["seed"], str(row["tables"])) for row in found}) == 2
    for one, other in (("random-swap", NORMAL), (UNHEARD, NORMAL)):
        chats = [[row["events"] for row in found if (row["pair"], row["strategy"]) == (MODEL, name)] for name in (one, other)]
        assert chats[0] == chats[1], "selectors say nothing that could be changed"


def test_one_sided_changes_what_side_0_says_alone(own: str, tmp_path: Path) -> None:
    config = replace(SMALL, model=f"{own}:Mute", strategies="random-inputs", controls=True, scenarios=2)
    run(config, tmp_path / "run", Silent())
    changed = {
        name: {
            event["side"]
            for row in rows(tmp_path / "run")
            if (row["pair"], row["strategy"]) == (MODEL, name)
            for event in row["events"]
            if event["said"] != event["heard"]
        }
        for name in ("random-inputs", "one-sided-random-inputs", NORMAL, UNHEARD)
    }
    assert changed == {"random-inputs": {0, 1}, "one-sided-random-inputs": {0}, NORMAL: set(), UNHEARD: {0, 1}}


def test_a_chat_model_takes_a_side_is_counted_and_asked_nothing_twice(own: str, tmp_path: Path) -> None:
    config = replace(SMALL, model=f"{own}:Talker", partner=SCRIPTED, strategies="none", max_events=12)
    result = run(config, tmp_path / "run", Silent())
    found, asked = rows(tmp_path / "run"), (tmp_path / "asked").read_text().count("asked")
    moves = [[event for event in row["events"] if event["side"] == 0] for row in found]
    assert {event["said"] for events in moves for event in events} == {"know a gardener ?", "hello", None}
    repairs = [sum(event["said"] == "hello" for event in events) for events in moves]
    assert [row["repairs"] for row in found] == [[num, None] for num in repairs]
    assert [row["unread"] for row in found] == [[0, None]] * len(found)
    assert result.metrics[of(REPAIRS, MODEL, NORMAL)].value == pytest.approx(sum(repairs) / len(found))
    assert "Moves that could not be read" in result.tables
    summary = RunFolder.load(tmp_path / "run").summary() or {}
    assert 0 < summary[USAGE]["asked"] == summary[USAGE]["uncounted"] == asked, "what is tried first is kept and counted, too"
    assert f"gave {summary[USAGE]['asked']} answers" in summary["description"]
    shutil.rmtree(tmp_path / "run" / "rows")
    again = run(config, tmp_path / "run", Silent())
    assert (tmp_path / "asked").read_text().count("asked") == asked
    assert rows(tmp_path / "run") == found
    assert again.metrics == result.metrics


def test_a_chat_that_fails_is_a_row_with_the_reason_and_the_others_are_kept(own: str, tmp_path: Path) -> None:
    config = replace(SMALL, model=f"{own}:Talker", partner=SCRIPTED, strategies="none", max_events=12)
    run(config, tmp_path / "whole", Silent())
    whole, asked = rows(tmp_path / "whole"), tmp_path / "asked"
    # A table that the first scenario, which is tried before there is a run, does not have.
    known = [str(row["tables"]) for row in whole]
    friend = next(value for value in whole[3]["tables"][0][0] if str(value) not in known[0])
    (tmp_path / "refused").write_text(str(friend))
    failed = run(config, tmp_path / "run", Silent())
    found = rows(tmp_path / "run")
    lost = {row["item_key"]: row["error"] for row in found if row["status"] == "error"}
    assert 0 < len(lost) < len(found)
    assert all("refused by the model" in reason for reason in lost.values())
    kept = [row for row in found if row["status"] == "ok"]
    assert kept == [row for row in whole if row["item_key"] not in lost], "in the same shard too"
    assert failed.metrics[of(COMPLETION, MODEL, NORMAL)].n == len(kept)
    (tmp_path / "refused").unlink()
    before = asked.read_text().count("asked")
    run(config, tmp_path / "run", Silent())
    assert rows(tmp_path / "run") == whole
    usage = (RunFolder.load(tmp_path / "run").summary() or {})[USAGE]
    assert asked.read_text().count("asked") - before < usage["asked"], "those that failed alone are asked again"


def test_a_bot_that_joins_is_no_chat_model_whatever_else_it_has(own: str) -> None:
    corpus = load_friends(EMBEDDED_FRIENDS)
    assert isinstance(make_friends_agent(f"{own}:Helped", corpus), OwnFriendsAgent)
    assert isinstance(make_friends_agent(f"{own}:Talker", corpus), ChatFriend)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_chat_model_computes_where_its_seat_says(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[ChatModelSettings] = []
    monkeypatch.setattr(agents, "chat_model", lambda spec, settings, answers: loaded.append(settings))
    corpus, address = load_friends(EMBEDDED_FRIENDS), "openai:http://here/v1#model"
    made = make_friends_agent(address, corpus, device=device, seat=ChatSeat(device="mps"))
    assert isinstance(made, ChatFriend)
    _ = made.model
    assert loaded[0].device == {"cpu": "mps", "cuda": "cuda"}[device]


@pytest.mark.parametrize("changes", [{"shard_size": 3}, {"side_by_side": 2}, {"shard_size": 100, "side_by_side": 1}])
def test_rows_do_not_depend_on_how_chats_are_cut_or_joined(tmp_path: Path, changes: dict[str, Any]) -> None:
    run(SMALL, tmp_path / "whole", Silent())
    run(replace(SMALL, **changes), tmp_path / "cut", Silent())
    assert rows(tmp_path / "cut") == rows(tmp_path / "whole")


@pytest.fixture
def dynonet(tmp_path: Path) -> Path:
    return drawn_dynonet(tmp_path)


def test_a_checkpoint_plays_in_the_words_of_its_corpus_and_keeps_its_weights(tmp_path: Path, dynonet: Path) -> None:
    config = replace(SMALL, model=str(dynonet), partner="scripted", scenarios=2, max_events=10, strategies="confusing-entity")
    assert located(config).corpus == EMBEDDED_FRIENDS
    assert located(config).model == str(dynonet / "checkpoint")
    assert PlayedChats(config).computes
    result = run(config, tmp_path / "run", Silent())
    assert {tuple(row["agents"]) for row in rows(tmp_path / "run")} == {("dynonet", "scripted")}
    assert result.title == "dynonet with scripted looking for friends"
    save_file({}, dynonet / "checkpoint" / WEIGHTS)
    with pytest.raises(RunError, match="weights"):
        run(config, tmp_path / "run", Silent())


@pytest.mark.usefixtures("workers_here")
def test_two_workers_write_the_rows_of_none(tmp_path: Path) -> None:
    run(SMALL, tmp_path / "whole", Silent())
    run(replace(SMALL, workers=2), tmp_path / "two", Silent())
    assert rows(tmp_path / "two") == rows(tmp_path / "whole")


def test_an_interrupted_run_goes_on_where_it_was_and_failed_chats_are_played_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Fails(ChatWorker):
        def run(self, shard: Shard[ChatSpec]) -> list[dict[str, Any]]:
            if shard.name == "00002":
                raise RuntimeError("out of memory")
            return super().run(shard)

    with monkeypatch.context() as patch:
        patch.setattr(worker, "ChatWorker", Fails)
        run(SMALL, tmp_path / "run", Silent())
    assert sum(row["status"] == "error" for row in rows(tmp_path / "run")) == 5
    notes = Notes()
    run(SMALL, tmp_path / "run", notes)
    assert notes.steps[0] == 19
    run(SMALL, tmp_path / "whole", Silent())
    assert rows(tmp_path / "run") == rows(tmp_path / "whole")
    again = Notes()
    run(replace(SMALL, workers=3, side_by_side=7), tmp_path / "run", again)
    assert again.said == [f"{tmp_path / 'run'} is finished: nothing is left to do"]


def test_what_a_bot_remembers_of_itself_changes_chats_only_where_it_is_misheard(tmp_path: Path) -> None:
    for remembers in ("said", "heard"):
        run(replace(SMALL, remembers=remembers, strategies="random-inputs"), tmp_path / remembers, Silent())
    said, heard = (
        {(row["strategy"], row["scenario"]): row["events"] for row in rows(tmp_path / name)} for name in ("said", "heard")
    )
    assert {strategy for strategy, number in said if said[strategy, number] != heard[strategy, number]} == {"random-inputs"}


def test_a_seed_is_that_of_the_scenario_and_shards_are_alike_for_few_workers() -> None:
    work = PlayedChats(SMALL)
    assert work.seed("00-model-normal-000003") == work.seed("17-mixed-one-sided-confusing-entity-000003")
    assert work.seed("00-model-normal-000003") != work.seed("00-model-normal-000004")
    assert [work.shard_size(4000, num) for num in (0, 1, 8)] == [125] * 3
    assert work.shard_size(4000, 1000) == 1
    assert (work.shard_size(20, 1), work.shard_size(100_000, 1)) == (64, 256)
    assert not work.computes


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"model": "runs/nothing"}, CheckpointError, "parley train dynonet"),
        ({"strategies": "confusing-entitty"}, ConfigError, "did you mean 'confusing-entity'"),
        ({"strategies": "unheard"}, ConfigError, "no strategy to choose"),
        ({"corpus": "frends"}, ConfigError, "friends"),
        ({"model": "OWN:Rude"}, ConfigError, "RuntimeError: no"),
        ({"model": "OWN:Deaf"}, ConfigError, "no method enter or hear or act"),
        ({"model": "OWN:NOBODY"}, ConfigError, "makes no bot"),
    ],
)
def test_what_cannot_be_played_is_told_before_there_is_a_run(
    own: str, tmp_path: Path, changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    told = {name: value.replace("OWN", own) for name, value in changes.items()}
    with pytest.raises(error, match=message):
        run(replace(SMALL, **told), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()


def test_a_first_selection_is_nothing_where_there_is_none(own: str, tmp_path: Path) -> None:
    result = run(replace(SMALL, model=f"{own}:Mute"), tmp_path / "run", Silent())
    assert result.metrics[of(FIRST, MODEL, NORMAL)].n == 0
    assert result.metrics[of(COMPLETION, MODEL, NORMAL)].value == 0


def test_trained_pairs_are_called_as_they_are_numbered() -> None:
    config = MutualFriendsConfig(model="runs/m", trained="runs/a,runs/a,,/runs/b/checkpoint", controls=False)
    named = pair_names(vars(config), config.trained_runs)
    assert {pair: named[pair] for pair in config.pairs} == {MODEL: "m", "trained-1": "a", "trained-2": "b"}


def test_with_a_partner_trained_models_play_with_it_as_the_model_does() -> None:
    """They once played with themselves, so that what a partner costs counted as what training brings."""
    config = MutualFriendsConfig(model="runs/m", partner="scripted", trained="runs/a", controls=False)
    assert config.pairs == {MODEL: ("runs/m", "scripted"), "trained-1": ("runs/a", "scripted")}
    assert pair_names(vars(config), config.trained_runs)["trained-1"] == "a with scripted"
    itself = replace(config, partner="runs/m")
    assert itself.pairs == {MODEL: ("runs/m", "runs/m"), "trained-1": ("runs/a", "runs/a")}


def test_trained_models_stand_beside_the_model_that_they_began_with(dynonet: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    shutil.copytree(dynonet, again)
    config = replace(SMALL, model=str(dynonet), trained=str(again), strategies="random-lies", scenarios=3, max_events=8)
    result = run(config, tmp_path / "run", Silent())
    found = {(row["pair"], row["strategy"]) for row in rows(tmp_path / "run")}
    assert found == {(pair, strategy) for pair in (MODEL, "trained-1") for strategy in (NORMAL, "random-lies")}
    assert result.metrics[of(GAIN, "trained-1", "random-lies")].value == 0, "equal weights"
    table = result.tables["Trained against strategies"]
    assert [row[0] for row in table.rows] == [f"again: {NORMAL}", "again: random-lies"]
    assert set(EVALUATE_MUTUAL_FRIENDS.models(config)) == {"model", "partner", "trained-1"}
    with pytest.raises(CheckpointError, match="--trained"):
        run(replace(config, trained="runs/none"), tmp_path / "other", Silent())
    with pytest.raises(ConfigError, match="the same name"):
        replace(config, strategies="liar:a/x,liar:b/x")


def test_a_single_act_of_an_own_friend_for_several_rows_is_an_error() -> None:
    session = agents._OwnFriendsSession(SimpleNamespace(act=lambda rows: "wait"), "own.py:Friend")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"act gives an act for each row(.|\n)*own\.py:Friend(.|\n)*'wait' for 2"):
        session.act([0, 1])
