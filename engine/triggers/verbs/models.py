"""The models of a trigger search: found and checked once by the driver, rebuilt as a victim by every worker.

Parley's own networks travel as their weights: read-only arrays in Ray's object store, which the workers of a machine share.
Hugging Face models, named "hf:FOLDER" or "gguf:FILE", are loaded once by each process that works.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from parley.engine.core.ray.shared import SharedArrays
from parley.engine.core.verbs.checkpoints import require_word_model
from parley.engine.responders.seq2seq import lm_command
from parley.engine.triggers.metrics.hits import T_IN, T_OUT
from parley.engine.triggers.success import SuccessSettings
from parley.engine.triggers.target_pairs import has_prompts
from parley.engine.triggers.verbs.config import HuggingFaceSettings, TriggerConfig, forbidden_texts, is_hugging_face
from parley.envs.core.errors import CheckpointError, ConfigError
from parley.envs.core.storage.copies import fetched_model
from parley.policies.chat.addresses import absolute_address, weights_of

if TYPE_CHECKING:
    from torch import Tensor

    from parley.engine.triggers.hits import Thresholds
    from parley.engine.triggers.scorers.scorer import TextVictim
    from parley.envs.corpora.pairs.vocabulary import PairVocabulary
    from parley.policies.chat.settings import ChatModelSettings
    from parley.policies.chat.verdicts import ChatVerdicts
    from parley.policies.core.checkpoint import ModelFormat
    from parley.policies.hugging_face.judges import HuggingFaceInputModel
    from parley.policies.hugging_face.reply_classifier import ReplyClassifier
    from parley.policies.hugging_face.seq2seq import HuggingFaceSeq2Seq
    from parley.policies.hugging_face.victims import HuggingFaceCausal
    from parley.policies.seq2seq.model import LanguageModel, Seq2Seq


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

        from parley.policies.core.checkpoint import Uninitialised

        with torch.device("meta"), Uninitialised():
            network = self.kind.network(self.vocabulary, self.sizes)
        arrays = self.weights.get() if isinstance(self.weights, SharedArrays) else self.weights
        network.load_state_dict({name: _tensor(array) for name, array in arrays.items()}, assign=True)
        return network.requires_grad_(False).eval().to(device)


@dataclass(eq=False)
class HuggingFaceFolder:
    """Where a Hugging Face model lies, and how it is loaded and asked; a process loads it once.

    Args:
        name: "hf:FOLDER" or "gguf:FILE"; either may be a URI.
        settings: how it is loaded and asked.
        has_prompts: whether its targets come with prompts.
    """

    name: str
    settings: HuggingFaceSettings
    has_prompts: bool = False
    _loaded: HuggingFaceSeq2Seq | HuggingFaceCausal | None = field(default=None, init=False, repr=False)

    def shared(self) -> HuggingFaceFolder:
        """The same for workers, who load the model themselves; what this process has loaded is given back."""
        self._loaded = None
        return HuggingFaceFolder(self.name, self.settings, self.has_prompts)

    def load(self, device: str) -> HuggingFaceSeq2Seq | HuggingFaceCausal:
        """The model, on a device, or spread over several as the settings say.

        Raises:
            ConfigError: the optional extra is not installed, or the template does not fit.
            CheckpointError: the folder holds no model that can be read.
        """
        from parley.policies.hugging_face.models import load_hugging_face
        from parley.policies.hugging_face.slots import template_of
        from parley.policies.hugging_face.tokens import InputRules

        if self._loaded is None:
            asked = self.settings
            forbidden = forbidden_texts(asked.forbidden)
            self._loaded = load_hugging_face(
                self.name,
                asked.length,
                template=template_of(asked.template, has_prompts=self.has_prompts),
                prompt="" if self.has_prompts else None,
                end=asked.end,
                rules=InputRules(typed=asked.typed, alphabet=asked.alphabet, forbidden=forbidden, start=asked.start),
                weights=asked,
            )
        # One that a device map has spread is searched where its embeddings are.
        return self._loaded if self.settings.device_map else self._loaded.to(device)


@dataclass(frozen=True)
class Models:
    """What is searched, and what judges inputs.

    Args:
        victim: the model under test.
        lm: the language model; None without one.
        thresholds: of hits.
        provenance: how the model came about.
        others: Hugging Face models that are searched beside it for one input of all.
    """

    victim: StoredNetwork | HuggingFaceFolder
    lm: StoredNetwork | None
    thresholds: Thresholds
    provenance: Mapping[str, Any]
    others: tuple[HuggingFaceFolder, ...] = ()

    @property
    def limits(self) -> dict[str, float]:
        """The thresholds by name."""
        found = {T_OUT: self.thresholds.t_out, T_IN: self.thresholds.t_in}
        return {name: value for name, value in found.items() if value is not None}

    def shared(self) -> Models:
        """The same with all weights in the object store of the session."""
        others = tuple(other.shared() for other in self.others)
        return replace(self, victim=self.victim.shared(), lm=self.lm.shared() if self.lm else None, others=others)

    def load(self, device: str, *, unknown: bool) -> TextVictim:
        """The model under test, on a device, with its judge.

        Args:
            device: torch device.
            unknown: whether `<unk>` may stand in an input of one of Parley's own networks.
        """
        from parley.engine.triggers.victims import Seq2SeqVictim

        if isinstance(self.victim, HuggingFaceFolder):
            return self.victim.load(device)
        return Seq2SeqVictim(self.victim.build(device), self.lm.build(device) if self.lm else None, unknown=unknown)


def models_of(config: TriggerConfig) -> dict[str, str]:
    """The models of a search by the setting that names each."""
    named = {"model": config.model, "lm": config.judge}
    return {setting: name.partition(":")[2] if is_hugging_face(name) else name for setting, name in named.items()}


def open_models(config: TriggerConfig) -> Models:
    """Reads the models of a search.

    Raises:
        ConfigError: the inputs of a Hugging Face model are to be judged, its package is not installed, or the model is one that
            searches do not know.
        CheckpointError: a checkpoint is not there, damaged, of another kind, holds weights that are no numbers or no threshold,
            or the two have different vocabularies.
    """
    from parley.engine.triggers.hits import Thresholds
    from parley.policies.seq2seq.checkpoints import LANGUAGE_MODEL, SEQ2SEQ, load_language_model, load_seq2seq, threshold

    if config.is_hugging_face:
        return _hugging_face(config)
    if has_prompts(config.targets):
        fix = "name a Hugging Face model, or a file with one sentence a line"
        raise ConfigError("targets with prompts need a model that reads prompts", got=config.model, fix=fix)
    model, lm, t_out, t_in = config.model, config.lm, config.objective.t_out, config.objective.t_in
    folder = require_word_model(model, "--model", "parley train seq2seq")
    victim = _stored(searchable(load_seq2seq(folder), model), SEQ2SEQ)
    provenance = SEQ2SEQ.provenance(folder)
    judge = None
    if lm:
        lm_folder = require_word_model(lm, "--lm", "parley train lm")
        judge = _stored(load_language_model(lm_folder), LANGUAGE_MODEL)
        if judge.vocabulary.digest != victim.vocabulary.digest:
            raise CheckpointError(
                "--model and --lm have different vocabularies",
                where=f"{model} and {lm}",
                got=" and ".join(f"{len(each)} words ({each.digest})" for each in (victim.vocabulary, judge.vocabulary)),
                fix=_judge_fix(victim, provenance, config.data_root),
            )
        t_in = threshold(lm_folder, LANGUAGE_MODEL) if t_in is None else t_in
    t_out = threshold(folder, SEQ2SEQ) if t_out is None else t_out
    return Models(victim, judge, Thresholds(t_out=t_out, t_in=t_in if lm else None), provenance)


def open_together(config: TriggerConfig, names: Sequence[str]) -> Models:
    """Reads Hugging Face models that are searched for one input of all.

    Args:
        config: the search.
        names: of the models; the first has the thresholds, and is what judges itself.

    Raises:
        ConfigError: one is not causal.
        CheckpointError: as of `open_models`.
    """
    from parley.policies.hugging_face.victims import HuggingFaceCausal

    models = open_models(replace(config, model=names[0]))
    others = tuple(HuggingFaceFolder(name, config.hugging_face, has_prompts(config.targets)) for name in names[1:])
    for other in others:
        if not isinstance(other.load("cpu"), HuggingFaceCausal):
            raise ConfigError("only a causal model reads prompts", where=other.name, fix="name a causal one")
    return replace(models, others=others)


def searchable(model: Seq2Seq, name: str) -> Seq2Seq:
    """The model, whose inputs searches can score.

    Raises:
        ConfigError: it is one with input feeding, or a backward one; `name` is what the message calls it.
    """
    if not (model.sizes.input_feeding or model.sizes.backward):
        return model
    got = "a backward model" if model.sizes.backward else "a model with input feeding"
    raise ConfigError(
        "searches know models of one layer without input feeding that answer sources",
        where=name,
        got=got,
        fix="name a run of parley train seq2seq with sizes.input_feeding=false and without --backward",
    )


def _judge_fix(victim: StoredNetwork, provenance: Mapping[str, Any], data_root: Path | None) -> str:
    """How to come by a language model over a model's words."""
    corpus, vocabulary = provenance.get("corpus"), provenance.get("vocabulary")
    if isinstance(corpus, str) and isinstance(vocabulary, int):
        return f"{lm_command(corpus, vocabulary, victim.sizes, data_root)} --run RUN, then --lm RUN"
    return "use models trained on the same corpus, with as many words and turns of context"


