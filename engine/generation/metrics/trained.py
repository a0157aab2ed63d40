"""Metrics, tables and conclusions of generator trainings beside their controls (Li et al. 2017, table 3).

    ROW.FIGURE                     of the replies of a row
    ROW.FIGURE-JUDGE               what a judge says of them
    METHOD less ROW.FIGURE-JUDGE   AdverSuc, and machine-vs-random, of a training less that of a control, on the same sources
    ROW.ere-JUDGE                  how far a judge, or the constant one, is from gold where the answer is known (table 2)

A row has one system for each training, or for each generator that was started from. Intervals are over these and over sources
(`crossed_mean`), every source with equal weight; of the replies themselves over these alone, where there are several. A source
that a system answers without a word counts as told, by every judge.

The start, greedy and sampled at several temperatures, is a curve of quality by diversity. `ABOVE` is how far a row lies above
it: nats a word by which its replies are likelier, under the language model, than those of the start at equal distinct-2, along
straight lines between neighbouring points. A row that is more or less various than the whole curve has none.

The metrics of one training follow: diversity and rewards of the replies of a step, which reveal a generator that says the same
to everybody.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress, pairwise
from typing import Any

import numpy as np

from parley.engine.core.stats.known import BEFORE, HIGHER, LOWER
from parley.engine.core.stats.statistics import (
    NEITHER,
    NOTHING,
    REPLIES,
    Estimate,
    Metric,
    count,
    distinct,
    mean,
    mean_count,
    ratio_of_sums,
)
from parley.engine.core.stats.trainings import crossed_difference, crossed_mean, over_runs
from parley.engine.core.tables.table import ABSENT, BETWEEN, EstimateTable, figure, interval
from parley.engine.generation.metrics.adversarial import ADVERSUC, ERE, MATCHED, RANDOM
from parley.engine.generation.metrics.adversarial import CONSTANT as CONSTANT_JUDGE
from parley.engine.generation.metrics.tables import PUBLISHED_ADVERSUC, PUBLISHED_ERE, RELIABILITY, overlap, self_bleu

WORDS, DISTINCT, DISTINCT_2, COMMONEST = "reply_words", "distinct_1", "distinct_2", "commonest_share"
"""As `parley.engine.core.stats.statistics` calls them, whose figures have intervals."""
ADVANTAGE = "advantage"
"""Size of reward less baseline, mean over words: nothing is learned where it is 0, as where all replies earn the same."""


def variety(replies: Sequence[Sequence[int] | np.ndarray]) -> dict[str, float]:
    """Words of a reply in the mean, distinct-1 and -2, and the share of the commonest reply.

    Args:
        replies: word ids of each, one reply at least.
    """
    said = [tuple(map(str, reply)) for reply in replies]
    return {
        WORDS: float(np.mean([len(words) for words in said])),
        DISTINCT: distinct(said, 1).value,
        DISTINCT_2: distinct(said, 2).value,
        COMMONEST: max(Counter(said).values()) / len(said),
    }


GAIN, PICKED, NATS = "adversuc_gain", "picked_round", "validation_nll"
_SAID = {
    f"test_{ADVERSUC}": Metric(
        "AdverSuc",
        HIGHER,
        "share of test replies, recorded and the generator's, that judges fitted to them alone take for the other kind",
        main=True,
    ),
    f"test_{RANDOM}": Metric(
        "machine-vs-random",
        HIGHER,
        "share of test replies, the generator's and recorded ones to other contexts, that such judges tell right",
        main=True,
    ),
    NATS: Metric("validation loss per word", LOWER, "nats per word of recorded replies, </s> counted"),
    **{name: metric for name, metric in REPLIES.items() if not name.startswith("recorded")},
}
STEPS = {
    "discriminator_accuracy": ("discriminator's accuracy", "on replies before it learns from them, steps of the"),
    "reward": ("reward of a word", "mean of the generator's steps of the"),
}
"""Figures of steps that are told of the first ones and of the last."""
AGAINST_DISCRIMINATOR = {
    name + suffix: metric._replace(title=metric.title + when)
    for name, metric in _SAID.items()
    for suffix, when in (("", ""), (BEFORE, ", at the start"))
} | {
    **{name: metric for name, metric in REPLIES.items() if name.startswith("recorded")},
    GAIN: Metric("AdverSuc gained", HIGHER, "AdverSuc less that at the start, by the same judges, same contexts", main=True),
    f"validation_{ADVERSUC}": Metric("AdverSuc, validation split", HIGHER, "of the checkpoint, as measured when it was picked"),
    f"validation_{RANDOM}": Metric("machine-vs-random, validation split", HIGHER, "of the checkpoint, by the same judges"),
    PICKED: Metric("round of the checkpoint", NEITHER, "0: the start, which no round was better than", "count"),
    **{
        name + suffix: Metric(title + when, NEITHER, f"{of} {tenth} tenth")
        for name, (title, of) in STEPS.items()
        for suffix, when, tenth in (("", "", "last"), (BEFORE, ", at the start", "first"))
    },
}


def step_figures(updates: Sequence[Mapping[str, Any]]) -> dict[str, Estimate]:
    """The figures of `STEPS`, of the first and the last tenth of the updates that have each.

    Args:
        updates: figures of all updates, in their order.
    """
    found: dict[str, Estimate] = {}
    for name in STEPS:
        if values := [update[name] for update in updates if name in update]:
            tenth = max(1, len(values) // 10)
            found |= {name: mean(values[-tenth:]), f"{name}{BEFORE}": mean(values[:tenth])}
    return found


BLIND = "blind"
DECODED = {
    "greedy": "the start, greedy",
    "beam": "the start, beam",
    "diverse": "the start, beam, siblings penalised",
    "beam-repeat": "the start, beam, repeated words penalised",
    "sample": "the start, sampled",
    "mmi": "the start, MMI + p(s|t)",
    "mmi-antilm": "the start, MMI - p(t)",
    BLIND: "the start, one reply to everybody (control)",
}
METHODS = {"reinforce": "REINFORCE", "regs-mc": "REGS, Monte Carlo", "regs-partial": "REGS, partial"}
FORCED, CONSTANT, SHUFFLED, LENGTH, FROZEN = "forced", "constant", "shuffled", "length", "frozen"
CONTROLS = {
    FORCED: "teacher forcing alone",
    CONSTANT: "constant reward",
    SHUFFLED: "shuffled rewards",
    LENGTH: "reward of length",
    FROZEN: "frozen discriminator",
}
TRAINED = METHODS | CONTROLS
"""Rows that are trained, and what tables call them."""
AT, SAMPLED, LESS = "sample-", "-sampled", " less "
"""Begins the name of a row at a temperature; ends that of a training whose replies are drawn; stands in a comparison."""
PEOPLE = "people"
"""The recorded replies; their overlap is that of one half of them with the other."""
PERPLEXITY, SELF_BLEU, OVERLAP, ROUND = "perplexity", "self_bleu", "overlap", "round"
ABOVE, EMPTY = "above_curve", "empty_share"
_LIKE_PEOPLE = "nearer to people's"
JUDGED = {
    ADVERSUC: Metric("AdverSuc", HIGHER, "share of pairs, people's and the row's, taken for the other's", "rate", main=True),
    RANDOM: Metric("machine-vs-random", HIGHER, "share of pairs, the row's and random people's, told right", "rate", main=True),
    MATCHED: Metric("AdverSuc, lengths matched", HIGHER, "AdverSuc with equally many replies of each length", "rate"),
}
"""Figures that a judge gives."""
RELIABLE = Metric("ERE", "lower: better", "mean distance of AdverSuc from gold over scenarios whose answer is known")
"""What evaluations of a row say of a judge."""
QUALITY = {
    WORDS: Metric("words", _LIKE_PEOPLE, "words of a reply in the mean"),
    PERPLEXITY: Metric("perplexity", _LIKE_PEOPLE, "under a language model that no training saw, </s> counted", main=True),
    DISTINCT: Metric("distinct-1", _LIKE_PEOPLE, "different words over all words (Li et al. 2016a)"),
    DISTINCT_2: Metric("distinct-2", _LIKE_PEOPLE, "different pairs of neighbouring words over all", main=True),
    SELF_BLEU: Metric("self-BLEU", _LIKE_PEOPLE, "BLEU of each reply against all others (Zhu et al. 2018), mean"),
    OVERLAP: Metric("overlap", HIGHER, "of histograms of vectors with people's, as MAUVE; 1: equal"),
    ABOVE: Metric("above the temperature curve", HIGHER, "nats a word, likelier than the start at equal distinct-2", "number"),
    EMPTY: Metric("replies without a word", "lower: better", "share of contexts; every judge tells them", "share"),
    ROUND: Metric("round", NEITHER, "of the checkpoint; 0: the start, where the best is kept"),
}
"""Figures of the replies themselves."""
TABLE, COMPARED = "Trainings beside their controls", "Trainings less controls, AdverSuc and machine-vs-random"
_NOTE = (
    "AdverSuc: 1 less the accuracy of {judge} in telling people's replies from the row's; .5 where it cannot. Against random: "
    "accuracy of telling the row's replies from human ones to other sources. Matched: AdverSuc where length tells nothing. "
    "Perplexity: under a language model that no training saw. Overlap: of histograms with people's, as MAUVE; people's own is "
    "of their halves. Above the temperature curve: nats a word by which replies are likelier than those of the start at the "
    "temperature of equal distinct-2; * where the interval, over trainings if there are several, else over replies, leaves 0 "
    "out; none beyond the temperatures measured. Replies without a word count as told. Round: that of the checkpoint. "
    "Brackets: 95 % intervals over trainings and sources, every source with equal weight; n: sources."
)
_NOTE_COMPARED = (
    "AdverSuc : machine-vs-random by {judge}, same sources and decoder; * where the interval, over trainings and sources, "
    "leaves 0 out. Replies that are nearer to random ones raise the first and lower the second."
)

_NOTE_RELIABLE = (
    "ERE: mean distance of AdverSuc from gold over the scenarios whose answer is known (people against people, a row against "
    "itself, random replies, and next utterances where the corpus knows them). Mean over rows, and the rows in which it is "
    "lowest and highest; each row has judges of its own."
)
_NOTE_PUBLISHED_ERE = " Published: Li et al. 2017, over four scenarios, .250 for a judge that says nothing."
_NOTE_PUBLISHED = " Published: AdverSuc and machine-vs-random of Li et al. 2017, table 3, hierarchical judge, OpenSubtitles."
_PUBLISHED_AS = {
    "beam": "MLE-BS",
    "greedy": "MLE-greedy",
    "mmi": "MMI+p(t|s)",
    "mmi-antilm": "MMI-p(t)",
    "sample": "Sampling",
    "reinforce": "Adver-Reinforce",
    "regs-mc": "Adver-REGS",
}
"""Rows of the paper's table."""

