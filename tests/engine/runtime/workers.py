"""Workers for tests of the pool: well-behaved, failing, and deadly ones. Here, because Ray imports them by name."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from engine.runtime.sharding import Shard, make_shards
from engine.runtime.worker import TurnResult, UnderWay
from engine.store.schemas import OK, SCHEMA_VERSION, with_base
from envs.core.errors import CheckpointError, RefusedModelError
from envs.core.seeds import derive_seed, stream

NUMBERS = with_base([pa.field("number", pa.float64())])
SEED = 17


def seed_of(key: str) -> int:
    return derive_seed(SEED, key)


def shards_of(num_items: int, size: int) -> list[Shard[int]]:
    return make_shards({f"item {i:04d}": i for i in range(num_items)}, size)


class Counting:
    """Rows of random numbers, and a file per attempt: `FOLDER/SHARD.PID.NANOSECONDS`."""

    def __init__(self, folder: str, seconds: float = 0.0) -> None:
        self.folder, self.seconds = Path(folder), seconds

    def run(self, shard: Shard[int]) -> list[dict[str, Any]]:
        (self.folder / f"{shard.name}.{os.getpid()}.{time.monotonic_ns()}").touch()
        time.sleep(self.seconds)
        base = {"status": OK, "schema_version": SCHEMA_VERSION}
        return [
            {**base, "item_key": key, "seed": seed_of(key), "number": stream(seed_of(key), "number").random()}
            for key in shard.keys
        ]


class CountingInTwo(Counting):
    """As `Counting`; a shard ends once two processes have begun one, or after a minute."""

    def run(self, shard: Shard[int]) -> list[dict[str, Any]]:
        rows = super().run(shard)
        until = time.monotonic() + 60
        while len(processes_of(self.folder)) < 2 and time.monotonic() < until:
            time.sleep(0.01)
        return rows


def processes_of(folder: Path) -> set[str]:
    """Which processes have begun a shard of `Counting`."""
    return {path.name.split(".")[1] for path in folder.iterdir()}


class WaitsForAnother:
    """How many processes were at work at once; the second waits until it is there, for half a minute at most."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def run(self, shard: Shard[int]) -> int:
        (self.folder / str(os.getpid())).touch()
        until = time.monotonic() + 30
        while len([*self.folder.iterdir()]) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        return len([*self.folder.iterdir()])


class By:
    """Work that a class of worker does."""

    def __init__(self, worker_class: Callable[..., Any], *args: Any) -> None:
        self.worker_class, self.args = worker_class, args

    def seed(self, key: str) -> int:
        return seed_of(key)

    def worker(self) -> Any:
        return self.worker_class(*self.args)

    def digest(self, rows: Sequence[Mapping[str, Any]]) -> Counter[str]:
        """How many rows worked, and how many of their numbers are large."""
        numbers = [row.get("number", 0) for row in rows if row["status"] == OK]
        return Counter(done=len(numbers), large=sum(number > 0.5 for number in numbers))


def attempts(folder: Path) -> list[str]:
    """The shards that `Counting` worked on, once per attempt."""
    return sorted(path.name.split(".")[0] for path in folder.iterdir())


def meet(folder: Path) -> None:
    """Waits until two processes have come to a folder, so that neither does the other's work."""
    folder.mkdir(exist_ok=True)
    (folder / str(os.getpid())).touch()
    while len([*folder.iterdir()]) < 2:
        time.sleep(0.05)


class OneOfTwo(Counting):
    """Begins when another one does."""

    def __init__(self, folder: str, seconds: float) -> None:
        super().__init__(folder, seconds)
        meet(Path(f"{folder}-met"))


class DiesOnce(Counting):
    """Is killed, as if from outside, the first time it gets the named shard."""

    def __init__(self, folder: str, mark: str, shard: str) -> None:
        super().__init__(folder)
        self.mark, self.shard = Path(mark), shard

    def run(self, shard: Shard[int]) -> list[dict[str, Any]]:
        rows = super().run(shard)
        if shard.name == self.shard and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return rows


class DiesOn(Counting):
    """Is killed each time it gets the named shard."""

    def __init__(self, folder: str, shard: str) -> None:
        super().__init__(folder)
        self.shard = shard

    def run(self, shard: Shard[int]) -> list[dict[str, Any]]:
        rows = super().run(shard)
        if shard.name == self.shard:
            # Long enough for the next shard to queue up behind it.
            time.sleep(0.5)
            os.kill(os.getpid(), signal.SIGKILL)
        return rows


