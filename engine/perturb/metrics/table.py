"""Metrics, published figures and tables of an evaluation under perturbations (Niu & Bansal 2018, tables 1 to 4 and 9).

A line is a strategy; the line below it holds the published figures. Lines of models that were trained against several
strategies follow, one for the clean contexts and one for each strategy they met.

The F1 of Niu & Bansal cannot be compared with ours in size, only in its ups and downs: they answered the Ubuntu Dialogue
Corpus, whose replies were tagged by another tagger, and a constant answer scores above all of them
(`parley.engine.perturb.metrics.activity`).

The metrics are F1, change rates, similarities, and the effect of training. Source: Niu & Bansal 2018 (arXiv 1809.02079),
tables 2 to 4. A row is an example with its perturbed contexts and every model's replies
(`parley.engine.perturb.verbs.config.ROBUSTNESS`). Models are `BASE` and adversarially trained ones, which are named by the
strategies of their training and reply to clean contexts and to those of these strategies.
  # Paper: significance by 100,000 bootstrap samples, whether paired is not said. Ours: paired over contexts, two-sided.

Metrics are called KIND.MODEL.SITUATION, the situation being a strategy or `CLEAN`; F1 and shares are 0 to 1. Contexts are the
independent units: examples of equal contexts are one.
"""

from __future__ import annotations

import logging
import math
from array import array
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from types import MappingProxyType
from typing import Any

import numpy as np

from parley.engine.core.stats.pairs import Form, ItemFigures, ItemMetrics
from parley.engine.core.stats.rows import Columns, linked_units, selected
from parley.engine.core.stats.statistics import (
    NO_REPLY_METRICS,
    NOTHING,
    NUM_TEST_RESAMPLES,
    Estimate,
    Metric,
    PairedTest,
    Row,
    clustered_rate,
    count,
    finished,
    is_no_reply,
    kinds_of_rows,
    mean,
    no_reply_metrics,
    no_reply_note,
    paired_bootstrap,
    rate_difference,
)
from parley.engine.core.tables.table import (
    ABSENT,
    PERCENT,
    PERCENT_2,
    SIGNIFICANT,
    STAR,
    Column,
    EstimateTable,
    TableRow,
    metric_table,
    published_cell,
    read_published,
)
from parley.engine.perturb.metrics.activity import CEILING, CONSTANTS
from parley.engine.perturb.strategy import CONTROL
from parley.envs.core.seeds import stable_hash
from parley.envs.corpora.pairs.vocabulary import MARKS

PUBLISHED = MappingProxyType({"niu2018": "VHRED with attention", "niu2018-rl": "reranking RL"})
"""Models of the paper, by the name of their figures in published/niu2018.csv."""

logger = logging.getLogger(__name__)

