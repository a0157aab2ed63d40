"""What fits into memory is found out once, by halves, and kept."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from parley.engine.triggers.searches.batch_finder import BatchFinder
from parley.envs.core.errors import ConfigError


class Small:
    """Takes so many items at once."""

    def __init__(self, fits: int) -> None:
        self.fits, self.refused = fits, 0
        self.taken: list[list[int]] = []

    def take(self, items: Sequence[int]) -> None:
        if len(items) > self.fits:
            self.refused += 1
            raise torch.OutOfMemoryError("no room\nfor these")
        self.taken.append(list(items))


def test_pieces_are_halved_where_memory_runs_out_and_stay_so(caplog: pytest.LogCaptureFixture) -> None:
    finder, small = BatchFinder(8, "words"), Small(3)
    finder.in_pieces(small.take, range(10))
    assert small.taken == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
    assert [record.getMessage() for record in caplog.records] == [
        f"out of memory: from here on {size} words at a time" for size in (4, 2)
    ]
    finder.in_pieces(small.take, range(3))
    assert small.taken[-2:] == [[0, 1], [2]]
    assert (finder.size, small.refused) == (2, 2)


def test_a_piece_smaller_than_the_room_is_halved_from_its_own_size() -> None:
    finder, small = BatchFinder(100, "words"), Small(2)
    finder.in_pieces(small.take, range(5))
    assert (finder.size, small.taken) == (2, [[0, 1], [2, 3], [4]])


def test_one_that_does_not_fit_alone_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"a single one of the words(.|\n)*no room\n"):
        BatchFinder(4, "words").in_pieces(Small(0).take, range(4))
