"""The demonstration, small: every stage a run, a report at the end, an honest exit status, and resuming."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parley.engine import demo
from parley.engine.core.page import page
from parley.engine.core.runs.documents import SUMMARY
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.statistics import Estimate, count
from parley.engine.core.verbs.composite import BackgroundStages
from parley.engine.core.verbs.job import Comparison
from parley.engine.demo import BESIDE, BESIDE_HARDENING, BUDGET, DEMO, GAIN, HARDENED, STAGES, STORY, DemoConfig, failure
from parley.engine.generation.verbs import config as minmax_config
from parley.engine.negotiation.verbs import minmax, negotiator
from parley.engine.negotiation.verbs import training as reinforce
from parley.engine.perturb.verbs import adversarial
from parley.engine.ranking.verbs import matcher as matcher_config
from parley.engine.responders import seq2seq
from parley.engine.triggers.verbs import search
from parley.envs.core.config import from_dict, to_dict
from parley.envs.core.errors import ConfigError
from tests.engine.core.cli.conftest import Parley
from tests.engine.core.verbs.made_up import CORPUS, TINY, Notes, rows

SMALL = ["demo", "--dialogues", "16", "--no-side-by-side", "--trust-code"]
SMALL += ["--searches", "12", "--triggers", "2", "--contexts", "10"]

SURE = Estimate(0.5, 0.3, 0.7, 40)
KEPT = dict.fromkeys(("advantage", "exploitability_drop", "plain_agreement_before"), SURE)


def brief(monkeypatch: pytest.MonkeyPatch, module: Any, preset: str = "demo", **changes: Any) -> None:
    """Change settings of a preset; those of a section are a dictionary."""
    config = getattr(module, preset)()
    sections = {name: dataclasses.replace(getattr(config, name), **of) for name, of in changes.items() if isinstance(of, dict)}
    changed = dataclasses.replace(config, **(changes | sections))
    monkeypatch.setattr(module, preset, lambda: changed)


@pytest.fixture
def _small_corpus(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts the made-up corpus in the place of the embedded one, which takes seconds to make, and sizes that no flag sets."""
    small: dict[str, Any] = {"corpus": CORPUS, "data_root": root}
    short: dict[str, Any] = {"dialogues_per_update": 4, "max_turns": 4}
    monkeypatch.setattr(demo, "BUDGET", 8)
    monkeypatch.setattr(demo, "FIT", {name: {"max_epochs": 1} for name in demo.FIT})
    brief(monkeypatch, negotiator, fit={"sizes": TINY, "max_epochs": 1}, **small)
    brief(monkeypatch, reinforce, reinforce=short, data_root=root)
    brief(monkeypatch, minmax, defence=short, data_root=root)
    brief(monkeypatch, matcher_config, fit={"max_epochs": 1}, limit=60)
    brief(monkeypatch, seq2seq, "demo_lm", sizes={"embed": 8, "hidden": 16})
    brief(monkeypatch, search, search={"candidates": 6, "restarts": 1, "max_sweeps": 2})
    brief(monkeypatch, adversarial, fit={"max_epochs": 1, "batch_size": 512})
    brief(monkeypatch, minmax_config, "helpdesk", learning={"rounds": 1, "examples_per_step": 8})


