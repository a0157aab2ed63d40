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
    def num_cpus(self) -> float:
        """CPUs in all."""
        return self.own[0] + sum(cpus for cpus, _ in self.others)

    @property
    def has_gpus(self) -> bool:
        """Whether any of them has a share of a GPU."""
        return any(gpus for _, gpus in (self.own, *self.others))

    def __or__(self, other: Share) -> Share:
        """Room for either."""
        pairs = zip_longest(self.others, other.others, fillvalue=(0.0, 0.0))
        return Share(_larger(self.own, other.own), tuple(_larger(*pair) for pair in pairs), self.machine or other.machine)


def num_fitting(share: Share, nodes: Sequence[Mapping[str, Any]], spare_cpus: float, most: int) -> int:
    """How many shares fit on a cluster's machines where nothing else is, and leave some CPUs; a share of a GPU counts as that.

    Args:
        share: what each reserves.
        nodes: as `ray.nodes()` lists them.
        spare_cpus: CPUs that are to be left.
        most: how many are wanted.
    """
    kinds = ("CPU", "GPU")
    free = {node["NodeID"]: [node["Resources"].get(kind, 0.0) for kind in kinds] for node in nodes if node["Alive"]}
    for number in range(most):
        for machine, (cpus, gpus) in [(share.machine, share.own), *(("", other) for other in share.others)]:
            places = [room for name, room in free.items() if machine in ("", name) and room[0] >= cpus and room[1] >= gpus]
            if not places:
                return number
            places[0][0] -= cpus
            places[0][1] -= gpus
        if sum(cpus for cpus, _ in free.values()) < spare_cpus:
            return number
    return most


@dataclass(frozen=True)
class Places:
    """What is reserved for some actors.

    Args:
        share: of each.
        groups: a placement group for each, whose first bundle is the actor's own.
    """

    share: Share
    groups: Sequence[Any]

    def release(self) -> None:
        """Gives it back."""
        from ray.util.placement_group import remove_placement_group

        for group in self.groups:
            remove_placement_group(group)


def reserve(share: Share, number: int) -> Places:
    """Reserves a share for each of some actors, now or as soon as there is room; whoever asks releases them."""
    from ray.util.placement_group import placement_group

    sizes = [dict(zip(("CPU", "GPU"), one, strict=True)) for one in (share.own, *share.others)]
    bundles = [{kind: size for kind, size in one.items() if size} for one in sizes]
    where = [{_MACHINE: share.machine} if share.machine else {}, *({} for _ in share.others)]
    asked = [each or _NOTHING for each in bundles]
    return Places(share, [placement_group(asked, strategy="PACK", bundle_label_selector=where) for _ in range(number)])


def _larger(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    return max(one[0], other[0]), max(one[1], other[1])
