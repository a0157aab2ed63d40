"""Evaluation under perturbations: rows that depend on the configuration alone, what is scored, what is said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyarrow.parquet import read_table

from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.export import write_flat
from parley.engine.core.verbs.job import Silent
from parley.engine.perturb.catalogue import GROUPS, Resources, build
from parley.engine.perturb.metrics.activity import COMMANDS, CONFLICTS, ENTITIES, FOLDER, PAST, PRESENT
from parley.engine.perturb.verbs import robustness as job
from parley.engine.perturb.verbs.config import EngineSettings, RobustnessConfig
from parley.engine.perturb.verbs.models import label_of, perturbation_seed, plain_words
from parley.engine.perturb.verbs.robustness import EVALUATE_ROBUSTNESS, describe_for
from parley.envs.core.errors import ConfigError
from parley.envs.core.seeds import derive_seed
from parley.envs.corpora.pairs.compiled import load_pairs
from parley.envs.corpora.pairs.contexts import examples
from parley.envs.corpora.pairs.turns import Example, Turns, format_turns, parse_turns
from parley.envs.corpora.pairs.vocabulary import PairVocabulary
from parley.policies.core.responders import load_responder
from tests.engine.core.verbs.items import require_figures_of
from tests.engine.core.verbs.made_up import Listening, Notes, rows
from tests.engine.perturb.verbs.robust import ANTONYM, BUILT_IN, OWN, SWAP, evaluation, save_responder
from tests.engine.triggers.verbs.searches import write_corpus

run = EVALUATE_ROBUSTNESS.run


@pytest.fixture(scope="module")
def desk() -> Mapping[str, Example]:
    """The examples of the test split by their keys."""
    found = examples(load_pairs("helpdesk", every_word=True), "test", 2)
    return {example.key: example for example in found}


def replies(row: Mapping[str, Any], who: str = "base") -> dict[str, dict[str, Any]]:
    return {entry["strategy"]: entry for entry in row["replies"] if entry["model"] == who}


def made(row: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {entry["strategy"]: entry for entry in row["perturbations"]}


def test_every_example_is_a_row_with_its_contexts_and_replies(
    tmp_path: Path, asked: RobustnessConfig, desk: Mapping[str, Example], vocabulary: PairVocabulary
) -> None:
    result = run(asked, tmp_path / "run", Silent())
    require_figures_of(tmp_path / "run")
    found = rows(tmp_path / "run")
    assert len(found) == len({row["seed"] for row in found}) == 10
    responder = load_responder(asked.model)
    shared = Resources(BUILT_IN, frozenset(plain_words(vocabulary)))
    strategies = {strategy.name: strategy for strategy in build((SWAP, ANTONYM), BUILT_IN, shared)}
    for row in found:
        example = desk[row["item_key"]]
        assert (row["context"], row["truth"]) == (format_turns(example.context), format_turns((example.reply,)))
        contexts: dict[str, Turns] = {"": example.context}
        for name, strategy in strategies.items():
            (contexts[name],) = strategy.perturb([example.context], [perturbation_seed(1, name, example.key)])
            entry = made(row)[name]
            assert entry["text"] == format_turns(contexts[name])
            assert entry["changed"] == (contexts[name] != example.context) == (entry["num_changed"] > 0)
        assert [*replies(row)] == ["", SWAP, ANTONYM]
        for name, context in contexts.items():
            assert replies(row)[name]["reply"] == format_turns(tuple(responder.respond([context])))
    changed = sum(not replies(row)[SWAP]["same"] for row in found)
    assert 0 < changed < 10, "a model that says one thing always, or never the same, would show nothing"
    assert result.metrics[f"change_rate.base.{SWAP}"].value == changed / 10
    assert result.metrics[f"perturbed_share.{SWAP}"].value == sum(made(row)[SWAP]["changed"] for row in found) / 10
    assert result.legend[f"change_rate.base.{SWAP}"].direction == "lower: better"
    assert result.legend[f"change_rate.base.{ANTONYM}"].direction == "higher: better"


def test_a_reply_of_a_model_is_a_line_of_the_flat_file(tmp_path: Path, asked: RobustnessConfig) -> None:
    run(asked, tmp_path / "run", Silent())
    write_flat(str(tmp_path / "run"), str(tmp_path / "flat.parquet"), Silent())
    lines, stored = read_table(tmp_path / "flat.parquet").to_pylist(), {row["item_key"]: row for row in rows(tmp_path / "run")}
    assert len(lines) == 10 * (2 + 1) * len({line["model"] for line in lines})
    for line in lines:
        row = stored[line["item_key"]]
        assert replies(row, line["model"])[line["strategy"]].items() <= line.items()
        assert (line["context"], line["truth"], line["seed"]) == (row["context"], row["truth"], row["seed"])
        clean = {"text": row["context"], "changed": False, "num_changed": 0}
        assert made(row).get(line["strategy"], clean).items() <= line.items()


def test_what_a_strategy_draws_is_named_by_seed_strategy_and_example() -> None:
    # Adversarial training draws from the same streams: examples of a split that both see are perturbed alike.
    assert perturbation_seed(1, SWAP, "test-000001") == derive_seed(1, "perturb", SWAP, "test-000001")
    others = {perturbation_seed(*key) for key in ((1, SWAP, "a"), (2, SWAP, "a"), (1, ANTONYM, "a"), (1, SWAP, "b"))}
    assert len(others) == 4


def test_an_untouched_context_is_answered_as_the_clean_one(tmp_path: Path, asked: RobustnessConfig) -> None:
    run(asked, tmp_path / "run", Silent())
    untouched = [row for row in rows(tmp_path / "run") if not made(row)[ANTONYM]["changed"]]
    assert untouched
    for row in untouched:
        assert made(row)[ANTONYM]["text"] == row["context"]
        entry = replies(row)[ANTONYM]
        assert (entry["same"], entry["bleu"], entry["reply"]) == (True, 1.0, replies(row)[""]["reply"])
        assert entry["context_similarity"] == pytest.approx(1.0)


def test_likeness_is_of_the_clean_context_and_the_reply_to_it(tmp_path: Path, asked: RobustnessConfig) -> None:
    run(asked, tmp_path / "run", Silent())
    for row in rows(tmp_path / "run"):
        clean, swapped = replies(row)[""], replies(row)[SWAP]
        assert [clean[name] for name in ("context_similarity", "reply_similarity", "bleu", "same")] == [None] * 4
        assert swapped["context_similarity"] == pytest.approx(1.0), "a swap keeps the words"
        assert swapped["same"] == (swapped["reply"] == clean["reply"])
        assert (swapped["bleu"] == 1.0) == swapped["same"]


def test_rows_depend_neither_on_the_batch_nor_on_which_others_are_asked(
    tmp_path: Path, asked: RobustnessConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(asked, tmp_path / "here", Silent())
    run(replace(asked, engine=EngineSettings(batch_size=1), shard_size=3), tmp_path / "one", Silent())
    assert rows(tmp_path / "one") == rows(tmp_path / "here")
    run(replace(asked, limit=4), tmp_path / "few", Silent())
    few = rows(tmp_path / "few")
    assert len(few) == 4
    assert [row for row in rows(tmp_path / "here") if row["item_key"] in {each["item_key"] for each in few}] == few


def test_drawn_replies_are_the_contexts_own_and_named_models_come_along(tmp_path: Path, asked: RobustnessConfig) -> None:
    drawn = replace(asked, decoder="sample:2,repeat=3")
    run(drawn, tmp_path / "run", Silent())
    run(replace(drawn, engine=EngineSettings(batch_size=1), shard_size=3), tmp_path / "again", Silent())
    assert rows(tmp_path / "run") == rows(tmp_path / "again")
    for row in rows(tmp_path / "run"):
        assert all(made(row)[name]["changed"] or replies(row)[name]["same"] for name in (SWAP, ANTONYM))
    assert EVALUATE_ROBUSTNESS.models(replace(asked, decoder="mmi:backward=runs/b"))["decoder backward"] == "runs/b"


def test_a_model_that_does_not_know_the_decoder_is_told_before_a_run_is_made(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    asked = evaluation(f"{tmp_path / 'own.py'}:Parrot", corpus="helpdesk", decoder="beam:5")
    with pytest.raises(ConfigError, match=r"no decoder or option beam(.|\n)*own.py:Parrot(.|\n)*greedy"):
        run(asked, tmp_path / "run", Silent())
    with pytest.raises(ConfigError, match="no decoder is called 'bema'"):
        replace(asked, decoder="bema:5")
    assert not (tmp_path / "run").exists()


def test_a_trained_model_meets_what_it_was_trained_against(
    tmp_path: Path, asked: RobustnessConfig, trained: str, vocabulary: PairVocabulary
) -> None:
    random = save_responder(tmp_path / "random", vocabulary, seed=2, role="adversarial", strategies=["random-source"])
    notes = Notes()
    config = replace(asked, trained=f"{trained}, {random}")
    result = run(config, tmp_path / "run", notes)
    run(asked, tmp_path / "alone", Silent())
    for row, alone in zip(rows(tmp_path / "run"), rows(tmp_path / "alone"), strict=True):
        assert replies(row) == replies(alone)
        assert [*replies(row, SWAP)] == ["", SWAP]
        assert [*replies(row, "random-source")] == [""]
        assert replies(row, SWAP)[SWAP]["same"] == (replies(row, SWAP)[SWAP]["reply"] == replies(row, SWAP)[""]["reply"])
    assert f"change_rate.{SWAP}.{SWAP}" in result.metrics
    assert any("random-source" in line and "clean contexts alone" in line for line in notes.said)
    assert [row[0] for row in EVALUATE_ROBUSTNESS.tables(RunFolder.load(tmp_path / "run"))["Change and similarity"].rows] == [
        SWAP,
        ANTONYM,
        f"{SWAP} trained",
    ]


def test_a_model_that_was_trained_as_long_without_strategies_meets_all(
    tmp_path: Path, asked: RobustnessConfig, vocabulary: PairVocabulary
) -> None:
    control = save_responder(tmp_path / "control", vocabulary, seed=2, role="adversarial", strategies=["none"])
    notes = Notes()
    result = run(replace(asked, trained=str(control)), tmp_path / "run", notes)
    assert all([*replies(row, "none")] == ["", SWAP, ANTONYM] for row in rows(tmp_path / "run"))
    assert {f"change_rate.none.{SWAP}", f"change_rate.none.{ANTONYM}"} <= result.metrics.keys()
    assert any(line.endswith(f"meets {SWAP}, {ANTONYM}") for line in notes.said)


def test_models_are_called_by_their_strategy_or_group() -> None:
    assert label_of([SWAP]) == SWAP
    assert label_of(GROUPS["should-change"][::-1]) == "should-change"
    assert label_of([SWAP, ANTONYM]) == f"{SWAP}+{ANTONYM}"


@pytest.mark.usefixtures("workers_here")
def test_rows_are_equal_for_no_workers_and_for_two(tmp_path: Path, asked: RobustnessConfig, trained: str) -> None:
    config = replace(asked, trained=trained)
    run(config, tmp_path / "here", Silent())
    run(replace(config, workers=2), tmp_path / "there", Silent())
    assert rows(tmp_path / "there") == rows(tmp_path / "here")


def test_a_model_of_ones_own_is_asked_by_its_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    config = evaluation(f"{tmp_path / 'mine.py'}:Parrot", corpus="helpdesk")
    result = run(config, tmp_path / "run", Silent())
    for row in rows(tmp_path / "run"):
        assert row["context"].endswith(replies(row)[""]["reply"])
        assert made(row)[SWAP]["text"].endswith(replies(row)[SWAP]["reply"])
        assert replies(row)[SWAP]["context_similarity"] is None, "it shows no embeddings"
    assert result.metrics[f"bleu.base.{SWAP}"].n == 10
    assert not any(name.startswith("context_similarity") for name in result.metrics)


def test_a_hugging_face_model_is_asked_by_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers", reason="the extra hugging-face is not installed")
    from tests.policies.small_hugging_face import gpt2

    victim = gpt2()
    for each in (victim.model, victim.tokenizer):
        each.save_pretrained(tmp_path / "gpt2")
    monkeypatch.chdir(tmp_path)
    config = evaluation("hf:gpt2", corpus="helpdesk")
    run(config, tmp_path / "run", Silent())
    responder = load_responder(f"hf:{tmp_path / 'gpt2'}")
    for row in rows(tmp_path / "run"):
        assert replies(row)[""]["reply"] == format_turns(tuple(responder.respond([parse_turns(row["context"])])))
    assert "train adversarial" not in " ".join(EVALUATE_ROBUSTNESS.next_commands(config, tmp_path / "run"))
    with pytest.raises(ConfigError, match="not Parley's"):
        run(replace(config, beside="runs/x"), tmp_path / "other", Silent())


def test_a_bi_encoder_answers_with_the_best_of_all_replies_and_random_words_are_a_control(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="the extra hugging-face is not installed")
    from parley.policies.ranking.rankers import load_ranker
    from tests.policies.ranking.folders import bi_encoder

    path, folder = tmp_path / "faq.csv", bi_encoder(tmp_path / "bot")
    words = ("it", "is", "on", "off", "now", "not", "a", "screen", "black")
    texts = [" ".join(words[(n * k) % 9] for k in range(1, 6)) for n in range(1, 9)]
    lines = "".join(f"{text} {n},{text} off\n" for n, text in enumerate(texts * 3))
    path.write_text(f"question,answer\n{lines}", encoding="utf-8")
    control = f"{SWAP}:random-words"
    config = evaluation(f"hf:{folder}", corpus=str(path), split="train", strategies=f"{SWAP},{control}")
    result = run(config, tmp_path / "run", Silent())
    ranker = load_ranker(f"hf:{folder}")
    replies_of = [tuple(f"{text} off".split()) for text in texts]
    right = {"": 0, SWAP: 0, control: 0}
    for row in rows(tmp_path / "run"):
        assert made(row)[SWAP]["changed"] == made(row)[control]["changed"]
        for name in right:
            context = row["context"] if not name else made(row)[name]["text"]
            best = max(replies_of, key=lambda words: ranker.score((tuple(context.split()),), [words])[0])
            assert replies(row)[name]["reply"] == " ".join(best)
            right[name] += replies(row)[name]["reply"] == row["truth"]
    for name, num in right.items():
        assert result.metrics[f"right_replies.base.{name or 'clean'}"].value == pytest.approx(num / 10)
    change = result.metrics[f"right_replies_change.base.{SWAP}"]
    assert change.value == pytest.approx((right[SWAP] - right[""]) / 10)
    (table,) = EVALUATE_ROBUSTNESS.tables(RunFolder.load(tmp_path / "run")).values()
    assert [row[0] for row in table.rows] == [SWAP, control]
    assert table.columns[1:3] == ("right", "right, change")
    assert load_responder(f"hf:{folder}").respond([]) == []
    with pytest.raises(ConfigError, match="has no replies to answer with"):
        load_responder(f"hf:{folder}").respond([((("it",),),)])
    with pytest.raises(ConfigError, match="which corpus it was fitted to"):
        run(replace(config, corpus=""), tmp_path / "other", Silent())


def test_a_classifier_answers_with_its_likeliest_label(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="the extra hugging-face is not installed")
    from tests.policies.ranking.folders import bert, cross_encoder, tokenizer

    folder = cross_encoder(tmp_path, labels=2)
    (answer,) = load_responder(f"hf:{folder}").respond([((("is", "it"), ("on",)), (("now",),))])
    logits = bert(2)(**tokenizer()("is it on\nnow", return_tensors="pt")).logits[0]
    assert answer == ((("label_0", "label_1")[int(logits.argmax())],),)


def write_tables(root: Path) -> Path:
    """Tables of activities by which the help desk can be scored."""
    folder = root / FOLDER
    folder.mkdir(parents=True)
    for name, text in {
        PRESENT: "be is are\nhave has\ncan\n",
        PAST: "was were\nhad\ncould\n",
        COMMANDS: "reboot\n",
        CONFLICTS: "reboot\n",
        ENTITIES: "printer\tprinter\n",
    }.items():
        (folder / name).write_text(text)
    return root


def test_activities_are_scored_where_there_are_tables_for_the_subject(
    tmp_path: Path, asked: RobustnessConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "SUPPORT", ("helpdesk",))
    config = replace(asked, data_root=write_tables(tmp_path / "data"), limit=40)
    result = run(config, tmp_path / "run", Silent())
    scored = [row for row in rows(tmp_path / "run") if replies(row)[""]["activity_f1"] is not None]
    assert 0 < len(scored) < 40, "truths without an activity do not count"
    assert result.metrics["activity_f1.base.clean"].n == result.metrics["activity_f1.truth"].n == len(scored)
    assert result.metrics["activity_f1.truth"].value == 1.0
    assert {"activity_f1.constant-use", f"entity_f1.base.{SWAP}"} < set(result.metrics)
    run_folder = RunFolder.load(tmp_path / "run")
    assert [*EVALUATE_ROBUSTNESS.tables(run_folder)] == ["Activity and entity F1", "Change and similarity"]
    assert (run_folder.summary() or {})["unscored"] == ""


@pytest.mark.parametrize(("subjects", "why"), [(("helpdesk",), FOLDER), ((), "about something else")])
def test_without_tables_the_summary_says_why_nothing_is_scored(
    tmp_path: Path, asked: RobustnessConfig, monkeypatch: pytest.MonkeyPatch, subjects: tuple[str, ...], why: str
) -> None:
    monkeypatch.setattr(job, "SUPPORT", subjects)
    notes = Notes()
    run(replace(asked, data_root=tmp_path), tmp_path / "run", notes)
    assert all(entry["activity_f1"] is None for row in rows(tmp_path / "run") for entry in row["replies"])
    unscored = (RunFolder.load(tmp_path / "run").summary() or {})["unscored"]
    assert why in unscored
    assert any(unscored in line for line in notes.said)
    table = (tmp_path / "run" / "table.md").read_text()
    assert unscored in table
    assert "| random-swap |" in table


def test_a_corpus_of_single_exchanges_is_said_to_be_one(tmp_path: Path, asked: RobustnessConfig) -> None:
    notes = Notes()
    run(replace(asked, corpus=str(write_corpus(tmp_path))), tmp_path / "run", notes)
    assert len(rows(tmp_path / "run")) > 0
    assert any("one turn of context; 2 could be read" in line for line in notes.said)


def test_a_reporter_hears_how_often_replies_change(tmp_path: Path, asked: RobustnessConfig) -> None:
    notes = Listening()
    result = run(asked, tmp_path / "run", notes)
    assert notes.stages[0] == ("asking models", 10, "examples")
    assert notes.steps == [0, 4, 8, 10]
    rate = f"{100 * result.metrics[f'change_rate.base.{SWAP}'].value:.0f} %"
    assert any(line.startswith(f"other replies: {SWAP} {rate}, {ANTONYM} ") for line in notes.said)


def test_presets_and_what_comes_next() -> None:
    presets = {name: preset() for name, preset in EVALUATE_ROBUSTNESS.presets.items()}
    assert presets["niu2018"] == RobustnessConfig()
    assert (presets["quick"].limit, presets["demo"].perturb.lexicon) == (200, "built-in")
    told = EVALUATE_ROBUSTNESS.next_commands(RobustnessConfig(model="runs/m"), Path("runs/r"))
    assert told == ("parley report runs/r", "parley train adversarial --model runs/m")


def test_directions_are_those_of_strategies_whose_names_hold_dots() -> None:
    expected = {"typo-0.2": "should-not-change", "2": "should-change"}
    assert describe_for("change_rate.base.typo-0.2", expected).direction == "lower: better"
    assert describe_for("change_rate.base.2", expected).direction == "higher: better"
