"""The game MutualFriends: events and chats, the state machine, the protocols of players, and the loop that plays many chats.

Two sides, each with a table of friends, talk until both select their common friend. Source: He, Balakrishnan, Eric, Liang 2017,
section 2, with the released events "message" and "select"; Niu & Bansal 2018, section 2.2. The Gymnasium environment, its
two-sided form, evaluation and the scripted corpora use this state machine. It holds B rows with one chat each.

Rules and their sources:
  * An event is an utterance, or the selection of a friend of the actor's own table. A side may select again later; its last
    selection counts. The chat ends when both last selections are the common friend (released controller).
  * It also ends after `max_events` events (46 in the released bot-bot chats), without agreement.
  * # Released: side 0 begins. Ours: a coin of the chat's seed, so that neither side always has the first word.
  * Any side may act at any time, as people do in the published chats; `to_move` is the next side if sides alternate.
  * An utterance is cut after `max_words` words; an utterance without words is an error.

In `play_friends` sides alternate, one event per turn. All rows of a turn act in one call, so a model computes them as one
batch; when a chat ends, the next one enters its row. A chat does not depend on the other chats or on the number of rows.

A `Channel` may change utterances on their way to the partner, but not selections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Literal, NamedTuple, Protocol

import numpy as np

from parley.envs.core.config import Configuration, PositiveInt
from parley.envs.core.errors import ConfigError, ScenarioError
from parley.envs.core.play import AgentError
from parley.envs.core.seeds import Substreams, derive_seed, stream
from parley.envs.mutual_friends.scenario import Attribute, Entity, FriendsScenario, Item


class Mention(NamedTuple):
    """An entity in an utterance.

    Args:
        entity: the entity.
        words: the words for it, such as ("cal", "state").
    """

    entity: Entity
    words: tuple[str, ...]


Token = str | Mention
"""A plain word, or an entity with its words."""


def plain_words(tokens: Iterable[Token]) -> tuple[str, ...]:
    """Return the words of tokens, with mentions as words."""
    return _words_and_mentions(tuple(tokens))[0]


def _words_and_mentions(tokens: tuple[Token, ...]) -> tuple[tuple[str, ...], tuple[Mention, ...]]:
    """Return the words of tokens, with mentions as words, and the mentions."""
    if Mention not in map(type, tokens):
        return tokens, ()  # type: ignore[return-value]  # words alone
    words: list[str] = []
    mentions: list[Mention] = []
    for token in tokens:
        if isinstance(token, str):
            words.append(token)
        else:
            words += token.words
            mentions.append(token)
    return tuple(words), tuple(mentions)


@dataclass(slots=True, unsafe_hash=True)
class ChatEvent:
    """An utterance or a selection.

    Args:
        side: the actor, 0 or 1.
        tokens: the utterance; empty in a selection.
        selected: the index of a friend in the table of `side`; None in an utterance.
        item: the values of that friend, which the partner sees; empty in an utterance.
    """

    side: int
    tokens: tuple[Token, ...] = ()
    selected: int | None = None
    item: Item = ()
    words: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """The words of the utterance, with mentions as words; cached."""
    mentions: tuple[Mention, ...] = field(init=False, repr=False, compare=False)
    """The mentions among the tokens."""

    def __post_init__(self) -> None:
        self.words, self.mentions = _words_and_mentions(self.tokens)

    def plain(self) -> ChatEvent:
        """Return the event for the listener, with plain words."""
        return ChatEvent(self.side, self.words) if self.mentions else self


class Slips(NamedTuple):
    """Counts of malformed moves of a side that acts by free text."""

    repairs: int = 0
    """Moves that were requested again."""
    unread: int = 0
    """Moves that could not be read then either."""
    cut: int = 0
    """Answers that were cut at the most tokens."""
    by_scores: int = 0
    """Selections that named no friend, of a model whose scores chose one then."""
    answers: int = 0
    """Answers that were given, to repairs too."""
    cut_in_thinking: int = 0
    """Answers that are no reply, by their kind (`parley.policies.chat.model.AnswerKind`)."""
    only_thinking: int = 0
    refused: int = 0
    filtered: int = 0
    tool_call: int = 0
    empty: int = 0
    too_long: int = 0


class Lying(NamedTuple):
    """Counts of a side's chances to lie, its lies, and the replies of a chat model that chooses them."""

    chances: int = 0
    """Utterances that it could have replaced."""
    told: int = 0
    """Utterances that it replaced."""
    scored: int = 0
    """Choices by the likelihoods of a chat model."""
    asked: int = 0
    """Choices requested of a chat model."""
    repairs: int = 0
    """Choices requested again."""
    unread: int = 0
    """Choices that could not be read then either, which are no lie."""
    cut: int = 0
    """Answers that were cut at the most tokens."""
    answers: int = 0
    """Answers that were given, to repairs too."""
    cut_in_thinking: int = 0
    """Answers that are no reply, by their kind; without another answer there is no lie."""
    only_thinking: int = 0
    refused: int = 0
    filtered: int = 0
    tool_call: int = 0
    empty: int = 0
    too_long: int = 0


