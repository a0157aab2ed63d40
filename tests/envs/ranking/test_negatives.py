"""Wrong replies that are drawn: never right for the same context, of other dialogues, by seed and key alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.envs.core.errors import DataError
from parley.envs.corpora.lines import WordList
from parley.envs.ranking.groups import (
    CandidateKind,
    CandidateOptions,
    CandidateSplit,
    ReplyPool,
    reply_statistics,
    with_negatives,
)
from parley.envs.ranking.sources import groups_of_pairs
from tests.envs.ranking.made_up import pair_text

WORDS = ("a", "b", "c", "d")
said = st.lists(st.sampled_from(WORDS), min_size=1, max_size=2).map(" ".join)
dialogues = st.lists(st.lists(said, min_size=2, max_size=5), min_size=1, max_size=30)
FAR = [[f"u{i}", f"v{i}", f"w{i}"] for i in range(12)]
"""Enough that a group of ten can always be filled."""


def split_of(spoken: list[list[str]], turns: int = 10, name: str = "test") -> CandidateSplit:
    groups = groups_of_pairs(pair_text(spoken, name), turns).splits[name]
    words = {word: None for utterance in groups.utterances.utterances() for word in utterance}
    return groups.split(name, WordList(tuple(words)))


def plain_groups(spoken: list[list[str]], turns: int) -> list[tuple[int, tuple[str, ...], str]]:
    """Dialogue, context and right reply of each pair."""
    return [
        (number, tuple(dialogue[max(0, place - turns) : place]), dialogue[place])
        for number, dialogue in enumerate(spoken)
        for place in range(1, len(dialogue))
    ]


@given(
    spoken=dialogues,
    options=st.builds(
        CandidateOptions,
        negatives=st.sampled_from(["random", "hard", "half"]),
        size=st.integers(2, 10),
        turns=st.integers(1, 4),
        seed=st.integers(0, 99),
    ),
)
def test_wrong_replies_are_wrong_and_of_other_dialogues(spoken: list[list[str]], options: CandidateOptions) -> None:
    spoken = spoken + FAR
    split = split_of(spoken, options.turns)
    made = with_negatives(split, options, reply_statistics(split))
    plain = plain_groups(spoken, options.turns)
    assert len(made) == len(plain)
    for group, (dialogue, context, right) in zip(made, plain, strict=True):
        assert tuple(" ".join(turn) for turn in group.context) == context
        texts = [" ".join(reply) for reply in group.candidates]
        assert (texts[0], group.labels[0], group.kinds[0]) == (right, True, CandidateKind.POSITIVE)
        assert len(texts) == options.size
        assert len(set(texts)) == options.size
        rights = {reply for _, same, reply in plain if same == context}
        assert not rights & set(texts[1:])
        for text, label, kind in zip(texts[1:], group.labels[1:], group.kinds[1:], strict=True):
            assert not label
            assert any(reply == text and other != dialogue for other, _, reply in plain)
            assert kind is (CandidateKind.RANDOM if options.negatives == "random" else kind)
            if kind is CandidateKind.HARD:
                assert set(text.split()) & {word for turn in context for word in turn.split()}
        num_hard = group.kinds.count(CandidateKind.HARD)
        assert num_hard <= (0, options.size // 2, options.size - 1)[["random", "half", "hard"].index(options.negatives)]


@given(spoken=dialogues, seed=st.integers(0, 99), data=st.data())
def test_a_draw_depends_on_nothing_but_seed_and_key(spoken: list[list[str]], seed: int, data: st.DataObject) -> None:
    split = split_of(spoken + FAR)
    replies = ReplyPool(split)
    rows = data.draw(st.lists(st.integers(0, len(split) - 1), min_size=1, max_size=8, unique=True))
    alone = [int(replies.fresh([row], seed)[0]) for row in rows]
    assert replies.fresh(np.array(rows), seed).tolist() == alone
    assert ReplyPool(split).fresh(rows, seed).tolist() == alone


def test_another_seed_draws_others_and_frequent_replies_are_drawn_often() -> None:
    split = split_of([[f"q{i}", "often" if i % 2 else f"r{i}"] for i in range(200)])
    replies = ReplyPool(split)
    rows = [row for row in range(200) if row % 2 == 0]
    often = [sum(split.utterance_of(reply) == ("often",) for reply in replies.fresh(rows, seed)) for seed in range(5)]
    assert all(30 < num < 70 for num in often)
    assert replies.fresh(rows, 0).tolist() != replies.fresh(rows, 1).tolist()


def test_a_group_that_comes_several_times_is_drawn_for_each_time() -> None:
    split = split_of([[f"q{i}", f"r{i}"] for i in range(200)])
    replies = ReplyPool(split)
    found = replies.fresh([3, 3, 5, 3], 1).tolist()
    assert len(set(found)) == 4
    assert replies.fresh([3, 5], 1).tolist() == [found[0], found[2]]
    assert replies.fresh([3, 3, 3], 1).tolist() == [found[0], found[1], found[3]]


def test_bm25_finds_what_shares_rare_words_with_the_context() -> None:
    spoken = [["the printer is broken", "which one"], ["so", "the printer in the hall"], ["and", "the cat"], *FAR]
    split = split_of(spoken)
    group = with_negatives(split, CandidateOptions(negatives="hard", size=4), reply_statistics(split))[0]
    assert [" ".join(reply) for reply in group.candidates[:3]] == ["which one", "the printer in the hall", "the cat"]
    assert group.kinds == (CandidateKind.POSITIVE, CandidateKind.HARD, CandidateKind.HARD, CandidateKind.RANDOM)


def test_half_of_an_odd_number_is_near_in_half_of_the_groups() -> None:
    split = split_of([[f"a{i} x", f"b{i} x"] for i in range(200)], name="train")
    kinds = [group.kinds[1] for group in with_negatives(split, CandidateOptions(negatives="half"), reply_statistics(split))]
    assert 70 < kinds.count(CandidateKind.HARD) < 130


def test_too_few_replies_are_an_error() -> None:
    split = split_of([["a", "b"], ["c", "d"], ["e", "b"]])
    with pytest.raises(DataError, match="too few replies to draw 9 wrong ones"):
        with_negatives(split, CandidateOptions(), reply_statistics(split))
