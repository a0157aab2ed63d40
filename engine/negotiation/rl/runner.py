"""The env runner, which plays whole dialogues side by side; its columns, and RLlib's callbacks.

Opponents are agents of any kind: frozen modules beside the learner, or agents by name, with the roster's defences around them.

RLlib's stock multi-agent runner returns the first k finished episodes of a vector and drops the rest (long dialogues hardly
reach the learner), replays seeds, and re-reads each dialogue at every turn. This one plays a given list of dialogues to their
end, through the same `play` that evaluation uses, and returns one row per dialogue. A dialogue depends on its index and the
master seed alone, not on the runner.

Callbacks: `on_episode_created`, `_start`, `_step`, `_end` and `on_sample_end` are called after a dialogue is over, because
hundreds are played at a time. Without callbacks no episodes are made. RLlib 2.60 averages the means of its runners, however
many episodes each played; here the logged calls come back and are repeated in order of dialogue (`CallbackMetrics`).

Shapes: N dialogues, T tokens.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.callbacks.utils import make_callback
from ray.rllib.env.multi_agent_episode import MultiAgentEpisode
from ray.rllib.utils import force_list
from ray.rllib.utils.metrics.metrics_logger import MetricsLogger

from parley.engine.core.ray.identity import require
from parley.engine.core.rllib.reproducible import ReproducibleRunner
from parley.engine.negotiation.attacks.opponents import Opponent
from parley.engine.negotiation.defences import defended
from parley.engine.negotiation.rl.env import ADVERSARY, AGENTS, NegotiationMultiAgentEnv
from parley.envs.core.play import Session, Utterances, isolate_failures
from parley.envs.core.seeds import derive_seed
from parley.envs.negotiation.agents import make_agent
from parley.envs.negotiation.domain import EOS, PAD_ID, Scenario, Vocabulary
from parley.envs.negotiation.env import choose_action, speak_action
from parley.envs.negotiation.game import SELECT, SPEAK, Agent, NegotiationGame, Rules, SideView, play
from parley.policies.negotiator.model import NegotiationBatch

COLUMNS = ("index", "contexts", "tokens", "lengths", "own", "points", "agreed", "turns", "forced")
_OVER_TOKENS = ("tokens", "own")


def played_rows(game: NegotiationGame, side: int, indices: Sequence[int]) -> dict[str, np.ndarray]:
    """Return finished dialogues as `COLUMNS`, one row each, from the learner's side.

    Args:
        game: the dialogues.
        side: the learner's side.
        indices: their numbers in the training.

    Returns:
        By column; `points` (N, 2) are the learner's and the other side's, `own` is the mask of the learner's tokens.
    """
    width = int(game.num_tokens.max())
    return {
        "index": np.array(indices, dtype=np.int64),
        "contexts": game.contexts[side].copy(),
        "tokens": game.tokens[side, :, :width].copy(),
        "lengths": game.num_tokens.copy(),
        "own": game.authors[:, :width] == side,
        "points": game.points[:, [side, 1 - side]],
        "agreed": game.agreed.copy(),
        "turns": game.num_turns.copy(),
        "forced": game.forced.copy(),
    }


def merged(parts: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Return the rows of several parts as one, in order of index, padded alike."""
    width = max(part["tokens"].shape[1] for part in parts)
    order = np.argsort(np.concatenate([part["index"] for part in parts]), kind="stable")

    def column(name: str) -> np.ndarray:
        values = [part[name] for part in parts]
        if name in _OVER_TOKENS:
            fill = PAD_ID if name == "tokens" else 0
            values = [np.pad(value, [(0, 0), (0, width - value.shape[1])], constant_values=fill) for value in values]
        return np.concatenate(values)[order]

    return {name: column(name) for name in COLUMNS}


