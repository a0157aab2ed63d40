"""What `parley train adversarial` is asked for: its configuration. Torch-free, so that help starts fast."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from engine.jobs.supervised import SupervisedConfig
from engine.perturb import catalogue
from engine.perturb.settings import PerturbSettings
from envs.core.config import check
from envs.core.errors import ConfigError
from envs.core.registry import nearest
from policies.seq2seq.settings import FitConfig

RANDOM_SOURCE = "random-source"
"""The sanity check: contrasts that are contexts of other examples, drawn at random."""


def fine_tuning() -> FitConfig:
    """Three epochs of Adam at the paper's rate from the weights that are there; the best by the objective are kept.

    The paper does not say how many epochs.
    """
    return FitConfig(learning_rate=2e-4, max_epochs=3, patience=3, decay_epochs=0)


@dataclass(frozen=True, kw_only=True)
class TrainAdversarialConfig(SupervisedConfig):
    """Which model is trained, against which perturbations."""

    model: str = "runs/seq2seq"
    """Run or checkpoint folder of the response model to begin with (parley train seq2seq, parley train vhred)."""
    strategies: str = "random-swap"
    """Strategies separated by commas: names, random-source, path/file.py:Name, or all, should-not-change, should-change."""
    targets: Literal["greedy", "truth"] = "greedy"
    """Should-Change: whose likelihood keeps a margin, the model's own greedy replies' or the recorded ones'."""
    alpha: float = 1.0
    """Should-Change: weight of the margin beside the likelihood."""
    margin: float = 0.1
    """Should-Change: M, by how much a reply is to be less likely after the perturbation, in nats per word."""
    corpus: str = ""
    """Corpus to train on; the one that the model was fitted to when empty."""
    perturb: PerturbSettings = field(default_factory=PerturbSettings)
    """How contexts are perturbed."""
    fit: FitConfig = field(default_factory=fine_tuning)
    """The recipe."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "alpha", self.alpha >= 0, "at least 0")
        check(self, "margin", self.margin > 0, "above 0")
        known = (*catalogue.strategies, *catalogue.GROUPS, RANDOM_SOURCE)
        for name in self.strategy_names:
            if name not in known and ".py:" not in name:
                what = f"no perturbation strategy is called {name!r}{nearest(name, known)}"
                raise ConfigError(what, fix=f"strategies: {', '.join(known)}, or path/file.py:Name")

    @property
    def strategy_names(self) -> tuple[str, ...]:
        """The strategies one by one."""
        return catalogue.names(self.strategies)
