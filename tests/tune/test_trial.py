"""A trial that is done again, while what became of its first process is not known yet."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from engine.runtime.session import RaySession
from engine.store.lease import STALE_S
from envs.data.root import CACHE_VARIABLE
from envs.storage.files import put
from envs.storage.places import local_copy
from tests.tune.plans import SMALL
from tune.trial import Setup, measure

pytestmark = pytest.mark.ray


def test_it_waits_on_another_machine_until_the_lease_of_a_lost_one_runs_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ray_session: RaySession
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    uri = f"file://{tmp_path}/bucket/trial"
    left_s = 3.0
    lost = {"holder": "process 7 on node-3", "token": "theirs", "under": "elsewhere", "time": time.time() - STALE_S + left_s}
    put(f"{uri}/0/lease.json", json.dumps(lost).encode())
    started = time.time()
    setup = Setup(plan=SMALL, base=SMALL.base("", 0), budgets=(4,), repeats=1, seed=1, run=uri, folder=tmp_path)
    found = measure({"adversary": "scripted", "max_turns": 8}, setup, 4, local_copy(uri))
    assert found.n == 4
    assert time.time() - started >= left_s
