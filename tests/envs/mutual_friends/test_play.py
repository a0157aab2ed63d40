"""The loop that plays chats in lock-step, and what may change on the way from a speaker to its partner."""

from __future__ import annotations

from itertools import pairwise

import pytest

from parley.envs.core.errors import ConfigError, ScenarioError
from parley.envs.mutual_friends.game import ChatEvent, FriendsGame, FriendsRules, Mention, Remembers, play_friends
from parley.envs.mutual_friends.scenario import Entity
from tests.envs.mutual_friends.made_up import SCENARIO, Told, Wanderer

CHATS = [(SCENARIO, seed) for seed in range(30)]
ADA = Mention(Entity("ada", "name"), ("ada",))


def shout(game: FriendsGame, rows: list[int], events: list[ChatEvent]) -> list[ChatEvent]:
    return [ChatEvent(event.side, tuple(word.upper() for word in event.words)) for event in events]


def test_sides_alternate_until_they_agree() -> None:
    (chat,) = play_friends([(SCENARIO, 1)], (Told([("hi",), 2]), Told([("hey",), ("ok",), 1])))
    sides = [event.side for event in chat.events]
    assert all(a != b for a, b in pairwise(sides))
    assert chat.agreed
    assert chat.key == "s1"


@pytest.mark.parametrize("num_rows", [1, 4, 30, 100])
def test_a_chat_does_not_depend_on_the_number_of_rows(num_rows: int) -> None:
    alone = [play_friends([chat], (Wanderer(), Wanderer()))[0] for chat in CHATS]
    assert play_friends(CHATS, (Wanderer(), Wanderer()), num_rows=num_rows) == alone
    assert len({chat.events for chat in alone}) > 25


def test_finished_chats_make_room_for_others() -> None:
    agents = Told([2]), Told([("hi",), 1])
    chats = play_friends(CHATS[:5], agents, num_rows=2)
    assert all(chat.agreed for chat in chats)
    for agent in agents:
        assert agent.entered[0] == [0, 1]
        assert sum(map(len, agent.entered)) == 5


def test_both_sides_hear_every_event_but_the_last() -> None:
    agents = Told([("any", ADA, "?"), 2]), Told([("no",), 1])
    (chat,) = play_friends([(SCENARIO, 1)], agents)
    for side, agent in enumerate(agents):
        own = [event for event in chat.events[:-1] if event.side == side]
        assert [event for event in agent.heard[0] if event.side == side] == own
        others = [event.plain() for event in chat.events[:-1] if event.side != side]
        assert [event for event in agent.heard[0] if event.side != side] == others


@pytest.mark.parametrize("remembers", ["said", "heard"])
def test_a_channel_changes_what_the_partner_hears_and_no_selection(remembers: Remembers) -> None:
    agents = Told([("any", ADA, "?"), 2]), Told([("no",), 1])
    (chat,) = play_friends([(SCENARIO, 1)], agents, channels=(shout, None), remembers=remembers)
    said, heard = (next(event for event in events if event.side == 0) for events in (chat.events, chat.heard))
    assert said.tokens == ("any", ADA, "?")
    assert heard.tokens == ("ANY", "ADA", "?")
    assert agents[1].heard[0][chat.events.index(said)] == heard
    assert agents[0].heard[0][chat.events.index(said)] == (said if remembers == "said" else heard)
    assert [event.tokens for event in chat.heard if event.side == 1 and event.tokens] == [("no",)]
    assert chat.agreed, "selections are seen as they are"


def test_a_channel_draws_from_the_event() -> None:
    def numbers(game: FriendsGame, rows: list[int], events: list[ChatEvent]) -> list[ChatEvent]:
        return [ChatEvent(event.side, (str(game.event_seed(row)),)) for row, event in zip(rows, events, strict=True)]

    def played(num_rows: int) -> list[tuple[ChatEvent, ...]]:
        chats = play_friends(CHATS, (Wanderer(), Wanderer()), num_rows=num_rows, channels=(numbers, numbers))
        return [chat.heard for chat in chats]

    assert played(3) == played(30)
    (first, *_) = played(30)
    assert len({event.words for event in first if event.selected is None}) == sum(e.selected is None for e in first)


def test_a_limit_ends_deaf_chats() -> None:
    chats = play_friends(CHATS[:3], (Told([("hi",)]), Told([("hey",)])), rules=FriendsRules(max_events=7))
    assert [len(chat.events) for chat in chats] == [7, 7, 7]
    assert not any(chat.agreed for chat in chats)


def test_an_agent_acts_in_every_row() -> None:
    class Mute(Told):
        def act(self, rows: list[int]) -> list[tuple[str, ...] | int]:  # type: ignore[override]
            return []

    with pytest.raises(ScenarioError, match=r"mute does not act in every chat[\s\S]*0 acts in 1 chats"):
        play_friends([(SCENARIO, 1)], (Mute([], "mute"), Mute([], "mute")))


def test_there_must_be_rows() -> None:
    with pytest.raises(ConfigError, match="in rows"):
        play_friends(CHATS, (Wanderer(), Wanderer()), num_rows=0)
    assert play_friends([], (Wanderer(), Wanderer())) == []
