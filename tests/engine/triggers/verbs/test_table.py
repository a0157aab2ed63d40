"""The table of trigger searches: what its searches are, and that nothing measured is measured again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parley.engine.core.page.page import collect_run
from parley.engine.core.ray.session import RaySession
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.tables.table import ABSENT
from parley.engine.core.verbs.job import TABLE_FILE, Silent
from parley.engine.triggers.methods.settings import RelaxationSettings
from parley.engine.triggers.verbs.config import TriggerConfig, model_labels
from parley.engine.triggers.verbs.search import SEARCH
from parley.engine.triggers.verbs.table import SEARCH_TABLE, SearchTableConfig
from parley.envs.core.errors import CheckpointError, ConfigError, DataError
from parley.envs.corpora.pairs.vocabulary import PairVocabulary
from tests.engine.core.page.pages import tables_on
from tests.engine.core.verbs.made_up import Notes, rows
from tests.engine.triggers.verbs.searches import EFFORT, save_lm, save_seq2seq

run = SEARCH_TABLE.run


def stages(config: SearchTableConfig) -> dict[str, TriggerConfig]:
    """The searches of a table."""
    return {name: search for name, (_, search) in SEARCH_TABLE.stages(config, Path("table")).items()}


KS = ("k1", "k2")
EFFORTLESS = replace(EFFORT, restarts=1, max_sweeps=1)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, corpus: Path, vocabulary: PairVocabulary) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("models")
    first, second = (save_seq2seq(folder / name / "checkpoint", vocabulary, corpus=str(corpus)) for name in ("a", "b"))
    return first, second


@pytest.fixture(scope="module")
def lm(tmp_path_factory: pytest.TempPathFactory, vocabulary: PairVocabulary) -> str:
    return save_lm(tmp_path_factory.mktemp("lm") / "checkpoint", vocabulary)


def table(model: str, **changes: Any) -> SearchTableConfig:
    """A table of two targets a list."""
    settings: dict[str, Any] = {"limit": 2, "search": EFFORTLESS, "shard_size": 2}
    return SearchTableConfig(model=model, **{**settings, **changes})


def test_every_list_of_every_model_is_a_search(tmp_path: Path, models: tuple[str, str], lm: str) -> None:
    result = run(table(",".join(models), lm=lm, published="ubuntu"), tmp_path / "table", Silent())
    lists = ("normal", "mal", "mal-io", "random")
    assert [*result.tables] == ["a: hits", "b: hits", "All searches"]
    kinds = [
        "o-greedy",
        *(f"{side}-sample-{statistic}-{k}" for side in ("o", "io") for statistic in ("min", "avg") for k in KS),
    ]
    shown = result.tables["a: hits"]
    assert shown.columns == ("list and type of hit", "hits", "of least loss", "of least loss, published", "n")
    assert [row[0] for row in shown.rows] == [f"{listed}, {kind}" for listed in lists for kind in kinds]
    printed = {row[0]: row[3] for row in shown.rows if row[3] != ABSENT}
    assert (printed["mal, o-sample-min-k1"], printed["mal-io, io-sample-avg-k2"]) == ("16.7 %", "73.2 %")
    assert len(printed) == 15
    folders = sorted(folder.parent.name for folder in (tmp_path / "table").glob("*/config.json"))
    assert folders == sorted(f"{model}-{listed}" for model in "ab" for listed in lists)
    for listed in lists:
        summary = RunFolder.load(tmp_path / "table" / f"a-{listed}").summary()
        assert summary is not None
        for name, parts in summary["metrics"].items():
            prefix, _, kind = name.partition(".")
            columns = {"hit_rate": "hits", "least_loss": "least"}
            own = f"a.{listed}-{kind}.{columns[prefix]}" if prefix in columns else f"searches.a-{listed}.{name}"
            assert result.metrics[own].to_json() == parts
    typed = {"verified", "sampled", "refused", "no_reply", "judge_answers", "judge_unparsable", "judge_no_reply"}
    absent = {*SEARCH_TABLE.metrics_of(table(",".join(models), lm=lm))} - {*result.metrics}
    assert {name.rpartition(".")[2] for name in absent if ".no_reply_" not in f".{name}"} <= typed, "nothing was typed"
    assert result.legend["a.mal-o-greedy.hits"].title == "mal, o-greedy: hits"
    text = (tmp_path / "table" / TABLE_FILE).read_text()
    assert shown.to_markdown() in text
    assert "parley search table" in text
    data = collect_run(tmp_path / "table")
    assert dict(tables_on(data, "triggers")) == result.tables
    searches = [run for run in data.found["triggers"] if run.job == "search"]
    assert [search.heading for search in searches] == [f"{model}-{listed}" for model in "ab" for listed in lists]


def test_the_same_again_searches_nothing(tmp_path: Path, models: tuple[str, str]) -> None:
    config, notes = table(models[0], lists="mal,random"), Notes()
    first = run(config, tmp_path, Silent())
    again = run(config, tmp_path, notes)
    assert again.tables == first.tables
    assert "2 of 2 stages are finished" in notes.said
    assert not notes.stages


def test_a_table_that_was_interrupted_goes_on(tmp_path: Path, models: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    config = table(models[0], lists="normal,random")
    whole = run(config, tmp_path / "whole", Silent())

    search = SEARCH.run

    def interrupted(config: TriggerConfig, path: Path, reporter: Any) -> Any:
        if path.name.endswith("random"):
            raise KeyboardInterrupt
        return search(config, path, reporter)

    with monkeypatch.context() as patch:
        patch.setattr(SEARCH, "run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(config, tmp_path / "half", Silent())
    assert "| normal, o-greedy |" in (tmp_path / "half" / TABLE_FILE).read_text(), "what is measured is there to see"
    result = run(config, tmp_path / "half", Silent())
    assert result.tables["a: hits"] == whole.tables["a: hits"]
    assert rows(tmp_path / "half" / "a-random") == rows(tmp_path / "whole" / "a-random")


def test_lists_may_be_added_and_stay(tmp_path: Path, models: tuple[str, str]) -> None:
    config = table(models[0], lists="random")
    first = run(config, tmp_path, Silent())
    more = run(replace(config, lists="mal"), tmp_path, Silent())
    assert {name for name in first.metrics if not name.endswith("_s")} < set(more.metrics)
    assert [row[0] for row in more.tables["All searches"].rows] == ["a-mal", "a-random"]


@pytest.mark.ray
def test_searches_that_share_their_actors_find_what_each_finds_alone(
    tmp_path: Path, models: tuple[str, str], lm: str, ray_session: RaySession
) -> None:
    stored = {}
    for workers in (0, 2):
        config = table(models[0], lm=lm, lists="mal,mal-io,random", shard_size=1, workers=workers)
        result = run(config, tmp_path / f"{workers}", Silent())
        assert not result.failure
        folders = sorted(folder.parent.name for folder in (tmp_path / f"{workers}").glob("*/config.json"))
        assert len(folders) == 3
        stored[workers] = {name: rows(tmp_path / f"{workers}" / name) for name in folders}
        assert all(result.metrics[f"searches.{name}.candidates_per_s"].value > 0 for name in folders)
    assert stored[0] == stored[2]


def test_a_search_that_fails_ends_no_other(tmp_path: Path, models: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    search = SEARCH.run

    def failing(config: TriggerConfig, path: Path, reporter: Any) -> Any:
        if path.name == "a-mal":
            raise DataError("the list is lost", where="somewhere")
        return search(config, path, reporter)

    config = table(models[0], lists="mal,random")
    with monkeypatch.context() as patch:
        patch.setattr(SEARCH, "run", failing)
        result = run(config, tmp_path, Silent())
    assert result.failure == "1 stage failed: a-mal: the list is lost (somewhere)"
    assert "searches.a-random.loss" in result.metrics
    assert result.tables["a: hits"].rows[0][0].startswith("mal, o-greedy\nfailed: the list is lost")
    assert not run(config, tmp_path, Silent()).failure


def test_what_each_list_is_searched_for(models: tuple[str, str]) -> None:
    planned = stages(table(models[0], lm="judge", seed=7, workers=2))
    assert {name: (search.targets, search.hit) for name, search in planned.items()} == {
        "a-normal": ("normal", "o-greedy"),
        "a-mal": ("mal", "o-sample-min-k1"),
        "a-mal-io": ("mal", "io-sample-min-k1"),
        "a-random": ("random", "o-sample-min-k1"),
    }
    for search in planned.values():
        assert (search.model, search.lm, search.seed, search.workers, search.search) == (models[0], "judge", 7, 2, EFFORTLESS)
    sampled = stages(table(models[0], normal="sampled"))["a-normal"]
    assert (sampled.targets, sampled.hit) == ("normal-sampled", "o-sample-min-k1")


def test_without_a_language_model_likely_inputs_are_left_out_and_it_is_said(tmp_path: Path, models: tuple[str, str]) -> None:
    notes = Notes()
    run(table(models[0], lists="mal-io,random"), tmp_path, notes)
    assert notes.said[0] == "the list mal-io is left out: it needs a language model (--lm)"
    with pytest.raises(ConfigError, match="it needs a language model"):
        run(table(models[0], lists="mal-io"), tmp_path / "none", Silent())


def test_continuous_inputs_have_a_table_of_their_own(tmp_path: Path, models: tuple[str, str], lm: str) -> None:
    short = RelaxationSettings(rounds=1, steps=2)
    search, notes = replace(EFFORTLESS, relaxation=short), Notes()
    config = table(models[0], lm=lm, method="relaxation", search=search, published="ubuntu")
    planned = stages(config)
    assert [*planned] == ["a-normal", "a-mal", "a-random"]
    assert {search.hit for search in planned.values()} == {"o-greedy"}
    assert {(search.method, search.lm, search.search.relaxation) for search in planned.values()} == {("relaxation", "", short)}
    result = run(config, tmp_path / "table", notes)
    shown = result.tables["a: hits"]
    assert notes.said[0] == "the list mal-io is left out: a continuous input has no words that a language model could judge"
    kinds = ("o-greedy", *(f"o-sample-{statistic}-{k}" for statistic in ("min", "avg") for k in KS))
    lists = ("normal", "mal", "random")
    rows_shown = [f"{listed}, {prefix}{kind}" for listed in lists for kind in kinds for prefix in ("", "projected-")]
    assert [row[0] for row in shown.rows] == rows_shown
    printed = {row[0]: row[3] for row in shown.rows if row[3] != ABSENT}
    assert printed == {
        "normal, o-greedy": "63.4 %",
        "normal, projected-o-greedy": "0.0 %",
        "mal, o-greedy": "1.7 %",
        "mal, projected-o-greedy": "0.0 %",
    }
    assert dict(tables_on(collect_run(tmp_path / "table"), "triggers")) == result.tables


def test_another_method_of_searching_words_fills_the_same_table(models: tuple[str, str]) -> None:
    planned = stages(table(models[0], lm="judge", method="gcg"))
    assert {search.method for search in planned.values()} == {"gcg"}
    assert [search.hit for search in planned.values()] == ["o-greedy", "o-sample-min-k1", "io-sample-min-k1", "o-sample-min-k1"]
    with pytest.raises(ConfigError, match="'gibs-enum', did you mean 'gibbs-enum'"):
        table(models[0], method="gibs-enum")


def test_several_methods_stand_in_one_table_at_one_cost(tmp_path: Path, models: tuple[str, str]) -> None:
    search = replace(EFFORTLESS, max_candidates=60, candidates=6, max_sweeps=50)
    config = table(models[0], method="gcg,arca,autoprompt,pez,random", lists="mal", search=search, limit=1)
    result = run(config, tmp_path / "table", Silent())
    labels = ["a-gcg", "a-arca", "a-autoprompt", "a-pez", "a-random"]
    assert [row[0] for row in result.tables["All searches"].rows] == [f"{label}-mal" for label in labels]
    for label in labels:
        assert 0 < result.metrics[f"searches.{label}-mal.candidates"].value <= 60
        assert rows(tmp_path / "table" / f"{label}-mal")[0]["status"] == "ok"
    assert {search.method for search in stages(config).values()} == set(config.methods)
    with pytest.raises(ConfigError, match="a table of their own"):
        table(models[0], method="gcg,relaxation")
    with pytest.raises(ConfigError, match="'gcgg', did you mean 'gcg'"):
        table(models[0], method="random,gcgg")


@pytest.mark.parametrize(("limit", "told"), [(0, "Targets of a list: all;"), (1000, "Targets of a list: at most 1,000;")])
def test_it_is_told_how_many_targets_are_searched_for(limit: int, told: str) -> None:
    config = SearchTableConfig(model="hf:anywhere", limit=limit)
    assert SEARCH_TABLE.recipe(config).description.startswith(told)


def test_models_are_called_by_their_folders() -> None:
    assert model_labels("runs/a, runs/b/checkpoint") == {"a": "runs/a", "b": "runs/b/checkpoint"}
    assert model_labels("old/a,new/a,v1.2") == {"a-1": "old/a", "a-2": "new/a", "v1-2": "v1.2"}


def test_mistakes_are_named_and_no_run_is_made(tmp_path: Path, models: tuple[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"'normel', did you mean 'normal'"):
        table(models[0], lists="normel")
    for changes, option in (({"model": f"{models[0]},nothing"}, "--model"), ({"lm": "nothing"}, "--lm")):
        with pytest.raises(CheckpointError, match=f"{option} needs a checkpoint"):
            run(replace(table(models[0]), **changes), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()
