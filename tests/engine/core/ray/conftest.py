"""Where runs and their marks lie in the tests of what works on them."""

from __future__ import annotations

from pathlib import Path

import pytest

from parley.engine.core.runs import remote_sync as remote_lock
from parley.envs.corpora.arrow import CACHE_VARIABLE


@pytest.fixture
def settled(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of one's own, URIs that are there at once, and a Ray session where one is asked for."""
    if request.node.get_closest_marker("ray"):
        request.getfixturevalue("ray_session")
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(remote_lock, "SETTLE_S", 0.0)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A folder of marks."""
    folder = tmp_path / "log"
    folder.mkdir()
    return folder
