"""What listeners hear instead of what is said: entities, random words, and nothing that the other strategies would change."""

from __future__ import annotations

from collections import Counter

import pytest

from parley.engine.mutual_friends.channels import (
    ChatKnowledge,
    ConfusedEntityChannel,
    MuteChannel,
    NoisyChannel,
    PerturbedChannel,
    RandomChannel,
    RandomSelector,
    UnknownWordChannel,
    confusing,
    spare_words,
)
from parley.engine.perturb.strategies.swap import RandomSwap
from parley.envs.core.errors import ConfigError
from parley.envs.core.seeds import stream
from parley.envs.mutual_friends.game import ChatEvent, FriendsGame, Mention, Token, play_friends
from parley.envs.mutual_friends.linker import EntityLinker
from parley.envs.mutual_friends.scenario import Entity, FriendsScenario, ScenarioOptions, random_friends
from tests.envs.mutual_friends.made_up import NAME, SCENARIO, SCHEMA, TOWN, Told, Wanderer

WORDS = [f"w{number}" for number in range(30)]
LINKER = EntityLinker(SCHEMA, [(Entity("upper nib", "town"), ("unib",))])
KNOWLEDGE = ChatKnowledge(SCHEMA, LINKER, ("climbing", *WORDS, "port"))
CHESS, NIB = Entity("chess", "hobby"), Entity("nib", "town")
SAID: tuple[Token, ...] = ("any", Mention(CHESS, ("chess",)), "in", "upper", "nib", "?")


def drawn(number: int) -> FriendsScenario:
    return random_friends(SCHEMA, stream(number, "scenario"), ScenarioOptions(max_attributes=3))


def heard_by(hearing: NoisyChannel, tokens: tuple[Token, ...], side: int = 0, num: int = 200) -> list[ChatEvent]:
    game = FriendsGame(num)
    game.enter(range(num), [SCENARIO] * num, range(num))
    return hearing(game, list(range(num)), [ChatEvent(side, tokens)] * num)


def test_random_words_take_the_place_of_all_words_and_name_nobody() -> None:
    heard = heard_by(RandomChannel(KNOWLEDGE), SAID)
    assert all(len(event.words) == 6 and set(event.words) <= set(WORDS) for event in heard)
    assert len({event.words for event in heard}) > 190
    assert set(Counter(word for event in heard for word in event.words)) == set(WORDS)
    assert not any(isinstance(token, Mention) for event in heard for token in LINKER.link(event.words))


def test_entities_stay_where_they_are_kept_those_of_plain_words_too() -> None:
    for event in heard_by(RandomChannel(KNOWLEDGE, keeps=True), SAID):
        assert event.tokens[1] == Mention(CHESS, ("chess",))
        assert event.tokens[3] == Mention(Entity("upper nib", "town"), ("upper", "nib"))
        assert {event.words[0], event.words[2], event.words[5]} <= set(WORDS)
        assert LINKER.link(event.words) == event.tokens


@pytest.mark.parametrize("side", [0, 1])
def test_a_confusing_entity_is_of_the_category_and_the_listeners_table_and_not_in_the_common_friend(side: int) -> None:
    listener, shared = 1 - side, SCENARIO.entities[1 - side][SCENARIO.shared[1 - side]]
    for event in heard_by(ConfusedEntityChannel(KNOWLEDGE), SAID, side):
        hobby, town = event.tokens[1], event.tokens[3]
        assert isinstance(hobby, Mention)
        assert isinstance(town, Mention)
        for mention, kind in ((hobby, "hobby"), (town, "town")):
            assert mention.entity.type == kind
            assert mention.entity in SCENARIO.mentionable[listener]
            assert mention.entity not in shared
            assert mention.words == tuple(mention.entity.value.split())
        assert (event.tokens[0], event.tokens[2], event.tokens[4]) == ("any", "in", "?")
    assert confusing(CHESS, SCENARIO, listener) == [Entity("knitting", "hobby")]


def test_a_name_of_the_common_friend_confuses_nobody_in_another_category_either() -> None:
    tables = (("Ada", "Rosa"), ("Ben", "Nib")), (("Cleo", "Nib"), ("Ada", "Rosa"), ("Rosa", "Upper Nib"))
    scenario = FriendsScenario("s2", (NAME, TOWN), tables)
    game = FriendsGame(50)
    game.enter(range(50), [scenario] * 50, range(50))
    heard = ConfusedEntityChannel(KNOWLEDGE)(game, list(range(50)), [ChatEvent(0, ("any", "ben", "?"))] * 50)
    assert LINKER.link(("rosa",), scenario.mentionable[1]) == (Mention(Entity("rosa", "name"), ("rosa",)),)
    assert {event.words for event in heard} == {("any", "cleo", "?")}, "the common friend lives in Rosa"


