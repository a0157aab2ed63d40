"""Targets with prompts of their own, searched for side by side: each prompt is a model of its own to a method."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from parley.engine.triggers.search.batch import Outcome, Task
from parley.engine.triggers.search.side_by_side import NOT_BEGUN, Begun, SideBySide


class ByPrompt(SideBySide):
    """Searches of several compositions.

    Args:
        begin: the searches of a target, by its key; those of its prompt where it is not the first.
        size: targets at once.
    """

    def __init__(self, begin: Callable[[str], SideBySide], size: int) -> None:
        self._begin, self._size = begin, size
        self._of: dict[str, SideBySide] = {}

    @property
    def keys(self) -> Collection[str]:
        return self._of.keys()

    @property
    def num_free(self) -> int:
        return max(0, self._size - len(self._of))

    def add(self, tasks: Sequence[Task], begun: Begun = NOT_BEGUN) -> None:
        key = tasks[0].key
        self._of[key] = self._begin(key)
        self._of[key].add(tasks, begun)

    def step(self) -> list[Outcome]:
        """A step of each."""
        found = [outcome for searches in {id(each): each for each in self._of.values()}.values() for outcome in searches.step()]
        self._of = {key: searches for key, searches in self._of.items() if key in searches.keys}
        return found

    def begun(self, key: str) -> Begun:
        return self._of[key].begun(key)

    def share(self, key: str) -> float:
        return self._of[key].share(key)

    def tried_for(self, key: str) -> int:
        return self._of[key].tried_for(key)
