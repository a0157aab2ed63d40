"""Hardening of Hugging Face encoders: losses, what is stored and measured, exact resume, and bad input."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("transformers", reason="the extra hugging-face is not installed")
pytest.importorskip("peft", reason="the extra lora is not installed")

import torch
import transformers
from safetensors.torch import load_file

from parley.engine.core.page.page import report_from_run
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.job import Silent
from parley.engine.core.verbs.recipe_job import COMPARE_RECIPE, RecipeFileConfig
from parley.engine.ranking.verbs.hardened import (
    TRAIN_HARDENED_RANKER,
    AttackedGroups,
    TrainHardenedRankerConfig,
    hardening_table,
)
from parley.envs.core.errors import CheckpointError, ConfigError, DataError
from parley.envs.ranking.compiled import load_candidates
from parley.policies.chat.settings import LoraSettings
from parley.policies.ranking.encoder_fit import EncoderLearner, bi_encoder_loss, cross_encoder_loss, encoder_fitness
from parley.policies.ranking.encoders import load_hugging_face_ranker
from parley.policies.ranking.matching.settings import EncoderFitConfig
from parley.policies.ranking.rankers import load_ranker
from tests.engine.core.verbs.made_up import interrupt
from tests.engine.perturb.replies.groups import built_in, group
from tests.policies.ranking.folders import bi_encoder, cross_encoder, decoder, static_encoder

run = TRAIN_HARDENED_RANKER.run


def desk_encoder(folder: Path, labels: int | None = None) -> Path:
    """A small network that knows the words of the help desk; a bi-encoder, or a cross-encoder of so many logits."""
    make = bi_encoder if labels is None else cross_encoder
    make(folder, **({} if labels is None else {"labels": labels}))
    words = ["<pad>", "<cls>", "<sep>", "<unk>", *load_candidates("helpdesk").splits["train"].vocabulary.words]
    config = transformers.BertConfig(
        vocab_size=len(words), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=64, pad_token_id=0, num_labels=labels or 2, hidden_dropout_prob=0.1,
    )  # fmt: skip
    torch.manual_seed(3)
    kind = transformers.BertModel if labels is None else transformers.BertForSequenceClassification
    kind(config).save_pretrained(folder)
    read = json.loads((folder / "tokenizer.json").read_text())
    read["model"]["vocab"] = {word: index for index, word in enumerate(words)}
    (folder / "tokenizer.json").write_text(json.dumps(read))
    return folder


def asked(folder: Path, **changes: Any) -> TrainHardenedRankerConfig:
    fit = EncoderFitConfig(max_epochs=2, batch_size=16, learning_rate=5e-3, keep="last")
    settings: dict[str, Any] = {
        "limit": 48,
        "held_out": 12,
        "attacked": 4,
        "budget": 6,
        "against": "random-swap,iiw",
        "fit": fit,
    }
    return TrainHardenedRankerConfig(**{**settings, "model": f"hf:{folder}", "against": "random-swap,iiw", **changes})


def test_a_hardened_bi_encoder_is_stored_measured_and_resumes_exactly(tmp_path: Path) -> None:
    folder = desk_encoder(tmp_path / "encoder")
    config = asked(folder)
    result = run(config, tmp_path / "run", Silent())
    for name in ("checkpoint", "control"):
        stored = tmp_path / "run" / name
        assert {path.name for path in folder.iterdir()} == {path.name for path in stored.iterdir()}
        before, after = (load_file(of / "model.safetensors") for of in (folder, stored))
        assert before.keys() == after.keys()
        assert any(not torch.equal(before[key], after[key]) for key in before)
    measures = [name for name in result.metrics if "." not in name]
    asked_about = ["clean", "random-swap", "random-swap:random-words"]
    assert measures == [*asked_about, "iiw", *(f"pool, {rule}" for rule in asked_about), "fresh search"]
    for name in measures:
        after, before = result.metrics[name], result.metrics[f"{name}.before"]
        assert 0 <= after.value <= 1
        if after.n == before.n:
            assert result.metrics[f"{name}.gain"].value == pytest.approx(after.value - before.value)
    (table,) = result.tables.values()
    assert [row[0] for row in table.rows] == [name.replace(":random-words", ", random words") for name in measures]
    assert not list((tmp_path / "run").glob("*.safetensors"))
    page = report_from_run(tmp_path / "run").read_text(encoding="utf-8")
    assert "Under a fresh search the right reply stays first in" in page
    assert "as many words of the same questions replaced at random" in page
    # The same ranker by the address of the run, as any other command opens it.
    context, replies = (("my", "screen", "is", "black"),), [("restart", "it"), ("open", "the", "file")]
    of_run, of_folder = (
        load_ranker(f"hf:{of}").score(context, replies) for of in (tmp_path / "run", tmp_path / "run" / "checkpoint")
    )
    np.testing.assert_array_equal(of_run, of_folder)
    for cut in ("epoch  1", "control"):
        again = tmp_path / f"cut-{cut[:5].strip()}"
        interrupt(TRAIN_HARDENED_RANKER, config, again, cut)
        assert run(config, again, Silent()).metrics == result.metrics
        for name in ("checkpoint", "control"):
            first, second = (load_file(of / name / "model.safetensors") for of in (tmp_path / "run", again))
            assert all(torch.equal(first[key], second[key]) for key in first)


def test_the_recipe_of_the_examples_lays_out_a_hardening(tmp_path: Path) -> None:
    values = {"model": f"hf:{desk_encoder(tmp_path / 'encoder')}", "corpus": "helpdesk", "contexts": 48, "held_out": 12}
    values |= {"attacked": 4, "epochs": 1, "rate": 0.005, "seeds": [1], "against": "iiw"}
    override = ",".join(f"{name}={value}" for name, value in values.items())
    recipe = Path(__file__).parents[4] / "examples" / "hardened_ranker.yaml"
    found = COMPARE_RECIPE.run(RecipeFileConfig(recipe=str(recipe), override=override), tmp_path / "run", Silent())
    assert not found.failure
    rows = {name.rpartition(".")[0] for name, estimate in found.metrics.items() if estimate.n}
    assert rows == {f"hardening.{name}" for name in ("clean", "iiw", "search")}
    clean = [found.metrics[f"hardening.clean.{name}"].value for name in ("before", "after", "control", "gain", "beyond")]
    before, after, control, *differences = clean
    assert differences == pytest.approx([after - before, after - control])


@pytest.mark.parametrize(("labels", "loss"), [(1, ""), (2, "contrastive")])
def test_a_cross_encoder_learns_all_weights_and_has_no_pool(tmp_path: Path, labels: int, loss: str) -> None:
    folder = desk_encoder(tmp_path / "encoder", labels)
    fit = EncoderFitConfig(max_epochs=1, batch_size=16, learning_rate=1e-3, loss=loss)  # type: ignore[arg-type]  # a parameter
    result = run(asked(folder, method="full", fit=fit), tmp_path / "run", Silent())
    assert not any(name.startswith("pool") for name in result.metrics)
    kinds = [event["kind"] for event in RunFolder.load(tmp_path / "run").events({"epoch": {}, "control epoch": {}})]
    assert kinds.count("epoch") == kinds.count("control epoch") == 1


GROUPS = [
    group("it is off", "+now", "on", key="a"),
    group("is it on ?", "+on", "off now", key="b"),
    group("it is off", "+off", "a", key="c"),
]
"""The first and the last have one context, so that each has two right replies."""


def test_the_loss_of_a_bi_encoder_is_that_of_all_replies_of_the_batch_but_other_right_ones(tmp_path: Path) -> None:
    ranker = load_hugging_face_ranker(bi_encoder(tmp_path))
    losses = bi_encoder_loss(ranker, GROUPS, EncoderFitConfig(scale=3.0))
    replies = list(dict.fromkeys(words for of in GROUPS for words in of.candidates))
    for of, loss in zip(GROUPS, losses.tolist(), strict=True):
        scores = dict(zip(replies, 3 * np.array(ranker.score(of.context, replies)), strict=True))
        rights = {("now",), ("off",)} if of.key != "b" else {("on",)}
        right = of.candidates[0]
        others = [score for words, score in scores.items() if words not in rights or words == right]
        assert loss == pytest.approx(math.log(sum(map(math.exp, others))) - scores[right], rel=1e-5)


def test_the_losses_of_a_cross_encoder_are_those_of_its_pairs_and_of_its_groups(tmp_path: Path) -> None:
    ranker = load_hugging_face_ranker(cross_encoder(tmp_path, labels=2))
    scores = [ranker.score(of.context, of.candidates) for of in GROUPS]
    pairs = cross_encoder_loss(ranker, GROUPS, EncoderFitConfig()).tolist()
    wanted = [
        math.log1p(math.exp(-score if label else score))
        for of in scores
        for score, label in zip(of, (True, False), strict=True)
    ]
    assert pairs == pytest.approx(wanted, rel=1e-5)
    listed = cross_encoder_loss(ranker, GROUPS, EncoderFitConfig(loss="contrastive")).tolist()
    assert listed == pytest.approx([math.log1p(math.exp(wrong - right)) for right, wrong in scores], rel=1e-5)
    figures = encoder_fitness(ranker, GROUPS, scale=20.0)
    assert figures.loss == pytest.approx(np.mean(listed))
    assert figures.recall_at_1 == pytest.approx(np.mean([right > wrong for right, wrong in scores]))


def test_adapters_are_added_to_the_weights_and_change_what_was_measured_by_rounding_alone(tmp_path: Path) -> None:
    ranker = load_hugging_face_ranker(bi_encoder(tmp_path))
    learner = EncoderLearner(ranker, LoraSettings(rank=2), seed=1)
    assert all("lora" in name for name in learner.state_dict())
    with torch.no_grad():
        for value in learner.state_dict().values():
            value.normal_(0, 0.1, generator=torch.Generator().manual_seed(1))
    adapted = [ranker.score(of.context, of.candidates) for of in GROUPS]
    learner.merge()
    ranker.forget()
    np.testing.assert_allclose([ranker.score(of.context, of.candidates) for of in GROUPS], adapted, atol=1e-5)


def test_a_share_of_the_groups_is_attacked_by_one_rule_each_and_anew_in_each_epoch() -> None:
    groups = [
        group(f"how do i open the old file number {n} ?", "+we start the machine", "open the disk", key=f"k{n}")
        for n in range(40)
    ]
    rules = built_in("iiw-training") + built_in("typos")
    attacked = AttackedGroups(rules, 0.5, seed=1)
    first, again, second = (attacked.of_epoch(number)(groups) for number in (0, 0, 1))
    assert first == again != second
    changed = [before != after for before, after in zip(groups, first, strict=True)]
    assert 8 <= sum(changed) <= 32
    # What becomes of a group depends on no other.
    assert attacked.of_epoch(0)(groups[7:8]) == first[7:8]


def rows(path: Path, lines: list[str]) -> str:
    path.write_text("question,answer\n" + "".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("model", "changes", "error", "said"),
    [
        ("none", {"model": "tfidf"}, ConfigError, r"a Hugging Face encoder(.|\n)*train matcher"),
        ("decoder", {}, ConfigError, r"a causal model is no encoder(.|\n)*train hardened"),
        ("static", {}, ConfigError, "no layers to train"),
        ("bi", {"fit": EncoderFitConfig(loss="cross-entropy")}, ConfigError, "no log-odds"),
        ("bi", {"against": "antonym"}, ConfigError, "no longer right"),
        ("bi", {"against": "iww"}, ConfigError, "did you mean 'iiw'"),
        ("bi", {"corpus": "FEW"}, DataError, r"8 training contexts or more(.|\n)*got.*3"),
        ("bi", {"corpus": "ONE"}, DataError, "needs right and wrong replies"),
        ("bi", {"lora": LoraSettings(modules="nothing")}, ConfigError, "no adapter fits"),
        ("empty", {}, CheckpointError, "config.json"),
        ("bi", {"fit": EncoderFitConfig(learning_rate=1e30, keep="last")}, ConfigError, "has diverged"),
    ],
)
def test_what_is_wrong_is_told(tmp_path: Path, model: str, changes: dict[str, Any], error: type[Exception], said: str) -> None:
    folder = tmp_path / "model"
    if model == "decoder":
        decoder(folder)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "architectures": ["LlamaForCausalLM"]}))
    elif model == "static":
        static_encoder(folder)
    elif model == "bi":
        desk_encoder(folder)
    else:
        folder.mkdir()
    told = dict(changes)
    if told.get("corpus") == "FEW":
        told["corpus"] = f"{rows(tmp_path / 'few.csv', [f'q {n},a {n}' for n in range(9)])}#shares=34:33:33"
        told["candidates"] = replace(TrainHardenedRankerConfig().candidates, size=2)
    if told.get("corpus") == "ONE":
        path = tmp_path / "one.tsv"
        path.write_text("".join(f"1\tquestion {n}\tyes {n}\n1\tquestion {n}\tno {n}\n" for n in range(60)), encoding="utf-8")
        told["corpus"] = str(path)
    with pytest.raises(error, match=said):
        run(asked(folder, **told), tmp_path / "run", Silent())


def test_a_table_of_nothing_has_no_rows() -> None:
    assert hardening_table({}).rows == ()
