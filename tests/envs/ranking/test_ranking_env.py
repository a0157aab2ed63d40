"""`parley/ResponseRanking-v1`: edits of a reply whose score can be worked out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given
from hypothesis import strategies as st

from parley.engine.core.verbs.api import check_part
from parley.envs.core.errors import ConfigError, ScenarioError
from parley.envs.ranking.edit_game import AlikeWords, EditedReply, EditGame, EditRules, RankGoal, TermOverlap
from parley.envs.ranking.groups import CandidateGroup
from parley.envs.ranking.ranking_env import ResponseRankingEnv
from tests.envs.ranking.made_up import DESK, Listed

RULES = EditRules(edits=2, num_places=4, num_proposals=3)
DRAWER, PRINTER, JAMMING = 1, 2, 9
"""Replace "your" by "drawer", "your" by "printer", "charging" by "jamming"."""


def make(**arguments: Any) -> ResponseRankingEnv:
    return ResponseRankingEnv(**{"groups": [DESK], "scorer": Listed(), "rules": RULES, **arguments})


def test_a_wrong_reply_is_edited_until_it_passes_the_right_one() -> None:
    env = make()
    observation, info = env.reset(seed=1)
    # Of the wrong replies "your laptop needs charging" scores best, 0.25; the right one 2.5.
    assert (info["place"], info["margin"], info["queries"]) == (1, 0.25 - 2.5, 0)
    allowed = np.flatnonzero(observation["action_mask"]).tolist()
    assert allowed == [0, 1, 2, 3, 4, 5, 6, 7, 9, 12]
    observation, reward, terminated, truncated, info = env.step(np.int64(DRAWER))
    assert info["reply"] == "drawer laptop needs charging"
    assert (reward, terminated, truncated) == (pytest.approx(1.0 / 2.25), False, False)
    # A word is replaced once, and none comes twice.
    assert np.flatnonzero(observation["action_mask"]).tolist() == [3, 5, 6, 7, 9, 12]
    _, reward, terminated, truncated, info = env.step(np.int64(JAMMING))
    # Both edits earn 1 together.
    assert (reward, terminated, truncated) == (pytest.approx(1.25 / 2.25), True, False)
    assert (info["success"], info["queries"]) == (True, 2)
    with pytest.raises(ScenarioError, match="no example is going on"):
        env.step(np.int64(JAMMING))


def test_the_last_edit_ends_it_without_success() -> None:
    env = make(rules=replace(RULES, edits=1))
    env.reset(seed=1)
    _, _, terminated, truncated, info = env.step(np.int64(JAMMING))
    assert (terminated, truncated, info["success"]) == (True, False, False)


def test_who_stops_gets_nothing_and_what_is_forbidden_costs_an_edit() -> None:
    env = make()
    env.reset(seed=1)
    _, reward, terminated, _, info = env.step(np.int64(11))
    assert (reward, terminated, info["num_illegal"], info["reply"]) == (0.0, False, 1, "your laptop needs charging")
    _, reward, terminated, _, info = env.step(np.int64(RULES.stop))
    assert (reward, terminated, info["queries"]) == (0.0, True, 0)
    with pytest.raises(ScenarioError, match="outside the action space"):
        make_ready().step(np.int64(13))


def make_ready() -> ResponseRankingEnv:
    env = make()
    env.reset(seed=1)
    return env


def test_the_right_reply_is_pushed_down_by_the_other_goal() -> None:
    env = make(goal=RankGoal("demote"), rules=replace(RULES, edits=4))
    observation, info = env.reset(seed=1)
    assert (info["place"], info["margin"]) == (0, 0.25 - 2.5)
    assert env.step(np.int64(0))[1] == 0.0
    assert observation["actions"].dtype == np.float32


def test_scores_that_are_equal_but_for_rounding_reach_no_goal() -> None:
    reply = EditedReply(DESK, index=1, margin=0.5e-6, tolerance=1e-6)
    assert not reply.succeeded
    assert replace(reply, margin=2e-6).succeeded


def test_groups_without_anything_to_edit_are_passed_over() -> None:
    short = replace(DESK, key="short", candidates=(DESK.candidates[0], ("no",), ("no", "no")))
    won = replace(DESK, key="won", candidates=(("no",), DESK.candidates[1], ("no", "no")))
    env = make(groups=[short, won, DESK])
    assert {env.reset(seed=seed)[1]["key"] for seed in range(20)} == {"desk-1"}
    with pytest.raises(ConfigError, match="no group has a reply to edit") as caught:
        env.reset(seed=1, options={"group": won})
    assert caught.value.got == "the goal is reached before any edit"
    assert "no word may be replaced" in str(_refused(env, short))


def _refused(env: ResponseRankingEnv, group: CandidateGroup) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        env.reset(options={"group": group})
    return caught.value


@pytest.mark.parametrize(
    ("arguments", "what"), [({"groups": []}, "there is no group"), ({"render_mode": "rgb"}, "unknown render mode")]
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        make(**arguments)


def test_wrong_options_are_refused() -> None:
    with pytest.raises(ConfigError, match="wrong option of reset"):
        make().reset(options={"example": DESK})


@given(st.integers(0, 10_000), st.lists(st.integers(0, RULES.stop), min_size=2, max_size=2))
def test_rewards_lie_between_minus_one_and_one_and_only_proposals_enter(seed: int, actions: list[int]) -> None:
    env = make()
    env.reset(seed=seed)
    proposed = {word for words in AlikeWords().propose(DESK, 1) for word in words}
    for action in actions:
        _, reward, terminated, truncated, info = env.step(np.int64(action))
        assert -1 <= reward <= 1
        assert not truncated
        assert set(info["reply"].split()) <= {*DESK.candidates[1], *proposed}
        if terminated:
            break
    assert terminated


def test_examples_side_by_side_are_as_alone_and_share_the_rankers_batches() -> None:
    sizes: list[int] = []
    listed = Listed()

    def counting(pairs: Sequence[Any]) -> list[np.ndarray]:
        sizes.append(len(pairs))
        return listed(pairs)

    groups = [replace(DESK, key=f"desk-{n}") for n in range(3)]
    game = EditGame(groups, [1, 2, 3], counting, AlikeWords(), RULES, RankGoal())
    rewards = game.act([0, 1, 2], [DRAWER, PRINTER, RULES.stop]), game.act([0, 1], [JAMMING, JAMMING])
    assert sizes == [3, 2, 2]
    assert [reply.succeeded for reply in game.replies] == [True, True, False]
    for row, taken in enumerate([(DRAWER, JAMMING), (PRINTER, JAMMING), (RULES.stop,)]):
        alone = EditGame(groups[row : row + 1], [row + 1], listed, AlikeWords(), RULES, RankGoal())
        assert [float(alone.act([0], [action])[0]) for action in taken] == [each[row] for each in rewards[: len(taken)]]
        assert alone.replies[0].words == game.replies[row].words


def test_what_was_scored_once_is_no_second_query() -> None:
    game = EditGame([DESK], [1], Listed(), AlikeWords(), RULES, RankGoal())
    words = game.replies[0].words
    game.margins([0], [[words, words[1:], words[1:]]])
    game.margins([0], [[words[1:]]])
    assert game.replies[0].num_queries == 1


def test_a_ranker_that_is_handed_in_and_the_defaults_suit_gymnasium() -> None:
    check_env(make(scorer=TermOverlap([DESK.context]), rules=EditRules()), skip_render_check=True)
    text = gymnasium.make("parley/ResponseRanking-v1", groups=[DESK], scorer=Listed(), render_mode="ansi")
    text.reset(seed=1)
    text.step(np.int64(1))
    shown = str(text.render())
    assert "= [drawer] laptop needs charging" in shown
    assert ">   0.2500  wrong  your laptop needs charging" in shown


def test_the_default_proposer_keeps_its_promises_and_a_careless_one_does_not() -> None:
    (found,) = check_part(AlikeWords)
    assert found.kept

    class Careless:
        def propose(self, group: CandidateGroup, place: int) -> list[list[str]]:
            return [[word] for word in group.candidates[place]]

    (found,) = check_part(Careless)
    assert not found.kept


def test_every_way_to_the_goal_earns_one_so_that_it_does_not_pay_to_put_it_off() -> None:
    listed = Listed()
    listed.WEIGHTS = {**listed.WEIGHTS, "printer": 2.5}
    earned = []
    for actions in ((PRINTER,), (DRAWER, JAMMING)):
        game = EditGame([DESK], [1], listed, AlikeWords(), RULES, RankGoal())
        earned.append(sum(float(game.act([0], [action])[0]) for action in actions))
        assert game.replies[0].succeeded
    assert earned == [pytest.approx(1.0), pytest.approx(1.0)]
