"""What a process computes with: a digest of Parley's own source, and the versions of what it computes through.

Rows must not depend on which machine made them, so a worker is built only where all of this is as it is with the driver.

What is here travels to workers by value (`actors.py`), so that a machine with another Parley, or with none, is asked by the
driver's rules. So nothing of Parley is imported at the top, and nothing that they call is decorated.
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
    """This process' code and versions by name, and the folder that the code lies in.

    Python counts without its patch level; a package without its build, so that CPU and CUDA machines may work together.
    """
    spec = importlib.util.find_spec("parley")
    package = None if spec is None or not spec.submodule_search_locations else Path(next(iter(spec.submodule_search_locations)))
    roots = {} if package is None else {room: package / room for room in ROOMS}
    found = {
        FOLDER: ABSENT if package is None else str(package.parent),
        CODE: digest(roots) if roots else ABSENT,
        "Python": ".".join(platform.python_version_tuple()[:2]),
    }
    for name in PACKAGES:
        try:
            found[name] = version(name).partition("+")[0]
        except PackageNotFoundError:
            found[name] = ABSENT
    return found


@cache
def own_identity() -> dict[str, str]:
    """This process' identity when it was first asked for: files may be edited while it works."""
    return identity()


def digest(roots: Mapping[str, Path]) -> str:
    """Twelve hexadecimal digits of SHA-256 over the source below some packages' folders: names and contents."""
    total = hashlib.sha256()
    for room, root in sorted(roots.items()):
        for path in sorted(root.rglob("*")):
            if path.suffix in SOURCE:
                name = f"{room}/{path.relative_to(root).as_posix()}"
                total.update(hashlib.sha256(name.encode()).digest() + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()[:12]


def differences(wanted: Mapping[str, str], found: Mapping[str, str]) -> str:
    """What differs between two identities, such as "torch 2.12.0 instead of 2.13.0"; empty when nothing does."""
    return ", ".join(
        f"{name} {found[name]} instead of {value}" for name, value in wanted.items() if name != FOLDER and found[name] != value
    )


def require(wanted: Mapping[str, str]) -> None:
    """Turns this process away where it is not what the driver is.

    Raises:
        ClusterError: something differs.
    """
    if differences(wanted, own_identity()):
        import ray

        raise refusal(wanted, own_identity(), ray.util.get_node_ip_address())


def refusal(wanted: Mapping[str, str], found: Mapping[str, str], machine: str) -> ClusterError:
    """The error that a worker of another identity is turned away with."""
    from parley.envs.core.errors import ClusterError

    return ClusterError(
        "a worker's machine has other code than this process, so its rows could differ",
        where=f"machine {machine}, {found[FOLDER]}; this process has {wanted[FOLDER]}",
        got=differences(wanted, found),
        fix="bring every machine to this checkout and the versions of constraints.txt, or send this checkout along: "
        "ray job submit --working-dir . -- parley ...; where files were edited since this process began, start it again",
    )
