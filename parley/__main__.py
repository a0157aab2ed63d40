"""The command line as `parley`, and as `python -m parley`, which needs no installation, as in a submitted Ray job."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any


def start() -> int:
    """Run the command line and return its status; an interrupt while it is loaded ends it as one later does."""
    usual = signal.getsignal(signal.SIGINT)
    if usual is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    from parley.engine.core.cli.main import main

    signal.signal(signal.SIGINT, usual)
    return main()


def _end(*_: Any) -> None:
    os.write(2, b"\ninterrupted; the same command resumes\n")
    os._exit(130)


if __name__ == "__main__":
    sys.exit(start())
