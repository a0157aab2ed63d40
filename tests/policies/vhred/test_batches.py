"""What VHRED is fed: which turns and words are kept, and where padding stands."""

from __future__ import annotations

import numpy as np
import pytest

from parley.envs.core.errors import ConfigError
from parley.envs.corpora.pairs.vocabulary import BOS_ID, EOS_ID, EOU_ID, PAD_ID, UNK_ID
from parley.policies.vhred.model import DialogueExamples, context_ids, side_by_side
from tests.policies.vhred.made_up import VOCABULARY, sizes

W0 = VOCABULARY.index["w0"]


def test_of_a_context_the_newest_turns_and_their_last_words_are_kept() -> None:
    context = ((("w0",),), (("w1", "w2", "w3", "w4"),), (("w5",), ("nobody",)))
    found = context_ids(context, VOCABULARY, sizes(turns=2, max_turn=4))
    assert found == [[W0 + 2, W0 + 3, W0 + 4, EOU_ID], [W0 + 5, EOU_ID, UNK_ID, EOU_ID]]


def test_a_turn_without_words_is_a_turn() -> None:
    assert context_ids(((), ((),)), VOCABULARY, sizes()) == [[EOU_ID], [EOU_ID]]


def test_contexts_are_padded_behind_words_and_behind_the_newest_turn() -> None:
    found = side_by_side([[[5, 6, 3]], [[7, 3], [8, 3]]])
    assert found.words_BKN.tolist() == [[[5, 6, 3], [PAD_ID] * 3], [[7, 3, PAD_ID], [8, 3, PAD_ID]]]
    assert found.lengths_BK.tolist() == [[3, 0], [2, 2]]


def test_exchanged_examples_are_the_same_replies_behind_the_contexts_of_others() -> None:
    contexts = [((("w0",),),), ((("w1",),), (("w2",),)), ((("w3",),),)]
    own, order = DialogueExamples(contexts, [(("w4",),), (("w5",),), ()], VOCABULARY, sizes()), np.arange(3)
    here, there = own.batch(order), own.exchanged().batch(order)
    assert there.reply.words_BT1.tolist() == here.reply.words_BT1.tolist()
    assert there.context.words_BKN.tolist() == here.context.words_BKN[[2, 0, 1]].tolist()
    assert own.batch(order).context.words_BKN.tolist() == here.context.words_BKN.tolist()


def test_replies_lose_their_end_and_are_counted_with_it() -> None:
    context = ((("w0",),),)
    replies = [(("w1", "w2", "w3"),), (("w4",),), ()]
    examples = DialogueExamples([context] * 3, replies, VOCABULARY, sizes(max_reply=3))
    assert (len(examples), examples.num_targets.tolist()) == (3, [3, 2, 1])
    batch = examples.batch(np.array([1, 0, 2]))
    assert batch.reply.words_BT1.tolist() == [
        [BOS_ID, W0 + 4, EOS_ID, PAD_ID],
        [BOS_ID, W0 + 1, W0 + 2, EOS_ID],
        [BOS_ID, EOS_ID, PAD_ID, PAD_ID],
    ]
    assert batch.real_BT.sum(1).tolist() == [2, 3, 1]


@pytest.mark.parametrize("change", [{"embed": 0}, {"dropout": 1.0}, {"word_drop": -0.1}, {"anneal_steps": -1}, {"max_turn": 1}])
def test_sizes_that_cannot_be_are_named(change: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(change))):
        sizes(**change)
