"""Supervised lessons of a chat model in the seats of games: what a game gives, and how a base reads it and is measured on it.

A game gives dialogues, each as one seat has it: what it reads before each of its texts, and the text. The base reads a dialogue
once, and the loss is that of the seat's own tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from parley.engine.core.stats.statistics import Estimate, mean_count, perplexity
from parley.envs.core.errors import ConfigError
from parley.policies.chat.addresses import is_local, weights_of
from parley.policies.chat.model import Chat, ChatModel
from parley.policies.chat.settings import ChatModelSettings

if TYPE_CHECKING:
    from parley.policies.chat.predictor import ChatLessons, ChatPredictor

TRAIN, VALIDATION, TEST = SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class SeatDialogue:
    """A dialogue as one seat has it.

    Args:
        moves: what the seat reads before each of its texts, and the text, oldest first.
        num_words: words of these texts, by which their perplexity is measured; ends are among them.
        unit: its dialogue or scenario; dialogues of equal ones are no independent evidence.
    """

    moves: Sequence[tuple[Chat, str]]
    num_words: int
    unit: int

    @property
    def learned(self) -> Sequence[tuple[Chat, str]]:
        """All that the seat learns: its texts, and what else a game asks it for."""
        return self.moves


class ChatGame(Protocol):
    """A game whose seats are learned."""

    @property
    def title(self) -> str:
        """The seats in words."""

    @property
    def teachers(self) -> str:
        """Those whose texts are learned, in words."""

    def dialogues(self, split: str, limit: int = 0) -> Sequence[SeatDialogue]:
        """Return the dialogues of one of `SPLITS`, the first `limit` at most; all for 0."""

    def measure(self, load: Callable[[], ChatModel], dialogues: Sequence[Any]) -> Mapping[str, Estimate]:
        """Return figures of a model on dialogues beside its perplexity, by name.

        Args:
            load: gives the model, the base or the base with its adapters; not called for nothing.
            dialogues: of this game.
        """

    def match(self, player: str, base: str) -> Sequence[str]:
        """Return the words of a command that lets a trained model play beside its base.

        Args:
            player: address of the trained model.
            base: address of its base.
        """


@dataclass(frozen=True)
class ChatBase:
    """A base that adapters learn on.

    Args:
        address: its address.
        chat_model: the base as it plays, in float32.
        end_id: the token that ends its texts.
        longest: tokens that it reads at most; infinity where nothing limits them.
    """

    address: str
    chat_model: Any
    end_id: int
    longest: float

    def lessons(self, dialogues: Sequence[Sequence[tuple[Chat, str]]], units: Sequence[int] | None = None) -> ChatLessons:
        """Return dialogues as the base reads them.

        Args:
            dialogues: moves of each, as of `SeatDialogue`.
            units: of each; each lesson is one when not given.

        Raises:
            DataError: a dialogue is longer than the base reads.
        """
        from parley.policies.chat.predictor import ChatLessons, conversation_lessons

        tokenizer = self.chat_model.tokenizer
        end = tokenizer.decode([self.end_id])
        parts = [conversation_lessons(tokenizer, end, moves) for moves in dialogues]
        of_lessons = None if units is None else np.repeat(np.array(units, dtype=np.int64), [*map(len, parts)])
        return ChatLessons(tokenizer, [*chain(*parts)], self.end_id, self.longest, of_lessons)


def playing(device: str, date: str) -> ChatModelSettings:
    """Return the settings by which a model is loaded to be measured as it plays; arguments as of `load_base`."""
    return ChatModelSettings(device=device, date=date, batch_size=16)


def load_base(address: str, device: str, date: str) -> ChatBase:
    """Return a base by its address.

    Args:
        address: hf:FOLDER or gguf:FILE.
        device: torch device.
        date: that its chat template prints; today if empty.

    Raises:
        ConfigError: it is no model here with a chat template, it is an adapter, or a package is missing.
        CheckpointError: there is no such model.
    """
    if not is_local(address) or not weights_of(address).strip():
        fix = "--base hf:FOLDER or gguf:FILE"
        raise ConfigError("adapters learn on weights that are here", where="--base", got=repr(address), fix=fix)
    from parley.envs.core.storage.copies import fetched_model
    from parley.policies.chat.local import load_local
    from parley.policies.chat.predictor import require_peft
    from parley.policies.core.responder import model_inside
    from parley.policies.hugging_face.gguf import is_adapter_alone
    from parley.policies.hugging_face.tokens import ends_of, longest_input, reply_end

    require_peft()
    if is_adapter_alone(model_inside(fetched_model(weights_of(address)))):
        raise ConfigError("an adapter is no base", where=address, fix="name the base that it was trained on")
    chat_model = load_local(address, playing(device, date))
    model, tokenizer = chat_model.model, chat_model.tokenizer
    if not tokenizer.chat_template:
        fix = "name a model that was tuned to chat, or write a chat_template into its tokenizer_config.json"
        raise ConfigError("the base has no chat template, so it knows no seats", where=address, fix=fix)
    return ChatBase(address, chat_model, reply_end(tokenizer, ends_of(tokenizer, model)), longest_input(tokenizer, model))


def perplexities(predictor: ChatPredictor, lessons: ChatLessons, num_words: int) -> dict[str, Estimate]:
    """Return the perplexity per word and the nats per token of texts, without dropout, with intervals over their units.

    Args:
        predictor: the base, or the base with its adapters.
        lessons: the texts alone, behind what was read before them.
        num_words: words of all texts; a lesson has its share of them by its tokens.
    """
    from parley.policies.core.fitting.batches import evaluate

    fitness = evaluate(predictor, lessons)
    words = num_words * fitness.num_targets / fitness.num_targets.sum()
    return {
        "ppl_word": perplexity("the texts", fitness.nll_sums, words, fitness.units),
        "nll": mean_count(fitness.nll_sums, fitness.units, fitness.num_targets),
    }
