"""What models are fed: cut, framed, padded, and drawn once an epoch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from parley.envs.corpora.pairs.compiled import PairSplit
from parley.envs.corpora.pairs.vocabulary import BOS_ID, EOS_ID, EOU_ID, PAD_ID
from parley.policies.core.fitting.batches import epoch_order, in_order
from parley.policies.seq2seq.model import PairExamples, SentenceExamples, framed_source
from tests.policies.seq2seq.made_up import LM_SIZES, ragged, sizes, split

UTTERANCES = ragged([[5, 6], [7, 8, 9, 10, 11, 12, 13], [14], []])
SPLIT = PairSplit(UTTERANCES, np.array([[0, 1], [1, 2], [2, 3], [3, 0]]))


def test_sources_end_in_eou_and_replies_stand_between_their_marks() -> None:
    batch = PairExamples(SPLIT, sizes()).batch(np.arange(4))
    assert batch.source_BN.tolist() == [
        [5, 6, EOU_ID, PAD_ID, PAD_ID],
        [7, 8, 9, 10, EOU_ID],
        [14, EOU_ID, PAD_ID, PAD_ID, PAD_ID],
        [EOU_ID, PAD_ID, PAD_ID, PAD_ID, PAD_ID],
    ]
    assert batch.lengths_B.tolist() == [3, 5, 2, 1]
    assert batch.reply.words_BT1.tolist() == [
        [BOS_ID, 7, 8, 9, 10, 11, EOS_ID],
        [BOS_ID, 14, EOS_ID, *[PAD_ID] * 4],
        [BOS_ID, EOS_ID, *[PAD_ID] * 5],
        [BOS_ID, 5, 6, EOS_ID, *[PAD_ID] * 3],
    ]
    assert batch.targets_BT.tolist()[0] == [7, 8, 9, 10, 11, EOS_ID]
    assert batch.reply.words_in_BT.tolist()[0] == [BOS_ID, 7, 8, 9, 10, 11]


def test_a_model_of_several_turns_keeps_the_newest_words_of_a_source() -> None:
    batch = PairExamples(SPLIT, replace(sizes(), turns=2)).batch(np.arange(4))
    assert batch.source_BN.tolist() == [
        [5, 6, EOU_ID, PAD_ID, PAD_ID],
        [10, 11, 12, 13, EOU_ID],
        [14, EOU_ID, PAD_ID, PAD_ID, PAD_ID],
        [EOU_ID, PAD_ID, PAD_ID, PAD_ID, PAD_ID],
    ]
    assert batch.lengths_B.tolist() == [3, 5, 2, 1]
    assert batch.reply.words_BT1.tolist()[0] == [BOS_ID, 7, 8, 9, 10, 11, EOS_ID], "a reply keeps its beginning"


@pytest.mark.parametrize("turns", [1, 2])
def test_one_source_is_framed_as_in_a_batch(turns: int) -> None:
    read = replace(sizes(), turns=turns)
    batch = PairExamples(SPLIT, read).batch(np.arange(4))
    for row, length, (source, _) in zip(batch.source_BN.tolist(), batch.lengths_B.tolist(), SPLIT.pairs, strict=True):
        assert framed_source(UTTERANCES[source], read) == row[:length]


def test_sentences_are_framed_like_replies_and_cut_to_their_own_length() -> None:
    batch = SentenceExamples(UTTERANCES, LM_SIZES).batch(np.array([1, 2]))
    assert batch.words_BT1.tolist() == [[BOS_ID, 7, 8, 9, 10, 11, EOS_ID], [BOS_ID, 14, EOS_ID, *[PAD_ID] * 4]]


def test_a_language_model_of_several_turns_keeps_the_newest_words() -> None:
    batch = SentenceExamples(UTTERANCES, replace(LM_SIZES, turns=2)).batch(np.array([1, 2]))
    assert batch.words_BT1.tolist() == [[BOS_ID, 9, 10, 11, 12, 13, EOS_ID], [BOS_ID, 14, EOS_ID, *[PAD_ID] * 4]]


@pytest.mark.parametrize("num_pairs", [4, 3, 1])
def test_exchanged_examples_are_the_same_replies_behind_the_sources_of_others(num_pairs: int) -> None:
    own, order = PairExamples(PairSplit(UTTERANCES, SPLIT.pairs[:num_pairs]), sizes()), np.arange(num_pairs)
    here, other = own.batch(order), own.exchanged()
    there = other.batch(order)
    assert other.num_targets.tolist() == own.num_targets.tolist()
    assert there.reply.words_BT1.tolist() == here.reply.words_BT1.tolist()
    assert there.source_BN.tolist() == here.source_BN[np.roll(order, num_pairs // 2)].tolist()
    assert own.batch(order).source_BN.tolist() == here.source_BN.tolist(), "the others are left as they are"


def test_a_batch_is_padded_to_its_own_longest_members() -> None:
    batch = PairExamples(SPLIT, sizes()).batch(np.array([2]))
    assert batch.source_BN.tolist() == [[14, EOU_ID]]
    assert batch.reply.words_BT1.tolist() == [[BOS_ID, EOS_ID]]


@pytest.mark.parametrize("kind", ["pairs", "sentences"])
def test_the_number_of_targets_is_that_of_the_real_places(kind: str) -> None:
    made = split(30)
    examples = PairExamples(made, sizes()) if kind == "pairs" else SentenceExamples(made.utterances, LM_SIZES)
    for index in range(len(examples)):
        assert int(examples.batch(np.array([index])).real_BT.sum()) == examples.num_targets[index]
    batch = examples.batch(np.arange(len(examples)))
    assert batch.real_BT.sum(1).tolist() == examples.num_targets.tolist()


def test_measuring_reads_every_example_once() -> None:
    examples = PairExamples(split(30), sizes())
    batches = list(in_order(examples, 7))
    assert [len(batch.source_BN) for batch in batches] == [7, 7, 7, 7, 2]
    assert sum(int(batch.real_BT.sum()) for batch in batches) == examples.num_targets.sum()


@pytest.mark.parametrize("bucketed", [False, True])
def test_an_epoch_holds_every_example_once_in_an_order_of_its_generator(bucketed: bool) -> None:
    examples = PairExamples(split(50), sizes())
    first, again, other = (
        [group.tolist() for group in epoch_order(examples, 8, np.random.default_rng(seed), bucketed)] for seed in (1, 1, 2)
    )
    assert sorted(index for group in first for index in group) == list(range(50))
    assert first == again
    assert {frozenset(group) for group in first} != {frozenset(group) for group in other}
    spread = [np.ptp(examples.num_targets[group]) for group in first]
    assert (np.mean(spread) < 2) == bucketed
