"""One writer for a run at a URI, whatever becomes of the last one."""

from __future__ import annotations

import json
import os
import threading
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


@pytest.fixture
def exact(uri: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A run at storage with conditional writes, where nobody waits."""
    monkeypatch.setattr(remote_lock, "_WATCH_S", 0.01)
    monkeypatch.setattr(remote_lock, "STALE_S", 0.2)
    monkeypatch.setattr(remote_lock, "SETTLE_S", float("nan"))
    return uri.replace("remote://", "exact://")


def test_of_many_that_begin_at_once_one_writes_and_no_clock_decides(
    exact: str, lock: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each one's clock says that all leases of the others ran out long ago."""
    monkeypatch.setattr(remote_lock, "_is_fresh", lambda lease: False)
    monkeypatch.setattr(remote_lock, "RENEW_S", 0.02)
    taken, refused = list[Lease](), list[RunError]()

    def begin(number: int) -> None:
        try:
            taken.append(Lease(exact, lock(str(number))))
        except RunError as error:
            refused.append(error)

    threads = [threading.Thread(target=begin, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(taken), len(refused)) == (1, 7)
    taken[0].check()
    taken[0].release()
    Lease(exact, lock("next")).release()


@pytest.mark.parametrize("hours", [-3, 3])
def test_a_holder_whose_clock_is_wrong_keeps_its_lease_while_it_lives(
    exact: str, lock: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    monkeypatch.setattr(remote_lock, "RENEW_S", 0.02)
    with monkeypatch.context() as patch:
        patch.setattr(remote_lock.time, "time", lambda: 1.7e9 + 3600 * hours)
        held = Lease(exact, lock("a"))
        patch.setattr(remote_lock.time, "time", lambda: 1.7e9)
        with pytest.raises(RunError, match="another process is writing this run"):
            Lease(exact, lock("b"))
        held.check()
        held.release()
        assert keeper_of(local_copy(exact)) is None
        Lease(exact, lock("b")).release()


@pytest.mark.parametrize("hours", [-3, 3])
def test_a_lease_that_nobody_renews_is_free_whatever_its_time(exact: str, lock: Callable[[str], Path], hours: int) -> None:
    other(exact, time=time.time() + 3600 * hours)
    before = time.monotonic()
    taken = Lease(exact, lock("a"))
    assert time.monotonic() - before >= remote_lock.STALE_S
    taken.check()
    taken.release()


def test_one_that_was_replaced_finds_out_and_writes_nothing_over_it(
    exact: str, lock: Callable[[str], Path], bucket: Bucket
) -> None:
    held = Lease(exact, lock("a"))
    other(exact)
    theirs = read(f"{exact}/lease.json")
    held._renew()
    with pytest.raises(RunError, match="process 7 on node-3"):
        held.check()
    held.release()
    assert read(f"{exact}/lease.json") == theirs


def test_an_answer_that_was_lost_does_not_look_like_another_holder(
    exact: str, lock: Callable[[str], Path], bucket: Bucket
) -> None:
    held = Lease(exact, lock("a"))
    content = read(f"{exact}/lease.json")
    assert content is not None
    put(f"{exact}/lease.json", content)
    held._renew()
    held.check()
    held._renew()
    held.check()
    held.release()


def test_storage_that_ignores_conditions_is_locked_by_clocks(
    exact: str, lock: Callable[[str], Path], bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_lock, "SETTLE_S", 0.0)
    monkeypatch.setattr(remote_lock, "STALE_S", 90.0)
    bucket.keeps_conditions = False
    held = Lease(exact, lock("a"))
    assert held._file is None
    with pytest.raises(RunError, match="another process is writing this run"):
        Lease(exact, lock("b"))
    held.release()
    assert read(f"{exact}/lease.json") is None
