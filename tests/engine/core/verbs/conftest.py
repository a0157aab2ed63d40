"""A cache of their own for the tests of jobs, and small worlds for them to work in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from parley.envs.corpora.arrow import CACHE_VARIABLE, DATA_VARIABLE
from tests.engine.core.verbs.made_up import corpus_vocabulary, data_root, save_negotiator


@pytest.fixture(scope="package", autouse=True)
def _small_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One thread for networks this small, and no corpus but those that the tests name."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CACHE_VARIABLE, str(tmp_path_factory.getbasetemp() / "cache"))
        patch.delenv(DATA_VARIABLE, raising=False)
        yield
    torch.set_num_threads(before)


@pytest.fixture(scope="package")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data root with the made-up corpus."""
    return data_root(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="package")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random negotiator that speaks with scripted bargainers."""
    return save_negotiator(tmp_path_factory.mktemp("target") / "checkpoint", seed=1)


@pytest.fixture(scope="package")
def speaker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another one."""
    return save_negotiator(tmp_path_factory.mktemp("speaker") / "checkpoint", seed=2)


@pytest.fixture(scope="package")
def trainee(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Path:
    """A random negotiator of the made-up corpus' words."""
    return save_negotiator(tmp_path_factory.mktemp("trainee") / "checkpoint", seed=3, vocabulary=corpus_vocabulary(root))
