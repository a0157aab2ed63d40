"""Where a person sits who plays: what is shown goes to standard error, what is typed comes from standard input.

So a person can also be a file of lines, which are then shown as if they had been typed.
"""

from __future__ import annotations

import sys
from typing import Protocol

from parley.envs.core.visible import visible


class Terminal(Protocol):
    """Where a person sits."""

    def show(self, text: str) -> None:
        """Shows lines."""

    def ask(self, prompt: str) -> str:
        """The next line typed, without blanks at its ends.

        Raises:
            KeyboardInterrupt: the person has left.
        """


class StandardTerminal:
    """Standard error and standard input of this process."""

    def show(self, text: str) -> None:
        """Shows lines."""
        sys.stderr.write(f"{visible(text, keep=chr(10))}\n")
        sys.stderr.flush()

    def ask(self, prompt: str) -> str:
        """The next line typed; raises `KeyboardInterrupt` at the end of the input."""
        sys.stderr.write(prompt)
        sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:
            raise KeyboardInterrupt
        if not sys.stdin.isatty():
            # No terminal shows what came through a pipe, nor the end of its line.
            self.show(line.strip())
        return line.strip()
