"""Trigger searches on Hugging Face models, small ones that are built here."""

from __future__ import annotations

import pickle
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.job import Silent
from parley.engine.triggers.targets import TEMPLATES, prototypes
from parley.engine.triggers.verbs.config import HuggingFaceSettings, ObjectiveSettings, TriggerConfig, TriggerEngineSettings
from parley.engine.triggers.verbs.methods import SEARCH_METHODS
from parley.engine.triggers.verbs.models import HuggingFaceFolder
from parley.engine.triggers.verbs.search import SEARCH
from parley.engine.triggers.verbs.table import SEARCH_TABLE
from parley.engine.triggers.verbs.universal import SEARCH_UNIVERSAL
from parley.envs.core.errors import CheckpointError, ConfigError, DataError
from parley.policies.hugging_face.models import HuggingFaceSeq2Seq, read_model
from tests.engine.core.verbs.made_up import rows
from tests.engine.triggers.made_up import crowd
from tests.engine.triggers.verbs.searches import EFFORT, search, write_targets

pytest.importorskip("transformers", reason="the extra hugging-face is not installed")
from tests.policies.small_hugging_face import gpt2, t5, transformers

run = SEARCH.run

SENTENCES = ("you are late", "oh there you are", "hello", "Well no")
"""Two of them hold words that the tokenizer does not know."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A saved encoder and decoder, and a saved decoder alone."""
    folder = tmp_path_factory.mktemp("hugging-face")
    for name, victim in {"t5": t5(), "gpt2": gpt2()}.items():
        victim.model.save_pretrained(folder / name)
        victim.tokenizer.save_pretrained(folder / name)
    return {name: folder / name for name in ("t5", "gpt2")}


def asked(folder: Path, targets: str, **changes: Any) -> TriggerConfig:
    settings: dict[str, Any] = {"objective": ObjectiveSettings(t_out=-2.0), "hugging_face": HuggingFaceSettings(length=3)}
    return search(f"hf:{folder}", targets, **{**settings, **changes})


@pytest.mark.parametrize("name", ["t5", "gpt2"])
def test_a_search_reads_the_tokens_of_its_targets(tmp_path: Path, folders: dict[str, Path], name: str) -> None:
    config = asked(folders[name], write_targets(tmp_path, SENTENCES))
    result = run(config, tmp_path / "run", Silent())
    found = rows(tmp_path / "run")
    assert [row["target"] for row in found] == ["oh there you are", "hello"]
    for row in found:
        assert row["status"] == "ok", row["error"]
        assert len(row["target_words"]) == len(row["word_log_probability"]) >= 2
        starts = [restart["loss_by_sweep"][0] for restart in row["restarts"]]
        assert row["loss"] <= min(starts)
    assert (result.metrics["targets"].value, result.metrics["skipped"].value) == (2, 2)
    summary = RunFolder.load(tmp_path / "run").summary()
    assert summary is not None
    assert [entry["unknown"] for entry in summary["skipped"]] == [["late"], ["Well", "no"]]
    assert "hit_rate.io-sample-min-k1" not in result.metrics


