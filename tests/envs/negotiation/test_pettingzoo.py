"""Both sides under PettingZoo's contract: its own tests, the order of moves, points."""

from __future__ import annotations

import numpy as np
import pytest
from pettingzoo.test import api_test, parallel_api_test, seed_test

from parley.envs.core.errors import ConfigError, ScenarioError
from parley.envs.negotiation.dealornodeal_rules import complement, selection_index
from parley.envs.negotiation.domain import Scenario
from parley.envs.negotiation.env import choose_action, speak_action
from parley.envs.negotiation.game import Rules
from parley.envs.negotiation.pettingzoo_env import PLAYERS, NegotiationActsAEC, NegotiationAEC, parallel_acts
from parley.envs.negotiation.scripted.bargainers import NUM_ALLOCATIONS
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


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_pettingzoo_accepts_both_forms_by_acts(capsys: pytest.CaptureFixture[str]) -> None:
    api_test(NegotiationActsAEC(), num_cycles=200)
    seed_test(NegotiationActsAEC, num_cycles=40)
    parallel_api_test(parallel_acts(), num_cycles=200)
    assert capsys.readouterr().out.count("Passed") == 2


def test_acts_of_both_sides_are_said_and_the_agreed_deal_is_chosen() -> None:
    env = NegotiationActsAEC(scenarios=[SCENARIO])
    accept = NUM_ALLOCATIONS
    env.reset(seed=1)
    opener, other = env.agent_selection, PLAYERS[1 - PLAYERS.index(env.agent_selection)]
    env.step(np.int64(3))
    _, _, _, _, info = env.last()
    assert env.agent_selection == other
    assert info["action_mask"][accept] == 1
    share = env._seats[other].acts.talks.table  # type: ignore[attr-defined]
    env.step(np.int64(accept))
    assert env.agent_selection == opener
    env.step(np.int64(NUM_ALLOCATIONS + 3))  # ends the talk
    assert all(env.terminations.values())
    assert env.infos[opener]["agreed"]
    assert share is not None
    points = env.infos[opener]["points"]
    assert points == tuple(env.rewards[player] for player in PLAYERS)
    mine, values = PLAYERS.index(opener), SCENARIO.values
    counts = np.array(SCENARIO.counts)
    kept = counts - np.array(share)
    assert points[1 - mine] == int(np.array(values[1 - mine]) @ np.array(share))
    assert points[mine] == int(np.array(values[mine]) @ kept)


def test_in_the_parallel_form_only_the_act_of_the_agent_to_move_counts() -> None:
    env, same = parallel_acts(scenarios=[SCENARIO]), NegotiationActsAEC(scenarios=[SCENARIO])
    _, infos = env.reset(seed=3)
    same.reset(seed=3)
    end = np.int64(NUM_ALLOCATIONS + 3)
    while env.agents:
        mover = same.agent_selection
        acts = {player: np.int64(infos[player]["action_mask"].argmax()) if player == mover else end for player in PLAYERS}
        same.step(acts[mover])
        seen, rewards, _, _, infos = env.step(acts)
        assert {player: seen[player].tolist() for player in seen} == {player: same.observe(player).tolist() for player in seen}
    assert rewards == same.rewards
    assert same.infos[PLAYERS[0]]["forced"], "nobody has ended it"
