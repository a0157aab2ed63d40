"""Beam search against all replies there are, against greedy decoding, and alone against together."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from parley.envs.corpora.pairs.vocabulary import BOS_ID, EOS_ID, EOU_ID, SPECIALS, PairVocabulary
from parley.policies.core import decoding as module
from parley.policies.seq2seq.decoding import beam, greedy
from parley.policies.seq2seq.model import Seq2Seq
from parley.policies.seq2seq.settings import Attention, Seq2SeqSizes
from tests.policies.seq2seq.made_up import ATTENTIONS, seq2seq

WORDS = PairVocabulary((*SPECIALS, "yes", "no"))
SOURCES = [[5, 6], [6], [5, 5, 6, 6, 5], [6, 6, 6]]
MORE_SOURCES = [[5 + (3 * row + place) % 25 for place in range(1 + row % 6)] for row in range(12)]


def tiny(attention: Attention, seed: int) -> Seq2Seq:
    """Seven words, replies of at most three."""
    model = Seq2Seq(WORDS, Seq2SeqSizes(embed=5, hidden=6, attention=attention, max_source=5, max_reply=4)).eval()
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.data.uniform_(-1.5, 1.5, generator=generator)
    return model


@torch.no_grad()
def best_of_all(model: Seq2Seq, source: list[int], length_penalty: float) -> list[int]:
    """Every reply of at most three words, scored by the plain forward pass."""
    words = torch.tensor([[*source[:4], EOU_ID]])
    others = [word for word in range(len(WORDS)) if word != EOS_ID]
    scores: dict[tuple[int, ...], float] = {}
    for length in range(4):
        words_said = list(product(others, repeat=length))
        replies = torch.tensor(words_said, dtype=torch.int64).view(6**length, length)
        said = torch.cat([torch.full((len(replies), 1), BOS_ID), replies], dim=1)
        targets = torch.cat([replies, torch.full((len(replies), 1), EOS_ID)], dim=1)
        rows = words.repeat(len(replies), 1)
        log_p = model(rows, torch.full((len(replies),), words.shape[1]), said).log_softmax(2)
        totals = log_p.gather(2, targets.unsqueeze(2)).sum((1, 2)) / (length + 1) ** length_penalty
        scores |= dict(zip(words_said, totals.tolist(), strict=True))
    best = max(scores, key=lambda reply: scores[reply])
    return list(best)


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 1.0])
def test_a_beam_that_covers_everything_finds_the_best_of_all_replies(attention: Attention, length_penalty: float) -> None:
    lengths = set()
    for seed in range(4):
        model = tiny(attention, seed)
        model.output.bias.data[EOS_ID] += 4 - 3 * seed
        found = beam(model, SOURCES, width=6**3 + 6**2 + 6 + 1, length_penalty=length_penalty)
        assert found == [best_of_all(model, source, length_penalty) for source in SOURCES]
        lengths |= set(map(len, found))
    assert len(lengths) > 1 or not length_penalty, "all replies were of one length"


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_one_hypothesis_is_greedy_decoding(attention: Attention) -> None:
    model, lengths = seq2seq(attention), set()
    for _ in range(4):
        replies = greedy(model, MORE_SOURCES)
        assert beam(model, MORE_SOURCES, width=1) == replies
        lengths |= set(map(len, replies))
        model.output.bias.data[EOS_ID] += 1
    assert len(lengths) > 1


def test_replies_do_not_depend_on_who_is_decoded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    model = seq2seq()
    together = beam(model, MORE_SOURCES, width=4)
    assert beam(model, MORE_SOURCES[::-1], width=4) == together[::-1]
    monkeypatch.setattr(module, "_ROWS", 1)
    assert beam(model, MORE_SOURCES, width=4) == together
    assert len({tuple(reply) for reply in together}) > 2


@pytest.mark.parametrize(("width", "best"), [(1, []), (2, [5]), (3, [5, 5]), (5, [5, 5, 5])])
def test_a_hypothesis_that_ends_gives_its_place_up(width: int, best: list[int]) -> None:
    model = tiny("general", 0)
    # At every step the end is likelier than "yes", and "yes" than all else: ends come first.
    model.output.weight.data.zero_()
    model.output.bias.data[:] = torch.tensor([-9.0, -9, 2, -9, -9, 1.9, 0])
    assert beam(model, SOURCES[:1], width, length_penalty=0.0) == [[]]
    assert beam(model, SOURCES[:1], width, length_penalty=3.0) == [best]


def test_no_sources_have_no_replies() -> None:
    assert beam(seq2seq(), [], width=3) == []
