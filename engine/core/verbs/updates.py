"""Trainings on RLlib: what is left of the updates of one, saved and gone on with exactly."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.job import Reporter
from parley.engine.core.verbs.scalars import Scalars
from parley.engine.core.verbs.supervised import STATE


@contextmanager
def built(settings: Any) -> Iterator[Any]:
    """The `ExactAlgorithm` of an RLlib configuration, stopped at the end."""
    algorithm = settings.build_algo()
    try:
        yield algorithm
    finally:
        algorithm.stop()
        # RLlib's modules stand in cycles of references, too few of them for Python to look before dozens of trainings.
        gc.collect()


def make_updates(
    algorithm: Any, run: RunFolder, updates: int, save_every: int, reporter: Reporter, note: Callable[[int, Scalars], str]
) -> None:
    """Makes the updates of a training that the run's saved state does not hold.

    Args:
        algorithm: as it was built.
        run: where its states are saved.
        updates: of the whole training.
        save_every: updates between saved states; the last one is saved too.
        reporter: who looks on.
        note: writes down the newest update, by its number, before it is saved; returns its figures in words.
    """
    from parley.engine.core.rllib import state

    saved = run.path / STATE
    if saved.exists():
        reporter.say(f"resumed after update {state.restore(algorithm, saved)}")
    with Scalars(run.path, algorithm.training_iteration) as scalars:
        while algorithm.training_iteration < updates:
            algorithm.train()
            number = algorithm.training_iteration
            told = note(number, scalars)
            if number % save_every == 0 or number == updates:
                state.save(algorithm, saved)
            reporter.advance(number, told)
