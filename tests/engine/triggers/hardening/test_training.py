"""Hardening of Hugging Face models, on a GPT-2 that is made here, and searches that are written here."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.known import BEFORE
from parley.engine.core.verbs.checkpoints import weights_digests
from parley.engine.core.verbs.job import Silent
from parley.engine.core.verbs.recipe_job import COMPARE_RECIPE, RecipeFileConfig
from parley.engine.perturb.strategy import PerturbSettings
from parley.engine.perturb.verbs.config import RobustnessConfig
from parley.engine.perturb.verbs.robustness import EVALUATE_ROBUSTNESS
from parley.engine.triggers.verbs.hardened import CONTRAST, REPLIES, TOLD, TRAIN_HARDENED
from parley.engine.triggers.verbs.lessons import CLEAN, OWN, TRIGGER, TrainHardenedConfig, hardening_recipe
from parley.envs.core.errors import CheckpointError, ConfigError, DataError
from parley.policies.chat.predictor import ChatLesson, ChatLessons, ChatPredictor
from parley.policies.chat.settings import LoraSettings
from parley.policies.chat.templates import default_template
from parley.policies.core.fitting.batches import evaluate
from parley.policies.core.responders import load_responder
from parley.policies.hugging_face.models import read_pretrained

pytest.importorskip("transformers", reason="the extra hugging-face is not installed")
pytest.importorskip("peft", reason="the extra lora is not installed")

from tests.engine.core.verbs.made_up import interrupt, rows
from tests.engine.perturb.verbs.robust import BUILT_IN, SWAP
from tests.engine.triggers.hardening.made_up import TEMPLATE, asked, write_search
from tests.policies.small_gpt2 import TRIGGERS as TRIGGERS_FOUND
from tests.policies.small_gpt2 import greedy_replies, read_gpt2, said
from tests.real_models import smollm2

STAGES_METRICS = {
    "read.told.fitted": ("fitted", "clean_told"),
    "read.told.before": ("fitted", "clean_told_before"),
    f"changed.plain-{SWAP}.changed": ("as-it-is", f"change_rate_touched.base.{SWAP}"),
    f"changed.{SWAP}.control": ("robustness", f"change_rate_touched.none.{SWAP}"),
    "changed.add-negation.trained": ("robustness", "change_rate_touched.add-negation.add-negation"),
}
STAGES = ("fitted", "as-it-is", "robustness")


@pytest.mark.parametrize("method", ["full", "lora"])
def test_a_hardened_model_no_longer_says_the_targets_and_is_a_model_again(
    tmp_path: Path, folder: Path, search: Path, corpus: Path, method: str
) -> None:
    run = tmp_path / "hardened"
    metrics = TRAIN_HARDENED.run(asked(folder, search, corpus, method=method), run, Silent()).metrics
    assert metrics["trigger_said" + BEFORE].value == metrics["learned_said" + BEFORE].value == 1.0
    assert metrics["trigger_said"].value < 0.5, "triggers of other targets than those that were learned from"
    assert metrics["trigger_nll"].value < metrics["trigger_nll" + BEFORE].value
    assert metrics["target_nll"].value > metrics["target_nll" + BEFORE].value
    assert metrics["clean_nll"].value < metrics["clean_nll" + BEFORE].value, "recorded replies are learned"
    rows = json.loads((run / REPLIES).read_text())["test"]
    triggers = [row for row in rows if row["kind"] == TRIGGER]
    assert [row["before"] for row in triggers] == [row["target"] for row in triggers]
    # The stored model says what was measured; the run is an address as the folder is.
    texts = tuple(row["said"] for row in triggers)
    assert said(run, texts) == said(run / "checkpoint", texts) == [row["after"] for row in triggers]
    assert load_responder(f"hf:{run}").respond([((("the", "cat"),),)])
    assert weights_digests({"model": str(run)}) == weights_digests({"model": str(run / "checkpoint")})


def test_replies_that_are_measured_have_as_many_tokens_as_targets_and_answers(
    tmp_path: Path, folder: Path, search: Path, corpus: Path
) -> None:
    config = asked(folder, search, corpus, max_tokens=1)
    metrics = TRAIN_HARDENED.run(config, tmp_path / "run", Silent()).metrics
    assert metrics["trigger_said" + BEFORE].value == metrics["learned_said" + BEFORE].value == 1.0
    assert metrics["trigger_answered"].value > 0, "the answer has two tokens"


@pytest.mark.usefixtures("own_cache")
def test_a_model_in_bfloat16_is_measured_in_float32_and_stored_as_it_was(
    tmp_path: Path, folder: Path, search: Path, corpus: Path
) -> None:
    tokenizer, model = read_gpt2(folder)
    model.bfloat16().save_pretrained(tmp_path / "half")
    model.float().save_pretrained(tmp_path / "whole")
    for name in ("half", "whole"):
        tokenizer.save_pretrained(tmp_path / name)
    found = {
        name: TRAIN_HARDENED.run(asked(tmp_path / name, search, corpus, method="full"), tmp_path / f"of-{name}", Silent())
        for name in ("half", "whole")
    }
    before = [{key: one.value for key, one in each.metrics.items() if key.endswith(BEFORE)} for each in found.values()]
    assert before[0] == before[1]
    stored = {name: read_pretrained(tmp_path / f"of-{name}", lambda config: "AutoModelForCausalLM")[1] for name in found}
    assert {name: each.dtype for name, each in stored.items()} == {"half": torch.bfloat16, "whole": torch.float32}


def test_an_interrupted_run_goes_on_to_the_same_weights(tmp_path: Path, folder: Path, search: Path, corpus: Path) -> None:
    config = asked(folder, search, corpus, method="lora")
    TRAIN_HARDENED.run(config, tmp_path / "whole", Silent())
    interrupt(TRAIN_HARDENED, config, tmp_path / "cut", "epoch  2")
    TRAIN_HARDENED.run(config, tmp_path / "cut", Silent())
    first, second = (read_gpt2(tmp_path / name)[1].state_dict() for name in ("whole", "cut"))
    assert [name for name in first if not first[name].equal(second[name])] == []
    assert RunFolder.load(tmp_path / "whole").metrics() == RunFolder.load(tmp_path / "cut").metrics()


def test_perturbed_contexts_are_answered_as_clean_ones(tmp_path: Path, folder: Path, search: Path, corpus: Path) -> None:
    config = asked(folder, search, corpus, searches="", strategies="random-swap")
    result = TRAIN_HARDENED.run(config, tmp_path / "run", Silent())
    assert result.metrics["perturbed_nll"].value < result.metrics["perturbed_nll" + BEFORE].value
    assert "trigger_said" not in result.metrics
    lessons = json.loads((tmp_path / "run" / "lessons.json").read_text())["train"]
    replies = {each["key"]: each["reply"] for each in lessons if each["kind"] == CLEAN}
    perturbed = [each for each in lessons if each["kind"] == "perturbed"]
    assert perturbed
    assert all(each["reply"] == replies[each["key"].partition(":")[0]] for each in perturbed)


WHERE = """
from parley.engine.perturb.strategy import Expectation

