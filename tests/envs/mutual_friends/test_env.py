"""`parley/MutualFriends-v1`: what is seen, done and earned."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from parley.envs.core.errors import ConfigError, DataError, ScenarioError
from parley.envs.mutual_friends.env import ChatVocabulary, MutualFriendsEnv
from parley.envs.mutual_friends.game import FriendsRules
from parley.envs.mutual_friends.linker import EntityLinker
from parley.envs.mutual_friends.scenario import ScenarioOptions
from parley.envs.mutual_friends.scripted.bots import FRIENDS_SCHEMA, FriendsBot, draw_scenarios, friends_forms
from tests.envs.mutual_friends.made_up import SCENARIO, SCHEMA, Reciter, Told

TASK: dict[str, Any] = {
    "linker": EntityLinker(SCHEMA),
    "scenarios": (SCENARIO,),
    "options": ScenarioOptions(max_attributes=3),
    "rules": FriendsRules(max_events=10, max_words=5),
}


def make(*acts: Any, **changes: Any) -> MutualFriendsEnv:
    return MutualFriendsEnv(**{"partner": Reciter(acts or (("no",),)), **TASK, **changes})


def begun(env: MutualFriendsEnv, *, first: bool = True) -> dict[str, Any]:
    """The observation of a chat in which the side itself begins, or its partner."""
    for seed in range(50):
        observation, info = env.reset(seed=seed)
        assert info == {}
        if (observation["num_events"] == 0) == first:
            return observation
    raise AssertionError("a coin decides who begins")


def test_a_side_sees_its_table_and_all_events() -> None:
    env = make(("any", "chess", "?"), 1)
    spaces = env.spaces
    observation = begun(env, first=False)
    names = {number: entity.value for entity, number in spaces.entity_ids.items()}
    assert [[names.get(number) for number in row] for row in observation["table"][:3].tolist()] == [
        ["ada", "nib", "chess"],
        ["ben", "nib", "knitting"],
        ["cleo", "upper nib", "chess"],
    ]
    assert not observation["table"][3:].any()
    assert observation["kinds"][:2].tolist() == [3, 0]
    assert spaces.vocabulary.decode(observation["words"][0].tolist()) == ["any", "chess", "?", "<pad>", "<pad>"]
    observation, reward, over, cut, info = env.step(spaces.say(["yes", "zzz"]))
    assert (reward, over, cut, info) == (0.0, False, False, {})
    assert observation["kinds"][:4].tolist() == [3, 1, 4, 0]
    assert spaces.vocabulary.decode(observation["words"][1, :2].tolist()) == ["yes", "<unk>"]
    assert [names[number] for number in observation["selected"][2].tolist()] == ["cleo", "upper nib", "chess"]


def test_agreement_pays_one_less_what_the_events_cost() -> None:
    env = make(("hi",), 1)
    begun(env)
    env.step(env.spaces.select(2))
    observation, reward, over, cut, info = env.step(env.spaces.say(["yes"]))
    assert (over, cut, observation["num_events"]) == (True, False, 4)
    assert reward == pytest.approx(1 - 4 * 0.01)
    assert info["agreed"]
    assert info["num_selections"] == (1, 1)
    assert info["transcript"][-1] == (1, "<select> Cleo | Upper Nib | chess")
    with pytest.raises(ScenarioError, match="no chat is going on"):
        env.step(env.spaces.say(["hi"]))


def test_nothing_is_paid_without_agreement() -> None:
    env = make(("hi",), rules=FriendsRules(max_events=3, max_words=5))
    begun(env)
    env.step(env.spaces.select(2))
    _, reward, over, _, info = env.step(env.spaces.say(["yes"]))
    assert (reward, over, info["agreed"]) == (0.0, True, False)


def test_acts_that_are_not_legal_are_said_as_an_unknown_word_and_counted() -> None:
    env = make(("hi",), rules=FriendsRules(max_events=5, max_words=5))
    begun(env)
    env.step(env.spaces.say([]))
    env.step(env.spaces.select(5))
    gaps = env.spaces.say(["yes", "no"])
    gaps["words"] = gaps["words"][[2, 0, 3, 1, 4]]
    _, _, over, _, info = env.step(gaps)
    assert over
    assert info["num_illegal"] == (2, 0)
    assert [text for side, text in info["transcript"] if side == 0] == ["<unk>", "<unk>", "yes no"]


def test_both_sides_are_played() -> None:
    env = make(2, side=1)
    observation = begun(env, first=False)
    assert (observation["table"] > 0).any(axis=1).sum() == 3
    _, reward, over, _, info = env.step(env.spaces.select(1))
    assert over
    assert reward == pytest.approx(0.98)
    assert info["agreed"]


def test_the_partner_hears_both_sides() -> None:
    partner = Told([("hello",)])
    env = make(partner=partner)
    begun(env)
    env.step(env.spaces.say(["hi"]))
    assert [(event.side, event.words) for event in partner.heard[0]] == [(0, ("hi",)), (1, ("hello",))]


def test_two_scripted_players_agree_through_the_environment() -> None:
    env = MutualFriendsEnv()
    bot = FriendsBot(EntityLinker(FRIENDS_SCHEMA, friends_forms()))
    found = 0
    for seed in range(8):
        env.reset(seed=seed)
        assert env._game is not None
        session = bot.join(env._game.view(0))
        session.enter([0])
        heard, over, reward = 0, False, 0.0
        while not over:
            for event in env._game.events[0][heard:]:
                session.hear([0], [event.plain()])
            heard = len(env._game.events[0])
            (act,) = session.act([0])
            words = [] if isinstance(act, int) else env._game.event(0, 0, act).words
            _, reward, over, _, _ = env.step(env.spaces.select(act) if isinstance(act, int) else env.spaces.say(words))
        found += reward > 0.5
    assert found >= 7


def test_a_scenario_may_be_set() -> None:
    env = MutualFriendsEnv()
    ((scenario, _),) = draw_scenarios(FRIENDS_SCHEMA, [3])
    observation, _ = env.reset(seed=0, options={"scenario": scenario})
    assert (observation["table"] > 0).any(axis=1).sum() == len(scenario.tables[0])
    with pytest.raises(ConfigError, match="wrong option"):
        env.reset(options={"table": scenario})
    with pytest.raises(DataError, match=r"does not have the entity"):
        env.reset(options={"scenario": SCENARIO})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"side": 2}, "no such side"),
        ({"render_mode": "ansy"}, "did you mean 'ansi'"),
        ({"event_cost": 0.2}, r"event_cost[\s\S]*0 to 0.1000"),
        ({"scenarios": ()}, "list of scenarios is empty"),
        ({"options": ScenarioOptions(min_attributes=2, max_attributes=2)}, r"too large[\s\S]*3 friends with 3 attributes"),
        ({"scenarios": None, "options": ScenarioOptions()}, "too few attributes"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make(**arguments)


def test_wrong_actions_are_named() -> None:
    env = make()
    with pytest.raises(ScenarioError, match="no chat is going on"):
        env.step(env.spaces.say(["hi"]))
    with pytest.raises(ScenarioError, match="nothing to render"):
        env.render()
    begun(env)
    with pytest.raises(ScenarioError, match="outside the action space"):
        env.step({"selection": np.int64(13), "words": np.zeros(5, dtype=np.int64)})
    with pytest.raises(ScenarioError, match=r"too long[\s\S]*6 words"):
        env.spaces.say(["hi"] * 6)


def test_a_vocabulary_of_ones_own_will_do(capsys: pytest.CaptureFixture[str]) -> None:
    words = ChatVocabulary.of(["hi", "no", "<pad>"])
    assert words.words == ("<pad>", "<unk>", "hi", "no")
    env = make(vocabulary=words, render_mode="human")
    observation = begun(env, first=False)
    assert observation["words"][0, 0] == 3
    assert "they: no" in capsys.readouterr().err
    assert replace(env.task, event_cost=0.0).event_cost == 0.0
