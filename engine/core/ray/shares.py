"""What an actor reserves that makes actors of its own, as a training makes env runners and learners.

All of it is reserved together before the actor starts, as one of Ray's placement groups: two trainings that each held a part of
what they need would wait for each other for ever. What Ray has no room for yet waits until it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

_MACHINE = "ray.io/node-id"
"""The label by which Ray knows a machine."""
_NOTHING = {"memory": 1}
"""A byte: what reserves no CPU must reserve something."""


@dataclass(frozen=True)
class Share:
    """CPUs and GPUs of an actor and of those that it makes.

    Args:
        own: (CPUs, GPUs) of the actor.
        others: the same of each that it makes, largest first; they are wherever there is room.
        machine: that the actor must be on, such as for its files; any when empty.
    """

    own: tuple[float, float] = (1.0, 0.0)
    others: tuple[tuple[float, float], ...] = ()
    machine: str = ""

    @property
    def has_gpus(self) -> bool:
        """Whether any of them has a share of a GPU."""
        return any(gpus for _, gpus in (self.own, *self.others))

    def __or__(self, other: Share) -> Share:
        """Room for either."""
        pairs = zip_longest(self.others, other.others, fillvalue=(0.0, 0.0))
        return Share(_larger(self.own, other.own), tuple(_larger(*pair) for pair in pairs), self.machine or other.machine)


NOTHING = Share((0.0, 0.0))


def num_fitting(share: Share, nodes: Sequence[Mapping[str, Any]], most: int, spare: Share = NOTHING) -> int:
    """How many shares fit on a cluster's machines where nothing else is, and leave room for one that others need.

    Args:
        share: what each reserves; shares of a GPU are added up.
        nodes: as `ray.nodes()` lists them.
        most: how many are wanted.
        spare: what is to be left.
    """
    there = [node for node in nodes if node["Alive"]]
    free = {node["NodeID"]: (node["Resources"].get("CPU", 0.0), node["Resources"].get("GPU", 0.0)) for node in there}
    for number in range(most):
        left = _without(free, share)
        if left is None or _without(left, spare) is None:
            return number
        free = left
    return most


def _without(free: Mapping[str, tuple[float, float]], share: Share) -> dict[str, tuple[float, float]] | None:
    """What is free on machines, by name, beside a share; None where it has no room."""
    left = dict(free)
    for machine, (cpus, gpus) in [(share.machine, share.own), *(("", other) for other in share.others)]:
        places = [name for name, room in left.items() if machine in ("", name) and room[0] >= cpus and room[1] >= gpus]
        if not places:
            return None
        left[places[0]] = left[places[0]][0] - cpus, left[places[0]][1] - gpus
    return left


@dataclass(frozen=True)
class Reserved:
    """What is reserved for some actors.

    Args:
        share: of each.
        groups: a placement group for each, whose first bundle is the actor's own.
    """

    share: Share
    groups: Sequence[Any]

    def options(self, number: int) -> list[dict[str, Any]]:
        """Ray's options for that many of the actors, by which those that they make are in their groups too."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        return [{"scheduling_strategy": PlacementGroupSchedulingStrategy(group, 0, True)} for group in self.groups[:number]]

    def release(self) -> None:
        """Gives it back."""
        from ray.util.placement_group import remove_placement_group

        for group in self.groups:
            remove_placement_group(group)


def reserve(share: Share, number: int) -> Reserved:
    """Reserves a share for each of some actors, now or as soon as there is room; whoever asks releases them."""
    from ray.util.placement_group import placement_group

    sizes = [dict(zip(("CPU", "GPU"), one, strict=True)) for one in (share.own, *share.others)]
    bundles = [{kind: size for kind, size in one.items() if size} for one in sizes]
    where = [{_MACHINE: share.machine} if share.machine else {}, *({} for _ in share.others)]
    asked = [each or _NOTHING for each in bundles]
    return Reserved(share, [placement_group(asked, strategy="PACK", bundle_label_selector=where) for _ in range(number)])


def _larger(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    return max(one[0], other[0]), max(one[1], other[1])
