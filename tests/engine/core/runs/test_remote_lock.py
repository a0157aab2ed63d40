"""One writer for a run at a URI, whatever becomes of the last one."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from parley.engine.core.runs import remote_sync as remote_lock
from parley.engine.core.runs.remote_sync import STALE_S, Lease, RunLock, keeper_of, process_name
from parley.envs.core.errors import RunError, StorageError
from parley.envs.core.storage.copies import LOCK
from parley.envs.core.storage.files import put, read
from parley.envs.core.storage.uris import local_copy
from tests.envs.core.storage.remote import DENIED, Bucket


@pytest.fixture
def lock(tmp_path: Path) -> Callable[[str], Path]:
    """The lock files of machines."""

    def of(machine: str) -> Path:
        path = tmp_path / machine
        path.touch()
        return path

    return of


def other(uri: str, **changes: Any) -> None:
    """Another machine's lease."""
    content = {"holder": "process 7 on node-3", "token": "theirs", "under": "elsewhere", "time": time.time()}
    put(f"{uri}/lease.json", json.dumps(content | changes).encode())


def test_a_second_writer_is_refused_by_the_name_of_the_first(uri: str, lock: Callable[[str], Path]) -> None:
    first = Lease(uri, lock("a"))
    assert keeper_of(local_copy(uri)) == process_name()
    with pytest.raises(RunError, match=rf"another process is writing(.|\n)*where: {uri}(.|\n)*process {os.getpid()} on"):
        Lease(uri, lock("b"))
    first.release()
    assert keeper_of(local_copy(uri)) is None
    Lease(uri, lock("b")).release()


def test_a_lease_that_ran_out_is_nobodys(uri: str, lock: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    monkeypatch.setattr(remote_lock.time, "time", lambda: now)
    other(uri, time=time.time() - STALE_S + 30)
    with pytest.raises(RunError, match=r"process 7 on node-3, heard of 60 s ago(.|\n)*try again in 30 s"):
        Lease(uri, lock("a"))
    other(uri, time=time.time() - STALE_S)
    assert keeper_of(local_copy(uri)) is None
    taken = Lease(uri, lock("a"))
    assert keeper_of(local_copy(uri)) == process_name()
    taken.release()


def test_the_lease_of_one_that_died_here_is_free_at_once(uri: str, lock: Callable[[str], Path]) -> None:
    """Whoever holds the lock under which a lease was taken knows that its holder is dead."""
    dead = Lease(uri, lock("a"))
    Lease(uri, lock("a")).release()
    dead._renew()
    with pytest.raises(RunError, match="one that has ended since"):
        dead.check()
    dead.release()


def test_who_keeps_a_machine_out_of_a_run_that_it_may_not_have_seen_yet(uri: str) -> None:
    copy = local_copy(uri)
    assert keeper_of(copy) is None
    other(uri)
    assert keeper_of(copy) == "process 7 on node-3"
    other(uri, time=time.time() - STALE_S)
    assert keeper_of(copy) is None


def test_nobody_keeps_a_machine_out_whose_own_process_died(uri: str) -> None:
    copy = local_copy(uri)
    copy.mkdir(parents=True)
    held = RunLock(copy / LOCK)
    lease_of_the_dead = Lease(uri, copy / LOCK)
    assert keeper_of(copy) == process_name()
    held.release()
    assert keeper_of(copy) is None
    lease_of_the_dead.release()


def test_of_two_that_begin_at_once_one_goes_on(uri: str, lock: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_lock.time, "sleep", lambda seconds: other(uri))
    with pytest.raises(RunError, match="process 7 on node-3"):
        Lease(uri, lock("a"))
    content = read(f"{uri}/lease.json")
    assert content is not None
    assert json.loads(content)["token"] == "theirs"


def test_a_holder_renews_and_finds_out_that_it_was_replaced(
    uri: str, lock: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_lock, "RENEW_S", 0.02)
    held = Lease(uri, lock("a"))
    first = read(f"{uri}/lease.json")
    until(lambda: read(f"{uri}/lease.json") != first)
    held.check()
    other(uri)
    # It may just be renewing over it, as one that was never cut off does.
    until(lambda: held._taken_by is not None or other(uri))
    with pytest.raises(RunError, match="process 7 on node-3"):
        held.check()
    held.release()
    assert keeper_of(local_copy(uri)) == "process 7 on node-3"


def test_a_lease_that_runs_out_while_storage_is_away_stops_its_holder(
    uri: str, lock: Callable[[str], Path], bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Lease(uri, lock("a"))
    bucket.refuse = lambda operation, key: DENIED
    held.check()
    monkeypatch.setattr(remote_lock, "STALE_S", 0.0)
    with pytest.raises(StorageError):
        held.check()
    held.release()
    bucket.refuse = lambda operation, key: None
    assert read(f"{uri}/lease.json") is not None


def test_storage_without_rights_says_so_before_anything(uri: str, lock: Callable[[str], Path], bucket: Bucket) -> None:
    bucket.refuse = lambda operation, key: DENIED if operation == "put" else None
    with pytest.raises(StorageError, match="ACCESS_DENIED"):
        Lease(uri, lock("a"))


@pytest.mark.parametrize("content", [b"", b"[]", b"7", b'{"time": []}', b'{"time": "x", "holder": 1, "token": 2, "under": 3}'])
def test_a_damaged_lease_is_an_error(uri: str, lock: Callable[[str], Path], content: bytes) -> None:
    put(f"{uri}/lease.json", content)
    with pytest.raises(RunError, match=r"damaged(.|\n)*lease\.json(.|\n)*delete it"):
        Lease(uri, lock("a"))


def until(true: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)
