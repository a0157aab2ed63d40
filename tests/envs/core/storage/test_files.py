"""Whole files at URIs: in a folder, and in object storage."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from parley.envs.core.errors import StorageError
from parley.envs.core.storage.files import delete, download, entries, put, read, sweep
from tests.envs.core.storage.remote import Bucket


@pytest.fixture(params=["file", "remote"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return f"file://{tmp_path}/store"
    Bucket(tmp_path.name)
    return f"remote://{tmp_path.name}/store"


def test_what_is_put_is_read_listed_and_deleted(place: str, tmp_path: Path) -> None:
    assert read(f"{place}/a.json") is None
    assert entries(place) == {}
    put(f"{place}/a.json", b"first")
    entry = put(f"{place}/a.json", b"second")
    put(f"{place}/below/b.json", b"")
    assert read(f"{place}/a.json") == b"second"
    assert read(f"{place}/below/b.json") == b""
    assert entries(place) == {"a.json": entry}
    assert entry.size == len(b"second")
    assert list(entries(place, recursive=True)) == ["a.json", "below/b.json"]
    download(f"{place}/a.json", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == b"second"
    delete(f"{place}/a.json")
    delete(f"{place}/a.json")


def test_a_put_that_breaks_leaves_what_was_there(tmp_path: Path) -> None:
    bucket = Bucket("breaks")
    put("remote://breaks/a", b"whole")
    bucket.room = 5
    with pytest.raises(StorageError, match=r"cannot be written(.|\n)*the connection was reset"):
        put("remote://breaks/a", b"much longer")
    assert read("remote://breaks/a") == b"whole"


def test_a_write_that_breaks_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    place = f"file://{tmp_path}/a"
    put(place, b"whole")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="make room there"):
        put(place, b"other")
    assert read(place) == b"whole"
    assert list(tmp_path.glob("*")) == [tmp_path / "a"]


def test_what_a_dead_writer_left_is_not_shown_and_swept(tmp_path: Path) -> None:
    left = tmp_path / "rows" / "part.0.writing"
    left.parent.mkdir()
    left.write_bytes(b"half")
    assert entries(f"file://{tmp_path}", recursive=True) == {}
    sweep(f"file://{tmp_path}")
    assert not left.exists()


@pytest.mark.parametrize(("uri", "told"), [("foo://bucket/a", "foo"), ("s3://a bucket/a", "parse")])
def test_an_unknown_kind_of_storage_names_those_there_are(uri: str, told: str) -> None:
    with pytest.raises(StorageError, match=rf"names no storage(.|\n)*{told}(.|\n)*s3, gs"):
        read(uri)


def test_storage_that_fsspec_knows_needs_no_more_than_a_prefix() -> None:
    put("fsspec+memory://bucket/runs/a.json", b"first")
    assert read("fsspec+memory://bucket/runs/a.json") == b"first"
    assert list(entries("fsspec+memory://bucket/runs")) == ["a.json"]
    delete("fsspec+memory://bucket/runs/a.json")
    assert read("fsspec+memory://bucket/runs/a.json") is None
