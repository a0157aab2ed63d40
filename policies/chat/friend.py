"""A chat model that looks for the friend both have (MutualFriends): it talks by text, and selects by one strict line.

The system message holds the rules and the table of its side. What the partner says and selects are messages of the user, its
own words those of the assistant. An answer `SELECT` with the number of a friend selects; any other line is said, unless it
begins as a selection and names no friend. Then a model that gives scores selects the friend that the chat makes likeliest; any
other is asked once more, and what it says in vain is said as it stands. All are counted (`Slips`).

An answer that is no reply (cut in thinking, filtered, ...) is no move: where a model draws it is asked for once more, and then
the chat is lost, with the kind of the answer as its reason.

The seed of an answer follows from the chat's seed, the side and the events so far, so that chats do not depend on what is
played side by side.

A chat model that lies about friends: it is asked at each utterance of its side whether one of some claims is heard instead.

The rules are those of any liar (`envs/mutual_friends/lies.py`): so many lies a chat, and the claims that a policy would choose
among. It is told these, its side's table, the chat as its partner heard it and what its side means to say, and answers by one
line: `true`, or the number of a claim. A model that gives scores chooses by how much likelier that makes each line than the
question alone does; any other is asked, and asked once more where its answer is no such line. What cannot be read then is no
lie. Nor is an answer that is no reply (cut in thinking, filtered, ...), for which one that draws is asked with another seed.
All is counted (`Lying`).

The seed of an answer follows from the chat's seed and the events so far, so that chats do not depend on what is played side by
side.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import cast

import numpy as np

from parley.envs.core.seeds import stream
from parley.envs.mutual_friends.game import Act, ChatEvent, FriendsGame, FriendsView, Lying, Slips
from parley.envs.mutual_friends.lies import LieRules, LiesHeard, Occasion, lies_of
from parley.envs.mutual_friends.linker import EntityLinker
from parley.envs.mutual_friends.scenario import chat_words
from parley.policies.chat.addresses import short_address
from parley.policies.chat.model import SEEDS, Access, Answer, AnswerKind, Chat, ChatModel, Message, ScoringChatModel, merged
from parley.policies.chat.negotiator import SILENCE, drawn, nats_by_chat
from parley.policies.chat.newest import SeatedChatModel

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


TRUE = "true"
"""The answer that lets a side say what it means."""
_AROUND = " \t\r\n\"'`*.()#"


class ChatLies(LiesHeard):
    """Lies that a chat model chooses.

    Args:
        name: what reports call it.
        linker: finds entities, and knows how they are said.
        rules: what is allowed.
        address: the model's.
        load: gives it; called when it is first asked.
        temperature: of its answers and choices; 0 takes the likeliest.
        max_tokens: tokens of an answer at most.
    """

    def __init__(
        self,
        name: str,
        linker: EntityLinker,
        rules: LieRules,
        *,
        address: str,
        load: Callable[[], ChatModel],
        temperature: float,
        max_tokens: int,
    ) -> None:
        super().__init__(name, linker, rules)
        self._seat = SeatedChatModel(address, load, temperature, max_tokens)
        self._alone = cache(self._nats_alone)

    def chosen(self, game: FriendsGame, occasions: Sequence[Occasion]) -> Sequence[int]:
        """See `LiesHeard`.

        Raises:
            AgentError: the model failed, or messages do not fit.
        """
        open_ones = [place for place, each in enumerate(occasions) if each.claims]
        asked = [occasions[place] for place in open_ones]
        found = [0] * len(occasions)
        choose = self._scored if self._seat.model.access >= Access.SCORES else self._told
        for place, action in zip(open_ones, choose(game, asked) if asked else (), strict=True):
            found[place] = action
        return found

    def _scored(self, game: FriendsGame, asked: Sequence[Occasion]) -> list[int]:
        chats = [question(game, each, self.rules) for each in asked]
        with self._seat.asked():
            alone = [self._alone(len(each.claims)) for each in asked]
            told = nats_by_chat(self._model, chats, [_lines(len(each.claims)) for each in asked])
        actions = []
        for one, nats, form in zip(asked, told, alone, strict=True):
            game.note_lying(one.row, one.meant.side, Lying(scored=1))
            actions.append(drawn(nats - form, self._seat.decoding.temperature, _generator(game, one)))
        return actions

    def _nats_alone(self, num_claims: int) -> np.ndarray:
        """How likely the lines are behind the question without a game, which their form alone decides."""
        (found,) = nats_by_chat(self._model, [(Message("user", _form_liar(num_claims)),)], [_lines(num_claims)])
        return found

    def _told(self, game: FriendsGame, occasions: Sequence[Occasion]) -> list[int]:
        chats = [question(game, occasion, self.rules) for occasion in occasions]
        seeds = [int(_generator(game, occasion).integers(SEEDS)) for occasion in occasions]
        for one in occasions:
            game.note_lying(one.row, one.meant.side, Lying(asked=1))
        answers = self._answers(game, occasions, chats, seeds)
        read = [read_choice(answer.text, len(occasion.claims)) for answer, occasion in zip(answers, occasions, strict=True)]
        again = [place for place, action in enumerate(read) if action is None and answers[place].is_reply]
        if again:
            mending = [_repair(chats[place], answers[place].text, len(occasions[place].claims)) for place in again]
            few = [occasions[place] for place in again]
            mended = self._answers(game, few, mending, [seeds[place] for place in again])
            for place, one, answer in zip(again, few, mended, strict=True):
                read[place] = read_choice(answer.text, len(one.claims))
                unread = int(read[place] is None and answer.is_reply)
                game.note_lying(one.row, one.meant.side, Lying(repairs=1, unread=unread))
        return [action or 0 for action in read]

    def _answers(
        self, game: FriendsGame, occasions: Sequence[Occasion], chats: Sequence[Chat], seeds: Sequence[int]
    ) -> list[Answer]:
        sides = {one.row: one.meant.side for one in occasions}

        def note(row: int, answer: Answer) -> None:
            game.note_lying(row, sides[row], Lying(**counts_of(answer)))

        return self._seat.answers([one.row for one in occasions], chats, seeds, note)

    @property
    def _model(self) -> ScoringChatModel:
        return cast("ScoringChatModel", self._seat.model)


def question(game: FriendsGame, occasion: Occasion, rules: LieRules) -> Chat:
    """What a model is asked: the rules, its side's table, the chat so far, what its side means to say, and the claims."""
    row, side = occasion.row, occasion.meant.side
    view, lies = game.view(side), lies_of(game, row, side)
    names = {attribute.type: attribute.name for attribute in view.attributes(row)}
    told = [_line(event, event.side == side, any(event is lie for lie in lies)) for event in game.heard[row]]
    claims = (
        f"{number}. some friends of yours have {names[claim.type]}: {claim.value}"
        for number, claim in enumerate(occasion.claims, 1)
    )
    left = rules.lies - len(lies)
    system = [
        "Two players each have a list of friends. Exactly one friend is in both lists. They talk, and each selects a friend of "
        "its list; the game ends when both have selected the friend that they share. You want your partner to find that friend "
        "as late as can be, and best never.",
        "Somebody plays your side for you and says what is true. Before the partner hears a line of yours you may put a lie in "
        f"its place: that some of your friends have what none of them has. You may lie {rules.lies} time"
        f"{'s' * (rules.lies > 1)} in a chat, and each lie costs you a little. What is selected is always seen as it is.",
        friends_listed(view, row),
    ]
    asked = [
        "The chat so far:\n" + "\n".join(told or ["(nothing yet)"]),
        f"Your side means to say now: {_said(occasion.meant)}",
        f"You may lie {left} more time{'s' * (left > 1)}. What you may claim instead:\n" + "\n".join(claims),
        _form_liar(len(occasion.claims)),
    ]
    return Message("system", "\n\n".join(system)), Message("user", "\n\n".join(asked))


