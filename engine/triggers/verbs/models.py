"""The models and the targets of a trigger search: opened and checked by the driver, rebuilt as a victim by every worker.

Parley's own networks travel as their weights: read-only arrays in Ray's object store, which the workers of a machine share.
Hugging Face models, named "hf:FOLDER" or "gguf:FILE", are loaded once by each process that works.

A corpus' test pairs give a Hugging Face model its thresholds of usual words and its list of normal targets. A source is typed
in the place of the searched words. Its tokens are not limited to the length of inputs.

Targets are opened by the name of their list; a run keeps its own in `targets.json`.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import dropwhile, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from parley.engine.core.ray.pool import SharedArrays
from parley.engine.core.runs.documents import plain, whole_file
from parley.engine.core.verbs.checkpoints import require_word_model
from parley.engine.responders.seq2seq import lm_command
from parley.engine.triggers.metrics.hits import T_IN, T_OUT
from parley.engine.triggers.success import SuccessSettings
from parley.engine.triggers.targets import (
    FREQUENT_WORDS,
    Skipped,
    Target,
    TargetList,
    beyond,
    from_file,
    has_prompts,
    malicious,
    normal,
    outside,
    packed,
    random_targets,
    random_words,
    read_pairs,
    said_by_itself,
)
from parley.engine.triggers.verbs.config import (
    LISTS,
    MAL,
    NORMAL,
    NORMAL_SAMPLED,
    RANDOM,
    HuggingFaceSettings,
    TriggerConfig,
    forbidden_texts,
    is_hugging_face,
)
from parley.envs.core.config import difference
from parley.envs.core.errors import CheckpointError, ConfigError, DataError, RunError
from parley.envs.core.registry import nearest
from parley.envs.core.seeds import derive_seed, stream
from parley.envs.core.storage.copies import fetched_model
from parley.envs.core.storage.uris import display_path
from parley.envs.corpora.pairs.compiled import load_pairs
from parley.envs.corpora.pairs.contexts import windows, with_eot
from parley.envs.corpora.pairs.turns import detokenise
from parley.envs.corpora.pairs.vocabulary import PairVocabulary
from parley.policies.chat.addresses import absolute_address, weights_of

if TYPE_CHECKING:
    from torch import Tensor

    from parley.engine.triggers.hits import Thresholds
    from parley.engine.triggers.scorers.scorer import TextVictim
    from parley.policies.chat.settings import ChatModelSettings
    from parley.policies.chat.verdicts import ChatVerdicts
    from parley.policies.core.checkpoint import ModelFormat
    from parley.policies.hugging_face.judges import HuggingFaceInputModel, ReplyClassifier
    from parley.policies.hugging_face.models import HuggingFaceSeq2Seq
    from parley.policies.hugging_face.victims import HuggingFaceCausal, HuggingFaceVictim
    from parley.policies.seq2seq.model import LanguageModel, Seq2Seq


NUM_PAIRS = 100
"""Test pairs that thresholds are measured on."""
LONGEST_NORMAL = 32
"""Tokens of the longest normal target."""
_DIGITS = 4


def test_texts(config: TriggerConfig) -> Iterator[tuple[str, str]]:
    """Yield source and reply of each test pair, as people write them, in an order that is drawn: a corpus may be sorted.

    Raises:
        DataError: the corpus is missing or broken.
    """
    corpus = load_pairs(config.corpus, config.data_root, every_word=True)
    test = corpus.splits["test"]
    for number in stream(0, "test pairs", corpus.name).permutation(len(test.pairs)).tolist():
        source, reply = (detokenise(corpus.vocabulary.decode(test.utterances[int(index)])) for index in test.pairs[number])
        if source and reply:
            yield source, reply


def measured_thresholds(victim: HuggingFaceVictim, judge: HuggingFaceInputModel | None, config: TriggerConfig) -> Thresholds:
    """Return T_out and T_in, measured unless set: mean log probabilities of a token of the corpus' test pairs.

    They are rounded, so that a search that goes on elsewhere has the same.

    Raises:
        DataError: the corpus has no test pair that the model can read.
    """
    from parley.engine.triggers.hits import Thresholds
    from parley.policies.hugging_face.judges import reply_nats

    t_out, t_in = config.objective.t_out, config.objective.t_in
    if not config.corpus or not (t_out is None or (judge is not None and t_in is None)):
        return Thresholds(t_out=t_out, t_in=t_in if judge else None)
    replies: list[float] = []
    sources: list[float] = []
    for number, (source, reply) in enumerate(test_texts(config)):
        if number == NUM_PAIRS:
            break
        replies += reply_nats(victim, source, reply)
        if judge is not None:
            sources += judge.nats(source)
    if not replies or (judge is not None and not sources):
        fix = "name another corpus, or --set objective.t_out=NATS"
        raise DataError("the model can read no test pair of the corpus", where=config.corpus, fix=fix)
    t_out = -_mean(replies) if t_out is None else t_out
    if judge is not None and t_in is None:
        t_in = -_mean(sources)
    return Thresholds(t_out=t_out, t_in=t_in if judge else None)


def own_replies(victim: HuggingFaceVictim, config: TriggerConfig, t_out: float | None = None) -> Iterator[str]:
    """Yield a model's own replies to test sources; replies longer than targets may be are left out.

    # Parley's own networks draw any token if none is above T_out. Ours here: such a reply is left out, too.

    Args:
        victim: the model.
        config: names the corpus, and has the seed.
        t_out: draw replies, of tokens with a log probability above this, instead of taking the likeliest tokens.
    """
    for number, (source, _) in enumerate(test_texts(config)):
        if (read := victim.read_text(source)) is None:
            continue
        drawn = {} if t_out is None else {"temperature": 1.0, "min_log_probability": t_out}
        ids, ended = victim.say(read, LONGEST_NORMAL, seed=derive_seed(config.seed, "normal target", number), **drawn)
        text = victim.reply_text(ids).strip()
        # What is written as other tokens is not what the model said.
        if ended and text and victim.tokenizer(text, add_special_tokens=False).input_ids == ids:
            yield text


def _mean(nats: Sequence[float]) -> float:
    return round(float(np.mean(nats)), _DIGITS)


@dataclass(frozen=True)
class StoredNetwork:
    """A network in the form that workers get.

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
        """Return the same with its weights in the object store of the session."""
        assert not isinstance(self.weights, SharedArrays), "the weights are shared already"
        return replace(self, weights=SharedArrays.put(self.weights))

    def build(self, device: str) -> Any:
        """Return the network; on a CPU its weights are the stored ones, not a copy."""
        import torch

        from parley.policies.core.checkpoint import Uninitialised

        with torch.device("meta"), Uninitialised():
            network = self.kind.network(self.vocabulary, self.sizes)
        arrays = self.weights.get() if isinstance(self.weights, SharedArrays) else self.weights
        network.load_state_dict({name: _tensor(array) for name, array in arrays.items()}, assign=True)
        return network.requires_grad_(False).eval().to(device)


