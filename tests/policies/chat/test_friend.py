"""A chat model that looks for a common friend: what it is told, what is read of its answers, and what is counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from parley.envs.core.seeds import stream
from parley.envs.mutual_friends.compiled import EMBEDDED_FRIENDS, load_friends
from parley.envs.mutual_friends.game import FriendsChat, Slips, play_friends
from parley.envs.mutual_friends.scenario import FriendsScenario, random_friends
from parley.envs.mutual_friends.scripted.bots import FriendsBot
from parley.policies.chat.friend import SELECT, ChatFriend
from parley.policies.chat.model import Access, Answer, Chat, ChatDecoding, NoReplyError, ReplyScore

CORPUS = load_friends(EMBEDDED_FRIENDS)
NUM = 6


def scenario(number: int) -> FriendsScenario:
    return random_friends(CORPUS.schema, stream(1, "scenario", str(number)), key=str(number))


class Told:
    """Says what a function of a chat says."""

    name, access = "fake", Access.TEXT

    def __init__(self, say: Callable[[Chat], str]) -> None:
        self._say, self.asked = say, list[Chat]()
        self.seeds: list[int] = []

    def answer(self, chats: Sequence[Chat], *, decoding: ChatDecoding, seeds: Sequence[int] = ()) -> list[Answer]:
        assert decoding.max_tokens == 20
        self.asked += chats
        self.seeds += seeds
        return [Answer(text := self._say(chat), "length" if text.endswith("and so") else "stop") for chat in chats]


def agent(model: Told) -> ChatFriend:
    return ChatFriend("openai:http://here/v1#talker", lambda: model, 0.3, 20)


def played(model: Told, side: int = 0, num_rows: int = NUM) -> list[FriendsChat]:
    agents = (agent(model), FriendsBot(CORPUS.linker))
    return play_friends([(scenario(i), i) for i in range(NUM)], agents if side == 0 else agents[::-1], num_rows=num_rows)


def follows(chat: Chat) -> str:
    """Speaks once, then selects what the partner selects, where it has that friend, else one after the other."""
    friends = [line.partition(". ")[2] for line in chat[0].content.splitlines() if line[:1].isdigit()]
    values = [tuple(part.partition(": ")[2].lower() for part in friend.split(", ")) for friend in friends]
    for message in chat[::-1]:
        _, mark, item = message.content.rpartition("(Your partner selects the friend: ")
        wanted = tuple(item.rstrip(")").lower().split(", "))
        if message.role == "user" and mark and wanted in values:
            return f"{SELECT.lower()} {values.index(wanted) + 1}."
    own = [message for message in chat if message.role == "assistant"]
    return f"{SELECT} {(len(own) - 1) % len(friends) + 1}" if own else "Do you know someone?"


def test_it_talks_selects_and_finds_the_friend() -> None:
    model = Told(follows)
    chats = played(model)
    assert sum(chat.agreed for chat in chats) >= NUM - 1
    assert all(chat.slips == (Slips(answers=sum(event.side == 0 for event in chat.events)), None) for chat in chats)
    first = chats[0].scenario
    told = [chat for chat in model.asked if chat[0].content.count("\n") and first.tables[0][0][0] in chat[0].content]
    assert told
    assert all(value in told[0][0].content for item in first.tables[0] for value in item)
    own, other = (set(map(str, table)) for table in first.tables)
    assert not any(", ".join(item) in told[0][0].content for item in first.tables[1] if str(item) in other - own)
    assert [message.role for message in told[-1]][:2] == ["system", "user"]
    assert all(a.role != b.role for a, b in zip(told[-1][1:], told[-1][2:], strict=False))
    said = {event.words for chat in chats for event in chat.events if event.side == 0 and event.selected is None}
    assert said == {("do", "you", "know", "someone", "?")}


def test_a_chat_depends_neither_on_its_company_nor_on_the_side() -> None:
    one, all_of_them = Told(follows), Told(follows)
    assert played(one, num_rows=1) == played(all_of_them)
    assert sorted(one.seeds) == sorted(all_of_them.seeds)
    assert len(set(one.seeds)) > 2 * NUM
    assert all(
        chat.slips == (None, Slips(answers=sum(event.side == 1 for event in chat.events)))
        for chat in played(Told(follows), side=1)
    )


def test_what_is_no_move_is_asked_for_once_more_and_then_said_as_it_stands() -> None:
    def mends(chat: Chat) -> str:
        return "hello" if "cannot be read" in chat[-1].content else f"{SELECT} 99"

    def never(chat: Chat) -> str:
        return "Select the second one"

    mended, vain = played(Told(mends)), played(Told(never))
    for chat in mended:
        own = [event for event in chat.events if event.side == 0]
        assert {event.words for event in own} == {("hello",)}
        assert chat.slips[0] == Slips(len(own), 0, answers=2 * len(own))
    for chat in vain:
        own = [event for event in chat.events if event.side == 0]
        assert {event.words for event in own} == {("select", "the", "second", "one")}
        assert chat.slips[0] == Slips(len(own), len(own), answers=2 * len(own))


class Scoring(Told):
    """Finds one selection likelier behind a chat than its form alone makes it, and another likeliest by its form."""

    access = Access.SCORES

    def score(self, chats: Sequence[Chat], replies: Sequence[str]) -> list[ReplyScore]:
        pairs = zip(chats, replies, strict=True)
        return [
            ReplyScore(-9.0 + 6.0 * (reply == f"{SELECT} 1") + (len(chat) > 1 and reply == f"{SELECT} 3"), 2)
            for chat, reply in pairs
        ]


def test_a_model_that_scores_selects_the_friend_that_the_chat_makes_likeliest_where_it_names_none() -> None:
    model = Scoring(lambda chat: "?" if "cannot be read" in chat[-1].content else "Select the second one")
    agents = ChatFriend("hf:talker", lambda: model, 0.0, 20), FriendsBot(CORPUS.linker)
    (chat,) = play_friends([(scenario(0), 0)], agents, num_rows=1)
    own = [event for event in chat.events if event.side == 0]
    assert own
    assert {event.selected for event in own} == {2}
    assert chat.slips[0] == Slips(by_scores=len(own), answers=len(own))
    assert not any("cannot be read" in asked[-1].content for asked in model.asked), "its scores say it"


def test_what_is_cut_is_counted() -> None:
    for chat in played(Told(lambda chat: "I know many and so")):
        num = sum(event.side == 0 for event in chat.events)
        assert chat.slips[0] == Slips(cut=num, answers=num)


def test_an_answer_that_is_no_reply_is_no_move_but_the_end_of_its_chat() -> None:
    class Thinks(Told):
        def answer(self, chats: Sequence[Chat], *, decoding: ChatDecoding, seeds: Sequence[int] = ()) -> list[Answer]:
            answers = super().answer(chats, decoding=decoding, seeds=seeds)
            lost = [chat[0].content == poor and len(chat) > 2 for chat in chats]
            return [Answer("", "length", reasoning="So") if no else answer for no, answer in zip(lost, answers, strict=True)]

    first = Told(follows)
    played(first)
    poor = first.asked[2][0].content
    lost: dict[int, FriendsChat] = {}
    agents = agent(Thinks(follows)), FriendsBot(CORPUS.linker)
    with pytest.raises(NoReplyError, match=r"no answer \(cut in thinking\)") as told:
        play_friends([(scenario(i), i) for i in range(NUM)], agents, num_rows=4, on_lost=lost.__setitem__)
    ((number, chat),) = lost.items()
    assert told.value.rows == (number,)
    assert all(value in poor for item in scenario(number).tables[0] for value in item), "by the number of the chat"
    slips = chat.slips[0]
    assert slips is not None
    assert (slips.answers, slips.cut_in_thinking) == (3, 2), "one that draws is asked once more"
    assert sum(event.side == 0 for event in chat.events) == 1
