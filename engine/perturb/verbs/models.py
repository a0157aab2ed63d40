"""The models of an evaluation under perturbations, perturbed contexts, and perturbed examples for training.

The driver finds and checks models once, and every worker loads them by name: a checkpoint is memory-mapped, and a model of a
user's own is a file of Python. On a cluster both must lie under the same paths on every machine.

The draws of a strategy for an example are keyed by the seed, the strategy and the example, so an audit reads the very contexts
that an evaluation of the same seed asks models about.

Each training example is perturbed by one of the strategies. Choices:
  * # Paper: silent about how strategies are mixed. Ours: each example meets one of them, drawn by its key.
  * # Released: perturbed afresh in every epoch. Ours: once, from a seed of the example, because a tagger costs more than a
    step of training; `random-swap` alone would be cheap.
  * An example that its strategy cannot change is learned as it is, and counted.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from parley.engine.core.ray.worker import Shard
from parley.engine.core.runs.remote_sync import fetched_run
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.checkpoints import absolute_name, located, require_checkpoint, weights_digests
from parley.engine.core.verbs.job import Reporter, drawn
from parley.engine.perturb import catalogue
from parley.engine.perturb.catalogue import Resources
from parley.engine.perturb.metrics.table import BASE, BESIDE, ModelSize
from parley.engine.perturb.strategy import CONTROL, RANDOM_WORDS, Expectation, Strategy
from parley.engine.perturb.verbs.config import PerturbedConfig, RobustnessConfig
from parley.envs.core.errors import CheckpointError, ConfigError, DataError
from parley.envs.core.seeds import derive_seed, stream
from parley.envs.core.storage.uris import HUGGING_FACE, display_path
from parley.envs.corpora.pairs.compiled import PairCorpus, load_pairs
from parley.envs.corpora.pairs.contexts import OWN_TURNS, examples
from parley.envs.corpora.pairs.turns import EOT, Example, Turn, Turns
from parley.envs.corpora.pairs.vocabulary import SPECIALS, PairVocabulary
from parley.policies.chat.addresses import absolute_address, is_local, weights_of
from parley.policies.core.responder import GREEDY, DecoderSettings, require_decoder, stored_kind

if TYPE_CHECKING:
    from parley.policies.core.margin import AdversarialExample
    from parley.policies.core.responder import TrainableResponder


def perturbation_seed(seed: int, strategy: str, key: str) -> int:
    """Return the seed of a strategy on an example, derived from the master seed; its control has the same."""
    return derive_seed(seed, "perturb", strategy.removesuffix(RANDOM_WORDS), key)


def perturbed_contexts(strategy: Strategy, shard: Shard[Example], seed: int) -> list[Turns]:
    """Perturb the contexts of a shard by a strategy, in their order; `seed` is the master seed."""
    contexts = [example.context for example in shard.items]
    return strategy.perturb(contexts, [perturbation_seed(seed, strategy.name, key) for key in shard.keys])


def report_left_out(config: PerturbedConfig, reporter: Reporter) -> None:
    """Report which strategies of a group are left out, and that the built-in lexicon is used."""
    for name in config.left_out:
        reporter.say(f"{name} is left out: it needs a paraphraser (--set perturb.paraphraser=RUN of parley train paraphraser)")
    if config.perturb.lexicon == "built-in":
        from parley.engine.perturb.lexicon.built_in import ANNOUNCEMENT

        reporter.say(ANNOUNCEMENT)


def build_and_run_once(config: PerturbedConfig, shared: Resources, example: Example) -> list[Strategy]:
    """Build the strategies and run each once, because lexicons and networks open at first use.

    Raises:
        ConfigError: two of them bear the same name, there is none of a name, or one needs a setting that is not given.
        DataError: data that one needs are missing.
    """
    strategies = catalogue.build(config.strategy_names, config.perturb, shared)
    names = [strategy.name for strategy in strategies]
    if len(set(names)) < len(names):
        raise ConfigError("two strategies bear the same name", got=", ".join(names), fix="rename yours, or name one of them")
    for strategy in strategies:
        perturbed_contexts(strategy, Shard("", (example.key,), (example,)), config.seed)
    return strategies


def chosen_examples(config: PerturbedConfig, name: str, turns: int, reporter: Reporter) -> tuple[list[Example], PairCorpus]:
    """Return the examples of a corpus, at least one, and the corpus with every word.

    Args:
        config: which of them, its data root found.
        name: of the corpus.
        turns: the most turns of a context.
        reporter: of shorter contexts.

    Raises:
        DataError: the corpus cannot be read, or has no example.
    """
    corpus = load_pairs(name, config.data_root, every_word=True)
    candidates = examples(corpus, config.split, turns, config.contexts.min_turns)
    if not len(candidates):
        raise DataError(
            f"the {config.split} split has no example with a context of {config.contexts.min_turns} turns or more",
            where=name,
            got=f"{len(corpus.splits[config.split]):,} pairs",
            fix="name another --split or --corpus, or lower contexts.min_turns",
        )
    chosen = drawn(candidates, config.limit, config.seed, name)
    if turns > 1 and all(len(example.context) == 1 for example in chosen):
        reporter.say(f"the dialogues of {name} have one turn of context; {turns} could be read")
    return chosen, corpus


def recorded_replies(config: RobustnessConfig) -> list[Turn]:
    """Return the distinct replies of all splits of a corpus, which a retrieval bot answers with."""
    corpus = load_pairs(config.corpus, config.data_root, every_word=True)
    return list(dict.fromkeys(example.reply for split in corpus.splits for example in examples(corpus, split, 1, 1)))


RANDOM_SOURCE = "random-source"
"""The sanity check: contrasts that are contexts of other examples, drawn at random."""
NONE = CONTROL
"""The control: as many steps on contexts as they were recorded."""
_BLOCK = 256


@dataclass(frozen=True)
class AdversarialSplit:
    """A perturbed split, grouped by strategy.

    Args:
        should_not_change: replies to be learned from perturbed contexts.
        should_change: replies to be learned from recorded contexts, with contrasts where there is one.
        met: examples by the strategy that they met.
        unchanged: those of them that it could not change.
        retained: for each example of `should_not_change` its unit.
        contrasted: for each example of `should_change` with a contrast its unit.
    """

    should_not_change: Sequence[AdversarialExample]
    should_change: Sequence[AdversarialExample]
    met: Counter[str]
    unchanged: Counter[str]
    retained: Sequence[str]
    contrasted: Sequence[str]

    @property
    def examples(self) -> Sequence[AdversarialExample]:
        """Return the examples of both kinds."""
        return [*self.should_not_change, *self.should_change]


class RandomSource:
    """Contexts of other examples, drawn uniformly; how long they are and where turns end is not kept.

    Args:
        contexts: to draw from.
    """

    name = RANDOM_SOURCE
    expectation = Expectation.SHOULD_CHANGE

    def __init__(self, contexts: Sequence[Turns]) -> None:
        self._contexts = contexts

    def perturb(self, contexts: Sequence[Turns], seeds: Sequence[int]) -> list[Turns]:
        """Draw as many contexts."""
        return [self._contexts[int(stream(seed, self.name).integers(len(self._contexts)))] for seed in seeds]


class AsRecorded:
    """Contexts as they are."""

    name = NONE
    expectation = Expectation.SHOULD_NOT_CHANGE

    def perturb(self, contexts: Sequence[Turns], seeds: Sequence[int]) -> list[Turns]:
        """Return the contexts unchanged."""
        return list(contexts)


def make_adversarial_split(
    examples: Sequence[Example], strategies: Sequence[Strategy], seed: int, reporter: Reporter, title: str
) -> AdversarialSplit:
    """Perturb the examples of a split.

    Args:
        examples: of the split.
        strategies: that may be met.
        seed: master seed.
        reporter: of the progress.
        title: of the stage.
    """
    from parley.policies.core.margin import AdversarialExample

    drawn = [int(stream(seed, "strategy", example.key).integers(len(strategies))) for example in examples]
    met: Counter[str] = Counter()
    unchanged: Counter[str] = Counter()
    should_not_change: list[AdversarialExample] = []
    should_change: list[AdversarialExample] = []
    retained: list[str] = []
    contrasted: list[str] = []
    reporter.stage(title, len(examples), "examples")
    done = 0
    for number, strategy in enumerate(strategies):
        of_strategy = [example for example, choice in zip(examples, drawn, strict=True) if choice == number]
        for start in range(0, len(of_strategy), _BLOCK):
            block = of_strategy[start : start + _BLOCK]
            seeds = [perturbation_seed(seed, strategy.name, example.key) for example in block]
            for example, context in zip(block, strategy.perturb([other.context for other in block], seeds), strict=True):
                is_changed = context != example.context
                unchanged[strategy.name] += not is_changed
                if strategy.expectation is Expectation.SHOULD_NOT_CHANGE:
                    should_not_change.append(AdversarialExample(context, example.reply))
                    retained.append(example.unit)
                else:
                    should_change.append(AdversarialExample(example.context, example.reply, context if is_changed else None))
                    contrasted += [example.unit] * is_changed
            done += len(block)
            reporter.advance(done)
        met[strategy.name] += len(of_strategy)
    return AdversarialSplit(should_not_change, should_change, met, unchanged, retained, contrasted)


ADVERSARIAL = "adversarial"
"""Role in the provenance of models that were trained against perturbations."""
HARDENED_JOB = "train-hardened"
"""The job whose runs hold models that were trained against perturbations, of local chat models."""
RERANKED = "reranking"
"""Role in the provenance of models that were rewarded for replies that other contexts would not call forth."""
NUM_COMMON = 1000
"""Words that random inputs are drawn from."""


@dataclass(frozen=True)
class ModelSpec:
    """A model of the evaluation.

    Args:
        label: "base", "beside", or what it was trained against.
        name: its checkpoint folder, hf:FOLDER or path/file.py:Name, absolute.
        against: strategies that it was trained against; empty for the base.
    """

    label: str
    name: str
    against: tuple[str, ...] = ()

    def meets(self, strategy: str) -> bool:
        """Return whether it reads contexts of a strategy: the base, the model beside it and the control read all."""
        return self.label in (BASE, BESIDE, NONE) or strategy in self.against


@dataclass(frozen=True)
class ModelSpecs:
    """The models of the evaluation, with what they share.

    Args:
        models: the base first.
        turns: of context that the base reads.
        vocabulary: of the base; None for a model that is not Parley's own.
        corpus: that the base was fitted to; empty when it does not say.
        decoder: how they choose their replies.
        sizes: of the base and of the model beside it, by label; empty without one.
        is_encoder: whether the base is an encoder of Hugging Face, whose reply is right or wrong.
    """

    models: tuple[ModelSpec, ...]
    turns: int
    vocabulary: PairVocabulary | None
    corpus: str
    decoder: DecoderSettings = GREEDY
    sizes: Mapping[str, ModelSize] = field(default_factory=dict)
    is_encoder: bool = False

    @property
    def words(self) -> Container[str] | None:
        """Words that may enter a context; None lets every word enter."""
        return None if self.vocabulary is None else admitted(self.vocabulary)

    def common(self, corpus: PairVocabulary) -> tuple[str, ...]:
        """Words that random inputs are drawn from, most frequent first: the base's, or those of a corpus."""
        return usual_words(corpus if self.vocabulary is None else self.vocabulary, corpus)


