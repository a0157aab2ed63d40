"""Trigger searches on Hugging Face models, small ones that are built here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.jobs.job import Silent
from engine.jobs.search import run
from engine.jobs.search_config import HuggingFaceSettings, ObjectiveSettings, SearchConfig
from envs.core.errors import CheckpointError, ConfigError
from tests.engine.jobs.made_up import rows
from tests.engine.jobs.searches import search, write_targets

pytest.importorskip("transformers", reason="the extra hugging-face is not installed")
from tests.policies.test_hugging_face import gpt2, t5

SENTENCES = ("You are late", "no")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A saved encoder and decoder, and a saved decoder alone."""
    folder = tmp_path_factory.mktemp("hugging-face")
    for name, victim in {"t5": t5(), "gpt2": gpt2()}.items():
        victim.model.save_pretrained(folder / name)
        victim.tokenizer.save_pretrained(folder / name)
    return {name: folder / name for name in ("t5", "gpt2")}


def asked(folder: Path, targets: str, **changes: Any) -> SearchConfig:
    settings: dict[str, Any] = {"objective": ObjectiveSettings(t_out=-2.0), "hugging_face": HuggingFaceSettings(length=3)}
    return search(f"hf:{folder}", targets, **{**settings, **changes})


@pytest.mark.parametrize("name", ["t5", "gpt2"])
def test_a_search_reads_the_tokens_of_its_targets(tmp_path: Path, folders: dict[str, Path], name: str) -> None:
    config = asked(folders[name], write_targets(tmp_path, SENTENCES))
    result = run(config, tmp_path / "run", Silent())
    found = rows(tmp_path / "run")
    assert [row["target"] for row in found] == list(SENTENCES)
    for row in found:
        assert row["status"] == "ok", row["error"]
        assert len(row["target_words"]) == len(row["word_log_probability"]) >= 2
        starts = [restart["loss_by_sweep"][0] for restart in row["restarts"]]
        assert row["loss"] <= min(starts)
    assert result.metrics["targets"].value == 2
    assert "hit_rate.io-sample-min-k1" not in result.metrics


def test_mal_targets_need_no_vocabulary(tmp_path: Path, folders: dict[str, Path]) -> None:
    result = run(asked(folders["gpt2"], "mal", num_targets=2), tmp_path / "run", Silent())
    assert (result.metrics["targets"].value, result.metrics["skipped"].value) == (2, 0)


def test_what_such_a_model_does_not_have_is_named(tmp_path: Path, folders: dict[str, Path]) -> None:
    config = asked(folders["gpt2"], write_targets(tmp_path))
    for changes, kind, message in (
        ({"lm": "runs/lm"}, ConfigError, "has the tokens of a Hugging Face model"),
        ({"objective": ObjectiveSettings()}, ConfigError, "objective.t_out"),
        ({"targets": "normal"}, ConfigError, "no normal list for a Hugging Face model"),
        ({"hit": "io-sample-min-k1"}, ConfigError, "--lm"),
        ({"model": f"hf:{tmp_path}"}, CheckpointError, r"config\.json"),
    ):
        changed: Any = changes
        with pytest.raises(kind, match=message):
            run(replace(config, **changed), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()
