"""Response models: the protocol of models that reply to contexts of turns, their decoders, and the headers of checkpoints.

Evaluation under perturbations and adversarial training know models by `Responder` alone. Parley's own are in
`policies/seq2seq/decoding.py` and `policies/vhred/decoding.py`. A user's own is `path/file.py:Name`; for evaluation it needs
`respond` only. It is called with contexts alone, unless it declares the rules and options that it knows in `decoders`.

A decoder is one word of the command line: `greedy`, `beam:5`, `sample:0.8`, `diverse:7,rate=0.5`, `mmi:...`.

    RULE[:FIRST][,OPTION=VALUE ...]

`policies/core/decoding.py` and `policies/seq2seq/decoding.py` apply the rules; this file reads their names, without torch.

Sources: diverse beam, Li et al. 2016c (arXiv 1611.08562); re-ranking and the anti-language-model, Li et al. 2016a (arXiv
1510.03055, sections 4.2 and 4.3); which of them are baselines, and the penalty on words said before, Li et al. 2017 (arXiv
1701.06547, section 3.3 and table 3). The amounts are not in the latter paper. They are options:
  * mmi: # Released: a beam of 7, both halves count alike (weight 0.5). The paper speaks of a large list.
  * diverse: rate 0.5 is ours.
  * mmi-antilm: weight 0.5 is that of Li et al. 2016a; that the first 5 words are penalised is ours.
  * repeat: ours is 0, which is none.
"""

from __future__ import annotations

import dataclasses
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar, cast

import numpy as np
from safetensors import SafetensorError

from parley.envs.core.config import Configuration, NonNegativeFloat, PositiveFloat, PositiveInt, Share
from parley.envs.core.errors import CheckpointError, ConfigError, OutOfRangeError, ParleyError, file_digest
from parley.envs.core.registry import Registry, nearest
from parley.envs.core.storage.copies import CHECKPOINT, fetched_model
from parley.envs.corpora.lines import WordList
from parley.envs.corpora.pairs.turns import Turn, Turns, turn_of
from parley.envs.corpora.pairs.vocabulary import SPECIALS, PairVocabulary
from parley.policies.chat.model import Answer

if TYPE_CHECKING:
    from torch import nn

    from parley.policies.core.checkpoint import ModelFormat
    from parley.policies.core.fitting.batches import Examples, Predictor


FORMAT_VERSION = 1
WEIGHTS, CONFIG, VOCABULARY = "weights.safetensors", "config.json", "vocabulary.json"
PARTS = (WEIGHTS, CONFIG, VOCABULARY)
DIGESTS = "digests"
"""Key of the SHA-256 of the other parts in the configuration of a checkpoint; older versions have none."""
WordsT = TypeVar("WordsT", bound=WordList)


def read_header(folder: Path, kind: str) -> dict[str, Any]:
    """Return the configuration of a checkpoint of the given kind, after a check that all parts are there.

    Raises:
        CheckpointError: a part is missing or damaged, or it is of another kind or format.
    """
    missing = [part for part in PARTS if not (folder / part).is_file()]
    if missing:
        raise CheckpointError(
            "no checkpoint is there",
            where=folder,
            got=f"missing {', '.join(missing)}",
            fix="name a checkpoint folder, such as runs/NAME/checkpoint",
        )
    with reading(folder):
        config: dict[str, Any] = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        kind_and_format = config["kind"], config["format"]
        if not all(isinstance(config[part], dict) for part in ("sizes", "provenance")):
            raise TypeError("sizes and provenance are mappings")
    if kind_and_format != (kind, FORMAT_VERSION):
        raise CheckpointError(
            "the checkpoint is of another kind",
            where=folder,
            got=f"kind {kind_and_format[0]!r}, format {kind_and_format[1]}",
            fix=f"name a checkpoint of kind {kind!r}, format {FORMAT_VERSION}",
        )
    return config


def model_inside(folder: Path) -> Path:
    """Return the checkpoint folder of a run or of a checkpoint."""
    return folder / CHECKPOINT if (folder / CHECKPOINT).is_dir() else folder


