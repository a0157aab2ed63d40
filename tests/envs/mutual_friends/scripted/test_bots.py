"""Scripted players: what they say, what they conclude, and that their chats depend on the seed alone."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from itertools import pairwise

import pytest

from parley.engine.responders.corpus_info import describe_split
from parley.envs.mutual_friends.game import Act, ChatEvent, FriendsChat, FriendsGame, Mention, play_friends
from parley.envs.mutual_friends.linker import EntityLinker
from parley.envs.mutual_friends.scenario import Entity
from parley.envs.mutual_friends.scripted import bots as phrases
from parley.envs.mutual_friends.scripted.bots import (
    FRIENDS_SCHEMA,
    NEGATIONS,
    FriendsBot,
    FriendsBotSession,
    draw_scenarios,
    friends_forms,
    is_question,
    scripted_chats,
)
from tests.envs.mutual_friends.made_up import SCENARIO, SCHEMA

LINKER = EntityLinker(FRIENDS_SCHEMA, friends_forms())
SMALL = EntityLinker(SCHEMA)
FAULTLESS: dict[str, float] = {"guesses": 0, "slips": 0}
CHATS = scripted_chats(FRIENDS_SCHEMA, LINKER, range(200), **FAULTLESS)


def begun(side: int = 0, seed: int = 5) -> tuple[FriendsGame, FriendsBotSession]:
    game = FriendsGame(1)
    game.enter([0], [SCENARIO], [seed])
    session = FriendsBot(SMALL).join(game.view(side))
    session.enter([0])
    return game, session


def told(session: FriendsBotSession, text: str, side: int = 1) -> None:
    session.hear([0], [ChatEvent(side, tuple(text.split()))])


def done(session: FriendsBotSession, times: int = 12) -> Iterator[Act]:
    """What the bot does next, and after that, and after that, while its partner says nothing of use."""
    for _ in range(times):
        (act,) = session.act([0])
        event = ChatEvent(0, act) if isinstance(act, tuple) else ChatEvent(0, selected=act, item=SCENARIO.tables[0][act])
        session.hear([0], [event])
        yield act


def spoken(chats: list[FriendsChat]) -> list[ChatEvent]:
    return [event for chat in chats for event in chat.events if event.selected is None]


def test_most_chats_agree_within_the_limit() -> None:
    assert sum(chat.agreed for chat in CHATS) >= 190
    turns = sum(len(chat.events) for chat in CHATS) / len(CHATS)
    assert 12 < turns < 20
    firsts = [
        next((event.selected for event in chat.events if event.side == side and event.selected is not None), None)
        == chat.scenario.shared[side]
        for chat in CHATS
        for side in (0, 1)
    ]
    assert sum(firsts) > 0.6 * len(firsts)


def test_a_chat_depends_on_its_number_and_seed_alone() -> None:
    again = scripted_chats(FRIENDS_SCHEMA, LINKER, [17, 3], **FAULTLESS)
    assert again == [CHATS[17], CHATS[3]]
    assert scripted_chats(FRIENDS_SCHEMA, LINKER, [3], seed=1, **FAULTLESS)[0].events != CHATS[3].events
    bots = FriendsBot(LINKER), FriendsBot(LINKER)
    one_at_a_time = play_friends(draw_scenarios(FRIENDS_SCHEMA, range(20)), bots, num_rows=1)
    assert [chat.events for chat in one_at_a_time] == [chat.events for chat in CHATS[:20]]


def test_the_same_seed_gives_the_same_chats_byte_for_byte() -> None:
    """Corpora that others compiled, and figures of models that were fitted to them, stay what they are."""
    told_apart = [(chat.key, chat.scenario.tables, chat.scenario.alphas, chat.events, chat.agreed) for chat in CHATS]
    assert sha256(repr(told_apart).encode()).hexdigest()[:16] == "83efd597478beea5"


def test_listeners_understand_nearly_all_that_is_said() -> None:
    """Words alone, with the listener's table as context, name what the speaker meant."""
    meant = understood = 0
    for chat in CHATS:
        for event in chat.events:
            said = [token.entity for token in event.tokens if isinstance(token, Mention)]
            context = chat.scenario.mentionable[1 - event.side]
            heard = [token.entity for token in LINKER.link(event.words, context) if isinstance(token, Mention)]
            meant += len(said)
            understood += said == heard and len(said)
    assert understood / meant > 0.99


def test_plain_words_name_nothing() -> None:
    every = {word for event in spoken(CHATS) for word in event.tokens if isinstance(word, str)}
    assert [word for word in sorted(every) if LINKER.link((word,)) != (word,)] == []


