"""Rounds of hardening against triggers, on a GPT-2 that is made here."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from parley.engine.core.page.page import collect_run
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.known import BEFORE
from parley.engine.core.verbs.job import Silent, flat
from parley.engine.triggers.methods.settings import SearchSettings, SearchSizes
from parley.engine.triggers.page import HardenedModels
from parley.engine.triggers.success import SuccessRule
from parley.engine.triggers.verbs.config import PromptSettings
from parley.engine.triggers.verbs.lessons import TriggerResult, thinned
from parley.engine.triggers.verbs.minmax import (
    MINMAX_TRIGGERS,
    CampaignLessons,
    HardenTriggersConfig,
    RecipeSettings,
    TriggersCampaign,
)
from parley.envs.core.config import from_dict, to_dict
from parley.envs.core.errors import ConfigError

pytest.importorskip("transformers", reason="the extra hugging-face is not installed")

from tests.engine.core.page.pages import page_of
from tests.policies.small_gpt2 import TRIGGERS, said, save_gpt2, write_pairs


@pytest.fixture
def config(tmp_path: Path) -> HardenTriggersConfig:
    folder = save_gpt2(tmp_path / "model")
    targets = tmp_path / "targets.txt"
    targets.write_text("\n".join(sorted(set(said(folder, TRIGGERS)))[:6]) + "\n")
    return HardenTriggersConfig(
        model=f"hf:{folder}",
        targets=str(targets),
        rounds=2,
        search=SearchSizes(candidates=8, restarts=2, max_sweeps=2),
        hugging_face=PromptSettings(length=3),
        hardening=CampaignLessons(
            found="all",
            method="full",
            reply="sorry no",
            clean="recorded",
            corpus=str(write_pairs(tmp_path / "corpus")),
            max_tokens=4,
            fit=RecipeSettings(learning_rate=1e-2, max_epochs=2),
        ),
    )


def test_each_model_is_searched_anew_beside_the_control(tmp_path: Path, config: HardenTriggersConfig) -> None:
    path = tmp_path / "run"
    result = MINMAX_TRIGGERS.run(config, path, Silent())
    table, known, rounds = result.tables.values()
    assert [row[0] for row in rounds.rows] == ["0", "1", "2"]
    assert [row[0] for row in table.rows] == ["start", "round-1", "round-2", "control"]
    searches = {name: RunFolder.load(path / f"search-{name}") for name in ("start", "round-1", "round-2", "control")}
    trained = {name: RunFolder.load(path / f"hardened-{name}") for name in ("round-1", "round-2", "control")}
    for name, run in searches.items():
        assert result.metrics[f"{name}.adaptive"] == run.metrics()["hit_rate.o-greedy"]
        assert run.config["model"] == (config.model if name == "start" else f"hf:{path}/hardened-{name}")
    # The last round and the control learn from all searches before, and begin with the start.
    found = f"{path}/search-start,{path}/search-round-1"
    assert [trained[name].config["searches"] for name in ("round-2", "control")] == [found, found]
    assert {run.config["model"] for run in trained.values()} == {config.model}
    assert [run.config["control"] for run in trained.values()] == [False, False, True]
    counts = [(run.summary() or {})["lessons"] for run in trained.values()]
    assert counts[2]["trigger"] == 0
    assert sum(counts[2].values()) == sum(counts[1].values()), "as long"
    assert result.metrics["start.clean_nll"] == trained["round-1"].metrics()["clean_nll" + BEFORE]
    assert result.metrics["round-2.trigger_nll"].value < result.metrics["control.trigger_nll"].value
    assert MINMAX_TRIGGERS.run(config, path, Silent()).metrics == result.metrics
    assert [row[0] for row in known.rows] == [
        *("start", "round-1", "round-2", "control", "no input", "best by itself, in other items", "exploitability")
    ]
    report = collect_run(path)
    verdict = HardenedModels().verdict(report.found[HardenedModels.name])
    assert verdict is not None
    assert verdict.sentence.startswith("The best of all known inputs makes the hardened model say ")
    assert verdict.details[-1].startswith(("Best of 5 known adversaries by itself: ", "None of 5 known "))
    # The round for whose model its own search found fewest targets.
    summary = RunFolder.load(path).summary() or {}
    found_anew = {name: result.metrics[f"{name}.adaptive"].value for name in ("round-1", "round-2")}
    best = min(found_anew, key=lambda name: found_anew[name])
    assert summary["result"] in ("round-1", "round-2")
    if all(result.metrics[f"{name}.clean_refused"].value <= 0.2 for name in found_anew):
        assert summary["result"] == best
    assert verdict.marks == {name: result.metrics[f"{name}.exploitability"] for name in ("start", "control", summary["result"])}
    assert "any known input" in page_of(report)
    # What all searches found was typed to all models.
    rows = RunFolder.load(path / "known").read_rows().to_pylist()
    names = ("start", "round-1", "round-2", "control")
    assert {row["source"] for row in rows} == {*(f"search-{name}" for name in names), "no input"}
    for name, label in zip(names, ("model", "hardened-round-1", "hardened-round-2", "hardened-control"), strict=True):
        of_model = [row for row in rows if row["model"] == label]
        targets = {row["target"] for row in of_model}
        reached = {row["target"] for row in of_model if row["verified"]}
        assert result.metrics[f"{name}.exploitability"].value == pytest.approx(len(reached) / len(targets))
        assert result.metrics[f"{name}.exploitability"].n == len(targets)


def test_a_prompt_that_is_written_out_is_typed_to_no_other_model(config: HardenTriggersConfig, tmp_path: Path) -> None:
    assert "known" in campaign_of(config, tmp_path / "typed").last(2)
    written = replace(config, hugging_face=replace(config.hugging_face, template="who sees {} now"))
    assert "known" not in campaign_of(written, tmp_path / "written").last(2)
    with pytest.raises(ConfigError, match="typed to every model"):
        replace(written, meta="nash")


def campaign_of(config: HardenTriggersConfig, path: Path) -> TriggersCampaign:
    """A campaign of which two rounds are measured."""
    with RunFolder.open(path / "run", config, job="minmax-triggers") as run:
        for number in range(3):
            run.event("round", number=number, estimates={})
    return TriggersCampaign(config, path / "run")


def test_inputs_are_typed_to_models_as_they_were_searched(
    config: HardenTriggersConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(config, hugging_face=replace(config.hugging_face, dtype="bfloat16"), success=SuccessRule(by="exact"))
    monkeypatch.chdir(tmp_path)
    _, asked = campaign_of(config, Path("runs/x")).last(2)["known"]
    assert (asked.chat.dtype, asked.success.by, asked.found, asked.limit) == ("bfloat16", "exact", "all", 0)
    assert (
        asked.model
        == f"{config.model},hf:runs/x/run/hardened-round-1,hf:runs/x/run/hardened-round-2,hf:runs/x/run/hardened-control"
    )


def test_only_what_has_weights_here_is_hardened(tmp_path: Path, config: HardenTriggersConfig) -> None:
    with pytest.raises(ConfigError, match="hf:FOLDER"):
        MINMAX_TRIGGERS.run(replace(config, model="runs/seq2seq"), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()


def test_settings_that_became_constants_are_few_enough_and_read(config: HardenTriggersConfig) -> None:
    assert len(flat(to_dict(HardenTriggersConfig()))) <= 40
    earlier = to_dict(config) | {"strict": False, "chat": {"timeout_s": 60.0}}
    earlier["search"] |= {"buffer": 0, "pez": {"learning_rate": 0.1}}
    assert from_dict(HardenTriggersConfig, earlier) == config
    searched = config.searched(config.model)
    assert searched.search == SearchSettings(candidates=8, restarts=2, max_sweeps=2)
    with pytest.raises(ConfigError, match=r"search\.buffer is no setting any more: it is always 0"):
        from_dict(HardenTriggersConfig, {"search": {"buffer": 3}})


def test_a_mixture_thins_the_triggers_of_a_search(config: HardenTriggersConfig) -> None:
    triggers = [
        TriggerResult(f"{run}:{number}", "words", "target")
        for run in ("search-start", "search-round-1")
        for number in range(200)
    ]
    runs = ("runs/x/search-start", "runs/x/search-round-1")
    kept = Counter(trigger.key.partition(":")[0] for trigger in thinned(triggers, runs, (0.2, 0.8), 1))
    assert kept["search-round-1"] == 200
    assert 30 <= kept["search-start"] <= 70, "a quarter of the largest weight"
    assert thinned(triggers, runs, (), 1) == triggers
    campaign = TriggersCampaign(config, Path("runs/x"))
    mixed = campaign.round(2, (0.2, 0.8))["hardened-round-2"][1]
    assert mixed.weights == (0.2, 0.8)
    latest = campaign.round(2, (0.0, 1.0))["hardened-round-2"][1]
    assert (latest.searches.rpartition("/")[2], latest.weights) == ("search-round-1", ())
