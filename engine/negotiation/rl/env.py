"""Both sides of the negotiation game as an RLlib multi-agent environment, one utterance or selection a step.

Spaces, observations and rewards are those of `envs/negotiation/env.py`. What belongs here is RLlib's contract, written
for Ray 2.60:

  * Only the agent to act is in the observations, so the sides take turns; both get the final one.
  * Every step returns a reward for both agents, 0.0 before the end: RLlib refuses an agent that acted and has none.
  * RLlib's seeds are not trusted. Its checker resets every sub-environment with seed 42 and, with no seed configured,
    nothing seeds them again; with one, each `sample(num_episodes=...)` gives the same seed again. Here a dialogue is
    named by the configured seed, the stream of its sub-environment, RLlib's last seed and a counter that never goes
    back, so no two sub-environments and no two resets see the same dialogue.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ray.rllib.env.multi_agent_env import MultiAgentEnv

from parley.engine.core.rllib.distributed_rollouts import own_stream, require_known
from parley.envs.core.errors import ConfigError, ScenarioError
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
)
from parley.envs.negotiation.game import NegotiationGame, Rules

ADVERSARY, TARGET = "adversary", "target"
AGENTS = (ADVERSARY, TARGET)
"""The agents' names; an agent's index is its side of the game."""
_KEYS = ("vocabulary", "scenarios", "reward", "rules", "seed", "stream")


class NegotiationMultiAgentEnv(MultiAgentEnv):
    """An environment in which the agents "adversary" (side 0) and "target" (side 1) negotiate.

    Args:
        config: RLlib's `env_config`, with the keys
            `vocabulary`: the `Vocabulary` that both agents share; required.
            `scenarios`: list of `Scenario` to draw from; None (the default) draws from all legal ones.
            `reward`: "points" (the default) or "advantage", paid at the end.
            `rules`: a `Rules`; under `Rules(complementary=True)` the adversary never chooses.
            `seed`: master seed, 0 by default.
            `stream`: integers that name one of several environments of the same seed, none by default. An `EnvContext`
            adds its worker and its sub-environment to them.

    Raises:
        ConfigError: a key is missing, unknown or out of range.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
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
        self._seed = config.get("seed", 0)
        self._stream = own_stream(config)
        self.possible_agents = list(AGENTS)
        self.agents = list(AGENTS)
        self.observation_spaces = {agent: observation_space(self.vocabulary, self.rules) for agent in AGENTS}
        self.action_spaces = {agent: action_space(self.vocabulary, self.rules) for agent in AGENTS}
        self._last_seed = -1
        self._num_dialogues = 0
        self._game: NegotiationGame | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Start the next dialogue.

        Args:
            seed: becomes part of the name of this dialogue and all later ones. Unlike Gymnasium's, the same seed given
                twice does not repeat a dialogue (see the module); a new environment with the same configuration and
                resets does.
            options: ignored; RLlib's checker passes an empty one.

        Returns:
            The observation of the agent to speak first, and its empty information.
        """
        if seed is not None:
            self._last_seed = int(seed)
        name: tuple[Key, ...] = ("rllib", *self._stream, self._last_seed, self._num_dialogues)
        self._num_dialogues += 1
        scenario = draw_scenario(stream(self._seed, "scenario", *name), self.scenarios, self.vocabulary.domain)
        seeds = [derive_seed(self._seed, "dialogue", *name)]
        return self.start(NegotiationGame([scenario], seeds, self.vocabulary, self.rules))

    def start(self, game: NegotiationGame) -> tuple[dict[str, Any], dict[str, Any]]:
        """Start a given dialogue with this vocabulary and these rules; returns what `reset` does."""
        self._game = game
        agent = AGENTS[game.first_speakers[0]]
        return {agent: observe(game, AGENTS.index(agent))}, {agent: {}}

    def step(
        self, action_dict: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], dict[str, Any]]:
        """Carry out the action of the one agent to act.

        Args:
            action_dict: {agent: action} of the agent in the last observations; actions as in `NegotiationEnv`.

        Returns:
            Observations of the next agent to act, or of both at the end; rewards of both agents; terminated and
            truncated of both and "__all__" (never truncated, the game's own limits end it); information of the agents
            observed, empty until the end (`parley.envs.negotiation.env.outcome`).

        Raises:
            ScenarioError: the dialogue is over, another agent than the one to act is given, or its action lies outside
                its space.
        """
        game, agent = self._game, self._to_act()
        if game is None or agent is None or set(action_dict) != {agent}:
            raise ScenarioError(
                "these are not the actions that the dialogue waits for",
                where="step of NegotiationMultiAgentEnv",
                got=sorted(action_dict),
                fix="call reset() first" if agent is None else f"give an action of {agent!r} alone",
            )
        act(game, AGENTS.index(agent), action_dict[agent], self.action_spaces[agent])
        following = self._to_act()
        over = following is None
        rewards = {agent: side_reward(game, side, self.reward) for side, agent in enumerate(AGENTS)}
        seen = AGENTS if following is None else (following,)
        observations = {agent: observe(game, AGENTS.index(agent)) for agent in seen}
        infos = {agent: outcome(game) if over else {} for agent in seen}
        ended = dict.fromkeys((*AGENTS, "__all__"), over)
        return observations, rewards, ended, dict.fromkeys(ended, False), infos

    def _to_act(self) -> str | None:
        """Return the next agent to speak or choose; the adversary chooses first, unseen by the target."""
        if self._game is None:
            return None
        for side, agent in enumerate(AGENTS):
            if self._game.rows_to_speak(side).size or self._game.rows_to_choose(side).size:
                return agent
        return None
