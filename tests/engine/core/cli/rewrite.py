"""Writes every golden screen again: `python -m tests.engine.core.cli.rewrite`."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile

from parley.engine.core.cli.main import main as parley
from tests.engine.core.cli.screens import FOLDER, SCREENS, steady


def main() -> None:
    for path in FOLDER.glob("*.txt"):
        path.unlink()
    os.environ |= {"COLUMNS": "140", "NO_COLOR": "1"}
    for name, command in SCREENS.items():
        out, err = io.StringIO(), io.StringIO()
        with (
            tempfile.TemporaryDirectory() as folder,
            contextlib.chdir(folder),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            parley(command.split())
        (FOLDER / f"{name}.txt").write_text(steady(out.getvalue(), err.getvalue()))
        sys.stderr.write(f"wrote {name}.txt\n")


if __name__ == "__main__":
    main()
