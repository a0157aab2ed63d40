"""Conformance tests of players of the secret game."""

from __future__ import annotations

from parley.envs.core.conformance import Kind, expect, same_alone
from parley.envs.core.seeds import stream
from parley.envs.secret.game import ATTACKER, DEFENDER, SecretGame, SecretPlayer, SecretRules, play_secret
from parley.envs.secret.players import as_secret_player, make_secret_player
from parley.envs.secret.scenarios import random_secret

_DIALOGUES, _RULES = 3, SecretRules(max_messages=3)


def _transcripts(player: SecretPlayer, side: int, numbers: range = range(_DIALOGUES)) -> list[list[str]]:
    scenarios = [random_secret(stream(number, "conformance"), _RULES.max_messages) for number in numbers]
    game = SecretGame(scenarios, list(numbers), [True] * len(numbers), _RULES)
    other = make_secret_player("plain-filter" if side == ATTACKER else "mix", 1 - side)
    play_secret(game, *((player, other) if side == ATTACKER else (other, player)))
    return game.turns


def _says_a_text_in_each_dialogue(player: SecretPlayer) -> None:
    """Says one text in each dialogue, on either side."""
    for side in (ATTACKER, DEFENDER):
        expect(len(_transcripts(player, side)) == _DIALOGUES, "a text in each dialogue", "none")


def _repeats_itself(player: SecretPlayer) -> None:
    """Says the same twice in the same dialogues (all draws come from the view)."""
    for side in (ATTACKER, DEFENDER):
        first, second = _transcripts(player, side), _transcripts(player, side)
        expect(first == second, "the same texts twice", f"{first} and {second}")


def _is_the_same_alone(player: SecretPlayer) -> None:
    """Says the same in a dialogue whether others are played beside it or not."""
    for side in (ATTACKER, DEFENDER):
        alone = [_transcripts(player, side, range(number, number + 1))[0] for number in range(_DIALOGUES)]
        same_alone(_transcripts(player, side), alone, "the text of a dialogue")


SECRET_PLAYER = Kind(
    "player of the secret game",
    "parley.envs.secret.game.SecretPlayer",
    ("speak",),
    lambda named: as_secret_player(named, DEFENDER),
    (_says_a_text_in_each_dialogue, _repeats_itself, _is_the_same_alone),
    # Sessions of negotiators speak, too, and choose.
    unlike=lambda part: hasattr(part, "choose") or hasattr(part, "join"),
)
