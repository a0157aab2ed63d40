"""The env runner: plays whole dialogues, hundreds side by side, each with its own seed.

RLlib's stock multi-agent runner returns the first k finished episodes of a vector and drops the rest (long dialogues
hardly reach the learner), replays seeds, and re-reads each dialogue at every turn. This one plays a given list of
dialogues to their end, through the same `play` that evaluation uses, and returns one row per dialogue. What a dialogue
is depends on its index and the master seed alone, not on which runner plays it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import ray
from gymnasium import Space
from ray.rllib.core import COMPONENT_RL_MODULE
from ray.rllib.env.env_runner import EnvRunner
from ray.rllib.utils.checkpoints import Checkpointable
from ray.rllib.utils.metrics import WEIGHTS_SEQ_NO

from engine.rllib.env import ADVERSARY, AGENTS, NegotiationMultiAgentEnv
from engine.rllib.rows import merged, played_rows
from engine.runtime.identity import require
from envs.core.play import Session, Utterances
from envs.core.seeds import derive_seed
from envs.negotiation.game import Agent, NegotiationGame, Rules, SideView, play
from envs.negotiation.scenario import Scenario


class DialogueEnvRunner(EnvRunner, Checkpointable):
    """Plays dialogues between the module that learns and its opponents, each on its side of the game."""

    def __init__(self, *, config: Any, **kwargs: Any) -> None:
        super().__init__(config=config, **kwargs)
        self._weights_seq_no = 0
        self._agents: dict[str, Agent] = {}
        self.make_env()
        self.make_module()

    def make_env(self) -> None:
        """The two-sided environment; gives the spaces (its game is played in batches by `sample`)."""
        self.env = NegotiationMultiAgentEnv(self.config.env_config)

    def make_module(self) -> None:
        """The learner's module and those of its opponents."""
        spec = self.config.get_multi_rl_module_spec(spaces=self.get_spaces(), inference_only=True)
        self.module = spec.build()
        self._agents = {}

    def get_spaces(self) -> dict[str, tuple[Space, Space]]:
        """Observation and action space of each module."""
        env, roster = self.env, self.config.roster
        spaces = [(env.get_observation_space(role), env.get_action_space(role)) for role in AGENTS]
        others = {opponent.name: spaces[1 - roster.side] for opponent in roster.met}
        return {roster.role: spaces[roster.side], **others}

    def assert_healthy(self) -> None:
        """RLlib's question after a restart."""
        assert self.env is not None
        assert self.module is not None

    def sample(self, *, dealt: Sequence[tuple[int, Scenario, str]] = (), **_: Any) -> dict[str, Any]:
        """Plays dialogues to their end.

        Args:
            dealt: index, scenario and opponent of each; first speaker and all draws follow from (master seed, index).

        Returns:
            The columns of `rows.py`, in order of index; and the sequence number of the weights that played, seconds spent
            playing and in the modules' networks.

        Raises:
            ClusterError: this machine has other code than the driver.
        """
        # Not when it is built: RLlib would build it again and again, and say nothing.
        require(self.config.driver)
        started = time.monotonic()
        network_seconds = 0.0
        parts = []
        for opponent in dict.fromkeys(name for _, _, name in dealt):
            group = [(index, scenario) for index, scenario, name in dealt if name == opponent]
            game = self._deal(group, opponent)
            clocks = [_ClockedAgent(self._agent(name)) for name in self._seated(opponent)]
            play(game, (clocks[0], clocks[1]))
            parts.append(played_rows(game, self.config.roster.side, [index for index, _ in group]))
            network_seconds += sum(clock.seconds for clock in clocks)
        return {
            **merged(parts),
            "weights": self._weights_seq_no,
            "seconds": time.monotonic() - started,
            "network_seconds": network_seconds,
        }

    def _seated(self, opponent: str) -> tuple[str, str]:
        """The modules of side 0 and side 1."""
        role = self.config.roster.role
        return (role, opponent) if role == ADVERSARY else (opponent, role)

    def _agent(self, name: str) -> Agent:
        if name not in self._agents:
            self._agents[name] = self.module[name].agent(name)
        return self._agents[name]

    def _deal(self, dealt: Sequence[tuple[int, Scenario]], opponent: str) -> NegotiationGame:
        config = self.config
        (met,) = (other for other in config.roster.met if other.name == opponent)
        seeds = [derive_seed(config.master_seed, "training dialogue", index) for index, _ in dealt]
        rules = Rules(max_turns=config.reinforce.max_turns, complementary=met.complementary)
        vocabulary = self.module[config.roster.role].net.vocabulary
        return NegotiationGame([scenario for _, scenario in dealt], seeds, vocabulary, rules)

    def get_metrics(self) -> Any:
        """Nothing of ours: figures of dialogues come with the dialogues."""
        return self.metrics.reduce()

    def get_state(self, components: Any = None, *, not_components: Any = None, **kwargs: Any) -> dict[str, Any]:
        """The modules' state and its sequence number; dialogues carry no state from one call to the next."""
        state: dict[str, Any] = {}
        if self._check_component(COMPONENT_RL_MODULE, components, not_components):
            state[COMPONENT_RL_MODULE] = self.module.get_state(
                components=self._get_subcomponents(COMPONENT_RL_MODULE, components),
                not_components=self._get_subcomponents(COMPONENT_RL_MODULE, not_components),
                **kwargs,
            )
            state[WEIGHTS_SEQ_NO] = self._weights_seq_no
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Takes newer weights; equal or older sequence numbers are ignored, 0 forces."""
        if COMPONENT_RL_MODULE not in state:
            return
        number = state.get(WEIGHTS_SEQ_NO, 0)
        if number == 0 or number > self._weights_seq_no:
            weights = state[COMPONENT_RL_MODULE]
            weights = ray.get(weights) if isinstance(weights, ray.ObjectRef) else weights
            self.module.set_state(weights)
            for name in weights:
                self._agents.pop(name, None)
        self._weights_seq_no = max(self._weights_seq_no, number)

    def get_ctor_args_and_kwargs(self) -> tuple[tuple[()], dict[str, Any]]:
        """What builds another runner like this one."""
        return (), {"config": self.config}

    def get_checkpointable_components(self) -> list[tuple[str, Any]]:
        """The modules."""
        return [(COMPONENT_RL_MODULE, self.module)]

    def weights_seq_no(self) -> int:
        """Sequence number of the weights in use."""
        return self._weights_seq_no


class _ClockedAgent:
    """An agent that counts the seconds its networks take."""

    def __init__(self, agent: Agent) -> None:
        self._agent, self.name, self.vocabulary = agent, agent.name, agent.vocabulary
        self.seconds = 0.0

    def join(self, view: SideView) -> Session:
        with self.running():
            session = self._agent.join(view)
        return _ClockedSession(session, self)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Counts the seconds of a block."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds += time.monotonic() - started


class _ClockedSession:
    """The part of a clocked agent in a batch of dialogues."""

    def __init__(self, session: Session, clock: _ClockedAgent) -> None:
        self._session, self._clock = session, clock

    def speak(self, rows: np.ndarray) -> Utterances:
        with self._clock.running():
            return self._session.speak(rows)

    def choose(self, rows: np.ndarray) -> np.ndarray:
        with self._clock.running():
            return self._session.choose(rows)
