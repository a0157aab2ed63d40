"""What work elsewhere says of itself while it goes on: the newest text of each piece, which the driver shows.

Nothing is decided by it, and nothing is kept.
"""

from __future__ import annotations

import uuid
from contextlib import suppress

from parley.engine.core.ray import ray_internals


class Board:
    """The newest text of each piece of work, in the memory of Ray's head; who works is sent the board.

    A head that does not answer costs a text, and no work.
    """

    def __init__(self) -> None:
        self._name = f"parley-board-{uuid.uuid4().hex}"

    def put(self, key: int | str, text: str) -> None:
        """Puts up the text of a piece of work in place of its last one."""
        with suppress(Exception):
            ray_internals.put_note(self._name, str(key), text)

    def line(self, key: int | str) -> str:
        """What a piece of work says; empty before its first text."""
        with suppress(Exception):
            return ray_internals.note(self._name, str(key))
        return ""

    def clear(self, key: int | str) -> None:
        """Takes the text of a piece of work away."""
        with suppress(Exception):
            ray_internals.drop_note(self._name, str(key))