def training_rows(played: Mapping[str, Any], returns_NT: np.ndarray, corpus: NegotiationBatch | None) -> dict[str, np.ndarray]:
    """Return the columns of a training batch (see `learner.py`): dialogues just played, then corpus dialogues."""
    size = len(played["lengths"])
    extra = 0 if corpus is None else len(corpus.lengths_B)
    width = max(played["tokens"].shape[1], 0 if corpus is None else corpus.tokens_BT.shape[1])
    tokens = np.full((size + extra, width), PAD_ID, dtype=np.int64)
    own_words = np.zeros((size + extra, width), dtype=bool)
    weights = np.zeros((size + extra, width), dtype=np.float32)
    # Not read without corpus dialogues.
    outputs = np.zeros((size + extra, 1 if corpus is None else corpus.outputs_B6.shape[1]), dtype=np.int64)
    tokens[:size, : played["tokens"].shape[1]] = played["tokens"]
    own_words[:size, : played["own"].shape[1]] = played["own"]
    weights[:size, : returns_NT.shape[1]] = returns_NT
    contexts, lengths = played["contexts"], played["lengths"]
    if corpus is not None:
        tokens[size:, : corpus.tokens_BT.shape[1]] = corpus.tokens_BT.numpy()
        outputs[size:] = corpus.outputs_B6.numpy()
        contexts = np.concatenate([contexts, corpus.contexts_B6.numpy()])
        lengths = np.concatenate([lengths, corpus.lengths_B.numpy()])
    return {
        "contexts": contexts,
        "tokens": tokens,
        "lengths": lengths,
        "own": own_words,
        "returns": weights,
        "supervised": np.arange(size + extra) >= size,
        "outputs": outputs,
    }


_OF_DIALOGUES = ("on_episode_created", "on_episode_start", "on_episode_step", "on_episode_end", "on_sample_end")
_BEFORE, _DIALOGUE, _AFTER = range(3)


class LoggedCall(NamedTuple):
    """A call of a logger's method by a callback.

    Args:
        order: sort key among all calls of an update; calls about dialogues sort by index.
        method: name of the method.
        arguments: its positional arguments.
        options: its keyword arguments.
    """

    order: tuple[int, int]
    method: str
    arguments: tuple[Any, ...]
    options: dict[str, Any]


class RecordingLogger(MetricsLogger):
    """A runner's logger that records the calls of callbacks; `peek` sees those since the last `take_calls`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.order = (_BEFORE, 0)
        self._calls: list[LoggedCall] = []

    def log_value(self, key: Any, value: Any, **options: Any) -> None:
        """Record the call, and log the value."""
        self._calls.append(LoggedCall(self.order, "log_value", (key, value), options))
        super().log_value(key, value, **options)

    def aggregate(self, stats_dicts: list[dict[str, Any]], **options: Any) -> None:
        """Record the call, and merge the figures."""
        self._calls.append(LoggedCall(self.order, "aggregate", (stats_dicts,), options))
        super().aggregate(stats_dicts, **options)

    @contextmanager
    def log_time(self, key: Any, **options: Any) -> Iterator[None]:
        """Log the seconds of a `with` block."""
        started = time.perf_counter()
        yield
        self.log_value(key, time.perf_counter() - started, **options)

    def take_calls(self) -> list[LoggedCall]:
        """Return the calls so far, and forget them."""
        calls, self._calls = self._calls, []
        self.reduce()
        return calls


class CallbackMetrics:
    """The figures of callbacks from the dialogues of all runners.

    Args:
        options: options of the loggers.
    """

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._loggers: dict[str, MetricsLogger] = {}

    def reduced(self, name: str, calls: Iterable[LoggedCall]) -> dict[str, Any]:
        """Repeat calls in order of dialogue, and return what RLlib aggregates of them.

        Args:
            name: name of the results; moving averages continue under one name.
            calls: calls of all runners.
        """
        logger = self._loggers.setdefault(name, MetricsLogger(**self._options))
        for call in sorted(calls, key=lambda call: call.order):
            getattr(logger, call.method)(*call.arguments, **call.options)
        reduced: dict[str, Any] = logger.reduce()
        return reduced

    def get_state(self) -> dict[str, Any]:
        """Return the state of every logger by name."""
        return {name: logger.get_state() for name, logger in self._loggers.items()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `get_state` returned."""
        self._loggers = {}
        for name, logged in state.items():
            self._loggers[name] = MetricsLogger(**self._options)
            self._loggers[name].set_state(logged)


