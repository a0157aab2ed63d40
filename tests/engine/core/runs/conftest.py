"""A bucket of object storage and a cache for each test, and no waiting."""

from __future__ import annotations

from pathlib import Path

import pytest

from parley.engine.core.runs import remote_sync as remote_lock
from parley.envs.corpora.arrow import CACHE_VARIABLE
from tests.envs.core.storage.remote import Bucket


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(remote_lock, "SETTLE_S", 0.0)
    return Bucket(tmp_path.name)


@pytest.fixture
def uri(bucket: Bucket) -> str:
    return f"remote://{bucket.name}/run"
