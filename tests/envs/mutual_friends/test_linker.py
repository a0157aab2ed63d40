"""Which words are entities: the longest form, from left to right, and the context's first."""

from __future__ import annotations

from pathlib import Path

import pytest

from parley.envs.core.errors import DataError
from parley.envs.mutual_friends.game import ChatEvent, Mention, plain_words
from parley.envs.mutual_friends.linker import EntityLinker, read_lexicon
from parley.envs.mutual_friends.scenario import Entity, FriendsSchema, chat_words
from parley.envs.mutual_friends.scripted.bots import friends_forms
from tests.envs.mutual_friends.made_up import HOBBY, SCHEMA

CLIMB = Entity("rock climbing", "hobby")
UPPER = Entity("upper nib", "town")
ROSA, TOWN_ROSA, PORT_ROSA = Entity("rosa", "name"), Entity("rosa", "town"), Entity("port rosa", "town")
RARE = [(CLIMB, ("climb", "rocks")), (PORT_ROSA, ("rosa",)), (Entity("chess", "hobby"), ("all", "of"))]
FORMS = [(CLIMB, ("climbing",))] * 3 + RARE
LINKER = EntityLinker(SCHEMA, FORMS)


def linked(text: str, *context: Entity) -> list[Entity | str]:
    tokens = LINKER.link(chat_words(text), *([set(context)] if context else []))
    return [token if isinstance(token, str) else token.entity for token in tokens]


def test_the_longest_form_is_found_from_left_to_right() -> None:
    assert linked("from upper nib , rock climbing") == ["from", UPPER, ",", CLIMB]
    assert linked("nib upper nib") == [Entity("nib", "town"), UPPER]
    assert linked("Bird-watching!") == [Entity("bird-watching", "hobby"), "!"]


def test_words_stay_as_they_are_said() -> None:
    words = chat_words("any climbing in port rosa ?")
    tokens = LINKER.link(words)
    assert plain_words(tokens) == words
    assert tokens[1] == Mention(CLIMB, ("climbing",))
    event = ChatEvent(0, tokens)
    assert event.mentions == tuple(token for token in tokens if isinstance(token, Mention))
    assert event.plain() == ChatEvent(0, words)
    assert (event.plain().words, event.plain().mentions) == (words, ())


def test_the_context_decides_between_entities_of_one_form() -> None:
    assert linked("rosa") == [ROSA], "the first name of the schema"
    assert linked("rosa", TOWN_ROSA) == [TOWN_ROSA]
    assert linked("rosa", PORT_ROSA) == [PORT_ROSA], "a form, but in the context"
    assert linked("rosa", PORT_ROSA, ROSA) == [ROSA], "names before forms"


def test_a_rare_form_counts_in_its_context_alone() -> None:
    chess = Entity("chess", "hobby")
    assert linked("all of them climb rocks") == ["all", "of", "them", "climb", "rocks"]
    assert linked("all of them", chess) == [chess, "them"]
    assert linked("climbing") == [CLIMB], "seen three times"


def test_and_at_the_ends_of_a_form_belongs_to_the_sentence() -> None:
    linker = EntityLinker(SCHEMA, [(CLIMB, ("and", "climbers"))] * 2 + [(CLIMB, ("climbers", "and"))])
    tokens = linker.link(chat_words("chess and climbers and rosa"))
    assert [token if isinstance(token, str) else token.words for token in tokens] == [
        ("chess",),
        "and",
        ("climbers",),
        "and",
        ("rosa",),
    ]
    assert Mention(CLIMB, ("climbers",)) in linker.mentions(CLIMB), "seen three times in all"


def test_words_of_any_talk_are_no_form_however_often_a_lexicon_has_them() -> None:
    linker = EntityLinker(SCHEMA, [(PORT_ROSA, ("work", "for"))] * 5 + FORMS)
    assert linker.link(("work", "for", "rosa"), {PORT_ROSA, TOWN_ROSA})[:2] == ("work", "for")


def test_an_entity_of_no_table_is_found_by_its_name() -> None:
    assert linked("upper nib", TOWN_ROSA) == [UPPER]


