"""What happens in a chat of MutualFriends: utterances and selections, as said and as heard.

Source: He, Balakrishnan, Eric, Liang 2017, section 2; the released events "message" and "select".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from parley.envs.mutual_friends.scenario import FriendsScenario, Item
from parley.envs.mutual_friends.schema import Entity


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
    """The words of tokens, mentions written out."""
    return _told_apart(tuple(tokens))[0]


def _told_apart(tokens: tuple[Token, ...]) -> tuple[tuple[str, ...], tuple[Mention, ...]]:
    """The words of tokens, mentions written out, and the mentions."""
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
        """The event as a listener gets it: words alone."""
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
        """Whether the side's first selection is the common friend; false where there is none."""
        chosen = [event.selected for event in self.events if event.side == side and event.selected is not None]
        return bool(chosen) and chosen[0] == self.scenario.shared[side]
