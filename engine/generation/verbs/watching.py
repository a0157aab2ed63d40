"""What goes wrong in adversarial training, seen by figures of its updates: collapse, and a discriminator out of its depth."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from parley.engine.generation.metrics.variety import ADVANTAGE, COMMONEST, DISTINCT, WORDS
from parley.engine.generation.verbs.minmax_config import Watch
from parley.envs.core.errors import ParleyError


class CollapseError(ParleyError):
    """A training has gone wrong, and was asked to end there."""


class Alarm(NamedTuple):
    """A figure that has been out of bounds too long.

    Args:
        name: of what has happened.
        figure: of an update.
        value: the newest.
    """

    name: str
    figure: str
    value: float


_SIGNS: tuple[tuple[str, str, Callable[[float, Watch], bool]], ...] = (
    ("saturated", "discriminator_accuracy", lambda value, watch: value > watch.saturated),
    ("helpless", "discriminator_accuracy", lambda value, watch: value < watch.helpless),
    ("collapsed", DISTINCT, lambda value, watch: value < watch.min_distinct),
    ("collapsed", COMMONEST, lambda value, watch: value > watch.max_commonest),
    ("collapsed", WORDS, lambda value, watch: value < watch.min_words),
    ("collapsed", "generator_nats", lambda value, watch: value < watch.min_nats),
    ("no advantage", ADVANTAGE, lambda value, watch: value < watch.min_advantage),
)


class Watcher:
    """Counts for how many steps in a row each figure has been out of bounds.

    Args:
        watch: the bounds.
        history: figures of the updates that have been made, in their order.
    """

    def __init__(self, watch: Watch, history: Iterable[Mapping[str, Any]] = ()) -> None:
        self._watch = watch
        self._streaks = [0] * len(_SIGNS)
        for figures in history:
            self.see(figures)

    @property
    def is_calm(self) -> bool:
        """Whether every figure was within its bounds when it was last seen."""
        return not any(self._streaks)

    def see(self, figures: Mapping[str, Any]) -> list[Alarm]:
        """What has gone wrong as of an update; each alarm comes once until the figure has been within its bounds again."""
        alarms = []
        for place, (name, figure, is_out) in enumerate(_SIGNS):
            if figure not in figures:
                continue
            # An event says null for what is no number, as distinct-1 of replies without a word.
            value = math.nan if figures[figure] is None else float(figures[figure])
            self._streaks[place] = self._streaks[place] + 1 if is_out(value, self._watch) else 0
            if self._streaks[place] == self._watch.patience:
                alarms.append(Alarm(name, figure, value))
        return alarms
