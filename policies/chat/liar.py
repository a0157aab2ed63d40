"""A chat model that lies about friends: it is asked at each utterance of its side whether one of some claims is heard instead.

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

from collections.abc import Callable, Sequence
from functools import cache
from typing import cast

import numpy as np

from parley.envs.core.seeds import stream
from parley.envs.mutual_friends.events import ChatEvent, Lying
from parley.envs.mutual_friends.game import FriendsGame
from parley.envs.mutual_friends.lies import LieRules, LiesHeard, Occasion, lies_of
from parley.envs.mutual_friends.linker import EntityLinker
from parley.policies.chat.bargaining import SILENCE
from parley.policies.chat.choosing import drawn, nats_by_chat
from parley.policies.chat.friend import counts_of, friends_listed
from parley.policies.chat.model import SEEDS, Access, Answer, Chat, ChatModel, Message, ScoringChatModel
from parley.policies.chat.seated import SeatedChatModel

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
        (found,) = nats_by_chat(self._model, [(Message("user", _form(num_claims)),)], [_lines(num_claims)])
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
        _form(len(occasion.claims)),
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
    more = f"That cannot be read. {_form(num_claims)}"
    return *asked, Message("assistant", answer.strip()), Message("user", more)


def _form(num_claims: int) -> str:
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
