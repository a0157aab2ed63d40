"""Attack search on SMN, DAM and MRFN at published sizes, in edited replies asked about a second.

The reference asks as the released repositories evaluate: each edited reply is padded with its context to ten turns of fifty
words and goes through the whole network (`plain_ranking.py`). Ours are the replies of an attack by importance, all examples
side by side: tags, proposals and the search itself are in its seconds. Contexts, replies and weights are those of `ranking.py`.

"ratio" is the smallest of the three, of seconds a query, where the reference scores 100 replies at a time; "ratio_one_by_one"
is that of a reference that scores each as it is asked. "identical": for the replies that the reference scores too, no score
differs by `MOST_DIFFERENCE` or more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.measure import BenchmarkOptions, Clock, Result, run
from benchmarks.plain_ranking import PLAIN, PlainBatch, plain_scores, stock
from benchmarks.ranking import MOST_DIFFERENCE, SIZES, groups, network
from parley.engine.perturb.lexicon.built_in import open_lexicon
from parley.engine.perturb.replies.language import English
from parley.engine.ranking.attacks.attack import RankAttack
from parley.envs.corpora.pairs.vocabulary import PairVocabulary
from parley.envs.ranking.edit_game import RankGoal
from parley.envs.ranking.groups import CandidateGroup, CandidateKind
from parley.policies.ranking.matching.fit import MatcherRanker
from parley.policies.ranking.ranker import Pair

EXAMPLES, REFERENCE = {"smn": 192, "dam": 48, "mrfn": 48}, {"smn": 400, "dam": 100, "mrfn": 100}
QUICK, QUICK_REFERENCE = {"smn": 32, "dam": 6, "mrfn": 6}, {"smn": 50, "dam": 20, "mrfn": 20}
BUDGET, ONE_BY_ONE = 100, 20


@dataclass(frozen=True)
class SearchOptions(BenchmarkOptions):
    """Attack search on SMN, DAM and MRFN, batched and plain."""

    data_root: Path | None = None
    """Folder that holds the corpora; the default is PARLEY_DATA, else the user cache."""


class Recorded(MatcherRanker):
    """A matching model that keeps what it was asked, with the scores that it gave."""

    def __init__(self, ranker: MatcherRanker) -> None:
        super().__init__(ranker.model)
        self.asked: list[Pair] = []
        self.said: list[np.ndarray] = []

    def score_all(self, pairs: Sequence[Pair]) -> list[np.ndarray]:
        """Probabilities, see `MatcherRanker`."""
        scores = super().score_all(pairs)
        self.asked += pairs
        self.said += scores
        return scores


def compare(model: MatcherRanker, examples: Sequence[CandidateGroup], num_plain: int) -> dict[str, Any]:
    """Figures of one model."""
    ranker, clock, plain_clock, alone_clock = Recorded(model), Clock(), Clock(), Clock()
    attack = RankAttack(ranker, English(open_lexicon("built-in")), goal=RankGoal(target="random"), budget=BUDGET)
    attack.run(examples[:1], [0])
    ranker.asked, ranker.said = [], []
    with clock.running():
        outcomes = attack.run(examples, range(len(examples)))
    num_queries = sum(outcome.queries for outcome in outcomes)
    num_given = sum(len(example.candidates) for example in examples)
    edited = [(context, [reply]) for context, replies in ranker.asked[len(examples) :] for reply in replies][:num_plain]
    ours = np.concatenate(ranker.said[len(examples) :])[:num_plain]
    with plain_clock.running():
        plain = np.concatenate(plain_scores(model.model, edited))
    layers, flat = stock(model.model), [(context, reply) for context, (reply,) in edited[:ONE_BY_ONE]]
    with alone_clock.running(), torch.no_grad():
        for pair in flat:
            PLAIN[type(layers)](layers, PlainBatch(layers, [pair]))
    seconds = clock.cpu_s / (num_queries + num_given)
    return {
        "ratio": plain_clock.cpu_s / len(edited) / seconds,
        "ratio_one_by_one": alone_clock.cpu_s / len(flat) / seconds,
        "queries_per_s": (num_queries + num_given) / clock.cpu_s,
        "reference_queries_per_s": len(edited) / plain_clock.cpu_s,
        "queries": num_queries,
        "scores_before_edits": num_given,
        "reference_queries": len(edited),
        "successes": sum(outcome.status == "success" for outcome in outcomes),
        "tried": sum(outcome.was_tried for outcome in outcomes),
        "difference": float(np.abs(plain - ours).max()),
    }


def example(number: int, pair: Pair) -> CandidateGroup:
    """Return a group of those candidates; which of them is right does not matter to the seconds."""
    context, candidates = pair
    wrong = (CandidateKind.RANDOM,) * (len(candidates) - 1)
    right = tuple(index == 0 for index in range(len(candidates)))
    kinds, attackable = (CandidateKind.POSITIVE, *wrong), (True,) * len(candidates)
    return CandidateGroup(f"test-{number:07}", context, tuple(candidates), right, kinds, attackable)


def measure(options: SearchOptions) -> Result:
    """Compare the three models."""
    numbers, plain = (QUICK, QUICK_REFERENCE) if options.quick else (EXAMPLES, REFERENCE)
    lengths, pairs = groups(max(numbers.values()), options.data_root)
    vocabulary = PairVocabulary.build((words for turns, replies in pairs for words in (*turns, *replies)), 20_000)
    examples = [example(number, pair) for number, pair in enumerate(pairs)]
    compared = {
        kind: compare(MatcherRanker(network(kind, vocabulary, sizes)), examples[: numbers[kind]], plain[kind])
        for kind, sizes in SIZES.items()
    }
    return Result(
        ratio=min(figures["ratio"] for figures in compared.values()),
        identical=all(figures["difference"] < MOST_DIFFERENCE for figures in compared.values()),
        figures={
            "ratio_one_by_one": min(figures["ratio_one_by_one"] for figures in compared.values()),
            "lengths": lengths,
            **compared,
        },
    )


if __name__ == "__main__":
    run("ranking_search", SearchOptions, measure)
