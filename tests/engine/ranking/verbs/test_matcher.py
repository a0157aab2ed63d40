"""Training of matching models as a run: what it leaves, that it goes on exactly, training against rules, and mistakes."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parley.engine.core.page.page import collect_run
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.known import BEFORE
from parley.engine.core.verbs.job import Silent
from parley.engine.ranking.metrics.ranks import ATTACKED, MATCHING, PROMOTED
from parley.engine.ranking.verbs import matcher as matcher_config
from parley.engine.ranking.verbs.attack_worker import SEARCHED
from parley.engine.ranking.verbs.config import ranker_specs
from parley.engine.ranking.verbs.matcher import ATTACKED_SPLIT, TRAIN_MATCHER, PoolSearchSettings, TrainMatcherConfig
from parley.engine.ranking.verbs.prepared import CUT, NUM_CONTEXTS, UNREAD, unread_note
from parley.envs.core.errors import CheckpointError, ConfigError, DataError, RunError
from parley.envs.ranking.groups import CandidateOptions
from parley.policies.ranking.matching.fit import FORMATS, load_matcher
from parley.policies.ranking.matching.settings import DamSizes, MatcherFitConfig, MrfnSizes, SmnSizes
from parley.policies.ranking.rankers import load_ranker
from tests.engine.core.page.pages import page_of
from tests.engine.core.verbs.made_up import Notes, assert_equal_weights, interrupt
from tests.engine.ranking.verbs.rankings import long_rows

run = TRAIN_MATCHER.run

COLOURS = ("red", "green", "blue", "grey", "brown", "pink", "white", "black")
LENGTHS: dict[str, Any] = {"embed": 8, "turns": 2, "words": 8}
SIZES: dict[str, Any] = {
    "smn": SmnSizes(**LENGTHS, gru=6, maps=3, match=5, session=4),
    "dam": DamSizes(**LENGTHS, stack=1, first_maps=4, second_maps=3),
    "mrfn": MrfnSizes(**LENGTHS, letters=3, alphabet=9, letter_embed=4, letter_maps=6, maps=2, heads=2),
}
FIT = MatcherFitConfig(learning_rate=0.02, batch_size=16, max_epochs=3, patience=3, fresh_negatives=True)
OPTIONS = CandidateOptions(size=4)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Questions about two colours, answered by the same words."""
    folder = tmp_path_factory.mktemp("corpus")
    lines = [
        f"is the {first} box of the {second} man open\tthe {first} box of the {second} man is shut"
        for first in COLOURS
        for second in COLOURS
    ]
    lines = [lines[place * 5 % len(lines)] for place in range(len(lines))]
    for split, part in (("train", lines[:40]), ("val", lines[40:52]), ("test", lines[52:])):
        (folder / f"{split}.tsv").write_text("\n".join(part) + "\n")
    return str(folder)


def asked(corpus: str, **changes: Any) -> TrainMatcherConfig:
    settings: dict[str, Any] = {"corpus": corpus, "candidates": OPTIONS, "fit": FIT, "lexicon": "built-in", **SIZES}
    return TrainMatcherConfig(**{**settings, **changes})


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory, corpus: str) -> Path:
    """A model that has learned something."""
    path = tmp_path_factory.mktemp("base") / "run"
    run(asked(corpus, fit=replace(FIT, max_epochs=25, patience=25)), path, Silent())
    return path


@pytest.mark.parametrize("kind", SIZES)
def test_it_leaves_a_ranker_and_its_figures(kind: Any, tmp_path: Path, corpus: str) -> None:
    notes, config = Notes(), asked(corpus, kind=kind)
    result = run(config, tmp_path / "run", notes)
    assert list(result.metrics) == [name for name in MATCHING if not name.endswith((BEFORE, ATTACKED)) and name != PROMOTED]
    assert all(0 <= result.metrics[name].value <= 1 for name in MATCHING if "@" in name and name in result.metrics)
    assert result.metrics["test_r@1"].n == 12
    epochs = [event for event in RunFolder.load(tmp_path / "run").events() if event["kind"] == "epoch"]
    assert [epoch["number"] for epoch in epochs] == [1, 2, 3]
    best = max(epoch["validation_recall_at_1"] for epoch in epochs)
    assert result.metrics["validation_r@1"].value == pytest.approx(best), "the epoch that is kept"
    assert notes.stages[:3] == [(f"epoch {number}", 5, "batches") for number in (1, 2, 3)]
    assert load_matcher(tmp_path / "run").model.sizes == SIZES[kind]
    scores = load_ranker(str(tmp_path / "run")).score((("is", "it", "open"),), [("shut",), ("the", "box")])
    assert all(map(math.isfinite, scores))
    about = FORMATS[kind].provenance(tmp_path / "run")
    assert (about["role"], about["corpus"], about["seed"], about["candidates"]["size"]) == ("supervised", corpus, 1, 4)
    assert about["test"] == result.metrics["test_r@1"].value
    rank, search, harden = result.next_commands
    assert search == rank.replace("evaluate", "attack")
    known = f"--corpus {corpus} --lexicon built-in --set candidates.size=4"
    assert rank == f"parley evaluate ranking --model {tmp_path / 'run'} {known}"
    assert harden.startswith(f"parley train matcher {'' if kind == 'smn' else f'{kind} '}--")
    assert f"--start {tmp_path / 'run'} --against iiw" in harden
    assert "--adversary-share" not in harden, "the paper's is the default"


