"""Metrics, published figures and tables of an evaluation under perturbations (Niu & Bansal 2018, tables 1 to 4 and 9).

A line is a strategy; the line below it holds the published figures. Lines of models that were trained against several
strategies follow, one for the clean contexts and one for each strategy they met.

The F1 of Niu & Bansal cannot be compared with ours in size, only in its ups and downs: they answered the Ubuntu Dialogue
Corpus, whose replies were tagged by another tagger, and a constant answer scores above all of them
(`parley.engine.perturb.metrics.activity`).

The metrics are F1, change rates, similarities, and the effect of training. Source: Niu & Bansal 2018 (arXiv 1809.02079),
tables 2 to 4. A row is an example with its perturbed contexts and every model's replies
(`parley.engine.perturb.verbs.config.ROBUSTNESS`). Models are `BASE` and, for each adversarially trained one, what it was
trained against; it is asked about the clean context and about the contexts of those strategies.
  # Paper: significance by 100,000 bootstrap samples, whether paired is not said. Ours: paired over examples, two-sided.

Metrics are called KIND.MODEL.SITUATION, the situation being a strategy or `CLEAN`; F1 and shares are 0 to 1. Examples are the
independent units.

Table 9 compares two models that answer the same contexts: one reads words, the other pieces of words.
"""

from __future__ import annotations

import logging
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from parley.engine.core.stats.statistics import (
    NO_REPLY_METRICS,
    NOTHING,
    NUM_TEST_RESAMPLES,
    Estimate,
    Metric,
    PairedTest,
    clustered_rate,
    count,
    finished,
    is_no_reply,
    kinds_of_rows,
    mean,
    no_reply_metrics,
    no_reply_note,
    paired_bootstrap,
    rate,
    rate_difference,
)
from parley.engine.core.tables.table import ABSENT, FEW_MARK, EstimateTable, above, few_note, interval, num_measured, number
from parley.engine.perturb.metrics.activity import CEILING, CONSTANTS
from parley.envs.corpora.pairs.vocabulary import MARKS

Pair = tuple[float, float]
"""Activity F1 and entity F1, or similarity of contexts and of replies."""


@dataclass(frozen=True)
class Figures:
    """The published figures of a model.

    Args:
        title: what the paper calls the model.
        clean: F1 on clean contexts, in percent (table 1).
        attacked: F1 under each strategy before training against it (N-train, A-test of tables 2 and 3).
        trained: the same after training against it (A-train, A-test).
        trained_clean: F1 on clean contexts after that training (A-train, N-test).
        similarity: cosines of contexts and of replies, clean and perturbed (table 4).
    """

    title: str
    clean: Pair
    attacked: Mapping[str, Pair]
    trained: Mapping[str, Pair]
    trained_clean: Mapping[str, Pair]
    similarity: Mapping[str, Pair] = field(default_factory=dict)


NORMAL_INPUT: Mapping[str, Pair] = MappingProxyType(
    {
        "LSTM": (1.18, 0.87),
        "HRED": (4.34, 2.22),
        "VHRED": (4.63, 2.53),
        "VHRED with attention": (5.94, 3.52),
        "reranking RL": (5.67, 3.73),
    }
)
"""Table 1: F1 on clean contexts, by model."""

SUBWORDS: Mapping[str, Mapping[str, Pair]] = MappingProxyType(
    {
        "words": MappingProxyType({"clean": NORMAL_INPUT["VHRED with attention"], "grammar-errors": (5.60, 3.09)}),
        "pieces": MappingProxyType({"clean": (5.99, 3.66), "grammar-errors": (5.86, 3.54)}),
    }
)
"""Table 9: F1 of VHRED that reads words (20,000 types) and pieces (5,121), on clean and on perturbed contexts."""

_STRATEGIES = (
    "random-swap",
    "stopword-dropout",
    "data-paraphrase",
    "generative-paraphrase",
    "grammar-errors",
    "add-negation",
    "antonym",
)


