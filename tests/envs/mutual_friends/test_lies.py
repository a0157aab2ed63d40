"""Lies about friends: what may be claimed, what is seen of it, and that nothing else is changed."""

from __future__ import annotations

import numpy as np
import pytest

from parley.envs.core.errors import OutOfRangeError
from parley.envs.mutual_friends.game import ChatEvent, FriendsGame, Mention, play_friends
from parley.envs.mutual_friends.lies import FEATURES, Choice, Decisions, LieRules, LyingChannel, LyingGame, by_chance, num_lies
from parley.envs.mutual_friends.linker import EntityLinker
from parley.envs.mutual_friends.scenario import Entity
from parley.envs.mutual_friends.scripted.bots import FRIENDS_SCHEMA, FriendsBot, draw_scenarios, friends_forms
from tests.envs.mutual_friends.made_up import SCENARIO, SCHEMA, Told

LINKER = EntityLinker(FRIENDS_SCHEMA, friends_forms())
BOT = FriendsBot(LINKER)
CHATS = draw_scenarios(FRIENDS_SCHEMA, range(12), 3)


def first(seen: np.ndarray, masks: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
    return np.ones(len(seen), dtype=np.int64)


def test_every_lie_claims_an_entity_of_the_schema_that_no_own_friend_has() -> None:
    rules = LieRules(lies=2)
    chats = LyingGame(LINKER, BOT, BOT, rules).play(CHATS, by_chance(0.6))
    lies = [
        (chat, meant, heard)
        for chat in chats
        for meant, heard in zip(chat.events, chat.heard, strict=True)
        if meant.words != heard.words
    ]
    assert len(lies) > 8
    for chat, meant, heard in lies:
        (claimed,) = [token.entity for token in heard.tokens if isinstance(token, Mention)]
        assert claimed in FRIENDS_SCHEMA.entities()
        assert claimed not in chat.scenario.mentionable[0]
        assert claimed.type in {each.type for each in chat.scenario.attributes}
        assert (meant.side, heard.side, meant.selected, heard.selected) == (0, 0, None, None)
    assert max(num_lies(chats)) == 2, "no more than the rules allow"


def test_who_never_lies_changes_nothing_and_chats_do_not_depend_on_company() -> None:
    game = LyingGame(LINKER, BOT, BOT)
    assert game.play(CHATS, by_chance(0.0)) == play_friends(CHATS, (BOT, BOT))
    together, alone = game.play(CHATS, by_chance(0.5)), [game.play([chat], by_chance(0.5))[0] for chat in CHATS]
    assert together == alone


def lied_to(*acts: tuple[str, ...] | int, choose: Choice = first, meant: tuple[str, ...] = ("ok",)) -> list[Decisions]:
    """The decisions of a liar whose partner does that, in a chat that the partner begins."""
    noted: list[Decisions] = []
    channel = LyingChannel("liar", EntityLinker(SCHEMA), LieRules(lies=2, claims=4), choose, noted.append)
    seed = next(seed for seed in range(9) if _begins(seed) == 1)
    play_friends([(SCENARIO, seed)], (Told([meant]), Told(acts)), channels=(channel, None))
    return noted


def _begins(seed: int) -> int:
    game = FriendsGame(1)
    game.enter([0], [SCENARIO], [seed])
    return int(game.to_move[0])


def test_what_the_partner_names_and_selects_may_be_claimed_first() -> None:
    noted = lied_to(("any", "in", "port", "rosa", "?"), 0, meant=("in", "nib"))
    seen = [dict(zip(FEATURES, each.seen[0, 1].tolist(), strict=True)) for each in noted]
    newest, earlier, selected = FEATURES[1:4]
    assert (seen[0][newest], seen[0][selected], seen[0]["whether the partner asks"]) == (1, 0, 1)
    assert (seen[1][newest], seen[1][selected], seen[1]["whether the partner asks"]) == (0, 1, 0)
    assert seen[0]["whether what it means to say names an entity of the attribute"] == 1
    assert seen[0]["selections of the partner, of three"] < seen[1]["selections of the partner, of three"]
    assert [each["lies left"] for each in seen] == [1, 0.5]
    assert seen[0]["whether it has been claimed before"] == 0
    assert all((each.seen >= 0).all() and (each.seen <= 1).all() for each in noted)
    assert all(each.seen[0, 0, 0] == 1 and each.seen[0, 1:, 0].sum() == 0 for each in noted)
    # Of Port Rosa, Dina and the rest four may be claimed; nothing of the own table.
    assert noted[0].masks.tolist() == [[1, 1, 1, 1, 1]]
    assert earlier == "whether an earlier one does"


def test_a_question_is_answered_by_a_yes() -> None:
    game = FriendsGame(1)
    game.enter([0], [SCENARIO], [next(seed for seed in range(9) if _begins(seed) == 1)])
    asked = game.event(0, 1, ("anyone", "in", "port", "rosa", "?"))
    game.add(0, asked)
    channel = LyingChannel("liar", EntityLinker(SCHEMA), LieRules(), first)
    (heard,) = channel(game, [0], [ChatEvent(0, ("no",))])
    assert heard.words[0] in {"yes", "yeah", "yep", "sure"}
    assert [token.entity for token in heard.tokens if isinstance(token, Mention)] == [Entity("port rosa", "town")]


def test_chance_lies_at_its_rate_and_any_claim_alike() -> None:
    seen, masks = np.zeros((6000, 4, len(FEATURES))), np.tile(np.array([1, 1, 1, 0], dtype=np.int8), (6000, 1))
    taken = by_chance(0.4)(seen, masks, np.random.default_rng(0).random(6000))
    shares = np.bincount(taken, minlength=4) / 6000
    assert shares == pytest.approx([0.6, 0.2, 0.2, 0], abs=0.03)
    assert not by_chance(1.0)(seen[:1], np.array([[1, 0, 0, 0]]), np.array([0.0])).any(), "nothing to claim"


def test_harm_is_most_where_nobody_agrees() -> None:
    game = LyingGame(LINKER, BOT, BOT, LieRules(delay=0.5))
    chats = game.play(CHATS, by_chance(1.0))
    for chat in chats:
        assert game.harm(chat) == (0.5 * len(chat.events) / 46 if chat.agreed else 1.0)
    with pytest.raises(OutOfRangeError):
        LieRules(lies=0)
