"""What jobs compute with."""

from __future__ import annotations

import contextlib

import pytest
import torch

from parley.engine.core.verbs.checkpoints import require_device, threads
from parley.envs.core.errors import ConfigError


def test_threads_are_those_asked_for_within_the_block_and_as_before_after_it() -> None:
    before = torch.get_num_threads()
    with contextlib.suppress(KeyboardInterrupt), threads(before + 1):
        assert torch.get_num_threads() == before + 1
        raise KeyboardInterrupt
    assert torch.get_num_threads() == before


def test_a_device_that_is_not_there_is_named_with_its_option() -> None:
    require_device("cpu", "--device")
    with pytest.raises(ConfigError, match=r"--device names a device(.|\n)*warp"):
        require_device("warp", "--device")