Metrics = Mapping[str, Estimate]
Shares = Mapping[str, float]
"""What a judge said of the pairs of each source, by source."""


@dataclass(frozen=True)
class AnsweredRow:
    """One system of a row.

    Args:
        shares: by figure and judge.
        figures: of the replies themselves.
        errors: by judge its evaluator reliability error, that of the constant judge among them.
        number: of the training or of the start, from 1; those of one row may lack some.
        start: the number of the start that it is, or that its training began from.
    """

    shares: Mapping[tuple[str, str], Shares]
    figures: Mapping[str, Estimate]
    errors: Mapping[str, Estimate] = field(default_factory=dict)
    number: int = 1
    start: int = 1


@dataclass(frozen=True)
class ReadReplies:
    """Replies as a language model reads them.

    Args:
        words: of each reply, one word at least.
        nats: (N,) of each, its end counted.
        vectors_NE: one for each.
    """

    words: Sequence[Sequence[str]]
    nats: np.ndarray
    vectors_NE: np.ndarray


def row_title(row: str) -> str:
    """Return the title of a row in tables."""
    if LESS in row:
        return " less ".join(map(row_title, row.split(LESS)))
    if row.startswith(AT):
        return f"the start, sampled at {row.removeprefix(AT)}"
    known = {**DECODED, **TRAINED, PEOPLE: PEOPLE}
    return known[row.removesuffix(SAMPLED)] + ", sampled" * row.endswith(SAMPLED)