def test_what_a_training_does_not_read_is_counted_and_told(tmp_path: Path) -> None:
    for split in ("train", "val", "test"):
        long_rows(tmp_path / "corpus" / f"{split}.tsv")
    fit = replace(FIT, max_epochs=1, fresh_negatives=False)
    config = asked(str(tmp_path / "corpus"), candidates=CandidateOptions(turns=5), fit=fit)
    notes, path = Notes(), tmp_path / "run"
    run(config, path, notes)
    summary = RunFolder.load(path).summary() or {}
    # Of each split one context loses a turn; then two turns are read, of eight words, and no wrong reply whole.
    assert (summary[NUM_CONTEXTS], summary[CUT], summary[UNREAD]) == (9, [3, 5], {"SMN": [6, 9]})
    told = (
        "All splits that are used: 3 of 9 contexts have more turns: the newest 5 are kept (candidates.turns). "
        "SMN is made for shorter texts: it did not read all of 6 contexts and 9 replies."
    )
    assert told in notes.said
    assert told in page_of(collect_run(path))
    whole = asked(str(tmp_path / "corpus"), fit=fit, smn=replace(SIZES["smn"], turns=6, words=12))
    run(whole, tmp_path / "whole", notes)
    assert not unread_note(RunFolder.load(tmp_path / "whole").summary() or {})
    assert sum("splits" in said for said in notes.said) == 1


def test_held_out_contexts_are_the_seeds_choice_and_training_keeps_its_own(tmp_path: Path, corpus: str) -> None:
    config, notes = asked(corpus, fit=replace(FIT, max_epochs=1), held_out=5), Notes()
    result = run(config, tmp_path / "few", notes)
    assert (result.metrics["test_r@1"].n, notes.stages[0]) == (5, ("epoch 1", 5, "batches"))
    assert FORMATS["smn"].provenance(tmp_path / "few")["held_out"] == 5
    first, again, other = (
        [group.key for group in TRAIN_MATCHER.prepare(replace(config, seed=seed), tmp_path, notes).splits["val"]]
        for seed in (1, 1, 2)
    )
    assert len(first) == 5
    assert first == again != other


def test_the_vocabulary_is_that_of_the_training_split(tmp_path: Path, corpus: str) -> None:
    config = asked(corpus, limit=2, fit=replace(FIT, max_epochs=1), candidates=replace(OPTIONS, size=2))
    run(config, tmp_path / "run", Silent())
    known = load_matcher(tmp_path / "run").model.vocabulary.index
    lines = [line.split() for line in (Path(corpus) / "train.tsv").read_text().splitlines()[:2]]
    assert {word for words in lines for word in words} <= set(known)
    assert set(COLOURS) - set(known), "validation and test texts say others"


