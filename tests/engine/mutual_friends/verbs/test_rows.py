"""Chats as rows: what is said and heard, which entity became which, and which lies are believed."""

from __future__ import annotations

from typing import Any

from parley.engine.core.runs.parts import to_table
from parley.engine.mutual_friends.channels import ChatKnowledge, ConfusedEntityChannel, MuteChannel, RandomChannel
from parley.engine.mutual_friends.verbs.evaluate import CHATS, chat_row
from parley.envs.mutual_friends.game import Channel, ChatEvent, FriendsGame, Mention, play_friends
from parley.envs.mutual_friends.linker import EntityLinker
from parley.envs.mutual_friends.scenario import Entity
from tests.envs.mutual_friends.made_up import SCENARIO, SCHEMA, Told

KNOWLEDGE = ChatKnowledge(SCHEMA, EntityLinker(SCHEMA), [f"w{number}" for number in range(30)])
CHESS = Mention(Entity("chess", "hobby"), ("chess",))


def played(first: Told, second: Told, channel: Channel | None = None) -> dict[str, Any]:
    (chat,) = play_friends([(SCENARIO, 4)], (first, second), channels=(channel, channel))
    return chat_row("00-model-normal-000000", 4, ("model", "normal"), ("a", "b"), chat, KNOWLEDGE)


def test_a_row_holds_the_scenario_the_events_and_the_outcome() -> None:
    row = played(Told([("any", CHESS, "?"), 0, 2]), Told([("in", "upper", "nib"), 1]))
    assert to_table([row], CHATS).to_pylist() == [row]
    assert row["tables"][1][1] == ["Cleo", "Upper Nib", "chess"]
    assert (row["types"], row["shared"], row["agreed"]) == (["name", "town", "hobby"], [2, 1], True)
    by_side = [[event for event in row["events"] if event["side"] == side] for side in (0, 1)]
    assert [event["selected"] for event in by_side[0]][:3] == [None, 0, 2]
    assert by_side[0][0]["said"] == by_side[0][0]["heard"] == "any chess ?"
    assert by_side[0][0]["mentions"] == [{"type": "hobby", "said": "chess", "heard": "chess", "believed": None, "again": False}]
    assert [mention["said"] for mention in by_side[1][0]["mentions"]] == ["upper nib"], "plain words name entities as well"
    assert (by_side[0][1]["said"], by_side[0][1]["mentions"]) == (None, [])


def test_the_first_selection_of_the_chat_is_right_or_wrong_or_there_is_none() -> None:
    wrong, right = played(Told([0]), Told([("no",)])), played(Told([("no",)]), Told([1]))
    assert (wrong["first_selection_right"], right["first_selection_right"]) == (False, True)
    assert (wrong["agreed"], wrong["num_selections"]) == (False, [23, 0])
    assert played(Told([("no",)]), Told([("no",)]))["first_selection_right"] is None


def test_a_lie_is_believed_where_the_listener_names_it_or_selects_a_friend_that_has_it() -> None:
    believers = {True: (Told([("knitting", "?")]), Told([2])), False: (Told([("hello",)]), Told([0]))}
    for believed, answers in believers.items():
        for listener in answers:
            row = played(Told([("any", CHESS, "?")]), listener, ConfusedEntityChannel(KNOWLEDGE))
            lies = [mention for event in row["events"] if event["side"] == 0 for mention in event["mentions"]]
            assert {(lie["said"], lie["heard"]) for lie in lies} == {("chess", "knitting")}
            ended = [lie["believed"] for lie in lies]
            assert set(ended) <= {believed, None}
            assert ended.count(None) == (row["events"][-1]["side"] == 0)


def test_an_entity_that_is_not_heard_became_none() -> None:
    for channel in (RandomChannel(KNOWLEDGE), MuteChannel()):
        row = played(Told([("any", CHESS, "?")]), Told([("no",)]), channel)
        mentions = [mention for event in row["events"] for mention in event["mentions"]]
        assert {(each["said"], each["heard"], each["believed"]) for each in mentions} == {("chess", None, None)}


def test_a_listener_asks_again_where_it_asks_or_names_an_entity_of_the_category() -> None:
    answers: dict[tuple[Any, ...] | int, bool] = {
        ("why", "?"): True,
        ("chess",): True,
        ("hello",): False,
        ("in", "nib"): False,
        0: False,
    }
    for answer, again in answers.items():
        row = played(Told([("any", CHESS)]), Told([answer]), ConfusedEntityChannel(KNOWLEDGE))
        lies = [mention for event in row["events"] if event["side"] == 0 for mention in event["mentions"]]
        assert {lie["again"] for lie in lies} <= {again, None}


def test_a_claim_in_the_place_of_something_else_was_never_said() -> None:
    def lying(game: FriendsGame, rows: list[int], events: list[ChatEvent]) -> list[ChatEvent]:
        return [ChatEvent(event.side, ("two", "like", Mention(Entity("knitting", "hobby"), ("knitting",)))) for event in events]

    row = played(Told([("in", "nib", "?")]), Told([("knitting", "?")]), lying)
    event = next(event for event in row["events"] if event["side"] == 0)
    told = [(each["type"], each["said"], each["heard"]) for each in event["mentions"]]
    assert told == [("town", "nib", None), ("hobby", None, "knitting")]
    lies = [each for event in row["events"] for each in event["mentions"] if each["heard"] and event["side"] == 0]
    assert {lie["believed"] for lie in lies} <= {True, None}
