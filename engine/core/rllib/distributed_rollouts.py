"""Algorithms that distribute their examples over env runners, and a learner group that reports lost learners.

Runners are in this process or in actors, and any of them may die. The runner of an item does not affect its result. A runner
that dies costs a replay of its share. An update never has fewer items than asked for, nor items of a runner with old weights.

The learner is in this process, in one actor or in several. Several learners share the rows of an update, every n-th row each,
and take the same step by the sum of their gradients. RLlib 2.60 reports a dead learner in several ways: the call that finds it
raises Ray's error, `set_state` drops even that, and afterwards `update` returns nothing and `get_state` raises an IndexError.
Here every call raises a `LearnerLostError`, and an error of the learner's own work is raised as it was there.

`require_known` and `own_stream` read RLlib's `env_config` for multi-agent environments.
"""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from threading import Thread
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core import COMPONENT_LEARNER, COMPONENT_RL_MODULE
from ray.rllib.core.learner.learner_group import LearnerGroup
from ray.rllib.env.env_context import EnvContext
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch

from parley.engine.core.ray import ray_internals, session
from parley.engine.core.ray.pool import BroadcastModels
from parley.engine.core.ray.ray_internals import actor_state
from parley.engine.core.ray.worker import capacity
from parley.engine.core.rllib.reproducible import ReproducibleAlgorithm, ReproducibleConfig, ReproducibleRunner
from parley.envs.core.errors import ClusterError, ConfigError, ParleyError
from parley.envs.core.registry import nearest

logger = logging.getLogger(__name__)

StartedSearch = Future[list[dict[str, Any]]]
"""Results of items that runners compute in the background."""
MAX_REPLAYS = 5
"""Number of times that missing items of an iteration are played again before an error."""
RUNNERS_S = 10.0
"""Seconds between two checks for room for env runners that are not up."""


