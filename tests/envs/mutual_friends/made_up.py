"""A small schema, scenarios, and agents written for the tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from parley.envs.mutual_friends.game import Act, ChatEvent, FriendsView
from parley.envs.mutual_friends.scenario import Attribute, FriendsScenario, FriendsSchema

NAME, TOWN, HOBBY = Attribute("Name", "name"), Attribute("Town", "town"), Attribute("Hobby", "hobby")
SCHEMA = FriendsSchema(
    (NAME, TOWN, HOBBY),
    {
        "name": ("Ada", "Ben", "Cleo", "Dina", "Emil", "Rosa"),
        "town": ("Upper Nib", "Nib", "Port Rosa", "Rosa"),
        "hobby": ("Chess", "Rock climbing", "Knitting", "Bird-watching"),
    },
)
SCENARIO = FriendsScenario(
    "s1",
    (NAME, TOWN, HOBBY),
    (
        (("Ada", "Nib", "Chess"), ("Ben", "Nib", "Knitting"), ("Cleo", "Upper Nib", "Chess")),
        (("Dina", "Port Rosa", "Chess"), ("Cleo", "Upper Nib", "chess"), ("Ada", "Nib", "Knitting")),
    ),
)


@dataclass
class Told:
    """An agent that does what it is told, act by act, and writes down what it hears."""

    acts: Sequence[Act]
    name: str = "told"
    heard: dict[int, list[ChatEvent]] = field(default_factory=dict)
    entered: list[list[int]] = field(default_factory=list)
    view: FriendsView | None = None

    def join(self, view: FriendsView) -> Told:
        self.view = view
        return self

    def enter(self, rows: list[int]) -> None:
        self.entered.append(rows)
        self.done = {**getattr(self, "done", {}), **dict.fromkeys(rows, 0)}
        self.heard.update({row: [] for row in rows})

    def hear(self, rows: list[int], events: list[ChatEvent]) -> None:
        for row, event in zip(rows, events, strict=True):
            self.heard[row].append(event)

    def act(self, rows: list[int]) -> list[Act]:
        chosen = [self.acts[self.done[row] % len(self.acts)] for row in rows]
        self.done.update({row: self.done[row] + 1 for row in rows})
        return chosen


@dataclass(frozen=True)
class Reciter:
    """An agent that acts as `Told` does and is the same after a game."""

    acts: tuple[Act, ...]
    name: str = "reciter"

    def join(self, view: FriendsView) -> Told:
        return Told(self.acts)


class Wanderer:
    """Says a number drawn for its move, or selects a friend drawn for it."""

    name = "wanderer"

    def join(self, view: FriendsView) -> Wanderer:
        session = Wanderer()
        session.view = view
        return session

    view: FriendsView

    def enter(self, rows: list[int]) -> None:
        pass

    def hear(self, rows: list[int], events: list[ChatEvent]) -> None:
        pass

    def act(self, rows: list[int]) -> list[Act]:
        acts: list[Act] = []
        for row in rows:
            number = int(self.view.generator(row).integers(100))
            acts.append(number % len(self.view.table(row)) if number < 40 else (str(number),))
        return acts
