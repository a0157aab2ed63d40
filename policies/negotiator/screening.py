"""Whether choices are told roughly first: the selection network in bfloat16, and in float32 only where that does not tell.

What it gains depends on two things, and neither is the name of a processor. How much faster a machine reads a network of
these sizes in bfloat16 is measured when it is first needed: the network reads the same made-up dialogues in both precisions by
turns, a tenth of a second long; the figure is kept in the cache folder. How many choices are left to float32 is counted as
they are made: a hastily fitted network, whose selections lie near each other, leaves nearly all of them, so that screening
costs more than it saves on any processor.

What holds: a choice is float32's own if bfloat16 moved no selection further against the best than `MARGIN`. That is measured
and not proved: a bound carried through the steps of a recurrence soon exceeds every distance between selections. Whatever
float32 decides again is compared, and a network that is seen to leave the margin is decided in float32 alone from then on.
So what was measured changes time and not rows, on one machine or on many, as far as the margin holds; who measured what first,
and what a worker chose before, change nothing else.
"""

from __future__ import annotations

import json
import logging
import math
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from functools import cached_property, partial
from hashlib import sha256
from pathlib import Path

import torch

from envs.data.root import cache_root
from policies.negotiator.settings import NegotiatorSizes

_LOG = logging.getLogger(__name__)

MARGIN = 0.005
"""How far bfloat16 may move a selection against the best, as a share of the distance from best to worst. The most that was
seen: 0.005 anywhere and 0.0038 among selections near the best, in 20,000 dialogues of each of four networks, supervised and
reinforced; 0.0041 near the best in 74,000 candidates of two. It changed a choice only where the second was behind by less than
0.0012."""
LEAST_ROWS = 256
"""From as many choices at a time on screening can pay."""
ENOUGH = 0.8
"""Screening must take less than this share of float32's time: less than that is not told from noise."""
FIRST = 1000
"""Choices after which it counts how many were left to float32."""
TURNS = 4
"""How often both precisions are measured."""
_KNOWN: dict[Path, float] = {}
"""Costs of this process by the file that they are kept in: decided once, whatever becomes of the file."""


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
        measure: tells the cost where neither this process nor the cache folder knows it.
    """
    return Screening(partial(_cost, sizes, device, measure))


def _cost(sizes: NegotiatorSizes, device: torch.device, measure: Callable[[], float]) -> float:
    machine = torch.cuda.get_device_name(device) if device.type == "cuda" else torch.cpu.get_capabilities()
    where = {"device": device.type, "machine": machine, "torch": torch.__version__, "threads": torch.get_num_threads()}
    metadata = where | {"sizes": asdict(sizes)}
    digest = sha256(json.dumps(metadata, sort_keys=True, default=str).encode()).hexdigest()[:16]
    path = cache_root() / "bfloat16" / f"{digest}.json"
    if path not in _KNOWN:
        cost = _kept(path)
        if cost is None:
            cost = measure()
            _keep(path, json.dumps({"cost": cost, **metadata}, default=str))
        _LOG.debug("a choice in bfloat16 takes %.2f of the time of one in float32", cost)
        _KNOWN[path] = cost
    return _KNOWN[path]


def _kept(path: Path) -> float | None:
    """What the file says, or None where it is missing or damaged."""
    try:
        cost = json.loads(path.read_bytes())["cost"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return float(cost) if isinstance(cost, float) and 0 < cost < math.inf else None


def _keep(path: Path, text: str) -> None:
    """Writes the file, as a whole or not at all; a folder that cannot be written is done without."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            file.write(text)
        Path(file.name).replace(path)
    except OSError as error:
        _LOG.info("what bfloat16 costs is measured again by each process, since %s cannot be written: %s", path, error)


def shortest_share(ours: Callable[[], object], theirs: Callable[[], object], clock: Callable[[], float]) -> float:
    """The shortest of some runs of one as a share of the shortest of the other, by turns; each returns when it is done."""
    seconds = [math.inf, math.inf]
    for turn in range(1 + TURNS):
        for i, run in enumerate((ours, theirs)):
            start = clock()
            run()
            # In the first turn kernels are made.
            seconds[i] = min(seconds[i], clock() - start) if turn else math.inf
    return seconds[0] / seconds[1]
