"""What models say: the likeliest words, draws from a stream of one's own, words above a threshold."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from parley.envs.corpora.pairs.contexts import with_eot
from parley.envs.corpora.pairs.vocabulary import BOS_ID, EOS_ID, EOU_ID
from parley.policies.core import decoding
from parley.policies.seq2seq.decoding import greedy, sample, sample_sentences
from parley.policies.seq2seq.model import LanguageModel, Seq2Seq
from parley.policies.seq2seq.settings import Attention
from tests.policies.seq2seq.made_up import ATTENTIONS, FIRST, VOCABULARY, language_model, seq2seq

RNG = np.random.default_rng(3)
SOURCES = [RNG.integers(FIRST, len(VOCABULARY), size=size).tolist() for size in (1, 4, 7, 2, 3, 4, 1, 6)]
LONGEST = 5
"""Words of a reply, `</s>` not counted."""


@torch.no_grad()
def log_probabilities(model: Seq2Seq, source: list[int], reply: list[int]) -> Tensor:
    """(words of the reply and the one after it, V), by the plain forward pass."""
    words = torch.tensor([[*source[:4], EOU_ID]])
    logits = model(words, torch.tensor([words.shape[1]]), torch.tensor([[BOS_ID, *reply]]))
    return logits[0].log_softmax(1)


def ending(reply: list[int]) -> list[int]:
    """The words that were chosen: a reply that could have gone on chose its end."""
    return [*reply, EOS_ID] if len(reply) < LONGEST else reply


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_greedy_takes_the_likeliest_word_at_every_step(attention: Attention) -> None:
    model, lengths = seq2seq(attention), set()
    for _ in range(4):
        replies = greedy(model, SOURCES)
        for source, reply in zip(SOURCES, replies, strict=True):
            best = log_probabilities(model, source, reply).argmax(1).tolist()
            assert ending(reply) == best[: len(ending(reply))]
        lengths |= {len(reply) for reply in replies}
        model.output.bias.data[EOS_ID] += 1
    assert LONGEST in lengths
    assert len(lengths) > 1, "no reply ended by itself"


@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_replies_do_not_depend_on_who_is_decoded_together(monkeypatch: pytest.MonkeyPatch, temperature: float) -> None:
    model, seeds = seq2seq(), list(range(len(SOURCES)))
    together = greedy(model, SOURCES), sample(model, SOURCES, seeds, temperature)
    turned = sample(model, SOURCES[::-1], seeds[::-1], temperature)[::-1]
    monkeypatch.setattr(decoding, "_ROWS", 1)
    assert (greedy(model, SOURCES), sample(model, SOURCES, seeds, temperature)) == together
    assert turned == together[1]


def test_every_seed_draws_for_itself() -> None:
    model = seq2seq()
    drawn = sample(model, SOURCES[:1] * 20, range(20))
    assert len({tuple(reply) for reply in drawn}) > 10
    assert sample(model, SOURCES[:1] * 2, [7, 7]) == [drawn[7]] * 2


def test_draws_follow_the_models_distribution() -> None:
    model = seq2seq()
    model.output.weight.data *= 0.2
    model.output.bias.data *= 0.2
    first = [ending(reply)[0] for reply in sample(model, SOURCES[:1] * 3000, range(3000))]
    shares = np.bincount(first, minlength=len(VOCABULARY)) / len(first)
    expected = log_probabilities(model, SOURCES[0], [])[0].exp().numpy()
    assert np.abs(shares - expected).sum() < 0.12
    cold = [ending(reply)[0] for reply in sample(model, SOURCES[:1] * 3000, range(3000), temperature=0.5)]
    sharper = expected**2 / (expected**2).sum()
    assert np.abs(np.bincount(cold, minlength=len(VOCABULARY)) / len(cold) - sharper).sum() < 0.12


def test_at_a_low_temperature_it_is_greedy() -> None:
    model = seq2seq()
    assert sample(model, SOURCES, range(len(SOURCES)), temperature=1e-3) == greedy(model, SOURCES)


def test_only_words_above_the_threshold_are_drawn_where_there_are_any() -> None:
    model, threshold = seq2seq(), -1.9
    model.output.weight.data *= 0.7
    below = above = alone = 0
    for source, reply in zip(SOURCES * 8, sample(model, SOURCES * 8, range(64), min_log_probability=threshold), strict=True):
        log_p = log_probabilities(model, source, reply)
        for row, word in zip(log_p, ending(reply), strict=False):
            if bool((row > threshold).any()):
                assert float(row[word]) > threshold
                above += 1
                alone += int((row > threshold).sum() == 1)
            else:
                below += 1
    assert above > alone > 0
    assert below > 0, "there was always a word above the threshold"
    plain = sample(model, SOURCES * 8, range(64))
    assert sample(model, SOURCES * 8, range(64), min_log_probability=-1e9) == plain


def test_drawn_sentences_are_of_full_length_and_hold_words_alone() -> None:
    model = language_model()
    model.output.bias.data[:FIRST] += 20
    words = sample_sentences(model, range(50), 9)
    assert words.shape == (50, 9)
    assert words.dtype == np.int64
    assert int(words.min()) >= FIRST
    assert len({tuple(row) for row in words.tolist()}) == 50


def test_drawn_sentences_of_a_model_of_several_turns_are_one_turn() -> None:
    words = with_eot(VOCABULARY)
    model = LanguageModel(words, language_model().sizes)
    model.initialise(torch.Generator().manual_seed(1))
    model.output.bias.data[words.index["<eot>"]] += 20
    drawn = sample_sentences(model.eval(), range(20), 9)
    assert "<eot>" not in {word for row in drawn for word in words.decode(row)}


def test_drawn_sentences_belong_to_their_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    model = language_model()
    words = sample_sentences(model, [4, 5, 6], 5)
    monkeypatch.setattr(decoding, "_ROWS", 1)
    assert sample_sentences(model, [6, 4, 5], 5).tolist() == words[[2, 0, 1]].tolist()


@torch.no_grad()
def test_drawn_sentences_follow_the_models_distribution_without_specials() -> None:
    model = language_model()
    model.output.weight.data *= 0.3
    model.output.bias.data *= 0.3
    words = sample_sentences(model, range(3000), 2)
    first = model(torch.tensor([[BOS_ID]]))[0, 0, FIRST:].softmax(0).numpy()
    assert np.abs(np.bincount(words[:, 0], minlength=len(VOCABULARY))[FIRST:] / 3000 - first).sum() < 0.12
    likeliest = int(np.bincount(words[:, 0]).argmax())
    second = model(torch.tensor([[BOS_ID, likeliest]]))[0, 1, FIRST:].softmax(0).numpy()
    after = words[words[:, 0] == likeliest, 1]
    shares = np.bincount(after, minlength=len(VOCABULARY))[FIRST:] / len(after)
    assert np.abs(shares - second).sum() < 6 / np.sqrt(len(after))
