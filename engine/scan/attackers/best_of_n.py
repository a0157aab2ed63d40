"""Best-of-n (Hughes et al. 2024, arXiv 2412.03556).

The prompt with scrambled letters inside words, random capitals and shifted characters, drawn anew for each query. As in the
paper sigma is 0.4. The inner letters of a word of four or more are shuffled with probability sigma ** 1/2, the case of a letter
is changed with the same, and a printable character is shifted by one with sigma ** 3.

Departure: there are as many queries as the budget holds; the paper goes up to 10,000.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import ClassVar

import numpy as np

from parley.engine.scan.attackers.attacker import Attacker, AttackGoal, Moves, ask
from parley.envs.core.seeds import stream


@dataclass(frozen=True)
class BestOfN(Attacker):
    """The prompt with scrambled words, random capitals and shifted characters, drawn anew for each query."""

    sigma: float = 0.4
    """Strength of all three changes, 0 to 1."""

    source: ClassVar[str] = "Hughes et al. 2024, arXiv 2412.03556"
    needs_model: ClassVar[bool] = False

    def attack(self, goal: AttackGoal) -> Moves:
        for number in count():
            yield from ask(self.augmented(goal.prompt, stream(goal.seed, "best-of-n", number)))

    def augmented(self, text: str, rng: np.random.Generator) -> str:
        """Return one augmentation of a text."""
        words = []
        for word in text.split(" "):
            middle = list(word[1:-1])
            if len(word) > 3 and rng.random() < self.sigma**0.5:
                rng.shuffle(middle)
            words.append(word[:1] + "".join(middle) + word[1:][-1:])
        letters = list(" ".join(words))
        for place, letter in enumerate(letters):
            if letter.isalpha() and rng.random() < self.sigma**0.5:
                letters[place] = letter.swapcase()
            if letter.isprintable() and rng.random() < self.sigma**3:
                shifted = ord(letters[place][0]) + (1 if rng.random() < 0.5 else -1)
                letters[place] = chr(shifted) if 32 <= shifted <= 126 else letters[place]
        return "".join(letters)
