"""The trigram model that judges edits."""

from __future__ import annotations

from collections import Counter
from math import exp, log

import numpy as np
import pytest

from parley.engine.perturb.lexicon.tagger import BEGIN, END, NGrams

LINES = ("open the file", "open the folder", "close the file", "open a file", "close the folder now")
SAID = [tuple(line.split()) for line in LINES]


def plain(said: list[tuple[str, ...]], words: tuple[str, ...]) -> list[float]:
    """Interpolated Kneser-Ney by its formulas, with dictionaries; words that occur once are one unknown word."""
    counts = Counter(word for line in said for word in line)
    size = 3 + sum(count > 1 for count in counts.values())

    def known(line: tuple[str, ...]) -> list[str]:
        return ["<s>", "<s>", *(word if counts[word] > 1 else "?" for word in line), "</s>"]

    grams: list[Counter[tuple[str, ...]]] = [Counter(), Counter(), Counter()]
    for line in map(known, said):
        for place in range(2, len(line)):
            for order in range(3):
                grams[order][tuple(line[place - order : place + 1])] += 1
    for order in (0, 1):
        different = Counter(gram[1:] for gram in grams[order + 1])
        grams[order] = Counter({gram: different[gram] or count for gram, count in grams[order].items()})

    def probability(gram: tuple[str, ...]) -> float:
        order = len(gram) - 1
        shorter = probability(gram[1:]) if order else 1 / size
        followers = [count for other, count in grams[order].items() if other[:-1] == gram[:-1]]
        if not followers:
            return shorter
        ones, twos = (sum(count == number for count in grams[order].values()) for number in (1, 2))
        discount = ones / (ones + 2 * twos) if twos else 0.5
        return (max(grams[order][gram] - discount, 0) + discount * len(followers) * shorter) / sum(followers)

    line = known(words)
    return [log(probability(tuple(line[place - 2 : place + 1]))) for place in range(2, len(line))]


@pytest.mark.parametrize("line", ["open the file", "close a folder", "now the zebra", "", "file file file"])
def test_it_is_what_the_formulas_say(line: str) -> None:
    (found,) = NGrams(SAID).log_probabilities([tuple(line.split())])
    assert found.tolist() == pytest.approx(plain(SAID, tuple(line.split())))


def test_utterances_are_judged_alone() -> None:
    model = NGrams(SAID)
    together = model.log_probabilities(SAID)
    assert all(np.array_equal(model.log_probabilities([words])[0], found) for words, found in zip(SAID, together, strict=True))
    assert model.log_probabilities([]) == []


def test_the_ratio_of_windows_is_that_of_their_perplexities() -> None:
    model = NGrams(SAID)
    after = [(BEGIN, "open", "the", "file", END), (BEGIN, BEGIN, "open")]
    before = [(BEGIN, "open", "a", "file", END), (BEGIN, BEGIN, "now")]
    ratios = model.ratios(after, before)
    (the,), (a,) = (model.log_probabilities([("open", article, "file")]) for article in ("the", "a"))
    assert ratios[0] == pytest.approx(exp((a[1:].sum() - the[1:].sum()) / 3))
    assert ratios[0] < 1 < model.ratios(before, after)[0]


def test_it_counts_every_word_of_the_corpus() -> None:
    counts = NGrams(SAID).counts
    assert (counts["the"], counts["now"], counts["zebra"]) == (4, 1, 0)