@dataclass(frozen=True)
class FriendsChat:
    """A chat on one scenario.

    Args:
        scenario: both tables.
        events: the events as said, with the speakers' mentions if known.
        heard: the events as the partners heard them, in plain words; unchanged ones as said.
        agreed: whether both sides' last selections are the common friend.
        key: a name.
        slips: of each side; None for sides that do not count them.
        lying: of each side; None for sides that cannot lie. Equality of chats ignores it.
    """

    scenario: FriendsScenario
    events: tuple[ChatEvent, ...]
    heard: tuple[ChatEvent, ...]
    agreed: bool
    key: str = ""
    slips: tuple[Slips | None, Slips | None] = (None, None)
    lying: tuple[Lying | None, Lying | None] = field(default=(None, None), compare=False)

    def num_selections(self, side: int) -> int:
        """Return the number of a side's selections."""
        return sum(event.side == side and event.selected is not None for event in self.events)


NOBODY = -1
Act = tuple[Token, ...] | int
"""The act of a side: the tokens of an utterance, or the index of a friend of its own table."""


@dataclass(frozen=True, kw_only=True)
class FriendsRules(Configuration):
    """Limits of a chat of MutualFriends."""

    max_events: PositiveInt = 46
    """Number of utterances and selections after which a chat ends."""
    max_words: PositiveInt = 100
    """Most words of an utterance; further words are cut."""


class FriendsGame:
    """Many chats of MutualFriends side by side, at most one in each row.

    Args:
        num_rows: B, the number of rows.
        rules: limits.
    """

    def __init__(self, num_rows: int, rules: FriendsRules | None = None) -> None:
        self.rules = rules or FriendsRules()
        self.scenarios: list[FriendsScenario | None] = [None] * num_rows
        self.seeds = [0] * num_rows
        self.events: list[list[ChatEvent]] = [[] for _ in range(num_rows)]
        """The events as said, by row."""
        self.heard: list[list[ChatEvent]] = [[] for _ in range(num_rows)]
        """The events as the partners heard them, by row; sessions get plain words."""
        self.to_move = [NOBODY] * num_rows
        """The side to move, by row; nobody if no chat is open."""
        self.selections = [[-1, -1] for _ in range(num_rows)]
        """Each side's last selection, by row and side, as an index of its own table; -1 before it selects."""
        self.agreed = [False] * num_rows
        self.lying: list[tuple[Lying | None, Lying | None]] = [(None, None)] * num_rows
        """Counts of lies by row and side."""

    def __len__(self) -> int:
        return len(self.scenarios)

    def enter(self, rows: Sequence[int], scenarios: Sequence[FriendsScenario], seeds: Sequence[int]) -> None:
        """Begin chats in rows without an open chat.

        Args:
            rows: n distinct rows.
            scenarios: one for each.
            seeds: one 63-bit seed for each; for the first side and all draws.
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
        """Return the scenario of a row's chat: both tables."""
        scenario = self.scenarios[row]
        assert scenario is not None, "a chat has entered the row"
        return scenario

    def rows_to_act(self, side: int) -> list[int]:
        """Return the rows in which that side acts next."""
        return [row for row, mover in enumerate(self.to_move) if mover == side]

    def event(self, row: int, side: int, act: Act) -> ChatEvent:
        """Return the event of a side's act in the chat of a row.

        Raises:
            ScenarioError: the chat is over, the utterance has no words, or the table has no such friend.
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
        utterance = ChatEvent(side, act)
        num_words = len(utterance.words)
        if not num_words:
            raise self._refused(row, side, "an utterance without words", "say a word at least, or select a friend")
        return utterance if num_words <= self.rules.max_words else replace(utterance, tokens=_cut(act, self.rules.max_words))

    def _refused(self, row: int, side: int, what: str, fix: str, got: int | None = None) -> ScenarioError:
        return ScenarioError(what, where=f"event {len(self.events[row])} of side {side}", got=got, fix=fix)

    def add(self, row: int, event: ChatEvent, heard: ChatEvent | None = None) -> None:
        """Add an event to the chat of a row.

        Args:
            row: with an open chat.
            event: an event from the method `event`.
            heard: the event as the partner hears it, if it differs.
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
        """Add to the counts of lies of a side in the chat of a row."""
        first, second = self.lying[row]
        total = Lying(*map(sum, zip((first, second)[side] or Lying(), more, strict=True)))
        self.lying[row] = (total, second) if side == 0 else (first, total)

    def is_over(self, row: int) -> bool:
        """Return whether a row has no open chat."""
        return self.to_move[row] == NOBODY

    def event_seed(self, row: int) -> int:
        """Return a 63-bit seed for a channel that changes the next event of a row."""
        return derive_seed(self.seeds[row], "channel", len(self.events[row]))

    def chat(self, row: int, slips: tuple[Slips | None, Slips | None] = (None, None)) -> FriendsChat:
        """Return the chat of a row so far, with the given slips of its sides."""
        events, heard = tuple(self.events[row]), tuple(self.heard[row])
        agreed, key = self.agreed[row], self.scenario(row).key
        return FriendsChat(self.scenario(row), events, heard, agreed, key, slips, self.lying[row])

    def view(self, side: int) -> FriendsView:
        """Return the view of a side."""
        return FriendsView(self, side)


