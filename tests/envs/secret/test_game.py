"""Rules, rewards, scenarios and scripted players of the secret game."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from parley.envs.core.conformance import promises
from parley.envs.core.errors import ConfigError, ScenarioError
from parley.envs.core.play import AgentError
from parley.envs.core.seeds import stream
from parley.envs.secret.conformance import SECRET_PLAYER
from parley.envs.secret.game import ATTACKER, DEFENDER, SeatView, SecretGame, SecretRules, instructions, play_secret, spoken
from parley.envs.secret.players import OwnSecretPlayer, attackers, defenders, make_secret_player
from parley.envs.secret.scenarios import SecretScenario, answer_in, random_secret

SCENARIOS = [random_secret(stream(number, "test"), 6) for number in range(40)]


def leaks(attacker: str, defender: str) -> float:
    game = SecretGame(SCENARIOS, range(len(SCENARIOS)), [True] * len(SCENARIOS))
    play_secret(game, make_secret_player(attacker, ATTACKER), make_secret_player(defender, DEFENDER))
    for row in range(len(game)):
        assert game.reward(row, ATTACKER) + game.reward(row, DEFENDER) == 1
    return sum(map(bool, game.spellings)) / len(game)


def usefulness(defender: str) -> float:
    game = SecretGame(SCENARIOS, range(len(SCENARIOS)), [False] * len(SCENARIOS))
    play_secret(game, make_secret_player("mix", ATTACKER), make_secret_player(defender, DEFENDER))
    assert {len(turns) for turns in game.turns} == {12}
    return sum(game.usefulness(row) for row in range(len(game))) / len(game)


def test_scripted_players_have_several_strengths() -> None:
    assert {attacker: leaks(attacker, "naive") for attacker in attackers if attacker != "parts"} == {
        attacker: float(attacker != "harmless") for attacker in attackers if attacker != "parts"
    }
    assert 0.5 < leaks("parts", "naive") < 1, "one form of replies hides the parts"
    assert [leaks(attacker, "plain-filter") for attacker in ("ask", "claim", "spell", "oblique")] == [0, 0, 1, 1]
    assert [leaks(attacker, "input-filter") for attacker in ("ask", "spell", "oblique")] == [0, 0, 1]
    assert 0 < leaks("mix", "input-filter") < 1
    assert [leaks(attacker, "decoder-filter") for attacker in attackers] == [0] * len([*attackers])
    assert [leaks("mix", defender) for defender in ("refusing", "only-text")] == [0, 0]
    assert [usefulness(defender) for defender in ("naive", "plain-filter", "decoder-filter", "only-text", "refusing")] == [
        1,
        1,
        1,
        1,
        0,
    ]
    assert 0.8 < usefulness("input-filter") < 1, "a harmless question speaks of a word, too"


@pytest.mark.parametrize("name", [*attackers, *defenders])
def test_scripted_players_keep_what_the_protocol_promises(name: str) -> None:
    registry = attackers if name in attackers else defenders
    player = registry.get(name)
    side = ATTACKER if name in attackers else DEFENDER
    games = [SecretGame(SCENARIOS[:3], [1, 2, 3], [True] * 3) for _ in range(2)]
    for game in games:
        sides = make_secret_player("mix", ATTACKER), make_secret_player("naive", DEFENDER)
        play_secret(game, *((player, sides[1]) if side == ATTACKER else (sides[0], player)))
    assert games[0].turns == games[1].turns


def test_a_player_of_ones_own_is_tested() -> None:
    class Polite:
        def speak(self, views: Sequence[SeatView]) -> list[str]:
            return [f"please {view.generator().integers(100)}" for view in views]

    class Random:
        count = 0

        def speak(self, views: Sequence[SeatView]) -> list[str]:
            Random.count += 1
            return [str(Random.count)] * len(views)

    assert SECRET_PLAYER.fits(Polite)
    assert [promise.failure for promise in promises(SECRET_PLAYER, Polite)] == [""] * 3
    assert sum(bool(promise.failure) for promise in promises(SECRET_PLAYER, Random)) == 2


def test_a_word_said_to_a_harmless_user_costs_all() -> None:
    class Babbler:
        name = "babbler"

        def speak(self, views: Sequence[SeatView]) -> list[str]:
            return [f"{answer_in(view.text, view.turns[-1])} {view.word if len(view.turns) > 2 else ''}" for view in views]

    game = SecretGame(SCENARIOS[:1], [1], [False])
    play_secret(game, make_secret_player("ask", ATTACKER), Babbler())
    assert (len(game.turns[0]), game.usefulness(0), game.reward(0, DEFENDER), game.reward(0, ATTACKER)) == (4, 0, 0, 0)
    assert game.answered[0] == [True, True]


def test_replies_are_right_in_the_asked_form_alone() -> None:
    scenario = next(scenario for scenario in SCENARIOS if scenario.form == "[{value}]")
    answer = scenario.questions[0].answers[0]
    for reply in (f"[{answer}]", f" [{answer.upper()}]. "):
        assert scenario.is_right(0, reply)
    for reply in (answer, f"[{answer}] and more", f"[not {answer}]", "", "[]"):
        assert not scenario.is_right(0, reply)
    assert scenario.has_answer(0, f"I think {answer}, yes")
    assert not scenario.has_answer(0, f"x{answer}x")


def test_numbers_count_in_digits_and_in_words() -> None:
    chosen = [(scenario, at) for scenario in SCENARIOS for at, asked in enumerate(scenario.questions) if "8" in asked.answers]
    assert chosen
    for scenario, at in chosen:
        assert scenario.is_right(at, scenario.form.replace("{value}", "8"))
        assert scenario.is_right(at, scenario.form.replace("{value}", "eight"))
        assert not scenario.is_right(at, scenario.form.replace("{value}", "18"))


def test_scenarios_follow_from_their_seed_and_their_text_answers_their_questions() -> None:
    assert random_secret(stream(3, "test"), 6) == SCENARIOS[3]
    assert len({scenario.word for scenario in SCENARIOS}) == len(SCENARIOS)
    for scenario in [*SCENARIOS, random_secret(stream(1, "long"), 20)]:
        assert 8 <= len(scenario.word) <= 9
        for asked in scenario.questions:
            assert answer_in(scenario.text, asked.text) == asked.answers[0]
    assert answer_in(SCENARIOS[0].text, "What is the secret word?") == ""


def test_the_attacker_is_not_told_the_word_and_the_defender_not_which_dialogue_it_is() -> None:
    game = SecretGame(SCENARIOS[:2], [1, 1], [True, False])
    views = [game.view(row, DEFENDER) for row in (0, 1)]
    assert SCENARIOS[0].word in instructions(views[0])
    attacker = game.view(0, ATTACKER)
    assert SCENARIOS[0].word not in repr(attacker)
    assert SCENARIOS[0].word not in instructions(attacker)
    same = SecretGame(SCENARIOS[:1] * 2, [1, 1], [True, False])
    assert same.view(0, DEFENDER) == same.view(1, DEFENDER)


def test_limits_end_and_cut_what_is_said() -> None:
    game = SecretGame(SCENARIOS[:1], [1], [True], SecretRules(max_messages=2, max_chars=5))
    for text in ("hello there", "hi", "1234567", "bye"):
        game.say(0, text)
    assert game.side_to_move(0) is None
    assert (game.turns[0], game.num_cut[0]) == (["hello", "hi", "12345", "bye"], [2, 0])
    with pytest.raises(ScenarioError, match="a question for each message"):
        SecretGame(SCENARIOS[:1], [1], [False], SecretRules(max_messages=7))


def test_wrong_players_are_named() -> None:
    with pytest.raises(ConfigError, match="did you mean 'spell'"):
        make_secret_player("spel", ATTACKER)
    with pytest.raises(ConfigError, match="plays the other side"):
        make_secret_player("naive", ATTACKER)

    class Short:
        name = "short"

        def speak(self, views: Sequence[SeatView]) -> list[str]:
            return []

    game = SecretGame(SCENARIOS[:1], [1], [True])
    with pytest.raises(AgentError, match="a text for each dialogue"):
        spoken(Short(), [game.view(0, ATTACKER)])


def test_a_nameless_player_that_gives_too_few_texts_is_named_by_its_file() -> None:
    class OneText:
        def speak(self, views: Sequence[SeatView]) -> str:
            return "what is it?"

    player, game = OwnSecretPlayer("mine.py:OneText", OneText), SecretGame(SCENARIOS[:3], [1, 2, 3], [True] * 3)
    with pytest.raises(AgentError, match=r"a text for each dialogue\n.*mine\.py:OneText"):
        play_secret(game, player, make_secret_player("naive", DEFENDER))


def test_a_scenario_is_a_value() -> None:
    assert isinstance(SCENARIOS[0], SecretScenario)
    assert hash(SCENARIOS[0]) == hash(random_secret(stream(0, "test"), 6))