class CallbackReporter:
    """A caller of the callbacks of a configuration.

    Args:
        runner: the env runner; if callbacks follow dialogues, it gets a logger that records their calls.
    """

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self._objects: list[RLlibCallback] = [kind() for kind in force_list(runner.config.callbacks_class)]
        self.is_followed = any(self._follows(event) for event in _OF_DIALOGUES)
        """True if a callback follows dialogues."""
        if self.is_followed:
            runner.metrics = RecordingLogger(stats_cls_lookup=runner.config.stats_cls_lookup)
        self._call("on_environment_created", env=runner.env, env_context=runner.config.env_config)

    def report(
        self, game: NegotiationGame, indices: Sequence[int], side: int, modules: tuple[str, str], reward: str
    ) -> list[MultiAgentEpisode]:
        """Report finished dialogues to the callbacks, each from its first word to its last.

        Args:
            game: the dialogues.
            indices: their numbers in the training.
            side: the learner's side, whose vocabulary the episodes have.
            modules: the modules on side 0 and side 1.
            reward: kind of the learner's reward; an algorithm's own `rewards` are not known here.

        Returns:
            The episodes, for `report_end`.
        """
        if not self.is_followed:
            return []
        vocabulary = game.view(side).vocabulary
        env = NegotiationMultiAgentEnv({"vocabulary": vocabulary, "rules": game.rules, "reward": reward})
        of = dict(zip(AGENTS, modules, strict=True))
        episodes = []
        for row, index in enumerate(indices):
            self._runner.metrics.order = (_DIALOGUE, index)
            episode = MultiAgentEpisode(
                observation_space=env.observation_spaces,
                action_space=env.action_spaces,
                agent_to_module_mapping_fn=lambda agent, *_, **__: of[agent],
            )
            about = {"episode": episode, "env": env, "env_index": 0, "rl_module": self._runner.module}
            self._call("on_episode_created", **about)
            again = NegotiationGame(
                [game.scenarios[row]], [game.seeds[row]], vocabulary, game.rules, first_speakers=[game.first_speakers[row]]
            )
            observations, infos = env.start(again)
            episode.add_env_reset(observations=observations, infos=infos)
            self._call("on_episode_start", **about)
            for action in _actions(game, row, side, again):
                (agent,) = observations
                observations, rewards, terminated, truncated, infos = env.step({agent: action})
                episode.add_env_step(
                    observations, {agent: action}, rewards, infos, terminateds=terminated, truncateds=truncated
                )
                self._call("on_episode_step", **about)
            self._call("on_episode_end", **about, prev_episode_chunks=[])
            episodes.append(episode)
        return episodes

    def report_end(self, episodes: list[MultiAgentEpisode]) -> list[LoggedCall]:
        """Report the end of a runner's dialogues, and return the calls that callbacks logged since the last time."""
        if not self.is_followed:
            return []
        self._runner.metrics.order = (_AFTER, 0)
        self._call("on_sample_end", samples=episodes)
        calls: list[LoggedCall] = self._runner.metrics.take_calls()
        return calls

    def _follows(self, event: str) -> bool:
        has_method = any(getattr(type(callback), event) is not getattr(RLlibCallback, event) for callback in self._objects)
        return has_method or bool(getattr(self._runner.config, f"callbacks_{event}"))

    def _call(self, event: str, **about: Any) -> None:
        functions = getattr(self._runner.config, f"callbacks_{event}")
        about |= {"env_runner": self._runner, "metrics_logger": self._runner.metrics}
        make_callback(event, self._objects, functions, kwargs=about)


def _actions(game: NegotiationGame, row: int, side: int, again: NegotiationGame) -> Iterator[dict[str, Any]]:
    """Yield the actions of a finished dialogue, in order, while it is played again."""
    vocabulary, width = again.vocabulary, game.rules.max_words
    ids = game.tokens[side, row, : game.num_tokens[row]]
    starts = np.flatnonzero(np.isin(ids, (vocabulary.you_id, vocabulary.them_id)))
    for start, end in zip(starts, [*starts[1:], len(ids)], strict=True):
        if again.phase[0] != SPEAK:  # the last word was forced, and is so again
            break
        words = vocabulary.decode(ids[start + 1 : end].tolist())
        yield speak_action(vocabulary, game.rules, words[:-1] if len(words) > width and words[-1] == EOS else words)
    while again.phase[0] == SELECT:
        chooser = next(number for number in (0, 1) if again.rows_to_choose(number).size)
        yield choose_action(game.rules, int(game.selections[row, chooser]))


