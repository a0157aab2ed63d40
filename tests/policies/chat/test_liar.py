"""A chat model that lies about friends: what it is told, what is read of its answers, and what is counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from parley.envs.core.errors import ModelError
from parley.envs.core.play import AgentError
from parley.envs.mutual_friends.compiled import EMBEDDED_FRIENDS, load_friends
from parley.envs.mutual_friends.game import Channel, FriendsChat, Lying, Mention, play_friends
from parley.envs.mutual_friends.lies import LieRules, LyingChannel, by_chance
from parley.envs.mutual_friends.scripted.bots import FriendsBot
from parley.policies.chat.friend import ChatLies, read_choice
from parley.policies.chat.model import Access, Answer, Chat, ChatDecoding, ChatModel, ReplyScore
from tests.policies.chat.test_friend import scenario

CORPUS = load_friends(EMBEDDED_FRIENDS)
BOT = FriendsBot(CORPUS.linker)
RULES = LieRules(lies=2, claims=4)
NUM = 6


class Says:
    """Says what a function of the last message says."""

    name, access = "fake", Access.TEXT

    def __init__(self, say: Callable[[str], str | Answer]) -> None:
        self._say, self.asked, self.seeds = say, list[Chat](), list[int]()

    def answer(self, chats: Sequence[Chat], *, decoding: ChatDecoding, seeds: Sequence[int] = ()) -> list[Answer]:
        assert (decoding.temperature, decoding.max_tokens) == (0.3, 9)
        self.asked += chats
        self.seeds += seeds
        said = [self._say(chat[-1].content) for chat in chats]
        return [
            Answer(text, "length" if text.endswith("and so") else "stop") if isinstance(text, str) else text for text in said
        ]


class Scores(Says):
    """Finds the second claim likelier behind a question in a game than behind its form alone, and "true" likeliest by form."""

    access = Access.SCORES

    def score(self, chats: Sequence[Chat], replies: Sequence[str]) -> list[ReplyScore]:
        pairs = zip(chats, replies, strict=True)
        return [ReplyScore(-9.0 + 6 * (reply == "true") + 3 * (reply == "2" and len(chat) > 1), 1) for chat, reply in pairs]


def lies_of(model: ChatModel, temperature: float = 0.3) -> ChatLies:
    how = {"temperature": temperature, "max_tokens": 9}
    return ChatLies("liar:fake", CORPUS.linker, RULES, address="fake", load=lambda: model, **how)


def played(channel: Channel, num_rows: int = NUM, side: int = 0) -> list[FriendsChat]:
    channels = (channel, None) if side == 0 else (None, channel)
    return play_friends([(scenario(i), i) for i in range(NUM)], (BOT, BOT), num_rows=num_rows, channels=channels)


def told(chat: FriendsChat, side: int = 0) -> list[int]:
    return [i for i, (said, heard) in enumerate(zip(chat.events, chat.heard, strict=True)) if said.words != heard.words]


def test_it_lies_as_often_as_it_may_among_the_claims_of_any_liar() -> None:
    model = Says(lambda text: "2")
    chats = played(lies_of(model))
    second = played(LyingChannel("liar", CORPUS.linker, RULES, lambda seen, masks, uniforms: masks[:, 0] * 2))
    assert chats == second, "the same claims in the same words"
    assert all(len(told(chat)) <= 2 for chat in chats)
    assert sum(len(told(chat)) for chat in chats) > NUM
    for chat in chats:
        num = len(told(chat))
        assert chat.lying == (Lying(chances=num, told=num, asked=num, answers=num), None) if num else (None, None)
        for place in told(chat):
            (claimed,) = [token.entity for token in chat.heard[place].tokens if isinstance(token, Mention)]
            assert claimed not in chat.scenario.mentionable[0]


def test_it_is_told_the_rules_its_own_table_and_what_was_said_and_never_the_other_table() -> None:
    model = Says(lambda text: "1")
    chats = played(lies_of(model), num_rows=1)
    system, asked = (message.content for message in model.asked[0])
    first = chats[0].scenario
    assert all(value in system for item in first.tables[0] for value in item)
    own = set(map(", ".join, first.tables[0]))
    assert not any(", ".join(item) in system + asked for item in first.tables[1] if ", ".join(item) not in own)
    assert "lie 2 times" in system
    place = told(chats[0])[0]
    assert f"Your side means to say now: {' '.join(chats[0].events[place].words)}" in asked
    assert "You may lie 2 more times" in asked
    assert all(f"\n{number}. some friends of yours have " in asked for number in range(1, 5))
    again = model.asked[1][1].content
    assert f"You (a lie): {' '.join(chats[0].heard[place].words)}" in again
    assert "You may lie 1 more time." in again
    partner = next(event for event in chats[0].events if event.side == 1 and event.selected is None)
    assert any(f"Your partner: {' '.join(partner.words)}" in chat[1].content for chat in model.asked)


def test_what_is_no_such_line_is_asked_for_once_more_and_is_no_lie_then() -> None:
    mended = played(lies_of(Says(lambda text: " True. " if text.startswith("That cannot be read") else "I would lie")))
    vain = played(lies_of(Says(lambda text: "Number 2 is best and so")))
    honest = play_friends([(scenario(i), i) for i in range(NUM)], (BOT, BOT))
    assert mended == vain == honest
    for chat, other in zip(mended, vain, strict=True):
        said = sum(event.side == 0 and event.selected is None for event in chat.events)
        assert chat.lying[0] == Lying(chances=said, asked=said, repairs=said, answers=2 * said)
        assert other.lying[0] == Lying(chances=said, asked=said, repairs=said, unread=said, cut=2 * said, answers=2 * said)


def test_an_answer_that_is_no_reply_is_no_lie_and_counted_by_its_kind() -> None:
    lost = played(lies_of(Says(lambda text: Answer("", "length"))))
    assert lost == play_friends([(scenario(i), i) for i in range(NUM)], (BOT, BOT))
    for chat in lost:
        said = sum(event.side == 0 and event.selected is None for event in chat.events)
        assert chat.lying[0] == Lying(chances=said, asked=said, answers=2 * said, cut_in_thinking=2 * said)


@pytest.mark.parametrize(
    ("text", "claim"),
    [
        ("true", 0),
        ("TRUE.", 0),
        ("'3'", 3),
        ("(4)", 4),
        ("5", None),
        ("0", None),
        ("-1", None),
        ("1 2", None),
        ("²", None),
        ("", None),
    ],
)
def test_an_answer_is_read_strictly(text: str, claim: int | None) -> None:
    assert read_choice(text, 4) == claim


def test_a_model_that_scores_chooses_what_the_game_makes_likelier() -> None:
    model = Scores(lambda text: "true")
    chats = played(lies_of(model, temperature=0.0))
    assert not model.asked
    assert chats == played(lies_of(Says(lambda text: "2")))
    assert all(chat.lying[0] is None or chat.lying[0].scored == chat.lying[0].chances for chat in chats)
    assert played(lies_of(model, temperature=50.0)) != chats, "drawn"


def test_a_chat_depends_neither_on_its_company_nor_on_the_side() -> None:
    def by_length(text: str) -> str:
        return ("true", "1", "what?", "4")[len(text) % 4]

    one, together = Says(by_length), Says(by_length)
    alone = played(lies_of(one), num_rows=1)
    assert (both := played(lies_of(together))) == alone
    assert [chat.lying for chat in both] == [chat.lying for chat in alone]
    assert sorted(one.seeds) == sorted(together.seeds)
    assert len(set(one.seeds)) > NUM
    assert all(chat.lying[0] is None for chat in played(lies_of(Says(by_length)), side=1))
    drawn, scores = (played(lies_of(Scores(by_length), temperature=3.0), num_rows=rows) for rows in (1, NUM))
    assert drawn == scores


def test_lies_by_chance_are_counted_too() -> None:
    chats = played(LyingChannel("random", CORPUS.linker, RULES, by_chance(0.5)))
    for chat in chats:
        lying = chat.lying[0]
        assert (lying.told if lying else 0) == len(told(chat))
        assert lying is None or lying == Lying(chances=lying.chances, told=lying.told)


def test_a_model_that_fails_costs_the_chat() -> None:
    def fails(text: str) -> str:
        raise ModelError("the server is gone")

    with pytest.raises(AgentError, match="gone"):
        played(lies_of(Says(fails)))