def plain_words(vocabulary: PairVocabulary) -> tuple[str, ...]:
    """Return the words of a vocabulary without special ones, most frequent first."""
    return tuple(word for word in vocabulary.words if word not in (*SPECIALS, EOT))


def admitted(vocabulary: PairVocabulary) -> Container[str]:
    """Return the words that a model knows; for a model of pieces, its vocabulary, which tells what it can spell."""
    return frozenset(plain_words(vocabulary)) if vocabulary.merges is None else vocabulary


def usual_words(vocabulary: PairVocabulary, corpus: PairVocabulary) -> tuple[str, ...]:
    """Return the most frequent words, at most `NUM_COMMON`, of a model; of its corpus where it reads pieces."""
    return plain_words(vocabulary if vocabulary.merges is None else corpus)[:NUM_COMMON]


def open_models(config: RobustnessConfig) -> ModelSpecs:
    """Open the models and check that they can answer the same contexts.

    Raises:
        ConfigError: two trained models were trained against the same, the base is a user's own, or it does not know the
            decoder.
        CheckpointError: a model is not there, damaged, of another kind, of another vocabulary, or trained was not what it is
            said to be.
    """
    from parley.policies.core.responders import is_encoder, load_responder

    decoder = located(DecoderSettings.parse(config.decoder))
    if not config.is_ours:
        if config.beside or (config.trained and not is_local(config.model)):
            fix = "leave out --trained and --beside, or name the run of a model that parley train seq2seq or vhred made"
            raise ConfigError("a model that is not Parley's has no others beside it", got=config.model, fix=fix)
        base = ModelSpec(BASE, absolute_name(config.model))
        chat_specs = [base, *(_hardened(name, base.name) for name in config.trained_folders)]
        _require_other_labels(chat_specs)
        model = load_responder(base.name, config.chat.on(config.device))
        require_decoder(model, decoder, config.model)
        turns = getattr(model, "turns", OWN_TURNS)
        return ModelSpecs(tuple(chat_specs), turns, None, "", decoder, is_encoder=is_encoder(base.name))
    maker = "rankers that count words, such as tfidf, are not taken; parley train seq2seq"
    folder = require_checkpoint(config.model, "--model", maker).absolute()
    responder = cast("TrainableResponder", load_responder(folder))
    require_decoder(responder, decoder, config.model)
    turns = responder.turns
    vocabulary = PairVocabulary.load(folder / "vocabulary.json")
    specs = [ModelSpec(BASE, display_path(folder))]
    sizes = {}
    if config.beside:
        other = require_checkpoint(config.beside, "--beside", "parley train seq2seq").absolute()
        specs.append(ModelSpec(BESIDE, display_path(other)))
        second = cast("TrainableResponder", load_responder(other))
        require_decoder(second, decoder, config.beside)
        sizes = {BASE: _size(folder, responder), BESIDE: _size(other, second)}
    for name in config.trained_folders:
        specs.append(_trained(name, config.model, vocabulary))
        # Loaded once here, so that a broken model is an error before a run is made.
        load_responder(specs[-1].name)
    _require_other_labels(specs)
    corpus = provenance(folder).get("corpus")
    return ModelSpecs(tuple(specs), turns, vocabulary, corpus if isinstance(corpus, str) else "", decoder, sizes)


