"""What `parley train hardened` is asked for: which model learns not to follow which inputs, and what it says instead."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from parley.engine.core.verbs.supervised import SupervisedConfig
from parley.engine.perturb import catalogue
from parley.engine.perturb.settings import PerturbSettings
from parley.envs.core.errors import ConfigError
from parley.envs.core.ranges import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, ShareBelowOne
from parley.envs.core.storage.uris import HUGGING_FACE
from parley.policies.chat.addresses import GGUF, is_local, weights_of
from parley.policies.chat.lora_settings import LoraSettings
from parley.policies.chat.settings import DateSettings
from parley.policies.core.fitting.settings import FitConfig

OWN = "own"
"""Replies that are the model's own, as it is before it learns anything."""
REFUSAL = "I am sorry, I did not understand that."
"""What a hardened model says to a trigger unless told otherwise."""


def hardening_recipe() -> FitConfig:
    """Three epochs of Adam over small batches; the best by lessons that are held out are kept."""
    return FitConfig(learning_rate=3e-4, batch_size=8, clip=1.0, max_epochs=3, patience=3, decay_epochs=0, precision="float32")


@dataclass(frozen=True, kw_only=True)
class HardeningSettings(DateSettings):
    """What a model learns from, and how."""

    found: Literal["hits", "all"] = "hits"
    """Which inputs of a search are triggers: hits of the wanted type (search text: those whose reply is a success), or all."""
    reply: str = REFUSAL
    """What is answered to a trigger; own for the model's own greedy reply to the prompt without it."""
    strategies: str = ""
    """Strategies of perturbation, separated by commas: names, path/file.py:Name, or all, should-not-change, should-change.
    Contexts that should not change the answer are answered as before; behind those that should it becomes less likely."""
    alpha: NonNegativeFloat = 1.0
    """Should-Change: weight of the margin beside the likelihood."""
    margin: PositiveFloat = 0.1
    """Should-Change: M, by how much a reply is to be less likely behind the changed context, in nats per token."""
    corpus: str = "helpdesk"
    """Corpus whose contexts keep the model as it is (parley data list), or a source<TAB>reply file."""
    clean: Literal["own", "recorded"] = "own"
    """What is answered to them: the model's own greedy replies, or the recorded ones."""
    limit: NonNegativeInt = 48
    """Contexts of the training split at most, and a third as many of the others, the seed's choice of them; 0 for all."""
    trigger_share: ShareBelowOne = 0.5
    """Share of the lessons of an epoch that are triggers at least: they are repeated until they are as many."""
    held_out: ShareBelowOne = 0.3
    """Share of the targets, or requests of fewer than three targets, whose triggers are not learned from but measured; half as
    many more choose the best epoch."""
    max_tokens: PositiveInt = 24
    """Tokens of a reply at most; more in what is measured where a target or the wanted answer has more."""
    batch_size: PositiveInt = 16
    """Prompts that the model answers side by side."""
    template: str = ""
    """Prompt that triggers stand in, as hugging_face.template of parley search; that of each search when empty."""
    method: Literal["lora", "full"] = "lora"
    """What learns: low-rank adapters, which are added to the weights in the end (extra lora), or all weights."""
    lora: LoraSettings = field(default_factory=LoraSettings)
    """The adapters."""
    fit: FitConfig = field(default_factory=hardening_recipe)
    """The recipe."""
    perturb: PerturbSettings = field(default_factory=PerturbSettings)
    """How contexts are perturbed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.strategies:
            catalogue.require_names(self.strategies)
        if not self.reply.strip():
            raise ConfigError("a trigger needs an answer", where="--reply", fix=f"write one, or {OWN}")


@dataclass(frozen=True, kw_only=True)
class TrainHardenedConfig(HardeningSettings, SupervisedConfig):
    """Which model learns to answer what."""

    model: str = ""
    """Causal model to begin with: hf:FOLDER, gguf:FILE, or hf:RUN of an earlier hardening."""
    searches: str = ""
    """Runs of parley search, search universal, search text or search methods, separated by commas, whose triggers are answered
    by --reply; none when empty."""
    control: bool = False
    """Train as long on unchanged contexts alone: what that brings is not owed to triggers or perturbations."""

    @property
    def search_runs(self) -> tuple[str, ...]:
        """The searches one by one."""
        return tuple(dict.fromkeys(name.strip() for name in self.searches.split(",") if name.strip()))

    @property
    def place(self) -> str:
        """The folder or the file that holds the model; empty for one that is named otherwise."""
        return weights_of(self.model) if is_local(self.model) else ""

    def require_weights(self) -> None:
        """Checks that the model is named as one whose weights are here.

        Raises:
            ConfigError: it is not.
        """
        if not self.model.startswith((HUGGING_FACE, GGUF)) or not self.place.strip():
            fix = f"--model {HUGGING_FACE}FOLDER or {GGUF}FILE; parley train adversarial hardens Parley's own models"
            raise ConfigError("what is hardened is a Hugging Face model", where="--model", got=repr(self.model), fix=fix)


def lora() -> TrainHardenedConfig:
    """Low-rank adapters of rank 16 in every linear layer (Hu et al. 2021)."""
    return TrainHardenedConfig()


def full() -> TrainHardenedConfig:
    """All weights, for small models; a lower rate."""
    return TrainHardenedConfig(method="full", fit=replace(hardening_recipe(), learning_rate=2e-5))


def demo() -> TrainHardenedConfig:
    """A minute or two with a model of some 100 million weights: a dozen contexts, one epoch."""
    return TrainHardenedConfig(limit=12, max_tokens=12, fit=replace(hardening_recipe(), max_epochs=1))
