"""Who plays MutualFriends, and the loop that lets many chats go on in lock-step.

Sides alternate, one event a turn. All rows whose turn it is act in one call, so that a model computes them as one batch;
a chat that ends leaves its row to the next one. No chat depends on the others, nor on the number of rows.

What is said may be changed on its way by a `Channel`. Selections are not: they are seen as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from typing import Literal, Protocol

from parley.envs.core.errors import ConfigError, ScenarioError
from parley.envs.core.play import AgentError
from parley.envs.mutual_friends.events import ChatEvent, FriendsChat, Slips
from parley.envs.mutual_friends.game import Act, FriendsGame, FriendsRules, FriendsView
from parley.envs.mutual_friends.scenario import FriendsScenario

Remembers = Literal["said", "heard"]
"""What a speaker remembers of its own words: what it said, or what its partner heard."""
Channel = Callable[[FriendsGame, list[int], list[ChatEvent]], list[ChatEvent]]
"""What becomes of utterances on their way: called with the game, n rows and the utterance that is being said in each; gives
what the partners hear. It may read both tables, draws from `FriendsGame.event_seed`, and must not depend on other rows."""


class FriendsSession(Protocol):
    """One agent's part in the rows of a game; one that moves by free text counts its `Slips` by a method `slips(row)`."""

    def enter(self, rows: list[int]) -> None:
        """New chats begin in these rows; what stood there is forgotten, and the view shows the new tables."""

    def hear(self, rows: list[int], events: list[ChatEvent]) -> None:
        """Takes in one event for each row: the partner's in plain words, or its own. Only this and `enter` change memory."""

    def act(self, rows: list[int]) -> Sequence[Act]:
        """What to say or to select in each of the rows."""


class FriendsAgent(Protocol):
    """Anything that can look for common friends: a model, a script, a person."""

    @property
    def name(self) -> str:
        """What reports call it."""

    def join(self, view: FriendsView) -> FriendsSession:
        """Takes a side."""


def play_friends(
    chats: Sequence[tuple[FriendsScenario, int]],
    agents: tuple[FriendsAgent, FriendsAgent],
    *,
    num_rows: int = 256,
    rules: FriendsRules | None = None,
    channels: tuple[Channel | None, Channel | None] = (None, None),
    remembers: Remembers = "said",
    on_lost: Callable[[int, FriendsChat], None] = lambda number, chat: None,
) -> list[FriendsChat]:
    """Plays chats to their end.

    Args:
        chats: scenario and 63-bit seed of each.
        agents: who is on side 0 and side 1.
        num_rows: most chats at a time, at least 1.
        rules: limits.
        channels: what becomes of the utterances of side 0 and of side 1; None leaves them as they are.
        remembers: whether a speaker remembers its own words as it said them or as they were heard.
        on_lost: takes the number of a chat that an agent failed in, and the chat as far as it came.

    Returns:
        The chats, in the order given.

    Raises:
        ConfigError: no rows.
        ScenarioError: an agent breaks a rule of the game.
        AgentError: an agent fails; the rows that it names are the numbers of chats.
    """
    if num_rows < 1:
        raise ConfigError("chats are played in rows", got=f"{num_rows} rows", fix="at least 1")
    game = FriendsGame(min(num_rows, len(chats)), rules)
    sessions = [agent.join(game.view(side)) for side, agent in enumerate(agents)]
    played: dict[int, FriendsChat] = {}
    standing: dict[int, int] = {}
    waiting = iter(range(len(chats)))

    def refill(rows: list[int]) -> None:
        joined = [(row, number) for row, number in zip(rows, waiting, strict=False)]
        standing.update(joined)
        entering = [row for row, _ in joined]
        game.enter(entering, [chats[number][0] for _, number in joined], [chats[number][1] for _, number in joined])
        for session in sessions:
            if entering:
                session.enter(entering)

    refill(list(range(len(game))))
    try:
        while standing:
            for side, agent in enumerate(agents):
                rows = game.rows_to_act(side)
                if not rows:
                    continue
                events = _events(game, side, rows, sessions[side].act(rows), agent.name)
                heard_events = passed_on(game, rows, events, channels[side])
                for row, event, received in zip(rows, events, heard_events, strict=True):
                    game.add(row, event, received)
                over = [row for row in rows if game.is_over(row)]
                if over:
                    going = [not game.is_over(row) for row in rows]
                    rows, events = [*compress(rows, going)], [*compress(events, going)]
                    heard_events = [*compress(heard_events, going)]
                if rows:
                    words = [event.plain() for event in heard_events]
                    sessions[side].hear(rows, words if remembers == "heard" else events)
                    sessions[1 - side].hear(rows, words)
                for row in over:
                    first, second = (slips_of(session, row) for session in sessions)
                    played[standing.pop(row)] = game.chat(row, (first, second))
                refill(over)
    except AgentError as error:
        failed = error.rows or (tuple(standing) if len(chats) == 1 else ())
        for row in failed:
            first, second = (slips_of(session, row) for session in sessions)
            on_lost(standing[row], game.chat(row, (first, second)))
        error.rows = tuple(standing[row] for row in failed)
        raise
    return [played[number] for number in range(len(chats))]


def slips_of(session: FriendsSession, row: int) -> Slips | None:
    """How often a session did not keep to the form of a move in the chat of a row; None where it does not count that."""
    count = getattr(session, "slips", None)
    return None if count is None else count(row)


def _events(game: FriendsGame, side: int, rows: list[int], acts: Sequence[Act], name: str) -> list[ChatEvent]:
    if len(acts) != len(rows):
        got = f"{len(acts)} acts in {len(rows)} chats"
        raise ScenarioError(f"{name} does not act in every chat", got=got, fix="one for each row")
    return [game.event(row, side, act) for row, act in zip(rows, acts, strict=True)]


def passed_on(game: FriendsGame, rows: list[int], said: list[ChatEvent], channel: Channel | None) -> list[ChatEvent]:
    """What partners hear of events, one for each row; selections are seen as they are."""
    heard = list(said)
    if channel is None:
        return heard
    spoken = [i for i, event in enumerate(said) if event.selected is None]
    if spoken:
        changed = channel(game, [rows[i] for i in spoken], [said[i] for i in spoken])
        for i, event in zip(spoken, changed, strict=True):
            heard[i] = event
    return heard
