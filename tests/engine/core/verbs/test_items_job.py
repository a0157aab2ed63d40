"""A whole verb with one row for each item: its settings, columns, task, worker and metrics stand in this file."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from parley.engine.core.ray.worker import Shard
from parley.engine.core.runs.parts import Outcomes, error_row, ok_row, row_schema
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.statistics import Metric, mean_count
from parley.engine.core.verbs.job import Reporter, Silent, Summary, failure_of, losses_of
from parley.engine.core.verbs.sharded import ItemsJob, Prepared, Sharded, ShardedConfig
from parley.envs.core.errors import ConfigError, RunError
from parley.envs.core.seeds import derive_seed
from parley.policies.chat.model import ANSWERS_FOLDER
from tests.engine.core.verbs.made_up import Notes, interrupt, rows


@dataclass(frozen=True, kw_only=True)
class WordsConfig(ShardedConfig):
    """The lines whose words are counted."""

    lines: str = "hello there|it is|yes"
    """Lines, separated by bars."""


@dataclass(frozen=True)
class CountWords(Sharded[str]):
    """Lines whose words are counted."""

    unit = "lines"
    event = "counted"
    purpose = "words"
    batch = 2

    config: WordsConfig
    answers: str = field(default="", kw_only=True)

    def worker(self) -> CountingWorker:
        return CountingWorker(self)


class CountingWorker:
    """A worker that counts words."""

    def __init__(self, task: CountWords) -> None:
        self.task = task

    def run(self, shard: Shard[str]) -> list[dict[str, Any]]:
        """Return one row for each line."""
        return [
            ok_row(key, self.task.seed(key)) | {"text": line, "words": len(line.split()), "answers": self.task.answers}
            for key, line in zip(shard.keys, shard.items, strict=True)
        ]


class WordsJob(ItemsJob[WordsConfig, CountWords, str]):
    """A verb that counts words."""

    words = ("count", "words")
    run_name = "words"
    config = WordsConfig
    presets = {"default": WordsConfig}
    schema = row_schema({"text answers": str, "words": int})
    legend = {"words": Metric("words", "", "words of a line, mean")}
    num_rows_entry = "lines"
    doing = "counting words"

    def prepare(self, config: WordsConfig, path: Path, reporter: Reporter) -> Prepared[CountWords, str]:
        lines = [line for line in config.lines.split("|") if line]
        if not lines:
            raise ConfigError("there is no line", where="--lines", got=repr(config.lines), fix="give one")
        return Prepared(CountWords(config), {f"line {number}": line for number, line in enumerate(lines)})

    def measure(self, run: RunFolder, prepared: Prepared[CountWords, str]) -> Summary:
        counts = [row["words"] for row in run.read_rows().to_pylist()]
        num = len(prepared.items)
        return Summary("words of lines", f"{num} lines.", {"words": mean_count(counts, range(num))}, {"lines": num})


COUNT = WordsJob()


def test_a_verb_of_one_file_counts_resumes_and_is_finished(tmp_path: Path) -> None:
    config = WordsConfig()
    interrupt(COUNT, replace(config, shard_size=1), tmp_path / "run", done=1)
    notes = Notes()
    result = COUNT.run(config, tmp_path / "run", notes)
    assert notes.stages[0] == ("counting words", 3, "lines")
    found = sorted(rows(tmp_path / "run"), key=lambda row: str(row["item_key"]))
    assert [(row["text"], row["words"]) for row in found] == [("hello there", 2), ("it is", 2), ("yes", 1)]
    assert [row["seed"] for row in found] == [derive_seed(1, "words", f"line {number}") for number in range(3)]
    assert {row["answers"] for row in found} == {str(tmp_path / "run" / ANSWERS_FOLDER)}, "answers of models lie in the run"
    assert result.metrics["words"].value == 5 / 3
    again = Notes()
    assert COUNT.run(config, tmp_path / "run", again).metrics == result.metrics
    assert again.said == [f"{tmp_path / 'run'} is finished: nothing is left to do"]
    assert (COUNT.num_items(config), CountWords(config).shard_size(100, 0)) == (3, 2)
    assert COUNT.prepare(config, tmp_path, Silent()).facts == {}


def test_a_run_whose_every_item_failed_begins_anew_when_its_model_was_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(worker: CountingWorker, shard: Shard[str]) -> list[dict[str, Any]]:
        return [error_row(key, worker.task.seed(key), "broken") for key in shard.keys]

    weights = {"model": "aaa"}
    monkeypatch.setattr(WordsJob, "weights", lambda job, config: dict(weights))
    with monkeypatch.context() as patch:
        patch.setattr(CountingWorker, "run", broken)
        patch.setattr(WordsJob, "measure", lambda job, run, prepared: Summary("", "", {}, {"lines": 3}))
        assert COUNT.run(WordsConfig(), tmp_path / "run", Silent()).failure
    weights["model"] = "bbb"
    assert COUNT.run(WordsConfig(), tmp_path / "run", Silent()).metrics["words"].value == 5 / 3
    weights["model"] = "ccc"
    with pytest.raises(RunError, match="model: bbb -> ccc"):
        COUNT.run(WordsConfig(), tmp_path / "run", Silent())


def test_errors_that_all_differ_are_an_example_and_no_count() -> None:
    errors = Counter({"no score for 'hello': boom": 2, **{f"no score for {number}: boom": 1 for number in range(8)}})
    assert failure_of(Outcomes(0, errors)) == "every item failed, with 9 different errors, such as: no score for 'hello': boom"
    some = "10 of 15 items failed and are in no figure"
    assert losses_of(Outcomes(5, errors)) == [f"{some}, with 9 different errors, such as: no score for 'hello': boom"]
    alike = Counter({"boom": 9, "other": 1})
    assert failure_of(Outcomes(0, alike)) == "every item failed, 9 of 10 with: boom"
    assert losses_of(Outcomes(5, alike)) == [f"{some}, 9 of them with: boom"]
