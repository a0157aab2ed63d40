"""`--log json`: every line on standard error is an object, whoever wrote it; standard output is as without it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from parley.engine.negotiation.verbs.agents import NO_JUDGE
from tests.engine.core.cli.conftest import Parley

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
