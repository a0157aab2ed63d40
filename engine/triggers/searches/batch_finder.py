"""The batch size that fits into a device's memory: halved each time that memory runs out, and kept from then on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from parley.envs.core.errors import ConfigError

logger = logging.getLogger(__name__)

ItemT = TypeVar("ItemT")


class BatchFinder:
    """A batch size that is halved for good each time that memory has run out.

    Args:
        size: the number of items at first.
        what: their name in messages, such as "searches".
    """

    def __init__(self, size: int, what: str) -> None:
        assert size >= 1, f"at least one of the {what} is done at once"
        self.size, self.what = size, what

    def in_pieces(self, call: Callable[[Sequence[ItemT]], None], items: Sequence[ItemT], most: int | None = None) -> None:
        """Call a function with at most as many items at once as have been found to fit.

        Args:
            call: leaves nothing behind when it runs out of memory, so that it can be repeated.
            items: handed to it in order.
            most: largest number at once, whatever fits.

        Raises:
            ConfigError: a single item does not fit.
        """
        done = 0
        while done < len(items):
            piece = items[done : done + min(self.size, most or self.size)]
            try:
                call(piece)
            except torch.OutOfMemoryError as error:
                if len(piece) == 1:
                    raise ConfigError(
                        f"a single one of the {self.what} does not fit into the device's memory",
                        got=str(error).splitlines()[0],
                        fix="take a smaller model, or another device",
                    ) from None
                self.size = len(piece) // 2
            else:
                done += len(piece)
                continue
            # Not within the handler: while the error lives its frames hold the tensors that are to be given back.
            torch.cuda.empty_cache()
            logger.warning("out of memory: from here on %d %s at a time", self.size, self.what)
