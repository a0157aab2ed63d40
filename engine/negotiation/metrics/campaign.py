"""Metrics of adversarial training by rounds and of populations: payoffs, mixtures and Elo ratings.

Sources: Lanctot et al. 2017 (PSRO, its mixtures, and exploitability as the gain of a best response); Elo 1978, with the
ratings of Bradley & Terry 1952, fitted by maximum likelihood; Rubin 1981, "The Bayesian bootstrap".

All cells of a payoff matrix are played on the same scenarios, so a dialogue's number is a cluster: it is drawn whole, in all
cells at once. Mixtures count as given. The best adversary is chosen on some dialogues and measured on others
(`engine/core/stats/known.py`).

Shapes: G dialogues, T targets, A adversaries, K = T + A, R resamples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from parley.engine.core.stats.known import (
    EXPLOITABILITY,
    MEAN_FRESH,
    META_STRATEGIES,
    LanguageWatch,
    Mixture,
    Round,
    best_against_best_target,
    best_of,
)
from parley.engine.core.stats.statistics import LOST, Estimate, Metric, Row, count, finished, mean
from parley.engine.core.tables.table import (
    THOUSANDTHS,
    Column,
    EstimateTable,
    Form,
    TableRow,
    metric_table,
    with_interval,
)
from parley.envs.core.seeds import stream

PLAIN_SCORE, PLAIN_AGREEMENT, PERPLEXITY = "plain_score", "plain_agreement", "perplexity"
REPETITION, REPEATS = "repetition", "repeats"
BEFORE, AFTER = "advantage_before", "advantage_after"
BY_THE_BEST = Metric(
    "exploitability", "lower: target", "advantage of the best of all known adversaries, in dialogues that did not choose it"
)
ON_AVERAGE = Metric(
    "mean of fresh adversaries", "lower: target", "mean advantage of those trained against it, frozen: an average training"
)
ROUND_METRICS = {
    BEFORE: Metric("adversary before", "lower: target", "advantage of the round's adversary over the target it was trained on"),
    AFTER: Metric("adversary after", "lower: target", "advantage of the same adversary over the target trained against it"),
    EXPLOITABILITY: BY_THE_BEST,
    MEAN_FRESH: ON_AVERAGE,
    PLAIN_SCORE: Metric("plain score", "higher: target", "target's points in ordinary play with its partner, both choose"),
    PLAIN_AGREEMENT: Metric("plain agreement", "higher: both", "share of those dialogues that end in a deal", "rate"),
    REPETITION: Metric(
        "repetition", "lower: better", "share of the target's 4-grams there that its utterance had before", "rate"
    ),
    REPEATS: Metric(
        "repeats", "lower: better", "share of its later utterances there that it said before, word for word", "rate"
    ),
    PERPLEXITY: Metric("perplexity", "lower: better", "of the corpus' validation dialogues, released formula", "perplexity"),
}
"""Metrics of a round, in the order of the table's columns."""
WATCH = LanguageWatch(plain=PLAIN_SCORE, repetition=REPETITION)
"""The figures that a target must not lose."""
_NOTE = (
    "Round 0 is the target before any training. Adversary: advantage of the round's adversary in points, before and "
    "after the target learned from it. Exploitability: advantage of the best adversary known by then, in dialogues that "
    "did not choose it. Mean of fresh adversaries: of those trained against the frozen target of the round. Plain: "
    "ordinary play with the partner. Repetition: share of the target's 4-grams there that the same utterance had before; "
    f"above {LOST:g} it has lost its language. Repeats: share of its utterances but the first of a dialogue "
    "that it said there before, word for word. Brackets: 95 % intervals."
)


def exploitability_of(measured: Round) -> float:
    """Return the exploitability of a round in points; training is to lower it."""
    return measured.metrics[EXPLOITABILITY].value


def rounds_table(rounds: Sequence[Round]) -> EstimateTable:
    """Return the table of rounds, one row each."""
    metrics = {f"{row.number}.{name}": estimate for row in rounds for name, estimate in row.metrics.items()}
    without_interval = (PLAIN_AGREEMENT, REPETITION, REPEATS, PERPLEXITY)
    columns = [
        Column(metric.title, f"{{round}}.{name}", Form(inline=True, bounded=name not in without_interval))
        for name, metric in ROUND_METRICS.items()
    ]
    return metric_table(
        metrics, "round", [TableRow(str(row.number), {"round": str(row.number)}) for row in rounds], columns, _NOTE
    )


