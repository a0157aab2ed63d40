"""What bfloat16 costs on this machine: measured when it is first asked, and kept in the cache folder.

Whether it pays depends on the processor and on the sizes of a network, and the name of an instruction set tells neither. On an
AMD EPYC with avx512_bf16 and without AMX, one thread, a step of a training took this share of float32's time in bfloat16: 0.39
to 0.41 (seq2seq and language models, small and he2018), 0.51 to 0.59 (VHRED small), 0.85 (negotiators of the published size),
0.65 (pointer-generator, small), and at the demo's sizes 0.65 to 0.82. Four measurements of each differed by 0.04 at most.
"""

from __future__ import annotations

import json
import logging
import math
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

from parley.envs.corpora.root import cache_root

_LOG = logging.getLogger(__name__)

ENOUGH = 0.8
"""Bfloat16 must take less than this share of float32's time: less than that is not told from noise."""
TURNS = 4
"""How often both precisions are measured."""
_KNOWN: dict[Path, float] = {}
"""Costs of this process by the file that they are kept in: decided once, whatever becomes of the file."""


def multiplies_bfloat16(device: torch.device) -> bool:
    """Whether a device has instructions for bfloat16 products; without them there is nothing to measure."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return device.type == "cpu" and any(there and name.endswith("bf16") for name, there in torch.cpu.get_capabilities().items())


def cost_of_bfloat16(device: torch.device, what: Mapping[str, Any], measure: Callable[[], float]) -> float:
    """Time of some work in bfloat16 as a share of float32's, for as many threads as torch has now.

    Args:
        device: where the work is done.
        what: which work it is, JSON types: the sizes that its time depends on.
        measure: tells the cost where neither this process nor the cache folder knows it.
    """
    machine = torch.cuda.get_device_name(device) if device.type == "cuda" else torch.cpu.get_capabilities()
    where = {"device": device.type, "machine": machine, "torch": torch.__version__, "threads": torch.get_num_threads()}
    metadata = {**where, **what}
    digest = sha256(json.dumps(metadata, sort_keys=True, default=str).encode()).hexdigest()[:16]
    path = cache_root() / "bfloat16" / f"{digest}.json"
    if path not in _KNOWN:
        cost = _kept(path)
        if cost is None:
            cost = measure()
            _keep(path, json.dumps({"cost": cost, **metadata}, default=str))
        _LOG.debug("%s takes %.2f of the time of float32 in bfloat16", ", ".join(what), cost)
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
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
            file.write(text)
        Path(file.name).replace(path)
    except OSError as error:
        _LOG.info("what bfloat16 costs is measured again by each process, since %s cannot be written: %s", path, error)


def clock_of(device: torch.device) -> Callable[[], float]:
    """Seconds of the processor, so that neighbours on the machine do not count; of a GPU, those that go by."""
    return time.thread_time if device.type == "cpu" else time.perf_counter


def total_share(
    ours: Iterable[Callable[[], object]], theirs: Iterable[Callable[[], object]], clock: Callable[[], float]
) -> float:
    """The time of some different runs as a share of that of as many others, by turns; the first of each is not counted.

    For work whose sizes change from one run to the next, so that making kernels counts: with AMX oneDNN makes one for each size
    of a product, in about a millisecond. On an Intel Xeon (Sapphire Rapids), one thread, steps of small SMN, DAM and MRFN on
    batches that were not met before took 1.3 to 1.5 times as long in bfloat16 as in float32, a batch met again 0.8 to 0.95.
    """
    seconds = [0.0, 0.0]
    for turn, runs in enumerate(zip(ours, theirs, strict=True)):
        for i, run in enumerate(runs):
            start = clock()
            run()
            seconds[i] += (clock() - start) if turn else 0.0
    return seconds[0] / seconds[1]


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
