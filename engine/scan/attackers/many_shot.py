"""Many-shot (Anil et al. 2024, "Many-shot Jailbreaking", NeurIPS).

One message shows made-up dialogues in which an assistant does all that it is asked, and then the prompt.

Departures: the paper goes up to 256 dialogues of harmful requests. Ours are harmless (`shots.yaml`), double from query to query
up to 32, and begin anew while budget is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import count
from typing import ClassVar

import yaml

from parley.engine.scan.attackers.attacker import Attacker, AttackGoal, Moves, ask
from parley.envs.core.seeds import stream


@dataclass(frozen=True)
class ManyShot(Attacker):
    """Made-up dialogues in which an assistant obeys, then the prompt; twice as many with each query."""

    most: int = 32
    """Dialogues of a message at most."""

    source: ClassVar[str] = "Anil et al. 2024, Many-shot Jailbreaking"
    needs_model: ClassVar[bool] = False

    def attack(self, goal: AttackGoal) -> Moves:
        dialogues = shots()
        for number in count():
            rng = stream(goal.seed, "many-shot", number)
            num = 2 ** (number % self.most.bit_length())
            order = [int(index) for _ in range(-(-num // len(dialogues))) for index in rng.permutation(len(dialogues))]
            shown = [f"User: {dialogues[index][0]}\nAssistant: {dialogues[index][1]}" for index in order[:num]]
            yield from ask("\n\n".join([*shown, f"User: {goal.prompt}\nAssistant:"]))


@cache
def shots() -> list[tuple[str, str]]:
    """Return the made-up dialogues of this package: request and answer."""
    text = files("parley.engine.scan.attackers").joinpath("shots.yaml").read_text(encoding="utf-8")
    return [(str(shot["user"]), str(shot["assistant"])) for shot in yaml.safe_load(text)]
