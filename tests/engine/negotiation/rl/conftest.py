"""The world in which all trainings of this folder take place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from parley.engine.core.ray.session import RaySession
from parley.envs.corpora.arrow import CACHE_VARIABLE
from tests.engine.negotiation.rl.trainings import Built, World


@pytest.fixture(scope="package", autouse=True)
def _one_thread() -> Iterator[None]:
    """As many as an actor of one CPU has: sums of gradients differ in the last digit with the number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="package")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("world")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CACHE_VARIABLE, str(folder / "cache"))
        yield World(folder)


@pytest.fixture
def built(ray_session: RaySession) -> Iterator[Built]:
    """Builds the algorithms of settings, and stops them after the test."""
    found: list[Any] = []

    def build(settings: Any) -> Any:
        found.append(settings.build_algo())
        return found[-1]

    yield build
    for algorithm in found:
        algorithm.stop()
