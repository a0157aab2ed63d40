"""Scores of replies by SMN, DAM and MRFN at published sizes, against the way that the released repositories evaluate.

The reference pads every pair of context and reply to ten turns of fifty words and runs the whole network for each, 100 pairs at
a time (`plain_ranking.py`). Ours encodes each turn and reply once and reads no padding. Groups of ten are those of the test
split of "ubuntu_dialogues" where it is at hand; otherwise contexts and replies are drawn whose lengths are like theirs. Ours
scores all contexts, the reference the first of them, since what a pair costs it never changes.

"ratio" is the smallest of the three, of seconds a pair. "identical": no score differs by `MOST_DIFFERENCE` or more, and no two
candidates of a group change places whose scores differ by more. "equal_ranks" is the share of groups whose order is the same in
all digits. Weights are drawn; those of convolutions are enlarged, so that scores differ ("spread").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.measure import BenchmarkOptions, Clock, Result, run
from benchmarks.plain_ranking import plain_scores
from parley.envs.core.errors import DataError
from parley.envs.core.seeds import derive_seed, stream
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.corpora.pairs.vocabulary import PairVocabulary
from parley.envs.ranking import load_candidates
from parley.policies.ranking.matching.fit import MatcherRanker, build
from parley.policies.ranking.matching.matcher import Matcher
from parley.policies.ranking.matching.settings import DamSizes, MatcherSizes, MrfnSizes, SmnSizes
from parley.policies.ranking.ranker import Pair

SEED = 1
MOST_DIFFERENCE = 1e-5
GAIN = 10.0
"""How much larger the weights of convolutions are than drawn ones; those would give all replies nearly one score."""
SIZES: dict[str, MatcherSizes] = {"smn": SmnSizes(), "dam": DamSizes(), "mrfn": MrfnSizes()}
CONTEXTS, REFERENCE = {"smn": 800, "dam": 96, "mrfn": 96}, {"smn": 48, "dam": 24, "mrfn": 24}
QUICK, QUICK_REFERENCE = {"smn": 200, "dam": 24, "mrfn": 24}, {"smn": 12, "dam": 5, "mrfn": 4}
CORPUS, CANDIDATES = "ubuntu_dialogues", 10


@dataclass(frozen=True)
class Options(BenchmarkOptions):
    """Scores of replies by SMN, DAM and MRFN, batched and padded."""

    data_root: Path | None = None
    """Folder that holds the corpora; the default is PARLEY_DATA, else the user cache."""


def groups(number: int, data_root: Path | None) -> tuple[str, list[Pair]]:
    """Where contexts and their ten candidates come from, and so many of them."""
    try:
        test = load_candidates(CORPUS, data_root).splits["test"]
    except DataError:
        return "generated", generated(number)
    return CORPUS, [(group.context, group.candidates) for group in test.first(number)]


def generated(number: int) -> list[Pair]:
    """Contexts and candidates whose lengths are like those of the corpus: 6.7 turns of 17 words, replies of 15."""
    draws = stream(SEED, "generated")

    def text() -> Utterance:
        length = int(np.clip(draws.lognormal(2.5, 0.85), 1, 120))
        return tuple(f"w{rank}" for rank in draws.zipf(1.3, size=length) % 20_000)

    replies = [text() for _ in range(number)]
    chosen = draws.integers(number, size=(number, CANDIDATES))
    return [(tuple(text() for _ in range(draws.integers(3, 11))), [replies[i] for i in row]) for row in chosen]


def network(kind: str, vocabulary: PairVocabulary, sizes: MatcherSizes) -> Matcher:
    """Return a network with drawn weights."""
    model = build(vocabulary, sizes)
    generator = torch.Generator().manual_seed(derive_seed(SEED, kind))
    model.initialise(generator)
    for name, value in model.named_parameters():
        if value.ndim > 3:
            value.data.mul_(GAIN)
        elif "bias" in name:
            value.data.normal_(0, 0.1, generator=generator)
    return model.eval()


def changed_places(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> int:
    """Pairs of candidates of a group that stand in another order, though both tell them apart by `MOST_DIFFERENCE`."""
    changed = 0
    for mine, plain in zip(ours, theirs, strict=True):
        by_mine, by_plain = (values[:, None] - values for values in (mine, plain))
        is_apart = (np.abs(by_mine) > MOST_DIFFERENCE) & (np.abs(by_plain) > MOST_DIFFERENCE)
        changed += int((is_apart & (np.sign(by_mine) != np.sign(by_plain))).sum()) // 2
    return changed


def compare(model: Matcher, pairs: Sequence[Pair], num_plain: int) -> dict[str, Any]:
    """Figures of one model."""
    ranker, clock, plain_clock = MatcherRanker(model), Clock(), Clock()
    ranker.score_all(pairs[:2])
    with clock.running():
        ours = ranker.score_all(pairs)
    with plain_clock.running():
        theirs = plain_scores(model, pairs[:num_plain])
    num_pairs, num_plain_pairs = (sum(len(candidates) for _, candidates in some) for some in (pairs, pairs[:num_plain]))
    plain, mine = np.concatenate(theirs), np.concatenate(ours[:num_plain])
    orders = [np.array_equal(np.argsort(a), np.argsort(b)) for a, b in zip(ours[:num_plain], theirs, strict=True)]
    counted = model.count()
    return {
        "ratio": plain_clock.cpu_s / num_plain_pairs / (clock.cpu_s / num_pairs),
        "ms_a_pair": 1e3 * clock.cpu_s / num_pairs,
        "reference_ms_a_pair": 1e3 * plain_clock.cpu_s / num_plain_pairs,
        "pairs": num_pairs,
        "reference_pairs": num_plain_pairs,
        "difference": float(np.abs(plain - mine).max()),
        "changed_places": changed_places(ours[:num_plain], theirs),
        "equal_ranks": float(np.mean(orders)),
        "spread": float(plain.std()),
        "parameters_without_words": counted.without_words,
    }


def measure(options: Options) -> Result:
    """Compare the three models."""
    contexts, plain = (QUICK, QUICK_REFERENCE) if options.quick else (CONTEXTS, REFERENCE)
    lengths, pairs = groups(max(contexts.values()), options.data_root)
    texts = (words for context, candidates in pairs for words in (*context, *candidates))
    vocabulary = PairVocabulary.build(texts, 20_000)
    compared = {
        kind: compare(network(kind, vocabulary, sizes), pairs[: contexts[kind]], plain[kind]) for kind, sizes in SIZES.items()
    }
    return Result(
        ratio=min(figures["ratio"] for figures in compared.values()),
        identical=all(row["difference"] < MOST_DIFFERENCE and not row["changed_places"] for row in compared.values()),
        figures={
            "lengths": lengths,
            **compared,
        },
    )


if __name__ == "__main__":
    run("ranking", Options, measure)
