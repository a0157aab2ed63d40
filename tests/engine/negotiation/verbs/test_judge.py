"""Who judges fluency where nobody is named: what a model was before reinforcement, and who else where that is not known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.job import Silent
from parley.engine.negotiation.verbs.agents import NO_JUDGE, judge_of
from parley.engine.negotiation.verbs.campaign import Campaign, MinMaxConfig
from parley.engine.negotiation.verbs.match import SELFPLAY, MatchConfig
from parley.engine.negotiation.verbs.table import ATTACK_TABLE, TableConfig
from parley.engine.negotiation.verbs.whitebox import ATTACK_RL, AttackConfig
from parley.envs.core.errors import RunError
from tests.engine.core.verbs.made_up import Notes, corpus_vocabulary, rows, save_negotiator

run = SELFPLAY.run


@pytest.fixture
def family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A supervised agent and what reinforcement made of it, under the names that they were given in a folder."""
    monkeypatch.chdir(tmp_path)
    made: dict[str, dict[str, Any]] = {
        "supervised": {"role": "supervised"},
        "rl": {"role": "rl", "target": "runs/supervised", "learner": "runs/supervised"},
        "adversary": {"role": "adversary", "target": "runs/supervised", "learner": "runs/rl"},
        "hardened": {"role": "target", "target": "runs/rl", "adversaries": ["runs/adversary"]},
        "campaign": {"role": "target", "target": "runs/forgotten", "campaign_from": "runs/hardened", "round": 2},
        "unhardened": {"role": "supervised", "campaign_from": "runs/supervised", "round": 0},
    }
    for seed, (name, provenance) in enumerate(made.items()):
        save_negotiator(Path("runs", name, "checkpoint"), seed=seed, **provenance)


@pytest.mark.usefixtures("family")
def test_a_model_is_judged_by_what_it_was_before_any_reinforcement() -> None:
    for name in ("supervised", "rl", "adversary", "hardened", "campaign"):
        assert judge_of("", [f"runs/{name}"]) == "runs/supervised", name
    assert judge_of("", ["runs/unhardened"]) == "runs/unhardened"
    assert judge_of("", [str(Path("runs", "rl", "checkpoint"))]) == "runs/supervised"


@pytest.mark.usefixtures("family")
def test_the_target_comes_before_who_plays_it_and_a_name_before_both() -> None:
    save_negotiator(Path("runs", "other", "checkpoint"), seed=9)
    assert judge_of("", ["runs/other", "runs/adversary"]) == "runs/other"
    assert judge_of("", ["scripted", "runs/adversary"]) == "runs/supervised"
    assert judge_of("", ["human", "scripted"]) == ""
    assert judge_of("runs/rl", ["runs/other", "runs/adversary"]) == "runs/rl", "as it is: it was named"


@pytest.mark.usefixtures("family")
@pytest.mark.parametrize("loss", ["gone", "damaged", "of another kind", "of other words", "itself", "nameless"])
def test_a_model_whose_beginning_is_not_known_judges_itself(root: Path, loss: str) -> None:
    start = Path("runs", "supervised", "checkpoint")
    if loss == "gone":
        (start / "weights.safetensors").unlink()
    elif loss == "damaged":
        (start / "config.json").write_text("{")
    elif loss == "of another kind":
        save_negotiator(start, kind="seq2seq", role="supervised")
    elif loss == "of other words":
        save_negotiator(start, vocabulary=corpus_vocabulary(root), role="supervised")
    elif loss == "itself":
        save_negotiator(start, role="rl", learner="runs/hardened")
    else:
        save_negotiator(start, role="rl")
    assert judge_of("", ["runs/rl"]) == "runs/rl"
    assert judge_of("", ["runs/hardened", "runs/rl"]) == "runs/hardened"


def match(**changes: Any) -> MatchConfig:
    settings = {"adversary": "runs/adversary", "target": "runs/rl", "dialogues": 4, "shard_size": 2, "max_turns": 3}
    return MatchConfig(**{**settings, **changes})


