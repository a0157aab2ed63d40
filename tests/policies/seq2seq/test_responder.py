"""A sequence-to-sequence model that is asked in words: what it reads of a context, and what is done with it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from parley.envs.corpora.pairs.contexts import with_eot
from parley.envs.corpora.pairs.turns import Turns
from parley.envs.corpora.pairs.vocabulary import EOU_ID, UNK_ID
from parley.policies.core.fitting.batches import evaluate
from parley.policies.core.responder import DecoderSettings
from parley.policies.seq2seq.decoding import Seq2SeqResponder, greedy, load_responder
from parley.policies.seq2seq.model import Seq2Seq
from parley.policies.seq2seq.settings import Seq2SeqSizes
from tests.policies.seq2seq.made_up import FIRST, VOCABULARY

EOT_ID = len(VOCABULARY)
FIRST_TURN, SECOND_TURN, THIRD_TURN = (("w0", "w1"), ("w2",)), (("w3", "unheard-of"),), (("w4",),)
CONTEXTS: list[Turns] = [
    (FIRST_TURN, SECOND_TURN, THIRD_TURN),
    (SECOND_TURN,),
    (((),),),
    ((("w5",) * 9,), (("w6", "w7"),)),
    (((), ("w8",)), THIRD_TURN),
]
READ = [
    [FIRST + 3, UNK_ID, EOT_ID, FIRST + 4],
    [FIRST + 3, UNK_ID],
    [],
    [*[FIRST + 5] * 3, EOT_ID, FIRST + 6, FIRST + 7],
    [EOU_ID, FIRST + 8, EOT_ID, FIRST + 4],
]
"""What a model of two turns and sources of seven words reads of the contexts."""


def responder(turns: int = 2, seed: int = 1) -> Seq2SeqResponder:
    sizes = Seq2SeqSizes(embed=7, hidden=8, max_source=7, max_reply=6, turns=turns)
    model = Seq2Seq(with_eot(VOCABULARY) if turns > 1 else VOCABULARY, sizes).eval()
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.data.uniform_(-1.5, 1.5, generator=generator)
    return Seq2SeqResponder(model)


def test_it_reads_its_newest_turns_and_of_them_the_newest_words() -> None:
    asked = responder()
    batch = asked.examples(CONTEXTS, [(("w1",),)] * 5).batch(np.arange(5))
    rows = [row[:length] for row, length in zip(batch.source_BN.tolist(), batch.lengths_B.tolist(), strict=True)]
    assert rows == [[*ids, EOU_ID] for ids in READ]
    assert asked.turns == 2


def test_a_model_of_one_turn_loses_the_end_as_published() -> None:
    batch = responder(turns=1).examples([CONTEXTS[3][:1], CONTEXTS[0]], [(("w1",),)] * 2).batch(np.arange(2))
    assert batch.source_BN.tolist()[0] == [*[FIRST + 5] * 6, EOU_ID]
    assert batch.source_BN.tolist()[1][:2] == [FIRST + 4, EOU_ID]


def test_it_says_what_its_model_says_to_what_it_reads() -> None:
    asked = responder()
    said = asked.respond(CONTEXTS)
    ids = greedy(asked.model, READ)
    assert [asked.model.vocabulary.encode([*turn[0]]).tolist() for turn in said if len(turn) == 1] == [
        reply for reply in ids if EOU_ID not in reply
    ]
    assert said == [asked.respond([context])[0] for context in CONTEXTS]
    assert len(set(said)) > 1


def test_a_boundary_that_it_says_parts_utterances() -> None:
    asked = responder()
    asked.model.output.bias.data[EOU_ID] += 4
    said = asked.respond(CONTEXTS)
    assert max(map(len, said)) > 1
    assert all("<eou>" not in utterance for turn in said for utterance in turn)


def test_wider_beams_find_other_replies() -> None:
    asked = responder(seed=2)
    decoder = DecoderSettings.parse("beam:5")
    wide = asked.respond(CONTEXTS, decoder=decoder)
    assert wide == [asked.respond([context], decoder=decoder)[0] for context in CONTEXTS]
    assert wide != asked.respond(CONTEXTS)


def test_words_have_its_own_embeddings_and_unknown_ones_none() -> None:
    asked = responder()
    found = asked.vectors(["w3", "unheard-of", "<unk>", "w0"])
    assert found.dtype == np.float32
    assert torch.equal(torch.from_numpy(found), asked.model.source_embedding.weight[[FIRST + 3, FIRST]])
    assert asked.vectors([]).shape == (0, 7)


def test_examples_are_replies_in_the_given_order() -> None:
    asked = responder()
    replies = [(("w1",), ("w2",)), (("w3",) * 8,), ((),), (("w4",),), (("w5",),)]
    batch = asked.examples(CONTEXTS, replies).batch(np.arange(5))
    assert batch.reply.words_BT1.tolist()[0][1:4] == [FIRST + 1, EOU_ID, FIRST + 2]
    assert batch.real_BT.sum(1).tolist() == [4, 6, 1, 2, 2]
    assert evaluate(asked.model, asked.examples(CONTEXTS, replies)).num_targets.sum() == 15


def test_a_saved_model_comes_back_and_answers_the_same(tmp_path: Path) -> None:
    asked = responder()
    asked.save(tmp_path / "checkpoint", {"role": "made up"})
    found = load_responder(tmp_path)
    assert (found.turns, found.respond(CONTEXTS)) == (2, asked.respond(CONTEXTS))


@pytest.mark.parametrize("decoder", ["greedy", "beam:3", "sample", "diverse"])
def test_nobody_who_asks_gets_no_answer(decoder: str) -> None:
    assert responder().respond([], decoder=DecoderSettings.parse(decoder)) == []
