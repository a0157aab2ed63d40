"""Verbs with URIs in the place of folders, as a user types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from parley.engine.core.runs import remote_sync as remote_lock
from parley.envs.corpora.arrow import CACHE_VARIABLE
from tests.engine.core.cli.conftest import Parley


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(remote_lock, "SETTLE_S", 0.0)
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return f"file://{tmp_path}/store"


def test_a_run_at_a_uri_from_its_start_to_its_page(
    parley: Parley, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = parley(f"selfplay scripted --dialogues 5 --json --run {store}/selfplay")
    assert (played.status, json.loads(played.out)["run"]) == (0, f"{store}/selfplay")
    assert f"parley report {store}/selfplay" in played.err
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "other"))
    assert f"{store}/selfplay: selfplay" in parley(f"status {store}/selfplay").err
    (status,) = json.loads(parley(f"status {store} --json").out)["runs"]
    assert (status["run"], status["state"], status["pace"]["done"]) == (f"{store}/selfplay", "finished", 5)
    resumed = parley(f"resume {store}/selfplay")
    assert f"{store}/selfplay is finished: nothing is left to do" in resumed.err
    reported = parley(f"report {store}/selfplay --picture {store}/picture.png --json")
    assert json.loads(reported.out) == {"report": f"{store}/selfplay/report.html", "run": f"{store}/selfplay"}
    page = (tmp_path / "store" / "selfplay" / "report.html").read_text()
    assert str(tmp_path / "other") not in page
    assert (tmp_path / "store" / "picture.png").is_file()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("file")], "no folder is called file:"


def test_a_model_at_a_uri_is_attacked_and_talked_with(parley: Parley, store: str, checkpoints: tuple[str, str]) -> None:
    target, adversary = (f"{store.removesuffix('/store')}/{name}" for name in checkpoints)
    attacked = parley(f"attack rl --target {target} --speaker {adversary} --dialogues 3 --run {store}/attack")
    assert attacked.status == 0, attacked.err
    plugged = parley(f"attack transfer --speaker {target} --target {target} --dialogues 3 --set transfer.source={store}/attack")
    assert "transfer.min_advantage" in plugged.err or plugged.status == 0


def test_mistakes_in_uris_say_what_to_do(parley: Parley, store: str) -> None:
    for command, told in (
        ("status foo://bucket/runs", "names no storage"),
        (f"resume {store}/nothing", f"there is no run here\n  where: {store}/nothing"),
        ("selfplay scripted --run s3://key:hidden@bucket/run", "holds a password"),
        (f"selfplay --adversary {store}/nobody", "no agent is called"),
    ):
        outcome = parley(command)
        assert outcome.status == 2
        assert told in outcome.err
        assert "hidden" not in outcome.err
