"""What an audit of perturbations comes to: how much strategies change, and how often what they make reads wrong.

Metrics are called KIND.STRATEGY; one strategy more than was asked for is `CONTROL`, which shows what the same figures are
where words are replaced at random. A row is a context and its utterances that were touched
(`parley.engine.perturb.verbs.rows.AUDIT`). Means and ratios are clustered by context. Rates have Wilson intervals, as if
utterances were independent: those of one context and contexts that share one are not, so these are a little narrow.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from parley.engine.core.stats.statistics import (
    NEITHER,
    NOTHING,
    Estimate,
    Metric,
    clustered_rate,
    mean_count,
    rate,
    ratio_of_sums,
)
from parley.engine.perturb.strategies.signals import SIGNALS

logger = logging.getLogger(__name__)

Row = Mapping[str, Any]
"""One context, keyed by the columns of `parley.engine.perturb.verbs.rows.AUDIT`."""
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
"""What is measured of each strategy; `KEPT` and `WRONG` only where somebody was asked."""
_OVERALL = {
    KAPPA: Metric("agreement of labellers, kappa", "", "Cohen's, mean over pairs of labellers; 0 is chance, 1 always"),
    AGREEMENT: Metric("agreement of labellers", "", "share of the lines with several labels whose labels are equal", "share"),
}


def describe_audit(name: str) -> Metric:
    """What a metric of this module is called and how to read it."""
    kind, _, strategy = name.partition(".")
    return _OVERALL[kind] if kind in _OVERALL else _KINDS[kind]._replace(title=f"{_KINDS[kind].title}, {strategy}")


def audit_metrics(rows: Iterable[Row], strategies: Sequence[str], max_ratio: float) -> dict[str, Estimate]:
    """All metrics but those of labels, which `labels.py` adds.

    Args:
        rows: looked at once, one after the other; those with status "error" are left out with a warning.
        strategies: their names, in the order of the tables.
        max_ratio: the ratio of perplexities from which edits are counted.
    """
    tallies = {name: _Tally() for name in (*strategies, CONTROL)}
    num_words: list[int] = []
    num_utterances: list[int] = []
    failed = 0
    for row in rows:
        if row["status"] != "ok":
            failed += 1
            continue
        for touched in row["touched"]:
            tallies[touched["strategy"]].add(len(num_words), touched)
        num_words.append(row["num_words"])
        num_utterances.append(row["num_utterances"])
    if failed:
        logger.warning("%d of %d examples failed and are left out of the metrics", failed, failed + len(num_words))
    return {
        f"{kind}.{name}": estimate
        for name, tally in tallies.items()
        for kind, estimate in tally.estimates(np.array(num_words, dtype=np.int64), num_utterances, max_ratio).items()
    }


class _Tally:
    """What is known of the utterances that one strategy touched."""

    def __init__(self) -> None:
        self.contexts: list[int] = []
        self.changed: list[int] = []
        self.log_ratios: list[float] = []
        self.replaced: list[tuple[int, int, int]] = []
        self.kept: list[tuple[int, bool]] = []
        self.rises: dict[str, list[bool]] = {name: [] for name in SIGNALS}

    def add(self, context: int, touched: Mapping[str, Any]) -> None:
        self.contexts.append(context)
        self.changed.append(touched["num_changed"])
        # A perplexity is over the words and the end.
        before, after = (touched[f"nats_{side}"] / (len(touched[side].split()) + 1) for side in ("before", "after"))
        self.log_ratios.append(after - before)
        if touched["num_replaced"]:
            self.replaced.append((touched["num_retagged"], context, touched["num_replaced"]))
        for name in SIGNALS:
            self.rises[name].append(touched["signals_after"][name] > touched["signals_before"][name])
        if touched["kept"] is not None:
            self.kept.append((context, bool(touched["kept"])))

    def estimates(self, num_words: np.ndarray, num_utterances: Sequence[int], max_ratio: float) -> dict[str, Estimate]:
        """Return the estimates by kind, utterances of a context drawn together.

        Args:
            num_words: of each context (contexts,).
            num_utterances: of each context (contexts,).
            max_ratio: the ratio of perplexities from which edits are counted.
        """
        number, log_ratios = len(self.contexts), np.array(self.log_ratios)
        changed = np.bincount(self.contexts, self.changed, len(num_words)) if number else np.zeros(len(num_words))
        touched = np.bincount(np.array(self.contexts, dtype=np.int64), minlength=len(num_words))
        # A ratio that is the limit but for its rounding reaches it.
        above = log_ratios >= np.log(max_ratio) - 1e-12
        found = {
            CONTEXTS: rate(len({*self.contexts}), len(num_words)),
            UTTERANCES: clustered_rate(touched, trials=num_utterances),
            WORDS: mean_count(self.changed, self.contexts),
            ALL_WORDS: clustered_rate(changed, trials=num_words),
            RATIO: ratio_of_sums(log_ratios, np.ones(number), self.contexts, transform=np.exp),
            ABOVE: clustered_rate(above, self.contexts),
            RETAGGED: clustered_rate(*zip(*self.replaced, strict=True)) if self.replaced else NOTHING,
            **{name: clustered_rate(rises, self.contexts) for name, rises in self.rises.items()},
        }
        if self.kept:
            contexts, kept = zip(*self.kept, strict=True)
            found[KEPT] = clustered_rate(kept, contexts)
        return found
