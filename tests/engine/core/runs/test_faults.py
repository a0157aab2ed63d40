"""Run folders when the disk is full and when processes compete or are killed."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from parley.engine.core.page.page import report_from_run
from parley.engine.core.runs.documents import git_commit, whole_file
from parley.engine.core.runs.run_folder import RunFolder, read_unfinished, write_unfinished
from parley.engine.negotiation.verbs.match import DIALOGUES
from parley.envs.core.errors import RunError
from parley.envs.core.storage import uris as locks
from parley.envs.core.storage.copies import turn_of
from parley.policies.chat.answers import ChatAnswers
from parley.policies.chat.model import Answer
from tests.engine.core.runs.rows import SmallConfig, row, rows

ROOT = Path(__file__).resolve().parents[4]
HOLD = """
import sys
from pathlib import Path
from parley.engine.negotiation.verbs.match import DIALOGUES
from parley.engine.core.runs.run_folder import RunFolder
from tests.engine.core.runs.rows import SmallConfig, rows
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
    with start(tmp_path / "run") as run:
        run.event("first row")
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


def outside(folder: Path) -> Path:
    """A file of the user's that no run may touch."""
    path = folder / "thesis.txt"
    path.write_text("years of work")
    return path


LINKS = (
    "report.html.writing",
    "lock",
    "events.jsonl",
    "begun.json",
    "summary.json",
    "config.json",
    "environment.json",
    "rows",
    "unfinished",
    "answers",
    "checkpoint",
    "checkpoint.writing/model.safetensors",
    "table.md",
    "tensorboard",
)


@pytest.mark.parametrize("name", LINKS)
def test_no_link_in_a_run_is_followed_out_of_it(tmp_path: Path, name: str) -> None:
    with start(tmp_path / "run") as run:
        run.write_summary({})
    victim = outside(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    link = tmp_path / "run" / name
    kept = link.read_bytes() if link.is_file() else b""
    for old in (link, *link.glob("*")):
        old.rmdir() if old.is_dir() else old.unlink(missing_ok=True)
    link.parent.mkdir(exist_ok=True)
    target = elsewhere if "." not in name and name != "lock" else victim
    if name == "config.json":
        victim.write_bytes(kept)
    link.symlink_to(target)
    before = victim.read_bytes()
    for look in (start, RunFolder.load, report_from_run):
        with pytest.raises(RunError, match=rf"a link in the run leads out of it(.|\n)*run/{name}(.|\n)*delete the link"):
            look(tmp_path / "run")
    assert victim.read_bytes() == before
    assert not list(elsewhere.iterdir())


def test_a_folder_that_a_writer_deletes_meanwhile_hides_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start(tmp_path / "run").close()
    (tmp_path / "run" / ".checkpoint.partial").mkdir()
    list_folder = os.scandir

    def deleted_first(folder: str) -> object:
        if str(folder).endswith(".partial"):
            Path(folder).rmdir()
        return list_folder(folder)

    monkeypatch.setattr(os, "scandir", deleted_first)
    assert RunFolder.load(str(tmp_path / "run")).job == "attack"
    assert not (tmp_path / "run" / ".checkpoint.partial").exists()


def test_a_page_is_written_past_a_link_of_the_name_that_it_has_meanwhile(tmp_path: Path) -> None:
    """In a folder of runs too, which is none itself."""
    with start(tmp_path / "runs" / "run") as run:
        run.write_summary({})
    victim = outside(tmp_path)
    for name in ("report.html", "report.html.writing"):
        (tmp_path / "runs" / name).symlink_to(victim)
    page = report_from_run(tmp_path / "runs")
    assert not page.is_symlink()
    assert "<html" in page.read_text()
    assert victim.read_text() == "years of work"


def test_a_run_may_be_named_by_a_link_and_has_one_writer_by_both_names(tmp_path: Path) -> None:
    (tmp_path / "linked").symlink_to(tmp_path / "run")
    (tmp_path / "run").mkdir()
    with start(tmp_path / "linked") as run:
        run.write_shard("00000", rows(["a"]))
        run.write_summary({})
        with pytest.raises(RunError, match="another process is writing this run"):
            start(tmp_path / "run")
        for path in (tmp_path / "run", tmp_path / "linked"):
            assert "<html" in report_from_run(path).read_text()
    assert not list((tmp_path / "run").rglob("*.writing"))
    (tmp_path / "run" / "newest").symlink_to("rows")
    assert RunFolder.load(tmp_path / "linked").read_rows()["item_key"].to_pylist() == ["a"]


def test_two_writers_of_what_a_shard_is_gone_on_from_take_nothing_from_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed run may still be at it when the next one begins; each is whole, the last one stands."""
    start(tmp_path / "run").close()
    replace, steps = Path.replace, []

    def meanwhile(path: Path, target: Path) -> Path:
        if not steps:
            steps.append("the other one")
            write_unfinished(tmp_path / "run", "00000", {"by": "the other one"})
            assert read_unfinished(tmp_path / "run") == {"00000": {"by": "the other one"}}
        return replace(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", meanwhile)
        write_unfinished(tmp_path / "run", "00000", {"by": "this one"})
    assert steps
    assert read_unfinished(tmp_path / "run") == {"00000": {"by": "this one"}}
    with subprocess.Popen([sys.executable, "-c", ""]) as dead:
        pass
    (tmp_path / "run" / "unfinished" / f"00000.{dead.pid}-0123abcd.json.writing").write_text("{")
    with whole_file(tmp_path / "run" / "report.html") as page:
        # What is being written outlives a run that begins meanwhile and clears up.
        start(tmp_path / "run").close()
        page.write(b"whole")
    assert (tmp_path / "run" / "report.html").read_bytes() == b"whole"
    assert [path.name for path in (tmp_path / "run" / "unfinished").iterdir()] == ["00000.json"]


def test_what_another_machine_is_writing_is_left_alone_for_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shared folder: the number of a process of another machine is nobody's here."""
    start(tmp_path / "run").close()
    with monkeypatch.context() as patch:
        patch.setattr(socket, "gethostname", lambda: "another")
        patch.setattr(os, "getpid", lambda: 2**22 + 1)
        with whole_file(tmp_path / "run" / "report.html") as page:
            patch.setattr(socket, "gethostname", lambda: "this one")
            start(tmp_path / "run").close()
            page.write(b"whole")
            (aside,) = (tmp_path / "run").glob("report.*.writing")
    assert (tmp_path / "run" / "report.html").read_bytes() == b"whole"
    aside.write_bytes(b"half")
    os.utime(aside, (0, 0))
    start(tmp_path / "run").close()
    assert not aside.exists()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_locks_holds_runs_and_says_once_what_that_means(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    def none(descriptor: int, kind: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", none)
    monkeypatch.setattr(locks, "_has_warned", False)
    with start(tmp_path / "run") as run:
        run.write_shard("00000", rows(["a", "b"]))
        assert run.writer() is None
        answers = ChatAnswers(tmp_path / "run" / "answers")
        answers.keep("key", Answer("yes"), "model")
    with start(tmp_path / "run") as run:
        assert run.done_keys() == {"a", "b"}
    with turn_of(tmp_path / "cache" / "model"):
        pass
    (answer,) = answers.find(["key"])
    assert answer is not None
    assert answer.text == "yes"
    (warning,) = caplog.messages
    assert "this file system has no locks" in warning
    assert "a run of its own" in warning
