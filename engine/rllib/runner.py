"""The env runner: plays whole dialogues, hundreds side by side, each with its own seed.

RLlib's stock multi-agent runner returns the first k finished episodes of a vector and drops the rest (long dialogues
hardly reach the learner), replays seeds, and re-reads each dialogue at every turn. This one plays a given list of
dialogues to their end, through the same `play` that evaluation uses, and returns one row per dialogue. What a dialogue
is depends on its index and the master seed alone, not on which runner plays it.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from gymnasium import Space

from engine.rllib.env import ADVERSARY, AGENTS, NegotiationMultiAgentEnv
from engine.rllib.exact import ExactRunner
from engine.rllib.rows import merged, played_rows
from engine.runtime.identity import require
from envs.core.play import Session, Utterances
from envs.core.seeds import derive_seed
from envs.negotiation.game import Agent, NegotiationGame, Rules, SideView, play
from envs.negotiation.scenario import Scenario


class DialogueEnvRunner(ExactRunner):
    """Plays dialogues between the module that learns and its opponents, each on its side of the game."""

    def make_env(self) -> None:
        """The two-sided environment; gives the spaces (its game is played in batches by `sample`)."""
        self.env = NegotiationMultiAgentEnv(self.config.env_config)

    def make_module(self) -> None:
        """The learner's module and those of its opponents."""
        super().make_module()
        self._agents: dict[str, Agent] = {}

    def get_spaces(self) -> dict[str, tuple[Space, Space]]:
        """Observation and action space of each module."""
        env, roster = self.env, self.config.roster
        spaces = [(env.get_observation_space(role), env.get_action_space(role)) for role in AGENTS]
        others = {opponent.name: spaces[1 - roster.side] for opponent in roster.met}
        return {roster.role: spaces[roster.side], **others}

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

    def take(self, names: Collection[str]) -> None:
        """Agents are made anew of modules with new weights."""
        for name in names:
            self._agents.pop(name, None)


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