class RaisesOn(Counting):
    """Raises, or exits, when it gets the named shards."""

    def run(self, shard: Shard[int]) -> list[dict[str, Any]]:
        if shard.name == "00001":
            raise ZeroDivisionError("no luck")
        if shard.name == "00002":
            sys.exit(3)
        return super().run(shard)


class IsRefused(Counting):
    """Asks a server that takes no such key."""

    def run(self, shard: Shard[int]) -> list[dict[str, Any]]:
        super().run(shard)
        raise RefusedModelError("the server wants a key", where="server", fix="export it")


class InTurns:
    """Holds shards and makes a step of each in a turn; a shard ends after as many as its number. A file for each step:
    `FOLDER/SHARD.STEP.PID.NANOSECONDS`.
    """

    def __init__(self, folder: str, seconds: float = 0.0) -> None:
        self.folder, self.seconds = Path(folder), seconds
        self.drop()

    def drop(self) -> None:
        self.held: dict[str, Shard[int]] = {}
        self.steps: dict[str, int] = {}

    def turn(self, joining: Sequence[Shard[int]], seconds: float) -> TurnResult[list[dict[str, Any]]]:
        self.held |= {shard.name: shard for shard in joining}
        self.steps |= {shard.name: shard.kept or 0 for shard in joining}
        time.sleep(self.seconds)
        for name in self.held:
            self.step(name)
        ended = {name: self.rows(name) for name, steps in self.steps.items() if steps >= self.held[name].items[0]}
        for name in ended:
            del self.held[name], self.steps[name]
        return TurnResult(ended, {name: UnderWay(0.5, Counter(steps=steps), steps) for name, steps in self.steps.items()})

    def step(self, name: str) -> None:
        self.steps[name] += 1
        (self.folder / f"{name}.{self.steps[name]}.{os.getpid()}.{time.monotonic_ns()}").touch()

    def rows(self, name: str) -> list[dict[str, Any]]:
        base = {"status": OK, "schema_version": SCHEMA_VERSION, "number": float(self.steps[name])}
        return [{**base, "item_key": key, "seed": seed_of(key)} for key in self.held[name].keys]


class DiesInATurn(InTurns):
    """Is killed the first time that the named shard makes its third step."""

    def __init__(self, folder: str, mark: str, shard: str) -> None:
        super().__init__(folder)
        self.mark, self.shard = Path(mark), shard

    def step(self, name: str) -> None:
        if name == self.shard and self.steps[name] == 2 and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        super().step(name)


class RaisesInATurn(InTurns):
    """Raises when the named shard makes its third step."""

    def __init__(self, folder: str, shard: str) -> None:
        super().__init__(folder)
        self.shard = shard

    def step(self, name: str) -> None:
        if name == self.shard and self.steps[name] == 2:
            raise ZeroDivisionError("no luck")
        super().step(name)


class IsRefusedInATurn(InTurns):
    """Asks such a server once all shards have made a step."""

    def step(self, name: str) -> None:
        if self.steps[name]:
            raise RefusedModelError("the server wants a key", where="server", fix="export it")
        super().step(name)


class CannotBeBuilt:
    def __init__(self) -> None:
        raise CheckpointError("the checkpoint is missing", where="weights", fix="train first")

    def run(self, shard: Shard[int]) -> None:
        raise NotImplementedError


class DiesWhileStarting:
    def __init__(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def run(self, shard: Shard[int]) -> None:
        raise NotImplementedError


class OnlyOne(Counting):
    """Takes its time; all but the first are killed while they start."""

    def __init__(self, folder: str, mark: str) -> None:
        super().__init__(folder, 0.2)
        try:
            Path(mark).touch(exist_ok=False)
        except FileExistsError:
            os.kill(os.getpid(), signal.SIGKILL)


class Environment:
    """Says how its process is set up."""

    def run(self, shard: Shard[int]) -> dict[str, Any]:
        import torch

        names = ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")
        found: dict[str, Any] = {name: os.environ.get(name) for name in names}
        module = sys.modules[type(self).__module__].__file__
        return found | {"torch": torch.get_num_threads(), "pid": os.getpid(), "module": module}


class Bulky:
    """Results of so many million bytes, all of them the shard's number."""

    def __init__(self, millions: int) -> None:
        self.millions = millions

    def run(self, shard: Shard[int]) -> Any:
        return np.full(self.millions * 1_000_000, shard.items[0], np.uint8)


class Unsendable:
    def run(self, shard: Shard[int]) -> Any:
        return threading.Lock()
