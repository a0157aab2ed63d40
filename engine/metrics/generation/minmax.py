"""What adversarial training of a generator reports: names, directions and definitions of its figures."""

from __future__ import annotations

from engine.metrics.generation.scenarios import ADVERSUC, RANDOM
from engine.metrics.replies import REPLIES
from engine.metrics.statistics import NEITHER, Metric
from engine.metrics.training import BEFORE, HIGHER, LOWER

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
    "discriminator_accuracy": Metric("discriminator's accuracy", NEITHER, "on replies before it learns from them, last tenth"),
    "reward": Metric("reward of a word", NEITHER, "mean of the generator's last tenth of steps"),
}