def test_of_the_mal_targets_those_are_searched_for_whose_words_are_known(
    tmp_path: Path, folders: dict[str, Path], caplog: pytest.LogCaptureFixture
) -> None:
    result = run(asked(folders["gpt2"], "mal"), tmp_path / "run", Silent())
    known = [template for template in TEMPLATES if "think" not in template]
    said = [template.format(words) for words in ("you are a fool", "what a fool you are") for template in known]
    assert [row["target"] for row in rows(tmp_path / "run")] == said
    assert all("<unk>" not in row["target_words"] for row in rows(tmp_path / "run"))
    written = len(prototypes()) * len(TEMPLATES)
    assert (result.metrics["targets"].value, result.metrics["skipped"].value) == (len(said), written - len(said))
    assert any("hold words outside the vocabulary (" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize(("targets", "place"), [("mal", "malicious"), ("", r"wishes\.txt:1")])
def test_strict_refuses_targets_whose_words_the_tokenizer_does_not_know(
    tmp_path: Path, folders: dict[str, Path], targets: str, place: str
) -> None:
    config = asked(folders["t5"], targets or write_targets(tmp_path, SENTENCES), strict=True)
    with pytest.raises(DataError, match=rf"cannot say (.|\n)*{place}(.|\n)*--strict"):
        run(config, tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["t5", "gpt2"])
@pytest.mark.parametrize("hit", ["o-greedy", "o-sample-min-k1", "o-sample-avg-k3"])
def test_every_output_type_of_hit_can_be_wanted(tmp_path: Path, folders: dict[str, Path], name: str, hit: str) -> None:
    config = asked(folders[name], write_targets(tmp_path, ("you are",)), hit=hit)
    result = run(config, tmp_path / "run", Silent())
    (row,) = rows(tmp_path / "run")
    assert row["status"] == "ok", row["error"]
    assert hit in {found["type"] for found in row["hits"]}
    assert f"hit_rate.{hit}" in result.metrics
    assert set(SEARCH.metrics_of(config)) == set(result.metrics)  # type: ignore[misc]  # it is there


def test_greedy_hits_need_no_threshold_and_are_then_the_only_ones_read(tmp_path: Path, folders: dict[str, Path]) -> None:
    targets = write_targets(tmp_path, ("you are", "oh"))
    config = asked(folders["gpt2"], targets, hit="o-greedy", objective=ObjectiveSettings())
    result = run(config, tmp_path / "run", Silent())
    assert [name for name in result.metrics if name.startswith("hit_rate.")] == ["hit_rate.o-greedy"]
    assert set(SEARCH.metrics_of(config)) == set(result.metrics)  # type: ignore[misc]  # it is there
    run(replace(config, objective=ObjectiveSettings(t_out=-2.0)), tmp_path / "more", Silent())
    inputs = [[row["trigger"] for row in rows(tmp_path / folder)] for folder in ("run", "more")]
    assert inputs[0] == inputs[1]


@pytest.mark.parametrize("method", ["gcg", "pez", "beam"])
@pytest.mark.usefixtures("own_cache")
def test_a_folder_in_bfloat16_is_searched_in_float32_unless_told_otherwise(
    tmp_path: Path, folders: dict[str, Path], method: str
) -> None:
    tokenizer, model = read_model(folders["gpt2"])
    model.bfloat16().save_pretrained(tmp_path / "half")
    model.float().save_pretrained(tmp_path / "whole")
    for name in ("half", "whole"):
        tokenizer.save_pretrained(tmp_path / name)

    def found(name: str, **changes: Any) -> list[tuple[str, float]]:
        config = asked(tmp_path / name, write_targets(tmp_path, ("you are", "hello")), method=method)
        config = replace(config, hugging_face=replace(config.hugging_face, **changes))
        run(config, path := tmp_path / f"{name}-{'-'.join(changes.values())}", Silent())
        return [(row["trigger"], row["loss"]) for row in rows(path)]

    exact = found("half")
    assert exact == found("whole"), "rounded weights, read in float32"
    rough = found("half", dtype="bfloat16")
    assert rough == found("half", dtype="auto") != exact
    assert [loss for _, loss in rough] == pytest.approx([loss for _, loss in exact], rel=0.1)


@pytest.mark.skipif(find_spec("accelerate") is None, reason="the extra gguf is not installed")
def test_a_model_with_a_device_map_is_not_moved(folders: dict[str, Path]) -> None:
    folder = HuggingFaceFolder(f"hf:{folders['gpt2']}", HuggingFaceSettings(length=3, device_map="auto"))
    assert folder.load("no such device") is folder.load("nor such a one")
    with pytest.raises(RuntimeError, match="no such device"):
        HuggingFaceFolder(f"hf:{folders['gpt2']}", HuggingFaceSettings(length=3)).load("no such device")


def test_how_many_inputs_fit_into_memory_is_found_out_once_and_not_in_every_shard(
    tmp_path: Path, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = asked(folders["t5"], "mal", engine=TriggerEngineSettings(batch_size=4), shard_size=2)
    config = replace(config, search=replace(EFFORT, candidates=8))
    run(config, tmp_path / "whole", Silent())
    refused = crowd(monkeypatch, HuggingFaceSeq2Seq, most=3)
    run(config, tmp_path / "crowded", Silent())
    assert refused == [8, 4]
    assert [row["trigger"] for row in rows(tmp_path / "crowded")] == [row["trigger"] for row in rows(tmp_path / "whole")]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a judge of ours": ({"lm": "runs/lm"}, "has the tokens of a Hugging Face model"),
    "drawn replies to nothing": (
        {"targets": "normal-sampled"},
        "the list normal-sampled of a Hugging Face model(.|\n)*--corpus",
    ),
    "replies to nothing": ({"targets": "normal"}, "the list normal of a Hugging Face model(.|\n)*--corpus"),
    "no such list": ({"targets": "nromal"}, "did you mean 'normal'"),
    "no T_out": ({"objective": ObjectiveSettings()}, r"objective\.t_out(.|\n)*--corpus(.|\n)*--hit o-greedy"),
    "no judge": ({"hit": "io-sample-min-k1"}, "name a language model with --lm"),
    "no T_in": ({"hit": "io-sample-min-k1", "lm": "hf:/nope"}, r"limits the input(.|\n)*objective\.t_in"),
    "a continuous input that is judged": ({"method": "relaxation", "lm": "hf:/nope"}, "a continuous input"),
    "fluency without a judge": ({"objective": ObjectiveSettings(t_out=-2.0, lm_weight=1.0)}, "no model judges inputs"),
}


@pytest.mark.parametrize("wrong", REFUSED)
def test_what_cannot_work_is_told_before_a_model_is_looked_for(tmp_path: Path, wrong: str) -> None:
    changes, message = REFUSED[wrong]
    with pytest.raises(ConfigError, match=message):
        run(replace(asked(Path("/nope"), write_targets(tmp_path)), **changes), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("job", [SEARCH_UNIVERSAL, SEARCH_METHODS, SEARCH_TABLE], ids=lambda job: job.name)
def test_so_it_is_of_jobs_that_are_made_of_searches(tmp_path: Path, job: Any) -> None:
    (tmp_path / "pairs.csv").write_text("prompt,target\na,b\n")
    wanted = {"hit": "o-sample-min-k1", "targets": f"{tmp_path}/pairs.csv"} if job is not SEARCH_TABLE else {"lists": "mal"}
    with pytest.raises(ConfigError, match=r"objective\.t_out"):
        job.run(job.config(model="hf:/nope", **wanted), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()


def test_what_such_a_model_does_not_have_is_named(tmp_path: Path, folders: dict[str, Path]) -> None:
    config = asked(folders["gpt2"], write_targets(tmp_path))
    for changes, kind, message in (
        ({"lm": f"hf:{folders['t5']}"}, ConfigError, "a model with an encoder"),
        ({"model": f"hf:{tmp_path}"}, CheckpointError, r"config\.json"),
    ):
        changed: Any = changes
        with pytest.raises(kind, match=message):
            run(replace(config, **changed), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()


def test_a_process_loads_its_model_once(tmp_path: Path, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    load, loaded = transformers.PreTrainedModel.from_pretrained.__func__, list[Path]()

    def counted(kind: Any, folder: Path, *rest: Any, **settings: Any) -> Any:
        loaded.append(folder)
        return load(kind, folder, *rest, **settings)

    monkeypatch.setattr(transformers.PreTrainedModel, "from_pretrained", classmethod(counted))
    run(asked(folders["t5"], write_targets(tmp_path, SENTENCES)), tmp_path / "run", Silent())
    assert loaded == [folders["t5"]]


def test_what_a_process_has_loaded_does_not_travel_to_workers(folders: dict[str, Path]) -> None:
    folder = HuggingFaceFolder(f"hf:{folders['t5']}", HuggingFaceSettings(length=3))
    first = folder.load("cpu")
    assert folder.load("cpu") is first
    assert len(pickle.dumps(folder.shared())) < 1000
    assert folder.load("cpu") is not first, "it was given back"


@pytest.mark.parametrize("model", ["hf:", "hf: "])
def test_a_model_without_a_folder_is_refused(model: str) -> None:
    with pytest.raises(ConfigError, match=r"'hf:' names no folder(.|\n)*--model hf:FOLDER"):
        TriggerConfig(model=model)
