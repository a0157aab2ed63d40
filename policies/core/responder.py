"""What answers: any model of replies to contexts of several turns, asked in words.

Evaluation under perturbations and adversarial training know models by this protocol alone. Parley's own are
`policies/seq2seq/responder.py` and `policies/vhred/responder.py`; a user's own is named as `path/file.py:Name` and needs
`respond` only, if it is to be evaluated and not trained. It is called with contexts alone, unless it declares in `decoders`
which rules and options of `policies/core/decoders.py` it knows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from parley.envs.core.errors import ConfigError
from parley.envs.corpora.pairs.turns import Turn, Turns, turn_of
from parley.envs.corpora.pairs.vocabulary import SPECIALS, PairVocabulary
from parley.policies.chat.model import Answer
from parley.policies.core.decoders import GREEDY, DecoderSettings

if TYPE_CHECKING:
    from torch import nn

    from parley.policies.core.checkpoint import ModelFormat
    from parley.policies.core.fitting.batches import Examples
    from parley.policies.core.fitting.predictor import Predictor

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
        """Whether it is a reply; one of a model that is no chat model always is."""
        return self.answer is None or self.answer.is_reply


class Responder(Protocol):
    """A model that answers; one that knows more decoders than greedy names their rules in an attribute `decoders`."""

    def respond(self, contexts: Sequence[Turns], *, decoder: DecoderSettings = GREEDY, seeds: Sequence[int] = ()) -> list[Turn]:
        """Replies; what is said to one context does not depend on the others.

        Args:
            contexts: turns, oldest first; a model reads as many of the newest as it was made for.
            decoder: how replies are chosen.
            seeds: one for each context if the decoder draws.

        Raises:
            ConfigError: the model does not know the decoder, or what it names does not fit; with no context as well.
            CheckpointError: a model that the decoder names is missing or damaged.
        """


def require_known(responder: Responder, decoder: DecoderSettings, name: str) -> None:
    """Checks that a model declares all parts of a decoder.

    Raises:
        ConfigError: it does not; `name` is what the message calls it.
    """
    known = getattr(responder, "decoders", (GREEDY.rule,))
    if unknown := [part for part in decoder.parts if part not in known]:
        what = f"this model has no decoder or option {', '.join(unknown)}"
        raise ConfigError(what, where=name, fix=f"--decoder with {', '.join(known)} alone")


def require_decoder(responder: Responder, decoder: DecoderSettings, name: str) -> None:
    """Makes sure that a model can answer by a decoder, whose other models are loaded; the arguments are those above.

    Raises:
        ConfigError: it does not know the decoder, or a model that the decoder names does not fit.
        CheckpointError: a model that the decoder names is missing, damaged or of another kind.
    """
    require_known(responder, decoder, name)
    answer(responder, [], decoder)


def answer(
    responder: Responder, contexts: Sequence[Turns], decoder: DecoderSettings = GREEDY, seeds: Sequence[int] = ()
) -> list[Turn]:
    """What any model replies; the arguments are those of `Responder.respond`, which one that decodes greedily need not know.

    For a decoder that is blind the model is asked once, with no turn.
    """
    if decoder.is_blind:
        return answer(responder, [()][: len(contexts)], replace(decoder, rule=GREEDY.rule)) * len(contexts)
    return responder.respond(contexts) if decoder == GREEDY else responder.respond(contexts, decoder=decoder, seeds=seeds)


def replies_of(
    responder: Responder, contexts: Sequence[Turns], decoder: DecoderSettings = GREEDY, seeds: Sequence[int] = ()
) -> list[ModelReply]:
    """Return replies, those of a chat model with its answers; the arguments are those of `answer`."""
    replies: Callable[..., list[ModelReply]] | None = getattr(responder, "replies_with_answers", None)
    if replies is None or decoder.is_blind:
        return [ModelReply(turn) for turn in answer(responder, contexts, decoder, seeds)]
    return replies(contexts, decoder=decoder, seeds=seeds)


class TrainableResponder(Responder, Protocol):
    """A model of Parley's own, that can also be embedded with and trained."""

    @property
    def model(self) -> Predictor[Any]:
        """The network, in evaluation mode unless it is being fitted."""

    @property
    def turns(self) -> int:
        """Turns of context that it reads."""

    def vectors(self, words: Sequence[str]) -> np.ndarray:
        """The model's own embeddings of words (n, E) float32; words that it does not know have no row."""

    def examples(self, contexts: Sequence[Turns], replies: Sequence[Turn]) -> Examples[Any]:
        """What `Fit` and `evaluate` work on: replies to be predicted from contexts, in the given order."""

    def save(self, folder: Path, provenance: dict[str, Any]) -> None:
        """Stores the model as a checkpoint of its kind."""


class _Network(Protocol):
    vocabulary: PairVocabulary
    sizes: Any


class NetworkResponder(ABC, Generic[NetworkT]):
    """What every `TrainableResponder` does that asks one network of Parley's own."""

    stored_as: ModelFormat[Any, Any, Any]
    """How its network is stored."""
    decoders: tuple[str, ...] = ("greedy", "beam")
    """Rules and options of rules that it knows."""

    def __init__(self, model: NetworkT) -> None:
        self.model = model
        self._words: PairVocabulary = model.vocabulary

    @property
    def turns(self) -> int:
        """Turns of context that it reads."""
        return int(self.model.sizes.turns)

    def respond(self, contexts: Sequence[Turns], *, decoder: DecoderSettings = GREEDY, seeds: Sequence[int] = ()) -> list[Turn]:
        """Replies, see `Responder.respond`."""
        require_known(self, decoder, type(self).__name__)
        return [turn_of(self._words.decode(reply)) for reply in self.decode(contexts, decoder, seeds)]

    def vectors(self, words: Sequence[str]) -> np.ndarray:
        """The embeddings with which it reads words (n, E) float32, of a word in pieces their mean.

        Specials and words that it does not know have no row; of a word with an unknown character, the pieces around it count.
        """
        ids, starts = self._words.spell(words)
        known = np.repeat(np.arange(len(words)), np.diff(starts))[ids >= len(SPECIALS)]
        table: np.ndarray = self.embedding.weight.detach().cpu().numpy()
        rows = table[ids[ids >= len(SPECIALS)]]
        first = np.flatnonzero(np.diff(known, prepend=-1))
        if len(first) == len(rows):
            return rows
        lengths = np.diff(first, append=len(rows))[:, None]
        means: np.ndarray = np.add.reduceat(rows, first) / lengths.astype(np.float32)
        return means

    def save(self, folder: Path, provenance: dict[str, Any]) -> None:
        """Stores the model as a checkpoint of its kind."""
        self.stored_as.save(self.model, folder, provenance)

    @property
    @abstractmethod
    def embedding(self) -> nn.Embedding:
        """With which it reads words."""

    @abstractmethod
    def decode(self, contexts: Sequence[Turns], decoder: DecoderSettings, seeds: Sequence[int]) -> list[list[int]]:
        """The word ids of the reply to each context, without the end, by a decoder that it declares."""