def _by_strategy(*pairs: Pair | None, **others: Pair) -> Mapping[str, Pair]:
    listed = {name: pair for name, pair in zip(_STRATEGIES, pairs, strict=True) if pair is not None}
    return MappingProxyType({**listed, **{name.replace("_", "-"): pair for name, pair in others.items()}})


PUBLISHED: Mapping[str, Figures] = MappingProxyType(
    {
        "niu2018": Figures(
            title="VHRED with attention",
            clean=NORMAL_INPUT["VHRED with attention"],
            attacked=_by_strategy(
                (6.10, 3.42), (5.49, 3.44), (5.38, 3.18), (4.25, 2.48), (5.60, 3.09), (6.06, 3.42), (5.85, 3.56)
            ),
            trained=_by_strategy(
                (6.47, 3.64), (6.23, 3.82), (6.39, 3.83), (5.89, 3.60), (5.93, 3.67), (5.01, 3.12), (5.43, 3.43)
            ),
            trained_clean=_by_strategy(
                (6.42, 3.74),
                (6.29, 3.71),
                (6.32, 3.87),
                (6.11, 3.66),
                (6.05, 3.69),
                (6.07, 3.46),
                (5.98, 3.56),
                should_not_change=(6.74, 3.97),
            ),
            similarity=_by_strategy(
                (1.00, 0.71), (0.61, 0.50), (0.96, 0.58), (0.70, 0.40), (0.96, 0.58), (0.96, 0.69), (0.98, 0.66)
            ),
        ),
        "niu2018-rl": Figures(
            title="reranking RL",
            clean=NORMAL_INPUT["reranking RL"],
            attacked=_by_strategy(
                (5.49, 3.56), (5.51, 4.09), (5.28, 3.07), (4.47, 2.63), (5.33, 3.25), (5.61, 3.79), (5.68, 3.70)
            ),
            trained=_by_strategy((6.20, 4.28), None, (5.53, 3.69), (5.30, 3.35), (5.55, 3.92), (4.92, 2.78), (5.30, 2.95)),
            trained_clean=_by_strategy(
                (6.36, 4.39), None, (5.79, 3.87), (5.86, 3.90), (5.93, 4.04), (6.10, 3.93), (5.80, 3.71)
            ),
            similarity=_by_strategy(
                (1.00, 0.86), (0.76, 0.68), (0.96, 0.74), (0.76, 0.55), (0.97, 0.74), (0.97, 0.81), (0.98, 0.74)
            ),
        ),
    }
)
"""By the name under which a user asks for them."""


logger = logging.getLogger(__name__)

Row = Mapping[str, Any]
"""One example, keyed by the columns of `parley.engine.perturb.verbs.config.ROBUSTNESS`."""
Reply = Mapping[str, Any]
"""One entry of the column `replies`."""

BASE = "base"
"""The model that perturbations were made for, before any training against them."""
BESIDE = "beside"
"""A model of another kind that answers the same contexts."""
CONTROL = "none"
"""A model that was trained as long on contexts as they are."""
CLEAN = "clean"
"""The situation of a context that was not perturbed; rows have "" as its strategy."""
PERTURBED_SHARE = "perturbed_share"
CHANGE_RATE, TOUCHED_CHANGE_RATE = "change_rate", "change_rate_touched"
DIFFERENT = "different_replies"
ACTIVITY, ENTITY = "activity_f1", "entity_f1"
CONTEXT_SIMILARITY, REPLY_SIMILARITY, BLEU = "context_similarity", "reply_similarity", "bleu"
GAIN, P_VALUE = "_gain", "_p"
"""What follows a kind in the name of another model's figure less the base's, and of the p-value of that difference."""
LOSS, LOSS_P = "_loss", "_loss_p"
"""The same of a model's figure behind perturbed contexts less its own behind clean ones."""
UNKNOWN_SHARE = "unknown_share"
NO_REPLY_SHARE = "no_reply_share"

