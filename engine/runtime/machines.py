"""The machines of a cluster: how many workers have room on them, and which are up."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any


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
