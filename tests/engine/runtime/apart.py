"""A script in a process and a Ray of its own, where machines may be lost without harm to the session that tests share."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from envs.data.root import CACHE_VARIABLE

ROOT = Path(__file__).resolve().parents[3]
SURVIVED = "survived"
"""What a script prints last when all that it claims holds."""


def survives(script: str, folder: Path, timeout_s: float) -> None:
    """Runs a script, its one argument a folder, and fails with what it wrote unless it ends well."""
    variables = {name: value for name, value in os.environ.items() if name not in ("RAY_AUTH_MODE", "RAY_ADDRESS")}
    found = subprocess.run(
        [sys.executable, "-c", script, str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        env={**variables, CACHE_VARIABLE: str(folder / "cache")},
    )
    assert found.stdout.splitlines()[-1:] == [SURVIVED], found.stdout[-2000:] + found.stderr[-4000:]
