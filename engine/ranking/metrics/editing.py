"""What trainings of editing policies report: names, directions and definitions of their figures."""

from __future__ import annotations

from parley.engine.core.stats.statistics import NEITHER, Metric

RANKER = "lower: ranker"
SUCCESS, UNTRAINED, RANDOM, GAIN, EDITS, QUERIES, TRIED = (
    "success",
    "success_before",
    "success_random",
    "gain_over_random",
    "words_changed",
    "queries",
    "tried",
)
EDITING = {
    SUCCESS: Metric("success", RANKER, "share of test contexts in which the policy's edits reach the goal", "rate", main=True),
    UNTRAINED: Metric("success before training", RANKER, "the same policy as it began", "rate"),
    RANDOM: Metric(
        "success of random edits", RANKER, "as many replacements, any that is allowed, all alike likely", "rate", main=True
    ),
    GAIN: Metric("more than random edits", RANKER, "success less that of random edits in the same contexts", main=True),
    EDITS: Metric("words changed", "lower: attack", "mean over the contexts"),
    QUERIES: Metric("queries", "lower: attack", "drafts scored, those to see what each word matters included; mean"),
    TRIED: Metric("contexts", NEITHER, "of the test split, in which there is a reply to edit and the goal is open", "count"),
}
"""Random edits are not chosen by queries, so that the policy asks more: its queries stand beside."""
