"""Files of Python that were not typed are imported when the user agrees: by `--trust-code`, or asked on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from parley.engine.core.ray import logs
from parley.envs.core.trust import Trust, trusting, typed_files
from parley.envs.core.visible import visible


@contextmanager
def trusting_what_is_typed(arguments: Sequence[str], every: bool) -> Iterator[None]:
    """Trusts the files that a command line names, for the length of a `with` block.

    Args:
        arguments: of the command.
        every: whether `--trust-code` was among them.
    """
    with trusting(Trust(typed_files(arguments), every, _agrees)):
        yield


def _agrees(name: str) -> bool:
    if not _on_a_terminal():
        return False
    sys.stderr.write(f"{visible(name)} was not typed here. It is Python code and can do whatever you can; read it first.\n")
    sys.stderr.write("Import it? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _on_a_terminal() -> bool:
    return not logs.is_json() and sys.stdin.isatty() and sys.stderr.isatty()
