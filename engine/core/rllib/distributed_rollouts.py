"""Algorithms whose examples are shared out among env runners, in this process or in actors, whoever of them dies.

Which runner an item of an iteration goes to decides nothing of it. A runner that dies costs a replay of its share, and an
update is never made on fewer items than it asks for, nor on items of a runner with old weights.

What the multi-agent environments make of RLlib's `env_config`: keys that they know, and a stream of their own.

The learner, seen from the algorithm: in this process, or one actor or several, and what is raised when one is gone.

Several share the rows of an update, every n-th each, and take the same step by the sum of their gradients.

RLlib 2.60 tells of a dead learner in several ways: the call that finds it dead raises Ray's error, `set_state` drops even
that, and after it nobody is left to be called, so that `update` returns nothing and `get_state` raises an IndexError. Here
every call raises a `LearnerLostError`, and an error of the learner's own work comes back as it was raised there.
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
from parley.engine.core.rllib.reproducible import ReproducibleAlgorithm, ReproducibleRunner
from parley.envs.core.errors import ClusterError, ConfigError, ParleyError
from parley.envs.core.registry import nearest


def require_known(config: Mapping[str, Any], keys: Sequence[str]) -> None:
    """Raises a `ConfigError` for a key of an `env_config` that no environment of the kind knows."""
    for key in config:
        if key not in keys:
            fix = f"known keys: {', '.join(keys)}"
            raise ConfigError(f"unknown key {key!r}{nearest(str(key), keys)}", where="env_config", fix=fix)


def own_stream(config: Mapping[str, Any]) -> tuple[int, ...]:
    """Integers that name one of several environments of a configuration: its key `stream`, then worker and sub-environment."""
    named: tuple[int, ...] = tuple(config.get("stream", ()))
    if not isinstance(config, EnvContext):
        return named
    # RLlib gives one context, with vector_index 0, to all sub-environments that a runner makes; each takes the next number,
    # or they would all play the same dialogues.
    config.vector_index += 1
    # A runner that is built by hand, without a group, has no index.
    return (*named, config.worker_index or 0, config.vector_index - 1)


DEATH_S = 20.0
"""Seconds within which Ray's head hears of a process that has died."""


class LearnerLostError(ClusterError):
    """The learner was an actor of its own, and died."""


class DialogueLearnerGroup(LearnerGroup):
    """The learner of a `DialogueReinforce` algorithm."""

    def update(self, **kwargs: Any) -> Any:
        """Makes an update.

        Raises:
            LearnerLostError: a learner is gone; whether it made the update is not known.
        """
        if len(self) > 1:
            kwargs["batches"] = shared_batches(kwargs.pop("batch"), len(self))
        with self._reached():
            return super().update(**kwargs)

    def get_state(self, components: Any = None, **kwargs: Any) -> dict[str, Any]:
        """The learner's state.

        Raises:
            LearnerLostError: the learner is gone.
        """
        with self._reached():
            return super().get_state(components, **kwargs)

    def foreach_learner(self, func: Callable[..., Any], **kwargs: Any) -> Any:
        """What `func` returns for the learner; `set_state` goes through here too.

        Raises:
            LearnerLostError: the learner is gone.
        """
        with self._reached():
            results = super().foreach_learner(func, **kwargs)
            # Raises the errors among them, at which RLlib's `set_state` does not look.
            self._get_results(results)
            return results

    def await_loss(self, timeout_s: float) -> None:
        """Waits until Ray's head knows that the learner is gone, as it does some seconds after its machine."""
        deadline = time.monotonic() + timeout_s
        actors = self._worker_manager.actors().values() if self.is_remote else ()
        while any(actor_state(actor).is_alive for actor in actors) and time.monotonic() < deadline:
            time.sleep(0.5)

    @contextmanager
    def _reached(self) -> Iterator[None]:
        if self.is_remote and self._worker_manager.num_healthy_actors() < len(self):
            raise _lost("it did not answer an earlier call")
        try:
            with learner_errors():
                yield
        except Exception as error:
            # What the others say, when one of several dies, is that they cannot reach it; our own errors are of the work.
            if len(self) > 1 and not isinstance(error, ParleyError) and self._has_died():
                raise _lost(str(error).partition("\n")[0]) from error
            raise

    def _has_died(self) -> bool:
        """Whether Ray's head knows, or soon hears, that one of the learners is gone."""
        deadline = time.monotonic() + DEATH_S
        while all(actor_state(actor).is_alive for actor in self._workers):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.2)
        return True


def shared_batches(batch: MultiAgentBatch, number: int) -> list[MultiAgentBatch]:
    """A batch for each of several learners, every n-th row: each gets its share of what was played and of the corpus."""
    modules = batch.policy_batches.items()
    parts = [
        {name: SampleBatch({column: rows[column][k::number] for column in rows}) for name, rows in modules}
        for k in range(number)
    ]
    return [MultiAgentBatch(part, batch.env_steps()) for part in parts]


@contextmanager
def learner_errors() -> Iterator[None]:
    """Turns what Ray raises for a learner's actor into the learner's own error, or into a `LearnerLostError`."""
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


logger = logging.getLogger(__name__)

StartedSearch = Future[list[dict[str, Any]]]
"""What runners make of items while something else is done."""
MAX_REPLAYS = 5
"""Times the missing items of one iteration are played again before giving up."""
RUNNERS_S = 10.0
"""Seconds after which it is looked whether there is still room for env runners that are not up."""


