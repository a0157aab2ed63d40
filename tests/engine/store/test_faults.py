"""Run folders when the disk is full and when processes compete or are killed."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from engine.jobs.negotiation.rows import DIALOGUES
from engine.store.environment import git_commit
from engine.store.run_folder import RunFolder
from envs.core.errors import RunError
from tests.engine.store.rows import SmallConfig, row, rows

ROOT = Path(__file__).resolve().parents[3]
HOLD = """
import sys
from pathlib import Path
from engine.jobs.negotiation.rows import DIALOGUES
from engine.store.run_folder import RunFolder
from tests.engine.store.rows import SmallConfig, rows
run = RunFolder.open(Path(sys.argv[1]), SmallConfig(), job="attack", schema=DIALOGUES)
run.write_shard("00000", rows(["a", "b"]))
print("saved", flush=True)
sys.stdin.read()
"""


def start(path: Path) -> RunFolder:
    return RunFolder.open(path, SmallConfig(), job="attack", schema=DIALOGUES)


def test_a_full_disk_says_how_much_is_saved_and_leaves_no_halves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with start(tmp_path / "run") as run:
        run.write_shard("00000", rows(["a", "b"]))
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(RunError, match=r"the disk is full(.|\n)*2 items in 1 parts saved(.|\n)*parley resume"):
                run.write_shard("00001", rows(["c"]))
            with pytest.raises(RunError, match="the disk is full"):
                run.write_summary({})
            with pytest.raises(RunError, match="the disk is full"):
                run.event("epoch")
        assert run.read_rows()["item_key"].to_pylist() == ["a", "b"]
        assert not list(run.path.rglob("*.writing"))
        assert [event["kind"] for event in run.events()] == ["started", "shard"]
    with start(tmp_path / "run") as run:
        assert run.done_keys() == {"a", "b"}


def test_a_file_size_limit_is_met_without_losing_what_is_there(tmp_path: Path) -> None:
    """The same through the operating system: the kernel, not a patched call, refuses the bytes."""
    with start(tmp_path / "run") as run:
        run.write_shard("00000", rows(["a", "b"]))
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        events = (run.path / "events.jsonl").read_bytes()
        # Room for part of an event line, not for a part of random words that does not compress.
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(events) + 20, before[1]))
        try:
            with pytest.raises(RunError, match=r"the disk is full(.|\n)*2 items in 1 parts saved"):
                run.write_shard("00001", [row("c", turns=[{"side": 0, "words": os.urandom(20_000).hex()}])])
            with pytest.raises(RunError, match="the disk is full"):
                run.event("epoch", number=1)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert (run.path / "events.jsonl").read_bytes() == events
        run.write_shard("00001", rows(["c"]))
        assert run.read_rows()["item_key"].to_pylist() == ["a", "b", "c"]


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"cannot be made(.|\n)*fix: .*--run DIR"):
        start(tmp_path / "file" / "run")


def test_one_writer_per_run_until_it_dies(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path / "run")]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "saved\n"
        with pytest.raises(RunError, match=rf"another process(.|\n)*process {other.pid} on"):
            start(tmp_path / "run")
        assert RunFolder.load(tmp_path / "run").read_rows().num_rows == 2
        other.send_signal(signal.SIGKILL)
        other.wait()
        with start(tmp_path / "run") as run:
            assert run.is_done("00000", ["a", "b"])


def test_one_writer_per_run_within_a_process(tmp_path: Path) -> None:
    with start(tmp_path / "run"), pytest.raises(RunError, match=f"process {os.getpid()}"):
        start(tmp_path / "run")
    start(tmp_path / "run").close()


def test_an_error_while_opening_leaves_no_lock_behind(tmp_path: Path) -> None:
    start(tmp_path / "run").close()
    with pytest.raises(RunError):
        RunFolder.open(tmp_path / "run", SmallConfig(temperature=0.9), job="attack", schema=DIALOGUES)
    start(tmp_path / "run").close()


def test_commit_is_that_of_the_checkout_that_tracks_the_file(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        return subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    source, stray = tmp_path / "source.py", tmp_path / "stray.py"
    source.write_text("1")
    stray.write_text("1")
    assert git_commit(source) is None
    git("init")
    git("add", "source.py")
    git("commit", "-m", "first")
    commit = git("rev-parse", "HEAD").strip()
    assert git_commit(source) == commit
    assert git_commit(stray) is None
    source.write_text("2")
    assert git_commit(source) == f"{commit}-dirty"
