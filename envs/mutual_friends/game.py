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

What happens in a chat of MutualFriends: utterances and selections, as said and as heard.

Source: He, Balakrishnan, Eric, Liang 2017, section 2; the released events "message" and "select".

Who plays MutualFriends, and the loop that lets many chats go on in lock-step.

Sides alternate, one event a turn. All rows whose turn it is act in one call, so that a model computes them as one batch;
a chat that ends leaves its row to the next one. No chat depends on the others, nor on the number of rows.

What is said may be changed on its way by a `Channel`. Selections are not: they are seen as they are.
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
        entity: what is meant.
        words: how it is said, such as ("cal", "state").
    """

    entity: Entity
    words: tuple[str, ...]


Token = str | Mention
"""A plain word, or an entity with its words."""


def plain_words(tokens: Iterable[Token]) -> tuple[str, ...]:
    """Return the words of tokens, mentions written out."""
    return _told_apart(tuple(tokens))[0]


def _told_apart(tokens: tuple[Token, ...]) -> tuple[tuple[str, ...], tuple[Mention, ...]]:
    """Return the words of tokens, mentions written out, and the mentions."""
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
    """UTTERANCE or SELECT.

    Args:
        side: who acts, 0 or 1.
        tokens: what is said; empty in a selection.
        selected: the index of a friend in the table of `side`; None in an utterance.
        item: the values of that friend, which is what the partner sees; empty in an utterance.
    """

    side: int
    tokens: tuple[Token, ...] = ()
    selected: int | None = None
    item: Item = ()
    words: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """What is said, mentions written out; made once, for everybody asks for it."""
    mentions: tuple[Mention, ...] = field(init=False, repr=False, compare=False)
    """Those among the tokens."""

    def __post_init__(self) -> None:
        self.words, self.mentions = _told_apart(self.tokens)

    def plain(self) -> ChatEvent:
        """Return the event as a listener gets it: words alone."""
        return ChatEvent(self.side, self.words) if self.mentions else self


class Slips(NamedTuple):
    """How often who moves by free text did not keep to the form of a move."""

    repairs: int = 0
    """Moves that were asked for once more."""
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
    """How often somebody could lie for a side and did, and how a chat model that chooses is read."""

    chances: int = 0
    """Utterances that it could have replaced."""
    told: int = 0
    """Those that it replaced."""
    scored: int = 0
    """Choices by the likelihoods of a chat model."""
    asked: int = 0
    """Choices that a chat model was asked for."""
    repairs: int = 0
    """Those that it was asked for once more."""
    unread: int = 0
    """Those that could not be read then either, which are no lie."""
    cut: int = 0
    """Answers that were cut at the most tokens."""
    answers: int = 0
    """Answers that were given, to repairs too."""
    cut_in_thinking: int = 0
    """Answers that are no reply, by their kind; where none other comes, nobody lies."""
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
        events: as said and done, with the mentions that speakers meant where that is known.
        heard: the same events as they reached each partner, who was given their plain words; those that nobody changed as said.
        agreed: whether both sides' last selections are the common friend.
        key: its name.
        slips: of each side; None where it cannot make any.
        lying: of each side; None where nobody could lie for it. It is no part of what was said, so that chats compare without.
    """

    scenario: FriendsScenario
    events: tuple[ChatEvent, ...]
    heard: tuple[ChatEvent, ...]
    agreed: bool
    key: str = ""
    slips: tuple[Slips | None, Slips | None] = (None, None)
    lying: tuple[Lying | None, Lying | None] = field(default=(None, None), compare=False)

    def num_selections(self, side: int) -> int:
        """How often a side selected a friend."""
        return sum(event.side == side and event.selected is not None for event in self.events)

    def first_selection_agrees(self, side: int) -> bool:
        """Return whether the side's first selection is the common friend; false where there is none."""
        chosen = [event.selected for event in self.events if event.side == side and event.selected is not None]
        return bool(chosen) and chosen[0] == self.scenario.shared[side]


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
        """Begin chats, in rows whose chats are over or that have had none.

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
        """Add to what is noted of the lies of a side in the chat of a row."""
        first, second = self.lying[row]
        told = Lying(*map(sum, zip((first, second)[side] or Lying(), more, strict=True)))
        self.lying[row] = (told, second) if side == 0 else (first, told)

    def is_over(self, row: int) -> bool:
        """Return whether no chat is open in a row."""
        return self.to_move[row] == NOBODY

    def event_seed(self, row: int) -> int:
        """Return a 63-bit seed for who changes the next event of a row on its way."""
        return derive_seed(self.seeds[row], "channel", len(self.events[row]))

    def chat(self, row: int, slips: tuple[Slips | None, Slips | None] = (None, None)) -> FriendsChat:
        """Return the chat of a row so far, with the slips that its sides have counted."""
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
        """Return the columns of the row's tables."""
        return self._game.scenario(row).attributes

    def table(self, row: int) -> tuple[Item, ...]:
        """Its own friends in the chat of a row."""
        return self._game.scenario(row).tables[self.side]

    def entities(self, row: int) -> tuple[tuple[Entity, ...], ...]:
        """Return the values of its own friends as entities, by friend and attribute."""
        return self._game.scenario(row).entities[self.side]

    def mentionable(self, row: int) -> frozenset[Entity]:
        """Return the different entities of its own table."""
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
    """Return the first words; a mention that does not fit as a whole is cut to plain words."""
    kept: list[Token] = []
    left = max_words
    for token in tokens:
        words = plain_words([token])
        if len(words) > left:
            return (*kept, *words[:left])
        kept.append(token)
        left -= len(words)
    return tuple(kept)


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
        """Take in one event for each row: the partner's in plain words, or its own. Only this and `enter` change memory."""

    def act(self, rows: list[int]) -> Sequence[Act]:
        """What to say or to select in each of the rows."""


class FriendsAgent(Protocol):
    """Anything that can look for common friends: a model, a script, a person."""

    @property
    def name(self) -> str:
        """What reports call it."""

    def join(self, view: FriendsView) -> FriendsSession:
        """Take a side."""


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
