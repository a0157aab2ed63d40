"""Reservations for an actor that makes actors of its own, as a training makes env runners and learners.

Everything is reserved together before the actor starts, as one placement group of Ray: two trainings that each held a part of
their resources would wait for each other for ever. A reservation waits until Ray has room for it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from parley.engine.core.ray.worker import worker_environment

_MACHINE = "ray.io/node-id"
"""The label by which Ray identifies a machine."""
_NOTHING = {"memory": 1}
"""One byte, because a bundle without CPUs must reserve something."""


@dataclass(frozen=True)
class Share:
    """CPUs and GPUs of an actor and of the actors that it makes.

    Args:
        own: (CPUs, GPUs) of the actor.
        others: the same of each actor that it makes, largest first; they may be on any machine.
        machine: the machine that the actor must be on, for example for its files; any when empty.
    """

    own: tuple[float, float] = (1.0, 0.0)
    others: tuple[tuple[float, float], ...] = ()
    machine: str = ""

    @property
    def has_gpus(self) -> bool:
        """Return whether any of them has a share of a GPU."""
        return any(gpus for _, gpus in (self.own, *self.others))

    def __or__(self, other: Share) -> Share:
        """Return a share with room for either."""
        pairs = zip_longest(self.others, other.others, fillvalue=(0.0, 0.0))
        return Share(_larger(self.own, other.own), tuple(_larger(*pair) for pair in pairs), self.machine or other.machine)


NOTHING = Share((0.0, 0.0))


def num_fitting(share: Share, nodes: Sequence[Mapping[str, Any]], most: int, spare: Share = NOTHING) -> int:
    """Return the number of shares that fit on an idle cluster and leave room for a spare one.

    Args:
        share: resources of each; shares of a GPU are added up.
        nodes: machines as `ray.nodes()` lists them.
        most: number wanted.
        spare: resources to leave.
    """
    alive = [node for node in nodes if node["Alive"]]
    free = {node["NodeID"]: (node["Resources"].get("CPU", 0.0), node["Resources"].get("GPU", 0.0)) for node in alive}
    for number in range(most):
        remaining = _without(free, share)
        if remaining is None or _without(remaining, spare) is None:
            return number
        free = remaining
    return most


def _without(free: Mapping[str, tuple[float, float]], share: Share) -> dict[str, tuple[float, float]] | None:
    """Return the free resources of machines, by name, minus a share; None if it does not fit."""
    remaining = dict(free)
    for machine, (cpus, gpus) in [(share.machine, share.own), *(("", other) for other in share.others)]:
        fitting = [name for name, room in remaining.items() if machine in ("", name) and room[0] >= cpus and room[1] >= gpus]
        if not fitting:
            return None
        remaining[fitting[0]] = remaining[fitting[0]][0] - cpus, remaining[fitting[0]][1] - gpus
    return remaining


def reserve(share: Share, number: int) -> list[Any]:
    """Return a placement group for each of some actors, placed now or as soon as there is room; the caller releases them."""
    from ray.util.placement_group import placement_group

    sizes = [dict(zip(("CPU", "GPU"), pair, strict=True)) for pair in (share.own, *share.others)]
    bundles = [{kind: size for kind, size in sizes_of_actor.items() if size} for sizes_of_actor in sizes]
    where = [{_MACHINE: share.machine} if share.machine else {}, *({} for _ in share.others)]
    requests = [bundle or _NOTHING for bundle in bundles]
    return [placement_group(requests, strategy="PACK", bundle_label_selector=where) for _ in range(number)]


def release(groups: Sequence[Any]) -> None:
    """Release placement groups, and end what runs in them."""
    from ray.util.placement_group import remove_placement_group

    for group in groups:
        remove_placement_group(group)


def actor_options(share: Share, group: Any) -> dict[str, Any]:
    """Return Ray's options for an actor in a placement group of `reserve`; actors that it makes are in the group, too."""
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    cpus, gpus = share.own
    variables = worker_environment(max(1, int(cpus)), has_gpus=share.has_gpus)
    # They say where things lie; those of a cluster's machine differ.
    variables |= {name: value for name, value in os.environ.items() if name.startswith("PARLEY_")}
    return {
        "num_cpus": cpus,
        "num_gpus": gpus,
        "runtime_env": {"env_vars": variables},
        "scheduling_strategy": PlacementGroupSchedulingStrategy(group, 0, True),
    }


def _larger(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    return max(a[0], b[0]), max(a[1], b[1])