@dataclass(eq=False)
class HuggingFaceFolder:
    """The folder of a Hugging Face model and its settings; a process loads it once.

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
        """Return the same for workers, who load the model themselves; this process frees its copy."""
        self._loaded = None
        return HuggingFaceFolder(self.name, self.settings, self.has_prompts)

    def load(self, device: str) -> HuggingFaceSeq2Seq | HuggingFaceCausal:
        """Return the model, on a device, or spread over several as set.

        Raises:
            ConfigError: the optional extra is not installed, or the template does not fit.
            CheckpointError: the folder holds no model that can be read.
        """
        from parley.policies.chat.templates import template_of
        from parley.policies.hugging_face.models import load_hugging_face
        from parley.policies.hugging_face.tokens import InputRules

        if self._loaded is None:
            settings = self.settings
            forbidden = forbidden_texts(settings.forbidden)
            self._loaded = load_hugging_face(
                self.name,
                settings.length,
                template=template_of(settings.template, has_prompts=self.has_prompts),
                prompt="" if self.has_prompts else None,
                end=settings.end,
                rules=InputRules(typed=settings.typed, alphabet=settings.alphabet, forbidden=forbidden, start=settings.start),
                weights=settings,
            )
        # One that a device map has spread is searched where its embeddings are.
        return self._loaded if self.settings.device_map else self._loaded.to(device)


@dataclass(frozen=True)
class Models:
    """The searched models and the model that judges inputs.

    Args:
        victim: the model under test.
        lm: the language model; None without one.
        thresholds: of hits.
        provenance: how the model came about.
        other_models: Hugging Face models that are searched beside it for one input of all.
    """

    victim: StoredNetwork | HuggingFaceFolder
    lm: StoredNetwork | None
    thresholds: Thresholds
    provenance: Mapping[str, Any]
    other_models: tuple[HuggingFaceFolder, ...] = ()

    @property
    def limits(self) -> dict[str, float]:
        """Return the thresholds by name."""
        limits = {T_OUT: self.thresholds.t_out, T_IN: self.thresholds.t_in}
        return {name: value for name, value in limits.items() if value is not None}

    def shared(self) -> Models:
        """Return the same with all weights in the object store of the session."""
        other_models = tuple(other.shared() for other in self.other_models)
        return replace(self, victim=self.victim.shared(), lm=self.lm.shared() if self.lm else None, other_models=other_models)

    def load(self, device: str, *, unknown: bool) -> TextVictim:
        """Return the model under test, on a device, with its judge.

        Args:
            device: torch device.
            unknown: True to allow `<unk>` in an input of one of Parley's own networks.
        """
        from parley.engine.triggers.victims import Seq2SeqVictim

        if isinstance(self.victim, HuggingFaceFolder):
            return self.victim.load(device)
        return Seq2SeqVictim(self.victim.build(device), self.lm.build(device) if self.lm else None, unknown=unknown)


def models_of(config: TriggerConfig) -> dict[str, str]:
    """Return the models of a search by the setting that names each."""
    draft = config.search.draft if is_hugging_face(config.search.draft) else ""
    named = {"model": config.model, "lm": config.judge, **({"draft": draft} if draft else {})}
    return {setting: name.partition(":")[2] if is_hugging_face(name) else name for setting, name in named.items()}


def open_models(config: TriggerConfig) -> Models:
    """Read the models of a search.

    Raises:
        ConfigError: the inputs of a Hugging Face model are to be judged, its package is not installed, or the model is one that
            searches do not know.
        CheckpointError: a checkpoint is not there, damaged, of another kind, holds weights that are no numbers or no threshold,
            or the two have different vocabularies.
    """
    from parley.engine.triggers.hits import Thresholds
    from parley.policies.seq2seq.scoring import LANGUAGE_MODEL, SEQ2SEQ, load_language_model, load_seq2seq, threshold

    if config.is_hugging_face:
        return _hugging_face(config)
    if has_prompts(config.targets):
        fix = "name a model as hf:FOLDER or gguf:FILE, or a file with one sentence a line"
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
                got=" and ".join(f"{len(words)} words ({words.digest})" for words in (victim.vocabulary, judge.vocabulary)),
                fix=_judge_fix(victim, provenance, config.data_root),
            )
        t_in = threshold(lm_folder, LANGUAGE_MODEL) if t_in is None else t_in
    t_out = threshold(folder, SEQ2SEQ) if t_out is None else t_out
    return Models(victim, judge, Thresholds(t_out=t_out, t_in=t_in if lm else None), provenance)


def open_together(config: TriggerConfig, names: Sequence[str]) -> Models:
    """Read Hugging Face models that are searched for one input of all.

    Args:
        config: the search.
        names: of the models; the first has the thresholds, and is what judges itself.

    Raises:
        ConfigError: one is not causal.
        CheckpointError: as of `open_models`.
    """
    from parley.policies.hugging_face.victims import HuggingFaceCausal

    models = open_models(replace(config, model=names[0]))
    other_models = tuple(HuggingFaceFolder(name, config.hugging_face, has_prompts(config.targets)) for name in names[1:])
    for other in other_models:
        if not isinstance(other.load("cpu"), HuggingFaceCausal):
            raise ConfigError("only a causal model reads prompts", where=other.name, fix="name a causal one")
    return replace(models, other_models=other_models)


def searchable(model: Seq2Seq, name: str) -> Seq2Seq:
    """Return the model, or raise ConfigError if searches cannot score its inputs.

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
    """Return the fix: how to train a language model over a model's words."""
    corpus, vocabulary = provenance.get("corpus"), provenance.get("vocabulary")
    if isinstance(corpus, str) and isinstance(vocabulary, int):
        return f"{lm_command(corpus, vocabulary, victim.sizes, data_root)} --run RUN, then --lm RUN"
    return "use models trained on the same corpus, with as many words and turns of context"


