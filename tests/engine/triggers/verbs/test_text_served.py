"""Searches of a model behind a server: failures and workers change no row, and nothing is asked twice."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.job import ATTACK, USAGE, Silent
from parley.engine.triggers.methods.evolution import EvolutionSettings
from parley.engine.triggers.success import SuccessSettings
from parley.engine.triggers.verbs.config import TextSearchConfig
from parley.engine.triggers.verbs.methods import SEARCH_METHODS, MethodsConfig
from parley.engine.triggers.verbs.text_search import SEARCH_TEXT
from parley.engine.triggers.verbs.transfer import SEARCH_TRANSFER, TriggerTransferConfig
from parley.policies.chat.settings import ChatAsking
from tests.engine.core.verbs.made_up import rows
from tests.policies.chat.fake_server import Said, completion, serving

TARGET = "hello there"
PAIRS = f"goal,target\nbeg,{TARGET}\nnever,{TARGET}\nask,{TARGET}\n"
EVOLVED = EvolutionSettings(num_words=4, population=6, max_queries=24)
CHAT = ChatAsking(timeout_s=60)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ChatAsking, "first_wait_s", 0.01)
    monkeypatch.setattr(ChatAsking, "longest_wait_s", 0.05)


def begged(body: dict[str, Any]) -> bytes:
    """The more of the target, the more often it is begged; drawn replies follow from their seed."""
    words = body["messages"][-1]["content"].split()
    if "never" in words:
        return completion("no")
    if body.get("temperature"):
        return completion(TARGET if body["seed"] % 2 else "no")
    return completion(TARGET[: 2 + 3 * sum(words.count(word) for word in ("please", "kindly"))])


class Moody:
    """A server that is busy, cut, or says a page, at the first time that something is asked."""

    def __init__(self) -> None:
        self.times = Counter[str]()

    def __call__(self, number: int, body: dict[str, Any]) -> Said:
        asked = str(sorted(body.items()))
        self.times[asked] += 1
        good = begged(body)
        if self.times[asked] > 1 or len(asked) % 4 == 0:
            return Said(good)
        bad = (Said(b"busy", 429, {"Retry-After": "0"}), Said(good, promised=len(good) + 9), Said(b"<html>hi</html>", 503))
        return bad[len(asked) % 4 - 1]


def asked(tmp_path: Path, model: str, **changes: Any) -> TextSearchConfig:
    (tmp_path / "pairs.csv").write_text(PAIRS)
    (tmp_path / "words.txt").write_text("please kindly w1 w2 w3 w4")
    named = {"targets": str(tmp_path / "pairs.csv"), "words": str(tmp_path / "words.txt")}
    return TextSearchConfig(model=model, search=EVOLVED, success=SuccessSettings(samples=4), chat=CHAT, **named, **changes)


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=[pytest.mark.ray, pytest.mark.slow])])
def test_rows_depend_on_no_failure_and_on_no_worker(tmp_path: Path, workers: int) -> None:
    with serving(lambda number, body: Said(begged(body))) as server:
        whole = asked(tmp_path, server.name)
        SEARCH_TEXT.run(whole, tmp_path / "whole", Silent())
    moody = Moody()
    with serving(moody) as server:
        config = replace(whole, model=server.name, workers=workers, shard_size=1)
        SEARCH_TEXT.run(config, tmp_path / "run", Silent())
        SEARCH_TEXT.run(config, tmp_path / "run", Silent())
    found = rows(tmp_path / "run")
    assert found == rows(tmp_path / "whole")
    assert [row["verified"] for row in found] == [True, False, True]
    assert all(0 < row["sampled"] < 4 for row in found if row["verified"])
    summary = RunFolder.load(tmp_path / "run").summary() or {}
    assert summary[ATTACK]["victim"] == f"{server.name}, shows text"
    assert summary[USAGE]["asked"] == len(moody.times)
    assert set(moody.times.values()) == {1, 2}, "once more after a failure, and never again"


def moderated(number: int, body: dict[str, Any]) -> Said:
    """Some texts are stopped before the model reads them, in two forms, and some answers behind it."""
    words = body["messages"][-1]["content"].split()
    if "w1" in words:
        error = {"message": "Your input was flagged", "code": 403, "metadata": {"reasons": ["hate"]}}
        return Said(json.dumps({"error": error}).encode(), 403)
    if "w2" in words:
        error = {"message": "The response was filtered", "code": "content_filter", "param": "prompt"}
        return Said(json.dumps({"error": error}).encode(), 400)
    return Said(completion(TARGET, "content_filter") if "w3" in words else begged(body))


def test_what_moderation_stops_is_asked_once_and_the_search_goes_on(tmp_path: Path) -> None:
    with serving(moderated) as server:
        config = asked(tmp_path, server.name)
        result = SEARCH_TEXT.run(config, tmp_path / "run", Silent())
        num_asked = len(server.asked)
    found = rows(tmp_path / "run")
    assert [row["status"] for row in found] == ["ok"] * 3
    assert any(row["verified"] for row in found)
    assert all(row["queries"] > 1 and row["kind"] == "reply" for row in found), "each search goes on to an input with a reply"
    stopped = sum(each["answers"] for row in found for each in row["no_replies"])
    assert {each["kind"] for row in found for each in row["no_replies"]} == {"filtered"}
    assert 0 < stopped == result.metrics["no_reply.filtered"].value
    assert all(not {"w1", "w2", "w3"} & set(row["trigger"].split()) for row in found if row["verified"])
    assert not result.failure, "what moderation stops is an outcome of an attack"
    summary = RunFolder.load(tmp_path / "run").summary() or {}
    assert summary[USAGE]["asked"] == num_asked, "nothing is asked twice"
    assert 0 < summary[USAGE]["kinds"]["filtered"] <= stopped, "an input that both come upon is known"


def test_what_a_served_model_was_made_to_say_is_typed_to_another_one(tmp_path: Path) -> None:
    with serving(lambda number, body: Said(begged(body))) as one, serving(lambda number, body: Said(begged(body))) as other:
        config = MethodsConfig(
            model=one.name,
            targets=asked(tmp_path, one.name).targets,
            words=str(tmp_path / "words.txt"),
            method="evolution,evolution[evolution.mutation=0.5]",
            budget="24",
            evolution=replace(EVOLVED, max_queries=200),
            chat=CHAT,
        )
        SEARCH_METHODS.run(config, tmp_path / "table", Silent())
        models = f"{one.name},{other.name.replace('#fake', '#other')}"
        typed = TriggerTransferConfig(searches=str(tmp_path / "table"), model=models, chat=CHAT)
        result = SEARCH_TRANSFER.run(typed, tmp_path / "typed", Silent())
    for line in config.lines:
        told = [row for row in rows(tmp_path / "table" / line.folder) if row["verified"]]
        assert told
        for model in ("fake", "other"):
            rate = result.metrics[f"table, {line.label} | {model} | verified"]
            assert (rate.value, rate.n) == (1.0, len(told))
            assert result.metrics[f"table, {line.label} | {model} | empty"].value == 0.0
