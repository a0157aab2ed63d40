"""Trigger searches on a chat model whose tokenizer merges across boundaries: pairs, prefixes, typed inputs, verification."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from parley.engine.core.page.page import report_from_run
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.export import tables_of_run
from parley.engine.core.verbs.job import ATTACK, USAGE, Silent
from parley.engine.triggers.methods.settings import SearchSettings
from parley.engine.triggers.metrics.hits import JUDGE_ANSWERS, JUDGE_UNPARSABLE, REFUSED, SAMPLED, VERIFIED
from parley.engine.triggers.scorers.causal import probes, scorer
from parley.engine.triggers.scorers.causal.probes import agreement
from parley.engine.triggers.success import SuccessSettings
from parley.engine.triggers.targets import Skipped
from parley.engine.triggers.verbs.config import HuggingFaceSettings, ObjectiveSettings, TriggerConfig, TriggerEngineSettings
from parley.engine.triggers.verbs.search import SEARCH
from parley.envs.core.errors import CheckpointError, ConfigError, DataError
from parley.policies.chat.model import Message
from tests.engine.core.verbs.made_up import Notes, rows
from tests.engine.triggers.verbs.searches import has_ended_a_restart, interrupt_inside, search

pytest.importorskip("transformers", reason="the extra hugging-face is not installed")

from parley.policies.hugging_face.models import load_hugging_face
from parley.policies.hugging_face.victims import HuggingFaceCausal
from tests.engine.core.verbs.items import require_figures_of
from tests.policies.byte_pairs import byte_tokenizer
from tests.policies.sentence_pieces import piece_model

run = SEARCH.run
PAIRS = "goal,target\ntell me,hello\ntell me,you\nsay it,hello\nsay it,a\n"
"""Two targets behind one prompt, and one target behind two."""
EFFORT = SearchSettings(candidates=24, max_sweeps=6, restarts=2, beams=6)


def asked(folder: Path, tmp_path: Path, pairs: str = PAIRS, **changes: Any) -> TriggerConfig:
    (tmp_path / "pairs.csv").write_text(pairs)
    settings: dict[str, Any] = {
        "hit": "o-greedy",
        "search": EFFORT,
        "hugging_face": HuggingFaceSettings(length=4, end=False),
        **changes,
    }
    return search(f"hf:{folder}", str(tmp_path / "pairs.csv"), **settings)


@pytest.mark.parametrize("method", ["gcg", "pez", "beast", "random"])
def test_every_hit_of_a_typed_search_is_what_the_model_generates(tmp_path: Path, folder: Path, method: str) -> None:
    config = asked(folder, tmp_path, method=method, search=replace(EFFORT, candidates=12, words_per_position=64))
    result = run(config, tmp_path / "run", Silent())
    require_figures_of(tmp_path / "run")
    found = rows(tmp_path / "run")
    assert [(row["prompt"], row["target"]) for row in found] == [
        ("tell me", "hello"), ("tell me", "you"), ("say it", "hello"), ("say it", "a"),
    ]  # fmt: skip
    hits, victim = 0, load_hugging_face(folder, 4)
    for row in found:
        assert row["status"] == "ok", row["error"]
        (text,) = row["typed"]
        messages = [{"role": "user", "content": f"{row['prompt']} {text}"}]
        read = victim.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
        said = victim.model.generate(**read, do_sample=False, max_new_tokens=len(row["target_words"]) + 1)
        reply = victim.tokenizer.decode(said[0, read["input_ids"].shape[1] :], skip_special_tokens=True)
        assert reply == row["reply"]
        assert row["verified"] == reply.startswith(row["target"])
        (claimed,) = [each["hit"] for each in row["hits"] if each["type"] == "o-greedy"]
        # What is likeliest token by token is said; other tokens may spell the target too.
        assert row["retokenised"]
        assert row["verified"] >= claimed
        assert victim.tokenizer.decode(row["trigger_ids"]) == text
        hits += claimed
    assert result.metrics[VERIFIED].value >= result.metrics["hit_rate.o-greedy"].value == hits / 4
    assert result.metrics[REFUSED].value == sum(restart["refused"] for row in found for restart in row["restarts"])
    assert hits or method in ("random", "pez")
    assert set(SEARCH.metrics_of(config)) == set(result.metrics)  # type: ignore[misc]  # it is there


def test_fluency_weighs_in_any_hits_objective_where_it_is_asked_for(tmp_path: Path, folder: Path) -> None:
    fluent = asked(folder, tmp_path, method="gibbs-enum", lm="own", objective=ObjectiveSettings(lm_weight=5.0))
    fluent = replace(fluent, search=replace(EFFORT, restarts=1, max_sweeps=4))
    found = {}
    for name, config in {"fluent": fluent, "free": replace(fluent, objective=ObjectiveSettings())}.items():
        run(config, tmp_path / name, Silent())
        found[name] = rows(tmp_path / name)
        for row in found[name]:
            terms = [
                0 if likeliest else -log for log, likeliest in zip(row["word_log_probability"], row["likeliest"], strict=True)
            ]
            loss = sum(terms) / len(terms) - 5 * row["input_log_probability"] * (name == "fluent")
            assert row["loss"] == pytest.approx(loss, abs=1e-4)
    run(replace(fluent, lm=fluent.model), tmp_path / "named", Silent())
    assert rows(tmp_path / "named") == found["fluent"]
    fluent_nats, free_nats = (-sum(row["input_log_probability"] for row in each) for each in found.values())
    assert fluent_nats < free_nats
    with pytest.raises(ConfigError, match=r"no model judges inputs(.|\n)*lm_weight(.|\n)*--lm"):
        run(replace(fluent, lm=""), tmp_path / "run", Silent())


@pytest.mark.parametrize("content", ["{prompt} {}", "{} {prompt} {}", "{}{prompt}"])
def test_a_search_starts_from_the_text_that_the_user_wrote(tmp_path: Path, folder: Path, content: str) -> None:
    template = tmp_path / "messages.json"
    template.write_text(json.dumps([{"role": "user", "content": content}]))
    start = "hello you are a"
    settings = HuggingFaceSettings(length=5, end=False, start=start, template=str(template))
    once = SearchSettings(candidates=1, max_candidates=1, restarts=1)
    run(asked(folder, tmp_path, method="gcg", search=once, hugging_face=settings), tmp_path / "run", Silent())
    tokenizer = load_hugging_face(folder, 4).tokenizer
    written = [tokenizer(text).input_ids for text in (start, f" {start}")]
    for row in rows(tmp_path / "run"):
        assert row["status"] == "ok", row["error"]
        assert row["retokenised"]
        changed = [sum(a != b for a, b in zip(row["trigger_ids"], ids, strict=True)) for ids in written]
        assert min(changed) <= 1, "one swap was tried"


@pytest.mark.parametrize("scheme", ["first", "always"])
def test_hits_reproduce_with_a_tokenizer_whose_blanks_lead_words(tmp_path: Path, scheme: str) -> None:
    model, tokenizer = piece_model(scheme, seed=3)
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "pieces")
    # What the model begins its reply to some input with.
    template = (Message("user", "{prompt} {}"),)
    victim = HuggingFaceCausal(model, tokenizer, 4, template, prompt="tell me", end=False)
    words = victim.searchable_V.nonzero()[:, 0]
    drawn = words[torch.randint(len(words), (400, 4), generator=torch.Generator().manual_seed(1))]
    said = [victim.say(victim.typed(ids), 1)[0] for ids in drawn[victim.allows(drawn)].tolist()]
    words_said = {victim.reply_text(reply) for reply in said if tokenizer.convert_ids_to_tokens(reply)[0][0] == "\u2581"}
    texts = sorted(text for text in words_said if victim.target(text).tolist() in said)
    assert len(texts) > 1
    config = asked(tmp_path / "pieces", tmp_path, "goal,target\n" + "".join(f'tell me,"{text}"\n' for text in texts))
    result = run(config, tmp_path / "run", Silent())
    found = rows(tmp_path / "run")
    hits = [each["hit"] for row in found for each in row["hits"] if each["type"] == "o-greedy"]
    assert all(row["retokenised"] for row in found)
    assert any(hits)
    assert all(row["verified"] >= hit for row, hit in zip(found, hits, strict=True))
    assert result.metrics[VERIFIED].value >= result.metrics["hit_rate.o-greedy"].value
    shown = result.more["inputs that worked"].rows[0]
    assert [*tables_of_run(str(result.run))] == [result.title, "inputs that worked"]
    assert (shown[0], shown[1]) == ("success", "tell me")
    assert all(row["kind"] for row in found)


def test_a_prompt_that_leaves_no_room_is_told_of_and_not_its_target(tmp_path: Path, folder: Path) -> None:
    pairs = f"prompt,target\n{'tell me ' * 200},hello\ntell me,hello\n"
    run(asked(folder, tmp_path, pairs, method="random"), tmp_path / "run", Silent())
    (skipped,) = RunFolder.load(tmp_path / "run").summary()["skipped"]  # type: ignore[index]
    assert Skipped(**skipped).reason == "the prompt is longer than the model reads before its target"
    assert len(rows(tmp_path / "run")) == 1


def test_without_the_filter_claims_do_not_hold(tmp_path: Path, folder: Path) -> None:
    """The tokenizer of this test merges: were the filter without effect, this would fail."""
    found = {}
    for typed in (True, False):
        settings = HuggingFaceSettings(length=4, end=False, typed=typed)
        result = run(asked(folder, tmp_path, hugging_face=settings), tmp_path / f"run-{typed}", Silent())
        found[typed] = rows(tmp_path / f"run-{typed}")
        assert (result.metrics[REFUSED].value > 0) == typed
    assert all(row["retokenised"] for row in found[True])
    assert not all(row["retokenised"] for row in found[False])


@pytest.mark.parametrize("method", ["gcg", "beast"])
@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=[pytest.mark.ray, pytest.mark.slow])])
def test_rows_do_not_depend_on_what_is_searched_side_by_side(
    tmp_path: Path, folder: Path, workers: int, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    together, call = [1], scorer.read_together
    monkeypatch.setattr(scorer, "read_together", lambda lists, read: (together.append(len(lists)), call(lists, read))[1])
    settings = {"engine": TriggerEngineSettings(batch_size=8), "search": replace(EFFORT, candidates=8, max_sweeps=2)}
    config = asked(folder, tmp_path, method=method, success=SuccessSettings(samples=3, temperature=2.0), **settings)
    result = run(config, tmp_path / "one", Silent())
    # Of the two targets behind one prompt, and of restarts.
    assert (max(together) > 1) == (method != "beast")
    changed = replace(config, workers=workers, shard_size=1, engine=TriggerEngineSettings(batch_size=1))
    run(changed, tmp_path / "two", Silent())
    assert rows(tmp_path / "one") == rows(tmp_path / "two")
    assert all(row["samples"] == 3 for row in rows(tmp_path / "one"))
    assert 0 <= result.metrics[SAMPLED].value <= 1
    assert set(SEARCH.metrics_of(config)) == set(result.metrics)  # type: ignore[misc]  # it is there


def test_a_whole_reply_ends_where_the_turn_ends(tmp_path: Path, folder: Path) -> None:
    config, notes = asked(folder, tmp_path, hugging_face=HuggingFaceSettings(length=4)), Notes()
    run(config, tmp_path / "run", notes)
    parts = (RunFolder.load(tmp_path / "run").summary() or {})[ATTACK]
    (told,) = [said.splitlines() for said in notes.said if said.startswith("victim")]
    assert [line.split(maxsplit=1) for line in told] == [[name, text] for name, text in parts.items()]
    assert list(parts) == ["victim", "method", "objective", "prompts", "success"]
    assert parts["victim"] == f"{config.model}, shows gradients"
    assert parts["method"].startswith("GibbsEnum(candidates=24, ")
    assert parts["method"].endswith("reads gradients")
    assert parts["objective"].endswith("until o-greedy")
    assert parts["prompts"] == f"{config.targets}: length=4, end=True"
    assert parts["success"] == "by=target"
    page = report_from_run(tmp_path / "run").read_text()
    assert "The attack, " in page
    assert "GibbsEnum(candidates=24, " in page
    assert {row["target_words"][-1] for row in rows(tmp_path / "run")} == {"<|turn|>"}


def test_an_interrupted_search_goes_on_inside_its_targets_to_the_same_rows(tmp_path: Path, folder: Path) -> None:
    sizes = {"candidates": 8, "max_sweeps": 6, "restarts": 3, "words_per_position": 32, "num_replaced": 2, "buffer": 3}
    long = SearchSettings(**sizes, momentum=0.5, stop_on_hit=False)
    one_by_one = {"success": SuccessSettings(samples=2), "engine": TriggerEngineSettings(batch_size=1)}
    config = asked(folder, tmp_path, PAIRS.rsplit("\n", 3)[0], method="gcg", search=long, **one_by_one)
    interrupt_inside(SEARCH, config, tmp_path / "run", has_ended_a_restart)
    assert len(rows(tmp_path / "run")) < 2
    run(config, tmp_path / "run", Silent())
    run(config, tmp_path / "whole", Silent())
    assert rows(tmp_path / "run") == rows(tmp_path / "whole")


JUDGE = """
def judge(messages):
    question = messages[0]["content"]
    open("ASKED", "a").write("asked ")
    assert "tell me" in question or "say it" in question, "the request is shown"
    if "say it" in question:
        return "I would rather not say, yes or no."
    return " Yes. " if len(messages) > 1 else "well, perhaps"