def _require_other_labels(specs: Sequence[ModelSpec]) -> None:
    labels = [model.label for model in specs]
    for label in labels:
        if labels.count(label) > 1:
            fix = "name one of them; evaluate the other in a run of its own"
            raise ConfigError("two models of --trained were trained against the same", got=label, fix=fix)


def _size(folder: Path, responder: TrainableResponder) -> ModelSize:
    vocabulary = cast("PairVocabulary", responder.model.vocabulary)
    num_parameters = sum(part.numel() for part in responder.model.parameters())
    return ModelSize(stored_kind(folder), "words" if vocabulary.merges is None else "pieces", len(vocabulary), num_parameters)


def models_of(config: RobustnessConfig) -> dict[str, str]:
    """Return the models of an evaluation by the setting that names each, the paraphraser included."""
    trained = {f"trained {folder}": folder for folder in config.trained_folders}
    paraphraser = config.perturb.paraphraser
    needed = {f"decoder {option}": name for option, name in DecoderSettings.parse(config.decoder).models.items()}
    named = {"model": config.model} | ({"beside": config.beside} if config.beside else {})
    return {**named, **trained, **needed, "perturb.paraphraser": "" if paraphraser is None else str(paraphraser)}


def provenance(folder: Path) -> Mapping[str, Any]:
    """Return how the model of a checkpoint folder, which was read before, came about."""
    origin: Mapping[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))["provenance"]
    return origin