def is_of_curve(row: str) -> bool:
    """Return whether the curve of quality by diversity is drawn through a row."""
    return row in ("greedy", "sample") or row.startswith(AT)


def describe(name: str) -> Metric:
    """Return the title and definition of a metric."""
    row, _, kind = name.rpartition(".")
    if kind in QUALITY:
        known = QUALITY[kind]
        return known._replace(title=f"{known.title}, {row_title(row)}", main=False)
    kind, _, judge = kind.partition("-")
    known = RELIABLE if kind == ERE else JUDGED[kind]
    if LESS in row:
        known = known._replace(form="number")
    return known._replace(title=f"{known.title}, {row_title(row)}, {judge}", main=known.main and LESS in row)


def reply_figures(said: ReadReplies, recorded: ReadReplies, seed: int) -> dict[str, Estimate]:
    """The figures of replies themselves.

    Args:
        said: the replies.
        recorded: people's.
        seed: of clusterings.
    """
    num = len(said.words)
    lengths = [len(words) for words in said.words]
    return {
        WORDS: mean_count(lengths),
        PERPLEXITY: ratio_of_sums(said.nats, [length + 1 for length in lengths], transform=np.exp),
        DISTINCT: distinct(said.words, 1),
        DISTINCT_2: distinct(said.words, 2),
        SELF_BLEU: count(float(self_bleu(said.words).mean()), num),
        OVERLAP: count(overlap(said.vectors_NE, recorded.vectors_NE, seed), num),
    }


