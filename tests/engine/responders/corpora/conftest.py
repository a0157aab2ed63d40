"""Compiled corpora of these tests lie in folders of their own, and no published ones are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.core.verbs.conftest import _small_machine, root, speaker, target, trainee  # noqa: F401  # fixtures


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARLEY_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PARLEY_DATA", raising=False)
