"""The learner, seen from the algorithm: in this process or an actor of its own, and what is raised when that one is gone.

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

from engine.runtime.ray_internals import actor_state
from envs.core.errors import ClusterError


class LearnerLostError(ClusterError):
    """The learner was an actor of its own, and died."""


class DialogueLearnerGroup(LearnerGroup):
    """The learner of a `DialogueReinforce` algorithm."""

    def update(self, **kwargs: Any) -> Any:
        """Makes an update.

        Raises:
            LearnerLostError: the learner is gone; whether it made the update is not known.
        """
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
        with learner_errors():
            yield


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