def _trained(name: str, base: str, vocabulary: PairVocabulary) -> ModelSpec:
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
    return ModelSpec(label_of(against), display_path(folder.absolute()), against)


def _hardened(name: str, base: str) -> ModelSpec:
    """Return a model that `parley train hardened` made of a local model, with the strategies that it met."""
    fix = f"parley train hardened --model {base} --strategies random-swap makes RUN; name it {HUGGING_FACE}RUN"
    if not name.startswith(HUGGING_FACE):
        raise CheckpointError("a model of --trained is not one of a local model", where=name, got=f"--model {base}", fix=fix)
    run = RunFolder.load(fetched_run(weights_of(name)))
    named = catalogue.names(str(run.config.get("strategies", "")))
    if run.job != HARDENED_JOB or named == ("",):
        what = "a model of --trained was not trained against perturbations"
        raise CheckpointError(what, where=name, got=f"a run of {run.job}", fix=fix)
    if run.weights.get("model") != weights_digests({"model": base}).get("model"):
        got = f"it began with {run.config['model']}"
        raise CheckpointError("a model of --trained did not begin with --model", where=name, got=got, fix=fix)
    against = (NONE,) if run.config["control"] else named
    return ModelSpec(label_of(against), absolute_address(name), against)


def label_of(against: Sequence[str]) -> str:
    """Return the label of a model that was trained against some strategies: the strategy, their group, or all of them."""
    for group, members in catalogue.GROUPS.items():
        if len(against) > 1 and set(members) == set(against):
            return group
    return "+".join(against)
