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

from parley.engine.core.ray.record import Work
from parley.engine.core.ray.worker import Shard, TurnResult, UnderWay, make_shards
from parley.engine.core.runs.parts import OK, SCHEMA_VERSION, error_row, row_schema
from parley.envs.core.errors import CheckpointError, RefusedModelError
from parley.envs.core.seeds import derive_seed, stream

NUMBERS = row_schema({"number": float})
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


def until(true: Callable[[], Any], seconds: float = 120.0) -> None:
    """Waits until something is true, which a busy machine may take long for."""
    tired_at = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < tired_at, f"not so within {seconds:g} s"
        time.sleep(0.05)


class CountingInTwo(Counting):
    """As `Counting`; a shard ends once two processes have begun one."""

    def run(self, shard: Shard[int]) -> list[dict[str, Any]]:
        rows = super().run(shard)
        until(lambda: len(processes_of(self.folder)) == 2)
        return rows


def processes_of(folder: Path) -> set[str]:
    """Which processes have begun a shard of `Counting`."""
    return {path.name.split(".")[1] for path in folder.iterdir()}


class WaitsForAnother:
    """Waits until two processes are at work at once; how many there are then."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def run(self, shard: Shard[int]) -> int:
        meet(self.folder)
        return len([*self.folder.iterdir()])


class By(Work[Any]):
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
    until(lambda: len([*folder.iterdir()]) > 1)


class OneOfTwo(Counting):
    """Begins with its first shard when another one does: both are known to be up then."""

    def run(self, shard: Shard[int]) -> list[dict[str, Any]]:
        meet(Path(f"{self.folder}-met"))
        return super().run(shard)


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
            self.die()
        return rows

    def die(self) -> None:
        # Long enough for the next shard to queue up behind it.
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)


class ExitsOn(DiesOn):
    """Ends its process each time it gets the named shard, as code of a user's own may."""

    def die(self) -> None:
        os._exit(7)


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


class FailsAtItsEnd(InTurns):
    """The named shard makes its steps, and its rows say "error"."""

    def __init__(self, folder: str, shard: str) -> None:
        super().__init__(folder)
        self.shard = shard

    def rows(self, name: str) -> list[dict[str, Any]]:
        rows = super().rows(name)
        return [error_row(row["item_key"], row["seed"], "it broke") for row in rows] if name == self.shard else rows


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


class ExitsInATurn(InTurns):
    """Ends its process each time that the named shard makes its third step."""

    def __init__(self, folder: str, shard: str) -> None:
        super().__init__(folder)
        self.shard = shard

    def step(self, name: str) -> None:
        if name == self.shard and self.steps[name] == 2:
            os._exit(7)
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


class SlowToBuild(Counting):
    """Is built when a file is there."""

    def __init__(self, folder: str, mark: str) -> None:
        super().__init__(folder)
        Path(f"{mark}.begun").touch()
        until(Path(mark).exists)


class DiesWhileStarting:
    def __init__(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def run(self, shard: Shard[int]) -> None:
        raise NotImplementedError


class Stalls(Counting):
    """Does no more than some shards, whoever works: it waits to be killed."""

    def __init__(self, folder: str, most: int) -> None:
        super().__init__(folder)
        self.most = most

    def run(self, shard: Shard[int]) -> list[dict[str, Any]]:
        rows = super().run(shard)
        while len(attempts(self.folder)) > self.most:
            time.sleep(1)
        return rows


class OnlyOne(Counting):
    """Works until the others are given up, all of which are killed while they start."""

    def __init__(self, folder: str, mark: str, given_up: str) -> None:
        super().__init__(folder)
        self.given_up = Path(given_up)
        try:
            Path(mark).touch(exist_ok=False)
        except FileExistsError:
            os.kill(os.getpid(), signal.SIGKILL)

    def run(self, shard: Shard[int]) -> list[dict[str, Any]]:
        until(self.given_up.exists)
        return super().run(shard)


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
