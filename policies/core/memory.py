"""Memory that a training frees at each step and wants again at the next."""

from __future__ import annotations

import torch

_LARGEST_BYTES = 30 << 20
"""Just below the largest block that glibc learns from."""


def keep_freed() -> None:
    """Has glibc keep up to some 60 MiB of what this process frees, of blocks of up to 30 MiB; elsewhere it does nothing.

    glibc gives back what is freed beyond twice the largest block that was freed so far (`M_TRIM_THRESHOLD` in `man mallopt`).
    What is then allocated comes a page at a time from the system, which takes longer than most of what is done in it.
    """
    # Nothing is written, so that no page of it is ever taken.
    torch.empty(_LARGEST_BYTES, dtype=torch.uint8)
