"""Trigger searches: rows that depend on nothing but the configuration, faults, and mistakes named before a run is made."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from parley.engine.core.ray.session import RaySession
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.job import Silent
from parley.engine.triggers.catalogue import make_method, searches
from parley.engine.triggers.methods import relaxation
from parley.engine.triggers.methods.gibbs_enum import GibbsEnum
from parley.engine.triggers.methods.settings import SearchSettings
from parley.engine.triggers.metrics.hits import choose_restart
from parley.engine.triggers.verbs import search as job
from parley.engine.triggers.verbs.config import ObjectiveSettings, TriggerConfig, TriggerEngineSettings
from parley.engine.triggers.verbs.models import FILE, StoredNetwork, _sources, open_models
from parley.engine.triggers.verbs.search import SEARCH
from parley.envs.core.errors import CheckpointError, ConfigError, DataError, RunError
from parley.envs.corpora.lines import SPLITS
from parley.envs.corpora.pairs.contexts import with_eot
from parley.envs.corpora.pairs.vocabulary import SPECIALS, PairVocabulary
from parley.policies.seq2seq.scoring import load_seq2seq, save_model
from tests.engine.core.ray.metered import watch
from tests.engine.core.verbs.made_up import Listening, Notes, kill_at, rows, save_negotiator
from tests.engine.triggers.verbs.searches import (
    EFFORT,
    SMALL,
    save_lm,
    save_seq2seq,
    search,
    words_of,
    write_targets,
)

run = SEARCH.run


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, corpus: Path, vocabulary: PairVocabulary) -> str:
    return save_seq2seq(tmp_path_factory.mktemp("model") / "checkpoint", vocabulary, corpus=str(corpus))


@pytest.fixture(scope="module")
def lm(tmp_path_factory: pytest.TempPathFactory, vocabulary: PairVocabulary) -> str:
    return save_lm(tmp_path_factory.mktemp("lm") / "checkpoint", vocabulary)


@pytest.fixture
def asked(tmp_path: Path, model: str) -> TriggerConfig:
    return search(model, write_targets(tmp_path))


def hits(row: dict[str, Any]) -> dict[str, bool]:
    return {found["type"]: found["hit"] for found in row["hits"]}


def test_every_target_is_a_row_with_its_restarts(tmp_path: Path, vocabulary: PairVocabulary, lm: str) -> None:
    model = save_seq2seq(tmp_path / "model", vocabulary, seed=0)
    config = search(model, write_targets(tmp_path), lm=lm, hit="io-sample-avg-k3")
    result = run(config, tmp_path / "run", Silent())
    found = rows(tmp_path / "run")
    assert [row["target"] for row in found][:2] == ["you are a fool", "my printer is old ."]
    assert len({row["seed"] for row in found}) == len(found) == 5
    for row in found:
        kept = choose_restart(row["restarts"])
        assert (row["trigger"], row["loss"], row["hits"]) == (kept["words"], kept["loss"], kept["hits"])
        assert len(row["trigger"].split()) == 4
        assert len(row["word_log_probability"]) == len(row["likeliest"]) == len(row["target"].split()) + 1
        assert row["input_log_probability"] < 0
        assert 1 <= len(row["restarts"]) <= EFFORT.restarts
        published = [f"{io}-sample-{kind}-k{k}" for io in ("o", "io") for kind in ("min", "avg") for k in (1, 2)]
        assert [*hits(row)] == ["o-greedy", *published, "io-sample-avg-k3"]
    assert result.metrics["hit_rate.io-sample-avg-k3"].value == sum(hits(row)["io-sample-avg-k3"] for row in found) / 5
    assert result.legend["hit_rate.io-sample-avg-k3"].form == "share"
    assert (result.metrics["skipped"].value, result.metrics["targets"].value) == (1, 5)
    assert result.metrics["candidates_per_s"].value > 0
    summary = RunFolder.load(tmp_path / "run").summary()
    assert summary is not None
    assert summary["thresholds"] == {"T_out": -3.0, "T_in": -3.2}
    assert summary["skipped"] == [
        {"sentence": "zebra crossing", "unknown": ["zebra", "crossing"], "too_long": False, "behind_prompt": False}
    ]


def test_hits_are_read_by_the_thresholds_of_the_checkpoint_unless_others_are_given(
    tmp_path: Path, asked: TriggerConfig
) -> None:
    for name, t_out in {"own": None, "strict": -1e-3, "lax": -50.0}.items():
        run(replace(asked, objective=ObjectiveSettings(t_out=t_out)), tmp_path / name, Silent())
    for row in rows(tmp_path / "strict"):
        assert not any(hits(row).values())
        assert [restart["restart"] for restart in row["restarts"]] == [0, 1], "no hit makes a restart needless"
    for row in rows(tmp_path / "lax"):
        assert hits(row)["o-sample-min-k1"]
        assert [restart["restart"] for restart in row["restarts"]] == [0]
    for row in rows(tmp_path / "own"):
        assert hits(row)["o-sample-min-k1"] == (min(row["word_log_probability"]) >= -3.0)


def test_rows_depend_neither_on_the_batch_nor_on_what_else_is_searched_for(tmp_path: Path, asked: TriggerConfig) -> None:
    run(asked, tmp_path / "here", Silent())
    engine = TriggerEngineSettings(batch_size=1)
    run(replace(asked, engine=engine, shard_size=1), tmp_path / "one", Silent())
    assert rows(tmp_path / "one") == rows(tmp_path / "here")
    run(replace(asked, limit=3), tmp_path / "few", Silent())
    few = rows(tmp_path / "few")
    assert len(few) == 3
    assert [row for row in rows(tmp_path / "here") if row["item_key"] in {each["item_key"] for each in few}] == few


@pytest.mark.ray
def test_rows_are_equal_for_no_workers_and_for_two(
    tmp_path: Path, model: str, lm: str, ray_session: RaySession, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = watch(monkeypatch)
    config = search(model, write_targets(tmp_path), lm=lm, hit="io-sample-min-k1")
    run(config, tmp_path / "here", Silent())
    run(replace(config, workers=2), tmp_path / "there", Silent())
    found = rows(tmp_path / "there")
    assert found == rows(tmp_path / "here")
    meters = heard.of(str(tmp_path / "there"), "search")
    assert meters["parley_items"] == len(found)
    assert meters["parley_candidates"] == sum(restart["candidates"] for row in found for restart in row["restarts"]) > 0
    assert meters.get("parley_hits", 0) == sum(hits(row)["io-sample-min-k1"] for row in found)


@pytest.mark.usefixtures("workers_here")
def test_a_lost_worker_costs_nothing(tmp_path: Path, asked: TriggerConfig) -> None:
    run(asked, tmp_path / "whole", Silent())
    run(replace(asked, workers=2), tmp_path / "run", Silent())
    assert rows(tmp_path / "run") == rows(tmp_path / "whole")


# That a killed search goes on, inside its targets, is held by test_resume.py.
@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.ray)])
def test_a_killed_driver_resumes_to_the_same_rows(tmp_path: Path, model: str, vocabulary: PairVocabulary, workers: int) -> None:
    config = search(model, "random", limit=6, search=EFFORT, engine=TriggerEngineSettings(), shard_size=1)
    path = tmp_path / "run"
    words = ["search", "--model", model, "--targets", "random", "--limit", "6", "--run", str(path)]
    for key in ("candidates", "max_sweeps", "restarts"):
        words += ["--set", f"search.{key}={getattr(EFFORT, key)}"]
    words += ["--shard-size", "1", "--workers", str(workers)]
    kill_at('parts("run") == 2', *words, folder=tmp_path)
    saved = rows(path)
    assert 2 <= len(saved) < 6
    notes = Notes()
    run(config, path, notes)
    assert notes.steps[0] == len(saved), "what is saved is not searched for again"
    found = rows(path)
    assert [row for row in found if row["item_key"] in {each["item_key"] for each in saved}] == saved
    run(config, tmp_path / "whole", Silent())
    assert found == rows(tmp_path / "whole")


def test_a_finished_run_searches_nothing_and_says_so(
    tmp_path: Path, asked: TriggerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, notes = run(asked, tmp_path / "run", Silent()), Notes()
    monkeypatch.setattr(job, "open_models", lambda *_: pytest.fail("nothing is left to search"))
    again = run(replace(asked, workers=3, address="10.0.0.1:6379"), tmp_path / "run", notes)
    assert (again.metrics, again.legend) == (first.metrics, first.legend)
    assert notes.said == [f"{tmp_path / 'run'} is finished: nothing is left to do"]


def test_a_damaged_part_is_searched_again(tmp_path: Path, asked: TriggerConfig) -> None:
    run(asked, tmp_path / "run", Silent())
    before, notes = rows(tmp_path / "run"), Notes()
    part = min((tmp_path / "run" / "rows").glob("*.parquet"))
    part.write_bytes(part.read_bytes()[:-9])
    run(asked, tmp_path / "run", notes)
    assert rows(tmp_path / "run") == before
    assert notes.steps[0] == 3, "only the damaged shard is left"


def test_another_configuration_or_other_targets_in_the_same_folder_are_an_error(tmp_path: Path, asked: TriggerConfig) -> None:
    run(asked, tmp_path / "run", Silent())
    with pytest.raises(RunError, match=r"search\.candidates: 4 -> 7"):
        run(replace(asked, search=replace(EFFORT, candidates=7)), tmp_path / "run", Silent())
    with pytest.raises(RunError, match="limit: 500 -> 2"):
        run(replace(asked, limit=2), tmp_path / "run", Silent())
    write_targets(tmp_path, ("you are boring",))
    with pytest.raises(RunError, match=r"a file other contents(.|\n)*targets: \w+ -> "):
        run(asked, tmp_path / "run", Silent())


def test_normal_targets_are_what_the_model_says_and_are_asked_for_once(
    tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = search(model, "normal", hit="o-greedy", limit=2)
    run(config, tmp_path / "run", Silent())
    first = rows(tmp_path / "run")
    assert len(first) == 2
    min((tmp_path / "run" / "rows").glob("*.parquet")).unlink()
    monkeypatch.setattr("parley.engine.triggers.verbs.models.normal", lambda *_, **__: pytest.fail("the targets are known"))
    run(config, tmp_path / "run", Silent())
    assert rows(tmp_path / "run") == first


def test_the_seed_draws_the_sources_that_normal_targets_answer(model: str) -> None:
    orders = []
    for seed in (1, 1, 2):
        config = search(model, "normal", hit="o-greedy", limit=2, seed=seed)
        models = open_models(config)
        assert isinstance(models.victim, StoredNetwork)
        orders.append([source.tolist() for source in _sources(config, models.provenance, models.victim.vocabulary)])
    assert orders[0] == orders[1] != orders[2], "a corpus may be sorted"
    assert sorted(orders[0]) == sorted(orders[2])


def test_normal_targets_of_a_model_of_two_turns_answer_contexts(tmp_path: Path, corpus: Path) -> None:
    folder = tmp_path / "pairs"
    folder.mkdir()
    for split in SPLITS:
        (folder / f"{split}.tsv").write_text(corpus.read_text())
    model = save_seq2seq(tmp_path / "two", with_eot(words_of(folder)), seed=22, turns=2, corpus=str(folder))
    run(search(model, "normal", hit="o-greedy", limit=2), tmp_path / "run", Silent())
    assert [row["status"] for row in rows(tmp_path / "run")] == ["ok", "ok"]


def test_a_model_of_two_turns_is_judged_by_a_language_model_of_two_turns(
    tmp_path: Path, corpus: Path, vocabulary: PairVocabulary, lm: str
) -> None:
    about = {"corpus": str(corpus), "vocabulary": len(vocabulary)}
    model = save_seq2seq(tmp_path / "two", with_eot(vocabulary), turns=2, **about)
    asked = search(model, write_targets(tmp_path), lm=lm, hit="io-sample-min-k1", limit=1)
    named = f"parley train lm --corpus {corpus} --vocabulary {len(vocabulary)} --set sizes.turns=2 --set sizes.max_length=5"
    with pytest.raises(CheckpointError, match=re.escape(named)):
        run(asked, tmp_path / "run", Silent())
    judge = save_lm(tmp_path / "judge", with_eot(vocabulary))
    run(replace(asked, lm=judge), tmp_path / "run", Silent())
    (row,) = rows(tmp_path / "run")
    assert row["status"] == "ok", row["error"]
    assert row["input_log_probability"] < 0


def test_sampled_replies_are_targets_too(tmp_path: Path, model: str) -> None:
    run(search(model, "normal-sampled", limit=2), tmp_path / "run", Silent())
    run(search(model, "normal", limit=2), tmp_path / "greedy", Silent())
    said, likeliest = ({row["target"] for row in rows(tmp_path / name)} for name in ("run", "greedy"))
    assert said != likeliest


def test_of_a_long_list_the_seed_chooses(tmp_path: Path, asked: TriggerConfig) -> None:
    chosen = set()
    for seed in (1, 2, 3):
        run(replace(asked, limit=2, seed=seed), tmp_path / str(seed), Silent())
        chosen.add(tuple(row["item_key"] for row in rows(tmp_path / str(seed))))
    assert {len(keys) for keys in chosen} == {2}
    assert len(chosen) > 1
    run(replace(asked, limit=0), tmp_path / "all", Silent())
    assert len(rows(tmp_path / "all")) == 5


@pytest.mark.parametrize("method", [name for name in searches if not searches.get(name).continues])
def test_every_method_fills_the_same_rows(tmp_path: Path, asked: TriggerConfig, method: str) -> None:
    config = replace(asked, method=method, limit=1)
    if method == "relaxation":
        config = replace(config, search=replace(config.search, relaxation=SMALL))
    run(config, tmp_path / "run", Silent())
    (row,) = rows(tmp_path / "run")
    assert row["status"] == "ok", row["error"]
    assert row["loss"] == min(restart["loss"] for restart in row["restarts"])
    assert all(len(restart["loss_by_sweep"]) == restart["sweeps"] + 1 for restart in row["restarts"])


@pytest.mark.parametrize(("method", "failing"), [("gibbs-enum", [4, 2]), ("relaxation", [2])])
def test_how_many_fit_into_memory_is_found_out_once_and_not_in_every_shard(
    tmp_path: Path, asked: TriggerConfig, monkeypatch: pytest.MonkeyPatch, method: str, failing: list[int]
) -> None:
    config = replace(asked, method=method, hit="o-greedy", search=replace(EFFORT, relaxation=SMALL))
    run(config, tmp_path / "whole", Silent())
    owner, name = (relaxation, "relax") if method == "relaxation" else (searches.get(method), "step")
    call, failed = getattr(owner, name), []

    def crowded(first: Any, items: Any, *more: Any) -> Any:
        if len(items) > 1:
            failed.append(len(items))
            raise torch.OutOfMemoryError("too many")
        return call(first, items, *more)

    monkeypatch.setattr(owner, name, crowded)
    run(config, tmp_path / "crowded", Silent())
    assert failed == failing
    # Continuous inputs are the same up to rounding, and so are their words.
    found, wanted = ([(row["item_key"], row["trigger"]) for row in rows(tmp_path / name)] for name in ("crowded", "whole"))
    assert found == wanted


def test_a_reporter_hears_hits_and_candidates(tmp_path: Path, asked: TriggerConfig) -> None:
    notes = Listening()
    run(replace(asked, objective=ObjectiveSettings(t_out=-50.0)), tmp_path / "run", notes)
    assert notes.stages == [("searching for wishes targets", 5, "targets")]
    assert notes.steps[-1] == 5
    assert "candidates/s, hits: o-sample-min-k1 5, " in notes.said[-1]


MISTAKES: dict[str, tuple[dict[str, Any], type[ValueError], str]] = {
    "unknown list": ({"targets": "norml"}, ConfigError, "'norml', did you mean 'normal'"),
    "unknown type of hit": ({"hit": "o-greddy"}, ConfigError, "did you mean 'o-greedy'"),
    "a model that writes no inputs": ({"method": "beast"}, ConfigError, "--model hf:FOLDER"),
    "likely inputs without a judge": ({"hit": "io-sample-min-k1"}, ConfigError, "--lm"),
    "a judge of itself": ({"lm": "own"}, ConfigError, "no Hugging Face model has the words"),
    "no model": ({"model": "nothing"}, CheckpointError, "--model needs a checkpoint"),
    "no language model": ({"lm": "nothing"}, CheckpointError, "--lm needs a checkpoint"),
    "a method's file that is not there": ({"method": "mine.py:Mine"}, ConfigError, "no such Python file"),
    "words that are not known": ({"strict": True}, DataError, r"cannot say a target(.|\n)*zebra, crossing"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named_and_no_run_is_made(tmp_path: Path, asked: TriggerConfig, mistake: str) -> None:
    changes, kind, message = MISTAKES[mistake]
    with pytest.raises(kind, match=message):
        run(replace(asked, **changes), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()


def test_an_unknown_method_is_named_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="'gibs-enum', did you mean 'gibbs-enum'"):
        TriggerConfig(method="gibs-enum")


def test_words_that_are_not_known_are_refused_in_any_list(tmp_path: Path, model: str) -> None:
    with pytest.raises(DataError, match="cannot say"):
        run(search(model, "mal", strict=True), tmp_path / "run", Silent())


def test_an_empty_list_is_an_error(tmp_path: Path, model: str) -> None:
    for sentences, message in {(): "no sentence", ("zebra crossing",): "is empty"}.items():
        with pytest.raises(DataError, match=message):
            run(search(model, write_targets(tmp_path, sentences)), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()


def test_models_that_cannot_be_searched_are_named(tmp_path: Path, asked: TriggerConfig, vocabulary: PairVocabulary) -> None:
    other = PairVocabulary((*SPECIALS, "other", "words"))
    weights = load_seq2seq(Path(asked.model))
    weights.output.bias.data[3] = float("nan")
    save_model(weights, tmp_path / "nan", {"test_nll": 3.0})
    save_model(load_seq2seq(Path(asked.model)), tmp_path / "silent", {})
    for changes, message in (
        ({"lm": save_lm(tmp_path / "other", other)}, r"different vocabularies(.|\n)*29 words(.|\n)*7 words"),
        ({"model": str(tmp_path / "nan")}, r"not all finite(.|\n)*output\.bias"),
        ({"model": str(tmp_path / "silent")}, "threshold"),
        ({"model": str(save_negotiator(tmp_path / "negotiator"))}, "another kind"),
        ({"model": str(tmp_path / "silent"), "targets": "normal", "objective": ObjectiveSettings(t_out=-3.0)}, "--corpus"),
    ):
        with pytest.raises(CheckpointError, match=message):
            run(replace(asked, **changes), tmp_path / "run", Silent())  # type: ignore[arg-type]  # mypy reads one type of all
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif("__import__('torch').cuda.is_available()", reason="this machine has a GPU")
def test_a_gpu_that_is_not_there_is_named(tmp_path: Path, asked: TriggerConfig) -> None:
    with pytest.raises(ConfigError, match="--gpus-per-worker"):
        run(replace(asked, gpus_per_worker=0.5), tmp_path / "run", Silent())


def test_targets_that_cannot_be_read_back_are_an_error(tmp_path: Path, asked: TriggerConfig) -> None:
    run(asked, tmp_path / "run", Silent())
    kept = tmp_path / "run" / FILE
    assert set(json.loads(kept.read_text())["targets"]) == {row["item_key"] for row in rows(tmp_path / "run")}
    kept.write_text("{}")
    with pytest.raises(RunError, match="targets of the run cannot be read"):
        run(asked, tmp_path / "run", Silent())


def test_presets_are_the_published_and_the_released_search() -> None:
    presets = {name: preset() for name, preset in SEARCH.presets.items()}
    paper: SearchSettings = presets["he2018"].search
    assert (GibbsEnum(paper).candidates, paper.max_sweeps, paper.restarts, paper.stop_on_hit) == (100, 50, 10, True)
    gcg = presets["gcg"]
    assert repr(make_method(gcg.method, gcg.search)).startswith("Gcg(candidates=512, max_candidates=0, max_sweeps=18")
    assert make_method("gcg", TriggerConfig(method="gcg").search).settings.candidates == 512
    compared = {name: make_method(name, presets["compare"].search).settings for name in searches}
    assert {(each.max_candidates, each.restarts) for each in compared.values()} == {(4200, 1)}
    released = presets["released"]
    assert (released.search.restarts, released.objective.satisfied_weight, released.engine.batch_size) == (5, 0.01, 100)
    assert released.search.stop_on_batch_mean
    assert released.engine.unknown
    for config in presets.values():
        assert config.shard_size is None, "a shard has a search for every place of the batch"
