"""Local copies of models: the same as their URI before they are read, and copied no more often than that needs."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from parley.envs.core.errors import StorageError
from parley.envs.core.storage.copies import fetched_file, fetched_model
from parley.envs.core.storage.files import delete, put
from tests.envs.core.storage.remote import DENIED, Bucket

PARTS = ("config.json", "vocabulary.json", "weights.safetensors")


@pytest.fixture
def bucket(tmp_path: Path) -> Bucket:
    return Bucket(tmp_path.name)


def put_model(folder: str, content: str = "one") -> None:
    for part in PARTS:
        put(f"{folder}/{part}", f"{part} {content}".encode())


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.iterdir()) if path.is_file()}


def test_of_a_run_the_model_alone_is_copied(bucket: Bucket) -> None:
    run = f"remote://{bucket.name}/run"
    put_model(f"{run}/checkpoint")
    put(f"{run}/config.json", b"{}")
    put(f"{run}/rows/part-00000.parquet", b"rows")
    folder = fetched_model(run)
    assert contents(folder / "checkpoint") == {part: f"{part} one" for part in PARTS}
    assert contents(folder) == {}
    assert fetched_model(f"{run}/checkpoint") == folder / "checkpoint"
    assert sorted(bucket.keys("read")) == [f"run/checkpoint/{part}" for part in PARTS]


def test_another_model_at_the_uri_replaces_the_copy(bucket: Bucket) -> None:
    model = f"remote://{bucket.name}/model"
    put_model(model)
    put(f"{model}/extra.json", b"")
    fetched_model(model)
    put_model(model, "two")
    delete(f"{model}/extra.json")
    assert contents(fetched_model(model)) == {part: f"{part} two" for part in PARTS}


def test_a_copy_that_was_changed_here_is_not_believed(bucket: Bucket) -> None:
    model = f"remote://{bucket.name}/model"
    put_model(model)
    folder = fetched_model(model)
    # Of the same size.
    (folder / "config.json").write_text("config.json two")
    (folder / "stray").write_text("")
    assert contents(fetched_model(model)) == {part: f"{part} one" for part in PARTS}


def test_the_copy_of_a_run_that_is_being_written_here_is_left_alone(bucket: Bucket) -> None:
    model = f"remote://{bucket.name}/model"
    put_model(model)
    folder = fetched_model(model)
    (folder / "config.json").write_text("newer")
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert contents(fetched_model(model))["config.json"] == "newer"


def test_a_place_where_nothing_is_copies_nothing_and_removes_what_was(bucket: Bucket) -> None:
    model = f"remote://{bucket.name}/model"
    put_model(model)
    fetched_model(model)
    for part in PARTS:
        delete(f"{model}/{part}")
    assert contents(fetched_model(model)) == {}


def test_storage_that_cannot_be_read_is_an_error(bucket: Bucket) -> None:
    put_model(f"remote://{bucket.name}/model")
    bucket.refuse = lambda operation, key: DENIED if operation == "read" else None
    with pytest.raises(StorageError, match="cannot be read"):
        fetched_model(f"remote://{bucket.name}/model")


def test_a_single_file_is_copied_and_nothing_beside_it(bucket: Bucket) -> None:
    put_model(model := f"remote://{bucket.name}/model")
    path = fetched_file(f"{model}/config.json")
    assert contents(path.parent) == {"config.json": "config.json one"}
    put(f"{model}/config.json", b"config.json two")
    assert fetched_file(f"{model}/config.json").read_text() == "config.json two"
    assert fetched_file(f"{model}/config.json?scheme=http").read_text() == "config.json two"
    assert fetched_file("here.yaml") == Path("here.yaml")
    with pytest.raises(StorageError, match=r"no such file[\s\S]*best.yaml[\s\S]*config.json, vocabulary.json"):
        fetched_file(f"{model}/best.yaml")
