"""Beam search: against an exhaustive one, beside other sentences, and within its bounds."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise, product

import numpy as np
import pytest
import torch

from parley.envs.corpora.pairs.vocabulary import SPECIALS, PairVocabulary
from parley.policies.paraphraser.model import RewriteExamples, paraphrases
from parley.policies.paraphraser.settings import BeamConfig
from tests.policies.paraphraser.made_up import SIZES, network, split

SENTENCES = [("w1", "new", "w3"), ("other", "w0", "w0", "w2", "other", "w9"), ("w5",), ("w1", "w2", "newer", "newest")]
CONFIG = BeamConfig(min_share=0.5, max_share=1.0, max_extra=1)


@torch.no_grad()
def test_a_beam_that_holds_everything_finds_the_likeliest_of_all() -> None:
    words = ("a", "b")
    model = network(seed=3, vocabulary=PairVocabulary((*SPECIALS, *words)))
    # "c" is unknown: number 7 of the corpus.
    numbers = {"a": 5, "b": 6, "c": 7}
    sentence = ("c", "a")
    longest = 4
    scores = {}
    for length in range(1, longest + 1):
        for said in product(numbers, repeat=length):
            if any(first == second for first, second in pairwise(said)):
                continue
            pairs = split([[numbers[word] for word in sentence], [numbers[word] for word in said]])
            nll = model.nll(RewriteExamples(pairs, SIZES).batch(np.array([0])))
            scores[said] = -float(nll.sum()) / (length + 1)
    config = BeamConfig(width=3**longest, max_share=1.0, max_extra=longest - len(sentence))
    found = paraphrases(model, [sentence], config)[0]
    ended = sorted(found, key=lambda said: -scores[said])
    assert found == ended, "ranked by mean log-probability a word"
    assert found[0] == max(scores, key=lambda said: scores[said])


@pytest.mark.parametrize("covers", [False, True])
def test_what_is_said_for_one_sentence_does_not_depend_on_the_others(covers: bool) -> None:
    model = network(seed=1, covers=covers)
    together = paraphrases(model, SENTENCES, CONFIG)
    assert together == [paraphrases(model, [words], CONFIG)[0] for words in SENTENCES]
    assert any(together)


def test_only_what_a_sentence_repeats_is_repeated() -> None:
    twice = ("w1", "w2", "w1", "w2", "new", "new")
    for seed in range(10):
        for words in (*SENTENCES, twice):
            for said in paraphrases(network(seed), [words], BeamConfig(max_share=3.0))[0]:
                counted, wanted = Counter(pairwise(said)), Counter(pairwise(words))
                assert all(
                    number <= (wanted[pair] if pair[0] == pair[1] else max(1, wanted[pair])) for pair, number in counted.items()
                )


def test_unknown_words_are_copied_and_marks_are_never_said() -> None:
    said = [
        (words, each)
        for seed in range(5)
        for words, found in zip(SENTENCES, paraphrases(network(seed), SENTENCES, CONFIG), strict=True)
        for each in found
    ]
    known = {f"w{number}" for number in range(10)}
    assert all(set(each) <= known | set(words) for words, each in said)
    assert any(set(each) - known for _, each in said)


def test_lengths_keep_to_their_bounds() -> None:
    for share in (0.5, 1.0):
        config = BeamConfig(min_share=share, max_share=1.0, max_extra=1)
        for seed in range(5):
            for words, found in zip(SENTENCES, paraphrases(network(seed), SENTENCES, config), strict=True):
                assert len(found) <= config.width
                assert all(math.ceil(share * len(words)) <= len(each) <= len(words) + 1 for each in found)


def test_sentences_without_words_or_too_long_have_no_paraphrase() -> None:
    long = ("w1",) * SIZES.max_source
    assert paraphrases(network(), [(), long, long[:-1]], CONFIG)[:2] == [[], []]
    assert paraphrases(network(), [], CONFIG) == []