_BETTER = "higher: better, but under should-change lower"
_EITHER = "lower under should-not-change, higher under should-change: better"
_F1_OVER = "mean over the examples whose true reply has an activity in every utterance"
_KINDS: dict[str, Metric] = {
    PERTURBED_SHARE: Metric("perturbed", "", "share of all contexts in which something was changed", "share"),
    CHANGE_RATE: Metric("changed replies", _EITHER, "share of replies unlike the same model's clean one", "share", main=True),
    TOUCHED_CHANGE_RATE: Metric(
        "changed replies, touched contexts", _EITHER, "the same over the contexts in which something was changed", "share"
    ),
    DIFFERENT: Metric("different replies", "", "to contexts as they are; few: it hardly reads them", "count", main=True),
    ACTIVITY: Metric("activity F1", _BETTER, f"{_F1_OVER}, 0 to 1", "rate", main=True),
    ENTITY: Metric("entity F1", _BETTER, f"{_F1_OVER}, 0 to 1; 0 where it has no entity", "rate", main=True),
    CONTEXT_SIMILARITY: Metric("similarity of contexts", "", "cosine of the model's mean embeddings, mean over contexts"),
    REPLY_SIMILARITY: Metric("similarity of replies", "", "cosine of the model's mean embeddings, mean over replies"),
    BLEU: Metric("BLEU of replies", "", "of the reply against the same model's clean one, 0 to 1, mean over replies", "rate"),
    ACTIVITY + GAIN: Metric("gain of activity F1", "", "it minus base on the same contexts, mean over examples"),
    ENTITY + GAIN: Metric("gain of entity F1", "", "it minus base on the same contexts, mean over examples"),
    ACTIVITY + P_VALUE: Metric("p of the gain of activity F1", "", "paired bootstrap, two-sided"),
    ENTITY + P_VALUE: Metric("p of the gain of entity F1", "", "paired bootstrap, two-sided"),
    **{
        kind + suffix: Metric(f"{title} of {name} F1", "", meaning)
        for kind, name in ((ACTIVITY, "activity"), (ENTITY, "entity"))
        for suffix, title, meaning in (
            (LOSS, "change", "behind perturbed contexts minus clean ones, the same model, mean over examples"),
            (LOSS_P, "p of the change", "paired bootstrap, two-sided"),
        )
    },
    UNKNOWN_SHARE: Metric(
        "contexts with unknown words", "", "share where the base reads <unk>: in perturbed ones, for a new word", "share"
    ),
    NO_REPLY_SHARE: Metric(
        "answers without a reply", "", "share of contexts; with no reply nothing is compared, nor has it an F1", "share"
    ),
    CHANGE_RATE + GAIN: Metric("changed replies, less base", _EITHER, "on the same contexts, mean over examples"),
    CHANGE_RATE + P_VALUE: Metric("p of the difference of changed replies", "", "paired bootstrap, two-sided"),
}
_REFERENCES = {
    **dict.fromkeys(CONSTANTS, "of a constant answer"),
    CEILING: "of the true replies themselves: the most that can be reached",
}


def describe(name: str) -> Metric:
    """Return the title and definition of a metric of this module or of `activity.reference_metrics`."""
    if name in NO_REPLY_METRICS:
        return NO_REPLY_METRICS[name]
    kind, _, rest = name.partition(".")
    metric = _KINDS[kind]
    if rest in _REFERENCES:
        return metric._replace(
            title=f"{metric.title}, {rest}", definition=f"{_REFERENCES[rest]}; {metric.definition}", main=False
        )
    return metric._replace(title=f"{metric.title}, {rest.replace('.', ', ')}")


def base_metrics(strategies: Sequence[str]) -> list[str]:
    """The names of all metrics of the base under some strategies; those of F1 are there only where it can be scored."""
    kinds = (CHANGE_RATE, TOUCHED_CHANGE_RATE, CONTEXT_SIMILARITY, REPLY_SIMILARITY, BLEU)
    of_strategies = [f"{kind}.{BASE}.{name}" for name in strategies for kind in kinds]
    f1 = [f"{kind}.{BASE}.{name}" for name in (CLEAN, *strategies) for kind in (ACTIVITY, ENTITY)]
    return [*(f"{PERTURBED_SHARE}.{name}" for name in strategies), f"{DIFFERENT}.{BASE}.{CLEAN}", *of_strategies, *f1]