def test_the_test_split_decides_nothing_of_a_training(tmp_path: Path, corpus: str, base: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(corpus, other)
    lines = (Path(corpus) / "train.tsv").read_text().splitlines()
    (other / "test.tsv").write_text("\n".join(line.replace("man", "woman") for line in lines[:9]) + "\n")
    fit = replace(FIT, max_epochs=2)
    figures = []
    for number, name in enumerate((corpus, str(other))):
        run(asked(name, fit=fit, vectors="skip-gram"), tmp_path / f"new-{number}", Silent())
        against = asked(name, start=str(base), against="iiw", fit=fit)
        figures.append(run(against, tmp_path / f"further-{number}", Silent()).metrics)
    for kind in ("new", "further"):
        assert_equal_weights(tmp_path / f"{kind}-0", tmp_path / f"{kind}-1")
    assert figures[0]["validation_r@1"] == figures[1]["validation_r@1"]
    assert figures[0]["test_r@1"].n != figures[1]["test_r@1"].n


def test_it_begins_with_vectors_of_the_training_split_or_of_a_file(tmp_path: Path, corpus: str) -> None:
    fit, frozen = replace(FIT, max_epochs=1), replace(SIZES["smn"], tuned=False)
    notes = Notes()
    for name in ("one", "two"):
        run(asked(corpus, vectors="skip-gram", smn=frozen, fit=fit), tmp_path / name, notes)
    assert any("skip-gram on" in line for line in notes.said)
    assert_equal_weights(tmp_path / "one", tmp_path / "two")
    file = tmp_path / "vectors.txt"
    file.write_text("box 1 2 3 4 5 6 7 8\n")
    run(asked(corpus, vectors=str(file), smn=frozen, fit=fit), tmp_path / "file", Silent())
    model = load_matcher(tmp_path / "file").model
    assert model.embedding.weight[model.vocabulary.index["box"]].tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    file.write_text("zebra 1 2 3 4 5 6 7 8\n")
    with pytest.raises(DataError, match="none of the words"):
        run(asked(corpus, vectors=str(file)), tmp_path / "other", Silent())


def test_a_training_that_is_interrupted_goes_on_to_the_same_weights(tmp_path: Path, corpus: str) -> None:
    config = asked(corpus, fit=replace(FIT, max_epochs=8, patience=8))
    whole = run(config, tmp_path / "whole", Silent())
    interrupt(TRAIN_MATCHER, config, tmp_path / "stopped", "epoch +2")
    notes = Notes()
    resumed = run(config, tmp_path / "stopped", notes)
    assert any(line.startswith("resumed after epoch") for line in notes.said)
    assert resumed.metrics == whole.metrics
    assert_equal_weights(tmp_path / "stopped", tmp_path / "whole")
    with pytest.raises(RunError, match="seed: 1 -> 2"):
        run(replace(config, seed=2), tmp_path / "whole", Silent())


@pytest.mark.parametrize("fresh", [True, False])
def test_training_against_rules_goes_on_from_a_model_and_is_measured_before_and_after(
    fresh: bool, tmp_path: Path, corpus: str, base: Path
) -> None:
    notes = Notes()
    fit = replace(FIT, fresh_negatives=fresh, patience=1)
    config = asked(corpus, start=str(base), against="iiw,sow,ngr", fit=fit, adversary_share=1.0)
    result = run(config, tmp_path / "run", notes)
    assert list(result.metrics) == [name for name in MATCHING if PROMOTED not in name]
    stored = RunFolder.load(base).metrics()
    assert {name: result.metrics[name + BEFORE] for name in stored} == stored
    judged = [sum(result.metrics[f"validation_r@1{each}{when}"].value for each in ("", ATTACKED)) for when in (BEFORE, "")]
    assert judged[0] <= judged[1], "where no epoch is better, the model stays that it began with"
    events = list(RunFolder.load(tmp_path / "run").events())
    assert len([event for event in events if event["kind"] == "epoch"]) == 3, "the control trains as long"
    counted = {event["split"]: event for event in events if event["kind"] == ATTACKED_SPLIT}
    assert counted["test"]["contexts"] == 12
    assert counted["test"]["untouched"]["ngr"] == 0
    about = FORMATS["smn"].provenance(tmp_path / "run")
    assert (about["role"], about["against"], about["base"]) == ("adversarial", ["iiw", "sow", "ngr"], str(base))
    assert (about["corpus"], about["pool"]) == (corpus, 40)
    rankers = ranker_specs([str(base), str(tmp_path / "run")])
    assert [(each.against, each.base) for each in rankers] == [((), ""), (("iiw", "sow", "ngr"), rankers[0].label)]
    assert result.next_commands[0].startswith(f"parley evaluate ranking --model {base},{tmp_path / 'run'} --rules iiw,sow,ngr")


def test_the_control_makes_as_many_steps_on_replies_as_they_are(tmp_path: Path, corpus: str, base: Path) -> None:
    seen = {}
    for against in ("none", "sow", "search"):
        notes = Notes()
        config = asked("", start=str(base), against=against, search=PoolSearchSettings(pool=3, budget=9))
        run(config, tmp_path / against, notes)
        epochs = [stage for stage in notes.stages if stage[0].startswith("epoch")]
        seen[against] = (epochs, FORMATS["smn"].provenance(tmp_path / against))
    assert seen["none"][0] == seen["sow"][0] == seen["search"][0]
    about = seen["none"][1]
    assert (about["role"], about["against"], about["base"], about["pool"]) == ("control", [], str(base), 0)
    assert about["corpus"] == corpus, "that of the start"
    following, search, hard = TRAIN_MATCHER.next_commands(asked("", start=str(base), against="none"), tmp_path / "none")
    assert "--rules none" in hard
    assert """--set 'candidates.negatives="hard"'""" in hard, "wrong replies that have the context's words anyway"
    assert search == following.replace("evaluate", "attack")
    assert f"--corpus {corpus} " in following
    assert "--rules" not in following, "what further training alone brings shows under every rule"


def test_a_small_share_changes_few_contexts(tmp_path: Path, corpus: str, base: Path) -> None:
    for share, pool in ((0.075, 3), (0.001, 1)):
        notes, path = Notes(), tmp_path / str(share)
        run(asked(corpus, start=str(base), against="sow", adversary_share=share), path, notes)
        assert FORMATS["smn"].provenance(path)["pool"] == pool
        assert f"rules and policies change {pool} of 40 training contexts (--adversary-share)" in notes.said


def test_an_interrupted_training_against_rules_goes_on_exactly(tmp_path: Path, corpus: str, base: Path) -> None:
    config = asked(corpus, start=str(base), against="iiw,rlw-1")
    whole = run(config, tmp_path / "whole", Silent())
    interrupt(TRAIN_MATCHER, config, tmp_path / "stopped", "epoch  2")
    assert run(config, tmp_path / "stopped", Silent()).metrics == whole.metrics
    assert_equal_weights(tmp_path / "stopped", tmp_path / "whole")


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory, corpus: str, base: Path) -> tuple[TrainMatcherConfig, Path]:
    """A training against what the search finds at each epoch."""
    path = tmp_path_factory.mktemp("searched") / "run"
    config = asked(corpus, start=str(base), against="search", search=PoolSearchSettings(pool=25, edits=6))
    run(config, path, Silent())
    return config, path