def described(path: Path) -> str:
    summary = RunFolder.load(path).summary()
    assert summary is not None
    return str(summary["description"])


@pytest.mark.usefixtures("family")
def test_it_is_who_scores_a_match_and_is_named_on_the_page() -> None:
    run(match(), Path("default"), Silent())
    run(match(judge="runs/supervised"), Path("named"), Silent())
    run(match(judge="runs/rl"), Path("itself"), Silent())
    assert rows(Path("default")) == rows(Path("named"))
    assert rows(Path("default"))[0]["nll_target"] != rows(Path("itself"))[0]["nll_target"]
    assert described(Path("default")).endswith("; fluency as runs/supervised finds it.")
    assert RunFolder.load(Path("default")).config["judge"] == ""
    attack = AttackConfig(target="runs/hardened", speaker="runs/adversary", dialogues=2)
    ATTACK_RL.run(attack, Path("attack"), Silent())
    assert described(Path("attack")).endswith("; the target alone chooses; fluency as runs/supervised finds it.")


@pytest.mark.usefixtures("family")
def test_a_scripted_target_leaves_the_judging_to_the_adversary_or_nobody() -> None:
    result = run(match(target="scripted"), Path("half"), Silent())
    assert result.metrics["fluency_ppl"].value > 0
    assert described(Path("half")).endswith("fluency as runs/supervised finds it.")
    notes = Notes()
    result = run(match(target="scripted", adversary="scripted"), Path("none"), notes)
    assert result.metrics["fluency_ppl"].n == 0
    assert notes.said == [NO_JUDGE]
    assert described(Path("none")).endswith(f"; {NO_JUDGE}.")


@pytest.mark.usefixtures("family")
@pytest.mark.parametrize("change", ["other weights", "gone"])
def test_a_match_does_not_go_on_with_another_judge(change: str) -> None:
    run(match(), Path("run"), Silent())
    part = next(Path("run", "rows").glob("*.parquet"))
    part.write_bytes(part.read_bytes()[:-9])
    start = Path("runs", "supervised", "checkpoint")
    if change == "gone":
        (start / "weights.safetensors").unlink()
    else:
        save_negotiator(start, seed=77, role="supervised")
    with pytest.raises(RunError, match="judge: "):
        run(match(), Path("run"), Silent())


@pytest.mark.usefixtures("family")
def test_every_row_of_a_table_has_the_targets() -> None:
    config = TableConfig(target="runs/rl", speaker="runs/adversary", adversary="runs/adversary", rows="none,rl", dialogues=2)
    ATTACK_TABLE.run(config, Path("table"), Silent())
    assert described(Path("table")).endswith("; the target alone chooses; fluency as runs/supervised finds it. 2 runs.")
    assert {described(Path("table", row)).rpartition("; ")[2] for row in ("none", "rl")} == {
        "fluency as runs/supervised finds it."
    }


@pytest.mark.usefixtures("family")
def test_a_campaign_has_one_for_all_of_its_rounds() -> None:
    for named, judge in {"": "runs/supervised", "runs/adversary": "runs/adversary"}.items():
        config = MinMaxConfig(target="runs/rl", judge=named, dialogues=2)
        with RunFolder.open(Path(f"campaign-{judge[5:]}"), config, job="minmax") as folder:
            run(Campaign(config, folder, Silent())._plain("runs/hardened", 1), folder.path / "01-plain", Silent())
        assert RunFolder.load(folder.path / "01-plain").config["judge"] == judge


@pytest.mark.usefixtures("family")
def test_runs_that_named_no_judge_before_still_count_as_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    config = match()
    with monkeypatch.context() as patch:
        known = SELFPLAY.models(config)
        patch.setattr(SELFPLAY, "models", lambda _: {name: spec for name, spec in known.items() if name != "judge"})
        run(config, Path("run"), Silent())
    assert "judge" not in RunFolder.load(Path("run")).weights
    assert SELFPLAY.finished(config, Path("run"), SELFPLAY.weights(config))
