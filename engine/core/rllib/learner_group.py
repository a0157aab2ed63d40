"""The learner, seen from the algorithm: in this process, or one actor or several, and what is raised when one is gone.

Several share the rows of an update, every n-th each, and take the same step by the sum of their gradients.

RLlib 2.60 tells of a dead learner in several ways: the call that finds it dead raises Ray's error, `set_state` drops even
that, and after it nobody is left to be called, so that `update` returns nothing and `get_state` raises an IndexError. Here
every call raises a `LearnerLostError`, and an error of the learner's own work comes back as it was raised there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ray.exceptions import RayError, RayTaskError
from ray.rllib.core.learner.learner_group import LearnerGroup
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch

from parley.engine.core.ray.ray_internals import actor_state
from parley.envs.core.errors import ClusterError, ParleyError

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
