"""Freed memory that stays: in a process of its own, as what glibc has learnt stays with it."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys, torch
from parley.policies.core.checkpoint import keep_freed

def taken():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        blocks = [torch.ones(5 << 18) for _ in range(11)]
        del blocks
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

torch.set_num_threads(1)
if sys.argv[1] == "kept":
    keep_freed()
taken()
print(taken())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="what glibc does")
def test_what_is_freed_is_not_taken_from_the_system_again() -> None:
    def pages(mode: str) -> int:
        return int(subprocess.run([sys.executable, "-c", PROGRAM, mode], capture_output=True, text=True, check=True).stdout)

    assert pages("kept") < 1000