def _hugging_face(config: TriggerConfig) -> Models:
    from parley.engine.triggers.verbs.measured import measured_thresholds

    folder = HuggingFaceFolder(config.model, config.hugging_face, has_prompts(config.targets))
    # What is wrong with it is said before a run is made.
    victim = folder.load("cpu")
    if victim.rules.start:
        # So is a start that does not fit.
        _ = victim.start_ids
    classifier(config.success)
    # A question without a place for a reply, a judge that is not there.
    chat_judge(config.success, config.chat.on("cpu"))
    return Models(folder, None, measured_thresholds(victim, input_model(config, victim), config), {})


def input_model(config: TriggerConfig, victim: HuggingFaceSeq2Seq | HuggingFaceCausal) -> HuggingFaceInputModel | None:
    """What judges the inputs of a Hugging Face model: itself, or another one with the same tokens; None where nothing does.

    Raises:
        ConfigError: it is no such model, or has other tokens.
        CheckpointError: there is none.
    """
    from parley.policies.hugging_face.judges import HuggingFaceInputModel
    from parley.policies.hugging_face.models import read_model

    if not config.lm:
        return None
    if config.judge == config.model:
        judge = HuggingFaceInputModel(victim.model, victim.tokenizer)
    else:
        tokenizer, model = read_model(config.judge, config.hugging_face, str(victim.embedding_VE.device))
        judge = HuggingFaceInputModel(model, tokenizer)
    judge.require_same_tokens(victim.tokenizer, len(victim.embedding_VE))
    return judge