def robustness_metrics(rows: Sequence[Row], num_resamples: int = NUM_TEST_RESAMPLES) -> dict[str, Estimate]:
    """All metrics of some rows; kinds for which no row has a number are left out.

    Args:
        rows: those with status "error" are left out with a warning.
        num_resamples: of the significance tests.
    """
    examples = finished(rows)
    if len(examples) < len(rows):
        logger.warning("%d of %d examples failed and are left out of the metrics", len(rows) - len(examples), len(rows))
    touched = _touched(examples)
    metrics = {f"{PERTURBED_SHARE}.{name}": rate(sum(marks), len(marks)) for name, marks in touched.items()}
    replies = _replies(examples)
    for (model, strategy), strategy_replies in replies.items():
        where = f"{model}.{strategy or CLEAN}"
        if strategy:
            # Nothing is compared where either answer is no reply.
            unlike = [None if reply["same"] is None else not reply["same"] for reply in strategy_replies]
            compared = [changed for changed in unlike if changed is not None]
            metrics[f"{CHANGE_RATE}.{where}"] = rate(sum(compared), len(compared))
            of_touched = [
                changed for changed, mark in zip(unlike, touched[strategy], strict=True) if mark and changed is not None
            ]
            metrics[f"{TOUCHED_CHANGE_RATE}.{where}"] = rate(sum(of_touched), len(of_touched))
        else:
            replied = [reply["reply"] for reply in strategy_replies if not is_no_reply(reply)]
            metrics[f"{DIFFERENT}.{where}"] = count(len(set(replied)), len(replied))
        if without := sum(map(is_no_reply, strategy_replies)):
            metrics[f"{NO_REPLY_SHARE}.{where}"] = rate(without, len(strategy_replies))
        for kind in (ACTIVITY, ENTITY, CONTEXT_SIMILARITY, REPLY_SIMILARITY, BLEU):
            if numbers := [reply[kind] for reply in strategy_replies if reply[kind] is not None]:
                metrics[f"{kind}.{where}"] = clustered_rate(numbers) if kind in (ACTIVITY, ENTITY) else mean(numbers)
        if model != BASE:
            for kind in (ACTIVITY, ENTITY, CHANGE_RATE):
                if test := _gain(strategy_replies, replies[BASE, strategy], kind, num_resamples):
                    metrics[f"{kind}{GAIN}.{where}"] = test.difference
                    metrics[f"{kind}{P_VALUE}.{where}"] = count(test.p_value, test.difference.n)
        if strategy and model in (BASE, BESIDE) and (BESIDE, "") in replies:
            for kind in (ACTIVITY, ENTITY):
                if test := _gain(strategy_replies, replies[model, ""], kind, num_resamples):
                    metrics[f"{kind}{LOSS}.{where}"] = test.difference
                    metrics[f"{kind}{LOSS_P}.{where}"] = count(test.p_value, test.difference.n)
    if any(reply.get("kind") for strategy_replies in replies.values() for reply in strategy_replies):
        kinds = [sum(kinds_of_rows(row["replies"]), Counter[str]()) for row in examples]
        metrics |= no_reply_metrics(kinds, [len(row["replies"]) for row in examples])
    return metrics


def unknown_shares(rows: Sequence[Row], known: Container[str]) -> dict[str, Estimate]:
    """In how many contexts the base reads `<unk>`, by situation; of perturbed ones, for words that the clean one has not.

    Args:
        rows: as in `robustness_metrics`.
        known: words of the base; marks of turns are none.
    """
    marks: defaultdict[str, list[bool]] = defaultdict(list)
    for row in finished(rows):
        clean = Counter(row["context"].split())
        came_in = {made["strategy"]: Counter(made["text"].split()) - clean for made in row["perturbations"]}
        for situation, words in ({CLEAN: clean} | came_in).items():
            marks[situation].append(any(word not in known and word not in MARKS for word in words))
    return {f"{UNKNOWN_SHARE}.{BASE}.{situation}": rate(sum(each), len(each)) for situation, each in marks.items()}