def test_training_against_the_search_attacks_the_model_as_it_is_at_each_epoch(
    searched: tuple[TrainMatcherConfig, Path], base: Path
) -> None:
    config, path = searched
    ranking, searching, _ = TRAIN_MATCHER.next_commands(config, path)
    assert "--rules" not in ranking, "it is shown every rule"
    assert searching.startswith(f"parley attack ranking --model {base},{path}")
    folder = RunFolder.load(path)
    metrics, events = folder.metrics(), folder.events()
    assert list(metrics) == list(MATCHING)
    assert metrics[PROMOTED].value < metrics[PROMOTED + BEFORE].value
    assert metrics[PROMOTED].n <= 12
    assert all(metrics[name].low < metrics[name].high for name in (PROMOTED, PROMOTED + BEFORE)), "also where all are alike"
    searches = {event["name"]: event for event in events if event["kind"] == SEARCHED}
    epochs = [f"epoch {number}" for number in (1, 2, 3)]
    assert list(searches) == ["test at the start", "val at the start", *epochs, "test at the end"]
    assert [searches[name]["contexts"] for name in epochs] == [25, 25, 25]
    assert all(event["promoted"] <= event["tried"] <= event["contexts"] for event in searches.values())
    found = [(path / f"found-epoch-{number}.jsonl").read_text() for number in (1, 2, 3)]
    assert len(set(found)) == 3, "each is against another model"
    assert len([event for event in events if event["kind"] == "epoch"]) == 3, "the control trains as long"
    about = FORMATS["smn"].provenance(path)
    assert (about["role"], about["against"], about["base"], about["pool"]) == ("adversarial", ["search"], str(base), 25)


@pytest.mark.parametrize("where", ["search, val", "search, epoch 2", "epoch 2", "search, test at the end"])
def test_a_training_against_the_search_goes_on_exactly(
    where: str, tmp_path: Path, searched: tuple[TrainMatcherConfig, Path]
) -> None:
    config, whole = searched
    interrupt(TRAIN_MATCHER, config, tmp_path / "stopped", where)
    notes = Notes()
    resumed = run(config, tmp_path / "stopped", notes)
    assert resumed.metrics == RunFolder.load(whole).metrics()
    assert_equal_weights(tmp_path / "stopped", whole)
    assert "search, test at the start" not in [title for title, *_ in notes.stages], "what was found is read"


def test_rules_and_the_search_teach_together(tmp_path: Path, corpus: str, base: Path) -> None:
    fit = replace(FIT, max_epochs=1, fresh_negatives=False)
    config = asked(corpus, start=str(base), against="sow, search", search=PoolSearchSettings(pool=5, budget=20), fit=fit)
    result = run(config, tmp_path / "run", Silent())
    assert list(result.metrics) == list(MATCHING)
    assert FORMATS["smn"].provenance(tmp_path / "run")["against"] == ["sow", "search"]
    events = RunFolder.load(tmp_path / "run").events()
    assert {event["kind"] for event in events} >= {ATTACKED_SPLIT, SEARCHED}
    assert next(event["contexts"] for event in events if event["kind"] == ATTACKED_SPLIT) == 5, "those that are searched"


