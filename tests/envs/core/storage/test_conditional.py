"""Files that are written on condition: who comes second writes nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from parley.envs.core.errors import StorageError
from parley.envs.core.storage.conditional import ConditionalFile, ObstoreFile, conditional_file
from tests.envs.core.storage.remote import Bucket


def in_the_tests(name: str) -> ConditionalFile:
    Bucket("conditional")
    file = conditional_file(f"exact://conditional/{name}")
    assert file is not None
    return file


def in_memory(name: str) -> ConditionalFile:
    store = pytest.importorskip("obstore.store", reason="the extra storage is not installed")
    return ObstoreFile(store.MemoryStore(), f"memory:///{name}", name)


@pytest.mark.parametrize("made", [in_the_tests, in_memory])
def test_a_write_needs_the_version_that_was_read(made: Callable[[str], ConditionalFile]) -> None:
    file = made("folder/lease.json")
    assert file.read() is None
    first = file.put(b"one", None)
    assert first is not None
    assert file.put(b"two", None) is None
    assert file.read() == (b"one", first)
    second = file.put(b"three", first)
    assert second not in (None, first)
    assert file.put(b"four", first) is None
    assert file.read() == (b"three", second)


def test_a_store_without_such_writes_says_so(tmp_path: Path) -> None:
    store = pytest.importorskip("obstore.store", reason="the extra storage is not installed")
    file = ObstoreFile(store.LocalStore(str(tmp_path)), "file:///x", "x")
    version = file.put(b"one", None)
    assert version is not None
    with pytest.raises(StorageError, match="cannot be written on condition"):
        file.put(b"two", version)


@pytest.mark.parametrize("uri", ["file:///x/lease.json", "remote://x/lease.json", "gs://bucket/lease.json"])
def test_other_storage_has_none(uri: str) -> None:
    assert conditional_file(uri) is None


def test_without_the_extra_and_with_unknown_options_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert conditional_file("s3://bucket/lease.json?background_writes=true") is None
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    assert conditional_file("s3://bucket/lease.json") is None
