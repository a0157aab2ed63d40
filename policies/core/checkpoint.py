"""Checkpoints and training states as safetensors beside JSON, written whole or not at all, and the shared parts of trainings.

A checkpoint is a folder with `weights.safetensors`, `config.json` (kind, format version, sizes, provenance, digests of the
other two files) and `vocabulary.json`. A training state is one safetensors file, so that one rename replaces it; its metadata
holds the counters and a digest of tensors and counters. No pickle.

`ActionScorer` is the network of policies that choose among actions: editors and liars. `engine/core/rllib/reproducible.py`
trains it by reinforcement. The loop of supervised training is `policies/core/fitting/loop.py`; its precision, the test of
divergence and its saved state are here.

Shapes: B examples, A actions, F features.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import init
from torch.optim import Optimizer
from torch.overrides import TorchFunctionMode

from parley.envs.core.config import from_dict
from parley.envs.core.errors import CheckpointError, ConfigError, file_digest, sync
from parley.policies.core.responder import (
    CONFIG,
    DIGESTS,
    FORMAT_VERSION,
    PARTS,
    VOCABULARY,
    WEIGHTS,
    WordsT,
    model_inside,
    read_header,
    read_words,
    reading,
    require_undamaged,
)
from parley.policies.core.settings import ChoiceSizes

_LARGEST_BYTES = 30 << 20
"""Just below the largest block that glibc learns from."""


def keep_freed() -> None:
    """Have glibc keep up to some 60 MiB of freed memory, of blocks of up to 30 MiB; do nothing elsewhere.

    glibc gives back freed memory beyond twice the largest block freed so far (`M_TRIM_THRESHOLD` in `man mallopt`).
    What is then allocated comes a page at a time from the system, which takes longer than most of what is done in it.
    """
    # Nothing is written, so that no page of it is ever allocated.
    torch.empty(_LARGEST_BYTES, dtype=torch.uint8)


@cache
def eager(kind: type[OptimiserT]) -> type[OptimiserT]:
    """Return a kind of torch's optimisers without torch's compiler, whose import takes a second and 70 MiB.

    Torch imports it when an optimiser is made and at each step, to leave both out of compiled graphs. Nothing is compiled here.
    """
    marked = ("add_param_group", "state_dict", "load_state_dict", "zero_grad")
    unmarked = {name: inspect.unwrap(getattr(kind, name)) for name in marked}
    step = torch.no_grad()(inspect.unwrap(kind.step))
    return type(kind.__name__, (kind,), {**unmarked, "step": step})


class ActionScorer(nn.Module):
    """A network that scores actions, each by itself.

    Args:
        num_features: F.
        sizes: widths.
    """

    def __init__(self, num_features: int, sizes: ChoiceSizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.layers = nn.Sequential(nn.Linear(num_features, sizes.hidden), nn.Tanh(), nn.Linear(sizes.hidden, 1))

    def forward(self, seen: Tensor, mask: Tensor) -> Tensor:
        """Return scores of actions; their softmax is the policy.

        Args:
            seen: (B, A, F) float32.
            mask: (B, A), 1 for allowed actions.

        Returns:
            (B, A) float32, what is not allowed at the lowest finite number.
        """
        scores: Tensor = self.layers(seen).squeeze(-1)
        return scores.masked_fill(mask == 0, torch.finfo(scores.dtype).min)

    def draw_weights(self, seed: int) -> None:
        """Draw all weights afresh."""
        generator = torch.Generator().manual_seed(seed)
        for parameter in self.parameters():
            bound = 1 / math.sqrt(parameter.shape[-1])
            nn.init.uniform_(parameter, -bound, bound, generator=generator)


def drawn_actions(scores: Tensor, shares: np.ndarray) -> np.ndarray:
    """Return an action for each row (B,) by the softmax of scores (B, A) and a uniform number (B,)."""
    reached = scores.double().softmax(-1).cumsum(-1).numpy()
    drawn = (reached < shares[:, None] * reached[:, -1:]).sum(1)
    # Rounding may leave a rest behind the last action.
    return np.asarray(drawn.clip(max=reached.shape[1] - 1))


SizesT = TypeVar("SizesT")
ModelT = TypeVar("ModelT", bound=nn.Module)
OptimiserT = TypeVar("OptimiserT", bound=Optimizer)
_COUNTERS, _DIGEST = "counters", "sha256"
"""Keys of the metadata of a training state; states of older versions hold no digest."""


@dataclass(frozen=True)
class Checkpoint(Generic[WordsT]):
    """A stored model.

    Args:
        kind: its kind, such as "negotiator".
        sizes: the keyword arguments that rebuild it.
        provenance: facts on its training: role, data, seed, figures reached.
        vocabulary: its words.
        weights: its parameters by name, on the CPU.
    """

    kind: str
    sizes: dict[str, Any]
    provenance: dict[str, Any]
    vocabulary: WordsT
    weights: dict[str, Tensor]

    def save(self, folder: Path) -> None:
        """Write the checkpoint aside, then put it in place in one rename; an older one is replaced.

        Raises:
            CheckpointError: the folder cannot be written (full disk, no permission).
        """
        aside = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
        try:
            aside.mkdir(parents=True, exist_ok=True)
            save_file({name: value.detach().cpu().contiguous() for name, value in self.weights.items()}, aside / WEIGHTS)
            self.vocabulary.save(aside / VOCABULARY)
            about = {"format": FORMAT_VERSION, "kind": self.kind, "sizes": self.sizes, "provenance": self.provenance}
            digests = {part: file_digest(aside / part) for part in (WEIGHTS, VOCABULARY)}
            (aside / CONFIG).write_text(json.dumps(about | {DIGESTS: digests}, indent=2), encoding="utf-8")
            for part in PARTS:
                sync(aside / part)
            if folder.exists():
                old = folder.with_name(f".{folder.name}.{os.getpid()}.old")
                # A folder left by a killed process with the same id; its content has been replaced since.
                shutil.rmtree(old, ignore_errors=True)
                folder.rename(old)
                try:
                    aside.rename(folder)
                except OSError:
                    old.rename(folder)
                    raise
                shutil.rmtree(old, ignore_errors=True)
            else:
                aside.rename(folder)
            sync(folder.parent)
        except (OSError, SafetensorError) as error:
            shutil.rmtree(aside, ignore_errors=True)
            raise CheckpointError(
                "the checkpoint cannot be written", where=folder, got=str(error), fix="free disk space or choose another folder"
            ) from None

    @staticmethod
    def load(folder: Path, kind: str, words: type[WordsT]) -> Checkpoint[WordsT]:
        """Return the checkpoint in a folder, of the given kind and type of vocabulary.

        Raises:
            CheckpointError: nothing is there, a part is missing or damaged, or it is of another kind or format.
        """
        config = read_header(folder, kind)
        require_undamaged(folder, WEIGHTS, config)
        with reading(folder):
            with safe_open(folder / WEIGHTS, framework="pt") as file:
                weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # safe_open is no mapping
            return Checkpoint(kind, config["sizes"], config["provenance"], read_words(folder, kind, words), weights)


class Uninitialised(TorchFunctionMode):
    """A context in which networks are built without initial weights, because stored ones replace them.

    On the device "meta" torch would load its compiler to draw them, which takes a second of every process.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Skip the fills of torch.nn.init; run all other functions."""
        kwargs = kwargs or {}
        return kwargs.get("tensor") if getattr(func, "__module__", "") == init.__name__ else func(*args, **kwargs)


@dataclass(frozen=True)
class ModelFormat(Generic[WordsT, SizesT, ModelT]):
    """The storage format of the models of one kind.

    Args:
        kind: the kind in their checkpoints.
        words: type of a model's `vocabulary`.
        sizes: type of a model's `sizes`, a dataclass.
        network: builds a model from the two.
    """

    kind: str
    words: type[WordsT]
    sizes: type[SizesT]
    network: Callable[[WordsT, SizesT], ModelT]

    def save(self, model: ModelT, folder: Path, provenance: Mapping[str, Any]) -> None:
        """Write a model as a checkpoint.

        Raises:
            CheckpointError: the folder cannot be written.
        """
        stored: Any = model
        Checkpoint(self.kind, asdict(stored.sizes), dict(provenance), stored.vocabulary, model.state_dict()).save(folder)

    def load(self, folder: Path) -> ModelT:
        """Return the model of a run or checkpoint folder, in evaluation mode, on the CPU.

        Raises:
            CheckpointError: nothing is there, it is damaged or of another kind, or a weight is not a finite number.
        """
        checkpoint = Checkpoint.load(model_inside(folder), self.kind, self.words)
        broken = [name for name, value in checkpoint.weights.items() if not value.isfinite().all()]
        if broken:
            raise CheckpointError(
                "the checkpoint's weights are not all finite numbers",
                where=folder,
                got=f"NaN or infinity in {', '.join(broken)}",
                fix="train it again, at a lower learning rate if it diverged",
            )
        try:
            model = self.network(checkpoint.vocabulary, from_dict(self.sizes, checkpoint.sizes))
            model.load_state_dict(checkpoint.weights)
        except (TypeError, ConfigError, RuntimeError) as error:
            raise CheckpointError(
                "the checkpoint's weights do not fit its sizes", where=folder, got=str(error)[:200], fix="train it again"
            ) from None
        return model.eval()

    def provenance(self, folder: Path) -> dict[str, Any]:
        """Return the provenance of the model in a run or checkpoint folder, without its weights; errors as of `load`."""
        return dict(read_header(model_inside(folder), self.kind)["provenance"])


def save_state(path: Path, tensors: Mapping[str, Tensor], counters: Mapping[str, Any]) -> None:
    """Write a training state whole: tensors by name, and counters (JSON types) in the file's metadata.

    Raises:
        CheckpointError: the file cannot be written; the previous state stays as it was.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        stored = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
        counted = json.dumps(counters)
        save_file(stored, aside, metadata={_COUNTERS: counted, _DIGEST: _state_digest(stored, counted)})
        sync(aside)
        aside.rename(path)
        sync(path.parent)
    except (OSError, SafetensorError) as error:
        aside.unlink(missing_ok=True)
        raise CheckpointError(
            "the training state cannot be written", where=path, got=str(error), fix="free disk space, then resume"
        ) from None


