"""The models of a trigger search: found and checked once by the driver, rebuilt by every worker.

Parley's own networks travel as their weights: read-only arrays in Ray's object store, which the workers of a machine share.
Hugging Face models, named "hf:FOLDER", are loaded by each worker.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.jobs.checkpoints import require_checkpoint
from engine.jobs.responders.seq2seq import lm_command
from engine.jobs.triggers.config import TriggerConfig
from engine.jobs.triggers.subjects import HuggingFaceFolder, HuggingFaceSubject, NetworkSubject, Subject
from engine.metrics.triggers.hits import T_IN, T_OUT
from engine.runtime.shared import SharedArrays
from envs.core.errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    from torch import Tensor

    from engine.triggers.hits import Thresholds
    from envs.pairs.vocabulary import PairVocabulary
    from policies.checkpoint import ModelFormat
    from policies.seq2seq.model import LanguageModel, Seq2Seq

HUGGING_FACE = "hf:"
"""What the name of a Hugging Face model begins with; its folder follows."""


@dataclass(frozen=True)
class StoredNetwork:
    """A network as workers get it.

    Args:
        kind: how it is stored and built.
        vocabulary: its words.
        sizes: its widths.
        weights: by name.
    """

    kind: ModelFormat[PairVocabulary, Any, Any]
    vocabulary: PairVocabulary
    sizes: Any
    weights: Mapping[str, np.ndarray] | SharedArrays

    def shared(self) -> StoredNetwork:
        """The same with its weights in the object store of the session."""
        assert not isinstance(self.weights, SharedArrays), "the weights are shared already"
        return replace(self, weights=SharedArrays.put(self.weights))

    def build(self, device: str) -> Any:
        """The network; on a CPU its weights are the stored ones, not a copy."""
        import torch

        with torch.device("meta"):
            network = self.kind.network(self.vocabulary, self.sizes)
        arrays = self.weights.get() if isinstance(self.weights, SharedArrays) else self.weights
        network.load_state_dict({name: _tensor(array) for name, array in arrays.items()}, assign=True)
        return network.requires_grad_(False).eval().to(device)


@dataclass(frozen=True)
class Models:
    """What is searched, and what judges inputs.

    Args:
        network: the model.
        lm: the language model; None without one.
        thresholds: of hits.
        provenance: how the model came about.
    """

    network: StoredNetwork | HuggingFaceFolder
    lm: StoredNetwork | None
    thresholds: Thresholds
    provenance: Mapping[str, Any]

    @property
    def limits(self) -> dict[str, float]:
        """The thresholds by name."""
        found = {T_OUT: self.thresholds.t_out, T_IN: self.thresholds.t_in}
        return {name: value for name, value in found.items() if value is not None}

    def shared(self) -> Models:
        """The same with all weights in the object store of the session."""
        network = self.network.shared() if isinstance(self.network, StoredNetwork) else self.network
        return replace(self, network=network, lm=self.lm.shared() if self.lm else None)

    def subject(self, device: str, *, unknown: bool) -> Subject:
        """The searched model, on a device.

        Args:
            device: torch device.
            unknown: whether `<unk>` may stand in an input of one of Parley's own networks.
        """
        built = self.network.build(device)
        if isinstance(self.network, HuggingFaceFolder):
            return HuggingFaceSubject(built)
        return NetworkSubject(built, self.lm.build(device) if self.lm else None, unknown)


def models_of(config: TriggerConfig) -> dict[str, str]:
    """The models of a search by the setting that names each."""
    return {"model": config.model.removeprefix(HUGGING_FACE), "lm": config.lm}


def open_models(config: TriggerConfig) -> Models:
    """Reads the models of a search.

    Raises:
        ConfigError: the inputs of a Hugging Face model are to be judged, or its package is not installed.
        CheckpointError: a checkpoint is not there, damaged, of another kind, holds weights that are no numbers or no threshold,
            or the two have different vocabularies.
    """
    from engine.triggers.hits import Thresholds
    from policies.seq2seq.checkpoints import LANGUAGE_MODEL, SEQ2SEQ, load_language_model, load_seq2seq, threshold

    if config.model.startswith(HUGGING_FACE):
        return _hugging_face(config)
    model, lm, t_out, t_in = config.model, config.lm, config.objective.t_out, config.objective.t_in
    folder = require_checkpoint(model, "--model", "parley train seq2seq")
    network = _stored(load_seq2seq(folder), SEQ2SEQ)
    provenance = SEQ2SEQ.provenance(folder)
    judge = None
    if lm:
        lm_folder = require_checkpoint(lm, "--lm", "parley train lm")
        judge = _stored(load_language_model(lm_folder), LANGUAGE_MODEL)
        if judge.vocabulary.digest != network.vocabulary.digest:
            raise CheckpointError(
                "--model and --lm have different vocabularies",
                where=f"{model} and {lm}",
                got=" and ".join(f"{len(each)} words ({each.digest})" for each in (network.vocabulary, judge.vocabulary)),
                fix=_judge_fix(network, provenance, config.data_root),
            )
        t_in = threshold(lm_folder, LANGUAGE_MODEL) if t_in is None else t_in
    t_out = threshold(folder, SEQ2SEQ) if t_out is None else t_out
    return Models(network, judge, Thresholds(t_out=t_out, t_in=t_in if lm else None), provenance)


def _judge_fix(network: StoredNetwork, provenance: Mapping[str, Any], data_root: Path | None) -> str:
    """How to come by a language model over a network's words."""
    corpus, vocabulary = provenance.get("corpus"), provenance.get("vocabulary")
    if isinstance(corpus, str) and isinstance(vocabulary, int):
        return f"{lm_command(corpus, vocabulary, network.sizes, data_root)} --run RUN, then --lm RUN"
    return "use models trained on the same corpus, with as many words and turns of context"


def _hugging_face(config: TriggerConfig) -> Models:
    from engine.triggers.hits import HitType, Thresholds

    settings = config.hugging_face
    folder = HuggingFaceFolder(config.model.removeprefix(HUGGING_FACE), settings.length, settings.template)
    if config.lm or HitType.parse(config.hit).limits_input:
        raise ConfigError(
            "no language model of ours has the tokens of a Hugging Face model, so its inputs cannot be judged",
            got=f"--hit {config.hit}, --lm {config.lm!r}",
            fix="leave out --lm and take --hit o-greedy or one of o-sample-min-k1, o-sample-avg-k1, ...",
        )
    # Loaded once here, so that what is wrong with it is told before a run is made.
    folder.build("cpu")
    return Models(folder, None, Thresholds(t_out=config.objective.t_out), {})


def _stored(network: Seq2Seq | LanguageModel, kind: ModelFormat[PairVocabulary, Any, Any]) -> StoredNetwork:
    weights = {name: value.numpy() for name, value in network.state_dict().items()}
    return StoredNetwork(kind, network.vocabulary, network.sizes, weights)


def _tensor(array: np.ndarray) -> Tensor:
    import torch

    with warnings.catch_warnings():
        # torch warns of arrays that cannot be written; nothing here writes weights.
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(array)
