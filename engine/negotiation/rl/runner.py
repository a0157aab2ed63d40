"""The env runner: plays whole dialogues, hundreds side by side, each with its own seed.

Opponents are agents of any kind: frozen modules beside the one that learns, or what a name stands for, with the defences
around them that the roster says.

RLlib's stock multi-agent runner returns the first k finished episodes of a vector and drops the rest (long dialogues
hardly reach the learner), replays seeds, and re-reads each dialogue at every turn. This one plays a given list of
dialogues to their end, through the same `play` that evaluation uses, and returns one row per dialogue. What a dialogue
is depends on its index and the master seed alone, not on which runner plays it.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from gymnasium import Space

from parley.engine.core.ray.identity import require
from parley.engine.core.rllib.reproducible import ExactRunner
from parley.engine.negotiation.attacks.opponents import Opponent
from parley.engine.negotiation.defences import defended
from parley.engine.negotiation.rl.env import ADVERSARY, AGENTS, NegotiationMultiAgentEnv
from parley.engine.negotiation.rl.episodes import EpisodeTeller
from parley.engine.negotiation.rl.rows import merged, played_rows
from parley.envs.core.play import Session, Utterances, play_apart
from parley.envs.core.seeds import derive_seed
from parley.envs.negotiation.agents import make_agent
from parley.envs.negotiation.game import Agent, NegotiationGame, Rules, SideView, play
from parley.envs.negotiation.scenario import Scenario
from parley.envs.negotiation.vocabulary import Vocabulary


class DialogueEnvRunner(ExactRunner):
    """Plays dialogues between the module that learns and its opponents, each on its side of the game."""

    def make_env(self) -> None:
        """The two-sided environment; gives the spaces (its game is played in batches by `sample`)."""
        self.env = NegotiationMultiAgentEnv(self.config.env_config)
        self._teller = EpisodeTeller(self)

    def make_module(self) -> None:
        """The learner's module and those of its opponents."""
        super().make_module()
        self._agents: dict[str, Agent] = {}

    def get_spaces(self) -> dict[str, tuple[Space, Space]]:
        """Observation and action space of each module."""
        env, roster = self.env, self.config.roster
        spaces = [(env.get_observation_space(role), env.get_action_space(role)) for role in AGENTS]
        others = {opponent.name: spaces[1 - roster.side] for opponent in roster.met if opponent.checkpoint}
        return {roster.role: spaces[roster.side], **others}

    def sample(self, *, dealt: Sequence[tuple[int, Scenario, str]] = (), **_: Any) -> dict[str, Any]:
        """Plays dialogues to their end.

        Args:
            dealt: index, scenario and opponent of each; first speaker and all draws follow from (master seed, index).

        Returns:
            The columns of `rows.py`, in order of index; and the sequence number of the weights that played, seconds spent
            playing and in its agents; the dialogues that are `lost`, by index with what an agent of a user's own failed in; and
            the calls by which callbacks have `logged`.

        Raises:
            ClusterError: this machine has other code than the driver.
        """
        # Not when it is built: RLlib would build it again and again, and say nothing.
        require(self.config.driver)
        started = time.monotonic()
        parts: list[dict[str, np.ndarray]] = []
        episodes: list[Any] = []
        lost: dict[int, str] = {}
        clocks: list[_ClockedAgent] = []
        for opponent in dict.fromkeys(name for _, _, name in dealt):
            group = [(index, scenario) for index, scenario, name in dealt if name == opponent]
            seated = [_ClockedAgent(self._agent(name)) for name in self._seated(opponent)]
            games, failed = play_apart(partial(self._play, opponent, (seated[0], seated[1])), group)
            for game, indices in games:
                parts.append(played_rows(game, self.config.roster.side, indices))
                modules, reward = self._seated(opponent), self._met(opponent).reward
                episodes += self._teller.tell(game, indices, self.config.roster.side, modules, reward)
            lost |= {index: str(error) for (index, _), error in failed}
            clocks += seated
        logged = self._teller.tell_end(episodes)
        network_seconds = sum(clock.seconds for clock in clocks)
        return {
            **(merged(parts) if parts else {"index": np.empty(0, dtype=np.int64)}),
            "lost": lost,
            "logged": logged,
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
            roster, device = self.config.roster, str(self.device)
            if name == roster.role:
                self._agents[name] = self.module[name].agent(name)
            else:
                met, words = self._met(name), self.module[roster.role].net.vocabulary
                temperature = self.config.reinforce.temperature
                agent = (
                    make_agent(met.agent, words, temperature, device=device, seat=roster.chat, answers=roster.answers)
                    if met.agent
                    else self.module[name].agent(name)
                )
                self._agents[name] = defended(agent, met.defence, met.judge, device, roster.chat)
        return self._agents[name]

    def _play(
        self, opponent: str, agents: tuple[Agent, Agent], dealt: Sequence[tuple[int, Scenario]]
    ) -> tuple[NegotiationGame, list[int]]:
        game = self._deal(dealt, opponent, (agents[0].vocabulary, agents[1].vocabulary))
        return play(game, agents), [index for index, _ in dealt]

    def _met(self, name: str) -> Opponent:
        (met,) = (other for other in self.config.roster.met if other.name == name)
        return met

    def _deal(
        self, dealt: Sequence[tuple[int, Scenario]], opponent: str, words: tuple[Vocabulary, Vocabulary]
    ) -> NegotiationGame:
        config, met = self.config, self._met(opponent)
        seeds = [derive_seed(config.master_seed, "training dialogue", index) for index, _ in dealt]
        rules = Rules(max_turns=config.reinforce.max_turns, complementary=met.complementary)
        return NegotiationGame([scenario for _, scenario in dealt], seeds, words, rules)

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
