"""The start of a worker's process in a session of this machine: the variables of its work, then Ray's worker in its place.

Ray's own script of this name does the same, but imports Ray first, which Ray's worker then imports again: half a second of
each worker. Ray starts this file by its path, so it imports nothing of Parley; Ray looks for this name in the command.
"""

from __future__ import annotations

import json
import os
import re
import sys

_OWN = ("--serialized-runtime-env-context=", "--language=")


def start(arguments: list[str]) -> None:
    """Replace this process by Ray's worker, whose path and arguments are given, with those of this script among them."""
    context = json.loads(next((text.removeprefix(_OWN[0]) for text in arguments if text.startswith(_OWN[0])), "{}"))
    variables, python = context.pop("env_vars", {}), context.pop("py_executable", sys.executable)
    if any(context.values()) or python != sys.executable:
        # A container or another interpreter, of which Ray knows more.
        rays = f"{arguments[0].removesuffix('default_worker.py')}setup_worker.py"
        os.execv(sys.executable, [sys.executable, rays, *arguments])
    for name, value in variables.items():
        os.environ[name] = re.sub(r"\$\{[A-Z0-9_]+\}", "", os.path.expandvars(value))
    os.execv(python, [python, *(text for text in arguments if not text.startswith(_OWN))])


if __name__ == "__main__":
    start(sys.argv[1:])