class DistributedAlgorithm(ReproducibleAlgorithm):
    """A reproducible algorithm whose runners take items by `sample(dealt=...)`.

    A runner returns a dict with the `index` of each played item, the number of its `weights`, and further entries for the
    algorithm.
    """

    items = "dialogues"
    """Name of the items."""
    shares_learning = False
    """True if several learners can share an update."""

    def setup(self, config: AlgorithmConfig) -> None:
        """Set up the algorithm without env runners; they join the group as soon as it exists."""
        if config.num_learners > 1 and not self.shares_learning:
            raise ConfigError(
                f"{type(self).__name__} has one learner", got=f"num_learners={config.num_learners}", fix="num_learners=0 or 1"
            )
        self._num_runners, self._group = config.num_env_runners, None
        self.config = config.copy(copy_frozen=False)
        if config.num_env_runners or config.num_learners:
            self.config.carried = BroadcastModels.put(self.models())
        self.config.num_env_runners = 0
        super().setup(self.config)

    def models(self) -> set[str]:
        """Return the names of the checkpoints that runners and learners load by `fetched_model`."""
        specs = self.config.rl_module_spec.rl_module_specs.values()
        return {spec.model_config["checkpoint"] for spec in specs if "checkpoint" in spec.model_config}

    @property
    def env_runner_group(self) -> Any:
        """RLlib's group of env runners."""
        return self._group

    @env_runner_group.setter
    def env_runner_group(self, group: Any) -> None:
        """Take the group from RLlib before there is a learner, and add the runners with their own configuration."""
        self._group = group
        if group is not None and self._num_runners:
            ray_internals.add_env_runners(group, self._num_runners)
            self._await_runners()

    def _await_runners(self) -> None:
        """Wait for the env runners; go on without those that fit on no machine."""
        ray_session = session.current() or session.RaySession("joined")
        deadline = time.monotonic() + ray_session.start_timeout_s
        while absent := ray_internals.absent_runners(self._group, RUNNERS_S):
            room = capacity(ray.nodes(), self.config.num_cpus_per_env_runner, self.config.num_gpus_per_env_runner)
            is_full = self._num_runners - len(absent) >= room and not session.can_grow()
            if is_full or time.monotonic() > deadline:
                logger.warning("%d of %d env runners have no place: training goes on without", len(absent), self._num_runners)
                ray_internals.remove_runners(self._group, absent)
                return

    def gather(self, items: Mapping[int, Any], begun: StartedSearch | None = None) -> list[dict[str, Any]]:
        """Return the results of the living runners for some items.

        Args:
            items: items for the runners, by index.
            begun: result of an earlier `begin` for these items.

        Raises:
            ClusterError: runners keep failing.
        """
        results: list[dict[str, Any]] = []
        missing = dict(items)
        for _ in range(MAX_REPLAYS):
            parts, begun = (begun.result() if begun else self._dispatch(missing)), None
            # A runner that died and was restarted unnoticed plays with the weights from the start of training.
            results += [part for part in parts if part["weights"] == self.env_runner.weights_seq_no()]
            finished = {int(index) for part in results for index in (*part["index"], *part.get("lost", ()))}
            missing = {index: item for index, item in items.items() if index not in finished}
            if not missing:
                return results
            self.restore_env_runners(self.env_runner_group)
            # The learner may have newer weights.
            self._send(self.env_runner)
        raise ClusterError(
            "env runners keep failing",
            got=f"{len(missing)} of {len(items)} {self.items} unplayed after {MAX_REPLAYS} attempts",
            fix="read the workers' logs, or train with fewer env runners",
        )

    def begin(self, items: Mapping[int, Any]) -> StartedSearch | None:
        """Let remote runners, if there are any, work on items in the background; `gather` waits for them."""
        if not self.env_runner_group.num_healthy_remote_workers():
            return None
        started: StartedSearch = Future()

        def work() -> None:
            try:
                started.set_result(self._dispatch(items))
            except BaseException as error:  # raised when the result is read
                started.set_exception(error)

        # A daemon: an interrupted process must not wait for the runners.
        Thread(target=work, daemon=True).start()
        return started

    def _dispatch(self, items: Mapping[int, Any]) -> list[dict[str, Any]]:
        group, dealt = self.env_runner_group, list(items.values())
        workers = group.healthy_worker_ids() if group.num_remote_workers() else []
        if not workers:
            return [self.env_runner.sample(dealt=dealt)]
        shares = [dealt[start :: len(workers)] for start in range(len(workers))]
        busy = [(worker, share) for worker, share in zip(workers, shares, strict=True) if share]
        parts = group.foreach_env_runner(
            [partial(_sample, dealt=share) for _, share in busy],
            local_env_runner=False,
            remote_worker_ids=[worker for worker, _ in busy],
        )
        for part in parts:
            if isinstance(part, Exception):
                raise part
        return parts

    def send_weights(self, roles: Sequence[str] | None = None) -> None:
        """Send the learner's weights, of all modules or some, to every runner with older ones."""
        if self.env_runner_group.num_remote_workers():
            self._send(self.learner_group, roles)
            return
        # RLlib would put them into Ray's object store without a reader.
        modules = [COMPONENT_RL_MODULE] if roles is None else [f"{COMPONENT_RL_MODULE}/{role}" for role in roles]
        components = [f"{COMPONENT_LEARNER}/{module}" for module in modules]
        self.env_runner.set_state(self.learner_group.get_state(components, inference_only=True)[COMPONENT_LEARNER])

    def _send(self, source: Any, roles: Sequence[str] | None = None) -> None:
        self.env_runner_group.sync_weights(
            from_worker_or_learner_group=source, policies=roles, inference_only=True, timeout_seconds=None
        )


def _sample(runner: ReproducibleRunner, dealt: Sequence[Any]) -> dict[str, Any] | Exception:
    """Return the runner's results, or its error: an error raised here would make RLlib retry the runner for ever."""
    try:
        played: dict[str, Any] = runner.sample(dealt=dealt)
        return played
    except Exception as error:
        error.add_note(f"In the env runner:\n{traceback.format_exc()}")
        return error


DEATH_S = 20.0
"""Seconds within which Ray's head learns of a dead process."""


class LearnerLostError(ClusterError):
    """The learner was an actor of its own, and died."""


