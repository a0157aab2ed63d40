"""The identity of a process: a digest of Parley's source, and the versions of the packages that it computes with.

Rows must not depend on the machine, so a worker is built only where all of this equals the driver's.

This module travels to workers by value (`actors.py`), so that the driver's rules also hold on a machine with another Parley, or
with none. So it imports nothing of Parley at the top, and nothing that workers call is decorated.
"""

from __future__ import annotations

import hashlib
import importlib.util
import platform
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from parley.envs.core.errors import ClusterError

ROOMS = ("engine", "envs", "policies", "tune")
PACKAGES = ("ray", "torch", "numpy")
SOURCE = (".py", ".txt")
"""Endings of files that rows depend on."""
CODE, FOLDER = "Parley's code", "folder"
ABSENT = "nothing"


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


def differences(wanted: Mapping[str, str], here: Mapping[str, str]) -> str:
    """Return the differences of two identities, such as "torch 2.12.0 instead of 2.13.0"; empty if there are none."""
    return ", ".join(
        f"{name} {here[name]} instead of {value}" for name, value in wanted.items() if name != FOLDER and here[name] != value
    )


def require(wanted: Mapping[str, str]) -> None:
    """Raise an error unless this process is identical to the driver.

    Raises:
        ClusterError: something differs.
    """
    if differences(wanted, own_identity()):
        import ray

        raise refusal(wanted, own_identity(), ray.util.get_node_ip_address())


def refusal(wanted: Mapping[str, str], actual: Mapping[str, str], machine: str) -> ClusterError:
    """Return the error that turns away a worker of another identity."""
    from parley.envs.core.errors import ClusterError

    return ClusterError(
        "a worker's machine has other code than this process, so its rows could differ",
        where=f"machine {machine}, {actual[FOLDER]}; this process has {wanted[FOLDER]}",
        got=differences(wanted, actual),
        fix="bring every machine to this checkout and the versions of constraints.txt, or send this checkout along: "
        "ray job submit --working-dir . -- parley ...; where files were edited since this process began, start it again",
    )
