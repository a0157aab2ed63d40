"""`parley search` from the words typed to what is printed and left behind."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.triggers.metrics.hits import COST_METRICS
from tests.engine.core.cli.conftest import Parley
from tests.engine.core.verbs.made_up import rows
from tests.engine.triggers.verbs.searches import save_lm, save_seq2seq, words_of, write_corpus, write_targets

FEW = "--set search.candidates=4 --set search.max_sweeps=1 --set search.restarts=2"


@pytest.fixture
def models(tmp_path: Path) -> str:
    """Flags that name a small model and a language model, below the working folder."""
    corpus = write_corpus(tmp_path)
    vocabulary = words_of(corpus)
    save_seq2seq(tmp_path / "runs" / "seq2seq" / "checkpoint", vocabulary, corpus=str(corpus))
    save_lm(tmp_path / "runs" / "lm" / "checkpoint", vocabulary)
    return "--lm runs/lm"


def test_a_search_prints_its_metrics_and_resumes_by_its_folder(parley: Parley, models: str, tmp_path: Path) -> None:
    write_targets(tmp_path)
    asked = f"search {models} --targets wishes.txt --hit io-sample-min-k1 {FEW}"
    outcome = parley(f"{asked} --json")
    assert outcome.status == 0, outcome.err
    printed = json.loads(outcome.out)
    types = ["o-greedy"] + [f"{io}-sample-{kind}-k{k}" for io in ("o", "io") for kind in ("min", "avg") for k in (1, 2)]
    rates = [f"{prefix}.{kind}" for prefix in ("hit_rate", "least_loss") for kind in types]
    assert list(printed["metrics"]) == [*rates, *COST_METRICS, "tokens"]
    assert all(set(parts) == {"value", "low", "high", "n"} for parts in printed["metrics"].values())
    assert "5 few" in outcome.err
    assert "1 targets of 'wishes' hold words outside the vocabulary (" in outcome.err
    assert "hits, io-sample-min-k1" in outcome.err
    page = Path("runs/search/report.html").read_text()
    assert "Triggers" in page
    assert "you are a fool" in page
    before = rows(Path("runs/search"))
    min(Path("runs/search/rows").glob("*.parquet")).unlink()
    assert parley("resume runs/search --json").status == 0
    assert rows(Path("runs/search")) == before
    summary = RunFolder.load(Path("runs/search")).summary()
    assert summary is not None
    again = parley(*shlex.split(summary["command"])[1:], "--json")
    assert "is finished: nothing is left to do" in again.err, "the command of the summary asks for the same run"


def test_a_table_of_searches_stands_on_the_screen(parley: Parley, models: str) -> None:
    outcome = parley(f"search table {models} --lists random,mal-io --limit 2 --published ubuntu {FEW}")
    assert outcome.status == 0, outcome.err
    shown = [line.split() for line in outcome.err.splitlines()]
    (printed,) = (line for line in shown if line[:2] == ["mal-io,", "io-sample-min-k1"])
    assert printed[-4:] == ["10.2", "%", "2", "few"], printed
    assert "runs/search-table/table.md" in outcome.err
    assert "seq2seq-random" in Path("runs/search-table/report.html").read_text()


def test_a_preset_that_is_not_there_is_named(parley: Parley) -> None:
    outcome = parley("search he2081")
    assert outcome.status == 2
    assert "no preset is called 'he2081', did you mean 'he2018'" in outcome.err
