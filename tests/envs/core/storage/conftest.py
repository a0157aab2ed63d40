"""A cache of one's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from parley.envs.corpora.arrow import CACHE_VARIABLE


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"
