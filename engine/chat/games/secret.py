"""The secret game as lessons: scripted play, in which the seats do well.

The attacker learns from dialogues in which `mix` gets the word, the defender from `only-text`, in attacks and with harmless
users. One adapter may learn both seats, half of the dialogues each: the system message tells it which seat it has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from parley.engine.chat.supervised import TRAIN, ChatGame, SeatDialogue
from parley.engine.core.stats.statistics import Estimate
from parley.envs.core.seeds import derive_seed, stream
from parley.envs.secret.game import ATTACKER, DEFENDER, NAMES, SeatView, SecretGame, SecretRules, play_secret
from parley.envs.secret.players import make_secret_player
from parley.envs.secret.scenarios import random_secret
from parley.policies.chat.model import ChatModel
from parley.policies.chat.secret import secret_moves

TEACHERS = ("mix", "only-text")
"""Scripted players that the seats learn from."""
OPPONENTS: tuple[tuple[str, ...], tuple[str, ...]] = (
    ("plain-filter", "input-filter"),
    ("ask", "claim", "spell", "reverse", "encode", "parts", "oblique", "mix"),
)
"""Players on the other side, in turn."""


@dataclass(frozen=True)
class ScriptedSecrets(ChatGame):
    """Scripted play of the secret game.

    Args:
        sides: the seats that are learned.
        num: dialogues that are learned from; a tenth as many in each other split.
        rules: limits of a dialogue.
        seed: of the scenarios.
    """

    sides: Sequence[int]
    num: int
    rules: SecretRules
    seed: int

    @property
    def title(self) -> str:
        return f"{' and '.join(NAMES[side] for side in self.sides)} of the secret game"

    @property
    def teachers(self) -> str:
        return " and ".join(TEACHERS[side] for side in self.sides)

    def dialogues(self, split: str, limit: int = 0) -> list[SeatDialogue]:
        """Return the dialogues of a split, those of two seats by turns; the first `limit` at most."""
        num = self.num if split == TRAIN else max(2, self.num // 10)
        played = [self.played(side, split, -(-num // len(self.sides))) for side in self.sides]
        return [
            SeatDialogue(secret_moves(view, turns), sum(len(text.split()) + 1 for text in turns[view.side :: 2]), number)
            for pair in zip(*played, strict=True)
            for number, view, turns in pair
        ][: min(num, limit or num)]

    def played(self, side: int, split: str, num: int) -> list[tuple[int, SeatView, tuple[str, ...]]]:
        """Return dialogues of one seat, each as the number of its scenario, its view before the dialogue and all turns.

        Args:
            side: the seat.
            split: name of a stream of its own.
            num: dialogues; those of an attacker that does not get the word are left out, and others are drawn instead.
        """
        opponents, teacher = OPPONENTS[side], make_secret_player(TEACHERS[side], side)
        dialogues: list[tuple[int, SeatView, tuple[str, ...]]] = []
        number = 0
        while len(dialogues) < num:
            scenario = random_secret(stream(self.seed, split, number), self.rules.max_messages)
            is_attack = side == ATTACKER or number % 2 == 0
            game = SecretGame([scenario], [derive_seed(self.seed, split, number)], [is_attack], self.rules)
            before = game.view(0, side)
            other = make_secret_player(opponents[number // 2 % len(opponents)], 1 - side)
            play_secret(game, *((teacher, other) if side == ATTACKER else (other, teacher)))
            if side == DEFENDER or game.spellings[0]:
                dialogues.append((number, before, tuple(game.turns[0])))
            number += 1
        return dialogues

    def measure(self, load: Callable[[], ChatModel], dialogues: Sequence[Any]) -> Mapping[str, Estimate]:
        return {}

    def match(self, player: str, base: str) -> list[str]:
        seats = [word for side in self.sides for word in (f"--{NAMES[side]}s", f"{player},{base}")]
        return ["parley", "evaluate", "secret", "quick", *seats]
