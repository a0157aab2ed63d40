"""What VHRED says: likeliest words, the same in any company, and nothing that a recorded reply or a draw decides."""

from __future__ import annotations

import itertools

import pytest
import torch

from parley.envs.corpora.pairs.vocabulary import BOS_ID, EOS_ID
from parley.policies.vhred.decoding import beam, greedy
from parley.policies.vhred.model import VHRED, Context, side_by_side
from parley.policies.vhred.settings import VhredAttention
from tests.policies.vhred.made_up import ATTENTIONS, VOCABULARY, contexts, vhred


def speaker(attention: VhredAttention = "words", max_reply: int = 6) -> VHRED:
    """One whose replies are of different lengths."""
    model = vhred(attention=attention, max_reply=max_reply)
    model.output.bias.data[EOS_ID] += {"words": 2, "turns": 1}[attention]
    return model


@torch.no_grad()
def best_reply(model: VHRED, context: Context, length: int) -> tuple[float, list[int]]:
    """The likeliest reply of that length, `</s>` counted, and its log-probability by word."""
    words = [word for word in range(len(VOCABULARY)) if word != EOS_ID]
    replies_RT = torch.tensor([[*begun, EOS_ID] for begun in itertools.product(words, repeat=length - 1)])
    memory = model.listen(side_by_side([context] * len(replies_RT)))
    read_RT = torch.cat([torch.full_like(replies_RT[:, :1], BOS_ID), replies_RT[:, :-1]], dim=1)
    nats_RTV = model.output(model.reply_states(memory, read_RT)).log_softmax(2)
    nats_R = nats_RTV.gather(2, replies_RT.unsqueeze(2)).sum((1, 2))
    best = int(nats_R.argmax())
    return float(nats_R[best]) / length, replies_RT[best, :-1].tolist()


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_greedy_takes_the_likeliest_word_given_those_before(attention: VhredAttention) -> None:
    model = speaker(attention)
    asked = contexts(12)
    replies = greedy(model, asked)
    assert len({len(reply) for reply in replies}) > 1
    for context, reply in zip(asked, replies, strict=True):
        memory = model.listen(side_by_side([context]))
        likeliest = model.output(model.reply_states(memory, torch.tensor([[BOS_ID, *reply]])))[0].argmax(1).tolist()
        assert likeliest[: len(reply)] == reply
        assert len(reply) == model.sizes.max_reply - 1 or likeliest[-1] == EOS_ID


@pytest.mark.parametrize("width", [1, 4])
def test_a_reply_does_not_depend_on_what_else_is_answered(width: int) -> None:
    model, asked = speaker(), contexts(12)
    together = beam(model, asked, width)
    assert [reply for context in asked for reply in beam(model, [context], width)] == together
    assert beam(model, asked[::-1], width) == together[::-1]


def test_a_beam_of_one_is_greedy() -> None:
    model, asked = speaker(), contexts(12)
    assert beam(model, asked, 1) == greedy(model, asked)


def test_a_beam_that_covers_everything_finds_the_best_reply_of_all() -> None:
    model, asked = speaker(max_reply=3), contexts(3)
    wanted = [max(best_reply(model, context, length) for length in (1, 2, 3))[1] for context in asked]
    assert beam(model, asked, len(VOCABULARY) ** 2) == wanted


def test_torchs_generator_is_neither_asked_nor_moved() -> None:
    model, asked = speaker(), contexts(6)
    torch.manual_seed(1)
    before, said = torch.random.get_rng_state(), greedy(model, asked)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(2)
    assert greedy(model, asked) == said