def classifier(config: SuccessSettings, device: str = "cpu") -> ReplyClassifier | None:
    """What judges replies; None where no classifier does.

    Raises:
        ConfigError: its package is not installed, or it has no such label.
        CheckpointError: there is no classifier.
    """
    from parley.policies.hugging_face.reply_classifier import load_reply_classifier

    if not config.classifier:
        return None
    return load_reply_classifier(fetched_model(weights_of(absolute_address(config.classifier))), config.label, device)


def chat_judge(config: SuccessSettings, chat: ChatModelSettings, answers: Path | None = None) -> ChatVerdicts | None:
    """The chat model that judges replies; None where none does.

    Args:
        config: names it.
        chat: how it is loaded or asked.
        answers: folder of a run in which its answers are kept; None keeps none.

    Raises:
        ConfigError: no chat model is called so, or its question has no place for a reply.
        CheckpointError: no model is there.
        DataError: the question cannot be read.
    """
    from parley.policies.chat.loading import load_chat_model
    from parley.policies.chat.verdicts import ChatVerdicts, read_question

    if not config.judge:
        return None
    question = read_question(Path(config.question)) if config.question else ""
    model = load_chat_model(absolute_address(config.judge), chat, answers=answers)
    return ChatVerdicts(model, question, chat.judge_tokens)


def _stored(network: Seq2Seq | LanguageModel, kind: ModelFormat[PairVocabulary, Any, Any]) -> StoredNetwork:
    weights = {name: value.numpy() for name, value in network.state_dict().items()}
    return StoredNetwork(kind, network.vocabulary, network.sizes, weights)


def _tensor(array: np.ndarray) -> Tensor:
    import torch

    with warnings.catch_warnings():
        # torch warns of arrays that cannot be written; nothing here writes weights.
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(array)
