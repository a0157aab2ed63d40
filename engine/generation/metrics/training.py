"""What trainings of discriminators report: names, directions and definitions of their figures."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from parley.engine.core.stats.statistics import Estimate, Metric, clustered_rate
from parley.engine.core.stats.training import HIGHER, LOWER

WHOLE, BEGINNINGS = "accuracy", "accuracy_beginnings"
DECODED, SAMPLED = "decoded", "sampled"
BY_DECODER = {DECODED: "found by the decoder", SAMPLED: "sampled"}
"""How a machine's reply came about, by what figures call it."""
DISCRIMINATION = {
    f"validation_{WHOLE}": Metric(
        "accuracy",
        HIGHER,
        "share of validation replies, half of them by people, that are told to be what they are; 0.5 is chance",
        main=True,
    ),
    f"test_{WHOLE}": Metric("accuracy on the test split", HIGHER, "the same on the test split", main=True),
    **{
        f"validation_{WHOLE}_{name}": Metric(f"accuracy, machine replies {how}", HIGHER, "share of them told to be a machine's")
        for name, how in BY_DECODER.items()
    },
    f"validation_{WHOLE}_human": Metric("accuracy, recorded replies", HIGHER, "share of them told to be a person's"),
    f"validation_{BEGINNINGS}": Metric(
        "accuracy on beginnings", HIGHER, "share of validation replies told by a random number of their first words"
    ),
    "validation_nll": Metric("validation loss", LOWER, "nats a reply, the stopping criterion; 0.693 is chance"),
    "test_nll": Metric("test loss", LOWER, "nats a reply"),
}


def accuracy(log_odds: np.ndarray, human: np.ndarray, contexts: np.ndarray) -> Estimate:
    """The share of replies that are told to be what they are; even odds count half.

    Args:
        log_odds: that a person wrote each (R,).
        human: whether a person did (R,) bool.
        contexts: which context each replies to (R,): replies to one are no independent trials.
    """
    right = np.where(human, log_odds, -log_odds)
    return clustered_rate((right > 0) + 0.5 * (right == 0), contexts)


def accuracies(log_odds: np.ndarray, human: np.ndarray, contexts: np.ndarray, kinds: np.ndarray) -> Mapping[str, Estimate]:
    """Of all replies, of recorded ones, and of machines' by how they came about.

    Args:
        log_odds: as in `accuracy`.
        human: as in `accuracy`.
        contexts: as in `accuracy`.
        kinds: a key of `BY_DECODER` for each reply (R,); that of a person's has no meaning.
    """
    parts = {WHOLE: np.ones_like(human), f"{WHOLE}_human": human}
    parts |= {f"{WHOLE}_{name}": ~human & (kinds == name) for name in BY_DECODER}
    return {name: accuracy(log_odds[chosen], human[chosen], contexts[chosen]) for name, chosen in parts.items()}
