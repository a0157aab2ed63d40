"""R_n@k, R_2@1, MAP, MRR and P@1 of 500,000 scored candidates in groups of ten, against a loop over groups.

The loop sorts each group and walks down its ranks, as the evaluation scripts of the released repositories do; it knows no ties.

    python -m benchmarks.ranking_metrics [--quick]

    ratio          seconds of the loop over ours, all scores being different
    seconds        ours
    seconds_tied   ours where scores take few values, so that most groups have ties
    identical      no metric of a group differs by 1e-9 or more
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.measure import BenchmarkOptions, Clock, Result, run
from parley.engine.ranking.metrics.ranks import KS, MAP, MRR, PAIRWISE, PRECISION, group_metrics, recall_at

SEED, SIZE = 1, 10
_MOST_DIFFERENCE = 1e-9


@dataclass(frozen=True, kw_only=True)
class Options(BenchmarkOptions):
    """Metrics of ranked candidates against a plain loop."""

    rows: int = 500_000
    """Candidates."""


def plain_metrics(scores: list[float], relevant: list[bool]) -> dict[str, float]:
    """Return the metrics of one group of different scores."""
    ranked = [wanted for _, wanted in sorted(zip(scores, relevant, strict=True), reverse=True)]
    num, num_right, precisions, won, first = sum(ranked), 0, 0.0, 0, 0
    for rank, wanted in enumerate(ranked, start=1):
        if wanted:
            num_right += 1
            precisions += num_right / rank
            won += len(ranked) - rank - (num - num_right)
            first = first or rank
    figures = {recall_at(k): sum(ranked[:k]) / num for k in KS}
    pairs = num * (len(ranked) - num)
    return figures | {PAIRWISE: won / pairs, MAP: precisions / num, MRR: 1 / first, PRECISION: float(ranked[0])}


def measure(options: Options) -> Result:
    """Time both on the same scores; a group has one right reply or several."""
    rng, num = np.random.default_rng(SEED), options.rows // SIZE
    groups, scores = np.repeat(np.arange(num), SIZE), rng.random(num * SIZE)
    relevant = rng.random((num, SIZE)) < 0.15
    relevant[:, 0], relevant[:, 1] = True, False
    ours, tied, plain = Clock(), Clock(), Clock()
    with ours.running():
        measured = group_metrics(groups, scores, relevant.ravel())
    with tied.running():
        group_metrics(groups, np.round(scores, 1), relevant.ravel())
    num_plain = min(num, 5000 if options.quick else num)
    lists = scores.reshape(num, SIZE).tolist(), relevant.tolist()
    with plain.running():
        expected = [plain_metrics(*group) for group in zip(lists[0][:num_plain], lists[1][:num_plain], strict=True)]
    apart = [
        abs(measured.values[name][index] - value) for index, figures in enumerate(expected) for name, value in figures.items()
    ]
    return Result(
        ratio=plain.cpu_s * num / num_plain / ours.cpu_s,
        identical=bool(max(apart) < _MOST_DIFFERENCE),
        figures={
            "rows": len(scores),
            "seconds": ours.cpu_s,
            "seconds_tied": tied.cpu_s,
        },
    )


if __name__ == "__main__":
    run("ranking_metrics", Options, measure)