def load_state(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and counters that `save_state` wrote.

    Raises:
        CheckpointError: the file is damaged, or not as it was saved.
    """
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # safe_open is no mapping
            metadata = file.metadata()
        counters, digest = json.loads(metadata[_COUNTERS]), _state_digest(tensors, metadata[_COUNTERS])
    except (OSError, KeyError, TypeError, ValueError, SafetensorError) as error:
        raise _damaged_state(path, str(error)) from None
    if metadata.get(_DIGEST, digest) != digest:
        raise _damaged_state(path, f"SHA-256 {digest[:12]}, and the file says {metadata[_DIGEST][:12]}")
    return tensors, counters


def _damaged_state(path: Path, got: str) -> CheckpointError:
    return CheckpointError("the training state is damaged", where=path, got=got, fix="delete it to start again")


def _state_digest(tensors: Mapping[str, Tensor], counted: str) -> str:
    digest = hashlib.sha256(counted.encode())
    for name, value in sorted(tensors.items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def flatten_optimiser(optimiser: torch.optim.Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return an optimiser's state as named tensors and JSON-typed numbers, for `save_state`."""
    tensors: dict[str, Tensor] = {}
    numbers: dict[str, Any] = {}
    for index, entries in optimiser.state_dict()["state"].items():
        for name, value in entries.items():
            if isinstance(value, Tensor):
                tensors[f"optimiser.{index}.{name}"] = value
            else:
                numbers[f"{index}.{name}"] = value
    return tensors, numbers


def restore_optimiser(optimiser: torch.optim.Optimizer, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
    """Restore the state that `flatten_optimiser` returned; the parameter groups keep their present settings."""
    state: dict[int, dict[str, Any]] = {}
    for key, value in tensors.items():
        if key.startswith("optimiser."):
            _, index, name = key.split(".", 2)
            state.setdefault(int(index), {})[name] = value
    for key, number in numbers.items():
        index, name = key.split(".", 1)
        state.setdefault(int(index), {})[name] = number
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})