VALUE, SINGLE, BEST_KNOWN = "value", "best_single", "known"
_NUM_RESAMPLES = 2000
LEGEND = {
    VALUE: Metric(
        "value of the game", "lower: target", "advantage at the matrix's equilibrium, in the dialogues that chose it", main=True
    ),
    SINGLE: Metric(
        "best single target", "lower: target", "its best adversary's gain, both chosen on other dialogues", main=True
    ),
    **{
        f"{BEST_KNOWN}.{name}": Metric(
            f"best known adversary, {name}", "lower: target", "its gain from that mixture, chosen on other dialogues"
        )
        for name in META_STRATEGIES
    },
    EXPLOITABILITY: Metric(
        "exploitability of the mixture",
        "lower: target",
        "advantage of the best adversary, of the matrix or trained against the mixture, in dialogues that did not choose it",
        main=True,
    ),
    MEAN_FRESH: Metric("mean of fresh adversaries", "lower: target", "mean advantage of those trained against the mixture"),
}
"""Metrics of a population; tables show payoffs and ratings."""
_SCALE = 400 / math.log(10)
_STEPS, _LARGEST_STEP, _LEAST_DRAW = 60, 2.0, 1e-4


@dataclass(frozen=True)
class PayoffGains:
    """The dialogues of a payoff matrix.

    Args:
        targets: their names, oldest first.
        adversaries: their names, oldest first.
        gains_GTA: the adversary's points less the target's; only of the dialogues that failed in no cell.
    """

    targets: Sequence[str]
    adversaries: Sequence[str]
    gains_GTA: np.ndarray

    @classmethod
    def of(cls, rows: Sequence[Row], targets: Sequence[str], adversaries: Sequence[str]) -> PayoffGains:
        """Return the dialogues from the rows of a population, without other agents and failed rows."""
        cell_of = {(t, a): (i, j) for i, t in enumerate(targets) for j, a in enumerate(adversaries)}
        numbers: dict[int, dict[tuple[int, int], float]] = {}
        for row in finished(rows):
            if cell := cell_of.get((row["target"], row["adversary"])):
                numbers.setdefault(row["number"], {})[cell] = row["points_adversary"] - row["points_target"]
        complete = [cells for _, cells in sorted(numbers.items()) if len(cells) == len(cell_of)]
        gains = np.zeros((len(complete), len(targets), len(adversaries)))
        for number, cells in enumerate(complete):
            for cell, gain in cells.items():
                gains[number][cell] = gain
        return cls(targets, adversaries, gains)

    @property
    def payoffs_TA(self) -> np.ndarray:
        """Return the advantage of each adversary over each target."""
        return np.asarray(self.gains_GTA.mean(axis=0))

    @property
    def wins_TA(self) -> np.ndarray:
        """Return the share of dialogues that each adversary wins against each target; a draw counts half."""
        return np.asarray(_scores(self.gains_GTA).mean(axis=0))

    def mixtures(self) -> dict[str, Mixture]:
        """Return the mixture of each meta-strategy."""
        return {name: meta(self.payoffs_TA, self.wins_TA) for name, meta in META_STRATEGIES.items()}

    def against(self, shares_T: np.ndarray) -> Estimate:
        """Estimate what the best adversary gains from a mixture of the targets, chosen on other dialogues."""
        return best_of(self.from_mixture(shares_T))

    def from_mixture(self, shares_T: np.ndarray) -> np.ndarray:
        """Return what each adversary gains from a mixture of the targets, (G, A)."""
        return np.einsum("gta,t->ga", self.gains_GTA, shares_T)

    def metrics(self) -> dict[str, Estimate]:
        """Return the metrics of `LEGEND` that the matrix alone decides."""
        mixtures = self.mixtures()
        played_G = np.einsum("gta,t,a->g", self.gains_GTA, mixtures["nash"].targets, mixtures["nash"].adversaries)
        best_known = {f"{BEST_KNOWN}.{name}": self.against(mixture.targets) for name, mixture in mixtures.items()}
        return {VALUE: mean(played_G), SINGLE: best_against_best_target(self.gains_GTA), **best_known}


def payoff_estimates(played: PayoffGains) -> list[list[Estimate]]:
    """Return the advantage of each adversary over each target, targets first."""
    return [[mean(played.gains_GTA[:, t, a]) for a in range(len(played.adversaries))] for t in range(len(played.targets))]


