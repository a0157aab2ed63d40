"""Evaluation of rankers that is broken off, fails, or is gone on with: no row is lost and none is of another model."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parley.engine.core.ray.worker import Shard
from parley.engine.core.verbs.job import Silent
from parley.engine.ranking.verbs import ranking as job
from parley.engine.ranking.verbs.config import RankedGroup
from parley.engine.ranking.verbs.ranking import EVALUATE_RANKING
from parley.engine.ranking.verbs.worker import RankingWorker
from parley.envs.core.errors import RunError
from tests.engine.core.verbs.made_up import Notes, interrupt, rows
from tests.engine.ranking.verbs.rankings import OWN, asked, own

run = EVALUATE_RANKING.run


@pytest.mark.usefixtures("workers_here")
def test_two_workers_of_which_one_is_killed_write_the_rows_of_none(tmp_path: Path) -> None:
    config = asked("tfidf,bm25")
    whole = run(config, tmp_path / "whole", Silent())
    result = run(replace(config, workers=2), tmp_path / "run", Silent())
    assert rows(tmp_path / "run") == rows(tmp_path / "whole")
    assert result.metrics == whole.metrics


def test_an_interrupted_run_goes_on_where_it_was(tmp_path: Path) -> None:
    interrupt(EVALUATE_RANKING, asked(), tmp_path / "run", done=4)
    assert len(rows(tmp_path / "run")) == 4
    notes = Notes()
    run(asked(), tmp_path / "run", notes)
    assert notes.steps[0] == 4, "what is saved is not ranked again"
    run(asked(), tmp_path / "whole", Silent())
    assert rows(tmp_path / "run") == rows(tmp_path / "whole")


def test_a_finished_run_asks_nothing_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, notes = run(asked(), tmp_path / "run", Silent()), Notes()
    monkeypatch.setattr(job, "prepare_ranking", lambda *_: pytest.fail("nothing is left to rank"))
    again = run(replace(asked(), workers=3, address="10.0.0.1:6379"), tmp_path / "run", notes)
    assert (again.metrics, again.legend, again.tables) == (first.metrics, first.legend, first.tables)
    assert notes.said == [f"{tmp_path / 'run'} is finished: nothing is left to do"]


def test_a_shard_that_fails_becomes_error_rows_and_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Fails(RankingWorker):
        def run(self, shard: Shard[RankedGroup]) -> list[dict[str, Any]]:
            if shard.name == "00001":
                raise RuntimeError("out of memory")
            return super().run(shard)

    with monkeypatch.context() as patch:
        patch.setattr("parley.engine.ranking.verbs.worker.RankingWorker", Fails)
        run(asked(), tmp_path / "run", Silent())
    assert Counter(row["status"] for row in rows(tmp_path / "run")) == {"ok": 6, "error": 4}
    run(asked(), tmp_path / "run", Silent())
    assert Counter(row["status"] for row in rows(tmp_path / "run")) == {"ok": 10}


def test_another_configuration_in_the_same_folder_is_an_error(tmp_path: Path) -> None:
    run(asked(), tmp_path / "run", Silent())
    with pytest.raises(RunError, match="limit: 10 -> 9"):
        run(replace(asked(), limit=9), tmp_path / "run", Silent())


@pytest.mark.parametrize("changes", [{"model": "MINE:Plain"}, {"rules": "MINE:Shouting"}])
def test_a_changed_file_of_ones_own_is_an_error(tmp_path: Path, changes: dict[str, str]) -> None:
    path = own(tmp_path)
    config = replace(asked(), **{name: value.replace("MINE", path) for name, value in changes.items()})
    interrupt(EVALUATE_RANKING, config, tmp_path / "run", done=4)
    Path(path).write_text(f"{OWN}\n# another\n")
    with pytest.raises(RunError, match="a model has other weights"):
        run(config, tmp_path / "run", Silent())
