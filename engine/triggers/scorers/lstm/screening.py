"""Which few swaps of a list may be the best, told roughly: a screened search asks float32 about these alone.

Candidates are read with products in bfloat16, and these only of what a candidate differs by from its incumbent, for which the
products are known; all else is float32, and bounded as always (`swap_bound.py`). On a network fitted to #ubuntu, whose
candidates differ by hundredths of a nat, losses were off by 0.00005 nats on average and 0.0017 at most. Products of whole
states left the best out of the best six in one visit of thirteen.

A bound that could be proved is of no use: carried through the steps of a recurrence, it soon exceeds every distance between
candidates. So nothing rough is ever told. Float32 measures the few, decides among them whether one undercuts what is to be
beaten, and measures what a search takes over. Only which swap is taken can differ from the exact search, where bfloat16 leaves
the best out.

Shapes: B incumbents, G candidates each, n = B G, K the few
"""

from __future__ import annotations

import logging

import torch
from torch import Tensor

from parley.engine.triggers.scorers.lstm.swap_bound import FeasibleSet
from parley.envs.core.errors import ConfigError
from parley.policies.core.bfloat16 import ENOUGH, clock_of, cost_of_bfloat16, multiplies_bfloat16, shortest_share
from parley.policies.core.products import Weight

_LOG = logging.getLogger(__name__)

FEW = 3
"""Candidates of a list that float32 measures."""
SLACK = 0.005
"""Nats above what is to be beaten from which on all are left out: bfloat16 may find a candidate worse than it is."""
MADE_UP = 100
"""Rows of the product by which bfloat16 is measured."""


def require_bfloat16(device: torch.device, width: int) -> None:
    """Makes sure that a device multiplies bfloat16, and warns where that saves nothing.

    Args:
        device: of the network.
        width: of its states.

    Raises:
        ConfigError: it has no instructions for such products.
    """
    if not multiplies_bfloat16(device):
        what, fix = "a screened search multiplies in bfloat16, and the processor cannot", "leave it out, or take another device"
        raise ConfigError(what, where="search.screening", got=str(device), fix=fix)
    cost = cost_of_bfloat16(device, {"decoder_step": width}, lambda: _cost(device, width))
    if cost >= ENOUGH:
        _LOG.warning("bfloat16 takes %.0f %% of float32's time: a screened search may be slower than an exact one", 100 * cost)


def few(found: FeasibleSet, known_BG: Tensor) -> Tensor:
    """The candidates (B, K) that may be the best, in rising order; of one incumbent alone, maybe fewer than `FEW`.

    Args:
        found: those that may undercut what is to be beaten, with what they cost roughly.
        known_BG: what candidates cost that need not be read; infinity for the others.
    """
    rough_n = known_BG.flatten()
    rough_n[found.rows_c] = found.least_c
    best_BG = rough_n.view_as(known_BG).sort(dim=1, stable=True)
    chosen_BK = best_BG.indices[:, :FEW]
    if len(known_BG) == 1:
        chosen_BK = chosen_BK[:, best_BG.values[0, :FEW].isfinite()]
    return chosen_BK.sort(1).values


def _cost(device: torch.device, width: int) -> float:
    """Time of a step of a decoder in bfloat16 as a share of float32's."""
    rows_nI, weight_JI = torch.ones(MADE_UP, 2 * width, device=device), torch.ones(4 * width, 2 * width, device=device)
    half, single = (Weight(weight_JI, dtype) for dtype in (torch.bfloat16, torch.float32))
    # A number on this side is there when a GPU is done.
    return shortest_share(lambda: float(half(rows_nI)[0, 0]), lambda: float(single(rows_nI)[0, 0]), clock_of(device))
