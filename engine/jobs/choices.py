"""Trainings of policies that choose among actions: what is left of the updates of one, saving and resuming exactly."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from engine.jobs.job import Reporter
from engine.jobs.scalars import Scalars
from engine.jobs.supervised import STATE
from engine.store.run_folder import RunFolder

if TYPE_CHECKING:
    from engine.rllib.choosing import ChoiceReinforceConfig

UPDATE = "update"
"""Kind of the event of an update."""
START = "start"
"""Folder of the policy that learning begins with."""


def learned_choices(
    run: RunFolder,
    settings: ChoiceReinforceConfig,
    save_every: int,
    reporter: Reporter,
    title: str,
    say: Callable[[Mapping[str, Any]], str],
) -> dict[str, Any]:
    """Makes what is left of the updates of a training; the policy's weights.

    Args:
        run: where it stands.
        settings: who learns, and on what.
        save_every: updates between saved states.
        reporter: who looks on.
        title: of this piece of work.
        say: the figures of an update in words.

    Raises:
        DivergenceError: a gradient is not finite.
    """
    from engine.rllib import state

    saved, updates = run.path / STATE, settings.learning.updates
    algorithm = settings.build_algo()
    try:
        if saved.exists():
            reporter.say(f"resumed after update {state.restore(algorithm, saved)}")
        reporter.stage(title, updates, "updates")
        with Scalars(run.path, algorithm.training_iteration) as scalars:
            while algorithm.training_iteration < updates:
                algorithm.train()
                number = algorithm.training_iteration
                run.event(UPDATE, number=number, **algorithm.last)
                scalars.add(number, algorithm.last)
                if number % save_every == 0 or number == updates:
                    state.save(algorithm, saved)
                reporter.advance(number, f"{say(algorithm.last)}, reward {algorithm.last['reward']:+.2f}")
        return state.learned_weights(algorithm)
    finally:
        algorithm.stop()
        # RLlib's modules stand in cycles of references, too few of them for Python to look before dozens of trainings.
        gc.collect()
