"""Bots that say nothing and select friends of their table: how far selections alone lead.

Niu & Bansal 2018 publish .82 completion where not a word of the other is understood. What a bot without any model reaches so
stands beside it: a selection shows an item to the other side, which needs only to look whether it has it.
"""

from __future__ import annotations

from collections.abc import Sequence

from parley.envs.mutual_friends.events import ChatEvent
from parley.envs.mutual_friends.game import Act, FriendsView


class RandomSelector:
    """Selects friends that it has not selected yet, each as likely, and all of them again after the last.

    Args:
        answers: whether a friend that the other side selects and that it has too is selected next; else it sees nothing.
    """

    def __init__(self, *, answers: bool = False) -> None:
        self.name, self._answers = "selector" if answers else "blind-selector", answers

    def join(self, view: FriendsView) -> _Selecting:
        """Takes a side."""
        return _Selecting(view, self._answers)


class _Selecting:
    """Which friends are left, and which one the other side selected, by row."""

    def __init__(self, view: FriendsView, answers: bool) -> None:
        self._view, self._answers = view, answers
        self._left: dict[int, list[int]] = {}
        self._known: dict[int, int] = {}

    def enter(self, rows: list[int]) -> None:
        for row in rows:
            self._left[row] = list(range(len(self._view.table(row))))
            self._known.pop(row, None)

    def hear(self, rows: list[int], events: list[ChatEvent]) -> None:
        for row, event in zip(rows, events, strict=True):
            if event.selected is None:
                continue
            if event.side == self._view.side:
                left = [item for item in self._left[row] if item != event.selected]
                self._left[row] = left or list(range(len(self._view.table(row))))
            elif self._answers and event.item in self._view.table(row):
                self._known[row] = self._view.table(row).index(event.item)

    def act(self, rows: list[int]) -> Sequence[Act]:
        return [self._known[row] if row in self._known else self._drawn(row) for row in rows]

    def _drawn(self, row: int) -> int:
        left = self._left[row]
        return left[int(self._view.generator(row).integers(len(left)))]


def blind_selector() -> RandomSelector:
    """One that sees nothing of the other side."""
    return RandomSelector()


def selector() -> RandomSelector:
    """One that looks whether it has what the other side selects."""
    return RandomSelector(answers=True)
