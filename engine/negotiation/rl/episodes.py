"""Callbacks of RLlib's env runners: dialogues that were played side by side, told one after another as RLlib's episodes.

`on_episode_created`, `_start`, `_step` and `_end` and `on_sample_end` hear of a dialogue once it is over, because hundreds of
them are played at a time. Nothing is made where nobody listens.

What they log reaches the results as one logger would have it. RLlib 2.60 averages the means of its runners, however many
episodes each played; here the calls themselves come back, and are repeated in order of dialogue (`CallbackMetrics`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.callbacks.utils import make_callback
from ray.rllib.env.multi_agent_episode import MultiAgentEpisode
from ray.rllib.utils import force_list
from ray.rllib.utils.metrics.metrics_logger import MetricsLogger

from parley.engine.negotiation.rl.env import AGENTS, NegotiationMultiAgentEnv
from parley.envs.negotiation.env import choose_action, speak_action
from parley.envs.negotiation.game import SELECT, SPEAK, NegotiationGame
from parley.envs.negotiation.vocabulary import EOS

_OF_DIALOGUES = ("on_episode_created", "on_episode_start", "on_episode_step", "on_episode_end", "on_sample_end")
_BEFORE, _DIALOGUE, _AFTER = range(3)


class LoggedCall(NamedTuple):
    """A call of a logger's method by a callback.

    Args:
        order: its place among all calls of an update: those about dialogues in order of index.
        method: name of the method.
        arguments: of the method.
        options: its keyword arguments.
    """

    order: tuple[int, int]
    method: str
    arguments: tuple[Any, ...]
    options: dict[str, Any]


class RecordingLogger(MetricsLogger):
    """A runner's logger that keeps the calls of callbacks; `peek` sees those since the last `take_calls`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.order = (_BEFORE, 0)
        self._calls: list[LoggedCall] = []

    def log_value(self, key: Any, value: Any, **options: Any) -> None:
        """Keep the call, and log the value."""
        self._calls.append(LoggedCall(self.order, "log_value", (key, value), options))
        super().log_value(key, value, **options)

    def aggregate(self, stats_dicts: list[dict[str, Any]], **options: Any) -> None:
        """Keep the call, and merge the figures."""
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
    """The figures of callbacks, whichever runners played the dialogues.

    Args:
        options: of the loggers.
    """

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._loggers: dict[str, MetricsLogger] = {}

    def reduced(self, name: str, calls: Iterable[LoggedCall]) -> dict[str, Any]:
        """Repeat calls in order of dialogue, and return what RLlib aggregates of them.

        Args:
            name: of the results; a moving average goes on among those of one name.
            calls: of all runners.
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
        """Take back what `get_state` returned."""
        self._loggers = {}
        for name, logged in state.items():
            self._loggers[name] = MetricsLogger(**self._options)
            self._loggers[name].set_state(logged)


class EpisodeTeller:
    """Calls the callbacks of a configuration.

    Args:
        runner: the env runner that plays; where callbacks hear of dialogues, it gets a logger that keeps their calls.
    """

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self._objects: list[RLlibCallback] = [kind() for kind in force_list(runner.config.callbacks_class)]
        self.is_heard = any(self._hears(event) for event in _OF_DIALOGUES)
        """Whether anybody wants to be told of dialogues."""
        if self.is_heard:
            runner.metrics = RecordingLogger(stats_cls_lookup=runner.config.stats_cls_lookup)
        self._call("on_environment_created", env=runner.env, env_context=runner.config.env_config)

    def tell(
        self, game: NegotiationGame, indices: Sequence[int], side: int, modules: tuple[str, str], reward: str
    ) -> list[MultiAgentEpisode]:
        """Tells of dialogues that are over, each from its first word to its last.

        Args:
            game: the dialogues.
            indices: their numbers in the training.
            side: the learner's, in whose words they are told.
            modules: who was on side 0 and side 1.
            reward: what the learner is paid for; an algorithm's own `rewards` are not known here.

        Returns:
            The episodes, for `tell_end`.
        """
        if not self.is_heard:
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

    def tell_end(self, episodes: list[MultiAgentEpisode]) -> list[LoggedCall]:
        """Tell that a runner has played all that it was dealt; return what callbacks have logged since the last time."""
        if not self.is_heard:
            return []
        self._runner.metrics.order = (_AFTER, 0)
        self._call("on_sample_end", samples=episodes)
        calls: list[LoggedCall] = self._runner.metrics.take_calls()
        return calls

    def _hears(self, event: str) -> bool:
        own = any(getattr(type(each), event) is not getattr(RLlibCallback, event) for each in self._objects)
        return own or bool(getattr(self._runner.config, f"callbacks_{event}"))

    def _call(self, event: str, **about: Any) -> None:
        functions = getattr(self._runner.config, f"callbacks_{event}")
        about |= {"env_runner": self._runner, "metrics_logger": self._runner.metrics}
        make_callback(event, self._objects, functions, kwargs=about)


def _actions(game: NegotiationGame, row: int, side: int, again: NegotiationGame) -> Iterator[dict[str, Any]]:
    """The actions of a finished dialogue, in order, while it is played again."""
    vocabulary, width = again.vocabulary, game.rules.max_words
    ids = game.tokens[side, row, : game.num_tokens[row]]
    starts = np.flatnonzero(np.isin(ids, (vocabulary.you_id, vocabulary.them_id)))
    for start, end in zip(starts, [*starts[1:], len(ids)], strict=True):
        if again.phase[0] != SPEAK:  # the last word was forced, and is so again
            break
        words = vocabulary.decode(ids[start + 1 : end].tolist())
        yield speak_action(vocabulary, game.rules, words[:-1] if len(words) > width and words[-1] == EOS else words)
    while again.phase[0] == SELECT:
        chooser = next(each for each in (0, 1) if again.rows_to_choose(each).size)
        yield choose_action(game.rules, int(game.selections[row, chooser]))