def test_bots_speak_of_their_own_tables_and_of_what_was_asked() -> None:
    for chat in CHATS[:50]:
        heard: set[Entity] = set()
        for event in chat.events:
            meant = {token.entity for token in event.tokens if isinstance(token, Mention)}
            assert meant <= chat.scenario.mentionable[event.side] | heard
            heard |= meant


def test_every_act_has_several_wordings_and_entities_several_spellings() -> None:
    starts = {event.words[:2] for event in spoken(CHATS)}
    assert len(starts) > 60
    for acts in (phrases.GREETINGS, phrases.INFORMS, phrases.ASKS, phrases.YES, phrases.NO, phrases.BARE_NO):
        assert len(acts) >= 5
    spellings = {token for event in spoken(CHATS) for token in event.tokens if isinstance(token, Mention)}
    names = {token.entity for token in spellings}
    assert len(spellings) > 1.3 * len(names)


@pytest.mark.parametrize("seed", range(8))
def test_what_is_denied_is_ruled_out(seed: int) -> None:
    _, session = begun(seed=seed)
    told(session, "no , nobody from nib")
    assert not {0, 1} & {act for act in done(session) if isinstance(act, int)}, "two friends are from there"


@pytest.mark.parametrize("seed", range(8))
def test_what_is_denied_together_is_ruled_out_together(seed: int) -> None:
    _, session = begun(seed=seed)
    told(session, "any from nib")
    told(session, "some from nib")
    told(session, "none from nib who likes chess")
    selected = [act for act in done(session) if isinstance(act, int)]
    assert selected[0] == 1, "Ben from there knits"
    assert 0 not in selected


def test_a_bare_no_answers_the_last_question() -> None:
    _, session = begun()
    session.hear([0], [ChatEvent(0, ("any", "in", Mention(Entity("nib", "town"), ("nib",)), "?"))])
    told(session, "nope")
    assert not {0, 1} & {act for act in done(session) if isinstance(act, int)}


def test_a_question_is_answered() -> None:
    for seed in range(10):
        _, session = begun(seed=seed)
        told(session, "any friends from nib ?")
        (act,) = session.act([0])
        assert isinstance(act, tuple)
        words = ChatEvent(0, act).words
        assert "nib" in words
        assert {"2", "two"} & set(words)
    _, session = begun()
    told(session, "anyone called rosa")
    (act,) = session.act([0])
    assert isinstance(act, tuple)
    assert phrases.NEGATIONS & set(ChatEvent(0, act).words)


def test_the_friend_that_the_partner_selects_is_selected_if_it_is_known() -> None:
    game, session = begun()
    session.hear([0], [game.event(0, 1, 1)])
    assert session.act([0]) == [2]
    _, session = begun()
    session.hear([0], [game.event(0, 1, 0)])
    assert session.act([0]) != [0]


def test_silence_is_heard_too() -> None:
    _, session = begun()
    session.hear([0], [ChatEvent(1, ())])
    assert session.act([0])


def test_a_table_of_one_friend_will_do() -> None:
    scenario = type(SCENARIO)("x", SCENARIO.attributes[:1], ((("Ada",),), (("Ada",), ("Ben",))))
    (chat,) = play_friends([(scenario, 3)], (FriendsBot(SMALL), FriendsBot(SMALL)))
    assert chat.agreed


def test_players_guess_and_slip_at_peoples_rates_and_faultless_ones_do_neither() -> None:
    """Of the values of friends whom people select 43 % were named before (15 chats)."""
    people, faultless = describe_split("", scripted_chats(FRIENDS_SCHEMA, LINKER, range(200))), describe_split("", CHATS)
    assert 0.40 < people.selected_named < 0.46
    assert faultless.selected_named > 0.68
    assert people.selections.mean > faultless.selections.mean + 0.8
    assert people.completion > 0.97, "a guess names a friend as well"


def test_a_slip_denies_friends_that_a_question_is_about() -> None:
    chats = scripted_chats(FRIENDS_SCHEMA, LINKER, range(60), guesses=0, slips=1)
    questions = denials = 0
    for chat in chats:
        for asked, answer in pairwise(chat.events):
            entities = [mention.entity for mention in asked.mentions]
            friends = chat.scenario.entities[answer.side]
            if asked.side == answer.side or not is_question(asked.words) or not entities or answer.selected is not None:
                continue
            if any(set(entities[:2]) <= set(friend) for friend in friends):
                questions += 1
                denials += not NEGATIONS.isdisjoint(answer.words)
    assert questions > 50
    assert denials == questions