def table_metrics(rows: Mapping[str, Sequence[AnsweredRow]], judges: Sequence[str], recorded: Metrics) -> dict[str, Estimate]:
    """All figures, see the top of this module.

    Args:
        rows: the systems of each row, in the order of the trainings.
        judges: who judged.
        recorded: figures of people's replies.
    """
    found: dict[str, Estimate] = {}
    curve = {row: systems for row, systems in rows.items() if is_of_curve(row)}
    for row, systems in rows.items():
        for kind in JUDGED:
            for judge in judges:
                if shares := _said_of(systems, kind, judge):
                    found[f"{row}.{kind}-{judge}"] = _over_sources(shares)
        for kind in QUALITY:
            told = [each.figures[kind] for each in systems if kind in each.figures]
            if kind == ABOVE and row not in curve:
                points = [one for line in curve.values() for one in line]
                lines = [[one.figures for one in points if one.start == each.start] for each in systems]
                placed = [above_curve(each.figures, line) for each, line in zip(systems, lines, strict=True)]
                told = [each for each in placed if each.n]
            if told:
                found[f"{row}.{kind}"] = _over_trainings(told)
        for judge in (*judges, CONSTANT_JUDGE):
            if wrong := [each.errors[judge] for each in systems if judge in each.errors]:
                found[f"{row}.{ERE}-{judge}"] = _over_trainings(wrong)
    for method in METHODS:
        for control in ("greedy", BLIND, *CONTROLS):
            for judge in judges:
                for kind in (ADVERSUC, RANDOM):
                    if sides := _side_by_side(rows.get(method, ()), rows.get(control, ()), (kind, judge), control in DECODED):
                        found[f"{method}{LESS}{control}.{kind}-{judge}"] = _difference(sides)
    return found | {f"{PEOPLE}.{name}": each for name, each in recorded.items()}


def above_curve(figures: Metrics, curve: Sequence[Metrics]) -> Estimate:
    """Return the height of replies above the curve of quality by diversity, in nats a word, see the top of this module.

    Args:
        figures: of the replies.
        curve: of those that the curve is drawn through.

    Returns:
        The distance with its interval, in which distinct-2 is taken as it is; nothing beyond the curve.
    """
    points = sorted((each[DISTINCT_2].value, *_log(each[PERPLEXITY])) for each in curve if DISTINCT_2 in each)
    if DISTINCT_2 not in figures:
        return NOTHING
    at, (own, width) = figures[DISTINCT_2].value, _log(figures[PERPLEXITY])
    for (left, below, one), (right, above, other) in pairwise(points):
        if left <= at <= right and left < right:
            share = (at - left) / (right - left)
            distance = (1 - share) * below + share * above - own
            # The widths of three independent figures.
            spread = math.hypot(width, (1 - share) * one, share * other)
            return Estimate(distance, distance - spread, distance + spread, figures[PERPLEXITY].n)
    return NOTHING


def _log(perplexity: Estimate) -> tuple[float, float]:
    """Nats a word, and half of their interval."""
    return math.log(perplexity.value), (math.log(perplexity.high) - math.log(perplexity.low)) / 2


