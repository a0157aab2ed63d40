"""Disturb a command of `parley` at one of its writes; Python imports this first, because the harness names it in PYTHONPATH.

The plan is the JSON in PARLEY_CHAOS. The driver is the process that the harness started. Each opening, renaming or removing of
a file below the run's folder is a step of it, and so is each write to a log. At the step of the plan the act is done: a process
is killed, the disk is full from then on, the clock goes back, or a second process begins to write the run.

All processes count their work in a log: items whose work begins, questions to a model, steps of optimisers.
"""

from __future__ import annotations

import datetime
import errno
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

PLAN = json.loads(os.environ.get("PARLEY_CHAOS", "null"))
WRITING = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_CREAT
ENDING = ".writing"
PROCESSES = {"actor": "ray::", "raylet": "raylet", "head": "gcs_server"}
"""The beginnings of the names of what is killed, of Ray's processes below the driver."""

_open, _write, _time = os.open, os.write, time.time


def note(kind: str, **fields: object) -> None:
    """Append a line to the log of the harness."""
    descriptor = _open(PLAN["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    _write(descriptor, f"{json.dumps({'kind': kind, 'pid': os.getpid(), 'time': _time(), **fields})}\n".encode())
    os.close(descriptor)


def children() -> dict[int, tuple[int, str]]:
    """Return the processes below this one: parent and name of each."""
    found: dict[int, tuple[int, str]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                words = (folder / "cmdline").read_bytes().split(b"\0")
            except (OSError, IndexError):
                continue
            found[int(folder.name)] = parent, Path(words[0].decode(errors="replace")).name
    below = {os.getpid()}
    while more := {number for number, (parent, _) in found.items() if parent in below} - below:
        below |= more
    return {number: found[number] for number in below - {os.getpid()}}


class Driver:
    """Counts the steps of the driver and acts at one of them."""

    def __init__(self) -> None:
        self.step, self.is_full, self.is_busy = 0, False, False
        self.folder = PLAN["run"]
        self.at, self.act = PLAN.get("step", 0), PLAN.get("act", "")

    def audit(self, event: str, arguments: tuple[object, ...]) -> None:
        """Look at what Python is about to do with a file."""
        if event == "open":
            path, _, flags = arguments
            if isinstance(path, (str, os.PathLike)) and (isinstance(flags, int) and flags & WRITING):
                self.take("append" if flags & os.O_APPEND else "open", os.fspath(path))
        elif event in ("os.rename", "os.remove"):
            self.take(event[3:], os.fspath(arguments[0]))  # type: ignore[call-overload]

    def take(self, kind: str, path: str | bytes, write_half: Callable[[], object] = int) -> None:
        """Count a step, if it is one of the run's, and act if it is the one."""
        path = os.fsdecode(path)
        if self.is_busy or not path.startswith(self.folder + os.sep) or path.endswith("/lock"):
            return
        self.step += 1
        if PLAN.get("list"):
            note("step", step=self.step, what=kind, file=Path(path).name)
        if self.act == "disk" and self.step >= self.at:
            note("act", act=self.act, step=self.step, file=Path(path).name, below=[])
            self.act, self.is_full = "", True
        if self.is_full and kind in ("open", "append", "write"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        if self.act and self.step >= self.at:
            self.is_busy = True
            try:
                self.do(kind, path, write_half)
            finally:
                self.is_busy = False

    def do(self, kind: str, path: str, write_half: Callable[[], object]) -> None:
        """Do the act, or leave it for the next step if there is nothing to do it to yet."""
        if self.act in PROCESSES:
            below = children()
            named = [
                number
                for number, (_, name) in sorted(below.items())
                if name.startswith(PROCESSES[self.act]) and not name.endswith(("IDLE", "Agent"))
            ]
            if not named:
                return
            note("act", act=self.act, step=self.step, file=Path(path).name, below=sorted(below))
            os.kill(named[self.at % len(named)], signal.SIGKILL)
        elif self.act == "driver":
            if kind == "rename" and path.endswith(ENDING):
                # As if it had been killed in the middle of the writing.
                os.truncate(path, Path(path).stat().st_size // 2)
            write_half()
            note("act", act=self.act, step=self.step, file=Path(path).name, below=sorted(children()))
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.act == "clock":
            note("act", act=self.act, step=self.step, file=Path(path).name, below=[])
            set_back(PLAN["seconds"])
        elif self.act == "second":
            variables = {name: value for name, value in os.environ.items() if name != "PARLEY_CHAOS"}
            done = subprocess.run(PLAN["second"], env=variables, capture_output=True, text=True, check=False)
            note("act", act=self.act, step=self.step, file=Path(path).name, below=[], rc=done.returncode, said=done.stderr)
        self.act = ""


real = datetime.datetime
moved = 0.0


class SetBack(real):
    """The time of a clock that was set back, for modules of the project: compiled ones know the real class by its size."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> SetBack:
        """Return the time."""
        return cls.fromtimestamp(_time() - moved, tz)


def set_back(seconds: float) -> None:
    """Set the clock of this process back from now on."""
    global moved
    moved = seconds
    time.time = lambda: _time() - seconds
    for name, module in list(sys.modules.items()):
        if name.startswith("parley.") and getattr(module, "datetime", None) is real:
            module.datetime = SetBack  # type: ignore[attr-defined]


class After(importlib.abc.MetaPathFinder):
    """Changes some modules when they are loaded."""

    def __init__(self, changes: dict[str, Callable[[object], None]]) -> None:
        self.changes = changes

    def find_spec(self, name: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        """Return the usual way to load a module, with the change behind it."""
        if name not in self.changes and not (moved and name.startswith("parley.")):
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            sys.meta_path.insert(0, self)
        if spec is None or spec.loader is None:
            return None
        load = spec.loader.exec_module

        def exec_module(module: object) -> None:
            load(module)  # type: ignore[arg-type]
            if name in self.changes:
                self.changes[name](module)
            if moved and getattr(module, "datetime", None) is real:
                module.datetime = SetBack  # type: ignore[attr-defined]

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def count_items(record: object) -> None:
    """Note the items of each shard whose work begins."""
    writer = record.ShardWriter  # type: ignore[attr-defined]
    run, turn = writer.run, writer.turn

    def noted_run(self: object, shard: object) -> object:
        note("items", shard=shard.name, keys=list(shard.keys))  # type: ignore[attr-defined]
        return run(self, shard)

    def noted_turn(self: object, joining: list[object], seconds: float) -> object:
        for shard in joining:
            note("items", shard=shard.name, keys=list(shard.keys), kept=shard.kept is not None)  # type: ignore[attr-defined]
        return turn(self, joining, seconds)

    writer.run, writer.turn = noted_run, noted_turn


def count_steps(optimizer: object) -> None:
    """Note each step of an optimiser."""
    optimizer.register_optimizer_step_pre_hook(lambda *rest: note("update"))  # type: ignore[attr-defined]


def write(descriptor: int, content: bytes) -> int:
    """Write as `os.write`, which makes a step of the driver if it goes to a log."""
    path = str(Path(f"/proc/self/fd/{descriptor}").readlink()) if descriptor > 2 else ""
    if path.endswith(".jsonl"):
        DRIVER.take("write", path, lambda: _write(descriptor, content[: len(content) // 2]))
    return _write(descriptor, content)


if PLAN is not None:
    sys.meta_path.insert(0, After({"parley.engine.core.ray.record": count_items, "torch.optim.optimizer": count_steps}))
    if os.getppid() == PLAN["parent"]:
        DRIVER = Driver()
        sys.addaudithook(DRIVER.audit)
        os.write = write  # type: ignore[assignment]
        if PLAN.get("act") == "before":
            set_back(PLAN["seconds"])
