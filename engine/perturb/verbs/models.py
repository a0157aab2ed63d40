"""The models of an evaluation under perturbations: found and checked once by the driver, loaded by every worker.

Models travel as names: a checkpoint is memory-mapped by whoever loads it, and a model of a user's own is a file of Python.
On a cluster both must lie under the same paths on every machine.
"""

from __future__ import annotations

import json
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from parley.engine.core.verbs.checkpoints import absolute_name, located, require_checkpoint
from parley.engine.perturb import catalogue
from parley.engine.perturb.metrics.robustness import BASE, BESIDE
from parley.engine.perturb.metrics.table_9 import ModelSize
from parley.engine.perturb.verbs.config import RobustnessConfig
from parley.engine.perturb.verbs.lessons import NONE
from parley.envs.core.errors import CheckpointError, ConfigError
from parley.envs.core.storage.uris import display_path
from parley.envs.corpora.pairs.turns import EOT
from parley.envs.corpora.pairs.vocabulary import SPECIALS, PairVocabulary
from parley.policies.core.decoders import GREEDY, DecoderSettings
from parley.policies.core.responder import require_decoder
from parley.policies.core.stored import stored_kind

if TYPE_CHECKING:
    from parley.policies.core.responder import TrainableResponder

ADVERSARIAL = "adversarial"
"""Role in the provenance of models that were trained against perturbations."""
RERANKED = "reranking"
"""Role in the provenance of models that were rewarded for replies that other contexts would not call forth."""
OWN_TURNS = 2
"""Turns of context of a model of a user's own that does not say how many it reads; the paper's number."""
NUM_COMMON = 1000
"""Words that random inputs are drawn from."""


@dataclass(frozen=True)
class AskedModel:
    """One model that is asked.

    Args:
        label: "base", "beside", or what it was trained against.
        name: its checkpoint folder, hf:FOLDER or path/file.py:Name, absolute.
        against: strategies that it was trained against; empty for the base.
    """

    label: str
    name: str
    against: tuple[str, ...] = ()

    def meets(self, strategy: str) -> bool:
        """Whether it is asked about contexts of a strategy: the base, what stands beside it and the control about all."""
        return self.label in (BASE, BESIDE, NONE) or strategy in self.against


@dataclass(frozen=True)
class AskedModels:
    """What is asked, and what contexts may be made of.

    Args:
        models: the base first.
        turns: of context that the base reads.
        vocabulary: of the base; None for a model that is not Parley's own.
        corpus: that the base was fitted to; empty when it does not say.
        decoder: how they choose their replies.
        sizes: of the base and what stands beside it, by label; empty where nothing does.
    """

    models: tuple[AskedModel, ...]
    turns: int
    vocabulary: PairVocabulary | None
    corpus: str
    decoder: DecoderSettings = GREEDY
    sizes: Mapping[str, ModelSize] = field(default_factory=dict)

    @property
    def words(self) -> Container[str] | None:
        """Words that may enter a context; None lets every word enter."""
        return None if self.vocabulary is None else admitted(self.vocabulary)

    def common(self, corpus: PairVocabulary) -> tuple[str, ...]:
        """Words that random inputs are drawn from, most frequent first: the base's, or those of a corpus."""
        return usual_words(corpus if self.vocabulary is None else self.vocabulary, corpus)


def plain_words(vocabulary: PairVocabulary) -> tuple[str, ...]:
    """The words of a vocabulary of words that people say, most frequent first."""
    return tuple(word for word in vocabulary.words if word not in (*SPECIALS, EOT))


def admitted(vocabulary: PairVocabulary) -> Container[str]:
    """The words that a model knows, or, of a model of pieces, what tells which words it can spell."""
    return frozenset(plain_words(vocabulary)) if vocabulary.merges is None else vocabulary


def usual_words(vocabulary: PairVocabulary, corpus: PairVocabulary) -> tuple[str, ...]:
    """The most frequent words, at most `NUM_COMMON`, of a model, or of its corpus where it reads pieces."""
    return plain_words(vocabulary if vocabulary.merges is None else corpus)[:NUM_COMMON]


