"""The tables of an evaluation under perturbations in the layout of Niu & Bansal (2018, tables 2 to 4), as text.

A line is a strategy; the line below it holds the published figures. Lines of models that were trained against several
strategies follow, one for the clean contexts and one for each strategy they met.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from parley.engine.core.stats.answers import no_reply_note
from parley.engine.core.stats.statistics import NOTHING, Estimate
from parley.engine.core.stats.tables import ABSENT, FEW_MARK, TextTable, above, few_note, interval, num_measured, number
from parley.engine.perturb.metrics.activity import CEILING, CONSTANTS
from parley.engine.perturb.metrics.published import PUBLISHED, Figures, Pair
from parley.engine.perturb.metrics.robustness import (
    ACTIVITY,
    BASE,
    BESIDE,
    BLEU,
    CHANGE_RATE,
    CLEAN,
    CONTEXT_SIMILARITY,
    CONTROL,
    ENTITY,
    NO_REPLY_SHARE,
    P_VALUE,
    PERTURBED_SHARE,
    REPLY_SIMILARITY,
    TOUCHED_CHANGE_RATE,
)

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


def table_2(metrics: Metrics, published: str | None = None) -> TextTable:
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


def table_4(metrics: Metrics, published: str | None = None) -> TextTable:
    """How far contexts and replies move, and how often replies change (table 4 and beyond it).

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
    """What the control's lines are, where there are some."""
    return _NOTE_CONTROL if CONTROL in trained_models(metrics) else ""


def _table(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]], note: str) -> TextTable:
    return TextTable(columns, tuple(rows), note + few_note("examples") * any(row[-1].endswith(FEW_MARK) for row in rows))


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
    """What a model answers to clean contexts, and what is no model at all."""
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
