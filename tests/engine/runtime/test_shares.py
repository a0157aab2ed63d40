"""What actors reserve that make actors of their own: how many such shares a cluster holds, and room for either of two."""

from __future__ import annotations

from typing import Any

import pytest

from engine.runtime.shares import Share, num_fitting


def machines(*sizes: tuple[float, float]) -> list[dict[str, Any]]:
    """Machines a, b, ... of so many CPUs and GPUs."""
    names = "abcdef"
    return [
        {
            "NodeID": name,
            "Alive": True,
            "Resources": {kind: size for kind, size in zip(("CPU", "GPU"), one, strict=True) if size},
        }
        for name, one in zip(names, sizes, strict=False)
    ]


TRAINING = Share((0.0, 0.0), ((1.0, 0.0), (1.0, 0.0)), "a")
"""A driver on a, a learner and an env runner."""


@pytest.mark.parametrize(
    ("share", "sizes", "spare", "number"),
    [
        (TRAINING, [(0, 0), (2, 0), (2, 0)], 0, 2),
        (TRAINING, [(0, 0), (2, 0), (1, 0)], 0, 1),
        # A learner and its runner need not be on one machine.
        (TRAINING, [(0, 0), (1, 0), (1, 0)], 0, 1),
        (TRAINING, [(0, 0), (2, 0), (2, 0)], 1, 1),
        (TRAINING, [(0, 0), (1, 0)], 0, 0),
        (Share(), [(2, 0)], 0, 2),
        (Share(), [(2, 0)], 2, 0),
        # A learner of four threads is on one machine.
        (Share((0.0, 0.0), ((4.0, 0.0),), "a"), [(0, 0), (3, 0), (3, 0)], 0, 0),
        # What one process does of a run is done where the run is.
        (Share((1.0, 0.0), (), "a"), [(1, 0), (8, 0)], 0, 1),
        (Share((1.0, 0.0), ((1.0, 0.5),)), [(8, 1), (8, 0)], 0, 2),
        (Share((1.0, 1.0)), [(8, 0)], 0, 0),
    ],
)
def test_as_many_fit_as_machines_hold(share: Share, sizes: list[tuple[float, float]], spare: float, number: int) -> None:
    assert num_fitting(share, machines(*sizes), spare, 9) == number
    assert num_fitting(share, machines(*sizes), spare, 1) == min(number, 1)


def test_a_machine_that_is_lost_holds_nothing() -> None:
    there = machines((0, 0), (2, 0))
    assert num_fitting(TRAINING, [there[0], {**there[1], "Alive": False}], 0, 9) == 0


def test_room_for_either_is_the_larger_of_each_part() -> None:
    other = Share((1.0, 0.5), ((4.0, 0.0),))
    either = TRAINING | other
    assert either == Share((1.0, 0.5), ((4.0, 0.0), (1.0, 0.0)), "a")
    assert (either.num_cpus, either.has_gpus, TRAINING.has_gpus) == (6.0, True, False)