def read_choice(text: str, num_claims: int) -> int | None:
    """The claim that an answer names, counted from 1, or 0 for what is true; None for an answer of another form."""
    line = text.strip(_AROUND).lower()
    if line == TRUE:
        return 0
    number = int(line[:9]) if line.isascii() and line.isdecimal() else 0
    return number if 1 <= number <= num_claims else None


def _repair(asked: Chat, answer: str, num_claims: int) -> Chat:
    more = f"That cannot be read. {_form_liar(num_claims)}"
    return *asked, Message("assistant", answer.strip()), Message("user", more)


def _form_liar(num_claims: int) -> str:
    which = f"the number (1 to {num_claims}) of a claim" if num_claims > 1 else "1, the number of the claim"
    return (
        f"Answer by one line: {TRUE}, so that your partner hears what is meant, or {which}, so that it hears that instead. "
        "Write nothing else."
    )


def _lines(num_claims: int) -> list[str]:
    return [TRUE, *map(str, range(1, num_claims + 1))]


def _line(event: ChatEvent, own: bool, is_lie: bool) -> str:
    who = "You" if own else "Your partner"
    if event.selected is not None:
        return f"({who} selected the friend: {', '.join(event.item)})"
    return f"{who}{' (a lie)' * is_lie}: {_said(event)}"


def _said(event: ChatEvent) -> str:
    return " ".join(event.words) or SILENCE


def _generator(game: FriendsGame, occasion: Occasion) -> np.random.Generator:
    return stream(game.event_seed(occasion.row), "chat liar", occasion.meant.side)
