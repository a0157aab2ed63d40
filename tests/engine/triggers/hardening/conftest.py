"""A GPT-2 that is made here, pairs, and what a search has found on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.core.verbs.conftest import _small_machine, root, speaker, target, trainee  # noqa: F401  # fixtures
from tests.engine.triggers.hardening.made_up import write_search
from tests.policies.small_gpt2 import TRIGGERS as TRIGGERS_FOUND
from tests.policies.small_gpt2 import said, save_gpt2, write_pairs


@pytest.fixture(scope="package")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_gpt2(tmp_path_factory.mktemp("gpt2") / "model")


@pytest.fixture(scope="package")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pairs(tmp_path_factory.mktemp("pairs") / "corpus")


@pytest.fixture(scope="package")
def search(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Path:
    found = dict(zip(TRIGGERS_FOUND, said(folder, TRIGGERS_FOUND), strict=True))
    assert len(set(found.values())) >= 5, "a model that reads what it is told"
    return write_search(tmp_path_factory.mktemp("found") / "search", found)
