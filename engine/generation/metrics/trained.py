"""Metrics, tables and conclusions of generator trainings beside their controls (Li et al. 2017, table 3).

    ROW.FIGURE                     of the replies of a row
    ROW.FIGURE-JUDGE               what a judge says of them
    METHOD less ROW.FIGURE-JUDGE   AdverSuc, and machine-vs-random, of a training less that of a control, on the same sources
    ROW.ere-JUDGE                  how far a judge, or the constant one, is from gold where the answer is known (table 2)

A row has one system for each training, or for each generator that was started from. Intervals are over these, over sources
(`crossed_mean`, every source with equal weight) and over fits of the judges; of the replies themselves over systems alone,
where there are several. A source that a system answers without a word counts as recognised, by every judge.

The start, greedy and sampled at several temperatures, is a curve of quality by diversity. `ABOVE` is how far a row lies above
it: nats a word by which its replies are likelier, under the language model, than those of the start at equal distinct-2, along
straight lines between neighbouring points. A row that is more or less various than the whole curve has none.

The metrics of one training follow: diversity and rewards of the replies of a step, which reveal a generator that says the same
to everybody.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import compress, pairwise
from typing import Any

import numpy as np

from parley.engine.core.stats.known import BEFORE, EXPLOITABILITY, HIGHER, LOWER, LanguageWatch
from parley.engine.core.stats.pairs import ItemFigures, ItemMetrics, Sample, group_estimate, paired_estimate
from parley.engine.core.stats.statistics import (
    NEITHER,
    NOTHING,
    REPLIES,
    Estimate,
    Metric,
    Row,
    count,
    distinct,
    mean,
    mean_count,
    perplexity,
    refit_spread,
    repeated,
)
from parley.engine.core.stats.trainings import crossed_difference, over_runs
from parley.engine.core.tables.table import (
    ABSENT,
    BETWEEN,
    PUBLISHED,
    STAR,
    THOUSANDTHS,
    Column,
    EstimateTable,
    Form,
    MarkedEstimate,
    TableCell,
    TableRow,
    interval,
    metric_table,
    published_cell,
)
from parley.engine.generation.metrics.adversarial import ADVERSUC, ERE, MATCHED, NUM_FOLDS, RANDOM
from parley.engine.generation.metrics.adversarial import CONSTANT as CONSTANT_JUDGE
from parley.engine.generation.metrics.tables import INLINE, RELIABILITY, overlap, printed_figures, self_bleu

WORDS, DISTINCT, DISTINCT_2, COMMONEST, REPETITION = "reply_words", "distinct_1", "distinct_2", "commonest_share", "repetition"
"""As `parley.engine.core.stats.statistics` calls them, whose figures have intervals."""
ADVANTAGE = "advantage"
"""Size of reward less baseline, mean over words: nothing is learned where it is 0, as where all replies earn the same."""


def variety(replies: Sequence[Sequence[int] | np.ndarray]) -> dict[str, float]:
    """Return the mean words of a reply, its repeated 4-grams, distinct-1 and -2, and the share of the commonest reply.

    Args:
        replies: word ids of each, one reply at least.
    """
    words_of = [tuple(map(str, reply)) for reply in replies]
    again = [repeated(words) for words in words_of]
    return {
        WORDS: float(np.mean([len(words) for words in words_of])),
        REPETITION: sum(num for num, _ in again) / max(1, sum(grams for _, grams in again)),
        DISTINCT: distinct(words_of, 1).value,
        DISTINCT_2: distinct(words_of, 2).value,
        COMMONEST: max(Counter(words_of).values()) / len(words_of),
    }


GAIN, PICKED, NATS = "adversuc_gain", "picked_round", "validation_nll"
DROP, DROP_BEYOND_CONTROL = "exploitability_drop", "exploitability_drop_beyond_control"
AS_CONTROL = "_control"
_KNOWN = {
    **{
        f"{EXPLOITABILITY}{ending}": Metric(
            f"best known discriminator{when}",
            "lower: generator",
            "share of test replies, recorded and the generator's, that it tells right; chosen on the validation split",
            main=True,
        )
        for ending, when in (("", ""), (BEFORE, ", at the start"), (AS_CONTROL, ", control"))
    },
    DROP: Metric("exploitability lost", HIGHER, "what the best tells right of the start less what the best does of the result"),
    DROP_BEYOND_CONTROL: Metric("  more than by training alone", HIGHER, "the control's less the result's, same contexts"),
    f"test_{ADVERSUC}{AS_CONTROL}": Metric("AdverSuc, control", HIGHER, "of the start, trained as long with constant rewards"),
}
"""The metrics of known discriminators, and of the control."""
WATCH = LanguageWatch(plain=NATS, lower=True, repetition=REPETITION)
"""A generator that foretells people's replies much worse, or repeats itself, is no result."""
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
"""Figures of the first and of the last steps."""
AGAINST_DISCRIMINATOR = {
    name + suffix: metric._replace(title=metric.title + when)
    for name, metric in _SAID.items()
    for suffix, when in (("", ""), (BEFORE, ", at the start"))
} | {
    **{name: metric for name, metric in REPLIES.items() if name.startswith("recorded")},
    GAIN: Metric("AdverSuc gained", HIGHER, "AdverSuc less that at the start, by the same judges, same contexts", main=True),
    **_KNOWN,
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
    """Return the figures of `STEPS` over the first and the last tenth of the updates that have them.

    Args:
        updates: figures of all updates, in their order.
    """
    figures: dict[str, Estimate] = {}
    for name in STEPS:
        if values := [update[name] for update in updates if name in update]:
            tenth = max(1, len(values) // 10)
            figures |= {name: mean(values[-tenth:]), f"{name}{BEFORE}": mean(values[:tenth])}
    return figures


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
FORCED, FORCED_HALF, FORCED_EARLY = "forced", "forced-half", "forced-early"
CONSTANT, SHUFFLED, LENGTH, FROZEN = "constant", "shuffled", "length", "frozen"
CONTROLS = {
    FORCED: "teacher forcing alone",
    FORCED_HALF: "teacher forcing alone, as many likelihood steps",
    FORCED_EARLY: "teacher forcing alone, stopped by likelihood",
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
"""The reliability of a judge in evaluations of a row."""
QUALITY = {
    WORDS: Metric("words", _LIKE_PEOPLE, "words of a reply in the mean"),
    PERPLEXITY: Metric("perplexity", _LIKE_PEOPLE, "under a language model that no training saw, </s> counted", main=True),
    DISTINCT: Metric("distinct-1", _LIKE_PEOPLE, "different words over all words (Li et al. 2016a)"),
    DISTINCT_2: Metric("distinct-2", _LIKE_PEOPLE, "different pairs of neighbouring words over all", main=True),
    SELF_BLEU: Metric("self-BLEU", _LIKE_PEOPLE, "BLEU of each reply against all others (Zhu et al. 2018), mean"),
    OVERLAP: Metric("overlap", HIGHER, "of histograms of vectors with people's, as MAUVE; 1: equal"),
    ABOVE: Metric("above the temperature curve", HIGHER, "nats a word, likelier than the start at equal distinct-2", "number"),
    EMPTY: Metric("replies without a word", "lower: better", "share of contexts; every judge tells them", "share"),
    NATS: Metric("nats", "lower: better", "of a word of people's replies, validation split, under the generator", "number"),
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
    "out; none beyond the temperatures measured. Replies without a word count as recognised. Round: that of the checkpoint. "
    "Teacher forcing alone: as many updates as a training with rewards, or as many likelihood steps, or the round of least "
    "nats; nats above the start's are overfitting. "
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
_SPREAD = refit_spread(NUM_FOLDS)
"""Of the judges' figures: evaluations of rows fit judges in as many folds."""
_VALUE = Form(places=3, bounded=False)
_FORMS = {WORDS: Form(bounded=False), PERPLEXITY: Form(places=1, bounded=False), ROUND: Form(places=1, bounded=False)}

Metrics = Mapping[str, Estimate]
Shares = Mapping[str, float]
"""Shares of a judge's verdicts by source."""


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
        sources: (N,) their names; replies to one source are one unit.
        vectors_NE: one for each.
    """

    words: Sequence[Sequence[str]]
    nats: np.ndarray
    sources: Sequence[str]
    vectors_NE: np.ndarray


def row_title(row: str) -> str:
    """Return the title of a row in tables."""
    if LESS in row:
        return " less ".join(map(row_title, row.split(LESS)))
    if row.startswith(AT):
        return f"the start, sampled at {row.removeprefix(AT)}"
    titles = {**DECODED, **TRAINED, PEOPLE: PEOPLE}
    return titles[row.removesuffix(SAMPLED)] + ", sampled" * row.endswith(SAMPLED)


def is_of_curve(row: str) -> bool:
    """Return whether the curve of quality by diversity is drawn through a row."""
    return row in ("greedy", "sample") or row.startswith(AT)


def describe(name: str) -> Metric:
    """Return the title and definition of a metric."""
    row, _, kind = name.rpartition(".")
    if kind in QUALITY:
        metric = QUALITY[kind]
        return metric._replace(title=f"{metric.title}, {row_title(row)}", main=False)
    kind, _, judge = kind.partition("-")
    metric = RELIABLE if kind == ERE else JUDGED[kind]
    if LESS in row:
        metric = metric._replace(form="number")
    return metric._replace(title=f"{metric.title}, {row_title(row)}, {judge}", main=metric.main and LESS in row)


def _judged_figures(rows: Sequence[Row], config: Mapping[str, Any]) -> dict[str, ItemFigures]:
    return ItemFigures.by_name(
        [{name: (share, 1.0) for name, share in row["shares"].items()} for row in rows], "share", _SPREAD
    )


JUDGED_ITEMS = ItemMetrics("sources", _judged_figures, lambda name: describe(name)._replace(main=f".{ADVERSUC}-" in name))
"""Figures of single sources, from the judged shares of each by metric."""


def reply_figures(replies: ReadReplies, recorded: ReadReplies, seed: int) -> dict[str, Estimate]:
    """Return the figures of replies themselves.

    Args:
        replies: the replies.
        recorded: people's.
        seed: of clusterings.
    """
    num = len(replies.words)
    lengths = [len(words) for words in replies.words]
    return {
        WORDS: mean_count(lengths, replies.sources),
        PERPLEXITY: perplexity("replies", replies.nats, np.add(lengths, 1), replies.sources),
        DISTINCT: distinct(replies.words, 1),
        DISTINCT_2: distinct(replies.words, 2),
        SELF_BLEU: count(float(self_bleu(replies.words).mean()), num),
        OVERLAP: count(overlap(replies.vectors_NE, recorded.vectors_NE, seed), num),
    }


def table_metrics(rows: Mapping[str, Sequence[AnsweredRow]], judges: Sequence[str], recorded: Metrics) -> dict[str, Estimate]:
    """Return all figures, see the top of this module.

    Args:
        rows: the systems of each row, in the order of the trainings.
        judges: labels of the judges.
        recorded: figures of people's replies.
    """
    metrics: dict[str, Estimate] = {}
    curve = {row: systems for row, systems in rows.items() if is_of_curve(row)}
    for row, systems in rows.items():
        for kind in JUDGED:
            for judge in judges:
                if shares := [system.shares[kind, judge] for system in systems if system.shares.get((kind, judge))]:
                    metrics[f"{row}.{kind}-{judge}"] = _over_sources(shares)
        for kind in QUALITY:
            estimates = [system.figures[kind] for system in systems if kind in system.figures]
            if kind == ABOVE and row not in curve:
                points = [point for line in curve.values() for point in line]
                lines = [[point.figures for point in points if point.start == system.start] for system in systems]
                placed = [above_curve(system.figures, line) for system, line in zip(systems, lines, strict=True)]
                estimates = [system for system in placed if system.n]
            if estimates:
                metrics[f"{row}.{kind}"] = _over_trainings(estimates)
        for judge in (*judges, CONSTANT_JUDGE):
            if wrong := [system.errors[judge] for system in systems if judge in system.errors]:
                metrics[f"{row}.{ERE}-{judge}"] = _over_trainings(wrong)
    for method in METHODS:
        for control in ("greedy", BLIND, *CONTROLS):
            for judge in judges:
                for kind in (ADVERSUC, RANDOM):
                    if sides := _side_by_side(rows.get(method, ()), rows.get(control, ()), (kind, judge), control in DECODED):
                        metrics[f"{method}{LESS}{control}.{kind}-{judge}"] = _difference(sides)
    return metrics | {f"{PEOPLE}.{name}": system for name, system in recorded.items()}


def above_curve(figures: Metrics, curve: Sequence[Metrics]) -> Estimate:
    """Return the height of replies above the curve of quality by diversity, in nats per word.

    Args:
        figures: of the replies.
        curve: of those that the curve is drawn through.

    Returns:
        The distance with its interval, in which distinct-2 is taken as it is; nothing beyond the curve.
    """
    points = sorted((point[DISTINCT_2].value, *_log(point[PERPLEXITY])) for point in curve if DISTINCT_2 in point)
    if DISTINCT_2 not in figures:
        return NOTHING
    at, (nats, width) = figures[DISTINCT_2].value, _log(figures[PERPLEXITY])
    for (left, below, left_width), (right, above, right_width) in pairwise(points):
        if left <= at <= right and left < right:
            share = (at - left) / (right - left)
            distance = (1 - share) * below + share * above - nats
            # The widths of three independent figures.
            spread = math.hypot(width, (1 - share) * left_width, share * right_width)
            return Estimate(distance, distance - spread, distance + spread, figures[PERPLEXITY].n)
    return NOTHING


def _log(perplexity: Estimate) -> tuple[float, float]:
    return math.log(perplexity.value), (math.log(perplexity.high) - math.log(perplexity.low)) / 2


def trained_tables(metrics: Metrics, judges: Sequence[str], published: bool = False) -> dict[str, EstimateTable]:
    """Return a table of all rows by the first judge, one of differences per judge, one of the judges.

    Args:
        metrics: those of `table_metrics`.
        judges: labels of the judges.
        published: whether to add the figures of tables 2 and 3.
    """
    names = list(dict.fromkeys(name.rpartition(".")[0] for name in metrics))
    shown = [name for name in names if LESS not in name]
    printed = printed_figures() if published else {}
    columns = [
        Column(title, f"{{row}}.{kind}-{judges[0]}", form)
        for title, kind, form in (
            ("AdverSuc", ADVERSUC, INLINE),
            ("against random", RANDOM, _VALUE),
            ("matched", MATCHED, _VALUE),
        )
    ]
    for kind in QUALITY:
        if any(f"{row}.{kind}" in metrics for row in shown):
            special = partial(_above_cell, kind) if kind == ABOVE else None
            columns.append(Column(QUALITY[kind].title, f"{{row}}.{kind}", _FORMS.get(kind, _VALUE), cell=special))
    rows = []
    for row in shown:
        pair = printed.get("table 3", {}).get(_PUBLISHED_AS.get(row, ""), {}).values()
        num = metrics.get(f"{row}.{ADVERSUC}-{judges[0]}", NOTHING).n
        cells = {PUBLISHED: BETWEEN.join(map(THOUSANDTHS.value, pair)) or ABSENT, "n": f"{num:,}" if num else ABSENT}
        rows.append(TableRow(row_title(row), {"row": row}, cells=cells))
    note = _NOTE.format(judge=judges[0]) + _NOTE_PUBLISHED * published
    columns += [Column(PUBLISHED)] * published
    tables = {TABLE: metric_table(metrics, "row", rows, columns, note, n="{row}")}
    compared = [name for name in names if LESS in name]
    methods, controls = (list(dict.fromkeys(name.split(LESS)[side] for name in compared)) for side in (0, 1))
    for judge in judges if compared else ():
        title = COMPARED if len(judges) == 1 else f"{COMPARED}, {judge}"
        against = [Column(row_title(control), cell=partial(_compared, control, judge)) for control in controls]
        trained = [TableRow(row_title(method), {"row": method}) for method in methods]
        tables[title] = metric_table(metrics, "less", trained, against, _NOTE_COMPARED.format(judge=judge))
    if lines := [*filter(None, (_reliability(metrics, shown, judge) for judge in (*judges, CONSTANT_JUDGE)))]:
        for name, figures in printed.get("table 2", {}).items():
            lines.append((f"{name}, published", published_cell(figures["ERE"], THOUSANDTHS), *[""] * 5))
        heads = ("judge", "ERE, mean", "lowest", "in the row", "highest", "in the row", "rows")
        tables[RELIABILITY] = EstimateTable(heads, tuple(lines), _NOTE_RELIABLE + _NOTE_PUBLISHED_ERE * published)
    return tables


def _reliability(metrics: Metrics, rows: Sequence[str], judge: str) -> tuple[str, ...]:
    """Return the line of a judge; empty without figures."""
    errors = {row: estimate for row in rows if (estimate := metrics.get(f"{row}.{ERE}-{judge}", NOTHING)).n}
    if not errors:
        return ()
    low, high = (choose(errors, key=lambda row: errors[row].value) for choose in (min, max))
    average = count(float(np.mean([error.value for error in errors.values()])), len(errors))
    cells = (_VALUE.cell(errors[low]), row_title(low), _VALUE.cell(errors[high]), row_title(high), f"{len(errors)}")
    return (judge + " (control)" * (judge == CONSTANT_JUDGE), _VALUE.cell(average), *cells)


def _over_sources(shares: Sequence[Shares]) -> Estimate:
    both = sorted(set.intersection(*(set(by_source) for by_source in shares)))
    return group_estimate(_samples(shares, both)) if both else NOTHING


def _samples(shares: Sequence[Shares], sources: Sequence[str]) -> list[Sample]:
    ones, units = np.ones(len(sources)), np.arange(len(sources))
    values = (np.array([by_source[source] for source in sources]) for by_source in shares)
    return [Sample(tops, ones, ones > 0, units, "share", _SPREAD) for tops in values]


def _over_trainings(estimates: Sequence[Estimate]) -> Estimate:
    return estimates[0] if len(estimates) == 1 else over_runs([estimate.value for estimate in estimates])


def _side_by_side(
    trained: Sequence[AnsweredRow], controls: Sequence[AnsweredRow], key: tuple[str, str], is_start: bool
) -> list[tuple[Shares, Shares]]:
    sides = [(left, right) for left in trained for right in controls if left.shares.get(key) and right.shares.get(key)]
    together = [left.start == right.start if is_start else left.number == right.number for left, right in sides]
    return [(left.shares[key], right.shares[key]) for left, right in compress(sides, together)]


def _difference(pairs: Sequence[tuple[Shares, Shares]]) -> Estimate:
    both = sorted(set.intersection(*(set(by_source) for pair in pairs for by_source in pair)))
    if not both:
        return NOTHING
    left, right = (_samples(side, both) for side in zip(*pairs, strict=True))
    if len(pairs) == 1:
        return paired_estimate(left[0], right[0]) or NOTHING
    return crossed_difference([sample.tops for sample in left], [sample.tops for sample in right], _SPREAD)


def _compared(control: str, judge: str, metrics: Metrics, row: TableRow) -> str:
    names = (f"{row.fields['row']}{LESS}{control}.{kind}-{judge}" for kind in (ADVERSUC, RANDOM))
    cells = [_starred(metrics.get(name, NOTHING)) for name in names]
    figures = (figure for cell in cells for figure in cell.figures)
    return ABSENT if cells[0] == ABSENT else TableCell(BETWEEN.join(cells), *figures)


def _above_cell(kind: str, metrics: Metrics, row: TableRow) -> str:
    return _starred(metrics.get(f"{row.fields['row']}.{kind}", NOTHING))


def _starred(difference: Estimate) -> TableCell:
    if not difference.n:
        return TableCell(ABSENT)
    mark = STAR * (difference.low > 0 or difference.high < 0)
    text = f"{signed(difference.value)}{mark} {interval(difference, signed)}".rstrip()
    return TableCell(text, MarkedEstimate(difference, mark))


def signed(value: float) -> str:
    """Format a number with its sign, such as "+0.120"."""
    return f"{value:+.3f}"


def conclusions(metrics: Metrics, judge: str, unreliable: Collection[str] = ()) -> list[str]:
    """Compare trainings with each control and with their start, in sentences; the table has figures and intervals.

    Args:
        metrics: those of `table_metrics`.
        judge: whose verdicts count.
        unreliable: rows on which it was no better than a constant, by its evaluator reliability error.
    """
    titles_of, compared = dict[str, list[str]](), dict[str, None]()
    for method, title in METHODS.items():
        names_of = dict[str, list[str]]()
        for control, name in (CONTROLS | {"greedy": "the start"}).items():
            less, random = (metrics.get(f"{method}{LESS}{control}.{kind}-{judge}", NOTHING) for kind in (ADVERSUC, RANDOM))
            if less.n:
                names_of.setdefault(_verb(less, random), []).append(name)
                compared |= dict.fromkeys((method, control))
        if names_of:
            outcome = "; ".join(f"{verb} {', '.join(controls)}" for verb, controls in names_of.items())
            titles_of.setdefault(outcome, []).append(title)
    sentences = [f"{' / '.join(titles)}: {outcome}." for outcome, titles in titles_of.items()]
    if doubtful := [row_title(row) for row in compared if row in unreliable]:
        of = "any of these" if len(doubtful) == len(compared) else "; ".join(doubtful)
        sentences.append(f"{judge} is a judge no better than a constant (ERE) of {of}: do not lean on it.")
    return sentences


def placements(metrics: Metrics) -> list[str]:
    """Compare the replies of each training with those of the start at several temperatures, in sentences.

    Nothing where these are no curve, because fewer than two rows of the start were measured.
    """
    measured = {name.rpartition(".")[0] for name in metrics if name.endswith(f".{DISTINCT_2}")}
    if sum(map(is_of_curve, measured)) < 2:
        return []
    rows = [row for method in METHODS for row in (method, method + SAMPLED) if f"{row}.{DISTINCT_2}" in metrics]
    placed = {row: metrics.get(f"{row}.{ABOVE}", NOTHING) for row in rows}
    sentences = [f"{row_title(row)} {_curve_position(above)}." for row, above in placed.items() if above.n]
    if beyond := [row_title(row) for row, above in placed.items() if not above.n]:
        sentences.append(f"More or less various than the start at any temperature that was measured: {'; '.join(beyond)}.")
    return sentences


def _verb(less: Estimate, random: Estimate) -> str:
    if less.low > 0:
        return "deceives more often, and is nearer to random replies, than" if random.high < 0 else "beats"
    return "does worse than" if less.high < 0 else "cannot be told from"


def _curve_position(above: Estimate) -> str:
    where = "above" if above.low > 0 else "below" if above.high < 0 else "on"
    figures = f"{above.value:+.3f} {interval(above, signed)}".rstrip()
    return f"lies {where} the start's temperature curve ({figures} nats a word at equal distinct-2)"
