"""What adversarial training of a generator reports: names, directions and definitions of its figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from parley.engine.core.stats.replies import REPLIES
from parley.engine.core.stats.statistics import NEITHER, Estimate, Metric, mean
from parley.engine.core.stats.training import BEFORE, HIGHER, LOWER
from parley.engine.generation.metrics.scenarios import ADVERSUC, RANDOM

GAIN, PICKED, NATS = "adversuc_gain", "picked_round", "validation_nll"
_SAID = {
    f"test_{ADVERSUC}": Metric(
        "AdverSuc",
        HIGHER,
        "share of test replies, recorded and the generator's, that judges fitted to them alone take for the other kind",
        main=True,
    ),
    f"test_{RANDOM}": Metric(
        "machine-vs-random",
        HIGHER,
        "share of test replies, the generator's and recorded ones to other contexts, that such judges tell right",
        main=True,
    ),
    NATS: Metric("validation loss per word", LOWER, "nats per word of recorded replies, </s> counted"),
    **{name: metric for name, metric in REPLIES.items() if not name.startswith("recorded")},
}
STEPS = {
    "discriminator_accuracy": ("discriminator's accuracy", "on replies before it learns from them, steps of the"),
    "reward": ("reward of a word", "mean of the generator's steps of the"),
}
"""Figures of steps that are told of the first ones and of the last."""
AGAINST_DISCRIMINATOR = {
    name + suffix: metric._replace(title=metric.title + when)
    for name, metric in _SAID.items()
    for suffix, when in (("", ""), (BEFORE, ", at the start"))
} | {
    **{name: metric for name, metric in REPLIES.items() if name.startswith("recorded")},
    GAIN: Metric("AdverSuc gained", HIGHER, "AdverSuc less that at the start, by the same judges, same contexts", main=True),
    f"validation_{ADVERSUC}": Metric("AdverSuc, validation split", HIGHER, "of the checkpoint, as measured when it was picked"),
    f"validation_{RANDOM}": Metric("machine-vs-random, validation split", HIGHER, "of the checkpoint, by the same judges"),
    PICKED: Metric("round of the checkpoint", NEITHER, "0: the start, which no round was better than", "count"),
    **{
        name + suffix: Metric(title + when, NEITHER, f"{of} {tenth} tenth")
        for name, (title, of) in STEPS.items()
        for suffix, when, tenth in (("", "", "last"), (BEFORE, ", at the start", "first"))
    },
}


def step_figures(updates: Sequence[Mapping[str, Any]]) -> dict[str, Estimate]:
    """The figures of `STEPS`, of the first and the last tenth of the updates that have each.

    Args:
        updates: figures of all updates, in their order.
    """
    found: dict[str, Estimate] = {}
    for name in STEPS:
        if values := [update[name] for update in updates if name in update]:
            tenth = max(1, len(values) // 10)
            found |= {name: mean(values[-tenth:]), f"{name}{BEFORE}": mean(values[:tenth])}
    return found