def _gain(after: Sequence[Reply], before: Sequence[Reply], kind: str, num_resamples: int) -> PairedTest | None:
    """The test of replies against others to the same examples; none where nothing was scored."""
    both = [(_number(now, kind), _number(then, kind)) for now, then in zip(after, before, strict=True)]
    scored = np.array([pair for pair in both if None not in pair])
    if not len(scored):
        return None
    tested = paired_bootstrap(scored[:, 0], scored[:, 1], num_resamples)
    return PairedTest(rate_difference(scored[:, 0], scored[:, 1]), tested.p_value)


def _number(reply: Reply, kind: str) -> float | None:
    """A reply's part in a mean; none where it has none."""
    number: float | None = reply[kind] if kind != CHANGE_RATE else reply["same"]
    return number if kind != CHANGE_RATE or number is None else 1.0 - number


def _touched(examples: Sequence[Row]) -> dict[str, list[bool]]:
    """Return whether each context was changed, by strategy."""
    marks: defaultdict[str, list[bool]] = defaultdict(list)
    for row in examples:
        for made in row["perturbations"]:
            marks[made["strategy"]].append(bool(made["changed"]))
    return dict(marks)


def _replies(examples: Sequence[Row]) -> dict[tuple[str, str], list[Reply]]:
    """The replies to all examples, by model and strategy; all of them in the order of the examples."""
    replies: defaultdict[tuple[str, str], list[Reply]] = defaultdict(list)
    for row in examples:
        for reply in row["replies"]:
            replies[reply["model"], reply["strategy"]].append(reply)
    return dict(replies)


SIGNIFICANT = 0.05
"""A star stands where the p-value is below this."""

Metrics = Mapping[str, Estimate]

_PUBLISHED = "published"
_SCORES = ("activity", "entity")
_NOTE_2 = (
    "F1 in percent, brackets: 95 % intervals. N-train: the model as it is; A-train: after training against the strategy (or "
    "against those of the group). A-test: contexts perturbed by the strategy; N-test: clean ones. Star: p < 0.05, paired "
    "bootstrap over examples, two-sided, not corrected for their number; A-train/A-test against N-train/A-test, "
    "A-train/N-test against N-train on clean contexts (normal input). Constant answers ignore the context; the true replies "
    "against themselves are the most that can be reached. n: examples whose true reply has an activity in every utterance."
)
_NOTE_2_PUBLISHED = (
    " Published: Niu & Bansal 2018, {title}, on another corpus with another tagger: "
    "sizes cannot be compared, ups and downs can."
)
_NOTE_4 = (
    "Cosine similarity of the mean embeddings (the model's own) of clean and perturbed contexts, and of the model's replies to "
    "them; BLEU of the two replies. Changed replies: share unlike the reply to the clean context, of all examples and of "
    "those whose context was touched; touched: share of contexts in which something was changed. Brackets: 95 % intervals. "
    "Star: p < 0.05 against the untrained model on the same contexts, paired bootstrap over examples, two-sided, not corrected "
    "for their number."
)
_NOTE_4_PUBLISHED = " Published: Niu & Bansal 2018, {title}."
_NOTE_CONTROL = f" Lines of {CONTROL}: the control, trained as long on contexts as they are."


