"""`parley/Reply-v1` and the rules of both sides."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given
from hypothesis import strategies as st

from parley.engine.core.verbs.api import check_part
from parley.envs.core.errors import ConfigError, JudgeError, ScenarioError
from parley.envs.corpora.pairs.turns import Turn
from parley.envs.corpora.pairs.vocabulary import BOS_ID, EOS_ID, PAD_ID
from parley.envs.generation.game import MACHINE, PERSON, RecordedOverlap, ReplyGame
from parley.envs.generation.reply_env import ReplyEnv, reply_action, words_of
from tests.envs.generation.made_up import EXAMPLES, RULES, Asks

WORDS = words_of(EXAMPLES)


def make(**arguments: Any) -> ReplyEnv:
    return ReplyEnv(**{"examples": EXAMPLES, "judge": Asks(), "rules": RULES, **arguments})


def ids(*words: str) -> np.ndarray:
    return reply_action(WORDS, RULES, words)


def test_a_context_is_shown_and_a_judge_says_how_human_the_reply_is() -> None:
    judge = Asks()
    env = make(judge=judge)
    observation, info = env.reset(seed=1, options={"example": EXAMPLES[0]})
    assert info == {"key": "a"}
    # Of three turns the newest two.
    assert [env.vocabulary.decode(turn) for turn in observation["context"]] == [
        ["my", "printer", "jams", "again"],
        ["which", "drawer", "?", "<pad>"],
    ]
    assert observation["lengths"].tolist() == [4, 3]
    _, reward, terminated, truncated, info = env.step(ids("which", "<eou>", "lower", "?", "</s>"))
    assert (reward, terminated, truncated) == (0.75, True, False)
    assert info["reply"] == "which <eou> lower ?"
    assert info["recorded"] == "the lower one <eou> it jams"
    assert judge.asked == [("a", "which <eou> lower ?")]
    with pytest.raises(ScenarioError, match="no context waits for a reply"):
        env.step(ids("no"))


def test_a_turn_that_is_not_there_is_empty_and_a_long_one_loses_its_first_words() -> None:
    game = ReplyGame([EXAMPLES[1], EXAMPLES[0]], [0, 0], WORDS, RULES)
    assert game.lengths_BK.tolist() == [[0, 4], [4, 3]]
    assert (game.context_BKN[0, 0] == PAD_ID).all()
    short = ReplyGame([EXAMPLES[0]], [0], WORDS, type(RULES)(turns=1, max_context=2, max_words=2))
    assert WORDS.decode(short.context_BKN[0, 0]) == ["drawer", "?"]
    assert WORDS.decode(short.recorded(0)) == ["the", "lower"]


def test_a_reply_ends_where_it_says_so_and_ids_that_are_no_words_are_dropped() -> None:
    env = make()
    env.reset(seed=1)
    action = ids("the", "lower", "one", "again", "?")
    action[[1, 3]] = BOS_ID, EOS_ID
    _, reward, _, _, info = env.step(action)
    assert (info["reply"], info["num_illegal"], reward) == ("the one", 1, 0.25)
    env.reset(seed=1)
    _, reward, _, _, info = env.step(np.full(5, PAD_ID))
    # No judge is asked about nothing, and boundaries of utterances are no words.
    assert (info["reply"], info["num_illegal"], reward) == ("", 0, 0.0)
    env.reset(seed=1)
    _, reward, _, _, info = env.step(ids("<eou>"))
    assert (info["reply"], reward) == ("<eou>", 0.0)


def test_a_listener_is_shown_one_reply_and_both_earn_by_what_it_says() -> None:
    seeds = list(range(40))
    game = ReplyGame([EXAMPLES[n % 2] for n in seeds], seeds, WORDS, RULES)
    game.say(np.tile(ids("it", "is", "full"), (40, 1)))
    shown, lengths = game.shown()
    assert 8 < game.is_recorded_B.sum() < 32
    for row, recorded in enumerate(game.is_recorded_B):
        expected = game.recorded(row) if recorded else ids("it", "is", "full")[:3]
        assert shown[row, : lengths[row]].tolist() == expected.tolist()
        assert (shown[row, lengths[row] :] == PAD_ID).all()
    game.guess(np.full(40, PERSON))
    speaker, listener = game.scores()
    assert (speaker == ~game.is_recorded_B).all()
    assert (listener == game.is_recorded_B).all()
    game.guess(np.full(40, MACHINE))
    speaker, listener = game.scores()
    assert not speaker.any()
    assert (listener == ~game.is_recorded_B).all()
    # Neither coin nor reward depends on who is beside.
    assert [ReplyGame([EXAMPLES[0]], [n], WORDS, RULES).is_recorded_B[0] for n in seeds] == game.is_recorded_B.tolist()


def test_words_that_nobody_knows_are_alike_on_both_sides() -> None:
    few = words_of(EXAMPLES[1:])
    game = ReplyGame([EXAMPLES[0]], [0], few, RULES)
    assert few.decode(game.recorded(0)) == ["<unk>", "<unk>", "<unk>", "<eou>", "it"]


def test_out_of_the_box_it_answers_the_help_desk() -> None:
    env = gymnasium.make("parley/Reply-v1").unwrapped
    assert isinstance(env, ReplyEnv)
    _, info = env.reset(seed=3)
    (example,) = [each for each in env.examples if each.key == info["key"]]
    (said,) = example.reply
    assert env.step(reply_action(env.vocabulary, env.rules, said))[1] == 1.0
    check_env(env, skip_render_check=True)


def test_the_overlap_of_words_counts_how_often_they_stand() -> None:
    replies: list[Turn] = [(("it", "it", "jams", "<eou>"),), (("which", "one", "?"),)]
    assert RecordedOverlap().judge_replies(EXAMPLES, replies).tolist() == pytest.approx([2 * 3 / 10, 2 * 2 / 8])


@pytest.mark.parametrize("told", [[7.0], [float("nan")], [0.5, 0.5], 0.5])
def test_a_judge_that_answers_with_no_share_for_each_is_refused(told: Any) -> None:
    class Odd:
        def judge_replies(self, examples: Any, replies: Any) -> np.ndarray:
            return np.array(told)

    env = make(judge=Odd())
    env.reset(seed=1)
    with pytest.raises(JudgeError, match=r"no rewards(.|\n)*as many numbers from 0 to 1"):
        env.step(ids("lower", "</s>"))


@pytest.mark.parametrize("judge", [RecordedOverlap, Asks])
def test_judges_keep_their_promises(judge: type) -> None:
    (found,) = check_part(judge)
    assert found.kind.name == "judge of replies"
    assert found.kept


def test_a_judge_that_looks_at_its_neighbours_is_told() -> None:
    class Ranks(Asks):
        def judge_replies(self, examples: Any, replies: Any) -> np.ndarray:
            return np.arange(len(replies)) / len(replies)

    (found,) = check_part(Ranks)
    assert [bool(promise.failure) for promise in found.promises] == [False, False, True]


@pytest.mark.parametrize(
    ("arguments", "what"), [({"examples": []}, "there is no context"), ({"render_mode": "rgb"}, "unknown render mode")]
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        make(**arguments)


def test_wrong_options_and_actions_are_refused() -> None:
    env = make()
    with pytest.raises(ConfigError, match="wrong option of reset"):
        env.reset(options={"group": EXAMPLES[0]})
    with pytest.raises(ScenarioError, match="call reset"):
        env.step(ids("no"))
    env.reset(seed=1)
    with pytest.raises(ScenarioError, match="outside the action space"):
        env.step(np.full(5, len(WORDS)))
    with pytest.raises(ScenarioError, match="too long"):
        ids(*["no"] * 6)


@given(st.integers(0, 1000), st.lists(st.integers(0, len(WORDS) - 1), min_size=5, max_size=5))
def test_any_action_is_one_reply_with_a_reward_from_0_to_1(seed: int, action: list[int]) -> None:
    env = make()
    env.reset(seed=seed)
    _, reward, terminated, truncated, info = env.step(np.array(action))
    assert (terminated, truncated) == (True, False)
    assert 0 <= reward <= 1
    words = info["reply"].split()
    assert len(words) + info["num_illegal"] <= 5
    assert not {"<pad>", "<s>", "</s>"} & set(words)
