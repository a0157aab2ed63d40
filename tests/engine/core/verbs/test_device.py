"""What jobs compute with."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys

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


LATE = """
import importlib.util, json, sys
from parley.engine.core.verbs.checkpoints import threads

with threads(3):
    pass
numbers = [int("torch" in sys.modules)]
with threads(3):
    # Libraries look for torch in this way before they import it.
    assert importlib.util.find_spec("torch") is not None
    import torch
    numbers.append(torch.get_num_threads())
with threads(2):
    numbers.append(torch.get_num_threads())
numbers.append(torch.get_num_threads())
print(json.dumps(numbers))
"""
USUAL = "import torch; print(torch.get_num_threads())"


def test_threads_do_not_import_torch_and_hold_once_it_is_imported() -> None:
    done = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, check=True)
    usual = subprocess.run([sys.executable, "-c", USUAL], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [0, 3, 2, int(usual.stdout)]


def test_a_device_that_is_not_there_is_named_with_its_option() -> None:
    require_device("cpu", "--device")
    with pytest.raises(ConfigError, match=r"--device names a device(.|\n)*warp"):
        require_device("warp", "--device")
