"""Where a run happened: versions, commit, device and threads, so that its numbers can be made again."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("parley", "torch", "ray", "gymnasium", "nltk", "numpy", "pyarrow", "safetensors", "scipy")
_DISTRIBUTIONS = {"parley": "parley-redteam"}
"""Packages whose distribution has another name."""
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def describe_environment() -> dict[str, Any]:
    """What could change a run's numbers, as JSON types.

    Returns:
        python, platform, packages (versions by name, null where absent), git_commit (null outside a checkout; ends in
        "-dirty" when tracked files were changed), device, cpus, threads (by source, null where not set).
    """
    # Importing torch takes seconds; a run that computes with it has loaded it by now.
    torch = sys.modules.get("torch")
    device = torch.cuda.get_device_name() if torch is not None and torch.cuda.is_available() else "cpu"
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        **_code(),
        "device": device,
        "cpus": os.cpu_count(),
        "threads": {name: os.environ.get(name) for name in _THREAD_VARIABLES}
        | {"torch": None if torch is None else torch.get_num_threads()},
    }


@cache
def _code() -> dict[str, Any]:
    """What this process has loaded its code from; read once, before files are edited."""
    return {"packages": {name: _version(name) for name in PACKAGES}, "git_commit": git_commit(Path(__file__))}


def git_commit(source: Path) -> str | None:
    """The commit of the checkout that tracks a source file, "-dirty" appended when tracked files were changed.

    None when the file is installed rather than checked out, even where it is installed inside some other checkout.
    """
    where = ["git", "-C", str(source.parent)]
    if _output([*where, "ls-files", "--error-unmatch", source.name]) is None:
        return None
    return _output([*where, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"])


def _output(command: list[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=True, timeout=20)
        return done.stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def _version(package: str) -> str | None:
    try:
        return version(_DISTRIBUTIONS.get(package, package))
    except PackageNotFoundError:
        return None
