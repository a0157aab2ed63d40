"""A reply model and a language model so small that brute force finds the best input: seven words, four places.

V words, N places of the input, E embedding, H hidden, B inputs, T words of a reply
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor

from parley.engine.triggers.catalogue import searches
from parley.engine.triggers.hits import Reading
from parley.engine.triggers.methods.goal import Goal, Initial, Satisfied
from parley.engine.triggers.methods.method import Method, WordMethod
from parley.engine.triggers.methods.objective import TriggerObjective
from parley.engine.triggers.methods.settings import SearchSettings
from parley.engine.triggers.scorers.scorer import PlainScorer, Scorer
from parley.engine.triggers.searches.batch import Outcome, Stepper, Task
from parley.engine.triggers.searches.batch_finder import BatchFinder
from parley.engine.triggers.searches.side_by_side import run_searches

NUM_WORDS, LENGTH, EMBED, HIDDEN = 12, 4, 6, 8
NUM_SPECIALS = 5
START_ID, END_ID = 1, 2
SEARCHABLE = tuple(range(NUM_SPECIALS, NUM_WORDS))
TARGET = torch.tensor([7, 9, 5, END_ID])
OTHER_TARGET = torch.tensor([11, 6, END_ID])


def _draw(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator) * 1.5 / shape[-2] ** 0.5


@dataclass(frozen=True, eq=False)
class TinyVictim:
    """Reads every place with weights of its own, then speaks like an Elman network; no two words of an input do the same."""

    embedding_VE: Tensor
    read_NEH: Tensor
    reply_embedding_VH: Tensor
    recurrent_HH: Tensor
    output_HV: Tensor

    @classmethod
    def draw(cls, seed: int) -> TinyVictim:
        generator = torch.Generator().manual_seed(seed)
        return cls(
            _draw(generator, NUM_WORDS, EMBED) * NUM_WORDS**0.5,
            _draw(generator, LENGTH, EMBED, HIDDEN),
            _draw(generator, NUM_WORDS, HIDDEN) * NUM_WORDS**0.5,
            _draw(generator, HIDDEN, HIDDEN),
            _draw(generator, HIDDEN, NUM_WORDS) * 2,
        )

    @property
    def searchable_V(self) -> Tensor:
        return torch.arange(NUM_WORDS) >= NUM_SPECIALS

    @property
    def input_length(self) -> int:
        return LENGTH

    def reply_logits(self, embedded_BNE: Tensor, replies_BT: Tensor) -> Tensor:
        heard_BH = torch.einsum("bne,neh->bh", embedded_BNE, self.read_NEH[: embedded_BNE.shape[1]])
        said_BT = torch.cat([torch.full_like(replies_BT[:, :1], START_ID), replies_BT[:, :-1]], dim=1)
        state_BH, states = torch.zeros_like(heard_BH), []
        for word_BH in self.reply_embedding_VH[said_BT].unbind(1):
            state_BH = torch.tanh(heard_BH + word_BH + state_BH @ self.recurrent_HH)
            states.append(state_BH)
        return torch.stack(states, dim=1) @ self.output_HV

    def next_logits(self, words_Bt: Tensor) -> Tensor:
        heard_BH = torch.einsum("bne,neh->bh", self.embedding_VE[words_Bt], self.read_NEH[: words_Bt.shape[1]])
        return heard_BH @ self.output_HV


@dataclass(frozen=True, eq=False)
class TinyInputModel:
    """An Elman language model over the same words."""

    embedding_VE: Tensor
    input_EH: Tensor
    recurrent_HH: Tensor
    output_HV: Tensor

    @classmethod
    def draw(cls, seed: int) -> TinyInputModel:
        generator = torch.Generator().manual_seed(seed)
        return cls(
            _draw(generator, NUM_WORDS, EMBED) * NUM_WORDS**0.5,
            _draw(generator, EMBED, HIDDEN),
            _draw(generator, HIDDEN, HIDDEN),
            _draw(generator, HIDDEN, NUM_WORDS),
        )

    @property
    def end_id(self) -> int:
        return END_ID

    def word_logits(self, embedded_BNE: Tensor) -> Tensor:
        start_B1E = self.embedding_VE[START_ID].expand(len(embedded_BNE), 1, -1)
        state_BH, states = torch.zeros(len(embedded_BNE), HIDDEN), []
        for word_BE in torch.cat([start_B1E, embedded_BNE], dim=1).unbind(1):
            state_BH = torch.tanh(word_BE @ self.input_EH + state_BH @ self.recurrent_HH)
            states.append(state_BH)
        return torch.stack(states, dim=1) @ self.output_HV


@cache
def tiny_victim(seed: int = 0) -> TinyVictim:
    return TinyVictim.draw(seed)


@cache
def tiny_input_model(seed: int = 1) -> TinyInputModel:
    return TinyInputModel.draw(seed)


def scorer(objective: TriggerObjective, victim_seed: int = 0) -> PlainScorer:
    """The plain scorer of the two tiny models."""
    return PlainScorer(tiny_victim(victim_seed), objective, tiny_input_model())


def tasks(restarts: int, seed: int = 3) -> list[Task]:
    """Restarts of two targets."""
    targets = {"first": TARGET, "other": OTHER_TARGET}
    return [Task(key, target, restart, seed) for key, target in targets.items() for restart in range(restarts)]


def searched(
    method: Method | Stepper[Any],
    todo: Iterable[Task],
    size: int,
    on_step: Callable[[int], None] | None = None,
    ahead: float = 1.0,
) -> Iterator[Outcome]:
    """Runs searches, so many side by side; those of a scripted method ahead of others of their target where there is room."""
    finder = BatchFinder(size, "searches")
    if isinstance(method, Method):
        return method.search_all(todo, finder, on_step)
    return run_searches(method, todo, finder, on_step, ahead)


def crowd(monkeypatch: pytest.MonkeyPatch, victim: type, most: int) -> list[int]:
    """Gives a kind of victim memory for so many inputs at once; how many were refused is added to the list."""
    call, refused = victim.reply_logits, []

    def crowded(self: Any, embedded_BNE: Tensor, replies_BT: Tensor) -> Tensor:
        if len(embedded_BNE) > most:
            refused.append(len(embedded_BNE))
            raise torch.OutOfMemoryError("too many")
        return call(self, embedded_BNE, replies_BT)

    monkeypatch.setattr(victim, "reply_logits", crowded)
    return refused


def never(reading: Reading) -> bool:
    """No hit is enough."""
    return False


MethodT = TypeVar("MethodT", bound=Method)
WORD_METHODS = [name for name in searches if issubclass(searches.get(name), WordMethod)]


def bound(
    kind: Callable[[SearchSettings], MethodT],
    plain: Scorer,
    settings: SearchSettings,
    satisfied: Satisfied = never,
    initial: Initial | None = None,
) -> MethodT:
    """A method that is ready to search."""
    return kind(settings).bind(Goal(plain, satisfied, initial))


def every_input() -> Tensor:
    """All inputs (R, N) of searchable words."""
    return torch.tensor(list(itertools.product(SEARCHABLE, repeat=LENGTH)))