def test_words_around_a_new_name_do_not_come_to_name_the_common_friend() -> None:
    common = next(each for each in SCENARIO.entities[1][SCENARIO.shared[1]] if each.type == "hobby")
    linker = EntityLinker(SCHEMA, [(common, ("any", "knitting"))])
    hearing = ConfusedEntityChannel(ChatKnowledge(SCHEMA, linker, WORDS))
    assert {event.words for event in heard_by(hearing, ("any", "chess", "?"), num=20)} == {("any", "chess", "?")}
    assert {event.words for event in heard_by(hearing, ("some", "chess", "?"), num=20)} == {("some", "knitting", "?")}


def test_every_entity_that_may_confuse_is_drawn() -> None:
    found = Counter(event.tokens[0] for event in heard_by(ConfusedEntityChannel(KNOWLEDGE), ("upper", "nib")))
    assert {token.entity.value for token in found if isinstance(token, Mention)} == {"port rosa", "nib"}
    assert min(found.values()) > 60


def test_without_another_entity_or_any_the_event_stays_itself() -> None:
    game = FriendsGame(3)
    game.enter(range(3), [SCENARIO, SCENARIO, drawn(1)], range(3))
    lone = ("knitting", "?")
    events = [ChatEvent(0, lone), ChatEvent(1, ("hello",)), ChatEvent(0, ("hi", "you"))]
    heard = ConfusedEntityChannel(KNOWLEDGE)(game, [0, 1, 2], events)
    # Of hobbies the listener knows knitting alone beside that of the common friend.
    assert confusing(Entity("knitting", "hobby"), SCENARIO, 1) == []
    assert [one is other for one, other in zip(heard, events, strict=True)] == [True] * 3


def test_strange_entities_stand_in_neither_table() -> None:
    known = SCENARIO.mentionable[0] | SCENARIO.mentionable[1]
    for event in heard_by(UnknownWordChannel(KNOWLEDGE), (*SAID, "ada")):
        mentions = [token for token in event.tokens if isinstance(token, Mention)]
        # Every town of the schema but one is in a table; so is no hobby but two, and two names.
        assert [mention.entity.type for mention in mentions] == ["hobby", "town", "name"]
        assert not {mention.entity for mention in mentions} & known
        assert {word for word in event.tokens if isinstance(word, str)} <= set(WORDS)


def test_of_the_unheard_not_a_word_is_heard_and_a_text_strategy_changes_words_alone() -> None:
    game = FriendsGame(1)
    game.enter([0], [SCENARIO], [3])
    said = ChatEvent(0, ("a", "b", "c", "d", "e", "f", "g", "h"))
    assert MuteChannel()(game, [0], [said]) == [ChatEvent(0)]
    (heard,) = PerturbedChannel(RandomSwap())(game, [0], [said])
    assert sorted(heard.words) == sorted(said.words) != list(heard.words)


def test_draws_depend_on_the_chat_and_the_event_alone() -> None:
    alone = [play(num_rows=1, hearing=RandomChannel(KNOWLEDGE)), play(num_rows=7, hearing=RandomChannel(KNOWLEDGE))]
    assert alone[0] == alone[1]


def play(num_rows: int, hearing: NoisyChannel) -> list[tuple[ChatEvent, ...]]:
    chats = [(SCENARIO, seed) for seed in range(20)]
    found = play_friends(chats, (Wanderer(), Wanderer()), num_rows=num_rows, channels=(hearing, hearing))
    return [chat.heard for chat in found]


def test_a_chat_in_which_no_entity_is_named_equals_the_normal_one() -> None:
    hearing = ConfusedEntityChannel(KNOWLEDGE)
    chats = [(SCENARIO, seed) for seed in range(50)]
    agents = Wanderer(), Wanderer()
    assert play_friends(chats, agents, channels=(hearing, hearing)) == play_friends(chats, agents)


def test_what_is_heard_keeps_the_entities_and_sessions_get_plain_words() -> None:
    agents = Told([SAID]), Told([("no",)])
    (chat,) = play_friends([(SCENARIO, 1)], agents, channels=(ConfusedEntityChannel(KNOWLEDGE), None))
    (first, *_) = [heard for heard in chat.heard if heard.side == 0]
    assert isinstance(first.tokens[1], Mention)
    assert agents[1].heard[0][0 if chat.events[0].side == 0 else 1] == first.plain()


def test_spare_words_stand_in_no_form() -> None:
    assert spare_words(["unib", "nib", "climbing", *WORDS, WORDS[0]], LINKER) == WORDS
    with pytest.raises(ConfigError, match="random inputs need 20 words"):
        ChatKnowledge(SCHEMA, LINKER, WORDS[:19])


def test_two_selectors_that_look_agree_soon_and_blind_ones_seldom_do() -> None:
    chats = [(drawn(number), number) for number in range(100)]
    blind, seeing = RandomSelector(), RandomSelector(answers=True)
    assert all(chat.agreed for chat in play_friends(chats, (seeing, seeing)))
    assert 0.1 < sum(chat.agreed for chat in play_friends(chats, (blind, blind))) / 100 < 0.95
    for chat in play_friends(chats[:20], (seeing, seeing)):
        own = [event.selected for event in chat.events[:-1] if event.side == 0]
        assert len(set(own)) == len(own)