class Where:
    name = "where"
    expectation = Expectation.SHOULD_CHANGE

    def perturb(self, contexts, seeds):
        return [tuple((*turn[:-1], (*turn[-1][:-1], "where")) for turn in context) for context in contexts]
"""


def test_behind_contexts_that_should_change_the_answer_replies_lose_their_margin(
    tmp_path: Path, folder: Path, corpus: Path
) -> None:
    (tmp_path / "own.py").write_text(WHERE)
    more = {"searches": "", "strategies": f"{tmp_path}/own.py:Where", "alpha": 2.0, "margin": 3.0}
    config = asked(folder, tmp_path, corpus, **more)
    figures = TRAIN_HARDENED.run(config, tmp_path / "run", Silent()).metrics
    control = TRAIN_HARDENED.run(replace(config, control=True), tmp_path / "control", Silent()).metrics
    assert figures["margin"].value > 1.5 * control["margin"].value, "what training alone brings is less"
    TRAIN_HARDENED.run(replace(config, control=True, alpha=0.0), tmp_path / "again", Silent())
    chosen_by = [
        [event["validation_nll"] for event in RunFolder.load(tmp_path / name).events() if event["kind"] == "epoch"]
        for name in ("control", "again")
    ]
    assert chosen_by[0] == chosen_by[1] != [], "the control knows no contrasts, nor is its best epoch chosen by them"
    assert figures["margin_met"].value > figures["margin_met" + BEFORE].value
    assert figures["clean_nll"].value < figures["clean_nll" + BEFORE].value, "recorded replies are learned all the same"
    rows = json.loads((tmp_path / "run" / REPLIES).read_text())["test"]
    contrasts = {row["key"]: row for row in rows if row["kind"] == CONTRAST}
    clean = {row["key"]: row for row in rows if row["kind"] == CLEAN}
    assert contrasts.keys() == clean.keys()
    assert all(row["said"] == clean[key]["said"].replace("now", "where") for key, row in contrasts.items())
    assert all((row["wanted"], row["target"]) == ("", clean[key]["wanted"]) for key, row in contrasts.items())
    changed = [row["after"] != clean[key]["after"] for key, row in contrasts.items()]
    assert figures["contrast_changed"].value == pytest.approx(sum(changed) / len(changed))


def test_without_triggers_and_strategies_the_model_is_fitted_to_recorded_replies(
    tmp_path: Path, folder: Path, corpus: Path
) -> None:
    run = tmp_path / "run"
    figures = TRAIN_HARDENED.run(asked(folder, tmp_path, corpus, searches="", strategies="none"), run, Silent()).metrics
    lessons = json.loads((run / "lessons.json").read_text())
    assert {each["kind"] for split in lessons.values() for each in split} == {CLEAN}
    assert not {name for name in figures if name.startswith(("trigger", "perturbed"))}
    assert figures["clean_nll"].value < figures["clean_nll" + BEFORE].value
    # What a reply loses behind a context half the split away, by the stored model, one at a time.
    tokenizer, model = read_pretrained(run / "checkpoint", lambda config: "AutoModelForCausalLM")
    prompts, replies = ([each[part] for each in lessons["test"]] for part in ("prompt", "reply"))

    half = len(prompts) // 2

    def nll(prompt: str, reply: str) -> float:
        read = ChatLessons(tokenizer, [ChatLesson(prompt, reply)], tokenizer.eos_token_id, 64)
        return float(evaluate(ChatPredictor(model.eval()), read).nll_sums[0])

    own, behind = (sum(map(nll, order, replies)) for order in (prompts, prompts[-half:] + prompts[:-half]))
    num = sum(len(tokenizer(reply).input_ids) + 1 for reply in replies)
    assert figures[TOLD].value == pytest.approx((behind - own) / num, abs=1e-4)


def test_hardened_models_meet_what_they_were_trained_against_beside_their_base(
    tmp_path: Path, folder: Path, search: Path, corpus: Path
) -> None:
    short = replace(hardening_recipe(), max_epochs=1, keep="last")
    config = asked(folder, tmp_path, corpus, searches="", strategies=SWAP, perturb=BUILT_IN, fit=short)
    changes: dict[str, dict[str, Any]] = {"swap": {}, "control": {"control": True}, "none": {"strategies": "none"}}
    for name, change in changes.items():
        TRAIN_HARDENED.run(replace(config, **change), tmp_path / name, Silent())
    TRAIN_HARDENED.run(asked(folder, search, corpus, fit=short), tmp_path / "triggers", Silent())
    TRAIN_HARDENED.run(replace(config, model=f"hf:{tmp_path}/none"), tmp_path / "further", Silent())
    robust = RobustnessConfig(model=f"hf:{folder}", corpus=str(corpus), strategies=f"{SWAP},antonym", perturb=BUILT_IN, limit=4)
    beside = replace(robust, trained=f"hf:{tmp_path}/swap,hf:{tmp_path}/control")
    EVALUATE_ROBUSTNESS.run(beside, tmp_path / "run", Silent())
    EVALUATE_ROBUSTNESS.run(replace(robust, model=f"hf:{tmp_path}/swap"), tmp_path / "alone", Silent())
    alone = {row["item_key"]: row["replies"] for row in rows(tmp_path / "alone")}
    for row in rows(tmp_path / "run"):
        met = [(reply["model"], reply["strategy"]) for reply in row["replies"]]
        assert met[3:] == [(SWAP, ""), (SWAP, SWAP), ("none", ""), ("none", SWAP), ("none", "antonym")]
        assert [reply["reply"] for reply in row["replies"][3:5]] == [reply["reply"] for reply in alone[row["item_key"]][:2]]
    mistakes = [
        (f"hf:{tmp_path}/control,hf:{tmp_path}/none", ConfigError, "trained against the same(.|\n)*none"),
        (f"hf:{tmp_path}/triggers", CheckpointError, "not trained against perturbations"),
        (f"hf:{tmp_path}/further", CheckpointError, "did not begin with --model(.|\n)*/none"),
        (str(tmp_path / "swap"), CheckpointError, "hf:RUN"),
    ]
    for trained, kind, told in mistakes:
        with pytest.raises(kind, match=told):
            EVALUATE_ROBUSTNESS.run(replace(robust, trained=trained), tmp_path / "refused", Silent())
    assert not (tmp_path / "refused").exists()


def test_the_recipe_of_the_examples_lays_out_what_perturbations_change(tmp_path: Path, folder: Path, corpus: Path) -> None:
    names = f"[{SWAP},add-negation]"
    values = {"model": f"hf:{folder}", "corpus": corpus, "fitted_to": 12, "trained_on": 12, "contexts": 4, "seeds": [1]}
    values |= {"max_tokens": 4, "lexicon": "built-in", "strategies": f"'{SWAP},stopword-dropout,add-negation'"}
    override = ",".join(f"{name}={value}" for name, value in (values | {"asked": names, "others": f"[{SWAP}]"}).items())
    recipe = Path(__file__).parents[4] / "examples" / "perturbed_chat_model.yaml"
    found = COMPARE_RECIPE.run(RecipeFileConfig(recipe=str(recipe), override=override), tmp_path / "run", Silent())
    assert not found.failure
    metrics = {name: estimate.value for name, estimate in found.metrics.items() if estimate.n}
    by_stage = {name: json.loads((tmp_path / "run" / name / "summary.json").read_text())["metrics"] for name in STAGES}
    measured = {name: by_stage[stage][metric]["value"] for name, (stage, metric) in STAGES_METRICS.items()}
    assert {name: metrics[name] for name in measured} == pytest.approx(measured)


def test_an_own_reply_is_that_to_the_prompt_without_the_trigger(tmp_path: Path, folder: Path, corpus: Path) -> None:
    found = dict(zip(TRIGGERS_FOUND, said(folder, TRIGGERS_FOUND, TEMPLATE), strict=True))
    framed = write_search(tmp_path / "search", found, template=TEMPLATE)
    config = asked(folder, framed, corpus, reply=OWN, fit=replace(hardening_recipe(), max_epochs=1))
    TRAIN_HARDENED.run(config, tmp_path / "run", Silent())
    (own,) = said(folder, ("",), TEMPLATE)
    lessons = json.loads((tmp_path / "run" / "lessons.json").read_text())
    triggers = [each for split in lessons.values() for each in split if each["kind"] == TRIGGER]
    assert {each["reply"] for each in triggers} == {own}
    assert all(each["prompt"] == TEMPLATE.replace("{}", each["said"]) for each in triggers)


def test_mistakes_are_named_and_no_run_is_made(tmp_path: Path, folder: Path, search: Path, corpus: Path) -> None:
    run = tmp_path / "run"
    none = write_search(tmp_path / "none", dict.fromkeys(TRIGGERS_FOUND, "the cat"), hit=False)
    mistakes: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"model": "runs/seq2seq"}, ConfigError, "hf:FOLDER"),
        ({"model": f"hf:{tmp_path}/nothing"}, CheckpointError, "config.json(.|\n)*no such folder"),
        ({"model": "openai:http://127.0.0.1:1/v1#served"}, ConfigError, "hf:FOLDER"),
        ({"searches": ""}, ConfigError, "nothing to harden"),
        ({"searches": str(none)}, DataError, "none of them a hit"),
        ({"reply": OWN}, ConfigError, "--reply"),
        ({"lora": LoraSettings(modules="nowhere"), "method": "lora"}, ConfigError, "lora.modules"),
    ]
    for changes, kind, told in mistakes:
        with pytest.raises(kind, match=told):
            TRAIN_HARDENED.run(replace(asked(folder, search, corpus), **changes), run, Silent())
        if "lora" not in changes:
            assert not run.exists()


def test_without_peft_the_extra_is_named(
    tmp_path: Path, folder: Path, search: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ConfigError, match=r'editable "\.\[lora\]"'):
        TRAIN_HARDENED.run(asked(folder, search, corpus, method="lora"), tmp_path / "run", Silent())


@pytest.mark.slow
def test_a_gguf_file_becomes_a_folder_of_a_hardened_model(tmp_path: Path) -> None:
    config = TrainHardenedConfig(
        model=smollm2(),
        strategies="random-swap",
        perturb=PerturbSettings(lexicon="built-in"),
        limit=3,
        max_tokens=4,
        fit=replace(hardening_recipe(), max_epochs=1, keep="last"),
    )
    result = TRAIN_HARDENED.run(config, tmp_path / "run", Silent())
    assert result.metrics["perturbed_nll"].value < result.metrics["perturbed_nll" + BEFORE].value
    rows = json.loads((tmp_path / "run" / REPLIES).read_text())["test"]
    tokenizer, model = read_gpt2(tmp_path / "run")
    template = default_template(tokenizer)
    prompts = [template.replace("{}", row["said"]) for row in rows]
    assert [reply for reply, _ in greedy_replies(model, tokenizer, prompts, 4)] == [row["after"] for row in rows]