def trained_tables(metrics: Metrics, judges: Sequence[str], published: bool = False) -> dict[str, EstimateTable]:
    """One table of all rows, by the first judge, for each judge one of trainings less controls, and one of the judges.

    Args:
        metrics: those of `table_metrics`.
        judges: who judged.
        published: whether the figures of tables 2 and 3 stand beside.
    """
    names = list(dict.fromkeys(name.rpartition(".")[0] for name in metrics))
    shown = [name for name in names if LESS not in name]
    kinds = [kind for kind in QUALITY if any(f"{row}.{kind}" in metrics for row in shown)]
    rows = []
    for row in shown:
        judged = [metrics.get(f"{row}.{kind}-{judges[0]}", NOTHING) for kind in JUDGED]
        told = [metrics.get(f"{row}.{kind}", NOTHING) for kind in kinds]
        cells = [_share_of(judged[0]), *(_share(each.value) for each in judged[1:])]
        cells += [_told(kind, each) for kind, each in zip(kinds, told, strict=True)]
        told_there = PUBLISHED_ADVERSUC.get(_PUBLISHED_AS.get(row, ""))
        cells += [ABSENT if told_there is None else BETWEEN.join(map(_share, told_there))] * published
        rows.append((row_title(row), *cells, f"{judged[0].n:,}" if judged[0].n else ABSENT))
    heads = ("row", "AdverSuc", "against random", "matched", *(QUALITY[kind].title for kind in kinds))
    heads += ("published",) * published + ("n",)
    found = {TABLE: EstimateTable(heads, tuple(rows), _NOTE.format(judge=judges[0]) + _NOTE_PUBLISHED * published)}
    compared = [name for name in names if LESS in name]
    methods, controls = (list(dict.fromkeys(name.split(LESS)[side] for name in compared)) for side in (0, 1))
    for judge in judges if compared else ():
        lines = [(row_title(one), *(_compared(metrics, f"{one}{LESS}{other}", judge) for other in controls)) for one in methods]
        title = COMPARED if len(judges) == 1 else f"{COMPARED}, {judge}"
        found[title] = EstimateTable(("less", *map(row_title, controls)), tuple(lines), _NOTE_COMPARED.format(judge=judge))
    if lines := [*filter(None, (_reliability(metrics, shown, judge) for judge in (*judges, CONSTANT_JUDGE)))]:
        lines += [(f"{name}, published", _share(ere), *[""] * 5) for name, ere in PUBLISHED_ERE.items()] if published else []
        heads = ("judge", "ERE, mean", "lowest", "in the row", "highest", "in the row", "rows")
        found[RELIABILITY] = EstimateTable(heads, tuple(lines), _NOTE_RELIABLE + _NOTE_PUBLISHED_ERE * published)
    return found


def _reliability(metrics: Metrics, rows: Sequence[str], judge: str) -> tuple[str, ...]:
    """The line of a judge; empty where nothing is known of it."""
    errors = {row: each.value for row in rows if (each := metrics.get(f"{row}.{ERE}-{judge}", NOTHING)).n}
    if not errors:
        return ()
    low, high = min(errors, key=errors.__getitem__), max(errors, key=errors.__getitem__)
    cells = (_share(errors[low]), row_title(low), _share(errors[high]), row_title(high), f"{len(errors)}")
    return (judge + " (control)" * (judge == CONSTANT_JUDGE), _share(float(np.mean([*errors.values()]))), *cells)


def _said_of(systems: Sequence[AnsweredRow], kind: str, judge: str) -> list[Shares]:
    return [shares for each in systems if (shares := each.shares.get((kind, judge)))]


def _over_sources(shares: Sequence[Shares]) -> Estimate:
    both = sorted(set.intersection(*(set(each) for each in shares)))
    return crossed_mean([[each[source] for source in both] for each in shares]) if both else NOTHING


def _over_trainings(told: Sequence[Estimate]) -> Estimate:
    return told[0] if len(told) == 1 else over_runs([each.value for each in told])


def _side_by_side(
    trained: Sequence[AnsweredRow], others: Sequence[AnsweredRow], key: tuple[str, str], is_start: bool
) -> list[tuple[Shares, Shares]]:
    sides = [(one, other) for one in trained for other in others if one.shares.get(key) and other.shares.get(key)]
    together = [one.start == other.start if is_start else one.number == other.number for one, other in sides]
    return [(one.shares[key], other.shares[key]) for one, other in compress(sides, together)]


def _difference(pairs: Sequence[tuple[Shares, Shares]]) -> Estimate:
    both = sorted(set.intersection(*(set(each) for pair in pairs for each in pair)))
    if not both:
        return NOTHING
    return crossed_difference(*([[each[source] for source in both] for each in side] for side in zip(*pairs, strict=True)))


