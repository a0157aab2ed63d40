"""Words against pieces of words: two models that answer the same contexts, in the layout of Niu & Bansal (2018, table 9)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from parley.engine.core.stats.statistics import NOTHING
from parley.engine.core.stats.tables import ABSENT, TextTable, above, few_note, num_measured
from parley.engine.perturb.metrics.published import SUBWORDS, Pair
from parley.engine.perturb.metrics.robustness import ACTIVITY, BASE, CHANGE_RATE, CLEAN, ENTITY, LOSS_P, P_VALUE, UNKNOWN_SHARE
from parley.engine.perturb.metrics.table import SIGNIFICANT, Metrics, percent, share, strategies

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
    """What is said of a model beside its figures.

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


def table_9(metrics: Metrics, models: Mapping[str, ModelSize], *, published: bool = False) -> TextTable:
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
            scores = (_f1(metrics, kind, where) for kind in (ACTIVITY, ENTITY))
            rows.append((title, *figures, *scores, changed, unknown, num_measured(scored)))
            if situation in known:
                rows.append(_published(known[situation]))
    columns = ("model and contexts", "types", "parameters", "activity", "entity", "changed replies", "read as <unk>", "n")
    few = few_note("examples") if any("few" in row[-1] for row in rows) else ""
    return TextTable(columns, tuple(rows), _NOTE + _NOTE_PUBLISHED * published + few)


def _f1(metrics: Metrics, kind: str, where: str) -> str:
    marks = "".join(
        mark
        for mark, suffix in ((_STAR, LOSS_P), (_CROSS, P_VALUE))
        # NaN, for no test, is not below it.
        if metrics.get(f"{kind}{suffix}.{where}", NOTHING).value < SIGNIFICANT
    )
    shown, *below = percent(metrics.get(f"{kind}.{where}", NOTHING)).split("\n")
    return above(shown + marks, *below)


def _published(pair: Pair) -> tuple[str, ...]:
    return ("published", "", "", *(f"{value:.2f}" for value in pair), ABSENT, "", "")
