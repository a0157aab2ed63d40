"""JSON lines: what is in them, and that they end when they should."""

from __future__ import annotations

import json
import logging
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from parley.engine.core.ray import logs
from parley.engine.core.ray.worker import attempt, make_shards
from tests.engine.core.ray.own_cluster import ROOT, surroundings

LOGGER = logging.getLogger("parley.anything")
TALKS = """
import logging, sys, time
from pathlib import Path
from parley.engine.core.ray import logs

folder = Path(sys.argv[1])

class Talks:
    def run(self, shard):
        logging.getLogger("parley.talks").info("at work on %d", len(shard))
        tired_at = time.monotonic() + 200
        while not (folder / shard.name).exists():
            assert time.monotonic() < tired_at, "nobody hears"
            time.sleep(0.05)
        return len(shard)

with logs.json_lines(), logs.metadata(run="runs/a"):
    from parley.engine.core.ray.pool import run_sharded
    from parley.engine.core.ray.session import connect
    from parley.engine.core.ray.worker import make_shards
    shards = make_shards({key: key for key in "abcd"}, 2)
    with connect(num_cpus=2):
        run_sharded(Talks, (), shards, num_workers=2, on_result=lambda shard, result: None)
"""
"""Each worker ends its shard when a file says that its line has come."""


Captured = pytest.CaptureFixture[str]


def lines(capsys: Captured) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_a_line_says_when_what_and_about_which_run(capsys: Captured) -> None:
    with logs.json_lines(), logs.metadata(run="runs/a", job="search"):
        with logs.metadata(shard="00007"):
            LOGGER.info("done: %d", 3, extra={"items": 4})
        LOGGER.warning("two\nlines")
    first, second = lines(capsys)
    assert first.pop("time").endswith("+00:00")
    about = {"logger": "parley.anything", "run": "runs/a", "job": "search"}
    assert first == {"level": "info", "message": "done: 3", "shard": "00007", "items": 4, **about}
    assert second.items() >= {"level": "warning", "message": "two\nlines", **about}.items()
    assert "shard" not in second


def test_a_traceback_is_a_field(capsys: Captured) -> None:
    with logs.json_lines():
        try:
            raise ZeroDivisionError("no luck")
        except ZeroDivisionError:
            LOGGER.exception("broken")
    (line,) = lines(capsys)
    assert line["traceback"].endswith("ZeroDivisionError: no luck")


def test_afterwards_all_is_as_before(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_DEDUP_LOGS", "1")
    handlers, level = list(logging.getLogger().handlers), logging.getLogger("parley").level
    with logs.json_lines():
        assert logs.is_json()
        assert os.environ["RAY_DEDUP_LOGS"] == "0"
        logging.getLogger("other").info("of no concern")
    assert not logs.is_json()
    assert os.environ["RAY_DEDUP_LOGS"] == "1"
    assert "RAY_DISABLE_WORKER_LOG_PREFIX" not in os.environ
    assert logging.getLogger().handlers == handlers
    assert logging.getLogger("parley").level == level
    LOGGER.info("nobody listens")
    assert capsys.readouterr().err == ""


class Fails:
    def run(self, shard: Any) -> None:
        LOGGER.warning("look here")
        raise ZeroDivisionError("no luck")


def test_what_a_worker_says_names_its_shard(capsys: Captured) -> None:
    (shard,) = make_shards({key: key for key in "abc"}, 4)
    with logs.json_lines(), logs.metadata(run="runs/a", job="search"):
        attempt(Fails(), shard)
        travels = pickle.loads(pickle.dumps(logs.settings()))  # noqa: S301 - as Ray hands it to a worker.
    assert travels == logs.LogSettings(True, {"run": "runs/a", "job": "search"})
    (line,) = lines(capsys)
    assert line["message"] == "look here"
    assert line.items() >= {"run": "runs/a", "shard": "00000", "first_item": "a", "last_item": "c"}.items()


@pytest.mark.ray
def test_lines_of_workers_come_while_they_work_and_name_their_shard(tmp_path: Path) -> None:
    said, command = [], [sys.executable, "-c", TALKS, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, env=surroundings(tmp_path)) as process:
        assert process.stderr is not None
        for line in process.stderr:
            said.append(json.loads(line))
            if said[-1]["logger"] == "parley.talks":
                (tmp_path / said[-1]["shard"]).touch()
    assert process.returncode == 0
    theirs = [line for line in said if line["logger"] == "parley.talks"]
    ours = [line for line in said if line["message"].endswith("is done")]
    assert sorted(line["shard"] for line in theirs) == sorted(line["shard"] for line in ours) == ["00000", "00001"]
    for line in theirs:
        assert line.items() >= {"level": "info", "message": "at work on 2", "run": "runs/a"}.items()
    assert {(line["shard"], line["node"], line["pid"]) for line in theirs} == {
        (line["shard"], line["node"], line["pid"]) for line in ours
    }
