"""The tables of an audit, as text: how much each strategy changes, and how what it makes reads; a line is a strategy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from parley.engine.core.stats.statistics import NOTHING, Estimate
from parley.engine.core.stats.tables import ABSENT, FEW_MARK, TextTable, above, few_note, figure, interval, num_measured, number
from parley.engine.perturb.metrics.audit import (
    ABOVE,
    AGREEMENT,
    ALL_WORDS,
    CONTEXTS,
    CONTROL,
    KAPPA,
    KEPT,
    RATIO,
    RETAGGED,
    UTTERANCES,
    WORDS,
    WRONG,
)
from parley.engine.perturb.strategies.signals import (
    ARTICLES,
    DOUBLE_NEGATIONS,
    DOUBLED_AUXILIARIES,
    DOUBLED_WORDS,
    UNKNOWN_WORDS,
)

Metrics = Mapping[str, Estimate]
TRIGRAMS = "trigrams of the training split"
"""What perplexities are under where no language model is named."""


def audit_tables(metrics: Metrics, max_ratio: float, likelihood: str) -> dict[str, TextTable]:
    """How strategies read, and how much they change, by heading.

    Args:
        metrics: those of `audit.audit_metrics`, and of `labels.label_metrics` where lines are labelled.
        max_ratio: the ratio of perplexities from which utterances were counted.
        likelihood: what the perplexities are under, in words.
    """
    reads = {
        "wrong by hand": (WRONG, _share),
        "labelled": (WRONG, num_measured),
        "perplexity ratio": (RATIO, number),
        f"ratio {figure(max_ratio)} or more": (ABOVE, _share),
        "other part of speech": (RETAGGED, _share_of_words),
        "doubled auxiliary": (DOUBLED_AUXILIARIES, _share),
        "double negation": (DOUBLE_NEGATIONS, _share),
        "a / an": (ARTICLES, _share),
        "doubled word": (DOUBLED_WORDS, _share),
        "unknown word": (UNKNOWN_WORDS, _share),
        "kept by entailment": (KEPT, _share),
        "n": (ABOVE, num_measured),
    }
    changes = {
        "contexts touched": (CONTEXTS, _share),
        "utterances touched": (UTTERANCES, _share),
        "words changed": (WORDS, number),
        "of all words": (ALL_WORDS, _share),
        "contexts": (CONTEXTS, num_measured),
    }
    asked = {kind for kind in (WRONG, KEPT) if any(name.startswith(f"{kind}.") for name in metrics)}
    reads = {title: column for title, column in reads.items() if column[0] not in (WRONG, KEPT) or column[0] in asked}
    same = "What strategies choose by them (paraphrases, antonym) looks better than it is: --lm names another judge. "
    note = (
        f"Of the utterances that a strategy touched, n. Ratio: perplexity after by before, geometric mean, under {likelihood}. "
        f"{same if likelihood == TRIGRAMS else ''}Other part of speech: of words replaced one by one. Signs of broken English "
        f"count where there are more than before. {CONTROL}: as many words of these utterances, replaced at random: what the "
        f"figures are on garbage. Brackets: 95 % intervals."
    )
    if WRONG in asked:
        note += " Wrong by hand: a line that one labeller at least calls wrong, of the labelled ones."
    if (agreed := metrics.get(AGREEMENT, NOTHING)).n:
        kappa = figure(metrics[KAPPA].value)
        note += f" Of lines with several labels ({agreed.n:,}) {_line(_share(agreed))} agree, kappa {kappa}."
    of_changes = "Touched: something was changed. Words changed: in a touched utterance, mean. Brackets: 95 % intervals."
    return {"How it reads": _table(metrics, reads, note), "How much is changed": _table(metrics, changes, of_changes)}


_Columns = Mapping[str, tuple[str, Callable[[Estimate], str]]]


def _table(metrics: Metrics, columns: _Columns, note: str) -> TextTable:
    prefix = f"{CONTEXTS}."
    names = [name.removeprefix(prefix) for name in metrics if name.startswith(prefix)]
    rows = tuple((name, *(show(metrics.get(f"{kind}.{name}", NOTHING)) for kind, show in columns.values())) for name in names)
    few = any(FEW_MARK in cell for row in rows for cell in row)
    return TextTable(("strategy", *columns), rows, note + few_note("utterances, lines or contexts") * few)


def _share(estimate: Estimate) -> str:
    if not math.isfinite(estimate.value):
        return ABSENT
    return above(f"{100 * estimate.value:.1f} %", interval(estimate, lambda share: f"{100 * share:.1f}"))


def _share_of_words(estimate: Estimate) -> str:
    """A share of other things than the rows' n, marked where they are few."""
    first, *rest = _share(estimate).split("\n")
    return above(f"{first}{FEW_MARK * (estimate.flagged and estimate.n > 0)}", *rest)


def _line(cell: str) -> str:
    return cell.replace("\n", " ")