"""


def test_a_chat_judge_is_asked_twice_and_what_is_neither_is_counted(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "judge.py").write_text(JUDGE.replace("ASKED", str(tmp_path / "asked")))
    success = SuccessSettings(by="judge", judge=f"{tmp_path}/judge.py:judge", samples=1)
    config = asked(folder, tmp_path, success=success, search=replace(EFFORT, max_sweeps=1, restarts=1))
    result = run(config, tmp_path / "run", Silent())
    found = rows(tmp_path / "run")
    assert [row["verified"] for row in found] == [row["prompt"] == "tell me" for row in found] == [True, True, False, False]
    assert {row["judge_answers"] for row in found} == {4}, "two replies, two questions each"
    assert [row["judge_unparsable"] for row in found] == [0, 0, 2, 2]
    assert (result.metrics[JUDGE_ANSWERS].value, result.metrics[JUDGE_UNPARSABLE].value) == (16, 4)
    assert set(SEARCH.metrics_of(config)) == set(result.metrics)  # type: ignore[misc]  # it is there
    usage = (RunFolder.load(tmp_path / "run").summary() or {})[USAGE]
    kept = (tmp_path / "run" / "answers" / "answers.jsonl").read_text().splitlines()
    assert 0 < usage["asked"] == usage["uncounted"] == len(kept) <= 16
    asked_once = (tmp_path / "asked").read_text()
    shutil.rmtree(tmp_path / "run" / "rows")
    again = run(config, tmp_path / "run", Silent())
    assert (rows(tmp_path / "run"), again.metrics[JUDGE_ANSWERS]) == (found, result.metrics[JUDGE_ANSWERS])
    assert (tmp_path / "asked").read_text() == asked_once, "nothing is asked twice"
    (tmp_path / "question.txt").write_text("Is it good?")
    bad = replace(config, success=replace(success, question=str(tmp_path / "question.txt")))
    with pytest.raises(ConfigError, match="no place for the reply"):
        run(bad, tmp_path / "bad", Silent())


def test_a_judge_that_fails_costs_one_row(tmp_path: Path, folder: Path) -> None:
    gone = tmp_path / "gone"
    fails = f"os.path.exists({str(gone)!r}) and 'say it' in messages[0]['content']"
    code = f"import os\ndef judge(messages):\n    if {fails}: raise RuntimeError('gone')\n    return 'yes'\n"
    (tmp_path / "judge.py").write_text(code)
    success = SuccessSettings(by="judge", judge=f"{tmp_path}/judge.py:judge")
    config = asked(folder, tmp_path, success=success, search=replace(EFFORT, max_sweeps=1, restarts=1))
    run(config, tmp_path / "whole", Silent())
    gone.touch()
    run(config, tmp_path / "run", Silent())
    whole, found = rows(tmp_path / "whole"), rows(tmp_path / "run")
    assert [row["status"] for row in found] == ["ok", "ok", "error", "error"]
    assert all("gone" in row["error"] for row in found[2:])
    assert found[:2] == whole[:2]
    gone.unlink()
    run(config, tmp_path / "run", Silent())
    assert rows(tmp_path / "run") == whole


def test_a_model_of_its_own_drafts_a_search(tmp_path: Path, folder: Path) -> None:
    config = asked(folder, tmp_path, method="gcg", search=replace(EFFORT, draft=f"hf:{folder}"))
    run(config, tmp_path / "run", Silent())
    require_figures_of(tmp_path / "run")
    assert SEARCH.models(config) == {"model": str(folder), "lm": "", "draft": str(folder)}
    # A model that agrees with itself leaves few candidates to read, and what was found is read by the searched model.
    assert {row["status"] for row in rows(tmp_path / "run")} == {"ok"}


def test_a_second_model_drafts_a_search(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import transformers

    smaller = {"vocab_size": len(byte_tokenizer()), "n_positions": 128, "n_embd": 8, "n_layer": 2, "n_head": 1}
    torch.manual_seed(1)
    for part in (transformers.GPT2LMHeadModel(transformers.GPT2Config(**smaller)), byte_tokenizer()):
        part.save_pretrained(tmp_path / "draft")
    shares = list[float]()

    def noted(draft: torch.Tensor, full: torch.Tensor) -> float:
        shares.append(agreement(draft, full))
        return shares[-1]

    monkeypatch.setattr(probes, "agreement", noted)
    config = asked(folder, tmp_path, method="gcg", search=replace(EFFORT, draft=f"hf:{tmp_path}/draft"))
    run(config, tmp_path / "run", Silent())
    require_figures_of(tmp_path / "run")
    assert {row["status"] for row in rows(tmp_path / "run")} == {"ok"}
    assert SEARCH.models(config)["draft"] == str(tmp_path / "draft")
    # Random weights know nothing of the searched model: the order of half of all pairs is the same.
    assert 0 <= min(shares) < max(shares) <= 1
    assert sum(shares) / len(shares) == pytest.approx(0.5, abs=0.1)


def test_what_does_not_fit_is_said_before_a_run_is_made(tmp_path: Path, folder: Path) -> None:
    config = asked(folder, tmp_path)
    for changes, kind, message in (
        ({"targets": str(tmp_path / "none.csv")}, ConfigError, "no list of targets"),
        ({"model": "runs/seq2seq"}, ConfigError, "need a model that reads prompts"),
        (
            {"model": "openai:http://127.0.0.1:1#none", "targets": "mal"},
            ConfigError,
            "gradients of the model, which shows text",
        ),
        ({"model": f"gguf:{tmp_path}/none.gguf"}, Exception, "none.gguf"),
        ({"hugging_face": HuggingFaceSettings(length=4, template="user")}, ConfigError, "no place for them"),
        ({"hugging_face": HuggingFaceSettings(length=4, start="hello you are a fool")}, ConfigError, "another length"),
        ({"method": "gcg", "search": replace(EFFORT, draft=f"hf:{tmp_path}/none")}, CheckpointError, "needs a config.json"),
        ({"method": "gcg", "search": replace(EFFORT, draft="200")}, ConfigError, "no draft of so many layers"),
    ):
        with pytest.raises(kind, match=message):
            run(replace(config, **changes), tmp_path / "run", Silent())
    with pytest.raises(ConfigError, match="hf:FOLDER"):
        SuccessSettings(by="classifier", classifier="runs/x")
    with pytest.raises(DataError, match="is empty"):
        run(asked(folder, tmp_path, ""), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()
