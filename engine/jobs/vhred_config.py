"""What `parley train vhred` is asked for: its configuration and presets. Torch-free, so that help starts fast."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.jobs.seq2seq import PairTrainingConfig
from policies.vhred import settings
from policies.vhred.settings import VhredSizes

DIALOGUES = "ubuntu_dialogues"


@dataclass(frozen=True, kw_only=True)
class TrainVhredConfig(PairTrainingConfig):
    """A VHRED with attention, fitted to replies and their contexts."""

    sizes: VhredSizes = field(default_factory=VhredSizes)
    """The model."""


def small() -> TrainVhredConfig:
    """A model for a laptop, fitted with Adam: half the published widths, 10,000 words, on the conversations of #ubuntu."""
    return TrainVhredConfig(corpus=DIALOGUES, vocabulary=10_000, sizes=settings.small(), fit=settings.small_fit())


def niu2018() -> TrainVhredConfig:
    """The model of Niu & Bansal 2018 by their recipe (Adam 2e-4, clip 2), on the conversations of #ubuntu; 20,000 words."""
    return TrainVhredConfig(corpus=DIALOGUES, vocabulary=20_000, fit=settings.niu2018_fit())


def demo() -> TrainVhredConfig:
    """A small model for the built-in help desk, fitted in less than two minutes of one core."""
    return TrainVhredConfig(sizes=settings.demo(), fit=settings.demo_fit())
