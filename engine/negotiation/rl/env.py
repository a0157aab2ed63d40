"""Both sides of the negotiation game as an RLlib multi-agent environment, one utterance or selection a step.

Spaces, observations and rewards are those of `envs/negotiation/env.py`, RLlib's contract that of
`engine/core/rllib/turns_env.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from parley.engine.core.rllib.distributed_rollouts import require_known
from parley.engine.core.rllib.turns_env import Observed, TurnsMultiAgentEnv
from parley.envs.core.errors import ConfigError
from parley.envs.core.seeds import Key, derive_seed, stream
from parley.envs.negotiation.domain import Vocabulary
from parley.envs.negotiation.env import (
    act,
    action_space,
    check_arguments,
    draw_scenario,
    observation_space,
    observe,
    outcome,
    side_reward,
    side_to_act,
)
from parley.envs.negotiation.game import NegotiationGame, Rules

ADVERSARY, TARGET = "adversary", "target"
AGENTS = (ADVERSARY, TARGET)
"""The agents' names; an agent's index is its side of the game."""
_KEYS = ("vocabulary", "scenarios", "reward", "rules", "seed", "stream")


class NegotiationMultiAgentEnv(TurnsMultiAgentEnv):
    """An environment in which the agents "adversary" (side 0) and "target" (side 1) negotiate.

    Args:
        config: RLlib's `env_config`, with the keys
            `vocabulary`: the `Vocabulary` that both agents share; required.
            `scenarios`: list of `Scenario` to draw from; None (the default) draws from all legal ones.
            `reward`: "points" (the default) or "advantage", paid at the end.
            `rules`: a `Rules`; under `Rules(complementary=True)` the adversary never chooses.
            `seed`, `stream`: as in `TurnsMultiAgentEnv`.

    Raises:
        ConfigError: a key is missing, unknown or out of range.
    """

    sides: ClassVar[tuple[str, str]] = AGENTS
    stream_name = "rllib"

    def __init__(self, config: Mapping[str, Any]) -> None:
        require_known(config, _KEYS)
        vocabulary = config.get("vocabulary")
        if not isinstance(vocabulary, Vocabulary):
            raise ConfigError(
                "the environment needs a vocabulary",
                where="env_config",
                got=repr(vocabulary),
                fix='set "vocabulary" to the Vocabulary that both agents share',
            )
        self.vocabulary = vocabulary
        self.scenarios = config.get("scenarios")
        self.reward = config.get("reward", "points")
        check_arguments("env_config", self.reward, self.scenarios)
        self.rules = config.get("rules") or Rules()
        self._actions = action_space(vocabulary, self.rules)
        super().__init__(config, observation_space(vocabulary, self.rules), self._actions)
        self._game: NegotiationGame | None = None

    def start(self, game: NegotiationGame) -> Observed:
        """Start a given dialogue with this vocabulary and these rules; returns what `reset` does."""
        self._game = game
        return self.first_observation()

    def _begin(self, name: tuple[Key, ...]) -> None:
        scenario = draw_scenario(stream(self._seed, "scenario", *name), self.scenarios, self.vocabulary.domain)
        seeds = [derive_seed(self._seed, "dialogue", *name)]
        self._game = NegotiationGame([scenario], seeds, self.vocabulary, self.rules)

    def _to_act(self) -> int | None:
        return None if self._game is None else side_to_act(self._game)

    def _open(self) -> NegotiationGame:
        assert self._game is not None
        return self._game

    def _seen(self, side: int) -> Any:
        return observe(self._open(), side)

    def _act(self, side: int, action: Any) -> None:
        act(self._open(), side, action, self._actions)

    def _reward(self, side: int) -> float:
        return side_reward(self._open(), side, self.reward)

    def _outcome(self) -> dict[str, Any]:
        return outcome(self._open())