class FriendsView:
    """The view of one side on a game: its own tables; it hears events through its session.

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
        """Return the columns of the row's tables."""
        return self._game.scenario(row).attributes

    def table(self, row: int) -> tuple[Item, ...]:
        """Return the side's own friends in the chat of a row."""
        return self._game.scenario(row).tables[self.side]

    def entities(self, row: int) -> tuple[tuple[Entity, ...], ...]:
        """Return the values of the side's own friends as entities, by friend and attribute."""
        return self._game.scenario(row).entities[self.side]

    def mentionable(self, row: int) -> frozenset[Entity]:
        """Return the distinct entities of the side's own table."""
        return self._game.scenario(row).mentionable[self.side]

    def num_events(self, row: int) -> int:
        """Return the number of events in the chat of a row."""
        return len(self._game.events[row])

    def generator(self, row: int) -> np.random.Generator:
        """Return the random generator of this side's next act in a row; the same until an event is added."""
        return stream(derive_seed(self._game.seeds[row], "side", self.side), self.num_events(row))

    def uniforms(self, row: int, part: int, num: int) -> memoryview[float]:
        """Return random numbers in [0, 1) of this side in a row's chat, new for each part; faster than `generator`."""
        return self._draws.at((part << 64) + self._game.seeds[row]).random(num).data  # type: ignore[return-value]  # of float64


def _cut(tokens: Sequence[Token], max_words: int) -> tuple[Token, ...]:
    """Return the first words; a mention that does not fit becomes plain words."""
    first_tokens: list[Token] = []
    remaining = max_words
    for token in tokens:
        words = plain_words([token])
        if len(words) > remaining:
            return (*first_tokens, *words[:remaining])
        first_tokens.append(token)
        remaining -= len(words)
    return tuple(first_tokens)


Remembers = Literal["said", "heard"]
"""The memory of a speaker's own words: as said, or as the partner heard them."""
Channel = Callable[[FriendsGame, list[int], list[ChatEvent]], list[ChatEvent]]
"""Maps the game, n rows and the utterance in each to the utterances that the partners hear.

It may read both tables, draws from `FriendsGame.event_seed`, and must not depend on other rows.
"""


class FriendsSession(Protocol):
    """One agent's part in the rows of a game; agents of free text count their `Slips` in `slips(row)`."""

    def enter(self, rows: list[int]) -> None:
        """Begin new chats in these rows: forget the old ones; the view has the new tables."""

    def hear(self, rows: list[int], events: list[ChatEvent]) -> None:
        """Process one event per row: the partner's in plain words, or its own. Only this and `enter` change memory."""

    def act(self, rows: list[int]) -> Sequence[Act]:
        """Return the act in each of the rows."""


class FriendsAgent(Protocol):
    """Anything that can play MutualFriends: a model, a script, a person."""

    @property
    def name(self) -> str:
        """The name in reports."""

    def join(self, view: FriendsView) -> FriendsSession:
        """Join a side."""


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
    """Play chats to their end.

    Args:
        chats: scenario and 63-bit seed of each.
        agents: of side 0 and side 1.
        num_rows: most chats at a time, at least 1.
        rules: limits.
        channels: of the utterances of side 0 and of side 1; None leaves them unchanged.
        remembers: whether a speaker remembers its own words as said or as heard.
        on_lost: called with the number of a chat in which an agent failed, and the chat so far.

    Returns:
        The chats, in the order given.

    Raises:
        ConfigError: `num_rows` is below 1.
        ScenarioError: an agent breaks a rule of the game.
        AgentError: an agent fails; its `rows` are numbers of chats.
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
    """Return a session's slips in the chat of a row; None if it does not count them."""
    count = getattr(session, "slips", None)
    return None if count is None else count(row)


def _events(game: FriendsGame, side: int, rows: list[int], acts: Sequence[Act], name: str) -> list[ChatEvent]:
    if len(acts) != len(rows):
        got = f"{len(acts)} acts in {len(rows)} chats"
        raise ScenarioError(f"{name} does not act in every chat", got=got, fix="one for each row")
    return [game.event(row, side, act) for row, act in zip(rows, acts, strict=True)]


def passed_on(game: FriendsGame, rows: list[int], events: list[ChatEvent], channel: Channel | None) -> list[ChatEvent]:
    """Return the events as partners hear them, one per row; selections stay unchanged."""
    received = list(events)
    if channel is None:
        return received
    spoken = [i for i, event in enumerate(events) if event.selected is None]
    if spoken:
        changed = channel(game, [rows[i] for i in spoken], [events[i] for i in spoken])
        for i, event in zip(spoken, changed, strict=True):
            received[i] = event
    return received