@pytest.mark.ray
@pytest.mark.usefixtures("_small_corpus", "ray_session")
def test_the_whole_story(parley: Parley, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = parley(*SMALL, "--all", "--json")
    printed = json.loads(outcome.out)
    path = Path("runs/demo")
    assert [entry.parent.name for entry in sorted(path.glob("*/config.json"))] == sorted(STAGES)
    assert printed["run"] == "runs/demo"
    attack = RunFolder.load(path / "attack").summary()
    assert attack is not None
    reactive = RunFolder.load(path / "reactive").summary()
    assert reactive is not None
    itself_summary = RunFolder.load(path / "selfplay").summary()
    assert itself_summary is not None
    alone = itself_summary["metrics"]
    searched = {f"reactive_{name}": reactive["metrics"][name] for name in ("advantage", "forced_advantage", "attack_ppl")}
    campaign = RunFolder.load(path / "minmax").summary()
    assert campaign is not None
    hardened = {name: campaign["metrics"][name] for name in HARDENED}
    found = {}
    for stage, kind in (("normal", "o-greedy"), ("mal", "o-sample-min-k1")):
        triggers = RunFolder.load(path / stage).summary()
        assert triggers is not None
        found[f"hits_{stage}"] = triggers["metrics"][f"hit_rate.{kind}"]
    robustness = RunFolder.load(path / "robustness").summary()
    assert robustness is not None
    answers = {}
    for model, suffix in (("base", "_before_training"), ("random-swap+antonym", "")):
        changed = {name: robustness["metrics"][f"change_rate_touched.{model}.{name}"] for name in ("random-swap", "antonym")}
        answers[f"oversensitive{suffix}"] = changed["random-swap"]
        kept = {"value": "value", "low": "high", "high": "low"}
        stayed = {part: pytest.approx(1 - changed["antonym"][other]) for part, other in kept.items()}
        answers[f"overstable{suffix}"] = {**stayed, "n": changed["antonym"]["n"]}
    ranking, searches = (RunFolder.load(path / stage).summary() for stage in ("ranking", "searches"))
    assert ranking is not None
    assert searches is not None
    choices = {}
    for ranker in ("matcher", "tfidf"):
        choices[f"first_{ranker}"] = ranking["metrics"][f"r@1.{ranker}.clean"]
        choices[f"first_{ranker}_iiw"] = ranking["metrics"][f"r@1.{ranker}.iiw"]
        choices[f"lifted_{ranker}"] = searches["metrics"][f"success@50.{ranker}.random"]
    friends = RunFolder.load(path / "collaboration").summary()
    assert friends is not None
    heard = {"friend_found": "normal", "friend_found_confused": "confusing-entity"}
    met = {name: friends["metrics"][f"completion.model.{strategy}"] for name, strategy in heard.items()}
    learned = RunFolder.load(path / "generation").summary()
    assert learned is not None
    taken = {f"adversuc{when}": learned["metrics"][f"test_adversuc{when}"] for when in ("_before", "")}
    taken |= {f"machine_vs_random{when}": learned["metrics"][f"test_random{when}"] for when in ("_before", "")}
    others = {name: parts for name, parts in printed["metrics"].items() if name != GAIN}
    assert others == attack["metrics"] | searched | hardened | found | answers | choices | taken | met
    promised = {
        "agrees with itself in less than 50% of its": printed["metrics"]["plain_agreement_before"]["value"] >= 0.5,
        "the adversary has no certain advantage": printed["metrics"]["advantage"]["low"] > 0,
        "hardening did not certainly lower": printed["metrics"]["exploitability_drop"]["low"] > 0,
    }
    assert outcome.status == int(not all(promised.values()))
    assert {what: what not in outcome.err for what in promised} == promised
    # A heading may be folded.
    assert re.search(r"target against\s.*adversary against\s.*difference", outcome.err, re.DOTALL)
    seconds = [line.split() for line in outcome.err.rpartition(": stages")[2].splitlines()]
    took = {words[0]: float(words[1]) for words in seconds if len(words) == 2 and words[0] in STAGES}
    assert tuple(took) == STAGES
    assert took["minmax"] > 0, "a short stage may take 0.0 s of a quick machine"
    assert "runs/demo/report.html" in outcome.err
    assert "RL attack on runs/demo/target" in (path / "report.html").read_text()
    gained = [
        (after["points_adversary"] - after["points_target"]) - (before["points_adversary"] - before["points_target"])
        for before, after in zip(rows(path / "selfplay"), rows(path / "attack"), strict=True)
    ]
    assert printed["metrics"][GAIN]["value"] == pytest.approx(np.mean(gained))
    scenarios = [[(row["counts"], row["values_adversary"]) for row in rows(path / stage)] for stage in ("selfplay", "attack")]
    assert scenarios[0] == scenarios[1], "both matches are played on the same scenarios"

    # The page is the same again, and takes as long as half of the stages.
    written: list[Path] = []
    monkeypatch.setattr(page, "report_from_run", lambda run: written.append(run) or run / "report.html")
    again = parley(*SMALL, "--json")
    assert (again.status, again.out) == (outcome.status, outcome.out)
    *stages, last = again.err.partition("What broke")
    assert "".join(stages).count("is finished: nothing is left to do") == len(STAGES)
    lines = last.partition("failed: ")[0].splitlines()
    assert len(lines) <= 23, "one terminal holds it"
    assert [line.split(":")[0] for line in lines[2:12] if line[0] != " "] == list(STORY)
    (negotiation,) = [line for line in lines if line.startswith("negotiation")]
    itself, adversary = (f"{entry['value']:.2f}" for entry in (alone["advantage"], printed["metrics"]["advantage"]))
    assert re.search(rf" {re.escape(itself)} \[.* {re.escape(adversary)} \[", negotiation)
    assert re.search(r"^  parley demo .*--all$", last, re.MULTILINE)
    resumed = parley("resume runs/demo --json --trust-code")
    assert (resumed.status, resumed.out) == (outcome.status, outcome.out)
    assert written == [path, path]


def test_the_stages_name_each_other_as_the_folder_was_given() -> None:
    planned = DEMO.stages(DemoConfig(seed=7, dialogues=9), Path("runs/demo"))
    assert tuple(planned) == STAGES
    configs = {name: config for name, (_, config) in planned.items()}
    assert configs["adversary"].target == configs["selfplay"].target == configs["attack"].target == "runs/demo/target"
    assert configs["attack"].speaker == "runs/demo/adversary"
    assert configs["attack"].judge == configs["selfplay"].judge == "runs/demo/target"
    assert configs["selfplay"].complementary, "the rule of the attack, so that like is compared with like"
    assert {config.seed for config in configs.values()} == {7}
    assert (configs["minmax"].target, configs["minmax"].adversary) == ("runs/demo/target", "runs/demo/adversary")
    assert configs["minmax"].rounds == 1
    assert configs["minmax"].adversaries == "fresh", "the only round learns from the given adversary and the start's fresh one"
    assert configs["minmax"].control, "training alone may explain what is gained"
    before = {str(getattr(configs[name], key, "")) for name in BESIDE for key in ("model", "lm", "trained")}
    before = {name for names in before for name in names.split(",")}
    known = {"", "tfidf", "scripted", *(f"runs/demo/{name}" for name in BESIDE)}
    assert before <= known, "what is done beside needs nothing before it"
    assert BESIDE_HARDENING == ("selfplay", "attack", "reactive")
    met = {value for name in BESIDE_HARDENING for value in vars(configs[name]).values() if str(value).startswith("runs/demo")}
    assert met == {"runs/demo/target", "runs/demo/adversary"}, "what is done beside hardening needs nothing of it"
    assert configs["minmax"].budget == configs["adversary"].reinforce.dialogues, "measured on the adversary's own budget"
    assert (configs["adversarial"].model, configs["robustness"].model) == ("runs/demo/model", "runs/demo/model")
    assert configs["robustness"].trained == "runs/demo/adversarial"
    assert configs["robustness"].strategies == configs["adversarial"].strategies, "it meets what it was trained against"
    assert configs["robustness"].perturb == configs["adversarial"].perturb, "by the same rules, of the same lexicon"
    assert configs["ranking"].model == configs["searches"].model == "tfidf,runs/demo/matcher"
    assert configs["searches"].rules in configs["ranking"].rules, "a rule of both, so that one query can be compared"
    assert configs["attack"].match.dialogues == configs["selfplay"].dialogues == 9
    assert configs["selfplay"].scenarios == configs["attack"].scenarios == "random"


def test_the_demonstration_is_that_of_the_presets_and_reads_runs_that_had_settings_for_it() -> None:
    planned = {name: config for name, (_, config) in DEMO.stages(DemoConfig(), Path("runs/demo")).items()}
    rule = dataclasses.replace(reinforce.demo().reinforce, dialogues=BUDGET)
    assert planned["minmax"].attack == planned["adversary"].reinforce == rule
    assert planned["adversary"].reinforce.complementary
    changed = {**to_dict(negotiator.demo().fit), **demo.FIT["target"]}
    assert to_dict(planned["target"].fit) == changed
    recipe = to_dict(negotiator.demo().fit)
    assert from_dict(DemoConfig, {"seed": 3, "fit": recipe}) == DemoConfig(seed=3)
    with pytest.raises(ConfigError, match=r"fit\.sizes\.dropout is no setting any more: it is always"):
        from_dict(DemoConfig, {"fit": {"sizes": {"dropout": 0.123}}})


@pytest.mark.parametrize(("low", "kept"), [(0.01, True), (0.0, False), (-0.2, False), (float("nan"), False)])
@pytest.mark.parametrize("promise", ["advantage", "exploitability_drop"])
def test_a_promise_is_an_interval_above_zero(promise: str, low: float, kept: bool) -> None:
    assert failure(KEPT) == ""
    told = failure(KEPT | {promise: Estimate(0.5, low, 1.0, 40)})
    assert (told == "") is kept
    assert told.count("certain") == int(not kept)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(0.1, 0.9, "saved more points"), (-0.9, -0.1, "saved fewer points"), (-0.1, 0.9, "saved not certainly more points")],
)
def test_the_last_screen_compares_hardening_with_its_control(low: float, high: float, verdict: str) -> None:
    metrics = dict.fromkeys((name for lines in STORY.values() for _, *names in lines for name in names), SURE)
    beyond = Estimate((low + high) / 2, low, high, 40)
    table = demo.story(metrics | {"exploitability_drop_beyond_control": beyond}, Comparison("", "", metrics, metrics))
    assert verdict in table.note
    assert "again" not in table.note
    widths = [max(map(len, cells)) for cells in zip(table.columns, *table.rows, strict=True)]
    assert sum(widths) + 2 * (len(widths) - 1) <= 77, "a terminal of 80 columns holds it, a negative figure too"