def test_a_training_that_only_harms_keeps_what_it_began_with_and_says_so(tmp_path: Path, corpus: str, base: Path) -> None:
    notes = Notes()
    fit = replace(FIT, learning_rate=1e-12, max_epochs=1)
    run(asked(corpus, start=str(base), against="none", fit=fit), tmp_path / "run", notes)
    assert any("no epoch was better" in line for line in notes.said)
    assert "No epoch was better" in (RunFolder.load(tmp_path / "run").summary() or {})["description"]
    assert_equal_weights(tmp_path / "run", base)


def test_mistakes_are_named_and_no_run_is_made(tmp_path: Path, corpus: str, base: Path) -> None:
    target = tmp_path / "run"
    with pytest.raises(ConfigError, match="did you mean 'iiw'"):
        asked(corpus, start=str(base), against="iww")
    with pytest.raises(ConfigError, match=r"--start needs --against(.|\n)*none for the control"):
        asked(corpus, start=str(base))
    with pytest.raises(ConfigError, match="--against needs --start"):
        asked(corpus, against="iiw")
    with pytest.raises(ConfigError, match="vocabulary"):
        asked(corpus, vocabulary=5)
    with pytest.raises(ConfigError, match=r"edits wrong ones(.|\n)*search.goal(.|\n)*demote"):
        asked(corpus, start=str(base), against="search", search=PoolSearchSettings(goal="demote"))
    with pytest.raises(ConfigError, match=r"edits(.|\n)*at least 1"):
        PoolSearchSettings(edits=0)
    with pytest.raises(ConfigError, match="did you mean 'greedy'"):
        run(asked(corpus, start=str(base), against="search", search=PoolSearchSettings(method="gredy")), target, Silent())
    with pytest.raises(CheckpointError, match=r"--start(.|\n)*parley train matcher"):
        run(asked(corpus, start=str(tmp_path / "nothing"), against="iiw"), target, Silent())
    with pytest.raises(ConfigError, match=r"another network(.|\n)*parley train matcher smn --start"):
        run(asked(corpus, kind="dam", start=str(base), against="iiw"), target, Silent())
    with pytest.raises(ConfigError, match="did you mean 'helpdesk'"):
        run(asked("helpdsk"), target, Silent())
    with pytest.raises(ConfigError, match="did you mean 'skip-gram'"):
        run(asked(corpus, vectors="skipgram"), target, Silent())
    with pytest.raises(ConfigError, match=r"--device(.|\n)*warp"):
        run(asked(corpus, device="warp"), target, Silent())
    assert not target.exists()


@pytest.mark.parametrize("label", ["0", "1"])
def test_a_split_without_right_or_without_wrong_replies_is_refused(label: str, tmp_path: Path) -> None:
    for split in ("train", "val", "test"):
        labels, said = (("0", "1") if split != "val" else (label, label)), ("no", "yes")
        lines = [f"{each}\tis it {number} open\t{word}" for number in range(9) for each, word in zip(labels, said, strict=True)]
        (tmp_path / f"{split}.txt").write_text("\n".join(lines) + "\n")
    with pytest.raises(DataError, match="the val split needs right and wrong replies"):
        run(asked(str(tmp_path), fit=replace(FIT, fresh_negatives=False)), tmp_path / "run", Silent())


def test_presets_are_what_they_say() -> None:
    made = {name: preset() for name, preset in TRAIN_MATCHER.presets.items()}
    assert list(made) == ["smn", "dam", "mrfn", "smn-paper", "dam-paper", "mrfn-paper", "demo", "hardened"]
    assert made["smn"] == matcher_config.smn()
    assert made.pop("demo").kind == "smn"
    assert made.pop("hardened") == replace(matcher_config.smn(), start="runs/matcher", against="all")
    assert made["smn"].adversary_share == 0.1, "100,000 of a million pairs"
    for name, preset in made.items():
        kind, _, published = name.partition("-")
        assert preset.kind == kind
        assert (preset.sizes.embed, preset.sizes.turns, preset.sizes.words) == ((200, 10, 50) if published else (100, 6, 30))
        assert preset.vectors == ("skip-gram" if published else "none")
        assert preset.fit.criterion == "recall"