def elo(gains_GTA: np.ndarray, seed: int = 0) -> tuple[list[Estimate], list[Estimate]]:
    """Return Elo ratings of targets and adversaries on one scale, with intervals of the Bayesian bootstrap over dialogues.

    The side with more points wins; a tie, such as no deal, is half a win. Each pair gets one draw beside its dialogues, so
    that ratings of agents that always win are finite. Ratings are around 0: 400 more are odds of ten to one. They assume a
    transitive order of agents; if the matrix has cycles, the equilibrium says more.

    Args:
        gains_GTA: the adversary's points less the target's.
        seed: names the resampling stream; equal seeds give equal intervals.

    Returns:
        Ratings of the targets and of the adversaries.
    """
    scores_GTA = _scores(gains_GTA)
    size, num_targets, num_adversaries = scores_GTA.shape
    rng = stream(seed, "bootstrap")
    # Weights of dialogues, and of both halves of a draw: numbers of resampled dialogues leave no width to who always wins.
    weights_RG = np.vstack([np.ones(size), rng.standard_exponential((_NUM_RESAMPLES, size))])
    draws_2RTA = np.maximum(rng.standard_gamma(0.5, (2, _NUM_RESAMPLES + 1, num_targets, num_adversaries)), _LEAST_DRAW)
    draws_2RTA[:, 0] = 0.5
    wins_RTA = draws_2RTA[0] + (weights_RG @ scores_GTA.reshape(size, -1)).reshape(-1, num_targets, num_adversaries)
    ratings_RK = _SCALE * _strengths(wins_RTA, draws_2RTA.sum(axis=0) + weights_RG.sum(axis=1)[:, None, None])
    low, high = np.quantile(ratings_RK[1:], (0.025, 0.975), axis=0)
    bounds_K3 = np.stack([ratings_RK[0], low, high], axis=1).tolist()
    ratings = [Estimate(value, least, most, size) for value, least, most in bounds_K3]
    return ratings[:num_targets], ratings[num_targets:]


def _scores(gains_GTA: np.ndarray) -> np.ndarray:
    return np.asarray((np.sign(gains_GTA) + 1) / 2)


def _strengths(wins_RTA: np.ndarray, nums_RTA: np.ndarray) -> np.ndarray:
    """Fit the strengths (R, K) of the model P(a beats t) = sigmoid(x_a - x_t), sum 0, by Newton's method; targets first.

    Given are the weights of each adversary's wins, and of all dialogues of each pair.
    """
    num_resamples, num_targets, num_adversaries = wins_RTA.shape
    num = num_targets + num_adversaries
    strengths_RK = np.zeros((num_resamples, num))
    for _ in range(_STEPS):
        leads_RTA = strengths_RK[:, None, num_targets:] - strengths_RK[:, :num_targets, None]
        shares_RTA = 1 / (1 + np.exp(-leads_RTA))
        missing_RTA, weights_RTA = wins_RTA - nums_RTA * shares_RTA, nums_RTA * shares_RTA * (1 - shares_RTA)
        gradient_RK = np.concatenate([-missing_RTA.sum(axis=2), missing_RTA.sum(axis=1)], axis=1)
        # A constant added to all strengths changes nothing; the ones make it 0.
        curvature_RKK = np.ones((num_resamples, num, num))
        curvature_RKK[:, :num_targets, num_targets:] -= weights_RTA
        curvature_RKK[:, num_targets:, :num_targets] -= weights_RTA.transpose(0, 2, 1)
        curvature_RKK[:, range(num), range(num)] += np.concatenate([weights_RTA.sum(axis=2), weights_RTA.sum(axis=1)], axis=1)
        steps_RK = np.linalg.solve(curvature_RKK, gradient_RK[..., None])[..., 0]
        strengths_RK += np.clip(steps_RK, -_LARGEST_STEP, _LARGEST_STEP)
        if np.abs(steps_RK).max() < 1e-9:
            break
    return strengths_RK - strengths_RK.mean(axis=1, keepdims=True)


def matrix_table(targets: Sequence[str], adversaries: Sequence[str], cells_TA: Sequence[Sequence[Estimate]]) -> EstimateTable:
    """Return the payoff matrix, a row for each adversary."""
    rows = tuple((name, *(with_interval(line[a]) for line in cells_TA)) for a, name in enumerate(adversaries))
    note = (
        "Advantage of the row's adversary over the column's target in points, on the same scenarios. Brackets: 95 % intervals."
    )
    return EstimateTable(("adversary", *targets), rows, note)


def ratings_table(
    role: str, names: Sequence[str], ratings: Sequence[Estimate], shares: Mapping[str, Sequence[float]], remark: str = ""
) -> EstimateTable:
    """Return the Elo ratings of one side, and each meta-strategy's share of each agent.

    Args:
        role: "target" or "adversary".
        names: names of its agents, oldest first.
        ratings: the rating of each.
        shares: the share of each, by meta-strategy.
        remark: a further sentence of the note.
    """
    rows = []
    for k, (name, rating) in enumerate(zip(names, ratings, strict=True)):
        cells = (THOUSANDTHS.cell(count(shares[meta][k], 1)) for meta in shares)
        rows.append((name, Form(places=0, inline=True).cell(rating, signed=True), *cells))
    note = (
        "Elo: 400 more are odds of ten to one to earn more points; a tie is half a win; both sides have one scale. Others: "
        "share of the agent in each mixture. Brackets: 95 % intervals."
    )
    return EstimateTable((role, "Elo", *shares), tuple(rows), note + remark)
