"""The loop that plays any game: a game in which sides choose in mid-dialogue and then talk on."""

from __future__ import annotations

import numpy as np

from parley.envs.core.play import Utterances, play_sessions

GUESS, WORDS = 9, 3


class Guessing:
    """Side 0 names numbers until side 1, who hears them, guesses; a wrong guess and both talk on."""

    def __init__(self, secrets: list[int]) -> None:
        self.secrets = np.array(secrets)
        self.said: list[list[int]] = [[] for _ in secrets]
        self.guesses: list[list[int]] = [[] for _ in secrets]
        self.asked = np.zeros(len(secrets), dtype=bool)
        self.won = np.zeros(len(secrets), dtype=bool)

    def view(self, side: int) -> list[list[int]]:
        return self.said

    def rows_to_speak(self, side: int) -> np.ndarray:
        turn = np.array([len(words) % 2 for words in self.said])
        return np.flatnonzero(~self.won & ~self.asked & (turn == side))

    def rows_to_choose(self, side: int) -> np.ndarray:
        return np.flatnonzero(self.asked) if side == 1 else np.empty(0, dtype=np.int64)

    def say(self, rows: np.ndarray, utterances: Utterances) -> None:
        for row, words, length in zip(rows.tolist(), utterances.tokens.tolist(), utterances.lengths.tolist(), strict=True):
            self.said[row].append(words[:length][0])
            self.asked[row] = words[0] == GUESS

    def choose(self, side: int, rows: np.ndarray, selections: np.ndarray) -> None:
        self.asked[rows] = False
        self.won[rows] = self.secrets[rows] == selections
        for row, selection in zip(rows.tolist(), selections.tolist(), strict=True):
            self.guesses[row].append(selection)


class Teller:
    def speak(self, rows: np.ndarray) -> Utterances:
        return Utterances.of([[1, 2, 3][: 1 + row % WORDS] for row in rows.tolist()])

    def choose(self, rows: np.ndarray) -> np.ndarray:
        raise AssertionError("only the other side chooses")


class Guesser:
    def __init__(self, game: Guessing) -> None:
        self.game, self.batches = game, list[int]()

    def speak(self, rows: np.ndarray) -> Utterances:
        return Utterances.of([[GUESS] if len(self.game.said[row]) >= 3 else [0] for row in rows.tolist()])

    def choose(self, rows: np.ndarray) -> np.ndarray:
        self.batches.append(len(rows))
        return np.array([len(self.game.guesses[row]) for row in rows.tolist()])


def test_sides_talk_on_after_a_choice_until_nobody_can_move() -> None:
    game = Guessing([0, 2, 1])
    guesser = Guesser(game)
    assert play_sessions(game, [Teller(), guesser]) is game
    assert game.won.all()
    assert game.guesses == [[0], [0, 1, 2], [0, 1]]
    assert guesser.batches == [3, 2, 1], "choices wait for each other"
    assert [words[:4] for words in game.said] == [[1, 0, 1, GUESS]] * 3


def test_utterances_say_how_many_words_count() -> None:
    said = Utterances.of([[5, 6, 7], [8], []])
    assert said.lengths.tolist() == [3, 1, 0]
    assert said.tokens.shape == (3, 3)
    assert said.tokens[0].tolist() == [5, 6, 7]
    assert said.tokens[1, 0] == 8