def stored_kind(folder: Path) -> str:
    """Return the kind of the model in a run or checkpoint folder.

    Raises:
        CheckpointError: nothing is there, or it is damaged.
    """
    inside = model_inside(folder)
    if not (inside / CONFIG).is_file():
        fix = "name a run or checkpoint folder, such as runs/NAME"
        raise CheckpointError("no checkpoint is there", where=inside, got=f"missing {CONFIG}", fix=fix)
    with reading(inside):
        return str(json.loads((inside / CONFIG).read_text(encoding="utf-8"))["kind"])


def is_pretrained(folder: Path) -> bool:
    """Return whether a folder holds a model of Hugging Face's `save_pretrained`, and none of Parley's own."""
    try:
        return "model_type" in json.loads((model_inside(folder) / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError):
        return False


def reads_pieces(folder: Path) -> bool:
    """Return whether the model of a checkpoint reads pieces of words; False if its vocabulary cannot be read."""
    try:
        return isinstance(json.loads((folder / VOCABULARY).read_text(encoding="utf-8")), dict)
    except (OSError, ValueError):
        return False


def require_undamaged(folder: Path, part: str, config: Mapping[str, Any]) -> None:
    """Compare a part of a checkpoint with the digest in its configuration, if there is one.

    Raises:
        CheckpointError: the part is not as it was saved.
    """
    with reading(folder):
        wanted = config.get(DIGESTS, {}).get(part)
        digest = wanted and file_digest(folder / part)
    if digest != wanted:
        raise CheckpointError(
            f"the checkpoint is damaged: {part} is not as it was saved",
            where=folder,
            got=f"SHA-256 {digest[:12]}, and {CONFIG} says {str(wanted)[:12]}",
            fix="train it again or copy it again",
        )


def read_words(folder: Path, kind: str, words: type[WordsT]) -> WordsT:
    """Return the vocabulary of a checkpoint; errors as of `read_header`."""
    require_undamaged(folder, VOCABULARY, read_header(folder, kind))
    with reading(folder):
        return words.load(folder / VOCABULARY)


@contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Turn errors of reading a part into an error that the checkpoint is damaged.

    Raises:
        CheckpointError: it is.
    """
    try:
        yield
    except CheckpointError:
        raise
    except ParleyError as error:
        got = ", ".join(str(part) for part in (error.what, error.got) if part is not None)
        fix = "train it again or copy it again"
        raise CheckpointError("the checkpoint is damaged", where=error.where or folder, got=got, fix=fix) from None
    except (OSError, AttributeError, KeyError, RecursionError, TypeError, ValueError, SafetensorError) as error:
        raise CheckpointError(
            "the checkpoint is damaged",
            where=folder,
            got=f"{type(error).__name__}: {error}",
            fix="train it again or copy it again",
        ) from None


class DecodingRule(NamedTuple):
    """A rule of choosing replies, and its options."""

    summary: str
    """Description of the rule."""
    first: str = ""
    """The option that may stand behind the colon without its name."""
    options: tuple[str, ...] = ()
    """Other options of its own."""
    defaults: Mapping[str, Any] = {}
    """Defaults that differ from the fields of `DecoderSettings`."""
    needed: str = ""
    """The option that has to be given."""


RULES = {
    "greedy": DecodingRule("the likeliest word at every step"),
    "beam": DecodingRule("the likeliest reply per word that a beam finds", "beam", ("length",), {"beam": 5}),
    "sample": DecodingRule("drawn word by word", "temperature"),
    "diverse": DecodingRule(
        "a beam whose hypotheses compete less with their siblings", "beam", ("rate", "length"), {"beam": 7, "rate": 0.5}
    ),
    "mmi": DecodingRule(
        "the replies of a beam, re-ranked by a backward model", "beam", ("backward", "weight", "rate"), {"beam": 7}, "backward"
    ),
    "mmi-antilm": DecodingRule(
        "a beam in which words that a language model expects are penalised",
        "beam",
        ("lm", "weight", "words", "length"),
        {"beam": 7},
        "lm",
    ),
    "blind": DecodingRule("greedy, to a context without a turn: one reply to everybody, a control"),
}
BLIND = "blind"
"""The rule that every model with greedy decoding knows."""
EVERYWHERE = ("repeat", "forbid")
"""Options of every rule."""


@dataclass(frozen=True, kw_only=True)
class DecoderSettings(Configuration):
    """A rule and its options; those of other rules have no effect."""

    rule: str = "greedy"
    """One of `RULES`."""
    beam: PositiveInt = 1
    """Hypotheses that are kept."""
    temperature: PositiveFloat = 1.0
    """Temperature of the distribution that words are drawn from."""
    length: NonNegativeFloat = 1.0
    """Exponent of the number of words by which the log-probability of a whole reply is divided; 0 for none."""
    rate: NonNegativeFloat = 0.0
    """Nats that a hypothesis loses for each sibling that is likelier, from the second word on."""
    backward: str = ""
    """Run of parley train seq2seq --backward."""
    lm: str = ""
    """Run of parley train lm."""
    weight: Share = 0.5
    """Weight of the backward model beside the forward model, or of the language model's log-probability."""
    words: PositiveInt = 5
    """First words of a reply that the language model penalises."""
    repeat: NonNegativeFloat = 0.0
    """Nats that a content word costs that the reply holds already."""
    forbid: tuple[str, ...] = ()
    """Words that are never said."""

    @classmethod
    def parse(cls, text: str, where: str = "--decoder") -> DecoderSettings:
        """Return the settings of a text.

        Args:
            text: such as "beam:5" or "mmi:beam=20,backward=runs/backward,forbid=<unk>"; blanks separate forbidden words.
            where: the caller, for messages.

        Raises:
            ConfigError: no such rule or option (with the nearest name), a value out of range, or one that is missing.
        """
        name, _, rest = text.partition(":") if ":" in text.split(",")[0] else text.partition(",")
        if name not in RULES:
            fix = f"one of {', '.join(RULES)}"
            raise ConfigError(f"no decoder is called {name!r}{nearest(name, RULES)}", where=f"{where} {text}", fix=fix)
        rule = RULES[name]
        options = [*([rule.first] if rule.first else []), *rule.options, *EVERYWHERE]
        values: dict[str, Any] = {}
        for number, part in enumerate(rest.split(",") if rest else []):
            option, equals, value = part.partition("=")
            if not equals and not number and rule.first:
                option, value = rule.first, part
            if option not in options:
                what = f"the decoder {name} has no option {option!r}{nearest(option, options)}"
                raise ConfigError(what, where=f"{where} {text}", fix=f"its options: {', '.join(options)}")
            values[option] = _value(option, value, f"{where} {text}")
        if rule.needed and not values.get(rule.needed):
            fix = f"{name}:{rule.needed}=RUN of {MAKERS[rule.needed]}"
            raise ConfigError(f"the decoder {name} needs {rule.needed}", where=f"{where} {text}", fix=fix)
        try:
            return cls(rule=name, **{**rule.defaults, **values})
        except OutOfRangeError as error:
            raise OutOfRangeError(error.what, where=f"{where} {text}", got=error.got, fix=error.fix) from None

    @property
    def parts(self) -> tuple[str, ...]:
        """The rule and the general options in use, which a model has to know."""
        return ("greedy" if self.is_blind else self.rule, *(option for option in EVERYWHERE if getattr(self, option)))

    @property
    def is_blind(self) -> bool:
        """True if the reply is the same to every context."""
        return self.rule == BLIND

    @property
    def draws(self) -> bool:
        """True if replies depend on seeds."""
        return self.rule == "sample"

    @property
    def models(self) -> dict[str, str]:
        """Runs of the other models it needs, by option."""
        return {option: name for option in ("backward", "lm") if (name := getattr(self, option))}


def lacks_backward(text: str) -> bool:
    """Return whether a decoder re-ranks by a backward model that it does not name: `mmi`, `mmi:20`."""
    return text.replace(":", ",").split(",")[0] == "mmi" and "backward=" not in text


def with_backward(text: str, backward: str) -> str:
    """Return a decoder with the backward model that it lacks, or unchanged."""
    joint = "," if ":" in text or "," in text else ":"
    return f"{text}{joint}backward={backward}" if lacks_backward(text) else text


GREEDY = DecoderSettings()
MAKERS = {"backward": "parley train seq2seq --backward", "lm": "parley train lm"}
"""Commands that make the models of decoders, by option."""


def _value(option: str, text: str, where: str) -> Any:
    default = next(field.default for field in dataclasses.fields(DecoderSettings) if field.name == option)
    if isinstance(default, tuple):
        return tuple(text.split())
    if isinstance(default, str):
        return text
    kind = int if isinstance(default, int) else float
    try:
        return kind(text)
    except ValueError:
        fix = "give a whole number" if kind is int else "give a number"
        raise ConfigError(f"{option} has the wrong type", where=where, got=repr(text), fix=fix) from None


NetworkT = TypeVar("NetworkT", bound="_Network")


class ModelReply(NamedTuple):
    """A reply of a model to a context.

    Args:
        turn: its utterances; one without a word where there is no reply.
        answer: of a chat model, which says why there is no reply; None of any other model.
    """

    turn: Turn
    answer: Answer | None = None

    @property
    def is_reply(self) -> bool:
        """True for a reply; always for models that are no chat model."""
        return self.answer is None or self.answer.is_reply


class Responder(Protocol):
    """A response model; one with more decoders than greedy names their rules in an attribute `decoders`."""

    def respond(self, contexts: Sequence[Turns], *, decoder: DecoderSettings = GREEDY, seeds: Sequence[int] = ()) -> list[Turn]:
        """Return replies; each depends on its own context alone.

        Args:
            contexts: turns, oldest first; a model reads as many of the newest as it was made for.
            decoder: rule of choosing replies.
            seeds: one for each context if the decoder draws.

        Raises:
            ConfigError: the model does not know the decoder, or what it names does not fit; with no context as well.
            CheckpointError: a model that the decoder names is missing or damaged.
        """


def require_known(responder: Responder, decoder: DecoderSettings, name: str) -> None:
    """Check that a model declares all parts of a decoder.

    Raises:
        ConfigError: it does not; the message calls it `name`.
    """
    declared = getattr(responder, "decoders", (GREEDY.rule,))
    if unknown := [part for part in decoder.parts if part not in declared]:
        what = f"this model has no decoder or option {', '.join(unknown)}"
        raise ConfigError(what, where=name, fix=f"--decoder with {', '.join(declared)} alone")


def require_decoder(responder: Responder, decoder: DecoderSettings, name: str) -> None:
    """Check that a model can answer by a decoder, and load the decoder's other models; arguments as above.

    Raises:
        ConfigError: it does not know the decoder, or a model that the decoder names does not fit.
        CheckpointError: a model that the decoder names is missing, damaged or of another kind.
    """
    require_known(responder, decoder, name)
    answer(responder, [], decoder)


def answer(
    responder: Responder, contexts: Sequence[Turns], decoder: DecoderSettings = GREEDY, seeds: Sequence[int] = ()
) -> list[Turn]:
    """Return the replies of any model; the arguments are those of `Responder.respond`, needed by no greedy model.

    A blind decoder asks the model once, without a turn.

    Raises:
        ConfigError: the model does not give one turn to each context.
    """
    if decoder.is_blind:
        return answer(responder, [()][: len(contexts)], replace(decoder, rule=GREEDY.rule)) * len(contexts)
    options: dict[str, Any] = {} if decoder == GREEDY else {"decoder": decoder, "seeds": seeds}
    turns = responder.respond(contexts, **options)
    # Of a text, words would be letters.
    are_whole = isinstance(turns, Sequence) and all(isinstance(turn, Sequence) for turn in turns)
    if not are_whole or len(turns) != len(contexts) or any(isinstance(part, str) for turn in turns for part in (turn, *turn)):
        got, fix = f"{repr(turns)[:80]} for {len(contexts)}", "return a list of turns: tuples of utterances, tuples of words"
        raise ConfigError("a response model gives a turn to each context", where=type(responder).__name__, got=got, fix=fix)
    return turns


def replies_of(
    responder: Responder, contexts: Sequence[Turns], decoder: DecoderSettings = GREEDY, seeds: Sequence[int] = ()
) -> list[ModelReply]:
    """Return replies, those of a chat model with its answers; the arguments are those of `answer`."""
    replies: Callable[..., list[ModelReply]] | None = getattr(responder, "replies_with_answers", None)
    if replies is None or decoder.is_blind:
        return [ModelReply(turn) for turn in answer(responder, contexts, decoder, seeds)]
    return replies(contexts, decoder=decoder, seeds=seeds)


class TrainableResponder(Responder, Protocol):
    """A response model of Parley's own, with embeddings, which can be trained."""

    @property
    def model(self) -> Predictor[Any]:
        """The network, in evaluation mode unless it is being fitted."""

    @property
    def turns(self) -> int:
        """Number of context turns that it reads."""

    def vectors(self, words: Sequence[str]) -> np.ndarray:
        """Return the model's embeddings of words (n, E) float32; unknown words have no row."""

    def examples(self, contexts: Sequence[Turns], replies: Sequence[Turn]) -> Examples[Any]:
        """Return examples for `Fit` and `evaluate`: replies to be predicted from contexts, in the given order."""

    def save(self, folder: Path, provenance: dict[str, Any]) -> None:
        """Write the model as a checkpoint of its kind."""


class _Network(Protocol):
    vocabulary: PairVocabulary
    sizes: Any


class NetworkResponder(ABC, Generic[NetworkT]):
    """The shared part of every `TrainableResponder` with one network of Parley's own."""

    stored_as: ModelFormat[Any, Any, Any]
    """The storage format of its network."""
    decoders: tuple[str, ...] = ("greedy", "beam")
    """Rules and options of rules that it knows."""

    def __init__(self, model: NetworkT) -> None:
        self.model = model
        self._words: PairVocabulary = model.vocabulary

    @property
    def turns(self) -> int:
        """Number of context turns that it reads."""
        return int(self.model.sizes.turns)

    def respond(self, contexts: Sequence[Turns], *, decoder: DecoderSettings = GREEDY, seeds: Sequence[int] = ()) -> list[Turn]:
        """Return replies, see `Responder.respond`."""
        require_known(self, decoder, type(self).__name__)
        return [turn_of(self._words.decode(reply)) for reply in self.decode(contexts, decoder, seeds)]

    def vectors(self, words: Sequence[str]) -> np.ndarray:
        """Return the embeddings of words (n, E) float32; a word in pieces has the mean of theirs.

        Specials and unknown words have no row; a word with an unknown character has the mean of its other pieces.
        """
        ids, starts = self._words.spell(words)
        word_of_piece = np.repeat(np.arange(len(words)), np.diff(starts))[ids >= len(SPECIALS)]
        table: np.ndarray = self.embedding.weight.detach().cpu().numpy()
        rows = table[ids[ids >= len(SPECIALS)]]
        first = np.flatnonzero(np.diff(word_of_piece, prepend=-1))
        if len(first) == len(rows):
            return rows
        lengths = np.diff(first, append=len(rows))[:, None]
        means: np.ndarray = np.add.reduceat(rows, first) / lengths.astype(np.float32)
        return means

    def save(self, folder: Path, provenance: dict[str, Any]) -> None:
        """Write the model as a checkpoint of its kind."""
        self.stored_as.save(self.model, folder, provenance)

    @property
    @abstractmethod
    def embedding(self) -> nn.Embedding:
        """The embedding of words."""

    @abstractmethod
    def decode(self, contexts: Sequence[Turns], decoder: DecoderSettings, seeds: Sequence[int]) -> list[list[int]]:
        """Return the word ids of the reply to each context, without the end, by a declared decoder."""


kinds = Registry("kind of response model", "parley.responders")
"""Loaders by the kind of checkpoint; each maps a run or checkpoint folder to a responder."""
kinds.register("seq2seq", "parley train seq2seq", "parley.policies.seq2seq.decoding:load_responder")
kinds.register("vhred", "parley train vhred", "parley.policies.vhred.decoding:load_vhred")


def load_trained(name: str | Path) -> Responder:
    """Return the response model of a run or checkpoint, on the CPU and in evaluation mode.

    Args:
        name: its folder or URI.

    Raises:
        CheckpointError: nothing is there, it is damaged, or models of its kind do not answer.
    """
    folder = fetched_model(name)
    kind = stored_kind(folder)
    if kind not in kinds:
        raise CheckpointError(
            "models of this kind do not answer",
            where=folder,
            got=f"kind {kind!r}",
            fix=f"name a model of {' or '.join(map(kinds.summary, kinds))}, or path/file.py:Name",
        )
    return cast("Responder", kinds.get(kind)(folder))
