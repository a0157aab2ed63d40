"""Training of liars as a run: that they learn, go on exactly, and are heard in evaluations and in trainings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from parley.engine.core.rllib.reproducible import ActionReinforceConfig
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.job import USAGE, Silent
from parley.engine.core.verbs.supervised import UPDATE
from parley.engine.mutual_friends.metrics.chats import MODEL, REPLACED, of
from parley.engine.mutual_friends.metrics.lying import HONEST, LYING, POLICY, LiedTo, lying_metrics
from parley.engine.mutual_friends.rl import LiarModule, LiarRunner
from parley.engine.mutual_friends.verbs.agents import MEASURED, TRAIN_LIAR, TrainLiarConfig, opened_world, training_chats
from parley.engine.mutual_friends.verbs.config import Channels, MutualFriendsConfig
from parley.engine.mutual_friends.verbs.evaluate import EVALUATE_MUTUAL_FRIENDS, demo
from parley.engine.perturb.strategy import PerturbSettings
from parley.envs.core.errors import CheckpointError, ConfigError, RefusedModelError
from parley.envs.corpora.lines import WordList
from parley.envs.mutual_friends.compiled import load_friends
from parley.envs.mutual_friends.lies import FEATURES, LieRules, LyingChannel, by_chance
from parley.envs.mutual_friends.scenario import ScenarioOptions
from parley.policies.chat.settings import ChatSeat
from parley.policies.core.settings import ChoiceLearning, ChoiceSizes
from parley.policies.dynonet.agent import LIAR, Liar, liar_choice, load_liar, new_liar, save_liar
from parley.policies.dynonet.settings import FriendsDecoding
from tests.engine.core.verbs.made_up import Notes, assert_equal_weights, interrupt, rows
from tests.policies.chat.fake_server import Said, serving

ASKED = TrainLiarConfig(
    scenarios=12,
    max_events=20,
    game=LieRules(lies=4, claims=6),
    learning=ChoiceLearning(updates=4, examples_per_update=12, learning_rate=0.05),
    save_every=2,
)


def test_claims_are_chosen_by_the_policy(tmp_path: Path) -> None:
    liar = new_liar(ChoiceSizes(hidden=1), 1)
    with torch.no_grad():
        for parameter in liar.parameters():
            parameter.zero_()
        liar.layers[0].weight[0, 1] = 3.0
        liar.layers[2].weight[0, 0] = 20.0
    save_liar(liar, tmp_path, LieRules(lies=2), {})
    found, rules = load_liar(tmp_path)
    assert rules == LieRules(lies=2)
    seen = np.zeros((50, 4, len(FEATURES)), dtype=np.float32)
    seen[:, 2, 1] = 1
    masks = np.ones((50, 4), dtype=np.int8)
    uniforms = np.linspace(0.01, 0.99, 50)
    assert (liar_choice(found)(seen, masks, uniforms) == 2).all(), "what the partner has just named"
    masks[:, 2] = 0
    assert set(liar_choice(found)(seen, masks, uniforms).tolist()) == {0, 1, 3}, "what is not allowed is never said"
    other = Liar(WordList(FEATURES[:-1]), ChoiceSizes())
    LIAR.save(other, tmp_path / "other", {"rules": {}})
    with pytest.raises(CheckpointError, match="something else"):
        load_liar(tmp_path / "other")


def test_the_next_command_plays_by_the_limits_of_the_training() -> None:
    asked = TrainLiarConfig(max_events=20, tables=ScenarioOptions(max_items=8), decoding=FriendsDecoding(temperature=0.0))
    *_, heard = TRAIN_LIAR.next_commands(asked, Path("runs/liar"))
    assert heard.startswith("parley evaluate collaboration --strategies liar:runs/liar ")
    for setting in ("--max-events 20", "--set tables.max_items=8", "--set decoding.temperature=0.0"):
        assert setting in heard


def test_figures_of_liars_are_counted_on_the_same_scenarios() -> None:
    honest = LiedTo([0.2, 0.4, 0.3], [True, True, True], [8, 16, 12], [0, 0, 0], [(1, 10), (0, 30), (0, 0)])
    random = honest._replace(lies=[1, 2, 3], repeated=[(9, 9)] * 3)
    policy = LiedTo([1.0, 0.5, 0.3], [False, True, True], [40, 20, 12], [3, 3, 0], [(9, 9)] * 3)
    found = lying_metrics({"": policy, "_random": random, "_honest": honest})
    assert list(found) == list(LYING)
    assert (found["completion"].value, found["completion_honest"].value) == (pytest.approx(2 / 3), 1)
    assert found["gain"].value == found["gain_over_random"].value == pytest.approx(0.3)
    assert (found["lies"].value, found["lies_random"].value) == (2, 2)
    assert found["repetition"].value == pytest.approx(1 / 40), "of the chats without lies alone"


def test_a_chat_that_is_learned_from_depends_on_its_index_alone(tmp_path: Path) -> None:
    save_liar(new_liar(ChoiceSizes(), 1), tmp_path / "start", ASKED.game, {})
    settings = ActionReinforceConfig().choosing(
        learning=ASKED.learning,
        make_env=lambda: training_chats(ASKED),
        runner=LiarRunner,
        module=LiarModule,
        checkpoint=str(tmp_path / "start"),
        seed=3,
    )
    runner = LiarRunner(config=settings)
    both = runner.sample(indices=[5, 90])
    for number, index in enumerate((5, 90)):
        alone, own = runner.sample(indices=[index]), both["example"] == number
        assert np.array_equal(alone["actions"], both["actions"][own])
        assert np.array_equal(alone["taken"], both["taken"][own])
        assert alone["rewards"].tolist() == both["rewards"][own].tolist()
        assert alone["step"].tolist() == list(range(own.sum()))
        lies, (agreed,), (events,) = int((alone["taken"] > 0).sum()), alone["agreed"], alone["events"]
        assert alone["lies"].tolist() == [lies]
        worth = ASKED.game.delay * events / 20 if agreed else 1.0
        assert alone["rewards"].sum() == pytest.approx(worth - ASKED.game.cost * lies)
    assert all(both["action_mask"][step, action] for step, action in enumerate(both["taken"].tolist()))
    space = runner.env.observation_space
    assert space.contains({name: both[name][0] for name in ("actions", "action_mask")})


@pytest.mark.ray
def test_a_liar_goes_on_exactly_where_it_was_and_is_heard_elsewhere(tmp_path: Path, ray_session: object) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    result = TRAIN_LIAR.run(ASKED, whole, Silent())
    assert list(result.metrics) == list(LYING)
    events = list(RunFolder.load(whole).events())
    assert [event["number"] for event in events if event["kind"] == UPDATE] == [1, 2, 3, 4]
    assert [len(event["harm_random"]) for event in events if event["kind"] == MEASURED] == [12]

    interrupt(TRAIN_LIAR, ASKED, parts, done=3)
    notes = Notes()
    TRAIN_LIAR.run(ASKED, parts, notes)
    assert "resumed after update 2" in notes.said
    assert_equal_weights(parts, whole)
    begun = new_liar(ChoiceSizes(), ASKED.seed).state_dict()
    assert not all(torch.equal(value, begun[name]) for name, value in load_liar(whole)[0].state_dict().items())
    assert RunFolder.load(parts).metrics() == result.metrics

    heard = replace(demo(), strategies=f"liar:{whole}", scenarios=6)
    found = EVALUATE_MUTUAL_FRIENDS.run(heard, tmp_path / "heard", Silent())
    assert {row["strategy"] for row in rows(tmp_path / "heard")} == {"normal", "liar:whole"}
    assert found.metrics[of(REPLACED, MODEL, "liar:whole", "any")].value > 0
    assert "Who believes liar:whole" in found.tables
    assert EVALUATE_MUTUAL_FRIENDS.models(heard)["liar:whole"] == str(whole)
    corpus = load_friends("friends")
    channel = Channels(corpus, PerturbSettings(), None, LieRules()).named(f"liar:{whole}")
    assert isinstance(channel, LyingChannel)


def test_mistakes_are_named(tmp_path: Path) -> None:
    for changes, error, words in (
        ({"start": "runs/nothing"}, CheckpointError, "--start"),
        ({"model": "runs/nothing"}, CheckpointError, "parley train dynonet"),
        ({"corpus": "frends"}, ConfigError, "friends"),
        ({"body": "selector"}, ConfigError, "says nothing that could be a lie"),
    ):
        with pytest.raises(error, match=words):
            TRAIN_LIAR.run(replace(ASKED, **changes), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()
    with pytest.raises(CheckpointError, match="parley train liar"):
        EVALUATE_MUTUAL_FRIENDS.run(MutualFriendsConfig(strategies="liar:runs/nothing"), tmp_path / "run", Silent())


TALKER = """
def reply(messages):
    with open({log!r}, "a") as file:
        file.write("asked\\n")
    said = sum(message["role"] == "assistant" for message in messages)
    return f"SELECT {{said % 3 + 1}}" if said > 1 else "i know people from google"