class DialogueLearnerGroup(LearnerGroup):
    """The learners of a `DialogueReinforce` algorithm."""

    def update(self, **kwargs: Any) -> Any:
        """Make an update.

        Raises:
            LearnerLostError: a learner is gone; it is unknown whether it made the update.
        """
        if len(self) > 1:
            kwargs["batches"] = shared_batches(kwargs.pop("batch"), len(self))
        with self._lost_errors():
            return super().update(**kwargs)

    def get_state(self, components: Any = None, **kwargs: Any) -> dict[str, Any]:
        """Return the learner's state.

        Raises:
            LearnerLostError: the learner is gone.
        """
        with self._lost_errors():
            return super().get_state(components, **kwargs)

    def foreach_learner(self, func: Callable[..., Any], **kwargs: Any) -> Any:
        """Return the results of `func` for the learners; `set_state` uses this method, too.

        Raises:
            LearnerLostError: the learner is gone.
        """
        with self._lost_errors():
            results = super().foreach_learner(func, **kwargs)
            # Raises the errors among the results, which RLlib's `set_state` ignores.
            self._get_results(results)
            return results

    def await_loss(self, timeout_s: float) -> None:
        """Wait until Ray's head knows that the learner is gone; it learns of a lost machine after some seconds."""
        deadline = time.monotonic() + timeout_s
        actors = self._worker_manager.actors().values() if self.is_remote else ()
        while any(actor_state(actor).is_alive for actor in actors) and time.monotonic() < deadline:
            time.sleep(0.5)

    @contextmanager
    def _lost_errors(self) -> Iterator[None]:
        if self.is_remote and self._worker_manager.num_healthy_actors() < len(self):
            raise _lost("it did not answer an earlier call")
        try:
            with learner_errors():
                yield
        except Exception as error:
            # When one of several dies, the others only report that they cannot reach it; our own errors come from their work.
            if len(self) > 1 and not isinstance(error, ParleyError) and self._has_died():
                raise _lost(str(error).partition("\n")[0]) from error
            raise

    def _has_died(self) -> bool:
        """Return whether Ray's head knows, or learns within seconds, that a learner is gone."""
        deadline = time.monotonic() + DEATH_S
        while all(actor_state(actor).is_alive for actor in self._workers):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.2)
        return True


class DistributedConfig(ReproducibleConfig):
    """The base of configurations of `DistributedAlgorithm`."""

    def build_learner_group(
        self, *, env: Any = None, spaces: Any = None, rl_module_spec: Any = None, placement_group: Any = None
    ) -> DialogueLearnerGroup:
        """Build the learner, in this process or in its own actor.

        Raises:
            LearnerLostError: its actor died before it was ready.
        """
        spec = rl_module_spec or self.get_multi_rl_module_spec(env=env, spaces=spaces)
        with learner_errors():
            return DialogueLearnerGroup(config=self.copy(), module_spec=spec, placement_group=placement_group)


def shared_batches(batch: MultiAgentBatch, number: int) -> list[MultiAgentBatch]:
    """Return a batch for each of several learners, every n-th row, so that each gets a share of rollouts and of the corpus."""
    modules = batch.policy_batches.items()
    parts = [
        {name: SampleBatch({column: rows[column][k::number] for column in rows}) for name, rows in modules}
        for k in range(number)
    ]
    return [MultiAgentBatch(part, batch.env_steps()) for part in parts]


@contextmanager
def learner_errors() -> Iterator[None]:
    """Turn Ray's error for a learner's actor into the learner's own error, or into a `LearnerLostError`."""
    try:
        yield
    except RayError as error:
        cause = error.cause if isinstance(error, RayTaskError) else error
        if isinstance(cause, RayError):
            raise _lost(str(cause).partition("\n")[0]) from error
        raise cause from error


def _lost(got: str) -> LearnerLostError:
    fix = "run the same command again: it goes on from the last saved state"
    return LearnerLostError("the learner is gone", got=got, fix=fix)


def require_known(config: Mapping[str, Any], keys: Sequence[str]) -> None:
    """Raise a `ConfigError` for a key of an `env_config` that no environment of the kind knows."""
    for key in config:
        if key not in keys:
            fix = f"known keys: {', '.join(keys)}"
            raise ConfigError(f"unknown key {key!r}{nearest(str(key), keys)}", where="env_config", fix=fix)


def own_stream(config: Mapping[str, Any]) -> tuple[int, ...]:
    """Return integers that identify one of several environments: the key `stream`, then worker and sub-environment."""
    stream: tuple[int, ...] = tuple(config.get("stream", ()))
    if not isinstance(config, EnvContext):
        return stream
    # RLlib gives one context, with vector_index 0, to all sub-environments of a runner; each takes the next number, or all
    # would play the same dialogues.
    config.vector_index += 1
    # A runner that is built by hand, without a group, has no index.
    return (*stream, config.worker_index or 0, config.vector_index - 1)