def _hugging_face(config: TriggerConfig) -> Models:
    from parley.engine.triggers.scorers.causal.probes import drafting
    from parley.policies.hugging_face.victims import HuggingFaceCausal

    folder = HuggingFaceFolder(config.model, config.hugging_face, has_prompts(config.targets))
    # What is wrong with it is said before a run is made.
    victim = folder.load("cpu")
    if victim.rules.start:
        # So is a start that does not fit.
        _ = victim.start_ids
    if config.search.draft and isinstance(victim, HuggingFaceCausal):
        # A draft with too many layers, other tokens, or none at all.
        drafting(victim, config.search.draft)
    classifier(config.success)
    # A question without a place for a reply, a judge that is not there.
    chat_judge(config.success, config.chat.on("cpu"))
    return Models(folder, None, measured_thresholds(victim, input_model(config, victim), config), {})


def input_model(config: TriggerConfig, victim: HuggingFaceSeq2Seq | HuggingFaceCausal) -> HuggingFaceInputModel | None:
    """Return the judge of a Hugging Face model's inputs: itself, or another with the same tokens; None without one.

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
    """Return the classifier that judges replies; None without one.

    Raises:
        ConfigError: its package is not installed, or it has no such label.
        CheckpointError: there is no classifier.
    """
    if not config.classifier:
        return None
    from parley.policies.hugging_face.judges import load_reply_classifier

    return load_reply_classifier(fetched_model(weights_of(absolute_address(config.classifier))), config.label, device)


def chat_judge(config: SuccessSettings, chat: ChatModelSettings, answers: Path | None = None) -> ChatVerdicts | None:
    """Return the chat model that judges replies; None without one.

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


