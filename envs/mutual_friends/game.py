"""MutualFriends: two sides, each with a table of friends of its own, talk until both select the friend that both have.

Source: He, Balakrishnan, Eric, Liang 2017, section 2; Niu & Bansal 2018, section 2.2. The one state machine behind the
Gymnasium environment, its two-sided form, evaluation and the scripted corpora. It holds B rows, and a chat stands in a row.

Rules and where they come from:
  * An event is an utterance, or the selection of a friend of the actor's own table. A side may select again later; its last
    selection counts. The chat ends when both last selections are the common friend (released controller).
  * It also ends after `max_events` events (46 in the released bot-bot chats), without agreement.
  * The released controller lets side 0 begin. # Ours: a coin of the chat's seed, so that neither side has the first word.
  * Any side may act at any time, as people do in the published chats; `to_move` says whose turn it is where sides alternate.
  * An utterance is cut after `max_words` words; one without words is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from parley.envs.core.errors import ScenarioError
from parley.envs.core.ranges import Configuration, PositiveInt
from parley.envs.core.seeds import Substreams, derive_seed, stream
from parley.envs.mutual_friends.events import ChatEvent, FriendsChat, Lying, Slips, Token, plain_words
from parley.envs.mutual_friends.scenario import FriendsScenario, Item
from parley.envs.mutual_friends.schema import Attribute, Entity

NOBODY = -1
Act = tuple[Token, ...] | int
"""What a side does: the tokens of an utterance, or the index of a friend of its own table."""


@dataclass(frozen=True, kw_only=True)
class FriendsRules(Configuration):
    """Limits of the game."""

    max_events: PositiveInt = 46
    """Utterances and selections after which a chat ends."""
    max_words: PositiveInt = 100
    """Words of an utterance; what goes beyond them is not said."""


class FriendsGame:
    """Rows with a chat in each, or none yet.

    Args:
        num_rows: B.
        rules: limits.
    """

    def __init__(self, num_rows: int, rules: FriendsRules | None = None) -> None:
        self.rules = rules or FriendsRules()
        self.scenarios: list[FriendsScenario | None] = [None] * num_rows
        self.seeds = [0] * num_rows
        self.events: list[list[ChatEvent]] = [[] for _ in range(num_rows)]
        """As said and done, by row."""
        self.heard: list[list[ChatEvent]] = [[] for _ in range(num_rows)]
        """As they reached the partners, by row; sessions are given the plain words."""
        self.to_move = [NOBODY] * num_rows
        """Whose turn it is, by row; nobody's where no chat is open."""
        self.selections = [[-1, -1] for _ in range(num_rows)]
        """Each side's last selection, by row and side, as an index of its own table; -1 before it selects."""
        self.agreed = [False] * num_rows
        self.lying: list[tuple[Lying | None, Lying | None]] = [(None, None)] * num_rows
        """What who lies for a side has noted of it, by row and side."""

    def __len__(self) -> int:
        return len(self.scenarios)

    def enter(self, rows: Sequence[int], scenarios: Sequence[FriendsScenario], seeds: Sequence[int]) -> None:
        """Begins chats, in rows whose chats are over or that have had none.

        Args:
            rows: n different ones.
            scenarios: one for each.
            seeds: one 63-bit seed for each; decides who begins and every draw.
        """
        for row, scenario, seed in zip(rows, scenarios, seeds, strict=True):
            assert self.to_move[row] == NOBODY, "the row's chat is over"
            self.scenarios[row], self.seeds[row] = scenario, int(seed)
            self.events[row], self.heard[row] = [], []
            self.to_move[row] = derive_seed(self.seeds[row], "begins") & 1
            self.selections[row] = [-1, -1]
            self.agreed[row] = False
            self.lying[row] = None, None

    def scenario(self, row: int) -> FriendsScenario:
        """What the chat of a row is about: both tables."""
        found = self.scenarios[row]
        assert found is not None, "a chat has entered the row"
        return found

    def rows_to_act(self, side: int) -> list[int]:
        """Rows in which it is that side's turn."""
        return [row for row, mover in enumerate(self.to_move) if mover == side]

    def event(self, row: int, side: int, act: Act) -> ChatEvent:
        """What a side's act comes to in the chat of a row.

        Raises:
            ScenarioError: the chat is over, an utterance has no words, or the table has no such friend.
        """
        if self.to_move[row] == NOBODY:
            raise self._refused(row, side, "the chat is over", "let another chat enter the row")
        if not isinstance(act, tuple):
            table = self.scenario(row).tables[side]
            if not 0 <= act < len(table):
                raise self._refused(
                    row, side, "the table has no such friend", f"an index of 0 to {len(table) - 1}", got=int(act)
                )
            return ChatEvent(side, selected=int(act), item=table[act])
        said = ChatEvent(side, act)
        num_words = len(said.words)
        if not num_words:
            raise self._refused(row, side, "an utterance without words", "say a word at least, or select a friend")
        return said if num_words <= self.rules.max_words else replace(said, tokens=_cut(act, self.rules.max_words))

    def _refused(self, row: int, side: int, what: str, fix: str, got: int | None = None) -> ScenarioError:
        return ScenarioError(what, where=f"event {len(self.events[row])} of side {side}", got=got, fix=fix)

    def add(self, row: int, event: ChatEvent, heard: ChatEvent | None = None) -> None:
        """Goes on with the chat of a row.

        Args:
            row: with an open chat.
            event: what `event` made of an act.
            heard: what the partner hears of it, where that is something else.
        """
        assert self.to_move[row] != NOBODY, "the chat is open"
        self.events[row].append(event)
        self.heard[row].append(event if heard is None else heard)
        self.to_move[row] = 1 - event.side
        if event.selected is not None:
            self.selections[row][event.side] = event.selected
            self.agreed[row] = tuple(self.selections[row]) == self.scenario(row).shared
        if self.agreed[row] or len(self.events[row]) >= self.rules.max_events:
            self.to_move[row] = NOBODY

    def note_lying(self, row: int, side: int, more: Lying) -> None:
        """Adds to what is noted of the lies of a side in the chat of a row."""
        first, second = self.lying[row]
        told = Lying(*map(sum, zip((first, second)[side] or Lying(), more, strict=True)))
        self.lying[row] = (told, second) if side == 0 else (first, told)

    def is_over(self, row: int) -> bool:
        """Whether no chat is open in a row."""
        return self.to_move[row] == NOBODY

    def event_seed(self, row: int) -> int:
        """A 63-bit seed for who changes the next event of a row on its way."""
        return derive_seed(self.seeds[row], "channel", len(self.events[row]))

    def chat(self, row: int, slips: tuple[Slips | None, Slips | None] = (None, None)) -> FriendsChat:
        """The chat of a row so far, with the slips that its sides have counted."""
        said, heard = tuple(self.events[row]), tuple(self.heard[row])
        agreed, key = self.agreed[row], self.scenario(row).key
        return FriendsChat(self.scenario(row), said, heard, agreed, key, slips, self.lying[row])

    def view(self, side: int) -> FriendsView:
        """What that side may see."""
        return FriendsView(self, side)


