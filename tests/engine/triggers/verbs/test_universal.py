"""`parley search universal`: pairs are split by prompt, every input is typed behind all of them, and workers change no row."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from parley.engine.core.page.page import report_from_run
from parley.engine.core.ray import pool
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.job import ATTACK, Silent
from parley.engine.triggers.methods.settings import SearchSettings
from parley.engine.triggers.metrics.universal import best_found, universal_metrics
from parley.engine.triggers.targets import Target
from parley.engine.triggers.verbs.config import HuggingFaceSettings, ObjectiveSettings, TriggerEngineSettings
from parley.engine.triggers.verbs.transfer import typed_triggers
from parley.engine.triggers.verbs.universal import SEARCH_UNIVERSAL, UniversalConfig, split_by_prompt
from parley.envs.core.errors import ConfigError, DataError
from tests.engine.core.verbs.made_up import Listening, rows
from tests.engine.triggers.verbs.searches import interrupt_inside

pytest.importorskip("transformers", reason="the extra hugging-face is not installed")

from parley.policies.hugging_face.models import load_hugging_face
from tests.policies.byte_pairs import byte_model
from tests.policies.sentence_pieces import piece_model

run = SEARCH_UNIVERSAL.run
PROMPTS = ("tell me", "say it", "about <b>", "oh well", "please", "the printer")
PAIRS = "prompt,target\n" + "".join(f"{prompt},hello\n" for prompt in PROMPTS)
EFFORT = SearchSettings(candidates=24, max_sweeps=6, restarts=2, words_per_position=64, beams=6)


def asked(folder: Path, tmp_path: Path, pairs: str = PAIRS, **changes: Any) -> UniversalConfig:
    (tmp_path / "pairs.csv").write_text(pairs)
    settings: dict[str, Any] = {
        "model": f"hf:{folder}",
        "targets": str(tmp_path / "pairs.csv"),
        "method": "gcg",
        "search": EFFORT,
        "hugging_face": HuggingFaceSettings(length=4, end=False),
        "num_random": 2,
        **changes,
    }
    return UniversalConfig(**settings)


def test_one_input_is_tried_behind_searched_and_held_out_prompts(tmp_path: Path, folder: Path) -> None:
    result = run(asked(folder, tmp_path), tmp_path / "run", Silent())
    found, parts = rows(tmp_path / "run"), (RunFolder.load(tmp_path / "run").summary() or {})[ATTACK]
    assert parts["objective"].startswith("mean of 3 pairs: TriggerObjective(")
    assert parts["prompts"].endswith("one input behind all; 3 pairs held out")
    assert [row["kind"] for row in found] == ["empty", "found", "found", "random", "random"]
    for row in found:
        assert row["status"] == "ok", row["error"]
        assert [pair["searched"] for pair in row["pairs"]].count(True) == 3
        assert len({pair["prompt"] for pair in row["pairs"]}) == 6
        for pair in row["pairs"]:
            victim = load_hugging_face(folder, 4)
            text = row["typed"][0] if row["typed"] else ""
            messages = [{"role": "user", "content": f"{pair['prompt']} {text}"}]
            given = {"add_generation_prompt": True, "return_tensors": "pt", "return_dict": True}
            read = victim.tokenizer.apply_chat_template(messages, **given)
            said = victim.model.generate(**read, do_sample=False, max_new_tokens=len(victim.tokenizer("hello").input_ids) + 1)
            reply = victim.tokenizer.decode(said[0, read["input_ids"].shape[1] :], skip_special_tokens=True)
            assert (reply, reply.startswith("hello")) == (pair["reply"], pair["verified"])
            assert not pair["searched"] or pair["retokenised"]
    kept = best_found(found)
    assert kept is not None
    rates = {kind: result.metrics[f"{kind}.searched.verified"].value for kind in ("found", "random", "empty")}
    assert rates["found"] == sum(pair["verified"] for pair in kept["pairs"] if pair["searched"]) / 3
    assert rates["found"] >= rates["random"]
    assert result.metrics["found.searched.nats"].value < result.metrics["random.searched.nats"].value
    assert result.metrics["found.held_out.verified"].n == 3
    assert result.metrics["random.held_out.verified"].n == 3, "prompts are the units, however many inputs are drawn"
    assert "found" in (tmp_path / "run" / "table.md").read_text()
    assert "held-out prompts" in report_from_run(tmp_path / "run").read_text()


def saved(path: Path, **sizes: Any) -> Path:
    for part in byte_model(**sizes):
        part.save_pretrained(path)
    return path


def test_the_first_model_may_judge_the_one_input(tmp_path: Path, folder: Path) -> None:
    settings: dict[str, Any] = {
        "model": f"hf:{folder},hf:{folder}",
        "objective": ObjectiveSettings(lm_weight=5.0),
        "search": replace(EFFORT, candidates=8, restarts=1, max_sweeps=2),
        "num_random": 0,
    }
    for lm in ("own", f"hf:{folder}"):
        run(asked(folder, tmp_path, lm=lm, **settings), tmp_path / lm[:2], Silent())
    assert rows(tmp_path / "ow") == rows(tmp_path / "hf")
    found = rows(tmp_path / "ow")[1]
    assert found["loss"] > 5 * 1.0, "nats of the input weigh"


def test_one_input_is_searched_for_on_several_models(tmp_path: Path, folder: Path) -> None:
    other = saved(tmp_path / "other", seed=5)
    config = asked(folder, tmp_path, model=f"hf:{folder},hf:{other}", search=replace(EFFORT, restarts=1), num_random=1)
    result = run(config, tmp_path / "run", Silent())
    labels = [folder.name, "other"]
    empty, found, random = rows(tmp_path / "run")
    for row in (empty, found, random):
        assert row["status"] == "ok", row["error"]
        assert [pair["model"] for pair in row["pairs"]] == [labels[0]] * 6 + [labels[1]] * 6
    for pair in found["pairs"]:
        victim = load_hugging_face(folder if pair["model"] == labels[0] else other, 4)
        messages = [{"role": "user", "content": f"{pair['prompt']} {found['typed'][0]}"}]
        given = {"add_generation_prompt": True, "return_tensors": "pt", "return_dict": True}
        read = victim.tokenizer.apply_chat_template(messages, **given)
        said = victim.model.generate(**read, do_sample=False, max_new_tokens=len(victim.tokenizer("hello").input_ids) + 1)
        assert victim.tokenizer.decode(said[0, read["input_ids"].shape[1] :], skip_special_tokens=True) == pair["reply"]
    for label in labels:
        own = [pair["verified"] for pair in found["pairs"] if pair["searched"] and pair["model"] == label]
        assert result.metrics[f"found.searched.verified.{label}"].value == sum(own) / 3
        assert f"found, {label}" in (tmp_path / "run" / "table.md").read_text()
    both = [result.metrics[f"found.searched.nats.{label}"].value for label in labels]
    assert result.metrics["found.searched.nats"].value == pytest.approx(sum(both) / 2)
    assert "found, other" in report_from_run(tmp_path / "run").read_text()
    triggers = typed_triggers({"both": str(tmp_path / "run")}, "all")
    assert len(triggers["both"]) == 3, "a prompt is typed once, however many models were searched"


@pytest.mark.parametrize("method", ["gcg", "gibbs-enum", "beast"])
def test_a_model_with_other_tokens_reads_the_input_as_text(tmp_path: Path, folder: Path, method: str) -> None:
    other = tmp_path / "other"
    for part in piece_model(seed=3):
        part.save_pretrained(other)
    model, search = f"hf:{folder},hf:{other}", replace(EFFORT, candidates=12, restarts=1, max_sweeps=2, stop_on_hit=False)
    config = asked(folder, tmp_path, model=model, method=method, search=search, num_random=1, held_out=0.0)
    result = run(config, tmp_path / "run", Silent())
    _, found, random = rows(tmp_path / "run")
    assert {row["status"] for row in (found, random)} == {"ok"}
    means = {}
    for row in (found, random):
        nats = []
        for pair in row["pairs"]:
            victim = load_hugging_face(folder if pair["model"] == folder.name else other, 4)
            messages = [{"role": "user", "content": f"{pair['prompt']} {row['typed'][0]}"}]
            given = {"add_generation_prompt": True, "return_tensors": "pt", "return_dict": True}
            read = victim.tokenizer.apply_chat_template(messages, **given).input_ids
            target_T = victim.tokenizer("hello", return_tensors="pt", add_special_tokens=False).input_ids[0]
            with torch.no_grad():
                logits_SV = victim.model(input_ids=torch.cat([read, target_T[None]], dim=1)).logits[0]
            said_TV = logits_SV[read.shape[1] - 1 : -1].log_softmax(-1)
            nats.append(-float(said_TV[range(len(target_T)), target_T].mean()))
            assert pair["nats"] == pytest.approx(nats[-1], abs=1e-4), "what is typed is what is measured"
            assert pair["hit"] == (said_TV.argmax(-1) == target_T).all()
            said = victim.model.generate(read, do_sample=False, max_new_tokens=len(target_T) + 1)
            assert victim.tokenizer.decode(said[0, read.shape[1] :], skip_special_tokens=True) == pair["reply"]
        means[row["kind"]] = sum(nats) / len(nats)
    assert [pair["model"] for pair in found["pairs"]] == [folder.name] * 6 + ["other"] * 6
    assert means["found"] < means["random"]
    assert result.metrics["found.searched.nats.other"].n == 6
    run(replace(config, workers=0, shard_size=2, engine=TriggerEngineSettings(batch_size=1)), tmp_path / "two", Silent())
    assert rows(tmp_path / "two") == rows(tmp_path / "run")


def test_several_models_share_no_embeddings_and_no_thresholds(tmp_path: Path, folder: Path) -> None:
    both = f"hf:{folder},hf:{folder}"
    with pytest.raises(ConfigError, match="do not share the embeddings"):
        run(asked(folder, tmp_path, model=both, method="pez"), tmp_path / "run", Silent())
    with pytest.raises(ConfigError, match="thresholds of one model"):
        run(asked(folder, tmp_path, model=both, corpus="helpdesk"), tmp_path / "run", Silent())
    with pytest.raises(ConfigError, match="hf:FOLDER or gguf:FILE"):
        run(asked(folder, tmp_path, model=f"hf:{folder},runs/seq2seq"), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("workers_here")
def test_rows_do_not_depend_on_how_work_is_cut(tmp_path: Path, folder: Path) -> None:
    few = replace(EFFORT, max_sweeps=2)
    run(asked(folder, tmp_path, search=few), tmp_path / "one", Silent())
    changed = asked(folder, tmp_path, search=few, shard_size=3, engine=TriggerEngineSettings(batch_size=1))
    run(changed, tmp_path / "two", Silent())
    assert rows(tmp_path / "one") == rows(tmp_path / "two")
    run(replace(changed, shard_size=2, workers=2), tmp_path / "workers", Silent())
    assert rows(tmp_path / "one") == rows(tmp_path / "workers")


def test_an_interrupted_search_goes_on_inside_an_input(tmp_path: Path, folder: Path) -> None:
    config = asked(folder, tmp_path, search=replace(EFFORT, restarts=1, stop_on_hit=False))
    interrupt_inside(SEARCH_UNIVERSAL, config, tmp_path / "run")
    assert len(rows(tmp_path / "run")) < 4
    run(config, tmp_path / "run", Silent())
    run(config, tmp_path / "whole", Silent())
    assert rows(tmp_path / "run") == rows(tmp_path / "whole")


def test_pairs_of_one_prompt_are_in_one_part() -> None:
    pairs = tuple(Target(f"p-{number}", ("hello",), f"prompt {number // 2}") for number in range(12))
    searched, held_out = split_by_prompt(pairs, 0.3, seed=4)
    assert len(held_out) == 4
    assert not {pair.prompt for pair in searched} & {pair.prompt for pair in held_out}
    assert sorted(searched + held_out, key=lambda pair: pair.key) == sorted(pairs, key=lambda pair: pair.key)
    assert split_by_prompt(pairs, 0.0, seed=4) == (pairs, ())
    with pytest.raises(DataError, match="one alone"):
        split_by_prompt(pairs[:2], 0.5, seed=4)


def test_held_out_pairs_choose_nothing() -> None:
    def row(key: str, searched: bool, held_out: bool) -> dict[str, Any]:
        pairs = [
            dict.fromkeys(("samples", "sampled", "judge_answers", "judge_unparsable", "judge_no_reply"), 0)
            | {"key": str(seen), "prompt": str(seen), "searched": seen, "verified": works, "nats": 1.0, "hit": works}
            for seen, works in ((True, searched), (False, held_out))
        ]
        return {"item_key": key, "status": "ok", "kind": "found", "loss": 1.0, "pairs": pairs, "candidates": 1, "refused": 0}

    found = [row("found-0", False, True), row("found-1", True, False)]
    assert best_found(found) == found[1]
    assert universal_metrics(found, 0)["found.held_out.verified"].value == 0


def test_the_interval_of_nats_does_not_go_below_none() -> None:
    pairs = [
        dict.fromkeys(("samples", "sampled", "judge_answers", "judge_unparsable", "judge_no_reply"), 0)
        | {"key": f"{nats}", "prompt": f"{nats}", "searched": True, "verified": False, "nats": nats, "hit": False}
        for nats in (0.1, 4.0)
    ]
    row = {"item_key": "found-0", "status": "ok", "kind": "found", "loss": 1.0, "pairs": pairs, "candidates": 1, "refused": 0}
    nats = universal_metrics([row], 0)["found.searched.nats"]
    assert (nats.low, nats.value) == (0.0, pytest.approx(2.05))


def test_pairs_of_one_prompt_are_one_unit() -> None:
    def row(kind: str, works: bool) -> dict[str, Any]:
        about = dict.fromkeys(("samples", "sampled", "judge_answers", "judge_unparsable", "judge_no_reply"), 0) | {
            "nats": 1.0,
            "hit": works,
        }
        pairs = [
            about | {"key": str(number), "prompt": str(number // 4), "searched": False, "verified": works and number < 4}
            for number in range(8)
        ]
        own = {"item_key": kind, "status": "ok", "kind": kind, "loss": 1.0, "candidates": 1, "refused": 0}
        return own | {"pairs": pairs}

    metrics = universal_metrics([row("found", True), row("random", False)], 0)
    for name in ("found.held_out.verified", "found.held_out.nats", "found.held_out.over_random"):
        assert metrics[name].n == 2
    assert metrics["found.held_out.over_random"].value == 0.5
    assert metrics["no_reply"].n == 2, "prompts, of which each input was typed behind all"
    assert metrics["found.held_out.verified"].low < 0.1, "two prompts that end otherwise say next to nothing"


def test_what_cannot_work_is_refused_before_anything_is_loaded(tmp_path: Path, folder: Path) -> None:
    config = asked(folder, tmp_path, model=f"hf:{tmp_path}/nothing-there")
    for changes, message in (
        ({"targets": "mal"}, "needs pairs"),
        ({"model": "runs/seq2seq"}, "reads prompts"),
        ({"method": "relaxation"}, "no words|continuous"),
    ):
        with pytest.raises(ConfigError, match=message):
            run(replace(config, **changes), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()


def test_the_time_left_weighs_a_search_by_its_candidates_and_an_input_by_its_replies(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "TURN_S", 0.0)
    notes = Listening()
    run(asked(folder, tmp_path), tmp_path / "run", notes)
    # A search reads at most 6 sweeps of 4 visits of 24 candidates behind 3 prompts; all 6 replies have 2 words at most.
    search, replies = 6 * 4 * 24 * 3, 6 * 2
    only_replies = 3 * replies / (2 * search + 5 * replies)
    assert notes.stages[-1][1:] == (100, "%")
    assert notes.steps == sorted(notes.steps)
    assert notes.steps[-1] == pytest.approx(100)
    counted = [int(note[0]) for note in notes.said if " of 5 inputs" in note]
    assert counted[-1] == 5
    assert len(counted) == len(notes.steps)
    first = notes.steps[counted.index(3)]
    assert 100 * only_replies <= first < 50, "three inputs of five are done, and most of the work is left"