FILE = "targets.json"


def open_targets(config: TriggerConfig, models: Models, path: Path) -> TargetList:
    """Return the targets of a run; a run that has begun keeps those that it started with.

    Raises:
        ConfigError: no list or file is called so.
        DataError: the list is empty, its file or corpus is missing or broken, or (strict) the model cannot say one.
        CheckpointError: normal targets are wanted of a model that does not say which corpus it was fitted to.
        RunError: the targets are others than the run was started with.
    """
    stored = kept_targets(path)
    if stored is not None and config.targets in (NORMAL, NORMAL_SAMPLED):
        # Asking the model again takes minutes.
        return stored
    chosen = choose_targets(config, models)
    if stored is not None and (changes := difference(_plain(stored), _plain(chosen))):
        raise RunError(
            "the targets are others than this run was started with",
            where=config.targets,
            got="; ".join(changes)[:300],
            fix="undo the change to go on with the run, or give this run another name",
        )
    return chosen


def choose_targets(config: TriggerConfig, models: Models) -> TargetList:
    """Return the targets of a search that has not begun.

    Raises:
        ConfigError: no list or file is called so.
        DataError: the list is empty, its file or corpus is missing or broken, or (strict) the model cannot say one.
        CheckpointError: normal targets are wanted of a model that does not say which corpus it was fitted to.
    """
    made = _make(config, models)
    if config.strict and made.skipped:
        first = made.skipped[0]
        raise DataError(
            f"the model cannot say {len(made.skipped):,} targets",
            where=made.name,
            got=f"{first.sentence!r}: {first.reason}",
            fix="leave out --strict to skip and count such targets",
        )
    return limited(made.require_some(), config.limit, config.seed)


def save_targets(targets: TargetList, path: Path) -> None:
    """Write the targets to a run's folder.

    Raises:
        RunError: the disk refuses.
    """
    try:
        with whole_file(path / FILE) as file:
            file.writelines(text.encode() for text in _written(targets))
    except OSError as error:
        fix = f"make room or mend the disk, then parley resume {display_path(path)}"
        raise RunError("the targets cannot be written", where=path / FILE, got=error.strerror, fix=fix) from None


