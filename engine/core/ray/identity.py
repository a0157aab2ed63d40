"""The identity of a process: a digest of Parley's source, and the versions of the packages that it computes with.

Rows must not depend on the machine, so a worker is built only where all of this equals the driver's.

This module travels to workers by value (`actors.py`), so that the driver's rules also hold on a machine with another Parley, or
with none. So it imports nothing of Parley at the top, and nothing that workers call is decorated. A `WorkerActor` holds one
worker, built only where the code is the driver's; it imports from Parley only once that is known.
"""

from __future__ import annotations

import hashlib
import importlib.util
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from parley.engine.core.ray.logs import LogSettings
    from parley.engine.core.ray.worker import ShardAttempt, TurnResult
    from parley.envs.core.errors import ClusterError

ROOMS = ("engine", "envs", "policies", "tune")
PACKAGES = ("ray", "torch", "numpy")
SOURCE = (".py", ".txt")
"""Endings of files that rows depend on."""
CODE, FOLDER = "Parley's code", "folder"
ABSENT = "nothing"
WorkerSpec = tuple[Callable[..., Any], Sequence[Any], "LogSettings"]
"""A worker's class, its arguments, and the log settings of the driver."""


def identity() -> dict[str, str]:
    """Return this process's code digest and versions by name, and the folder of the code.

    Python counts without its patch level, a package without its build, so that CPU and CUDA machines may work together.
    """
    spec = importlib.util.find_spec("parley")
    package = None if spec is None or not spec.submodule_search_locations else Path(next(iter(spec.submodule_search_locations)))
    roots = {} if package is None else {room: package / room for room in ROOMS}
    versions = {
        FOLDER: ABSENT if package is None else str(package.parent),
        CODE: digest(roots) if roots else ABSENT,
        "Python": ".".join(platform.python_version_tuple()[:2]),
    }
    for name in PACKAGES:
        try:
            versions[name] = version(name).partition("+")[0]
        except PackageNotFoundError:
            versions[name] = ABSENT
    return versions


@cache
def own_identity() -> dict[str, str]:
    """Return this process's identity at its first call: files may be edited while it works."""
    return identity()


def digest(roots: Mapping[str, Path]) -> str:
    """Return twelve hexadecimal digits of SHA-256 over names and contents of the source below some folders."""
    total = hashlib.sha256()
    for room, root in sorted(roots.items()):
        for path in sorted(root.rglob("*")):
            if path.suffix in SOURCE:
                name = f"{room}/{path.relative_to(root).as_posix()}"
                total.update(hashlib.sha256(name.encode()).digest() + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()[:12]


def differences(wanted: Mapping[str, str], found: Mapping[str, str]) -> str:
    """Return the differences of two identities, such as "torch 2.12.0 instead of 2.13.0"; empty if there are none."""
    return ", ".join(
        f"{name} {found[name]} instead of {value}" for name, value in wanted.items() if name != FOLDER and found[name] != value
    )


def require(wanted: Mapping[str, str]) -> None:
    """Raise an error unless this process is identical to the driver.

    Raises:
        ClusterError: something differs.
    """
    if differences(wanted, own_identity()):
        import ray

        raise refusal(wanted, own_identity(), ray.util.get_node_ip_address())


def refusal(wanted: Mapping[str, str], found: Mapping[str, str], machine: str) -> ClusterError:
    """Return the error that turns away a worker of another identity."""
    from parley.envs.core.errors import ClusterError

    return ClusterError(
        "a worker's machine has other code than this process, so its rows could differ",
        where=f"machine {machine}, {found[FOLDER]}; this process has {wanted[FOLDER]}",
        got=differences(wanted, found),
        fix="bring every machine to this checkout and the versions of constraints.txt, or send this checkout along: "
        "ray job submit --working-dir . -- parley ...; where files were edited since this process began, start it again",
    )


class WorkerActor:
    """An actor that holds one worker, which computes with as many threads as are reserved."""

    def __init__(self, num_threads: int) -> None:
        # The worker is built by the first call: Ray would restart an actor that dies in its constructor for ever.
        self._num_threads = num_threads
        self._worker: Any = None
        self._end: ShardAttempt[Any] | None = None
        self._turns: Any = None

    def start(self, wanted: Mapping[str, str], spec: Sequence[Any]) -> tuple[dict[str, str], str] | None:
        """Build the worker unless it exists; errors of its constructor are raised.

        Args:
            wanted: the driver's identity.
            spec: a reference to a `WorkerSpec`, in a list, so that it is not opened before the identities are compared.

        Returns:
            None; if the identities differ nothing is built, and this machine's identity and address are returned.
        """
        import ray

        versions = identity()
        if differences(wanted, versions):
            return versions, ray.util.get_node_ip_address()
        if self._worker is None:
            from parley.engine.core.ray import logs

            worker_class, worker_args, log_settings = ray.get(spec[0])
            logs.follow(log_settings)
            self._worker = worker_class(*worker_args)
            if "torch" in sys.modules:
                sys.modules["torch"].set_num_threads(self._num_threads)
        return None

    def turn(self, joining: Any, seconds: float) -> TurnResult[Any] | None:
        """Do a turn of the worker, see `TurnWorker.turn`; None as in `run`."""
        if self._worker is None:
            return None

        from parley.engine.core.ray.worker import Turns

        if self._turns is None:
            self._turns = Turns(self._worker)
        turn: TurnResult[Any] = self._turns.take(joining, seconds)
        return turn

    def run(self, shard: Any) -> ShardAttempt[Any] | None:
        """Return the worker's `ShardAttempt` at a shard; None if Ray has restarted the actor, which then has no worker.

        An error that every shard would meet is returned for the waiting shards too, until the driver has heard of it.
        """
        if self._worker is None:
            return None

        from parley.engine.core.ray.worker import ShardFailure, attempt

        if self._end is None:
            tried = attempt(self._worker, shard)
            if not (isinstance(tried.result, ShardFailure) and tried.result.ends):
                return tried
            self._end = tried
        return self._end
