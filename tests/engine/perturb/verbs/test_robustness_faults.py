"""Evaluation under perturbations that is broken off, fails, or is gone on with: no row is lost and none is of another model."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parley.engine.core.ray.worker import Shard
from parley.engine.core.verbs.job import Silent
from parley.engine.perturb.verbs import robustness as job
from parley.engine.perturb.verbs.config import RobustnessConfig
from parley.engine.perturb.verbs.robustness import EVALUATE_ROBUSTNESS, RobustnessWorker
from parley.envs.core.errors import RunError
from parley.envs.corpora.pairs.turns import Example
from parley.envs.corpora.pairs.vocabulary import PairVocabulary
from tests.engine.core.verbs.made_up import Notes, interrupt, rows
from tests.engine.perturb.verbs.robust import OWN, SWAP, evaluation, save_responder

run = EVALUATE_ROBUSTNESS.run


def test_an_interrupted_run_goes_on_where_it_was(tmp_path: Path, asked: RobustnessConfig) -> None:
    interrupt(EVALUATE_ROBUSTNESS, asked, tmp_path / "run", done=4)
    saved = rows(tmp_path / "run")
    assert len(saved) == 4
    notes = Notes()
    run(asked, tmp_path / "run", notes)
    assert notes.steps[0] == 4, "what is saved is not asked again"
    run(asked, tmp_path / "whole", Silent())
    assert rows(tmp_path / "run") == rows(tmp_path / "whole")


def test_a_finished_run_asks_nothing_and_says_so(
    tmp_path: Path, asked: RobustnessConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, notes = run(asked, tmp_path / "run", Silent()), Notes()
    monkeypatch.setattr(job.EvaluateRobustness, "prepare", lambda *_: pytest.fail("nothing is left to ask"))
    again = run(replace(asked, workers=3, address="10.0.0.1:6379"), tmp_path / "run", notes)
    assert (again.metrics, again.legend, again.tables) == (first.metrics, first.legend, first.tables)
    assert notes.said == [f"{tmp_path / 'run'} is finished: nothing is left to do"]


def test_a_shard_that_fails_becomes_error_rows_and_is_tried_again(
    tmp_path: Path, asked: RobustnessConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Fails(RobustnessWorker):
        def run(self, shard: Shard[Example]) -> list[dict[str, Any]]:
            if shard.name == "00001":
                raise RuntimeError("out of memory")
            return super().run(shard)

    with monkeypatch.context() as patch:
        patch.setattr("parley.engine.perturb.verbs.robustness.RobustnessWorker", Fails)
        result = run(asked, tmp_path / "run", Silent())
    assert Counter(row["status"] for row in rows(tmp_path / "run")) == {"ok": 6, "error": 4}
    assert result.metrics[f"change_rate.base.{SWAP}"].n == 6
    again = run(asked, tmp_path / "run", Silent())
    assert again.metrics[f"change_rate.base.{SWAP}"].n == 10


def test_another_configuration_in_the_same_folder_is_an_error(tmp_path: Path, asked: RobustnessConfig) -> None:
    run(asked, tmp_path / "run", Silent())
    with pytest.raises(RunError, match="decoder: 'greedy' -> 'beam:2'"):
        run(replace(asked, decoder="beam:2"), tmp_path / "run", Silent())


def test_other_weights_under_the_same_name_are_an_error(tmp_path: Path, vocabulary: PairVocabulary) -> None:
    model = save_responder(tmp_path / "model", vocabulary)
    trained = save_responder(tmp_path / "trained", vocabulary, seed=1, role="adversarial", strategies=[SWAP])
    asked = evaluation(model, trained=trained)
    interrupt(EVALUATE_ROBUSTNESS, asked, tmp_path / "run", done=4)
    run(asked, tmp_path / "whole", Silent())
    save_responder(Path(trained), vocabulary, seed=2, role="adversarial", strategies=[SWAP])
    for name in ("run", "whole"):
        before = rows(tmp_path / name)
        with pytest.raises(RunError, match=rf"other weights(.|\n)*trained {trained}: \w{{12}} -> \w{{12}}\n"):
            run(asked, tmp_path / name, Silent())
        assert rows(tmp_path / name) == before
    save_responder(Path(trained), vocabulary, seed=1, role="adversarial", strategies=[SWAP])
    run(asked, tmp_path / "run", Silent())
    assert rows(tmp_path / "run") == rows(tmp_path / "whole")


def test_a_changed_file_of_a_model_of_ones_own_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    asked = evaluation(f"{tmp_path / 'mine.py'}:Parrot", corpus="helpdesk")
    interrupt(EVALUATE_ROBUSTNESS, asked, tmp_path / "run", done=4)
    (tmp_path / "mine.py").write_text(OWN.replace("context[-1]", "context[0]"))
    with pytest.raises(RunError, match="a model has other weights"):
        run(asked, tmp_path / "run", Silent())


def test_a_finished_run_needs_no_model(tmp_path: Path, vocabulary: PairVocabulary) -> None:
    asked = evaluation(save_responder(tmp_path / "model", vocabulary))
    first = run(asked, tmp_path / "run", Silent())
    shutil.rmtree(asked.model)
    assert run(asked, tmp_path / "run", Silent()).metrics == first.metrics