def _written(targets: TargetList) -> Iterator[str]:
    """Yield the text of a document as `write_document` writes it, a target at a time: there may be a million."""
    layout = partial(json.dumps, indent=2, ensure_ascii=False)

    def members(values: Iterable[tuple[str, Any]]) -> Iterator[str]:
        for number, (key, value) in enumerate(values):
            text = layout(value).replace("\n", "\n    ")
            yield f"{',' * bool(number)}\n    {layout(key)}: {text}"
        yield "\n  }"

    name = '"targets": {'
    head, tail = layout(_plain(replace(targets, targets=()))).split(f"{name}}}", 1)
    yield head + name
    yield from members((target.key, target.words) for target in targets.targets)
    yield tail.removesuffix("\n}")
    if targets.has_prompts:
        yield ',\n  "prompts": {'
        yield from members((target.key, target.prompt) for target in targets.targets if target.prompt is not None)
    yield "\n}\n"


def num_targets(path: Path) -> int:
    """Return the number of targets of a run; -1 if it is not known yet. No list is held: there may be a million."""
    if not (path / FILE).is_file():
        return -1
    with (path / FILE).open("rb") as file:
        # As `_written` lays them out: a line, or some, begin with the key of each.
        lines = dropwhile(lambda line: line != b'  "targets": {\n', file)
        return sum(line.startswith(b'    "') for line in takewhile(lambda line: not line.startswith(b"  }"), lines))


def _make(config: TriggerConfig, models: Models) -> TargetList:
    if isinstance(models.victim, HuggingFaceFolder):
        return _of_tokens(config, models.victim, models.thresholds.t_out)
    vocabulary, max_reply = models.victim.vocabulary, models.victim.sizes.max_reply
    if config.targets == MAL:
        return malicious(outside(vocabulary), too_long=beyond(max_reply))
    if config.targets == RANDOM:
        return random_targets(vocabulary, config.seed, *_wanted(config), longest=max_reply - 1)
    if config.targets in (NORMAL, NORMAL_SAMPLED):
        t_out = models.thresholds.t_out if config.targets == NORMAL_SAMPLED else None
        network, sources = models.victim.build("cpu"), _sources(config, models.provenance, vocabulary)
        return normal(network, sources, *_wanted(config), t_out=t_out, seed=config.seed)
    return from_file(_file(config), outside(vocabulary), too_long=beyond(max_reply), strict=config.strict)


def _of_tokens(config: TriggerConfig, folder: HuggingFaceFolder, t_out: float | None) -> TargetList:
    """Return targets for a model whose words are tokens; those of a file as they are written."""
    from parley.policies.hugging_face.judges import frequent_words
    from parley.policies.hugging_face.tokens import unknown_words
    from parley.policies.hugging_face.victims import HuggingFaceCausal

    victim = folder.load("cpu")

    def unknown(words: Sequence[str]) -> tuple[str, ...]:
        return unknown_words(victim.tokenizer, " ".join(words))

    def too_long(words: Sequence[str]) -> bool:
        return victim.longest_reply is not None and len(victim.target(" ".join(words))) > victim.longest_reply

    if config.targets == MAL:
        return malicious(unknown, too_long=too_long)
    if config.targets in (NORMAL, NORMAL_SAMPLED):
        drawn_above = t_out if config.targets == NORMAL_SAMPLED else None
        return said_by_itself(own_replies(victim, config, drawn_above), *_wanted(config))
    if config.targets == RANDOM:
        words = frequent_words(victim.tokenizer, len(victim.embedding_VE), FREQUENT_WORDS)
        return random_words(words, config.seed, unknown, *_wanted(config))
    if folder.has_prompts:
        assert isinstance(victim, HuggingFaceCausal), "others take no prompts"
        prompted: HuggingFaceCausal = victim

        def refused(prompt: str, target: str) -> Skipped | None:
            if lacking := unknown_words(victim.tokenizer, target):
                return Skipped(target, lacking)
            longest = prompted.behind(prompt).longest_reply
            is_long = longest is not None and len(victim.target(target)) > longest
            return Skipped(target, (), too_long=True, behind_prompt=not too_long([target])) if is_long else None

        target_file = Path(config.hugging_face.target_file) if config.hugging_face.target_file else None
        return read_pairs(_file(config), refused, target_file=target_file, strict=config.strict)
    return from_file(_file(config), unknown, too_long=too_long, words_of=as_written, strict=config.strict)