def open_models(config: RobustnessConfig) -> AskedModels:
    """Finds the models and makes sure that they can be asked the same.

    Raises:
        ConfigError: two trained models were trained against the same, the base is a user's own, or it does not know the
            decoder.
        CheckpointError: a model is not there, damaged, of another kind, of another vocabulary, or trained was not what it is
            said to be.
    """
    from parley.policies.core.responders import load_responder

    decoder = located(DecoderSettings.parse(config.decoder))
    if not config.is_ours:
        if config.trained or config.beside:
            fix = "leave out --trained and --beside, or name the run of a model that parley train seq2seq or vhred made"
            raise ConfigError("a model that is not Parley's has no others beside it", got=config.model, fix=fix)
        base = AskedModel(BASE, absolute_name(config.model))
        own = load_responder(base.name, config.chat.on(config.device))
        require_decoder(own, decoder, config.model)
        return AskedModels((base,), getattr(own, "turns", OWN_TURNS), None, "", decoder)
    folder = require_checkpoint(config.model, "--model", "parley train seq2seq").absolute()
    responder = cast("TrainableResponder", load_responder(folder))
    require_decoder(responder, decoder, config.model)
    turns = responder.turns
    vocabulary = PairVocabulary.load(folder / "vocabulary.json")
    found = [AskedModel(BASE, display_path(folder))]
    sizes = {}
    if config.beside:
        other = require_checkpoint(config.beside, "--beside", "parley train seq2seq").absolute()
        found.append(AskedModel(BESIDE, display_path(other)))
        second = cast("TrainableResponder", load_responder(other))
        require_decoder(second, decoder, config.beside)
        sizes = {BASE: _size(folder, responder), BESIDE: _size(other, second)}
    for name in config.trained_folders:
        found.append(_trained(name, config.model, vocabulary))
        # Loaded once here, so that what is wrong with it is told before a run is made.
        load_responder(found[-1].name)
    labels = [model.label for model in found]
    for label in labels:
        if labels.count(label) > 1:
            fix = "name one of them; evaluate the other in a run of its own"
            raise ConfigError("two models of --trained were trained against the same", got=label, fix=fix)
    corpus = provenance(folder).get("corpus")
    return AskedModels(tuple(found), turns, vocabulary, corpus if isinstance(corpus, str) else "", decoder, sizes)


def _size(folder: Path, responder: TrainableResponder) -> ModelSize:
    vocabulary = cast("PairVocabulary", responder.model.vocabulary)
    num_parameters = sum(part.numel() for part in responder.model.parameters())
    return ModelSize(stored_kind(folder), "words" if vocabulary.merges is None else "pieces", len(vocabulary), num_parameters)


def models_of(config: RobustnessConfig) -> dict[str, str]:
    """The models of an evaluation by the setting that names each; the paraphraser is one as well."""
    trained = {f"trained {folder}": folder for folder in config.trained_folders}
    paraphraser = config.perturb.paraphraser
    asked = {f"decoder {option}": name for option, name in DecoderSettings.parse(config.decoder).models.items()}
    named = {"model": config.model} | ({"beside": config.beside} if config.beside else {})
    return {**named, **trained, **asked, "perturb.paraphraser": "" if paraphraser is None else str(paraphraser)}


def provenance(folder: Path) -> Mapping[str, Any]:
    """How the model of a checkpoint folder, which was read before, came about."""
    origin: Mapping[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))["provenance"]
    return origin


def _trained(name: str, base: str, vocabulary: PairVocabulary) -> AskedModel:
    folder = require_checkpoint(name, "--trained", "parley train adversarial")
    words = PairVocabulary.load(folder / "vocabulary.json")
    if words.digest != vocabulary.digest:
        raise CheckpointError(
            "a model of --trained did not begin with --model: their vocabularies differ",
            where=f"{name} and {base}",
            got=f"{len(words)} words ({words.digest}) and {len(vocabulary)} words ({vocabulary.digest})",
            fix=f"parley train adversarial --model {base} makes one that did",
        )
    about = provenance(folder)
    if about.get("role") != ADVERSARIAL or not about.get("strategies"):
        raise CheckpointError(
            "a model of --trained was not trained against perturbations",
            where=name,
            got=f"role {about.get('role')!r}",
            fix=f"parley train adversarial --model {base} makes one",
        )
    against = tuple(map(str, about["strategies"]))
    return AskedModel(label_of(against), display_path(folder.absolute()), against)


def label_of(against: Sequence[str]) -> str:
    """What a model is called that was trained against some strategies: the strategy, their group, or all of them."""
    for group, members in catalogue.GROUPS.items():
        if len(against) > 1 and set(members) == set(against):
            return group
    return "+".join(against)
