"""Both sides under PettingZoo's contract: its own tests, the order of moves, points."""

from __future__ import annotations

import numpy as np
import pytest
from pettingzoo.test import api_test, seed_test

from parley.envs.core.errors import ConfigError, ScenarioError
from parley.envs.negotiation.dealornodeal_rules import complement, selection_index
from parley.envs.negotiation.domain import Scenario
from parley.envs.negotiation.env import choose_action, speak_action
from parley.envs.negotiation.game import Rules
from parley.envs.negotiation.pettingzoo_env import PLAYERS, NegotiationAEC
from tests.envs.negotiation.agents import VOCABULARY

SHORT = Rules(max_turns=6, max_words=8, max_tokens=64)
SCENARIO = Scenario((1, 2, 3), ((1, 3, 1), (4, 0, 2)))


def make(reward: str = "points") -> NegotiationAEC:
    return NegotiationAEC(vocabulary=VOCABULARY, rules=SHORT, scenarios=[SCENARIO], reward=reward)


@pytest.mark.filterwarnings("ignore:Observation", "ignore:Action space")
def test_pettingzoo_accepts_it(capsys: pytest.CaptureFixture[str]) -> None:
    api_test(make(), num_cycles=200)
    seed_test(make, num_cycles=40)
    assert "Passed" in capsys.readouterr().out


@pytest.mark.parametrize(("kind", "earned"), [("points", (7.0, 8.0)), ("advantage", (-1.0, 1.0))])
def test_a_dialogue_from_the_first_word_to_the_points(kind: str, earned: tuple[float, float]) -> None:
    env = make(kind)
    env.reset(seed=4)
    opener = env.agent_selection
    env.step(speak_action(VOCABULARY, SHORT, ["deal", "<eos>"]))
    assert env.agent_selection != opener
    seen, reward, over, _, info = env.last()
    assert (reward, over, info) == (0.0, False, {})
    assert VOCABULARY.decode(seen["tokens"][: seen["num_tokens"]]) == ["THEM:", "deal", "<eos>"]
    env.step(speak_action(VOCABULARY, SHORT, ["<selection>"]))
    first = selection_index(SCENARIO.counts, (0, 2, 1))
    for player, selection in zip(PLAYERS, (first, complement(SCENARIO.counts, first)), strict=True):
        assert env.agent_selection == player
        env.step(choose_action(SHORT, selection))
    ended = {}
    for agent in env.agent_iter():
        _, reward, over, _, info = env.last()
        assert over
        assert info["points"] == (7, 8)
        ended[agent] = reward
        env.step(None)
    assert ended == dict(zip(PLAYERS, earned, strict=True))
    assert env.agents == []


def test_a_seed_names_a_dialogue_and_those_after_it() -> None:
    def starts(seed: int) -> list[tuple[str, list[int]]]:
        env = NegotiationAEC()
        found = []
        for number in range(4):
            env.reset(seed=seed if not number else None)
            found.append((env.agent_selection, np.asarray(env.observe(PLAYERS[0])["context"]).tolist()))
        return found

    assert starts(1) == starts(1) != starts(2)


def test_mistakes_are_named() -> None:
    with pytest.raises(ConfigError, match="did you mean 'points'"):
        NegotiationAEC(reward="point")
    with pytest.raises(ScenarioError, match="reset"):
        NegotiationAEC().observe(PLAYERS[0])
    env = make()
    env.reset(seed=0)
    with pytest.raises(ScenarioError, match="outside the action space"):
        env.step(None)