class FriendsView:
    """What one side may see of a game: its own tables. What is said it hears (`play.py`).

    Args:
        game: all rows.
        side: 0 or 1.
    """

    def __init__(self, game: FriendsGame, side: int) -> None:
        self._game, self.side, self.rules = game, side, game.rules
        self._draws = Substreams(side, "draws")

    def __len__(self) -> int:
        return len(self._game)

    def attributes(self, row: int) -> tuple[Attribute, ...]:
        """The columns of the row's tables."""
        return self._game.scenario(row).attributes

    def table(self, row: int) -> tuple[Item, ...]:
        """Its own friends in the chat of a row."""
        return self._game.scenario(row).tables[self.side]

    def entities(self, row: int) -> tuple[tuple[Entity, ...], ...]:
        """The values of its own friends as entities, by friend and attribute."""
        return self._game.scenario(row).entities[self.side]

    def mentionable(self, row: int) -> frozenset[Entity]:
        """The different entities of its own table."""
        return self._game.scenario(row).mentionable[self.side]

    def num_events(self, row: int) -> int:
        """How many events the chat of a row has had."""
        return len(self._game.events[row])

    def generator(self, row: int) -> np.random.Generator:
        """Random numbers for this side's next act in the chat of a row; the same until an event is added."""
        return stream(derive_seed(self._game.seeds[row], "side", self.side), self.num_events(row))

    def uniforms(self, row: int, part: int, num: int) -> memoryview[float]:
        """Random numbers from 0 to 1 of this side in the chat of a row, others in each part; sooner than by `generator`."""
        return self._draws.at((part << 64) + self._game.seeds[row]).random(num).data  # type: ignore[return-value]  # of float64


def _cut(tokens: Sequence[Token], max_words: int) -> tuple[Token, ...]:
    """The first words; a mention that does not fit as a whole is cut to plain words."""
    kept: list[Token] = []
    left = max_words
    for token in tokens:
        words = plain_words([token])
        if len(words) > left:
            return (*kept, *words[:left])
        kept.append(token)
        left -= len(words)
    return tuple(kept)
