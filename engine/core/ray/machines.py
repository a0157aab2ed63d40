"""The machines of a cluster: how many workers have room on them, and which are up."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from parley.engine.core.ray import session
from parley.envs.core.errors import ClusterError

logger = logging.getLogger(__name__)


def capacity(nodes: Sequence[Mapping[str, Any]], num_cpus: float, num_gpus: float) -> int:
    """How many workers fit on a cluster's machines; a worker never spans two, nor a share of a GPU two GPUs.

    Args:
        nodes: as `ray.nodes()` lists them: "Alive", and "Resources" with CPU and GPU totals.
        num_cpus: CPUs of one worker, above 0.
        num_gpus: GPUs of one worker; below 1 a share of one.
    """
    total = 0
    for node in nodes:
        if node["Alive"]:
            fit = math.floor(node["Resources"].get("CPU", 0) / num_cpus)
            if num_gpus:
                gpus = math.floor(node["Resources"].get("GPU", 0))
                fit = min(fit, gpus * math.floor(1 / num_gpus) if num_gpus < 1 else math.floor(gpus / num_gpus))
            total += fit
    return total


def machines_up() -> frozenset[str]:
    """The machines of the cluster, as far as its head knows."""
    import ray

    return frozenset(node["NodeID"] for node in ray.nodes() if node["Alive"])


def listed(resources: Mapping[str, float]) -> str:
    """CPUs and GPUs in words."""
    return f"{resources.get('CPU', 0):g} CPUs and {resources.get('GPU', 0):g} GPUs"


def described(nodes: Sequence[Mapping[str, Any]]) -> str:
    """How many machines there are of each kind, in words."""
    kinds = Counter(listed(node["Resources"]) for node in nodes if node["Alive"])
    return ", ".join(f"{number} machine{'s' * (number > 1)} of {kind}" for kind, number in sorted(kinds.items()))


def require_room(wanted: str, num_workers: int, num_cpus: float, num_gpus: float) -> None:
    """Makes sure that workers have room, or may have; says where a cluster has less now.

    Args:
        wanted: they in words.
        num_workers: how many, each on one machine.
        num_cpus: of each.
        num_gpus: of each.

    Raises:
        ClusterError: they have too little on this machine, or none in a cluster that does not grow.
    """
    import ray

    if num_gpus > 1 and num_gpus != int(num_gpus):
        raise ClusterError("a worker has a share of one GPU or whole GPUs", got=num_gpus, fix="give 0..1, 2, 3, ...")
    room = capacity(ray.nodes(), num_cpus, num_gpus)
    if room >= num_workers:
        return
    here = session.current()
    if here is not None and here.is_local:
        raise ClusterError(
            "this machine has too little room for the workers",
            got=f"{wanted}, room for {room} in {listed(ray.cluster_resources())}",
            fix=f"ask for at most {room} workers, or fewer CPUs and GPUs for each, or give the address of a cluster",
        )
    if not room and not session.can_grow():
        raise ClusterError(
            "no machine of the cluster has room for a worker, and nothing adds machines to it",
            got=f"{wanted}; there are {described(ray.nodes())}",
            fix="ask for fewer CPUs and GPUs for each worker, or start a machine that has them: ray start --address HEAD:PORT",
        )
    here_now = listed(ray.cluster_resources())
    what = "%s are wanted, the cluster has room for %d in %s now: %s"
    then = "work starts with those" if room else "work waits for machines to be added"
    logger.warning(what, wanted, room, here_now, then)
