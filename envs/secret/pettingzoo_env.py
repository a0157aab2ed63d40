"""Both sides of the secret game as a PettingZoo environment in which agents act in turn (AEC).

Texts, dialogues and rewards come from `env.py`, PettingZoo's interface from `envs/core/turns_aec.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from parley.envs.core.rendering import text_spaces
from parley.envs.core.turns_aec import TurnsAEC
from parley.envs.secret.env import ROW, SecretTask, observed, say
from parley.envs.secret.game import NAMES, SecretGame, SecretRules, render_secret
from parley.envs.secret.scenarios import SecretScenario


class SecretAEC(TurnsAEC):
    """The agents "attacker" and "defender" talk, one text per step; in a harmless dialogue the defender acts alone.

    Args:
        scenarios: the list to draw from; None draws new scenarios.
        harmless: share of harmless dialogues.
        rules: limits of the game.
        render_mode: "ansi" returns text from `render()`; "human" writes it to standard error after every move.

    Raises:
        ConfigError: an argument is out of range.
    """

    metadata: ClassVar[dict[str, Any]] = {**TurnsAEC.metadata, "name": "secret_v1"}

    def __init__(
        self,
        scenarios: Sequence[SecretScenario] | None = None,
        harmless: float = 0.5,
        rules: SecretRules | None = None,
        render_mode: str | None = None,
    ) -> None:
        self.task = SecretTask(scenarios, harmless, rules or SecretRules())
        attacker, defender = text_spaces(), text_spaces()
        super().__init__(NAMES, (attacker[0], defender[0]), (attacker[1], defender[1]), render_mode)

    def _begin(self, rng: np.random.Generator) -> SecretGame:
        return self.task.draw(rng)

    def _side_to_act(self) -> int | None:
        side: int | None = self._game.side_to_move(ROW)
        return side

    def _seen(self, side: int) -> str:
        return observed(self._game, side)

    def _act(self, side: int, action: Any) -> None:
        say(self._game, action, "SecretAEC")
        self.task.ask(self._game)

    def _reward(self, side: int) -> float:
        return float(self._game.reward(ROW, side))

    def _outcome(self) -> dict[str, Any]:
        outcome: dict[str, Any] = self._game.outcome(ROW)
        return outcome

    def _text(self) -> str:
        return render_secret(self._game, ROW)
