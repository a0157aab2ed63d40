"""A chat model as a MutualFriends player, and as a liar for one.

The system message holds the rules and the table of its side. Messages of the partner are those of the user, its own those of
the assistant. An answer `SELECT` with the number of a friend selects; any other line is said, unless it begins as a selection
and names no friend. Then a model with scores selects the friend that the chat makes likeliest. Any other model is asked once
more, and its second answer is said as it stands. `Slips` counts all of them.

An answer that is no reply (cut in thinking, filtered, ...) is no move. If the model draws, it is asked once more; then the chat
is lost, and the kind of the answer is the reason.

`ChatLies` asks the model at each utterance of its side whether the partner hears a claim instead. The rules are those of any
liar (`envs/mutual_friends/lies.py`): a number of lies per chat, and the claims a policy may choose among. The model sees the
rules, its side's table, the chat as the partner heard it and the utterance, and answers by one line: `true`, or the number of
a claim. A model with scores chooses by how much the question makes each line likelier than its form alone does. Any other is
asked, and asked once more for a line that can be read; without one there is no lie. `Lying` counts all of them.

The seed of an answer depends on the chat's seed, the side and the events so far, so chats do not depend on their batch.
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
        """Return a session that plays one side."""
        return ChatFriendSession(self, self.model, view)


class ChatFriendSession:
    """A chat model's part in the rows of a game.

    Args:
        agent: the agent that plays.
        model: the model that answers.
        view: the view of its side.
    """

    def __init__(self, agent: ChatFriend, model: ChatModel, view: FriendsView) -> None:
        self._agent, self._model, self._view = agent, model, view
        self._said: dict[int, list[Message]] = {}
        self._slips: dict[int, Slips] = {}

    def enter(self, rows: list[int]) -> None:
        """Start the chats of rows."""
        for row in rows:
            self._said[row], self._slips[row] = [], Slips()

    def hear(self, rows: list[int], events: list[ChatEvent]) -> None:
        """Note one event for each row."""
        for row, event in zip(rows, events, strict=True):
            is_own = event.side == self._view.side
            self._said[row].append(message_of(event, is_own))

    def act(self, rows: list[int]) -> list[Act]:
        """Return the model's utterance or selection in each row, asked in one call.

        Raises:
            NoReplyError: the model gave no reply in some chats.
            AgentError: it failed, or messages do not fit.
        """
        chats = [self._chat(row) for row in rows]
        seeds = [int(self._view.generator(row).integers(SEEDS)) for row in rows]
        texts = self._answers(rows, chats, seeds)
        acts = [self._read(row, text) for row, text in zip(rows, texts, strict=True)]
        if self._model.access >= Access.SCORES:
            for index, act in enumerate(acts):
                if act is None:
                    acts[index] = self._scored(rows[index], chats[index])
        again = [index for index, act in enumerate(acts) if act is None]
        if again:
            repair_chats = [self._repair(chats[index], texts[index], rows[index]) for index in again]
            mended = self._answers([rows[index] for index in again], repair_chats, [seeds[index] for index in again])
            for index, text in zip(again, mended, strict=True):
                row, act = rows[index], self._read(rows[index], text)
                self._slip(row, repairs=1, unread=int(act is None))
                acts[index] = chat_words(text) if act is None else act
        return [act for act in acts if act is not None]

    def slips(self, row: int) -> Slips:
        """Return the counts of answers of another form in the chat of a row."""
        return self._slips[row]

    def _scored(self, row: int, chat: Chat) -> int:
        self._slip(row, by_scores=1)
        replies = [f"{SELECT} {number}" for number in range(1, len(self._view.table(row)) + 1)]
        without_chat: Chat = (Message("user", _move_form(self._view, row)),)
        with self._agent.as_agent_errors():
            in_chat, form_nats = nats_by_chat(cast("ScoringChatModel", self._model), [chat, without_chat], [replies, replies])
        return drawn(in_chat - form_nats, self._agent.decoding.temperature, self._view.generator(row))

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
        selected = _SELECTION.fullmatch(text)
        if selected is None:
            return None if _SEEMS.match(text) else chat_words(text)
        number = int(selected[1][:9])
        return number - 1 if 1 <= number <= len(self._view.table(row)) else None

    def _repair(self, chat: Chat, answer: str, row: int) -> Chat:
        more = f"That cannot be read. {_move_form(self._view, row)}"
        return *chat, Message("assistant", answer), Message("user", more)


def counts_of(answer: Answer) -> dict[str, int]:
    """Return the counts that an answer adds to `Slips` or `Lying`."""
    return {"answers": 1, "cut": int(answer.kind is AnswerKind.CUT)} | ({} if answer.is_reply else {answer.kind.column: 1})


def instructions(view: FriendsView, row: int) -> str:
    """Return the instructions before a chat: the game, the friends of the side, how to speak and how to select."""
    return "\n\n".join(
        [
            "You and a partner each have a list of friends. Exactly one friend is in both lists. Find out which one by "
            "talking, then select that friend. You both win when both of you have selected the friend that you share; whoever "
            "selected another one may select again. Your partner does not see your list.",
            friends_listed(view, row),
            _move_form(view, row),
        ]
    )


def friends_listed(view: FriendsView, row: int) -> str:
    """Return the table of a side, one friend a line."""
    names = [attribute.name for attribute in view.attributes(row)]
    friends = (
        f"{number}. " + ", ".join(f"{name}: {value}" for name, value in zip(names, item, strict=True))
        for number, item in enumerate(view.table(row), 1)
    )
    return "Your friends:\n" + "\n".join(friends)


def talk(view: FriendsView, row: int, messages: Sequence[Message]) -> Chat:
    """Return the messages that a model answers with its next move."""
    first = [Message("user", BEGINNING)] if not messages or messages[0].role == "assistant" else []
    return Message("system", instructions(view, row)), *merged([*first, *messages])


def message_of(event: ChatEvent, is_own: bool) -> Message:
    """Return an event as a message of the assistant (its own) or of the user (the partner's)."""
    return Message("assistant" if is_own else "user", _written(event, is_own))


def _move_form(view: FriendsView, row: int) -> str:
    num = len(view.table(row))
    return (
        f"Each time write one short line to say to your partner next, or select a friend by writing {SELECT} and the number "
        f"(1 to {num}) in your list, such as {SELECT} {num}. Write nothing else."
    )


def _written(event: ChatEvent, is_own: bool) -> str:
    """Return an event as text; `SILENCE` stands for one without words, because messages must not be empty."""
    if event.selected is None:
        return " ".join(event.words) or SILENCE
    return f"{SELECT} {event.selected + 1}" if is_own else f"(Your partner selects the friend: {', '.join(event.item)})"


TRUE = "true"
"""The answer that lets the partner hear the utterance as it is."""
_AROUND = " \t\r\n\"'`*.()#"


class ChatLies(LiesHeard):
    """A liar that asks a chat model for each choice.

    Args:
        name: its name in reports.
        linker: finds entities, and knows their forms.
        rules: rules of lying.
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
        with_claims = [index for index, occasion in enumerate(occasions) if occasion.claims]
        open_occasions = [occasions[index] for index in with_claims]
        actions = [0] * len(occasions)
        choose = self._scored if self._seat.model.access >= Access.SCORES else self._asked_for
        for index, action in zip(with_claims, choose(game, open_occasions) if open_occasions else (), strict=True):
            actions[index] = action
        return actions

    def _scored(self, game: FriendsGame, occasions: Sequence[Occasion]) -> list[int]:
        chats = [question(game, occasion, self.rules) for occasion in occasions]
        with self._seat.as_agent_errors():
            without_chat = [self._alone(len(occasion.claims)) for occasion in occasions]
            in_chat = nats_by_chat(self._model, chats, [_lines(len(occasion.claims)) for occasion in occasions])
        actions = []
        for occasion, nats, form in zip(occasions, in_chat, without_chat, strict=True):
            game.note_lying(occasion.row, occasion.meant.side, Lying(scored=1))
            actions.append(drawn(nats - form, self._seat.decoding.temperature, _generator(game, occasion)))
        return actions

    def _nats_alone(self, num_claims: int) -> np.ndarray:
        (nats,) = nats_by_chat(self._model, [(Message("user", _answer_form(num_claims)),)], [_lines(num_claims)])
        return nats

    def _asked_for(self, game: FriendsGame, occasions: Sequence[Occasion]) -> list[int]:
        chats = [question(game, occasion, self.rules) for occasion in occasions]
        seeds = [int(_generator(game, occasion).integers(SEEDS)) for occasion in occasions]
        for occasion in occasions:
            game.note_lying(occasion.row, occasion.meant.side, Lying(asked=1))
        answers = self._answers(game, occasions, chats, seeds)
        read = [read_choice(answer.text, len(occasion.claims)) for answer, occasion in zip(answers, occasions, strict=True)]
        again = [index for index, action in enumerate(read) if action is None and answers[index].is_reply]
        if again:
            mending = [_repair(chats[index], answers[index].text, len(occasions[index].claims)) for index in again]
            few = [occasions[index] for index in again]
            mended = self._answers(game, few, mending, [seeds[index] for index in again])
            for index, occasion, answer in zip(again, few, mended, strict=True):
                read[index] = read_choice(answer.text, len(occasion.claims))
                unread = int(read[index] is None and answer.is_reply)
                game.note_lying(occasion.row, occasion.meant.side, Lying(repairs=1, unread=unread))
        return [action or 0 for action in read]

    def _answers(
        self, game: FriendsGame, occasions: Sequence[Occasion], chats: Sequence[Chat], seeds: Sequence[int]
    ) -> list[Answer]:
        sides = {occasion.row: occasion.meant.side for occasion in occasions}

        def note(row: int, answer: Answer) -> None:
            game.note_lying(row, sides[row], Lying(**counts_of(answer)))

        return self._seat.answers([occasion.row for occasion in occasions], chats, seeds, note)

    @property
    def _model(self) -> ScoringChatModel:
        return cast("ScoringChatModel", self._seat.model)


def question(game: FriendsGame, occasion: Occasion, rules: LieRules) -> Chat:
    """Return the question: the rules, the side's table, the chat so far, the utterance, and the claims."""
    row, side = occasion.row, occasion.meant.side
    view, lies = game.view(side), lies_of(game, row, side)
    names = {attribute.type: attribute.name for attribute in view.attributes(row)}
    lines = [_line(event, event.side == side, any(event is lie for lie in lies)) for event in game.heard[row]]
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
    request = [
        "The chat so far:\n" + "\n".join(lines or ["(nothing yet)"]),
        f"Your side means to say now: {_said(occasion.meant)}",
        f"You may lie {left} more time{'s' * (left > 1)}. What you may claim instead:\n" + "\n".join(claims),
        _answer_form(len(occasion.claims)),
    ]
    return Message("system", "\n\n".join(system)), Message("user", "\n\n".join(request))


def read_choice(text: str, num_claims: int) -> int | None:
    """Return the claim that an answer names, counted from 1; 0 for the truth, None for an answer of another form."""
    line = text.strip(_AROUND).lower()
    if line == TRUE:
        return 0
    number = int(line[:9]) if line.isascii() and line.isdecimal() else 0
    return number if 1 <= number <= num_claims else None


def _repair(chat: Chat, answer: str, num_claims: int) -> Chat:
    more = f"That cannot be read. {_answer_form(num_claims)}"
    return *chat, Message("assistant", answer.strip()), Message("user", more)


def _answer_form(num_claims: int) -> str:
    which = f"the number (1 to {num_claims}) of a claim" if num_claims > 1 else "1, the number of the claim"
    return (
        f"Answer by one line: {TRUE}, so that your partner hears what is meant, or {which}, so that it hears that instead. "
        "Write nothing else."
    )


def _lines(num_claims: int) -> list[str]:
    return [TRUE, *map(str, range(1, num_claims + 1))]


def _line(event: ChatEvent, is_own: bool, is_lie: bool) -> str:
    who = "You" if is_own else "Your partner"
    if event.selected is not None:
        return f"({who} selected the friend: {', '.join(event.item)})"
    return f"{who}{' (a lie)' * is_lie}: {_said(event)}"


def _said(event: ChatEvent) -> str:
    return " ".join(event.words) or SILENCE


def _generator(game: FriendsGame, occasion: Occasion) -> np.random.Generator:
    return stream(game.event_seed(occasion.row), "chat liar", occasion.meant.side)
