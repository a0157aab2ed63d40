"""The rules of MutualFriends: who may do what, when a chat ends, what each side sees."""

from __future__ import annotations

import pytest

from parley.envs.core.errors import ScenarioError
from parley.envs.mutual_friends.game import Act, FriendsGame, FriendsRules, Mention
from parley.envs.mutual_friends.scenario import Entity
from tests.envs.mutual_friends.made_up import SCENARIO


def begun(rules: FriendsRules | None = None, seed: int = 3) -> FriendsGame:
    game = FriendsGame(1, rules)
    game.enter([0], [SCENARIO], [seed])
    return game


def do(game: FriendsGame, side: int, *acts: Act) -> None:
    for act in acts:
        game.add(0, game.event(0, side, act))


def test_a_chat_ends_when_both_last_selections_are_the_common_friend() -> None:
    game = begun()
    do(game, 0, ("hi",), 2)
    assert not game.is_over(0)
    do(game, 1, 0)
    assert not game.is_over(0), "another friend"
    do(game, 0, 1)
    do(game, 1, 1)
    assert not game.is_over(0), "the first side has changed its mind"
    do(game, 0, 2)
    assert game.is_over(0)
    chat = game.chat(0)
    assert chat.agreed
    assert [chat.num_selections(side) for side in (0, 1)] == [3, 2]
    assert chat.events[-1].item == ("Cleo", "Upper Nib", "Chess")


def test_a_chat_without_agreement_ends_after_46_events() -> None:
    game = begun()
    for number in range(46):
        assert not game.is_over(0)
        do(game, number % 2, ("hi",))
    assert game.is_over(0)
    assert not game.chat(0).agreed
    with pytest.raises(ScenarioError, match="the chat is over"):
        game.event(0, 0, ("hi",))


def test_the_last_event_may_agree() -> None:
    game = begun(FriendsRules(max_events=2))
    do(game, 0, 2)
    do(game, 1, 1)
    assert game.chat(0).agreed


def test_nothing_follows_agreement() -> None:
    game = begun()
    do(game, 0, 2)
    do(game, 1, 1)
    with pytest.raises(ScenarioError, match="the chat is over"):
        game.event(0, 0, 2)


@pytest.mark.parametrize("index", [-1, 3])
def test_only_friends_of_the_own_table_are_selected(index: int) -> None:
    with pytest.raises(ScenarioError, match=r"no such friend[\s\S]*0 to 2"):
        begun().event(0, 0, index)


@pytest.mark.parametrize("tokens", [(), (Mention(Entity("ada", "name"), ()),)])
def test_an_utterance_has_words(tokens: tuple[Mention, ...]) -> None:
    with pytest.raises(ScenarioError, match="without words"):
        begun().event(0, 1, tokens)


def test_a_long_utterance_is_cut_and_keeps_no_half_mention() -> None:
    game = begun(FriendsRules(max_words=4))
    nib = Mention(Entity("upper nib", "town"), ("upper", "nib"))
    assert game.event(0, 0, ("a", "b", nib)).tokens == ("a", "b", nib)
    assert game.event(0, 0, ("a", "b", "c", nib)).tokens == ("a", "b", "c", "upper")
    assert game.event(0, 0, ("word",) * 500).tokens == ("word",) * 4


def test_partners_hear_words_and_see_values() -> None:
    game = begun()
    do(game, 0, ("any", Mention(Entity("upper nib", "town"), ("upper", "nib")), "?"), 2)
    assert game.events[0][0].plain().tokens == ("any", "upper", "nib", "?")
    assert game.events[0][1].plain() is game.events[0][1]
    assert game.heard == game.events


def test_the_seed_decides_who_begins() -> None:
    begins = {begun(seed=seed).to_move[0] for seed in range(20)}
    assert begins == {0, 1}
    assert all(begun(seed=seed).to_move[0] == begun(seed=seed).to_move[0] for seed in range(5))


def test_a_row_takes_the_next_chat() -> None:
    game = begun(FriendsRules(max_events=1))
    do(game, 1, 1)
    first = game.chat(0)
    game.enter([0], [SCENARIO], [8])
    assert not game.events[0]
    assert game.selections == [[-1, -1]]
    assert len(first.events) == 1
    with pytest.raises(AssertionError):
        game.enter([0], [SCENARIO], [9])


def test_a_side_sees_its_own_table_and_draws_its_own_numbers() -> None:
    game = begun()
    views = [game.view(side) for side in (0, 1)]
    assert views[1].table(0) == SCENARIO.tables[1]
    assert views[0].entities(0)[2] == (Entity("cleo", "name"), Entity("upper nib", "town"), Entity("chess", "hobby"))
    assert views[0].mentionable(0) == {entity for item in views[0].entities(0) for entity in item}
    drawn = [view.generator(0).random() for view in (*views, views[0])]
    assert drawn[0] == drawn[2] != drawn[1]
    seed = game.event_seed(0)
    do(game, 0, ("hi",))
    assert views[0].generator(0).random() != drawn[0]
    assert game.event_seed(0) != seed
    parts = [view.uniforms(0, part, 3).tolist() for view in views for part in (0, 1)]
    assert len({tuple(part) for part in parts}) == 4, "each side and each part has its own"
    assert views[0].uniforms(0, 0, 3).tolist() == parts[0]


def test_nobody_moves_in_an_empty_row() -> None:
    game = FriendsGame(2)
    game.enter([1], [SCENARIO], [0])
    assert game.rows_to_act(0) + game.rows_to_act(1) == [1]
    assert game.to_move == [-1, 0] or game.to_move == [-1, 1]