class DistributedAlgorithm(ReproducibleAlgorithm):
    """An exact algorithm whose runners take items by `sample(dealt=...)`.

    A runner returns a dict that says the `index` of each item that it has played and the number of the `weights` that it played
    with, beside what the algorithm wants to know.
    """

    items = "dialogues"
    """What is dealt."""
    shares_learning = False
    """Whether several learners can share an update."""

    def setup(self, config: AlgorithmConfig) -> None:
        """RLlib's set-up, but for the env runners: it makes none, and they join its group as soon as that is there."""
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
        """Names of the checkpoints that runners and learners load by `fetched_model`."""
        specs = self.config.rl_module_spec.rl_module_specs.values()
        return {spec.model_config["checkpoint"] for spec in specs if "checkpoint" in spec.model_config}

    @property
    def env_runner_group(self) -> Any:
        """RLlib's group of env runners."""
        return self._group

    @env_runner_group.setter
    def env_runner_group(self, group: Any) -> None:
        """Takes the group from RLlib, before there is a learner, and adds the runners, with their configuration itself."""
        self._group = group
        if group is not None and self._num_runners:
            ray_internals.add_env_runners(group, self._num_runners)
            self._await_runners()

    def _await_runners(self) -> None:
        """Waits for the env runners, and goes on without those that no machine has room for any more."""
        here = session.current() or session.RaySession("joined")
        deadline = time.monotonic() + here.start_timeout_s
        while absent := ray_internals.absent_runners(self._group, RUNNERS_S):
            room = capacity(ray.nodes(), self.config.num_cpus_per_env_runner, self.config.num_gpus_per_env_runner)
            is_full = self._num_runners - len(absent) >= room and not session.can_grow()
            if is_full or time.monotonic() > deadline:
                logger.warning("%d of %d env runners have no place: training goes on without", len(absent), self._num_runners)
                ray_internals.remove_runners(self._group, absent)
                return

    def gather(self, items: Mapping[int, Any], begun: StartedSearch | None = None) -> list[dict[str, Any]]:
        """What whatever runners are alive make of items.

        Args:
            items: what a runner is dealt, by index.
            begun: what `begin` gave for them, where it was called.

        Raises:
            ClusterError: runners keep failing.
        """
        done: list[dict[str, Any]] = []
        missing = dict(items)
        for _ in range(MAX_REPLAYS):
            parts, begun = (begun.result() if begun else self._dispatch(missing)), None
            # A runner that died and was restarted unnoticed speaks with the weights that training started from.
            done += [part for part in parts if part["weights"] == self.env_runner.weights_seq_no()]
            here = {int(index) for part in done for index in (*part["index"], *part.get("lost", ()))}
            missing = {index: item for index, item in items.items() if index not in here}
            if not missing:
                return done
            self.restore_env_runners(self.env_runner_group)
            # The learner may be ahead of them.
            self._send(self.env_runner)
        raise ClusterError(
            "env runners keep failing",
            got=f"{len(missing)} of {len(items)} {self.items} unplayed after {MAX_REPLAYS} attempts",
            fix="read the workers' logs, or train with fewer env runners",
        )

    def begin(self, items: Mapping[int, Any]) -> StartedSearch | None:
        """Has remote runners, if there are any, work on items while this process goes on; `gather` waits for them."""
        if not self.env_runner_group.num_healthy_remote_workers():
            return None
        begun: StartedSearch = Future()

        def work() -> None:
            try:
                begun.set_result(self._dispatch(items))
            except BaseException as error:  # raised where the result is asked for
                begun.set_exception(error)

        # Were it waited for when this process is interrupted, that would take as long as they play.
        Thread(target=work, daemon=True).start()
        return begun

    def _dispatch(self, items: Mapping[int, Any]) -> list[dict[str, Any]]:
        group, dealt = self.env_runner_group, list(items.values())
        workers = group.healthy_worker_ids() if group.num_remote_workers() else []
        if not workers:
            return [self.env_runner.sample(dealt=dealt)]
        shares = [dealt[place :: len(workers)] for place in range(len(workers))]
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
        """Puts the learner's weights, of all modules or some, into every runner with older ones."""
        if self.env_runner_group.num_remote_workers():
            self._send(self.learner_group, roles)
            return
        # RLlib would put them into Ray's object store for nobody.
        modules = [COMPONENT_RL_MODULE] if roles is None else [f"{COMPONENT_RL_MODULE}/{role}" for role in roles]
        components = [f"{COMPONENT_LEARNER}/{module}" for module in modules]
        self.env_runner.set_state(self.learner_group.get_state(components, inference_only=True)[COMPONENT_LEARNER])

    def _send(self, source: Any, roles: Sequence[str] | None = None) -> None:
        self.env_runner_group.sync_weights(
            from_worker_or_learner_group=source, policies=roles, inference_only=True, timeout_seconds=None
        )


def _sample(runner: ReproducibleRunner, dealt: Sequence[Any]) -> dict[str, Any] | Exception:
    """The runner's items, or what went wrong: raised there, RLlib would let the runner sleep, die and try for ever."""
    try:
        played: dict[str, Any] = runner.sample(dealt=dealt)
        return played
    except Exception as error:
        error.add_note(f"In the env runner:\n{traceback.format_exc()}")
        return error