def table_2(metrics: Metrics, published: str | None = None) -> EstimateTable:
    """F1 before and after training against the strategies (tables 2 and 3).

    Args:
        metrics: those of `robustness_metrics`, and of `reference_metrics` where there are some.
        published: which figures to put beside them, a key of `PUBLISHED`; None for none.

    Returns:
        The table; without any row where no reply was scored.
    """
    columns = [f"{title} {score}" for title in ("N-train/A-test", "A-train/A-test", "A-train/N-test") for score in _SCORES]
    known = PUBLISHED[published] if published else None
    rows: list[tuple[str, ...]] = []
    if f"{ACTIVITY}.{BASE}.{CLEAN}" in metrics:
        rows += _clean_rows(metrics, known)
        for name in strategies(metrics):
            cells = (*_f1(metrics, BASE, name), *_f1(metrics, name, name), *_f1(metrics, name, CLEAN))
            rows.append((name, *cells, _num(metrics, f"{ACTIVITY}.{BASE}.{name}")))
            rows += _published(known, name, lambda figures: (figures.attacked, figures.trained, figures.trained_clean))
        for group in _groups(metrics):
            rows.append((group, *_nothing(4), *_f1(metrics, group, CLEAN), _num(metrics, f"{ACTIVITY}.{group}.{CLEAN}")))
            rows += _published(known, group, lambda figures: ({}, {}, figures.trained_clean))
            for name in strategies(metrics):
                if (met := f"{ACTIVITY}.{group}.{name}") in metrics:
                    cells = (*_f1(metrics, BASE, name), *_f1(metrics, group, name), *_nothing(2))
                    rows.append((f"{group}, {name}", *cells, _num(metrics, met)))
    note = _NOTE_2 + (_NOTE_2_PUBLISHED.format(title=known.title) if known else "") + _of_control(metrics)
    return _table(("strategy", *columns, "n"), rows, note)


def table_4(metrics: Metrics, published: str | None = None) -> EstimateTable:
    """Return table 4: how far contexts and replies move, and how often replies change.

    Args:
        metrics: as in `table_2`.
        published: as in `table_2`.

    Returns:
        The table: lines of the base model, then of the trained ones under the strategies they met.
    """
    known = PUBLISHED[published] if published else None
    rows: list[tuple[str, ...]] = []
    columns = dict(_LIKENESS)
    if not any(name.startswith(f"{NO_REPLY_SHARE}.") for name in metrics):
        del columns[_NO_REPLY]
    for model in (BASE, BESIDE, *trained_models(metrics)):
        for name in strategies(metrics):
            if f"{CHANGE_RATE}.{model}.{name}" not in metrics:
                continue
            title = f"{model} trained, {name}" if model != name else f"{name} trained"
            if model in (BASE, BESIDE):
                title = name if model == BASE else f"{model}, {name}"
            rows.append((title, *(show(metrics, model, name) for show in columns.values())))
            if model == BASE and known and name in known.similarity:
                pair = [f"{value:.2f}" for value in known.similarity[name]]
                rows.append((_PUBLISHED, *pair, *_nothing(len(columns) - 3), ""))
    note = _NOTE_4 + (_NOTE_4_PUBLISHED.format(title=known.title) if known else "") + _of_control(metrics)
    return _table(("strategy", *columns), rows, note + no_reply_note(metrics, "chat.max_tokens", rates=_LEFT_OUT))


def _of_control(metrics: Metrics) -> str:
    return _NOTE_CONTROL if CONTROL in trained_models(metrics) else ""


def _table(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]], note: str) -> EstimateTable:
    return EstimateTable(columns, tuple(rows), note + few_note("examples") * any(row[-1].endswith(FEW_MARK) for row in rows))


def strategies(metrics: Metrics) -> list[str]:
    """The strategies, in the order in which they were asked for."""
    prefix = f"{PERTURBED_SHARE}."
    return [name.removeprefix(prefix) for name in metrics if name.startswith(prefix)]


def trained_models(metrics: Metrics) -> list[str]:
    """The trained models: each has replied to clean contexts, or to contexts of a strategy."""
    situations, found = (CLEAN, *strategies(metrics)), dict[str, None]()
    for name in metrics:
        kind, _, rest = name.partition(".")
        # Names of a user's own strategies may hold dots, too.
        ends = [each for each in situations if rest.endswith(f".{each}")]
        if kind in (ACTIVITY, CHANGE_RATE) and ends:
            found[rest.removesuffix(f".{max(ends, key=len)}")] = None
    return [model for model in found if model not in (BASE, BESIDE)]