def test_the_last_screen_says_that_the_hardened_target_repeats_itself() -> None:
    metrics = dict.fromkeys((name for lines in STORY.values() for _, *names in lines for name in names), SURE)
    shares = {f"repeats{ending}": count(value, 300) for ending, value in (("_before", 0.01), ("_control", 0.4), ("", 0.52))}
    metrics |= shares | {"exploitability_drop_beyond_control": SURE}
    note = demo.story(metrics, Comparison("", "", metrics, metrics)).note
    assert "It says 52% of its later utterances again, word for word (1% before, 40% after plain play)." in note


def test_a_target_that_hardly_agrees_is_not_worth_an_attack() -> None:
    least = Estimate(0.5, 0.4, 0.6, 40)
    assert failure(KEPT | {"plain_agreement_before": least}) == ""
    told = failure(KEPT | {"plain_agreement_before": Estimate(0.49, 0.4, 0.6, 40)})
    assert told == "the target agrees with itself in less than 50% of its dialogues: 0.49 [0.4, 0.6] (n=40)"


def test_sizes_out_of_range_are_refused(parley: Parley) -> None:
    for flag in ("--dialogues 0", "--workers -1", "--seed -1"):
        outcome = parley(f"demo {flag}")
        assert outcome.status == 2
        assert "allowed: at least" in outcome.err


