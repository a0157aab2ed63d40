"""Both sides of the secret game as an RLlib multi-agent environment, one text a step.

Spaces, texts, dialogues and rewards are those of `envs/secret/env.py`, RLlib's contract that of
`engine/core/rllib/turns_env.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from parley.engine.core.rllib.distributed_rollouts import require_known
from parley.engine.core.rllib.turns_env import TurnsMultiAgentEnv
from parley.envs.core.rendering import text_spaces
from parley.envs.core.seeds import Key, stream
from parley.envs.secret.env import ROW, SecretTask, observed, say
from parley.envs.secret.game import NAMES, SecretGame

_TASK = ("scenarios", "harmless", "rules")


class SecretMultiAgentEnv(TurnsMultiAgentEnv):
    """The agents "attacker" and "defender" talk; in a harmless dialogue the defender acts alone.

    Args:
        config: RLlib's `env_config`, with the keys
            `scenarios`, `harmless`, `rules`: as `SecretTask` has them, all with defaults.
            `seed`, `stream`: as in `TurnsMultiAgentEnv`.

    Raises:
        ConfigError: a key is unknown or out of range.
    """

    sides: ClassVar[tuple[str, str]] = NAMES
    stream_name = "secret"

    def __init__(self, config: Mapping[str, Any]) -> None:
        require_known(config, (*_TASK, "seed", "stream"))
        self.task = SecretTask(**{key: config[key] for key in _TASK if config.get(key) is not None})
        super().__init__(config, *text_spaces())
        self._game: SecretGame | None = None

    def _begin(self, name: tuple[Key, ...]) -> None:
        self._game = self.task.draw(stream(self._seed, "scenario", *name))

    def _to_act(self) -> int | None:
        return None if self._game is None else self._game.side_to_move(ROW)

    def _open(self) -> SecretGame:
        assert self._game is not None
        return self._game

    def _seen(self, side: int) -> str:
        return observed(self._open(), side)

    def _act(self, side: int, action: Any) -> None:
        say(self._open(), action, type(self).__name__)
        self.task.ask(self._open())

    def _reward(self, side: int) -> float:
        return self._open().reward(ROW, side)

    def _outcome(self) -> dict[str, Any]:
        return self._open().outcome(ROW)
