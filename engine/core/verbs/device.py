"""What a job computes with: a device that torch can use, a number of threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from parley.envs.core.errors import ConfigError


def require_device(device: str, option: str) -> None:
    """Makes sure that torch can compute on a device.

    Args:
        device: such as cpu or cuda.
        option: the option that named it.

    Raises:
        ConfigError: it cannot, with what torch says.
    """
    import torch

    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        what = f"{option} names a device that torch cannot use"
        raise ConfigError(what, where=device, got=reason, fix="compute on the CPU") from None


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Torch computes with that many threads in a `with` block.

    Sums of gradients may differ in the last digit with the number of threads, so what came before in a process must not
    decide it: a resumed training would not be the same.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
