"""Searches of every kind, as a hardened model learns from what they found."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parley.engine.core.stats.known import BEFORE
from parley.engine.core.verbs.job import Silent
from parley.engine.triggers.methods.evolution import EvolutionSettings
from parley.engine.triggers.methods.settings import SearchSettings
from parley.engine.triggers.verbs.config import HuggingFaceSettings, TextSearchConfig
from parley.engine.triggers.verbs.hardened import TRAIN_HARDENED, saying
from parley.engine.triggers.verbs.lessons import (
    TRIGGER,
    HardeningExample,
    TrainHardenedConfig,
    TriggerResult,
    found_triggers,
    hardening_recipe,
    prompts_of,
)
from parley.engine.triggers.verbs.methods import SEARCH_METHODS, MethodsConfig
from parley.engine.triggers.verbs.text_search import SEARCH_TEXT
from parley.engine.triggers.verbs.universal import SEARCH_UNIVERSAL, UniversalConfig
from parley.envs.core.errors import DataError

pytest.importorskip("transformers", reason="the extra hugging-face is not installed")
pytest.importorskip("peft", reason="the extra lora is not installed")

from tests.engine.core.verbs.made_up import rows
from tests.engine.triggers.hardening.made_up import asked, write_search
from tests.policies.small_gpt2 import EOS, WORDS, read_gpt2

LINES = {"random": "random", "gcg[search.num_replaced=2]": "gcg-search.num_replaced=2", "evolution": "evolution"}
"""Of a table of methods, and their folders."""


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
    several = {"method": ",".join(LINES), "budget": "6", "evolution": replace(evolved, max_queries=200)}
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
    assert {each.key.partition(":")[0] for each in found} == {f"methods/{line}" for line in LINES}
    apart = [found_triggers([str(searches["methods"] / name)], hits_only=False) for name in LINES.values()]
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
    assert saying(HardeningExample(TRIGGER, "0", "cat now", "no", True, "cat now", "who", target_ended=found.end)).ended is end


def test_too_few_targets_are_told_before_anything_is_loaded(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loaded(*named: Any) -> Any:
        raise AssertionError("something is loaded")

    one = [TriggerResult("0", "x", "a target")]
    monkeypatch.setattr("parley.engine.triggers.verbs.hardened.found_triggers", lambda runs, hits_only: one)
    for name in ("parley.policies.chat.predictor.require_peft", "parley.engine.triggers.verbs.hardened.clean_examples"):
        monkeypatch.setattr(name, loaded)
    config = TrainHardenedConfig(model=f"hf:{folder}", searches="runs/search")
    with pytest.raises(DataError, match="three targets"):
        TRAIN_HARDENED.prepare(config, tmp_path / "run", Silent())
