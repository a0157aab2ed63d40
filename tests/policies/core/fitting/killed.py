"""Fits that are killed on the way: what the tests of every kind of fit share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from parley.policies.core.fitting.loop import FittingLoop


class Killed(Exception):
    """Stands for the process being killed: nothing after it runs."""


def ignore(_: object) -> None:
    """For trainings whose epochs nobody watches."""


def weights(model: nn.Module) -> dict[str, Tensor]:
    """As they are now, whatever training does next."""
    return {name: value.clone() for name, value in model.state_dict().items()}


def assert_equal(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    """That two models have the same weights."""
    assert found.keys() == wanted.keys()
    assert [name for name in wanted if not torch.equal(found[name], wanted[name])] == []


def goes_on(
    fit: Callable[[str], FittingLoop[Any, Any, Any, Any]], *, epochs: Iterable[int] = (), batch: tuple[int, int] | None = None
) -> tuple[int, int]:
    """Asserts that a fit that is killed again and again becomes what one becomes that is not.

    Args:
        fit: opens the fit whose state is called so.
        epochs: after each of which it is killed.
        batch: epoch and number of the batch behind which it is killed.

    Returns:
        The epochs, and the batches of the next one, that were not made again.
    """
    whole = fit("whole")
    wanted = weights(whole.run(ignore))

    def killed_after(number: int) -> Callable[[Any], None]:
        def on_epoch(epoch: Any) -> None:
            if epoch.number == number:
                raise Killed

        return on_epoch

    def on_batch(epoch: int, done: int, total: int) -> None:
        assert 1 <= done <= total
        if (epoch, done) == batch:
            raise Killed

    for number in epochs:
        with pytest.raises(Killed):
            fit("killed").run(killed_after(number))
    if batch is not None:
        with pytest.raises(Killed):
            fit("killed").run(ignore, on_batch)
    resumed = fit("killed")
    kept = len(resumed.history), resumed.batches_done
    assert_equal(weights(resumed.run(ignore)), wanted)
    first, second = ([row | {"seconds": 0} for row in one.history] for one in (whole, resumed))
    assert first == second
    return kept