"""


@pytest.mark.ray
def test_chat_models_on_both_sides_are_asked_nothing_twice_and_their_tokens_are_counted(
    tmp_path: Path, ray_session: object
) -> None:
    (tmp_path / "talker.py").write_text(TALKER.format(log=str(tmp_path / "asked")))
    name = f"{tmp_path}/talker.py:reply"
    config = replace(ASKED, model=name, body=name, max_events=8, scenarios=4, chat=ChatSeat(max_tokens=9, prices="0/1"))
    interrupt(TRAIN_LIAR, config, tmp_path / "run", done=3)
    TRAIN_LIAR.run(config, tmp_path / "run", Silent())
    kept = (tmp_path / "run" / "answers" / "answers.jsonl").read_text().splitlines()
    assert len((tmp_path / "asked").read_text().splitlines()) == len(kept) > 20
    used = (RunFolder.load(tmp_path / "run").summary() or {})[USAGE]
    assert used["asked"] == len(kept)
    assert list(used["models"]) == [name]


@pytest.mark.ray
def test_a_server_that_takes_no_key_ends_the_training_at_once(tmp_path: Path, ray_session: object) -> None:
    with serving(lambda number, body: Said(b"", 401)) as server:
        with pytest.raises(RefusedModelError):
            TRAIN_LIAR.run(replace(ASKED, model=server.name), tmp_path / "run", Silent())
        assert len(server.asked) <= ChatSeat().concurrency


SILENT = """
def reply(messages):
    if len(messages[0]["content"]) % 3 == 0:
        return ""
    return "<think>Who is it?</think>\\n\\nSELECT 1"
"""


def test_chats_in_which_a_player_gives_no_reply_are_left_out_on_all_sides(tmp_path: Path) -> None:
    (tmp_path / "silent.py").write_text(SILENT)
    config = replace(ASKED, model=f"{tmp_path}/silent.py:reply", max_events=6, scenarios=9)
    world = opened_world(config)
    lied, honest = (world.play(by_chance(rate))[0] for rate in (1.0, 0.0))
    assert set(lied) == set(honest)
    assert 0 < len(lied) < 9
    selected = {event.selected for chat in honest.values() for event in chat.events if event.side == 1}
    assert selected == {0}, "what is thought is no part of a move"
    found = world.compared({POLICY: lied, HONEST: {place: honest[place] for place in list(honest)[1:]}})
    assert len(found[POLICY].harm) == len(found[HONEST].harm) == len(lied) - 1