@pytest.mark.ray
@pytest.mark.usefixtures("ray_session")
def test_stages_beside_are_done_in_an_actor_and_failures_are_left_for_here(tmp_path: Path, root: Path) -> None:
    recipe = dataclasses.replace(negotiator.demo().fit, sizes=TINY, max_epochs=1)
    good = dataclasses.replace(negotiator.demo(), corpus=CORPUS, data_root=root, fit=recipe)
    bad = dataclasses.replace(good, data_root=tmp_path / "nowhere")
    job, notes = negotiator.TRAIN_NEGOTIATOR, Notes()
    planned = {"finished": (job, good), "bad": (job, bad), "good": (job, good)}
    (tmp_path / "finished").mkdir()
    (tmp_path / "finished" / SUMMARY).touch()
    with BackgroundStages(planned, tmp_path, 1) as tasks:
        tasks.wait(notes, "what was begun beside")
    assert notes.stages == [("what was begun beside", 2, "stages")], "what is finished is left out"
    found = RunFolder.load(tmp_path / "good")
    assert found.summary() is not None
    assert RunFolder.load(tmp_path / "good").config["seed"] == good.seed
    assert not (tmp_path / "bad" / SUMMARY).exists()
    done = Notes()
    job.run(good, tmp_path / "good", done)
    assert done.said == [f"{tmp_path / 'good'} is finished: nothing is left to do"]
