"""What is kept of searches: outcomes, and searches under way, in JSON types.

Of an input its words are enough: measured again on the same processor it is the same to the last bit, in any company. Draws are
functions of a search's seed and of how many visits it has made. Tensors in float32 are kept bit by bit.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from parley.engine.triggers.hits import Reading
from parley.engine.triggers.scorers.scorer import Incumbent
from parley.engine.triggers.search.batch import Outcome, Saved, SearchState, Task

WORDS = "words"
"""Key of the one entry that stands for an input."""
FLOAT32, SHAPE = "float32", "shape"
"""Keys of the two that stand for a tensor: its numbers in base 64, and its axes."""
NOT_SAVED = {"saved": False}
"""Metadata of a state's field that is made anew."""


def state_to_json(state: SearchState) -> Saved | None:
    """A search under way; None where its state holds what there is no form for."""
    try:
        return {name: _to_json(getattr(state, name)) for name in _names(state)}
    except TypeError:
        return None


def words_in(saved: Any) -> Iterator[list[int]]:
    """The words of every input in a saved search, in order."""
    if isinstance(saved, dict):
        for name, part in saved.items():
            yield from [part] if name == WORDS else words_in(part)
    elif isinstance(saved, list):
        for part in saved:
            yield from words_in(part)


def fill(state: SearchState, saved: Saved, measured: Iterator[Incumbent]) -> None:
    """Makes a state what it was when it was saved.

    Args:
        state: of the same task, at any input.
        saved: what `state_to_json` made of it.
        measured: the inputs of `words_in`, in order.

    Raises:
        ValueError: it was saved of another kind of search.
    """
    if set(saved) != set(_names(state)):
        raise ValueError(f"a search was saved with {', '.join(saved)}, and it has {', '.join(_names(state))}")
    for name, value in saved.items():
        made, was = _from_json(value, measured), getattr(state, name)
        setattr(state, name, made.to(was.device) if isinstance(made, Tensor) else made)


def outcome_to_json(outcome: Outcome) -> dict[str, Any]:
    """An outcome without its target."""
    plain = {field.name: getattr(outcome, field.name) for field in fields(outcome)} | {"restart": outcome.task.restart}
    readings = {name: None if plain[name] is None else asdict(plain[name]) for name in ("reading", "projected")}
    return {name: value for name, value in (plain | readings).items() if name != "task"}


def outcome_from_json(saved: Mapping[str, Any], task_of: Callable[[int], Task]) -> Outcome:
    """The outcome again.

    Args:
        saved: what `outcome_to_json` made of it.
        task_of: the target's restart of a number.
    """
    readings = {name: None if saved[name] is None else Reading(**saved[name]) for name in ("reading", "projected")}
    words = None if saved[WORDS] is None else tuple(saved[WORDS])
    parts = {name: value for name, value in saved.items() if name != "restart"}
    given = {"task": task_of(saved["restart"]), WORDS: words, "loss_by_sweep": tuple(saved["loss_by_sweep"])}
    return Outcome(**{**parts, **readings, **given})


def _names(state: SearchState) -> list[str]:
    return [field.name for field in fields(state) if field.name != "task" and field.metadata.get("saved", True)]


def _to_json(value: Any) -> Any:
    if isinstance(value, Incumbent):
        return {WORDS: value.words.tolist()}
    if isinstance(value, Tensor) and value.dtype == torch.float32:
        return {FLOAT32: base64.b64encode(value.detach().cpu().numpy().tobytes()).decode(), SHAPE: list(value.shape)}
    if isinstance(value, list):
        return [_to_json(part) for part in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(type(value).__name__)


def _from_json(value: Any, measured: Iterator[Incumbent]) -> Any:
    if isinstance(value, dict) and FLOAT32 in value:
        numbers = np.frombuffer(base64.b64decode(value[FLOAT32]), dtype=np.float32)
        return torch.from_numpy(numbers.copy()).view(value[SHAPE])
    if isinstance(value, dict):
        return next(measured)
    if isinstance(value, list):
        return [_from_json(part, measured) for part in value]
    return value
