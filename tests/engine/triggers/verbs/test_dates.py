"""The date of a run: prompts of templates that print one stay those of the day it began."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs import checkpoints as dates
from parley.engine.core.verbs.checkpoints import date_of, dated
from parley.engine.core.verbs.job import Silent
from parley.engine.triggers.verbs.config import HuggingFaceSettings, ObjectiveSettings, TriggerConfig
from parley.engine.triggers.verbs.lessons import TrainHardenedConfig
from parley.engine.triggers.verbs.minmax import HardenTriggersConfig
from parley.engine.triggers.verbs.search import SEARCH
from parley.envs.core.errors import ConfigError
from parley.policies.chat import templates
from parley.policies.chat.local import load_local
from parley.policies.chat.settings import ChatModelSettings, WeightSettings
from tests.engine.core.verbs.made_up import rows
from tests.engine.triggers.verbs.searches import search, write_targets

pytest.importorskip("transformers", reason="the extra hugging-face is not installed")
from tests.policies.chat.tiny import saved

PRINTS_DATE = (
    "{{ ['oh', 'well', 'hello', 'there', 'how', 'what', 'fool'][strftime_now('%w') | int] }} "
    "{% for m in messages %}{{ m['content'] }} {% endfor %}</s> "
)
"""Another word each day of the week."""
SATURDAY, SUNDAY = "2026-11-28", "2026-11-29"


@pytest.fixture
def model(tmp_path: Path) -> str:
    return f"hf:{saved(tmp_path / 'model', PRINTS_DATE)}"


def on(day: str, patch: pytest.MonkeyPatch) -> None:
    """Set the clock."""

    class Today(date):
        @classmethod
        def today(cls) -> Today:
            return cls.fromisoformat(day)

    patch.setattr(dates, "date", Today)
    patch.setattr(templates, "date", Today)


def asked(tmp_path: Path, model: str, day: str = "") -> TriggerConfig:
    targets = write_targets(tmp_path, ("you are", "hello", "oh there"))
    settings = HuggingFaceSettings(length=3, date=day)
    return search(model, targets, objective=ObjectiveSettings(t_out=-2.0), hugging_face=settings, shard_size=1)


def found(path: Path) -> list[Any]:
    return [(row["trigger"], row["loss"], row["reply"]) for row in rows(path)]


def test_a_search_goes_by_its_date_whatever_the_clock_says(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for day in (SATURDAY, SUNDAY):
        on(day, monkeypatch)
        SEARCH.run(asked(tmp_path, model, SATURDAY), tmp_path / f"asked-{day}", Silent())
        SEARCH.run(asked(tmp_path, model), tmp_path / f"clock-{day}", Silent())
    saturday = found(tmp_path / f"asked-{SATURDAY}")
    assert found(tmp_path / f"asked-{SUNDAY}") == saturday == found(tmp_path / f"clock-{SATURDAY}")
    assert found(tmp_path / f"clock-{SUNDAY}") != saturday


@pytest.mark.parametrize("noted", [True, False])
def test_a_run_that_goes_on_another_day_keeps_its_date(
    noted: bool, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(SATURDAY, monkeypatch)
    path, config = tmp_path / "run", asked(tmp_path, model)
    SEARCH.run(config, path, Silent())
    before = found(path)
    assert json.loads((path / "environment.json").read_text())["date"] == SATURDAY == date_of(path)
    (path / "summary.json").unlink()
    sorted((path / "rows").iterdir())[1].unlink()
    if not noted:
        environment = json.loads((path / "environment.json").read_text())
        del environment["date"]
        (path / "environment.json").write_text(json.dumps(environment))
        log = (path / "events.jsonl").read_text().splitlines()
        first = json.loads(log[0]) | {"time": f"{SATURDAY}T09:00:00.000+00:00"}
        (path / "events.jsonl").write_text("\n".join([json.dumps(first), *log[1:], ""]))
    on(SUNDAY, monkeypatch)
    SEARCH.run(config, path, Silent())
    assert found(path) == before
    # What was asked for is what the run says, so that the same command goes on with it.
    assert RunFolder.load(path).config["hugging_face"]["date"] == ""


def test_every_setting_of_a_template_gets_the_date_but_where_one_was_asked_for() -> None:
    config = dated(replace(TriggerConfig(), chat=replace(TriggerConfig().chat, date=SUNDAY)), SATURDAY)
    assert (config.hugging_face.date, config.chat.date) == (SATURDAY, SUNDAY)
    assert dated(TrainHardenedConfig(), SATURDAY).date == SATURDAY
    campaign = dated(HardenTriggersConfig(), SATURDAY)
    assert campaign.hugging_face.date == SATURDAY
    plain = WeightSettings(date=SUNDAY)
    assert dated(plain, SATURDAY) is plain


def test_answers_are_kept_by_the_date_where_the_template_prints_it(model: str, tmp_path: Path) -> None:
    keys = [load_local(model, ChatModelSettings(date=day)).answers_depend_on for day in (SATURDAY, SUNDAY)]
    assert keys == [f" on {SATURDAY}", f" on {SUNDAY}"]
    other = f"hf:{saved(tmp_path / 'other')}"
    assert load_local(other, ChatModelSettings(date=SUNDAY)).answers_depend_on == ""


@pytest.mark.parametrize("day", ["28.11.2026", "20261128", "2026-13-01", "today"])
def test_a_date_is_an_iso_date(day: str) -> None:
    with pytest.raises(ConfigError, match="2026-11-28"):
        WeightSettings(date=day)