BASE = "base"
"""The model that perturbations were made for, before any training against them."""
BESIDE = "beside"
"""A model of another kind that answers the same contexts."""
CLEAN = "clean"
"""The situation of a context that was not perturbed; rows have "" as its strategy."""
PERTURBED_SHARE = "perturbed_share"
CHANGE_RATE, TOUCHED_CHANGE_RATE = "change_rate", "change_rate_touched"
DIFFERENT = "different_replies"
RIGHT, RIGHT_CHANGE = "right_replies", "right_replies_change"
ACTIVITY, ENTITY = "activity_f1", "entity_f1"
CONTEXT_SIMILARITY, REPLY_SIMILARITY, BLEU = "context_similarity", "reply_similarity", "bleu"
GAIN, P_VALUE = "_gain", "_p"
"""Suffixes of a kind: another model's figure less the base's, and the p-value of that difference."""
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
    RIGHT: Metric("right replies", "higher: better", "share of replies that are the recorded one; of encoders alone", "share"),
    RIGHT_CHANGE: Metric("right replies, change", "higher: better", "less the share behind the same contexts as they are"),
    DIFFERENT: Metric("different replies", "", "to contexts as they are; few: it hardly reads them", "count", main=True),
    ACTIVITY: Metric("activity F1", _BETTER, f"{_F1_OVER}, 0 to 1", "rate", main=True),
    ENTITY: Metric("entity F1", _BETTER, f"{_F1_OVER}, 0 to 1; 0 where it has no entity", "rate", main=True),
    CONTEXT_SIMILARITY: Metric("similarity of contexts", "", "cosine of the model's mean embeddings, mean over contexts"),
    REPLY_SIMILARITY: Metric("similarity of replies", "", "cosine of the model's mean embeddings, mean over replies"),
    BLEU: Metric("BLEU of replies", "", "of the reply against the same model's clean one, 0 to 1, mean over replies", "rate"),
    **{
        kind + suffix: Metric(f"{title} of {name} F1", "", meaning)
        for kind, name in ((ACTIVITY, "activity"), (ENTITY, "entity"))
        for suffix, title, meaning in (
            (GAIN, "gain", "it minus base on the same contexts, mean over examples"),
            (P_VALUE, "p of the gain", "paired bootstrap, two-sided"),
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
    """Return the names of all metrics of the base; F1 exists only where it is scored, right replies of encoders alone."""
    kinds = (CHANGE_RATE, TOUCHED_CHANGE_RATE, CONTEXT_SIMILARITY, REPLY_SIMILARITY, BLEU, RIGHT_CHANGE)
    of_strategies = [f"{kind}.{BASE}.{name}" for name in strategies for kind in kinds]
    f1 = [f"{kind}.{BASE}.{name}" for name in (CLEAN, *strategies) for kind in (ACTIVITY, ENTITY, RIGHT)]
    return [*(f"{PERTURBED_SHARE}.{name}" for name in strategies), f"{DIFFERENT}.{BASE}.{CLEAN}", *of_strategies, *f1]


def robustness_metrics(
    rows: Sequence[Row], num_resamples: int = NUM_TEST_RESAMPLES, *, exact: bool = False
) -> dict[str, Estimate]:
    """Return all metrics of rows, without kinds for which no row has a number.

    Args:
        rows: those with status "error" are left out with a warning.
        num_resamples: of the significance tests.
        exact: whether a reply is right if it is the recorded one, and wrong otherwise, as of a bot that retrieves replies.
    """
    examples = finished(rows)
    if len(examples) < len(rows):
        logger.warning("%d of %d examples failed and are left out of the metrics", len(rows) - len(examples), len(rows))
    replies = _ReplyNumbers(examples)
    units = replies.units
    metrics = {f"{PERTURBED_SHARE}.{name}": clustered_rate(marks, units) for name, marks in replies.touched.items()}
    for model, strategy in replies.given:
        where, of = f"{model}.{strategy or CLEAN}", replies.of(model, strategy)
        if strategy:
            # Nothing is compared where either answer is no reply.
            changed, is_compared = of[CHANGE_RATE], np.isfinite(of[CHANGE_RATE])
            for kind, counts in ((CHANGE_RATE, is_compared), (TOUCHED_CHANGE_RATE, is_compared & replies.touched[strategy])):
                metrics[f"{kind}.{where}"] = clustered_rate(changed[counts], units[counts])
        else:
            metrics[f"{DIFFERENT}.{where}"] = count(*replies.distinct(model))
        if exact:
            right = of[RIGHT]
            metrics[f"{RIGHT}.{where}"] = clustered_rate(right, units)
            if strategy:
                metrics[f"{RIGHT_CHANGE}.{where}"] = rate_difference(right, replies.of(model, "")[RIGHT], units)
        if of[NO_REPLY_SHARE].any():
            metrics[f"{NO_REPLY_SHARE}.{where}"] = clustered_rate(of[NO_REPLY_SHARE], units)
        for kind in _NUMBERS:
            if (known := np.isfinite(of[kind])).any():
                estimate = clustered_rate if kind in _RATES else mean
                metrics[f"{kind}.{where}"] = estimate(of[kind][known], units[known])
        others = {(GAIN, P_VALUE): (BASE, strategy)} if model != BASE else {}
        if strategy and model in (BASE, BESIDE) and (BESIDE, "") in replies.given:
            others[LOSS, LOSS_P] = model, ""
        for (change, p_value), other in others.items():
            before = replies.of(*other)
            # Clean replies have no change rate.
            for kind in (ACTIVITY, ENTITY, CHANGE_RATE):
                if test := _gain(of[kind], before[kind], units, num_resamples):
                    metrics[f"{kind}{change}.{where}"] = test.difference
                    metrics[f"{kind}{p_value}.{where}"] = count(test.p_value, test.difference.n)
    if replies.have_kinds:
        kinds = (sum(kinds_of_rows(row["replies"]), Counter[str]()) for row in selected(examples, "replies"))
        metrics |= no_reply_metrics(kinds, replies.answers, units)
    return metrics


def _figures(rows: Sequence[Row], config: Mapping[str, Any]) -> dict[str, ItemFigures]:
    """Return the figures of single contexts, of each model under each strategy."""
    replies = _ReplyNumbers(rows)
    figures = {f"{PERTURBED_SHARE}.{name}": _entries(marks, "share") for name, marks in replies.touched.items()}
    for model, strategy in replies.given:
        where, of = f"{model}.{strategy or CLEAN}", replies.of(model, strategy)
        if strategy:
            figures[f"{CHANGE_RATE}.{where}"] = _entries(of[CHANGE_RATE], "share")
            of_touched = np.where(replies.touched[strategy], of[CHANGE_RATE], np.nan)
            figures[f"{TOUCHED_CHANGE_RATE}.{where}"] = _entries(of_touched, "share")
        figures[f"{NO_REPLY_SHARE}.{where}"] = _entries(of[NO_REPLY_SHARE], "share")
        for kind in _NUMBERS:
            figures[f"{kind}.{where}"] = _entries(of[kind], "share" if kind in _RATES else "mean")
    return {name: entries for name, entries in figures.items() if len(entries.rows)}


def _entries(numbers: np.ndarray, form: Form) -> ItemFigures:
    rows = np.flatnonzero(np.isfinite(numbers))
    return ItemFigures(rows, numbers[rows].astype(np.float64), np.ones(len(rows)), form)


CONTEXT_ITEMS = ItemMetrics("contexts", _figures, describe, itemgetter("context"), itemgetter("context", "truth"))
"""Figures of single contexts."""


def unknown_shares(rows: Sequence[Row], vocabulary: Container[str]) -> dict[str, Estimate]:
    """Return the share of contexts in which the base reads `<unk>`, by situation; perturbed ones count new words only.

    Args:
        rows: as in `robustness_metrics`.
        vocabulary: words of the base; marks of turns are none.
    """
    flags: dict[str, tuple[array[int], array[int]]] = {}
    for row in selected(finished(rows), "context", "perturbations"):
        clean = Counter(row["context"].split())
        came_in = {made["strategy"]: Counter(made["text"].split()) - clean for made in row["perturbations"]}
        for situation, words in ({CLEAN: clean} | came_in).items():
            unknown, contexts = flags.setdefault(situation, (array("b"), array("Q")))
            unknown.append(any(word not in vocabulary and word not in MARKS for word in words))
            contexts.append(stable_hash(row["context"]))
    return {f"{UNKNOWN_SHARE}.{BASE}.{situation}": clustered_rate(*of) for situation, of in flags.items()}


def _gain(after: np.ndarray, before: np.ndarray, units: np.ndarray, num_resamples: int) -> PairedTest | None:
    """Test numbers of replies against those of others to the same examples; return None if nothing was scored."""
    is_scored = np.isfinite(after) & np.isfinite(before)
    if not is_scored.any():
        return None
    now, then, units = after[is_scored], before[is_scored], units[is_scored]
    return PairedTest(rate_difference(now, then, units), paired_bootstrap(now, then, num_resamples, clusters=units).p_value)


_NUMBERS = (ACTIVITY, ENTITY, CONTEXT_SIMILARITY, REPLY_SIMILARITY, BLEU)
"""Columns of a reply that hold a number, or none."""
_RATES = (ACTIVITY, ENTITY, BLEU)
"""Those from 0 to 1."""


class _ReplyNumbers:
    """Numbers of replies by model and strategy, in the order of the examples, which are gone through once.

    Args:
        examples: rows that worked.
    """

    def __init__(self, examples: Iterable[Row]) -> None:
        self._columns, self.have_kinds = Columns(), False
        self.given: dict[tuple[str, str], None] = {}
        """Models and strategies."""
        strategies: dict[str, None] = {}
        for row in examples:
            self._columns.add("answers", "i", (len(row["replies"]),))
            self._columns.add("context", "Q", (stable_hash(row["context"]),))
            for made in row["perturbations"]:
                strategies[made["strategy"]] = None
                self._columns.add(("touched", made["strategy"]), "b", (bool(made["changed"]),))
            for reply in row["replies"]:
                self.given[reply["model"], reply["strategy"]] = None
                self.have_kinds |= bool(reply.get("kind"))
                changed = None if reply["same"] is None else not reply["same"]
                numbers = changed, is_no_reply(reply), reply["reply"] == row["truth"], *(reply[kind] for kind in _NUMBERS)
                known = (math.nan if number is None else number for number in numbers)
                self._columns.add((reply["model"], reply["strategy"]), "d", known)
                if not reply["strategy"] and not is_no_reply(reply):
                    self._columns.add(("reply", reply["model"]), "Q", (stable_hash(reply["reply"]),))
        self.answers = self._columns.get("answers", "i")
        """Replies to each example (V,)."""
        self.units = linked_units(self._columns.get("context", "Q"))
        """The unit of each example: those of equal contexts are one (V,)."""
        self.touched = {name: self._columns.get(("touched", name)) > 0 for name in strategies}
        """Whether each context was changed, by strategy (V,) bool."""

    def of(self, model: str, strategy: str) -> dict[str, np.ndarray]:
        """Return numbers of replies by kind (V,); NaN for none."""
        kinds = CHANGE_RATE, NO_REPLY_SHARE, RIGHT, *_NUMBERS
        return dict(zip(kinds, self._columns.get((model, strategy)).reshape(-1, len(kinds)).T, strict=True))

    def distinct(self, model: str) -> tuple[int, int]:
        """Return how many different replies a model gives to clean contexts, and how many it gives."""
        digests = self._columns.get(("reply", model), "Q")
        return len(np.unique(digests)), len(digests)


Metrics = Mapping[str, Estimate]

_TESTS = "Paired bootstrap over contexts, two-sided, not corrected for their number."
_NOTE_F1 = (
    "F1 in percent, brackets: 95 % intervals. N-train: the model as it is; A-train: after training against the strategy, or "
    "against those of the group. A-test: contexts perturbed by the strategy; N-test: clean ones. Star: p < 0.05 against "
    f"N-train on the same contexts. {_TESTS} Constant answers ignore the context; the true replies against themselves are the "
    "maximum. n: contexts whose true reply has an activity in every utterance."
)
_NOTE_SIMILARITY = (
    "Cosine similarity of the mean embeddings (the model's own) of clean and perturbed contexts, and of the model's replies to "
    "them; BLEU of the two replies. Changed replies: share unlike the reply to the clean context, of all examples and of "
    "those whose context was touched; touched: share of contexts in which something was changed. Brackets: 95 % intervals. "
    f"Star: p < 0.05 against the untrained model on the same contexts. {_TESTS}"
)
_NOTE_UNITS = (
    "F1 in percent, brackets: 95 % intervals. Both models answer the same contexts; words that may enter them are those of the "
    "first. Star: p < 0.05 against the same model's replies to clean contexts; cross: against the first model's on the same "
    f"contexts. {_TESTS} Trainings differ too: one of each is no claim. Read as <unk>: contexts in which the first model meets "
    "an unknown word, under a strategy a new one. n: contexts whose true reply has an activity in every utterance."
)
_OTHER_CORPUS = ", on another corpus with another tagger: sizes cannot be compared, ups and downs can"
_OTHER_SIZES = "; there pieces are 15 thousand types and 4.5 million parameters fewer."
_NOTE_CONTROL = f" Lines of {CONTROL}: the control, trained as long on contexts as they are."
_NO_REPLY = "no reply"
_LEFT_OUT = "pairs with one are left out of all other columns"
_DAGGER = "\N{DAGGER}"

_SCORES = {"activity": ACTIVITY, "entity": ENTITY}
_F1 = [
    Column(f"{title} {score}", f"{kind}.{where}", PERCENT_2, p_value=f"{kind}{P_VALUE}.{where}")
    for title, where in (
        ("N-train/A-test", f"{BASE}.{{situation}}"),
        ("A-train/A-test", "{model}.{situation}"),
        ("A-train/N-test", f"{{model}}.{CLEAN}"),
    )
    for score, kind in _SCORES.items()
]
_ATTACKED, _TRAINED, _TRAINED_CLEAN = _F1[:2], _F1[2:4], _F1[4:]
_SIMILARITY = (
    Column("right", f"{RIGHT}.{{model}}.{{situation}}", PERCENT, optional=True),
    Column("right, change", f"{RIGHT_CHANGE}.{{model}}.{{situation}}", PERCENT, signed=True, optional=True),
    Column("contexts", f"{CONTEXT_SIMILARITY}.{{model}}.{{situation}}"),
    Column("replies", f"{REPLY_SIMILARITY}.{{model}}.{{situation}}"),
    Column("BLEU", f"{BLEU}.{{model}}.{{situation}}"),
    Column(
        "changed replies",
        f"{CHANGE_RATE}.{{model}}.{{situation}}",
        PERCENT,
        p_value=f"{CHANGE_RATE}{P_VALUE}.{{model}}.{{situation}}",
    ),
    Column("changed, touched", f"{TOUCHED_CHANGE_RATE}.{{model}}.{{situation}}", PERCENT),
    Column("touched", f"{PERTURBED_SHARE}.{{situation}}", PERCENT),
    Column(_NO_REPLY, f"{NO_REPLY_SHARE}.{{model}}.{{situation}}", PERCENT),
)


def table_2(metrics: Metrics, published: str | None = None) -> EstimateTable:
    """Return F1 before and after training against the strategies (tables 2 and 3).

    Args:
        metrics: those of `robustness_metrics`, and of `reference_metrics` where there are some.
        published: published figures to add, a key of `PUBLISHED`; None for none.

    Returns:
        The table; without any row where no reply was scored.
    """
    figures = _printed(f"{published} F1") if published else {}
    rows = list(_f1_rows(metrics, figures)) if f"{ACTIVITY}.{BASE}.{CLEAN}" in metrics else []
    note = _NOTE_F1 + (f" Published: Niu & Bansal 2018, {PUBLISHED[published]}{_OTHER_CORPUS}." if published else "")
    note += _control_note(metrics)
    return metric_table(metrics, "strategy", rows, _F1, note, n=f"{ACTIVITY}.{{counted}}", unit="contexts")


def _f1_rows(metrics: Metrics, figures: Mapping[str, Mapping[str, float]]) -> Iterator[TableRow]:
    """Yield clean contexts, answers of no model, each strategy, then trainings against several strategies."""
    tested = strategies(metrics)
    yield _f1_row("normal input", situation=CLEAN, counted=f"{BASE}.{CLEAN}", published=figures.get("normal input", {}))
    for name in (*CONSTANTS, CEILING):
        scores = [metrics.get(f"{kind}.{name}", NOTHING) for kind in _SCORES.values()]
        if scores[0].n:
            cells: dict[str, str] = {
                column.heading: PERCENT_2.cell(score) for column, score in zip(_ATTACKED, scores, strict=True)
            }
            title = "true replies" if name == CEILING else name.replace("-", " ", 1)
            yield TableRow(title, _f1_row("").fields, cells=cells | {"n": f"{scores[0].n:,}"})
    for name in tested:
        yield _f1_row(name, model=name, situation=name, counted=f"{BASE}.{name}", published=figures.get(name, {}))
    clean = {column.heading for column in _TRAINED_CLEAN}
    for group in trained_models(metrics):
        if group in tested:
            continue
        printed = {heading: value for heading, value in figures.get(group, {}).items() if heading in clean}
        yield _f1_row(group, model=group, counted=f"{group}.{CLEAN}", published=printed)
        for name in tested:
            if f"{ACTIVITY}.{group}.{name}" in metrics:
                row = _f1_row(f"{group}, {name}", model=group, situation=name, counted=f"{group}.{name}")
                yield replace(row, cells=dict.fromkeys(clean, ABSENT))


def _f1_row(label: str, published: Mapping[str, float] = MappingProxyType({}), **fields: str) -> TableRow:
    return TableRow(label, {"model": "", "situation": "", "counted": ""} | fields, published)


def table_4(metrics: Metrics, published: str | None = None) -> EstimateTable:
    """Return table 4: how far contexts and replies move, and how often replies change.

    Args:
        metrics: as in `table_2`.
        published: as in `table_2`.

    Returns:
        The table: lines of the base model, then of the trained ones under the strategies they met.
    """
    figures = _printed(f"{published} similarity") if published else {}
    rows = []
    for model in (BASE, BESIDE, *trained_models(metrics)):
        for name in strategies(metrics):
            if f"{CHANGE_RATE}.{model}.{name}" in metrics:
                trained = f"{name} trained" if model == name else f"{model} trained, {name}"
                title = {BASE: name, BESIDE: f"{BESIDE}, {name}"}.get(model, trained)
                printed = figures.get(name, {}) if model == BASE else {}
                rows.append(TableRow(title, {"model": model, "situation": name}, printed))
    lost = any(name.startswith(f"{NO_REPLY_SHARE}.") for name in metrics)
    columns = [column for column in _SIMILARITY if lost or column.heading != _NO_REPLY]
    note = _NOTE_SIMILARITY + (f" Published: Niu & Bansal 2018, {PUBLISHED[published]}." if published else "")
    note += _control_note(metrics) + no_reply_note(metrics, "chat.max_tokens", rates=_LEFT_OUT)
    n = f"{CHANGE_RATE}.{{model}}.{{situation}}"
    return metric_table(metrics, "strategy", rows, columns, note, n=n, unit="contexts")


def _printed(table: str) -> Mapping[str, Mapping[str, float]]:
    return read_published("parley.engine.perturb.metrics", "niu2018.csv")[table]


def _control_note(metrics: Metrics) -> str:
    return _NOTE_CONTROL if CONTROL in trained_models(metrics) else ""


def strategies(metrics: Metrics) -> list[str]:
    """Return the strategies, in the order of the evaluation."""
    prefix = f"{PERTURBED_SHARE}."
    return [name.removeprefix(prefix) for name in metrics if name.startswith(prefix)]


def trained_models(metrics: Metrics) -> list[str]:
    """Return the trained models that replied to clean contexts or to contexts of a strategy."""
    situations, models = (CLEAN, *strategies(metrics)), dict[str, None]()
    for name in metrics:
        kind, _, rest = name.partition(".")
        # Names of a user's own strategies may hold dots, too.
        ends = [situation for situation in situations if rest.endswith(f".{situation}")]
        if kind in (ACTIVITY, CHANGE_RATE) and ends:
            models[rest.removesuffix(f".{max(ends, key=len)}")] = None
    return [model for model in models if model not in (BASE, BESIDE)]


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
    """Return both models under every strategy.

    Args:
        metrics: those of `robustness_metrics` and `unknown_shares`.
        models: by label, `BASE` first.
        published: whether the paper's figures stand below.
    """
    columns = [
        Column("types"),
        Column("parameters"),
        *(Column(score, cell=partial(_marked_f1, kind)) for score, kind in _SCORES.items()),
        Column("changed replies", f"{CHANGE_RATE}.{{where}}", PERCENT),
        Column("read as <unk>", f"{UNKNOWN_SHARE}.{{where}}", PERCENT),
    ]
    figures = _printed("units") if published else {}
    rows = []
    for label, size in models.items():
        for situation in (CLEAN, *strategies(metrics)):
            where, is_clean = f"{label}.{situation}", situation == CLEAN
            cells = {"types": f"{size.types:,}" * is_clean, "parameters": f"{size.parameters:,}" * is_clean}
            cells |= {} if label == BASE else {"read as <unk>": ""}
            kind = ACTIVITY if f"{ACTIVITY}.{where}" in metrics else CHANGE_RATE
            fields = {"where": where, "counted": f"{kind}.{where}"}
            rows.append(TableRow(f"{size.kind}, {size.units}, {situation}", fields, cells=cells))
            if printed := figures.get(f"{size.units}, {situation}"):
                shown: dict[str, str] = {score: published_cell(value) for score, value in printed.items()}
                empty = dict.fromkeys(("types", "parameters", "read as <unk>", "n"), "")
                rows.append(TableRow("published", dict.fromkeys(fields, ""), cells=shown | empty | {"changed replies": ABSENT}))
    note = _NOTE_UNITS + f" Published: Niu & Bansal 2018{_OTHER_CORPUS}{_OTHER_SIZES}" * published
    return metric_table(metrics, "model and contexts", rows, columns, note, n="{counted}", unit="contexts")


def _marked_f1(kind: str, metrics: Metrics, row: TableRow) -> str:
    where = row.fields["where"]
    # NaN, for no test, is not below the limit.
    p_values = {
        mark: metrics.get(f"{kind}{test}.{where}", NOTHING).value for mark, test in ((STAR, LOSS_P), (_DAGGER, P_VALUE))
    }
    marks = "".join(mark for mark, p_value in p_values.items() if p_value < SIGNIFICANT)
    return PERCENT_2.cell(metrics.get(f"{kind}.{where}", NOTHING), marks)
