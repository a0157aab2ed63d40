"""The scripted player keeps what players of MutualFriends promise, and those that do not are found out."""

from __future__ import annotations

from parley.envs.core.conformance import promises
from parley.envs.mutual_friends.conformance import FRIEND
from parley.envs.mutual_friends.game import Act, FriendsView
from parley.envs.mutual_friends.linker import EntityLinker
from parley.envs.mutual_friends.scripted.bots import FRIENDS_SCHEMA, FriendsBot, friends_forms
from tests.envs.mutual_friends.made_up import Told, Wanderer


def test_the_scripted_player_keeps_all() -> None:
    kept = promises(FRIEND, FriendsBot(EntityLinker(FRIENDS_SCHEMA, friends_forms())))
    assert [promise.failure for promise in kept] == [""] * 5
    assert [promise.failure for promise in promises(FRIEND, Wanderer())] == [""] * 5


def test_what_a_player_does_wrong_is_named() -> None:
    failures = [promise.failure for promise in promises(FRIEND, Told([("HI",)]))]
    assert failures[0] == ""
    assert failures[1] == "words in lower case; got ['HI', 'HI', 'HI']"
    failures = [promise.failure for promise in promises(FRIEND, Told([99]))]
    assert "the table has no such friend" in failures[1]


def test_a_player_that_looks_at_the_batch_is_found_out() -> None:
    class Counting(Wanderer):
        def join(self, view: FriendsView) -> Counting:
            session = Counting()
            session.view = view
            return session

        def act(self, rows: list[int]) -> list[Act]:
            return [(f"{len(rows)}",) for _ in rows]

    failures = [promise.failure for promise in promises(FRIEND, Counting())]
    assert "does not depend on what else is asked" in failures[3]