def _groups(metrics: Metrics) -> list[str]:
    """The trained models that are not of one strategy alone that is asked about."""
    asked = strategies(metrics)
    return [model for model in trained_models(metrics) if model not in asked]


def _clean_rows(metrics: Metrics, known: Figures | None) -> list[tuple[str, ...]]:
    """Return the rows of replies to clean contexts, and the rows that are no model."""
    clean = f"{ACTIVITY}.{BASE}.{CLEAN}"
    rows = [("normal input", *_f1(metrics, BASE, CLEAN), *_nothing(4), _num(metrics, clean))]
    if known:
        rows.append((_PUBLISHED, *_pair(known.clean), *_nothing(4), ""))
    for name in (*CONSTANTS, CEILING):
        scores = [metrics.get(f"{kind}.{name}", NOTHING) for kind in (ACTIVITY, ENTITY)]
        if scores[0].n:
            title = "true replies" if name == CEILING else name.replace("-", " ", 1)
            rows.append((title, *map(percent, scores), *_nothing(4), f"{scores[0].n:,}"))
    return rows


def _published(
    known: Figures | None, name: str, columns: Callable[[Figures], tuple[Mapping[str, Pair], ...]]
) -> list[tuple[str, ...]]:
    """The published line of a strategy or group; none where nothing is known of it."""
    if known is None or not any(name in pairs for pairs in columns(known)):
        return []
    cells = [cell for pairs in columns(known) for cell in (_pair(pairs[name]) if name in pairs else _nothing(2))]
    return [(_PUBLISHED, *cells, "")]


def _pair(pair: Pair) -> tuple[str, ...]:
    return tuple(f"{value:.2f}" for value in pair)


def _f1(metrics: Metrics, model: str, situation: str) -> tuple[str, ...]:
    """Activity and entity F1 of a model in a situation, starred where training made a difference."""
    return tuple(_starred(metrics, kind, model, situation, percent) for kind in (ACTIVITY, ENTITY))


def _starred(metrics: Metrics, kind: str, model: str, situation: str, show: Callable[[Estimate], str]) -> str:
    """A figure, with a star where it differs from the base's."""
    p_value = metrics.get(f"{kind}{P_VALUE}.{model}.{situation}", NOTHING).value
    # NaN, for no test, is not below it.
    shown, *below = show(metrics.get(f"{kind}.{model}.{situation}", NOTHING)).split("\n")
    return above(shown + "*" * (p_value < SIGNIFICANT), *below)


def percent(estimate: Estimate, places: int = 2, unit: str = "") -> str:
    """A share in percent above its interval; a dash for none."""
    if not math.isfinite(estimate.value):
        return ABSENT
    return above(f"{100 * estimate.value:.{places}f}{unit}", interval(estimate, lambda value: f"{100 * value:.{places}f}"))


def share(estimate: Estimate) -> str:
    """A share as "12.3 %" above its interval; a dash for none."""
    return percent(estimate, 1, " %") if estimate.n else ABSENT


def _of_reply(kind: str, show: Callable[[Estimate], str]) -> Callable[[Metrics, str, str], str]:
    return lambda metrics, model, name: show(metrics.get(f"{kind}.{model}.{name}", NOTHING))


def _num(metrics: Metrics, name: str) -> str:
    return num_measured(metrics.get(name, NOTHING))


def _nothing(num_cells: int) -> tuple[str, ...]:
    return (ABSENT,) * num_cells


