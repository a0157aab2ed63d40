"""Success by a sequence classifier of Hugging Face, a small one that was taught, through every search that judges replies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from parley.engine.core.verbs.job import Silent
from parley.engine.triggers.methods.evolution import EvolutionSettings
from parley.engine.triggers.methods.settings import SearchSettings
from parley.engine.triggers.metrics.hits import VERIFIED
from parley.engine.triggers.success import SuccessSettings
from parley.engine.triggers.verbs.config import HuggingFaceSettings, TextSearchConfig, TriggerConfig
from parley.engine.triggers.verbs.methods import SEARCH_METHODS, MethodsConfig
from parley.engine.triggers.verbs.search import SEARCH
from parley.engine.triggers.verbs.text_search import SEARCH_TEXT
from parley.engine.triggers.verbs.transfer import SEARCH_TRANSFER, TriggerTransferConfig
from parley.envs.core.errors import CheckpointError, ConfigError
from tests.engine.core.verbs.made_up import rows
from tests.policies.small_classifier import LABELS, save_classifier

transformers = pytest.importorskip("transformers", reason="the extra hugging-face is not installed")

PAIRS = "prompt,target\ntell me,you\nsay it,hello\n"
HELLO = """
def model(messages):
    words = messages[-1]["content"].split()
    return "hello printer" if "please" in words and "say" in words else "you fool oh"
"""
"""Greets who begs, behind one of the prompts; it never says the target."""


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_classifier(tmp_path_factory.mktemp("judge"))


def greets(judge: Path, reply: str) -> float:
    """How sure the library itself is, from the folder."""
    model = transformers.AutoModelForSequenceClassification.from_pretrained(judge)
    read = transformers.AutoTokenizer.from_pretrained(judge)(reply, return_tensors="pt")
    with torch.no_grad():
        probabilities = model(input_ids=read.input_ids, attention_mask=read.attention_mask).logits[0].softmax(-1)
    return float(probabilities[LABELS.index("greets")])


def test_replies_of_a_search_are_judged_as_the_library_classifies_them(
    tmp_path: Path, folder: Path, judge: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert greets(judge, "hello you") > 0.9 > 0.1 > greets(judge, "you fool oh")
    (tmp_path / "pairs.csv").write_text(PAIRS)
    success = SuccessSettings(by="classifier", classifier=f"hf:{judge}", label="greets", tokens=8)
    config = TriggerConfig(
        model=f"hf:{folder}",
        targets=str(tmp_path / "pairs.csv"),
        hit="o-greedy",
        search=SearchSettings(candidates=24, max_sweeps=2, restarts=1),
        hugging_face=HuggingFaceSettings(length=4, end=False),
        success=success,
    )
    SEARCH.run(config, tmp_path / "run", Silent())
    found = rows(tmp_path / "run")
    scores = [greets(judge, row["reply"]) for row in found]
    assert [row["verified"] for row in found] == [score >= 0.5 for score in scores]
    between = (min(scores) + max(scores)) / 2
    for label, score in (("greets", between), ("other", 1 - between)):
        monkeypatch.setattr(SuccessSettings, "min_score", score)
        asked = replace(success, label=label)
        result = SEARCH.run(replace(config, success=asked), tmp_path / label, Silent())
        verified = [row["verified"] for row in rows(tmp_path / label)]
        assert verified == [(each >= between) == (label == "greets") for each in scores]
        assert set(verified) == {True, False}
        assert result.metrics[VERIFIED].value == sum(verified) / len(verified)


def test_replies_of_models_that_show_nothing_else_are_classified(tmp_path: Path, judge: Path) -> None:
    (tmp_path / "pairs.csv").write_text(PAIRS)
    (tmp_path / "words.txt").write_text("please w1 w2 w3")
    (tmp_path / "model.py").write_text(HELLO)
    success = SuccessSettings(by="classifier", classifier=f"hf:{judge}")
    config = TextSearchConfig(
        model=f"{tmp_path}/model.py:model",
        targets=str(tmp_path / "pairs.csv"),
        words=str(tmp_path / "words.txt"),
        search=EvolutionSettings(num_words=2, population=4, max_queries=12),
        success=success,
    )
    SEARCH_TEXT.run(config, tmp_path / "run", Silent())
    found = rows(tmp_path / "run")
    assert [row["verified"] for row in found] == [False, True] == ["hello" in row["reply"] for row in found]
    assert not any(row["reply"].startswith(row["target"] + " there") for row in found)
    typed = TriggerTransferConfig(searches=str(tmp_path / "run"), model=config.model, found="all", success=success)
    SEARCH_TRANSFER.run(typed, tmp_path / "typed", Silent())
    told = [(row["prompt"], row["typed"] == [""], row["verified"]) for row in rows(tmp_path / "typed")]
    assert sorted(told) == [
        ("say it", False, True),
        ("say it", True, False),
        ("tell me", False, False),
        ("tell me", True, False),
    ]
    for wrong, kind, message in (
        (f"hf:{tmp_path}/none", CheckpointError, "none"),
        (f"hf:{judge}", ConfigError, r"no label 'greet'(.|\n)*labels: other, greets"),
    ):
        named = replace(success, classifier=wrong, label="greet")
        with pytest.raises(kind, match=message):
            SEARCH_TEXT.run(replace(config, success=named), tmp_path / "bad", Silent())
    assert not (tmp_path / "bad").exists()


def test_a_model_without_a_head_is_no_classifier(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "pairs.csv").write_text(PAIRS)
    success = SuccessSettings(by="classifier", classifier=f"hf:{folder}")
    config = TextSearchConfig(model=f"hf:{folder}", targets=str(tmp_path / "pairs.csv"), success=success)
    with pytest.raises(CheckpointError, match="this needs a classifier"):
        SEARCH_TEXT.run(config, tmp_path / "run", Silent())


def test_every_line_of_a_table_is_classified(tmp_path: Path, folder: Path, judge: Path) -> None:
    (tmp_path / "pairs.csv").write_text(PAIRS)
    config = MethodsConfig(
        model=f"hf:{folder}",
        targets=str(tmp_path / "pairs.csv"),
        method="random,evolution",
        budget="4",
        hugging_face=HuggingFaceSettings(length=3, end=False),
        evolution=EvolutionSettings(num_words=2, population=2),
        success=SuccessSettings(by="classifier", classifier=f"hf:{judge}", tokens=8),
    )
    SEARCH_METHODS.run(config, tmp_path / "run", Silent())
    for line in ("random", "evolution"):
        found = rows(tmp_path / "run" / line)
        assert [row["verified"] for row in found] == [greets(judge, row["reply"]) >= 0.5 for row in found]
