"""A chat model that looks for the friend both have (MutualFriends): it talks by text, and selects by one strict line.

The system message holds the rules and the table of its side. What the partner says and selects are messages of the user, its
own words those of the assistant. An answer `SELECT` with the number of a friend selects; any other line is said, unless it
begins as a selection and names no friend. Then a model that gives scores selects the friend that the chat makes likeliest; any
other is asked once more, and what it says in vain is said as it stands. All are counted (`Slips`).

An answer that is no reply (cut in thinking, filtered, ...) is no move: where a model draws it is asked for once more, and then
the chat is lost, with the kind of the answer as its reason.

The seed of an answer follows from the chat's seed, the side and the events so far, so that chats do not depend on what is
played side by side.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import cast

from parley.envs.mutual_friends.events import ChatEvent, Slips
from parley.envs.mutual_friends.game import Act, FriendsView
from parley.envs.mutual_friends.schema import chat_words
from parley.policies.chat.addresses import short_address
from parley.policies.chat.bargaining import SILENCE
from parley.policies.chat.choosing import drawn, nats_by_chat
from parley.policies.chat.model import SEEDS, Access, Answer, AnswerKind, Chat, ChatModel, Message, ScoringChatModel
from parley.policies.chat.roles import merged
from parley.policies.chat.seated import SeatedChatModel

SELECT = "SELECT"
BEGINNING = "You begin."
_SELECTION = re.compile(r"\W*select\W*(\d+)\W*", re.IGNORECASE)
_SEEMS = re.compile(r"\W*select\b", re.IGNORECASE)


class ChatFriend(SeatedChatModel):
    """A chat model as a `FriendsAgent`, which is named by its address."""

    def __init__(self, name: str, load: Callable[[], ChatModel], temperature: float, max_tokens: int) -> None:
        super().__init__(name, load, temperature, max_tokens)
        self.name = short_address(name)

    def join(self, view: FriendsView) -> ChatFriendSession:
        """Takes a side."""
        return ChatFriendSession(self, self.model, view)


class ChatFriendSession:
    """A chat model's part in the rows of a game.

    Args:
        agent: whose part it is.
        model: who answers.
        view: what its side sees.
    """

    def __init__(self, agent: ChatFriend, model: ChatModel, view: FriendsView) -> None:
        self._agent, self._model, self._view = agent, model, view
        self._said: dict[int, list[Message]] = {}
        self._slips: dict[int, Slips] = {}

    def enter(self, rows: list[int]) -> None:
        """Looks at new tables."""
        for row in rows:
            self._said[row], self._slips[row] = [], Slips()

    def hear(self, rows: list[int], events: list[ChatEvent]) -> None:
        """Notes one event for each row."""
        for row, event in zip(rows, events, strict=True):
            own = event.side == self._view.side
            self._said[row].append(message_of(event, own))

    def act(self, rows: list[int]) -> list[Act]:
        """What the model says or selects in each of the rows, in one call.

        Raises:
            NoReplyError: the model gave no reply in some chats.
            AgentError: it failed, or messages do not fit.
        """
        chats = [self._chat(row) for row in rows]
        seeds = [int(self._view.generator(row).integers(SEEDS)) for row in rows]
        said = self._answers(rows, chats, seeds)
        acts = [self._read(row, text) for row, text in zip(rows, said, strict=True)]
        if self._model.access >= Access.SCORES:
            for place, act in enumerate(acts):
                if act is None:
                    acts[place] = self._scored(rows[place], chats[place])
        again = [place for place, act in enumerate(acts) if act is None]
        if again:
            asked = [self._repair(chats[place], said[place], rows[place]) for place in again]
            mended = self._answers([rows[place] for place in again], asked, [seeds[place] for place in again])
            for place, text in zip(again, mended, strict=True):
                row, act = rows[place], self._read(rows[place], text)
                self._slip(row, repairs=1, unread=int(act is None))
                acts[place] = chat_words(text) if act is None else act
        return [act for act in acts if act is not None]

    def slips(self, row: int) -> Slips:
        """How often it did not keep to the form in the chat of a row."""
        return self._slips[row]

    def _scored(self, row: int, chat: Chat) -> int:
        """The friend whose selection the chat makes likeliest, beside what the form alone makes of it; or one that is drawn."""
        self._slip(row, by_scores=1)
        replies = [f"{SELECT} {number}" for number in range(1, len(self._view.table(row)) + 1)]
        alone: Chat = (Message("user", _form(self._view, row)),)
        with self._agent.asked():
            told, form = nats_by_chat(cast("ScoringChatModel", self._model), [chat, alone], [replies, replies])
        return drawn(told - form, self._agent.decoding.temperature, self._view.generator(row))

    def _slip(self, row: int, **more: int) -> None:
        slips = self._slips[row]
        self._slips[row] = slips._replace(**{name: getattr(slips, name) + num for name, num in more.items()})

    def _answers(self, rows: Sequence[int], chats: Sequence[Chat], seeds: Sequence[int]) -> list[str]:
        return [answer.text.strip() for answer in self._agent.replies(rows, chats, seeds, self._note)]

    def _note(self, row: int, answer: Answer) -> None:
        self._slip(row, **counts_of(answer))

    def _chat(self, row: int) -> Chat:
        return talk(self._view, row, self._said[row])

    def _read(self, row: int, text: str) -> Act | None:
        """What an answer comes to; None where it is no move."""
        selected = _SELECTION.fullmatch(text)
        if selected is None:
            return None if _SEEMS.match(text) else chat_words(text)
        number = int(selected[1][:9])
        return number - 1 if 1 <= number <= len(self._view.table(row)) else None

    def _repair(self, asked: Chat, answer: str, row: int) -> Chat:
        more = f"That cannot be read. {_form(self._view, row)}"
        return *asked, Message("assistant", answer), Message("user", more)


def counts_of(answer: Answer) -> dict[str, int]:
    """Return what an answer adds to `Slips` or `Lying`."""
    return {"answers": 1, "cut": int(answer.kind is AnswerKind.CUT)} | ({} if answer.is_reply else {answer.kind.column: 1})


def instructions(view: FriendsView, row: int) -> str:
    """What a model is told before a chat: the game, its friends, how to speak and how to select."""
    return "\n\n".join(
        [
            "You and a partner each have a list of friends. Exactly one friend is in both lists. Find out which one by "
            "talking, then select that friend. You both win when both of you have selected the friend that you share; whoever "
            "selected another one may select again. Your partner does not see your list.",
            friends_listed(view, row),
            _form(view, row),
        ]
    )


def friends_listed(view: FriendsView, row: int) -> str:
    """The table of a side, one friend a line."""
    names = [attribute.name for attribute in view.attributes(row)]
    friends = (
        f"{number}. " + ", ".join(f"{name}: {value}" for name, value in zip(names, item, strict=True))
        for number, item in enumerate(view.table(row), 1)
    )
    return "Your friends:\n" + "\n".join(friends)


def talk(view: FriendsView, row: int, said: Sequence[Message]) -> Chat:
    """The messages that a model answers with its next move, behind those of a chat so far."""
    first = [Message("user", BEGINNING)] if not said or said[0].role == "assistant" else []
    return Message("system", instructions(view, row)), *merged([*first, *said])


def message_of(event: ChatEvent, own: bool) -> Message:
    """An event as a message of its side: the model's own, or its partner's."""
    return Message("assistant" if own else "user", _written(event, own))


def _form(view: FriendsView, row: int) -> str:
    num = len(view.table(row))
    return (
        f"Each time write one short line to say to your partner next, or select a friend by writing {SELECT} and the number "
        f"(1 to {num}) in your list, such as {SELECT} {num}. Write nothing else."
    )


def _written(event: ChatEvent, own: bool) -> str:
    """An event as text; one without words is none that messages may hold, so that marks stand for it."""
    if event.selected is None:
        return " ".join(event.words) or SILENCE
    return f"{SELECT} {event.selected + 1}" if own else f"(Your partner selects the friend: {', '.join(event.item)})"
