"""Whether choices are told roughly first: the selection network in bfloat16, and in float32 only where that does not tell.

What it gains depends on two things, and neither is the name of a processor. How much faster a machine reads a network of
these sizes in bfloat16 is measured when it is first needed: the network reads the same made-up dialogues in both precisions by
turns, a tenth of a second long (`policies/core/bfloat16.py`). How many choices are left to float32 is counted as
they are made: a hastily fitted network, whose selections lie near each other, leaves nearly all of them, so that screening
costs more than it saves on any processor.

What holds: a choice is float32's own if bfloat16 moved no selection further against the best than `MARGIN`. That is measured
and not proved: a bound carried through the steps of a recurrence soon exceeds every distance between selections. Whatever
float32 decides again is compared, and a network that is seen to leave the margin is decided in float32 alone from then on.
So what was measured changes time and not rows, on one machine or on many, as far as the margin holds; who measured what first,
and what a worker chose before, change nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import cached_property

import torch

from parley.policies.core.bfloat16 import ENOUGH, cost_of_bfloat16
from parley.policies.core.products import has_onednn, is_mkl_whole
from parley.policies.negotiator.settings import NegotiatorSizes

MARGIN = 0.005
"""How far bfloat16 may move a selection against the best, as a share of the distance from best to worst. The most that was
seen: 0.005 anywhere and 0.0038 among selections near the best, in 20,000 dialogues of each of four networks, supervised and
reinforced; 0.0041 near the best in 74,000 candidates of two. It changed a choice only where the second was behind by less than
0.0012."""
LEAST_ROWS = 256
"""From as many choices at a time on screening can pay."""
FIRST = 1000
"""Choices after which it counts how many were left to float32."""


class Screening:
    """Whether the next choices of a network are screened.

    Args:
        cost: tells the time of a reading in bfloat16 as a share of float32's; asked once, when first needed.
        least_rows: from as many choices at a time on.
    """

    def __init__(self, cost: Callable[[], float], least_rows: int = LEAST_ROWS) -> None:
        self._measure, self._least_rows = cost, least_rows
        self._num_screened = self._num_left = 0
        self._trusted = True

    @cached_property
    def cost(self) -> float:
        """Time of a reading in bfloat16 as a share of float32's."""
        return self._measure()

    @property
    def share_left(self) -> float:
        """Share of the choices screened so far that was left to float32."""
        return self._num_left / max(1, self._num_screened)

    def pays(self, rows: int) -> bool:
        """Whether so many choices are better screened than all made in float32."""
        if rows < self._least_rows or not self._trusted:
            return False
        return self.cost + (self.share_left if self._num_screened >= FIRST else 0.0) < ENOUGH

    @property
    def facts(self) -> dict[str, float]:
        """For benchmarks to print."""
        return {"cost": self.cost, "share_left": self.share_left, "pays": float(self.pays(self._least_rows))}

    def note(self, screened: int, left: int, moved_too_far: bool) -> None:
        """Counts what was screened and what of it was left to float32, and whether bfloat16 was seen to leave the margin."""
        self._num_screened += screened
        self._num_left += left
        self._trusted &= not moved_too_far


def of_machine(sizes: NegotiatorSizes, device: torch.device, measure: Callable[[], float]) -> Screening:
    """Screening where it pays on this machine, for as many threads as torch has when it is first asked.

    Args:
        sizes: of the network.
        device: where it runs.
        measure: as `cost_of_bfloat16` takes it.
    """
    by_onednn = has_onednn() and not is_mkl_whole()
    return Screening(lambda: cost_of_bfloat16(device, {"sizes": asdict(sizes), "float32 by oneDNN": by_onednn}, measure))