_NO_REPLY = "no reply"
_LEFT_OUT = "pairs with one are left out of all other columns"
_LIKENESS: dict[str, Callable[[Metrics, str, str], str]] = {
    "contexts": _of_reply(CONTEXT_SIMILARITY, number),
    "replies": _of_reply(REPLY_SIMILARITY, number),
    "BLEU": _of_reply(BLEU, number),
    "changed replies": lambda metrics, model, name: _starred(metrics, CHANGE_RATE, model, name, share),
    "changed, touched": _of_reply(TOUCHED_CHANGE_RATE, share),
    "touched": lambda metrics, _, name: share(metrics.get(f"{PERTURBED_SHARE}.{name}", NOTHING)),
    _NO_REPLY: _of_reply(NO_REPLY_SHARE, share),
    "n": lambda metrics, model, name: _num(metrics, f"{CHANGE_RATE}.{model}.{name}"),
}
"""The columns of table 4 by their headings."""


_NOTE = (
    "F1 in percent, brackets: 95 % intervals. Both models answer the same contexts; words that may enter them are those of the "
    "first. Star: p < 0.05 against the same model's replies to clean contexts; cross: against the first model's on the same "
    "contexts; paired bootstrap over examples, two-sided, not corrected for their number. Trainings differ too: one of each is "
    "no claim. Read as <unk>: contexts in which the first model meets an unknown word, under a strategy a new one. "
    "n: examples whose true reply has an activity in every utterance."
)
_NOTE_PUBLISHED = (
    " Published: Niu & Bansal 2018, on another corpus with another tagger: sizes cannot be compared, ups and downs can; there "
    "pieces are 15 thousand types and 4.5 million parameters fewer."
)
_STAR, _CROSS = "*", "\N{DAGGER}"


@dataclass(frozen=True)
class ModelSize:
    """The size of a model, shown beside its figures.

    Args:
        kind: such as "vhred".
        units: "words" or "pieces".
        types: entries of its vocabulary.
        parameters: numbers that are learnt.
    """

    kind: str
    units: str
    types: int
    parameters: int


def table_9(metrics: Metrics, models: Mapping[str, ModelSize], *, published: bool = False) -> EstimateTable:
    """Both models under every strategy.

    Args:
        metrics: those of `robustness_metrics` and `unknown_shares`.
        models: by label, `BASE` first.
        published: whether the paper's figures stand below.
    """
    rows = []
    for label, size in models.items():
        known = SUBWORDS[size.units] if published else {}
        for situation in (CLEAN, *strategies(metrics)):
            title = f"{size.kind}, {size.units}, {situation}"
            where = f"{label}.{situation}"
            figures = (f"{size.types:,}", f"{size.parameters:,}") if situation == CLEAN else ("", "")
            unknown = share(metrics.get(f"{UNKNOWN_SHARE}.{BASE}.{situation}", NOTHING)) if label == BASE else ""
            scored = metrics.get(f"{ACTIVITY}.{where}", metrics.get(f"{CHANGE_RATE}.{where}", NOTHING))
            changed = share(metrics.get(f"{CHANGE_RATE}.{where}", NOTHING))
            scores = (_f1_table_9(metrics, kind, where) for kind in (ACTIVITY, ENTITY))
            rows.append((title, *figures, *scores, changed, unknown, num_measured(scored)))
            if situation in known:
                rows.append(_published_table_9(known[situation]))
    columns = ("model and contexts", "types", "parameters", "activity", "entity", "changed replies", "read as <unk>", "n")
    few = few_note("examples") if any("few" in row[-1] for row in rows) else ""
    return EstimateTable(columns, tuple(rows), _NOTE + _NOTE_PUBLISHED * published + few)


def _f1_table_9(metrics: Metrics, kind: str, where: str) -> str:
    marks = "".join(
        mark
        for mark, suffix in ((_STAR, LOSS_P), (_CROSS, P_VALUE))
        # NaN, for no test, is not below it.
        if metrics.get(f"{kind}{suffix}.{where}", NOTHING).value < SIGNIFICANT
    )
    shown, *below = percent(metrics.get(f"{kind}.{where}", NOTHING)).split("\n")
    return above(shown + marks, *below)


def _published_table_9(pair: Pair) -> tuple[str, ...]:
    return ("published", "", "", *(f"{value:.2f}" for value in pair), ABSENT, "", "")