def test_an_entity_of_a_category_that_no_table_has_is_none() -> None:
    assert linked("upper nib", ROSA) == ["upper", "nib"]
    assert linked("ada likes upper nib", ROSA, UPPER)[0] == Entity("ada", "name")


def test_the_first_context_wins() -> None:
    words = ("rosa",)
    for first, second in ((ROSA, TOWN_ROSA), (TOWN_ROSA, ROSA)):
        (token,) = LINKER.link(words, {first}, {second})
        assert token == Mention(first, words)


def test_a_form_of_many_entities_must_share_a_word_with_the_name() -> None:
    towns = [Entity(name, "town") for name in ("upper nib", "nib", "port rosa")]
    linker = EntityLinker(SCHEMA, [(town, words) for town in towns for words in (("go", "to"), ("rosa", "port"))])
    assert linker.link(("go", "to"), set(towns)) == ("go", "to")
    assert linker.link(("rosa", "port"), set(towns)) == (Mention(towns[2], ("rosa", "port")),)


def test_no_entity_leaves_the_words() -> None:
    assert linked("hi there \U0001f600") == ["hi", "there", "\U0001f600"]
    assert LINKER.link(()) == ()


def test_mentions_begin_with_the_name() -> None:
    assert [mention.words for mention in LINKER.mentions(CLIMB)] == [("rock", "climbing"), ("climbing",)], "once may be a slip"
    assert LINKER.mentions(UPPER) == [Mention(UPPER, ("upper", "nib"))]
    with pytest.raises(DataError, match=r"does not have the entity[\s\S]*'go' \(hobby\)"):
        LINKER.mentions(Entity("go", "hobby"))


def test_finding_says_where_mentions_begin() -> None:
    words = chat_words("any climbing in port rosa or upper nib ?")
    assert [(at, mention.words) for at, mention in LINKER.find(words)] == [
        (1, ("climbing",)),
        (3, ("port", "rosa")),
        (6, ("upper", "nib")),
    ]


def test_forms_belong_to_the_schema() -> None:
    with pytest.raises(DataError, match=r"names no entity[\s\S]*'go' for 'go' \(hobby\)"):
        EntityLinker(SCHEMA, [(Entity("go", "hobby"), ("go",))])
    with pytest.raises(DataError, match="no words"):
        EntityLinker(FriendsSchema((HOBBY,), {"hobby": (" ",)}))


def test_a_published_lexicon_is_read(tmp_path: Path) -> None:
    path = tmp_path / "lexicon.txt"
    path.write_text("Rock Climbing\tclimb  rocks\thobby\nrosa\tRosa's\tname\n")
    assert read_lexicon(path, SCHEMA) == [(CLIMB, ("climb", "rocks")), (ROSA, ("rosa's",))]


@pytest.mark.parametrize("line", ["rosa\trosa", "rosa\t \tname", "", "a\tb\tc\td"])
def test_a_broken_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "lexicon.txt"
    path.write_text(f"rosa\trosa\tname\n{line}\n")
    with pytest.raises(DataError, match=r"no form of an entity[\s\S]*lexicon.txt:2"):
        read_lexicon(path, SCHEMA)


def test_a_line_that_names_no_entity_is_named(tmp_path: Path) -> None:
    path = tmp_path / "lexicon.txt"
    path.write_text("rosa\trosa\tname\nrosa\trosa\tplace\n")
    with pytest.raises(DataError, match=r"names no entity[\s\S]*lexicon.txt:2[\s\S]*'rosa' \(place\)"):
        read_lexicon(path, SCHEMA)


def test_a_missing_lexicon_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        read_lexicon(tmp_path / "none.txt", SCHEMA)


def test_a_spelling_begins_and_ends_with_a_word_of_the_name() -> None:
    ends = {word for _, words in friends_forms() for word in (words[0], words[-1])}
    assert not ends & {"&", "and", "of"}
    assert {"&", "of"} <= {word for _, words in friends_forms() for word in words}, "there is something to leave out"
