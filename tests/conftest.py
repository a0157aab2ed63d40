"""What all tests share: one Ray session, one thread, and the reasons for which tests of some marks are skipped."""

from __future__ import annotations

import gc
import importlib.util
import itertools
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from parley.engine.core.ray.session import RaySession, connect

# Before torch is loaded: the networks of the tests are too small to share out, and threads that wait cost most.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Ray starts its workers at niceness 15: they would get next to nothing of cores that other tests use, and be waited for.
os.environ.setdefault("RAY_worker_niceness", "0")
# A socket's address holds 107 bytes: in a long folder the clusters that tests start would have no room for theirs.
if len(os.environ.get("TMPDIR", "")) > 36:
    os.environ.setdefault("RAY_TMPDIR", "/tmp")
# A proxy of this machine's, where the surroundings name one, knows none of the servers that tests start.
os.environ["no_proxy"] = ",".join(["127.0.0.1", *filter(None, [os.environ.get("no_proxy", os.environ.get("NO_PROXY"))])])

# The machine of a test keeps its power: what is written need not reach the disk, which takes milliseconds each time.
os.fsync = lambda descriptor: None

PUBLISHED = os.environ.get("PARLEY_DATA", "")
"""The data root that this machine names; packages of tests take the variable away, for as long as they like."""

# Hypothesis allows an example 200 ms, and ten a second: the first may import something, any may wait for other processes.
# It draws the same examples in every run, so that what fails is what was changed; `--hypothesis-profile explore` draws others.
settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("parley", settings.get_profile("explore"), derandomize=True)
settings.load_profile("parley")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips, with the reason, what this machine cannot run, and begins with the files that start Ray.

    Those take longest: what is left for the end, when one process has nothing more to do, is short.
    """
    long = {item.path for item in items if item.get_closest_marker("ray")}
    items.sort(key=lambda item: item.path not in long)
    missing = {
        "data": "set PARLEY_DATA to a data root with the published corpora" if not PUBLISHED else "",
        "gpu": "needs a CUDA device" if any(item.get_closest_marker("gpu") for item in items) and not _has_cuda() else "",
    }
    for item in items:
        for mark, reason in missing.items():
            if reason and item.get_closest_marker(mark):
                item.add_marker(pytest.mark.skip(reason=reason))


def pytest_collectstart() -> None:
    """Looks for no garbage while modules are loaded: there is hardly any, and each time more to look through."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Sets what is loaded by now aside for good: who looks for garbage, as each training does, need not look through it."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def _published_data(request: pytest.FixtureRequest) -> None:
    """Lets tests of the mark `data` find the published corpora."""
    if request.node.get_closest_marker("data"):
        request.getfixturevalue("monkeypatch").setenv("PARLEY_DATA", PUBLISHED)


_numbers = itertools.count()


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder that no other test of the process has had, for some caches go by paths; it stays if the test fails.

    It is deleted before it reaches the disk: pytest keeps it for three runs, and a disk takes milliseconds for each file then.
    """
    name, num_failed = re.sub(r"\W", "_", request.node.name)[:26], request.session.testsfailed
    folder = tmp_path_factory.mktemp(f"{name}_{next(_numbers)}", numbered=False)
    yield folder
    if request.session.testsfailed == num_failed:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own, for one whose weights are kept there."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("PARLEY_CACHE", str(folder))
    return folder


def _has_cuda() -> bool:
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return torch.cuda.is_available()


@pytest.fixture(scope="session")
def ray_session() -> Iterator[RaySession]:
    """The one local Ray session of the tests; four logical CPUs, whatever the machine has."""
    with connect(num_cpus=4) as session:
        yield session


@pytest.fixture
def workers_here(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Runs with workers have hostile ones of this process, and need no Ray."""
    from tests.engine.core.ray.pool_here import PoolHere, put_in_place

    put_in_place(monkeypatch)
    yield
    assert PoolHere.most > 1, "one shard has no company"
