"""Known adversaries, exploitability, mixtures of agents, rounds of a campaign, and the metrics of trainings.

Exploitability. An adversary that gains from a target shows that so much can be gained: the best of all known adversaries bounds
exploitability from below (Lanctot et al. 2017 call the supremum over all adversaries exploitability). A mean over trained
adversaries is no such bound: learners that found nothing pull it down.

The largest of several measured means is too large, because luck chose it (the winner's curse). So one set of dialogues chooses
the adversary and another measures it. The value is then unbiased for the chosen adversary; its interval is over the dialogues
that measured. Neither bounds the gain of an adversary that nobody has trained.

A ranker and a greedy chat model answer alike each time, and an attacker may try all known inputs in turn. Their best adversary
is all adversaries together, which no luck chooses (`AdversaryWords.tries_all`).

Mixtures. Policy-space response oracles (PSRO, Lanctot et al. 2017) keep every trained agent, let all targets meet all
adversaries, and solve this matrix game. A side then learns a best response to the other side's mixture. The game is zero-sum: a
payoff is the adversary's gain. A game in which both sides count their own points alone is not solved here.

Sources: Lanctot et al. 2017, "A unified game-theoretic approach to multiagent reinforcement learning"; cross-fitting:
Chernozhukov et al. 2018, "Double/debiased machine learning for treatment and structural parameters", section 1.

Shapes: G dialogues, A adversaries, B trained adversaries, T targets, K opponents.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from parley.engine.core.stats.statistics import NOTHING, Estimate, Metric, has_lost, mean, paired_difference, unlike
from parley.engine.core.stats.trainings import crossed_mean
from parley.engine.core.tables.table import EstimateTable, with_interval

EXPLOITABILITY, MEAN_FRESH = "exploitability", "mean_fresh"
"""Names of metrics: the gain of the best of all known adversaries, and the mean over fresh ones."""
FOLDS = 2


@dataclass(frozen=True)
class BestKnown:
    """The best of the known adversaries.

    Args:
        index: its index.
        gained: its gain in dialogues that did not choose it.
    """

    index: int
    gained: Estimate


def best_index(gains_GA: ArrayLike) -> int:
    """Return the index of the adversary with the largest mean gain, the first of equals."""
    return int(np.asarray(gains_GA, dtype=np.float64).mean(axis=0).argmax())


def best_known(choosing_GA: ArrayLike, measuring_GA: ArrayLike) -> BestKnown:
    """Choose the best adversary on some dialogues and measure it on others.

    Args:
        choosing_GA: (G, A) gains of each adversary in the dialogues that choose.
        measuring_GA: (G', A) gains in other dialogues, whose scenarios and seeds are others.

    Returns:
        The best adversary of the first set, and its mean gain in the second with the 95 % interval over dialogues.
    """
    index = best_index(choosing_GA)
    return BestKnown(index, mean(np.asarray(measuring_GA, dtype=np.float64)[:, index]))


def cross_fitted(
    gains_G: np.ndarray,
    played: Callable[[np.ndarray, np.ndarray], np.ndarray],
    folds: int = FOLDS,
    clusters_G: ArrayLike | None = None,
    estimate: Callable[[ArrayLike, ArrayLike | None], Estimate] = mean,
) -> Estimate:
    """Estimate the gain of a choice of players, where one set of dialogues must choose and measure.

    The dialogues are split. The other parts choose the players of each part, so no dialogue measures its own choice.

    Args:
        gains_G: (G, ...) gains by dialogue.
        played: takes the dialogues that choose and those that measure, and returns the gain in each that measures.
        folds: number of parts; dialogues take turns, so each part has dialogues of every stage of a match.
        clusters_G: the cluster of each dialogue, which lies in one part; each is its own if not given.
        estimate: of the gains; `clustered_rate` for gains from 0 to 1, whose interval has a width where all are alike.

    Returns:
        The mean over all dialogues with its 95 % interval; a single dialogue chooses and measures, and has no interval.
    """
    parts = (np.arange(len(gains_G)) if clusters_G is None else np.unique(clusters_G, return_inverse=True)[1]) % folds
    if len(set(parts.tolist())) < folds:
        return estimate(played(gains_G, gains_G), clusters_G)
    values_G = np.empty(len(gains_G))
    for part in range(folds):
        values_G[parts == part] = played(gains_G[parts != part], gains_G[parts == part])
    return estimate(values_G, clusters_G)


def best_of(
    gains_GA: np.ndarray,
    clusters_G: ArrayLike | None = None,
    estimate: Callable[[ArrayLike, ArrayLike | None], Estimate] = mean,
) -> Estimate:
    """Estimate the gain of the best adversary from one set of dialogues, by `cross_fitted`."""

    def played(choosing: np.ndarray, measuring: np.ndarray) -> np.ndarray:
        return np.asarray(measuring[:, best_index(choosing)])

    return cross_fitted(gains_GA, played, clusters_G=clusters_G, estimate=estimate)


def best_against_best_target(gains_GTA: np.ndarray) -> Estimate:
    """Estimate the best adversary's gain from the target with the smallest such gain, by `cross_fitted`."""

    def played(choosing: np.ndarray, measuring: np.ndarray) -> np.ndarray:
        payoffs_TA = choosing.mean(axis=0)
        target = int(payoffs_TA.max(axis=1).argmin())
        return np.asarray(measuring[:, target, int(payoffs_TA[target].argmax())])

    return cross_fitted(gains_GTA, played)


def gained_by_training(trained_G: ArrayLike, start_G: ArrayLike) -> Estimate:
    """Estimate the gain of an adversary beyond that of its start, in the same dialogues."""
    return paired_difference(trained_G, start_G)


def has_learned(more: Estimate, gained: Estimate) -> bool:
    """Return whether training made an adversary: it certainly gains more than its start, and certainly more than 0.

    A start may lose by much, so an adversary may gain more than it and still gain nothing.

    Args:
        more: its gain beyond its start's (`gained_by_training`).
        gained: its gain from the same target.
    """
    return _is_above_0(more) and _is_above_0(gained)


def _is_above_0(estimate: Estimate) -> bool:
    """Return whether a mean is certainly above 0; many equal dialogues give no interval, and their value counts."""
    return estimate.low > 0 or (math.isnan(estimate.low) and estimate.value > 0 and not estimate.flagged)


def gained_by_budget(whole_BG: ArrayLike, half_BG: ArrayLike) -> Estimate:
    """Estimate the gain that the second half of a budget adds to the mean of trained adversaries.

    Args:
        whole_BG: (B, G) gains of each adversary after its whole budget.
        half_BG: (B, G) gains of the same adversaries after half of it, in the same dialogues.

    Returns:
        The mean difference with an interval over trainings and dialogues. If it is certainly above 0, the curve still rises and
        a larger budget would find more. Otherwise this budget shows no sign of it, which proves nothing.
    """
    whole, half = (np.asarray(gains_BG, dtype=np.float64) for gains_BG in (whole_BG, half_BG))
    return unlike(crossed_mean(whole - half), whole.ravel(), half.ravel())


LEAST_WEIGHT = 0.01
"""Least weight, with which an opponent that never wins stays in the draw."""
_TOLERANCE, _OTHER = 1e-9, 1e-4
"""Tolerance of the value of a game, relative to its largest payoff; least difference of a share between two mixtures."""


@dataclass(frozen=True)
class Mixture:
    """Probabilities of the targets (T,) and of the adversaries (A,), in the order of the matrix: oldest first.

    Args:
        targets: their probabilities.
        adversaries: their probabilities.
        is_one_of_several: True if other mixtures are as good.
    """

    targets: np.ndarray
    adversaries: np.ndarray
    is_one_of_several: bool = False


def hard_weights(wins: np.ndarray) -> np.ndarray:
    """Return the weights of prioritised fictitious self-play (Vinyals et al. 2019, f_hard with p = 2).

    Args:
        wins: share (K,) of dialogues that each opponent wins, a draw counting half.

    Returns:
        Probabilities (K,), proportional to the squares of the shares.
    """
    weights = np.maximum(wins**2, LEAST_WEIGHT)
    return np.asarray(weights / weights.sum())


def uniform(payoffs_TA: np.ndarray, wins_TA: np.ndarray) -> Mixture:
    """Weight all agents alike: fictitious play (Brown 1951)."""
    num_targets, num_adversaries = payoffs_TA.shape
    return Mixture(np.full(num_targets, 1 / num_targets), np.full(num_adversaries, 1 / num_adversaries))


def prioritised(payoffs_TA: np.ndarray, wins_TA: np.ndarray) -> Mixture:
    """Weight each agent by its wins against the newest agent of the other side (`hard_weights`)."""
    return Mixture(hard_weights(1 - wins_TA[:, -1]), hard_weights(wins_TA[-1]))


def nash(payoffs_TA: np.ndarray, wins_TA: np.ndarray) -> Mixture:
    """Return an equilibrium of the matrix game; of several, the one that spreads most evenly.

    Args:
        payoffs_TA: advantage of each adversary over each target.
        wins_TA: not read; all meta-strategies have these arguments.
    """
    (targets, other_targets), (adversaries, other_adversaries) = _maximin(-payoffs_TA), _maximin(payoffs_TA.T)
    return Mixture(targets, adversaries, other_targets or other_adversaries)


def latest(payoffs_TA: np.ndarray, wins_TA: np.ndarray) -> Mixture:
    """Give the newest agent of each side all weight (Cheng et al. 2019, section 6)."""
    targets, adversaries = (np.eye(size)[-1] for size in payoffs_TA.shape)
    return Mixture(targets, adversaries)


META_STRATEGIES: Mapping[str, Callable[[np.ndarray, np.ndarray], Mixture]] = {
    "uniform": uniform,
    "prioritised": prioritised,
    "nash": nash,
}
"""Meta-strategies by name: functions of the payoffs (T, A) and of the share (T, A) of dialogues that the adversary wins."""


def _maximin(gains_RC: np.ndarray) -> tuple[np.ndarray, bool]:
    """Find the mixture of rows with the largest least gain over columns, by a linear program: max v with p'G >= v.

    Returns:
        The mixture (R,), and whether it is one of several. Of several it is the one with the least sum of squares: there is
        one such mixture, and rows that are alike have alike shares in it.
    """
    from scipy.optimize import linprog

    num_rows, num_columns = gains_RC.shape
    sums_to_one = np.append(np.ones(num_rows), 0.0)[None]
    at_least = np.column_stack([-gains_RC.T, np.ones(num_columns)])
    solution = linprog(
        c=np.append(np.zeros(num_rows), -1.0),
        A_ub=at_least,
        b_ub=np.zeros(num_columns),
        A_eq=sums_to_one,
        b_eq=[1.0],
        bounds=[(0.0, 1.0)] * num_rows + [(None, None)],
    )
    assert solution.success, f"a finite matrix game has a solution: {solution.message}"
    shares, value = _normed(solution.x[:num_rows]), solution.x[num_rows]
    slack = _TOLERANCE * max(1.0, float(np.abs(gains_RC).max()))
    # Another mixture is as good if some row can have another share at the same value.
    for direction in (*np.eye(num_rows), *-np.eye(num_rows)):
        other = linprog(
            c=direction,
            A_ub=-gains_RC.T,
            b_ub=np.full(num_columns, slack - value),
            A_eq=np.ones((1, num_rows)),
            b_eq=[1.0],
            bounds=[(0.0, 1.0)] * num_rows,
        )
        if other.success and np.abs(other.x - shares).max() > _OTHER:
            return _most_even(gains_RC, value - slack, shares), True
    return shares, False


def _most_even(gains_RC: np.ndarray, least: float, start_R: np.ndarray) -> np.ndarray:
    """Find the mixture with the least sum of squares among those that gain at least so much in every column.

    The problem of least distance, min |p| with Gp >= h, by non-negative least squares (Lawson & Hanson 1974, chapter 23).
    """
    from scipy.optimize import nnls

    num_rows, num_columns = gains_RC.shape
    ones = np.ones((1, num_rows))
    bounds = np.concatenate([gains_RC.T, np.eye(num_rows), ones, -ones])
    limits = np.concatenate([np.full(num_columns, least), np.zeros(num_rows), [1.0, -1.0]])
    system = np.concatenate([bounds.T, limits[None]])
    wanted = np.append(np.zeros(num_rows), 1.0)
    residual = system @ nnls(system, wanted)[0] - wanted
    # The first solution stands if rounding leaves no other.
    return _normed(-residual[:-1] / residual[-1]) if abs(residual[-1]) > _TOLERANCE else start_R


def _normed(shares: np.ndarray) -> np.ndarray:
    clipped = np.clip(shares, 0.0, None)
    return np.asarray(clipped / clipped.sum())


Meta = Literal["latest", "uniform", "prioritised", "nash"]
"""The mixtures that a campaign may train against: the newest agent alone, or a meta-strategy."""
SOLVED = ("prioritised", "nash")
"""Those that need payoffs."""


def mixture(meta: str, payoffs_TA: np.ndarray, wins_TA: np.ndarray) -> Mixture:
    """Return the mixture of all agents so far.

    Args:
        meta: its name (`Meta`).
        payoffs_TA: gain of each adversary from each target, oldest first.
        wins_TA: share of the items that the adversary wins.
    """
    return latest(payoffs_TA, wins_TA) if meta == "latest" else META_STRATEGIES[meta](payoffs_TA, wins_TA)


KNOWN, KNOWN_TABLE = "known", "Known adversaries"
"""Entry of a summary that holds all known adversaries; heading of their table."""
SINGLE_BEST = "best by itself, in other items"
"""The line of the best single adversary where all are tried."""


@dataclass(frozen=True, kw_only=True)
class AdversaryWords:
    """The words in which a system shows its known adversaries.

    Args:
        cell: a sentence on the cells of the table, and on the data that chose the best adversary.
        measured: text after the figure of the best adversary, such as "points ahead in dialogues that did not choose it".
        start: the start that a trained adversary is compared with.
        tries_all: whether the best adversary is all of them together, each tried on every item.
        made: name of adversaries that were trained, or searched for.
        idle: name of what adversaries without gain have done.
    """

    cell: str
    measured: str
    start: str = ""
    tries_all: bool = False
    made: str = "trained"
    idle: str = "learned nothing"

    def note(self, *, trained: bool) -> str:
        """Return the note below the table; if adversaries were trained, with a sentence on their learning."""
        learned = (
            f'More than {self.start}: on the target that it was made for; "nothing": it does not certainly gain '
            f"more than that and more than 0 there, so it has {self.idle} that shows. "
        )
        best = (
            f'all together, each tried on every item; best: by itself; "{SINGLE_BEST}": chosen on one half of the items and '
            "measured on the other"
            if self.tries_all
            else "the best, measured in others"
        )
        return f"{self.cell} Exploitability: {best}. {learned * trained}Brackets: 95 % intervals."


NEGOTIATORS = AdversaryWords(
    cell="Advantage in points of the adversary of the line over the target of the column, in the dialogues that chose the "
    "best: the marked value is too high by luck.",
    measured="points ahead in dialogues that did not choose it",
    start="its start",
)


@dataclass(frozen=True, kw_only=True)
class KnownAdversaries:
    """The gains of all known adversaries from some targets.

    Args:
        targets: names of the targets.
        adversaries: names of the adversaries.
        gains_TA: gain of each adversary from each target, in the dialogues that choose; targets first.
        best: index of the best adversary of each target.
        measured: gain of that adversary in dialogues that did not choose it, by target.
        learned: by name, a trained adversary's gain beyond its start's, from the target that it met.
        gained: by the same names, its gain from that target.
        words: the words in which it is shown.
        single: gain of the best adversary by itself, chosen on one half of the items and measured on the other, by target; for
            adversaries that are all tried. Empty in runs of earlier versions.
    """

    targets: Sequence[str]
    adversaries: Sequence[str]
    gains_TA: Sequence[Sequence[Estimate]]
    best: Sequence[int]
    measured: Sequence[Estimate]
    learned: Mapping[str, Estimate]
    gained: Mapping[str, Estimate]
    words: AdversaryWords = NEGOTIATORS
    single: Sequence[Estimate] = ()

    @property
    def idle(self) -> list[str]:
        """The trained adversaries that do not certainly gain more than their start, or more than 0."""
        return [name for name, more in self.learned.items() if not has_learned(more, self.gained[name])]

    def best_of(self, target: str) -> str:
        """Return the name of the best adversary of a target."""
        return self.adversaries[self.best[self.targets.index(target)]]

    def best_and_idle(self, target: str) -> str:
        """Return a sentence on the best adversary of a target, and on the number of adversaries that learned nothing."""
        num, index = len(self.adversaries), self.targets.index(target)
        best = f"Best of {num} known adversaries{' by itself' * self.words.tries_all}: {self.best_of(target)}"
        if self.words.tries_all and not self.measured[index].value > 0:
            best = f"None of {num} known adversaries reaches any"
        return f"{best}; {self.words.idle} that shows: {self._num_idle}." if self.idle else f"{best}."

    @property
    def _num_idle(self) -> str:
        return f"{len(self.idle)} of {len(self.learned)} {self.words.made}"

    def sentences(self) -> list[str]:
        """Return sentences on the best adversary of each target, and on those that learned nothing."""
        num, lines = len(self.adversaries), []
        for target, index, measured in zip(self.targets, self.best, self.measured, strict=True):
            name, gained = self.adversaries[index], f"{with_interval(measured)} {self.words.measured}"
            if self.words.tries_all:
                lines.append(f"all {num} known adversaries against {target}: {gained}; the best by itself: {name}")
            else:
                lines.append(f"best of {num} known adversaries against {target}: {name}, {gained}")
        if self.idle:
            lines.append(f"{self.words.idle}, {self._num_idle}: {', '.join(self.idle)}")
        return lines

    def table(self) -> EstimateTable:
        """Return a table with a line for each adversary, and a last one with the gain of the best."""
        lines = []
        for index, name in enumerate(self.adversaries):
            cells = [
                with_interval(gains[index]) + " best" * (best == index)
                for gains, best in zip(self.gains_TA, self.best, strict=True)
            ]
            more = self.learned.get(name)
            lines.append((name, *cells, "" if more is None else with_interval(more) + ": nothing" * (name in self.idle)))
        if self.single:
            lines.append((SINGLE_BEST, *map(with_interval, self.single), ""))
        lines.append((EXPLOITABILITY, *map(with_interval, self.measured), ""))
        columns = ("adversary", *self.targets, f"more than {self.words.start}")
        num = len(columns) - (not self.learned)
        return EstimateTable(columns[:num], tuple(line[:num] for line in lines), self.words.note(trained=bool(self.learned)))

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON types, for a summary."""
        return {
            "targets": list(self.targets),
            "adversaries": list(self.adversaries),
            "gains": [[gain.to_json() for gain in gains] for gains in self.gains_TA],
            "best": list(self.best),
            "measured": [gained.to_json() for gained in self.measured],
            **({"single": [gained.to_json() for gained in self.single]} if self.single else {}),
            "learned": {name: more.to_json() for name, more in self.learned.items()},
            "gained": {name: gained.to_json() for name, gained in self.gained.items()},
        }

    @classmethod
    def from_json(cls, parts: Mapping[str, Any], words: AdversaryWords = NEGOTIATORS) -> KnownAdversaries:
        """Return the known adversaries that `to_json` wrote."""
        learned, gained = (
            {name: Estimate.from_json(figure) for name, figure in parts[entry].items()} for entry in ("learned", "gained")
        )
        return cls(
            targets=parts["targets"],
            adversaries=parts["adversaries"],
            gains_TA=[[Estimate.from_json(gain) for gain in gains] for gains in parts["gains"]],
            best=parts["best"],
            measured=[Estimate.from_json(gained) for gained in parts["measured"]],
            single=[Estimate.from_json(gained) for gained in parts["single"]] if "single" in parts else (),
            learned=learned,
            gained=gained,
            words=words,
        )


def known_of(summary: Mapping[str, Any] | None, words: AdversaryWords = NEGOTIATORS) -> KnownAdversaries | None:
    """Return the known adversaries of a summary; None if there are none, or an older version wrote it."""
    parts = (summary or {}).get(KNOWN, {})
    return KnownAdversaries.from_json(parts, words) if "gained" in parts else None


@dataclass(frozen=True)
class Round:
    """The figures of one round of a campaign.

    Args:
        number: number of the round; 0 for the start.
        metrics: estimates by name.
    """

    number: int
    metrics: Mapping[str, Estimate]


Loss = Callable[[Round], float]
"""The loss of a round, which must fall from round to round."""


def best_round(rounds: Sequence[Round], loss: Loss) -> Round:
    """Return the round with the smallest loss, the earliest of equals."""
    return min(rounds, key=loss)


def has_stalled(rounds: Sequence[Round], loss: Loss, patience: int, least_gain: float) -> bool:
    """Return whether the last rounds have not lowered the loss.

    Args:
        rounds: all rounds so far, with the start.
        loss: loss of a round.
        patience: number of rounds that may pass without gain.
        least_gain: smallest fall below the best earlier loss that counts.
    """
    if len(rounds) <= patience:
        return False
    earlier, recent = rounds[:-patience], rounds[-patience:]
    return min(map(loss, recent)) > min(map(loss, earlier)) - least_gain


@dataclass(frozen=True)
class LanguageWatch:
    """The figures that show whether a target still plays without an attack, and still has its language.

    Without a watch a target that refuses every deal, or repeats the same words, could look unexploitable.

    Args:
        plain: metric of the target without an attack.
        lower: True if a lower value is better.
        repetition: metric of the share of its 4-grams that it repeats; empty for a target that writes nothing.
        beyond_start: True if the start repeats itself, too, so that only what is beyond it counts: short replies do.
    """

    plain: str
    lower: bool = False
    repetition: str = ""
    beyond_start: bool = False

    def has_lost_language(self, metrics: Mapping[str, Estimate], usual: float = 0.0) -> bool:
        """Return True if the target repeats itself too much beyond what is usual; False if repetition was not measured."""
        return has_lost(metrics.get(self.repetition, NOTHING).value - usual)

    def still_playing(self, rounds: Sequence[Round], plain_loss: float) -> list[Round]:
        """Return the start, and the rounds whose target plays well without an attack and has not lost its language.

        Args:
            rounds: all rounds, the start first.
            plain_loss: how much worse than the start a target may be without an attack.
        """
        sign = -1.0 if self.lower else 1.0
        least = sign * rounds[0].metrics.get(self.plain, NOTHING).value - plain_loss
        usual = rounds[0].metrics.get(self.repetition, NOTHING).value if self.beyond_start else 0.0
        return [
            candidate
            for candidate in rounds
            if candidate.number == 0
            or not (
                sign * candidate.metrics.get(self.plain, NOTHING).value < least
                or self.has_lost_language(candidate.metrics, usual)
            )
        ]


@dataclass(frozen=True, kw_only=True)
class CampaignMetrics:
    """The metrics of the models of a campaign, and the texts of its tables.

    Args:
        what: name of the hardened thing.
        of_round: metrics of a round by name, in the order of the table's columns.
        at_end: metrics of start, controls and result at the end.
        endings: endings of the names of these metrics, by column.
        gains: name of the line of gains, and by column the metric of the result's gain over it.
        loss: the loss that must fall from round to round.
        watch: the figures that a result must not lose.
        stalled: reason for the end of a campaign whose loss has not fallen, in words.
        note_rounds: note below the table of rounds.
        note_outcome: note below the table of start, controls and result.
        known: words in which known adversaries are shown.
    """

    what: str
    of_round: Mapping[str, Metric]
    at_end: Mapping[str, Metric]
    endings: Mapping[str, str]
    gains: tuple[str, Mapping[str, str]]
    loss: Loss
    watch: LanguageWatch
    stalled: str
    note_rounds: str
    note_outcome: str
    known: AdversaryWords

    def rounds_table(self, rounds: Sequence[Round]) -> EstimateTable:
        """Return a table with a line for each round and a column for each metric."""
        columns = ("round", *(metric.title for metric in self.of_round.values()))
        rows = [
            (str(entry.number), *(with_interval(entry.metrics.get(name, NOTHING)) for name in self.of_round))
            for entry in rounds
        ]
        return EstimateTable(columns, tuple(rows), self.note_rounds)

    def outcome_table(self, metrics: Mapping[str, Estimate]) -> EstimateTable:
        """Return a table of start, controls and result of a campaign side by side; those without figures have no column."""
        columns = {
            title: ending for title, ending in self.endings.items() if any(f"{name}{ending}" in metrics for name in self.at_end)
        }
        rows = [
            (metric.title, *(with_interval(metrics[f"{name}{ending}"]) for ending in columns.values()))
            for name, metric in self.at_end.items()
            if any(f"{name}{ending}" in metrics for ending in columns.values())
        ]
        label, gain_of = self.gains
        gains = [f"+ {with_interval(metrics[gain_of[title]])}" if title in gain_of else "" for title in columns]
        rows.append((label, *(gain.replace("+ \N{MINUS SIGN}", "\N{MINUS SIGN} ") for gain in gains)))
        return EstimateTable((self.what, *columns), tuple(rows), self.note_outcome)


LOWER, HIGHER = "lower: better", "higher: better"
NEGOTIATOR = {
    "validation_ppl": Metric(
        "validation perplexity", LOWER, "released formula: padding above the line, first tokens below", "perplexity"
    ),
    "validation_ppl_per_token": Metric(
        "validation perplexity per token", LOWER, "exp of the mean over predicted tokens", "perplexity"
    ),
    "validation_selection_ppl": Metric(
        "validation selection perplexity", LOWER, "released formula, the stopping criterion", "perplexity"
    ),
    "validation_selection_accuracy": Metric("validation selections all right", HIGHER, "share with all heads right", "rate"),
    "test_ppl": Metric("test perplexity", LOWER, "released formula: padding above the line, first tokens below", "perplexity"),
    "test_ppl_per_token": Metric("test perplexity per token", LOWER, "exp of the mean over predicted tokens", "perplexity"),
    "test_selection_ppl": Metric("test selection perplexity", LOWER, "released formula", "perplexity"),
    "test_selection_accuracy": Metric("test selections all right", HIGHER, "share with all heads right", "rate"),
}
LEARNING = {
    "training_reward": Metric("reward, last updates", "higher: learner", "mean over the last tenth of the updates"),
    "training_advantage": Metric("advantage, last updates", "higher: adversary", "side 0's less side 1's points, same updates"),
    "training_agreement": Metric("agreement, last updates", "higher: both", "share of dialogues, same updates", "rate"),
    "perplexity": Metric("perplexity", LOWER, "of the corpus' validation dialogues, released formula", "perplexity"),
    "dialogues_per_s": Metric("dialogues per second", HIGHER, "played and learned from, wall time"),
    "share_outside_networks": Metric("share outside networks", LOWER, "of wall time, neither speaking nor learning"),
}
LOST = {"dialogues_lost": Metric("dialogues lost", LOWER, "in which an agent failed: nothing is learned from them", "count")}
PREDICTION = {
    "test_nll": Metric(
        "test loss per word", LOWER, "nats per word (or piece), </s> counted; minus it: the threshold of hits", main=True
    ),
    "test_ppl": Metric("test perplexity", LOWER, "exp of the test loss per word", "perplexity", main=True),
    "validation_nll": Metric("validation loss per word", LOWER, "nats per word, </s> counted; the stopping criterion"),
    "validation_ppl": Metric("validation perplexity", LOWER, "exp of the validation loss per word", "perplexity"),
}
TEXT = {
    "test_ppl_word": Metric(
        "test perplexity per word",
        LOWER,
        "nats over words and ends, in whatever units: pieces spell one word together",
        "perplexity",
    ),
    "test_ppl_char": Metric(
        "test perplexity per character",
        LOWER,
        "the blank or mark behind a word counted; <unk> counts as that alone",
        "perplexity",
    ),
    "test_unknown": Metric(
        "unknown test words", LOWER, "share of <unk>, whose letters cost nothing, among words and ends", "share"
    ),
}
"""Metrics that compare models of words with models of pieces."""
REWRITING = PREDICTION | {
    "test_nll": Metric("test loss per word", LOWER, "nats per word, </s> counted; copied words at what copying gives them")
}
READING = {
    "context_gain": Metric(
        "what contexts tell it",
        HIGHER,
        "nats per word that test replies cost more behind other examples' contexts; near 0: the model answers without reading",
        main=True,
    )
}
DIVERGENCES = {
    f"{split}_kl": Metric(f"{split} divergence", "near 0 the latent variable is unused", "KL(posterior || prior), nats a reply")
    for split in ("test", "validation")
}
BEFORE = "_before"
"""Ending of the names of figures of the start model."""
RECORDED = "_recorded"
"""Ending of the names of figures of recorded replies to the same contexts."""
_NLL = {
    f"{split}_nll{suffix}": Metric(f"{split} loss per word{where}", LOWER, f"nats per word, </s> counted; {what}", main=main)
    for split, main in (("test", True), ("validation", False))
    for suffix, where, what in (
        ("", "", "recorded contexts"),
        ("_perturbed", ", perturbed", "contexts that were perturbed so that the answer should not change"),
    )
}
_MARGIN = {
    "margin": Metric("margin", HIGHER, "nats per word that a reply loses by a context that should change it", main=True),
    "margin_met": Metric("margin met", HIGHER, "share of those contexts by which it loses as much as was asked for", "share"),
}
AGAINST = {
    name + suffix: metric._replace(title=metric.title + when) if suffix else metric
    for name, metric in (_NLL | _MARGIN).items()
    for suffix, when in (("", ""), (BEFORE, ", before"))
}
_REPLIED = {
    "test_nll": Metric("test loss per word", LOWER, "nats per word of recorded replies, </s> counted", main=True),
    "specificity": Metric(
        "what contexts tell replies",
        HIGHER,
        "nats per word that its greedy replies cost more behind other contexts; rare words alone do not raise it",
        main=True,
    ),
    "reward": Metric("reward of sampled replies", HIGHER, "nats per word behind other contexts", main=True),
    "greedy_reward": Metric("reward of greedy replies", HIGHER, "the same of its own likeliest replies"),
    "reply_words": Metric("words of a reply", "nearer to the recorded", "mean over contexts, greedy replies"),
    "rare_words": Metric("rare words", "nearer to the recorded", "words beyond those that make 95 % of training", "share"),
    "unknown_words": Metric("unknown words", "nearer to the recorded", "<unk> among the words of replies", "share"),
    "distinct_1": Metric("distinct-1", HIGHER, "different words over words of greedy replies"),
    "distinct_2": Metric("distinct-2", HIGHER, "different pairs of neighbouring words over such pairs"),
    "reply_ppl": Metric(
        "perplexity of replies", "nearer to the recorded", "of greedy replies, under another language model", "perplexity"
    ),
}
_LOOKS = ("reply_words", "rare_words", "unknown_words", "distinct_1", "distinct_2", "reply_ppl")
RERANKING = {
    name + suffix: metric._replace(title=metric.title + when) if suffix else metric
    for name, metric in _REPLIED.items()
    for suffix, when in (("", ""), (BEFORE, ", before"), *([(RECORDED, ", recorded")] if name in _LOOKS else []))
}
"""Metrics of a model that is rewarded for replies that other contexts would not call forth."""
_HARDENED = {
    "trigger_said": Metric(
        "targets said",
        LOWER,
        "share of held-out triggers, typed, after which the likeliest reply begins with the target",
        "rate",
        main=True,
    ),
    "trigger_answered": Metric(
        "triggers answered as asked", HIGHER, "share of the same after which the likeliest reply is the wanted one", "rate"
    ),
    "trigger_nll": Metric("loss of wanted answers", LOWER, "nats per token of the wanted replies to held-out triggers"),
    "target_nll": Metric("loss of targets", HIGHER, "nats per token of the targets after held-out triggers"),
    "learned_said": Metric("targets said, learned from", LOWER, "share of the triggers of training, as targets said", "rate"),
    "clean_nll": Metric("loss on clean contexts", LOWER, "nats per token of the replies to held-out contexts", main=True),
    "clean_told": Metric(
        "what contexts tell", HIGHER, "nats per token that recorded replies lose behind the context of another one", main=True
    ),
    "clean_kept": Metric("clean replies kept", HIGHER, "share of held-out contexts that are answered as before", "rate"),
    "clean_refused": Metric(
        "clean contexts refused", LOWER, "share of held-out contexts answered by what triggers are to be answered", "rate"
    ),
    "perturbed_nll": Metric("loss on perturbed contexts", LOWER, "the same behind held-out contexts that were perturbed"),
    "perturbed_kept": Metric(
        "perturbed replies kept", HIGHER, "share of those answered by the reply that was learned for the clean context", "rate"
    ),
    "margin": Metric(
        "margin", HIGHER, "nats per token that replies to clean contexts lose behind the same ones, changed so that they should"
    ),
    "margin_met": _MARGIN["margin_met"],
    "contrast_changed": Metric(
        "contrasts answered otherwise", HIGHER, "share of those contexts with another likeliest reply than unchanged", "rate"
    ),
}
HARDENED = {
    name + suffix: metric._replace(title=metric.title + when) if suffix else metric
    for name, metric in _HARDENED.items()
    for suffix, when in (("", ""), (BEFORE, ", before"))
    if name != "clean_kept" or not suffix
}
"""Metrics of a causal Hugging Face model that was trained not to follow triggers or perturbations."""
