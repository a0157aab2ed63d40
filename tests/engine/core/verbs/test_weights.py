"""Which weights a run was made with: digests of all kinds of models, and that every sharded job names its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.checkpoints import checkpoint_folder, require_checkpoint, weights_digests
from parley.engine.core.verbs.job import Job, Silent
from parley.engine.negotiation.verbs.match import SELFPLAY, MatchConfig
from parley.engine.negotiation.verbs.whitebox import ATTACK_RL, ATTACK_TRANSFER, JOBS
from parley.engine.perturb.verbs.robustness import EVALUATE_ROBUSTNESS
from parley.engine.triggers.verbs.config import TriggerConfig
from parley.engine.triggers.verbs.enumeration import SEARCH_ENUMERATE
from parley.engine.triggers.verbs.models import models_of
from parley.engine.triggers.verbs.search import SEARCH
from parley.envs.core.errors import CheckpointError
from tests.engine.core.verbs.made_up import save_negotiator

SHARDED = {job.name: job for job in (SEARCH, SEARCH_ENUMERATE, EVALUATE_ROBUSTNESS, SELFPLAY, ATTACK_RL, ATTACK_TRANSFER)}
SHARDED |= {job.name: job for job in JOBS.values()}


def digest(spec: Path | str) -> str:
    return weights_digests({"model": str(spec)})["model"]


def test_a_checkpoint_has_the_digest_of_its_weights_whatever_names_it(tmp_path: Path) -> None:
    folder = save_negotiator(tmp_path / "run" / "checkpoint", seed=1)
    same, other = save_negotiator(tmp_path / "same", seed=1), save_negotiator(tmp_path / "other", seed=2)
    assert digest(folder) == digest(tmp_path / "run") == digest(same) != digest(other)
    (folder / "weights.safetensors").write_bytes((other / "weights.safetensors").read_bytes())
    assert digest(folder) == digest(other)


def test_an_empty_name_is_not_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_negotiator(tmp_path / "run" / "checkpoint", 1)
    monkeypatch.chdir(tmp_path / "run")
    assert checkpoint_folder(".") == Path("checkpoint")
    assert checkpoint_folder("") is None
    with pytest.raises(CheckpointError, match=r"--model needs a checkpoint(.|\n)*an empty name(.|\n)*name a run"):
        require_checkpoint("", "--model")


def test_a_model_of_another_kind_is_all_of_its_files(tmp_path: Path) -> None:
    folder = tmp_path / "foreign"
    folder.mkdir()
    (folder / "model.bin").write_bytes(b"weights")
    (folder / "tokenizer.json").write_text("{}")
    before = digest(folder)
    (folder / "tokenizer.json").write_text("[]")
    assert digest(folder) != before


def test_a_model_of_ones_own_is_its_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("class Mine: ...")
    before = digest(f"{tmp_path / 'mine.py'}:Mine")
    (tmp_path / "mine.py").write_text("class Mine: pass")
    assert digest(f"{tmp_path / 'mine.py'}:Mine") != before


def test_what_is_no_file_has_no_digest(tmp_path: Path) -> None:
    assert weights_digests({"adversary": "scripted", "judge": "", "target": str(tmp_path / "nothing")}) == {}


@pytest.mark.parametrize("name", SHARDED)
def test_every_sharded_job_names_its_models(name: str) -> None:
    job: Job = SHARDED[name]
    config = next(iter(job.presets.values()))()
    named = job.models(config)
    assert named, "a run would go on with other weights"
    assert {spec for spec in named.values() if spec} <= {value for value in vars(config).values() if isinstance(value, str)}


def test_a_hugging_face_model_is_known_by_its_folder() -> None:
    assert models_of(TriggerConfig(model="hf:some/folder")) == {"model": "some/folder", "lm": ""}


def test_weights_are_digested_once_a_run(tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, str]] = []
    monkeypatch.setattr(
        "parley.engine.core.verbs.job.weights_digests", lambda models: asked.append(dict(models)) or weights_digests(models)
    )
    config = MatchConfig(adversary="scripted", target=str(target), dialogues=2, max_turns=2)
    SELFPLAY.run(config, tmp_path / "run", Silent())
    SELFPLAY.run(config, tmp_path / "run", Silent())
    assert len(asked) == 2
    assert set(RunFolder.load(tmp_path / "run").weights) == {"target", "judge"}
