"""What actors reserve that make actors of their own: how many such shares a cluster holds, and room for either of two."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from parley.engine.core.ray.shares import NOTHING, Share, num_fitting
from tests.engine.core.ray.own_cluster import survives


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
        (TRAINING, [(0, 0), (2, 0), (2, 0)], NOTHING, 2),
        (TRAINING, [(0, 0), (2, 0), (1, 0)], NOTHING, 1),
        # A learner and its runner need not be on one machine.
        (TRAINING, [(0, 0), (1, 0), (1, 0)], NOTHING, 1),
        (TRAINING, [(0, 0), (2, 0), (2, 0)], Share(), 1),
        (TRAINING, [(0, 0), (1, 0)], NOTHING, 0),
        (Share(), [(2, 0)], NOTHING, 2),
        (Share(), [(2, 0)], Share((2.0, 0.0)), 0),
        # The GPU would be gone for a worker that needs it.
        (Share((1.0, 0.5)), [(8, 1)], Share((1.0, 0.6)), 0),
        # A learner of four threads is on one machine.
        (Share((0.0, 0.0), ((4.0, 0.0),), "a"), [(0, 0), (3, 0), (3, 0)], NOTHING, 0),
        # What one process does of a run is done where the run is.
        (Share((1.0, 0.0), (), "a"), [(1, 0), (8, 0)], NOTHING, 1),
        (Share((1.0, 0.0), ((1.0, 0.5),)), [(8, 1), (8, 0)], NOTHING, 2),
        (Share((1.0, 1.0)), [(8, 0)], NOTHING, 0),
    ],
)
def test_as_many_fit_as_machines_hold(share: Share, sizes: list[tuple[float, float]], spare: Share, number: int) -> None:
    assert num_fitting(share, machines(*sizes), 9, spare) == number
    assert num_fitting(share, machines(*sizes), 1, spare) == min(number, 1)


def test_a_machine_that_is_lost_holds_nothing() -> None:
    there = machines((0, 0), (2, 0))
    assert num_fitting(TRAINING, [there[0], {**there[1], "Alive": False}], 9) == 0


def test_room_for_either_is_the_larger_of_each_part() -> None:
    other = Share((1.0, 0.5), ((4.0, 0.0),))
    either = TRAINING | other
    assert either == Share((1.0, 0.5), ((4.0, 0.0), (1.0, 0.0)), "a")
    assert (either.has_gpus, TRAINING.has_gpus) == (True, False)


SHARES = """
import os, ray
from parley.engine.core.ray.session import connect
from parley.engine.core.ray.shares import Share, num_fitting, release, reserve, actor_options
from tests.engine.core.ray.own_cluster import start_cluster
cluster = start_cluster(0)
for _ in range(2):
    cluster.add_node(num_cpus=1, num_gpus=1)

class Here:
    def look(self):
        return ray.get_runtime_context().get_node_id(), os.environ.get("CUDA_VISIBLE_DEVICES")

@ray.remote
class Parent:
    "Makes a learner and an env runner, as a training does."
    def run(self):
        made = [ray.remote(Here).options(num_cpus=1, num_gpus=1).remote() for _ in range(2)]
        return Here().look(), ray.get([one.look.remote() for one in made])

with connect(cluster.address):
    driver = ray.get_runtime_context().get_node_id()
    share = Share((0.0, 0.0), ((1.0, 1.0), (1.0, 1.0)), driver)
    assert num_fitting(share, ray.nodes(), 5) == 1
    groups = reserve(share, 2)
    actor = Parent.options(**actor_options(share, groups[0])).remote()
    found = [ray.get(actor.run.remote()) for _ in range(3)]
    release(groups)
    for (home, _), ((one, first), (other, second)) in found:
        assert home == driver and len({driver, one, other}) == 3, found
        assert first == second == "0", (first, second)
cluster.shutdown()
print("survived")
"""


@pytest.mark.ray
@pytest.mark.slow
def test_an_actor_stays_and_its_own_are_where_there_is_room_with_the_gpus_that_they_reserve(tmp_path: Path) -> None:
    survives(SHARES, tmp_path, timeout_s=550)