class DialogueEnvRunner(ReproducibleRunner):
    """An env runner that plays dialogues between the learning module and its opponents."""

    def make_env(self) -> None:
        """Make the two-sided environment for its spaces; `sample` plays its game in batches."""
        self.env = NegotiationMultiAgentEnv(self.config.env_config)
        self._callback_reporter = CallbackReporter(self)

    def make_module(self) -> None:
        super().make_module()
        self._agents: dict[str, Agent] = {}

    def get_spaces(self) -> dict[str, tuple[Space, Space]]:
        """Return observation and action space of each module."""
        env, roster = self.env, self.config.roster
        spaces = [(env.get_observation_space(role), env.get_action_space(role)) for role in AGENTS]
        opponents = {opponent.name: spaces[1 - roster.side] for opponent in roster.drawable if opponent.checkpoint}
        return {roster.role: spaces[roster.side], **opponents}

    def sample(self, *, dealt: Sequence[tuple[int, Scenario, str]] = (), **_: Any) -> dict[str, Any]:
        """Play dialogues to their end.

        Args:
            dealt: index, scenario and opponent of each; first speaker and all draws follow from (master seed, index).

        Returns:
            The columns of a played row, in order of index; the sequence number of the weights; the seconds of play and of its
            agents; the `lost` dialogues by index, with the error of a user's own agent; and the `logged` calls of callbacks.

        Raises:
            ClusterError: this machine has other code than the driver.
        """
        # Not at construction: RLlib would repeat the construction without a message.
        require(self.config.driver)
        started = time.monotonic()
        parts: list[dict[str, np.ndarray]] = []
        episodes: list[Any] = []
        lost: dict[int, str] = {}
        clocks: list[_ClockedAgent] = []
        for opponent in dict.fromkeys(name for _, _, name in dealt):
            group = [(index, scenario) for index, scenario, name in dealt if name == opponent]
            agents = [_ClockedAgent(self._agent(name)) for name in self._modules_by_side(opponent)]
            games, failed = isolate_failures(partial(self._play, opponent, (agents[0], agents[1])), group)
            for game, indices in games:
                parts.append(played_rows(game, self.config.roster.side, indices))
                modules, reward = self._modules_by_side(opponent), self._met(opponent).reward
                episodes += self._callback_reporter.report(game, indices, self.config.roster.side, modules, reward)
            lost |= {index: str(error) for (index, _), error in failed}
            clocks += agents
        logged = self._callback_reporter.report_end(episodes)
        network_seconds = sum(clock.seconds for clock in clocks)
        return {
            **(merged(parts) if parts else {"index": np.empty(0, dtype=np.int64)}),
            "lost": lost,
            "logged": logged,
            "weights": self._weights_seq_no,
            "seconds": time.monotonic() - started,
            "network_seconds": network_seconds,
        }

    def _modules_by_side(self, opponent: str) -> tuple[str, str]:
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
        (met,) = (other for other in self.config.roster.drawable if other.name == name)
        return met

    def _deal(
        self, dealt: Sequence[tuple[int, Scenario]], opponent: str, words: tuple[Vocabulary, Vocabulary]
    ) -> NegotiationGame:
        config, met = self.config, self._met(opponent)
        seeds = [derive_seed(config.master_seed, "training dialogue", index) for index, _ in dealt]
        rules = Rules(max_turns=config.reinforce.max_turns, complementary=met.complementary)
        return NegotiationGame([scenario for _, scenario in dealt], seeds, words, rules)

    def take(self, names: Collection[str]) -> None:
        """Drop the agents of modules with new weights, so that they are made again."""
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
        """Count the seconds of a block."""
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
