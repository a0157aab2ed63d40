"""`--log json`: every line on standard error is an object, whoever wrote it; standard output is as without it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from parley.engine.negotiation.verbs.agents import NO_JUDGE
from tests.engine.core.cli.conftest import Parley
from tests.engine.core.verbs.made_up import start_parley

ASKED = ("selfplay", "--dialogues", "8", "--set", "shard_size=2", "--run", "run", "--json")


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_job_ends_with_its_result_as_a_line(parley: Parley) -> None:
    outcome = parley(*ASKED, "--log", "json")
    said, *shards, result = objects(outcome.err)
    assert said["message"] == NO_JUDGE
    assert [line["shard"] for line in shards] == ["00000", "00001", "00002", "00003"]
    assert result["run"] == "run"
    assert result["job"] == "selfplay"
    assert result["metrics"] == json.loads(outcome.out)["metrics"]
    assert result["next"] == ["parley report run"]
    assert outcome.out == parley(*ASKED).out


def test_an_error_keeps_its_parts(parley: Parley) -> None:
    outcome = parley(*ASKED, "--log", "json", "--set", "temperature=-1")
    (line,) = objects(outcome.err)
    assert outcome.status == 2
    assert line["level"] == "error"
    assert "temperature" in str(line)
    assert line["got"] == "-1.0"


@pytest.mark.parametrize("form", [["xml"], []])
def test_another_form_is_an_error(parley: Parley, form: list[str]) -> None:
    outcome = parley("selfplay", "--log", *form)
    assert outcome.status == 2
    assert "--log takes one of text, json" in outcome.err


# That lines of actors come, and name their shard, is held by tests/engine/core/ray/test_logs.py.
@pytest.mark.ray
@pytest.mark.slow
def test_of_every_shard_there_is_a_line_that_names_its_worker(tmp_path: Path) -> None:
    with start_parley(*ASKED, "--workers", "1", "--log", "json", folder=tmp_path) as process:
        out, err = process.communicate(timeout=250)
    assert process.returncode == 0, err
    assert json.loads(out)["run"] == "run"
    worked = [line for line in objects(err) if "seconds" in line]
    assert sorted(line["shard"] for line in worked) == ["00000", "00001", "00002", "00003"]
    for line in worked:
        assert line.items() >= {"level": "info", "run": "run", "job": "selfplay", "items": 2}.items()
        assert line["first_item"] == f"{2 * int(line['shard']):06d}"
        assert line["pid"] != process.pid
