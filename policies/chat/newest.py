"""Chat models that rank, and contexts that are longer than they read: the oldest turns are left out, one by one.

A model whose weights are here leaves out as many as let a reply of usual length fit behind the rest, so that the candidates of
a context are read behind the same turns; where a reply is longer, and where a server says that a question is too long, more
of them. What is left out for a reply depends on its context and on itself. A newest turn that is too long alone is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from envs.candidates.groups import Context
from envs.pairs.turns import Utterance
from policies.chat.model import ChatTooLongError
from policies.ranker import first_read

FoundT = TypeVar("FoundT")
Questions = Sequence[tuple[Context, Utterance]]
"""Contexts, each with a reply."""


class NewestTurns(Generic[FoundT]):
    """Asks about replies behind as many turns as fit.

    Args:
        ask: what a model says of replies in their contexts; raises `ChatTooLongError` where one is too long.
        fits: whether a reply of usual length fits behind a context; where None, `ask` tells.

    Attributes:
        left_out: turns of contexts that were left out for some reply; contexts that were read whole are not there.
    """

    def __init__(self, ask: Callable[[Questions], Sequence[FoundT]], fits: Callable[[Context], bool] | None = None) -> None:
        self._ask, self._fits = ask, fits
        self.left_out: dict[Context, int] = {}

    def __call__(self, asked: Questions) -> list[FoundT]:
        """What the model says of each.

        Raises:
            ChatTooLongError: the newest turn and a reply are longer than it reads.
        """
        contexts = dict.fromkeys(context for context, _ in asked)
        starts = {context: first_read(context, self._fits) if self._fits else 0 for context in contexts}
        return self._told([(context, starts[context], reply) for context, reply in asked])

    def _told(self, asked: Sequence[tuple[Context, int, Utterance]]) -> list[FoundT]:
        try:
            found = [*self._ask([(context[start:], reply) for context, start, reply in asked])]
        except ChatTooLongError:
            # Nobody says of which it is true.
            if half := len(asked) // 2:
                return self._told(asked[:half]) + self._told(asked[half:])
            ((context, start, reply),) = asked
            if start == len(context) - 1:
                raise
            return self._told([(context, start + 1, reply)])
        for context, start, _ in asked:
            if start:
                self.left_out[context] = max(start, self.left_out.get(context, 0))
        return found
