"""A script in a process and a Ray of its own, where machines may be lost without harm to the session that tests share."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ray.cluster_utils import Cluster

from parley.envs.corpora.arrow import CACHE_VARIABLE

ROOT = Path(__file__).resolve().parents[4]
SURVIVED = "survived"
"""What a script prints last when all that it claims holds."""


HEALTH = {"health_check_period_ms": 1000, "health_check_failure_threshold": 3}
"""Of a cluster that notices soon when a machine is gone; by Ray's own settings it takes a quarter of a minute."""


def start_cluster(head_cpus: int) -> Cluster:
    """A cluster of a head alone, with no more processes than work needs."""
    lean = {"include_dashboard": False, "include_log_monitor": False, "no_monitor": True}
    return Cluster(initialize_head=True, head_node_args={"num_cpus": head_cpus, "_system_config": HEALTH, **lean})


def surroundings(folder: Path) -> dict[str, str]:
    """The variables of a process that has its cache in a folder, and reaches no Ray but its own."""
    variables = {name: value for name, value in os.environ.items() if name not in ("RAY_AUTH_MODE", "RAY_ADDRESS")}
    return {**variables, CACHE_VARIABLE: str(folder / "cache")}


def survives(script: str, folder: Path, timeout_s: float) -> str:
    """Runs a script, its one argument a folder, and fails with what it wrote unless it ends well; its standard error."""
    found = subprocess.run(
        [sys.executable, "-c", script, str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        env=surroundings(folder),
    )
    assert found.stdout.splitlines()[-1:] == [SURVIVED], found.stdout[-2000:] + found.stderr[-4000:]
    return found.stderr


BLIND = """
import builtins, io, os

def blind(call):
    def asked(path, *args, **options):
        known = isinstance(path, (str, os.PathLike))
        if known and os.path.abspath(os.fspath(path)).startswith(os.environ["HIDDEN_FOLDER"]):
            raise FileNotFoundError(2, "this machine has no such file", os.fspath(path))
        return call(path, *args, **options)
    return asked

for name in ("stat", "lstat", "open", "scandir", "listdir", "mkdir"):
    setattr(os, name, blind(getattr(os, name)))
builtins.open = io.open = blind(io.open)
"""
"""What makes all Python processes of a machine see nothing of a folder."""


def add_machine_apart(cluster: Cluster, hidden: Path, folder: Path, **rest: object) -> None:
    """Adds a machine with a disk of its own.

    Args:
        cluster: that it joins.
        hidden: the folder that lies on other machines' disks alone.
        folder: where the machine has its cache.
        rest: as `Cluster.add_node` takes it.
    """
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(BLIND)
    variables = {"PYTHONPATH": str(folder), CACHE_VARIABLE: str(folder / "cache"), "HIDDEN_FOLDER": str(hidden)}
    cluster.add_node(env_vars=variables, **rest)
