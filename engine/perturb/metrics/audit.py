"""Metrics and tables of an audit of perturbations, and the agreement of its labellers.

Metrics are called KIND.STRATEGY; one more strategy is `CONTROL`, which shows the same figures where words are
replaced at random. A row is a context and its utterances that were touched
(`parley.engine.perturb.verbs.config.AUDIT`). All figures are clustered by context, rates of labelled
lines too. Contexts that share an utterance count as independent, so intervals are a little narrow.

Agreement of labellers: Cohen 1960, "A coefficient of agreement for nominal scales"; Light 1971, "Measures of response
agreement for qualitative data": of several labellers, the mean over their pairs.

A line of the tables is a strategy.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations

import numpy as np

from parley.engine.core.stats.rows import Columns, linked_units
from parley.engine.core.stats.statistics import (
    NEITHER,
    NOTHING,
    Estimate,
    Metric,
    Row,
    clustered_rate,
    count,
    mean_count,
    ratio_of_sums,
)
from parley.engine.core.tables.table import (
    FEW_MARK,
    PERCENT,
    Column,
    EstimateTable,
    TableRow,
    few_note,
    figure,
    metric_table,
    num_measured,
)
from parley.engine.perturb.strategies.stopwords import (
    ARTICLES,
    DOUBLE_NEGATIONS,
    DOUBLED_AUXILIARIES,
    DOUBLED_WORDS,
    SIGNALS,
    UNKNOWN_WORDS,
)
from parley.envs.core.seeds import stable_hash

logger = logging.getLogger(__name__)

CONTROL = "random-words"
"""As many words as a strategy changed, replaced at random."""
CONTEXTS, UTTERANCES, WORDS, ALL_WORDS = "contexts_touched", "utterances_touched", "words_changed", "share_of_words"
RATIO, ABOVE, RETAGGED, KEPT, WRONG = "perplexity_ratio", "perplexity_above", "retagged", "kept", "wrong"
KAPPA, AGREEMENT = "kappa", "agreement"
"""Of several labellers, over all strategies."""

_LOWER = "lower: better"
_RISE = "share of touched utterances that have more of it than before"
_KINDS: dict[str, Metric] = {
    WRONG: Metric("wrong by hand", _LOWER, "share of the labelled lines that a labeller called wrong", "share", main=True),
    RATIO: Metric("perplexity ratio", _LOWER, "after by before, geometric mean over touched utterances", main=True),
    ABOVE: Metric("perplexity above the limit", _LOWER, "share of touched utterances whose ratio reaches max_ratio", "share"),
    RETAGGED: Metric("other part of speech", _LOWER, "share of words replaced one by one whose tag is another", "share"),
    **{name: Metric(name.replace("_", " "), _LOWER, f"{_RISE}: {what}", "share") for name, what in SIGNALS.items()},
    KEPT: Metric("kept by entailment", "", "share of touched utterances that follow from before and before from them", "share"),
    CONTEXTS: Metric("contexts touched", NEITHER, "share of contexts in which something was changed", "share"),
    UTTERANCES: Metric("utterances touched", NEITHER, "share of utterances in which something was changed", "share"),
    WORDS: Metric("words changed", NEITHER, "in a touched utterance, mean"),
    ALL_WORDS: Metric("share of words changed", NEITHER, "of the words of all contexts", "share"),
}
KINDS = tuple(_KINDS)
"""Figures of each strategy; `KEPT` needs a model of entailment, `WRONG` needs labels."""
_OVERALL = {
    KAPPA: Metric("agreement of labellers, kappa", "", "Cohen's, mean over pairs of labellers; 0 is chance, 1 always"),
    AGREEMENT: Metric("agreement of labellers", "", "share of the lines with several labels whose labels are equal", "share"),
}


def describe_audit(name: str) -> Metric:
    """Return the title and definition of a metric of this module."""
    kind, _, strategy = name.partition(".")
    return _OVERALL[kind] if kind in _OVERALL else _KINDS[kind]._replace(title=f"{_KINDS[kind].title}, {strategy}")


def audit_metrics(rows: Iterable[Row], strategies: Sequence[str], max_ratio: float) -> dict[str, Estimate]:
    """All metrics but those of labels, which `label_metrics` adds.

    Args:
        rows: looked at once, one after the other; those with status "error" are left out with a warning.
        strategies: their names, in the order of the tables.
        max_ratio: the ratio of perplexities from which edits are counted.
    """
    columns, num, failed = Columns(), 0, 0
    for row in rows:
        if row["status"] != "ok":
            failed += 1
            continue
        for touched in row["touched"]:
            # A perplexity is over the words and the end.
            before, after = (touched[f"nats_{side}"] / (len(touched[side].split()) + 1) for side in ("before", "after"))
            numbers = (touched[name] or 0 for name in ("num_changed", "num_replaced", "num_retagged"))
            kept = math.nan if touched["kept"] is None else touched["kept"]
            rises = (touched["signals_after"][name] > touched["signals_before"][name] for name in SIGNALS)
            columns.add(touched["strategy"], "d", (num, *numbers, after - before, kept, *rises))
        columns.add("context", "Q", (stable_hash(row["context"]),))
        columns.add(None, "i", (row["num_words"], row["num_utterances"]))
        num += 1
    if failed:
        logger.warning("%d of %d examples failed and are left out of the metrics", failed, failed + num)
    num_words, num_utterances = columns.get(None, "i").reshape(-1, 2).T
    units = linked_units(columns.get("context", "Q"))
    metrics: dict[str, Estimate] = {}
    for name in (*strategies, CONTROL):
        of_context, changed, replaced, retagged, log_ratios, kept_too, *rises_of = (
            columns.get(name).reshape(-1, 6 + len(SIGNALS)).T
        )
        rows, was_replaced, is_known = of_context.astype(np.int64), replaced > 0, np.isfinite(kept_too)
        contexts, num_changed = units[rows], np.bincount(rows, minlength=num)
        estimates = {
            CONTEXTS: clustered_rate(num_changed > 0, units),
            UTTERANCES: clustered_rate(num_changed, units, num_utterances),
            WORDS: mean_count(changed, contexts),
            ALL_WORDS: clustered_rate(np.bincount(rows, changed, num), units, num_words),
            RATIO: ratio_of_sums(log_ratios, np.ones_like(log_ratios), contexts, transform=np.exp),
            # A ratio that is the limit but for its rounding reaches it.
            ABOVE: clustered_rate(log_ratios >= np.log(max_ratio) - 1e-12, contexts),
            RETAGGED: clustered_rate(retagged[was_replaced], contexts[was_replaced], replaced[was_replaced]),
            **{signal: clustered_rate(rises, contexts) for signal, rises in zip(SIGNALS, rises_of, strict=True)},
        }
        if is_known.any():
            estimates[KEPT] = clustered_rate(kept_too[is_known], contexts[is_known])
        metrics |= {f"{kind}.{name}": estimate for kind, estimate in estimates.items()}
    return metrics


def label_metrics(
    lines: Mapping[str, str], labels: Mapping[str, Mapping[str, bool]], contexts: Mapping[str, str] | None = None
) -> dict[str, Estimate]:
    """Return the rates of wrong lines by strategy, and the agreement of several labellers; empty without a label.

    Args:
        lines: the strategy of each line by its key.
        labels: whether a line is wrong, by labeller and key; a line that one labeller at least calls wrong is wrong.
        contexts: the context of each line by its key; lines of one are one cluster. Each line has its own if not given.
    """
    contexts = contexts or {key: key for key in lines}
    votes: dict[str, list[bool]] = {}
    for votes_of_line in labels.values():
        for key, wrong in votes_of_line.items():
            votes.setdefault(key, []).append(wrong)
    if not votes:
        return {}
    metrics: dict[str, Estimate] = {}
    for strategy in dict.fromkeys(lines.values()):
        keys = [key for key in votes if lines[key] == strategy]
        metrics[f"{WRONG}.{strategy}"] = clustered_rate([any(votes[key]) for key in keys], [contexts[key] for key in keys])
    several = [key for key, votes_of_line in votes.items() if len(votes_of_line) > 1]
    if several:
        are_equal = [len({*votes[key]}) == 1 for key in several]
        metrics[AGREEMENT] = clustered_rate(are_equal, [contexts[key] for key in several])
        metrics[KAPPA] = count(_mean_kappa([*labels.values()]), len(several))
    return metrics


def kappa(pairs: Sequence[tuple[bool, bool]]) -> float:
    """Return Cohen's kappa of two labellers; NaN where both always give the same one label.

    Args:
        pairs: what each said of a line, at least one.
    """
    agreed = sum(left == right for left, right in pairs) / len(pairs)
    shares = [sum(pair[side] for pair in pairs) / len(pairs) for side in (0, 1)]
    chance = shares[0] * shares[1] + (1 - shares[0]) * (1 - shares[1])
    return (agreed - chance) / (1 - chance) if chance < 1 else math.nan


def _mean_kappa(labels: Sequence[Mapping[str, bool]]) -> float:
    pairs = [[(left[key], right[key]) for key in left if key in right] for left, right in combinations(labels, 2)]
    defined = [value for both in pairs if both and not math.isnan(value := kappa(both))]
    return sum(defined) / len(defined) if defined else math.nan


Metrics = Mapping[str, Estimate]
TRIGRAMS = "trigrams of the training split"
"""The judge of perplexities if no language model is named."""


def audit_tables(metrics: Metrics, max_ratio: float, likelihood: str) -> dict[str, EstimateTable]:
    """Return the tables of an audit by heading: how strategies read, and how much they change.

    Args:
        metrics: those of `audit_metrics`, and of `label_metrics` where lines are labelled.
        max_ratio: the ratio of perplexities from which utterances were counted.
        likelihood: the judge of the perplexities, in words.
    """
    judged = {kind for kind in (WRONG, KEPT) if any(name.startswith(f"{kind}.") for name in metrics)}
    reads = [
        *[_share_of("wrong by hand", WRONG), Column("contexts labelled", cell=partial(_measured, WRONG))] * (WRONG in judged),
        Column("perplexity ratio", f"{RATIO}.{{strategy}}"),
        _share_of(f"ratio {figure(max_ratio)} or more", ABOVE),
        Column("other part of speech", cell=_retagged),
        _share_of("doubled auxiliary", DOUBLED_AUXILIARIES),
        _share_of("double negation", DOUBLE_NEGATIONS),
        _share_of("a / an", ARTICLES),
        _share_of("doubled word", DOUBLED_WORDS),
        _share_of("unknown word", UNKNOWN_WORDS),
        *[_share_of("kept by entailment", KEPT)] * (KEPT in judged),
        Column("n", cell=partial(_measured, ABOVE)),
    ]
    changes = [
        _share_of("contexts touched", CONTEXTS),
        _share_of("utterances touched", UTTERANCES),
        Column("words changed", f"{WORDS}.{{strategy}}"),
        _share_of("of all words", ALL_WORDS),
        Column("contexts", cell=partial(_measured, CONTEXTS)),
    ]
    by_trigrams = "What strategies choose by them (paraphrases, antonym) looks better than it is: --lm names another judge. "
    note = (
        "Of the utterances that a strategy touched; n: different contexts that hold one. "
        f"Ratio: perplexity after by before, geometric mean, under {likelihood}. "
        f"{by_trigrams if likelihood == TRIGRAMS else ''}Other part of speech: of words replaced one by one. Signs of broken "
        f"English count where there are more than before. {CONTROL}: as many words of these utterances, replaced at random: "
        "what the figures are on garbage. Brackets: 95 % intervals."
    )
    if WRONG in judged:
        note += (
            " Wrong by hand: a line that one labeller at least calls wrong, of those labelled, in so many different contexts."
        )
    if (agreed := metrics.get(AGREEMENT, NOTHING)).n:
        share = PERCENT.cell(agreed).replace("\n", " ")
        kappa = figure(metrics[KAPPA].value)
        note += f" Of lines with several labels ({metrics[KAPPA].n:,}) {share} agree, kappa {kappa}."
    of_changes = (
        "Touched: something was changed. Words changed: in a touched utterance, mean. Contexts: different ones. Brackets: 95 % "
        "intervals."
    )
    return {"How it reads": _table(metrics, reads, note), "How much is changed": _table(metrics, changes, of_changes)}


def _table(metrics: Metrics, columns: Sequence[Column], note: str) -> EstimateTable:
    prefix = f"{CONTEXTS}."
    names = [name.removeprefix(prefix) for name in metrics if name.startswith(prefix)]
    table = metric_table(metrics, "strategy", [TableRow(name, {"strategy": name}) for name in names], columns, note)
    few = any(FEW_MARK in cell for row in table.rows for cell in row)
    return replace(table, note=note + few_note("contexts") * few)


def _share_of(heading: str, kind: str) -> Column:
    return Column(heading, f"{kind}.{{strategy}}", PERCENT)


def _measured(kind: str, metrics: Metrics, row: TableRow) -> str:
    return num_measured(metrics.get(f"{kind}.{row.label}", NOTHING))


def _retagged(metrics: Metrics, row: TableRow) -> str:
    """Return the share of retagged words, marked where they are few: its sample is not the row's n."""
    estimate = metrics.get(f"{RETAGGED}.{row.label}", NOTHING)
    return PERCENT.cell(estimate, FEW_MARK * (estimate.flagged and estimate.n > 0))