def as_written(line: str) -> list[str]:
    """Return the whole line as the only word; no word for a blank line."""
    return [line.strip()] if line.strip() else []


def require_list(config: TriggerConfig) -> None:
    """Check that there are such targets, before anything is loaded.

    Raises:
        ConfigError: no list or file is called so, or no corpus is named to whose sources a model of tokens replies.
    """
    if config.targets not in LISTS:
        _file(config)
    elif config.is_hugging_face and config.targets in (NORMAL, NORMAL_SAMPLED) and not config.corpus:
        what = f"the list {config.targets} of a Hugging Face model is what it replies to a corpus"
        raise ConfigError(what, where="--corpus", got="none", fix="--corpus NAME, or --targets mal, random, or a file")


def _file(config: TriggerConfig) -> Path:
    path = Path(config.targets)
    if not path.is_file():
        what = f"no list of targets is called {config.targets!r}{nearest(config.targets, LISTS)}"
        raise ConfigError(what, fix=f"lists: {', '.join(LISTS)}, or a file with one sentence a line")
    return path


def _wanted(config: TriggerConfig) -> tuple[int, ...]:
    return (config.limit,) if config.limit else ()


def _sources(config: TriggerConfig, provenance: Mapping[str, Any], vocabulary: PairVocabulary) -> Iterator[np.ndarray]:
    """Return an iterator over sources of the test split that the model was measured on, in an order that the seed draws."""
    name = config.corpus or provenance.get("corpus")
    if not isinstance(name, str):
        raise CheckpointError(
            "the checkpoint does not say which corpus the model was fitted to, so it has no sources to answer",
            where=config.model,
            fix="name one with --corpus, or another list with --targets",
        )
    turns = provenance.get("turns", 1)
    corpus = load_pairs(name, config.data_root, vocabulary=len(vocabulary) - (turns > 1))
    words = with_eot(corpus.vocabulary) if turns > 1 else corpus.vocabulary
    if words.digest != vocabulary.digest:
        raise DataError(
            "the corpus of the model has other words than the model",
            where=name,
            got=f"{len(words)} words ({words.digest}), not {vocabulary.digest}",
            fix="name the corpus and the data root that the model was fitted with by --corpus and --data-root",
        )
    test = corpus.splits["test"]
    if turns > 1:
        test = windows(test, turns, len(corpus.vocabulary))
    order = stream(config.seed, "test pairs", corpus.name).permutation(len(test.pairs))
    return (test.utterances[int(source)] for source, _ in test.pairs[order])


def limited(targets: TargetList, num: int, seed: int) -> TargetList:
    """Return at most `num` targets of a list, drawn without replacement, in the list's order; 0 for all."""
    if not num or len(targets.targets) <= num:
        return targets
    drawn = stream(seed, "targets", targets.name).permutation(len(targets.targets))[:num]
    return replace(targets, targets=packed(targets.targets[index] for index in sorted(drawn.tolist())))


def _plain(targets: TargetList) -> dict[str, Any]:
    document: dict[str, Any] = plain(
        {
            "name": targets.name,
            "targets": {target.key: target.words for target in targets.targets},
            "skipped": [skipped._asdict() for skipped in targets.skipped],
        }
    )
    if prompts := {target.key: target.prompt for target in targets.targets if target.prompt is not None}:
        document["prompts"] = prompts
    return document


def kept_targets(path: Path) -> TargetList | None:
    """Return the targets that a run was started with; None if it has not begun.

    Raises:
        RunError: they cannot be read.
    """
    path = path / FILE
    if not path.is_file():
        return None
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        return TargetList(
            stored["name"],
            packed(Target(key, words, stored.get("prompts", {}).get(key)) for key, words in stored["targets"].items()),
            tuple(Skipped(**{**entry, "unknown": tuple(entry["unknown"])}) for entry in stored["skipped"]),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(
            "the targets of the run cannot be read", where=path, got=error, fix="restore the file from a copy"
        ) from None
