"""What trainings of matching models report: names, directions and definitions of their figures."""

from __future__ import annotations

from parley.engine.core.stats.statistics import Metric
from parley.engine.core.stats.training import BEFORE, HIGHER, LOWER
from parley.engine.ranking.metrics.ranks import MAP, MRR, PAIRWISE, recall_at

FIRST = recall_at(1)
RANKS = {FIRST: "R@1", recall_at(2): "R@2", recall_at(5): "R@5", PAIRWISE: "R2@1", MRR: "MRR", MAP: "MAP"}
"""Titles of metrics of groups."""
_MEANINGS = {
    FIRST: "share of right replies ranked first",
    recall_at(2): "share of right replies among the first two",
    recall_at(5): "share of right replies among the first five",
    PAIRWISE: "share of pairs of a right and a wrong reply in which the right one is first",
    MRR: "mean of 1 / rank of the first right reply",
    MAP: "mean average precision of right replies",
}
_TIES = "mean over contexts, ties as chance decides them"
ATTACKED = "_attacked"
"""What the names of figures of groups end in that rules, or the search, have changed."""
PROMOTED = "test_promoted"
"""Success of the attack search on the model itself, of trainings against it."""
_OWN = {
    **{
        f"test_{name}": Metric(f"test {title}", HIGHER, f"{_MEANINGS[name]}; {_TIES}", "rate", main=name == FIRST)
        for name, title in RANKS.items()
    },
    f"test_{FIRST}{ATTACKED}": Metric(
        "test R@1, attacked",
        HIGHER,
        "right replies ranked first where rules replace replies, or rules and the search add wrong ones",
        "rate",
        main=True,
    ),
    PROMOTED: Metric(
        "test contexts that the search upsets",
        LOWER,
        "contexts without a wrong reply at the top in which the search brings one there, at the model itself",
        "rate",
        main=True,
    ),
    "test_loss": Metric("test loss", LOWER, "cross-entropy of a pair of context and reply in nats"),
    f"validation_{FIRST}": Metric("validation R@1", HIGHER, f"{_MEANINGS[FIRST]}; {_TIES}", "rate"),
    f"validation_{FIRST}{ATTACKED}": Metric("validation R@1, attacked", HIGHER, "as of the test split", "rate"),
    "validation_loss": Metric("validation loss", LOWER, "cross-entropy of a pair of context and reply in nats"),
}
MATCHING = {
    name + suffix: metric._replace(title=metric.title + when, main=metric.main)
    for name, metric in _OWN.items()
    for suffix, when in (("", ""), (BEFORE, ", before"))
}
"""Figures of a matching model; those before are of the model that a training began with."""