DIVERGED = 100.0
"""Loss in nats that no learning model has: guessing costs the logarithm of the number of words."""

Precision = Literal["float32", "bfloat16", "auto"]
Progress = Callable[[int, int, int], None]
"""A function called after each batch with (epoch, batches done, batches in all)."""


def autocast(device: torch.device, precision: Precision) -> torch.autocast:
    """Return a context for matrix products in a precision: only bfloat16 changes them."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bfloat16")


def require_bounded(loss: float, where: str, learning_rate: float, clip: float) -> None:
    """Raise an error if the loss of a training has diverged.

    Args:
        loss: of a batch or of the validation, in nats.
        where: epoch and batch, or validation.
        learning_rate: in force.
        clip: largest norm of a gradient.

    Raises:
        ConfigError: the loss is not a number below `DIVERGED`.
    """
    if not loss < DIVERGED:
        raise ConfigError(
            "the training has diverged",
            where=where,
            got=f"a loss of {loss:g}",
            fix=f"lower learning_rate (now {learning_rate:g}) or clip (now {clip:g})",
        )


def copied_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return a copy of a model's weights."""
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def save_training(
    path: Path, model: nn.Module, best: Mapping[str, Tensor], optimiser: torch.optim.Optimizer, counters: Mapping[str, Any]
) -> None:
    """Write the whole state of a training: weights, the best weights so far, the optimiser and counters (JSON types).

    Raises:
        CheckpointError: the file cannot be written; the previous state stays as it was.
    """
    tensors, numbers = flatten_optimiser(optimiser)
    tensors |= {f"model.{name}": value for name, value in model.state_dict().items()}
    tensors |= {f"best.{name}": value for name, value in best.items()}
    save_state(path, tensors, {**counters, "optimiser": numbers})


@dataclass(frozen=True)
class SavedTraining:
    """The state of a training beside the weights.

    Args:
        best: the best weights so far.
        counters: as they were given.
    """

    best: dict[str, Tensor]
    counters: dict[str, Any]
    _tensors: dict[str, Tensor]

    def restore(self, optimiser: torch.optim.Optimizer) -> None:
        """Restore the optimiser's state; its settings stay."""
        restore_optimiser(optimiser, self._tensors, self.counters["optimiser"])


def load_training(path: Path, model: nn.Module) -> SavedTraining:
    """Return the state that `save_training` wrote; the model takes its weights.

    Raises:
        CheckpointError: the file is damaged.
    """
    tensors, counters = load_state(path)
    model.load_state_dict(_named(tensors, "model."))
    return SavedTraining(_named(tensors, "best."), counters, tensors)


def _named(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
