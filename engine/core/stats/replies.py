"""What replies look like beside recorded ones, whoever judges them: length, variety, what they leave unsaid."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from parley.engine.core.stats.statistics import Estimate, Metric, count, mean_count, rate
from parley.envs.corpora.pairs.vocabulary import EOT, EOU, UNK

NEAR = "nearer to the recorded"
REPLIES = {
    "reply_words": Metric("words of a reply", NEAR, "mean over contexts", main=True),
    "recorded_words": Metric("words of a recorded reply", "-", "mean over the same contexts"),
    "distinct_1": Metric("distinct-1", NEAR, "different words over words of all replies (Li et al. 2016a)", main=True),
    "recorded_distinct_1": Metric("distinct-1, recorded", "-", "of the recorded replies"),
    "distinct_2": Metric("distinct-2", NEAR, "different pairs of neighbouring words over such pairs", main=True),
    "recorded_distinct_2": Metric("distinct-2, recorded", "-", "of the recorded replies"),
    "commonest_share": Metric("commonest reply", "lower: better", "contexts that get the most frequent reply", "share"),
    "unknown_share": Metric("replies with <unk>", "lower: better", "share of contexts", "share"),
    "empty_share": Metric("replies without a word", "lower: better", "share of contexts; no line of the file", "share"),
    "limit_share": Metric(
        "replies as long as may be", "lower: better", "share of contexts; the model's limit cut most of them", "share"
    ),
}
"""Figures of `reply_metrics`."""


def reply_metrics(
    replies: Sequence[Sequence[str]], recorded: Sequence[Sequence[str]], limit: int | None = None
) -> Mapping[str, Estimate]:
    """Figures of replies and of the recorded ones to the same contexts.

    Args:
        replies: words of each.
        recorded: words of each, as many.
        limit: words that the model can say at most; None where it has no limit in words.
    """
    num, times = len(replies), Counter(map(tuple, replies))
    found = {
        "reply_words": mean_count([len(words) for words in replies]),
        "recorded_words": mean_count([len(words) for words in recorded]),
    }
    for length in (1, 2):
        found[f"distinct_{length}"] = distinct(replies, length)
        found[f"recorded_distinct_{length}"] = distinct(recorded, length)
    shares = {
        "commonest_share": max(times.values(), default=0),
        "unknown_share": sum(UNK in words for words in replies),
        "empty_share": sum(not has_word(words) for words in replies),
    }
    if limit is not None:
        shares["limit_share"] = sum(len(words) >= limit for words in replies)
    return found | {name: rate(hits, num) for name, hits in shares.items()}


def has_word(reply: Sequence[str]) -> bool:
    """Whether a reply holds more than marks between utterances and turns."""
    return any(word not in (EOU, EOT) for word in reply)


def distinct(replies: Sequence[Sequence[str]], length: int) -> Estimate:
    """Different runs of `length` words over all such runs; falls with the number of replies, so it has no interval."""
    runs = Counter(tuple(words[start : start + length]) for words in replies for start in range(len(words) - length + 1))
    total = sum(runs.values())
    return count(len(runs) / total if total else 0.0, total)