def _share_of(estimate: Estimate) -> str:
    return f"{_share(estimate.value)} {interval(estimate, _share)}".rstrip()


def _compared(metrics: Metrics, rows: str, judge: str) -> str:
    """AdverSuc and machine-vs-random of a training less a control's."""
    told = [metrics.get(f"{rows}.{kind}-{judge}", NOTHING) for kind in (ADVERSUC, RANDOM)]
    return BETWEEN.join(map(_starred, told)) if told[0].n else ABSENT


def _starred(estimate: Estimate) -> str:
    if not estimate.n:
        return ABSENT
    certain = estimate.low > 0 or estimate.high < 0
    return f"{signed(estimate.value)}{'*' * certain} {interval(estimate, signed)}".rstrip()


def _told(kind: str, estimate: Estimate) -> str:
    return _starred(estimate) if kind == ABOVE else _plain(kind, estimate.value)


def _plain(kind: str, value: float) -> str:
    places: Callable[[float], str] = {PERPLEXITY: _rounded, ROUND: _rounded, WORDS: figure}.get(kind, _share)
    return places(value) if math.isfinite(value) else ABSENT


def _rounded(value: float) -> str:
    return f"{value:.1f}"


def signed(value: float) -> str:
    """Such as "+0.120"."""
    return f"{value:+.3f}"


def _share(value: float) -> str:
    return f"{value:.3f}" if math.isfinite(value) else ABSENT


def conclusions(metrics: Metrics, judge: str, unreliable: Collection[str] = ()) -> list[str]:
    """Compare trainings with each control and with their start, in sentences; the table has figures and intervals.

    Args:
        metrics: those of `table_metrics`.
        judge: whose verdicts count.
        unreliable: rows on which it was no better than a constant, by its evaluator reliability error.
    """
    told, compared = dict[str, list[str]](), dict[str, None]()
    for method, title in METHODS.items():
        said = dict[str, list[str]]()
        for other, name in (CONTROLS | {"greedy": "the start"}).items():
            less, random = (metrics.get(f"{method}{LESS}{other}.{kind}-{judge}", NOTHING) for kind in (ADVERSUC, RANDOM))
            if less.n:
                said.setdefault(_verb(less, random), []).append(name)
                compared |= dict.fromkeys((method, other))
        if said:
            outcome = "; ".join(f"{verb} {', '.join(others)}" for verb, others in said.items())
            told.setdefault(outcome, []).append(title)
    found = [f"{' / '.join(titles)}: {outcome}." for outcome, titles in told.items()]
    if doubtful := [row_title(row) for row in compared if row in unreliable]:
        of = "any of these" if len(doubtful) == len(compared) else "; ".join(doubtful)
        found.append(f"{judge} is a judge no better than a constant (ERE) of {of}: do not lean on it.")
    return found


def placements(metrics: Metrics) -> list[str]:
    """Compare the replies of each training with those of the start at several temperatures, in sentences.

    Nothing where these are no curve, because fewer than two rows of the start were measured.
    """
    measured = {name.rpartition(".")[0] for name in metrics if name.endswith(f".{DISTINCT_2}")}
    if sum(map(is_of_curve, measured)) < 2:
        return []
    rows = [row for method in METHODS for row in (method, method + SAMPLED) if f"{row}.{DISTINCT_2}" in metrics]
    placed = {row: metrics.get(f"{row}.{ABOVE}", NOTHING) for row in rows}
    found = [f"{row_title(row)} {_place(above)}." for row, above in placed.items() if above.n]
    if beyond := [row_title(row) for row, above in placed.items() if not above.n]:
        found.append(f"More or less various than the start at any temperature that was measured: {'; '.join(beyond)}.")
    return found


def _verb(less: Estimate, random: Estimate) -> str:
    if less.low > 0:
        return "deceives more often, and is nearer to random replies, than" if random.high < 0 else "beats"
    return "does worse than" if less.high < 0 else "cannot be told from"


def _place(above: Estimate) -> str:
    where = "above" if above.low > 0 else "below" if above.high < 0 else "on"
    figures = f"{above.value:+.3f} {interval(above, signed)}".rstrip()
    return f"lies {where} the start's temperature curve ({figures} nats a word at equal distinct-2)"
