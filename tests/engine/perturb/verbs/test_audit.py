"""An audit as a job: rows that depend on the configuration alone, judges, sheets that come back, mistakes that are named."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.job import Silent
from parley.engine.perturb.lexicon.tagger import NGrams
from parley.engine.perturb.metrics.audit import CONTROL, KINDS
from parley.engine.perturb.verbs.audit import PERTURB_AUDIT, SHEET
from parley.engine.perturb.verbs.config import AuditConfig, RobustnessConfig
from parley.engine.perturb.verbs.robustness import EVALUATE_ROBUSTNESS
from parley.envs.core.errors import CheckpointError, ConfigError, DataError, OutOfRangeError, ParleyError, RunError
from parley.envs.corpora.pairs.compiled import load_pairs
from parley.envs.corpora.pairs.contexts import said
from parley.envs.corpora.pairs.turns import detokenise
from parley.envs.corpora.pairs.vocabulary import PairVocabulary
from parley.policies.seq2seq.model import LanguageModel
from parley.policies.seq2seq.scoring import WordScores, load_language_model, save_model
from parley.policies.seq2seq.settings import LanguageModelSizes
from tests.engine.core.verbs.made_up import Notes, rows
from tests.engine.perturb.verbs.robust import ANTONYM, BUILT_IN, SWAP
from tests.engine.triggers.verbs.searches import write_corpus

run = PERTURB_AUDIT.run
OWN = """
class Shout:
    name, expectation = "shout", "should-not-change"

    def perturb(self, contexts, seeds):
        return [tuple(tuple((*words, "!") if words else words for words in turn) for turn in turns) for turns in contexts]
"""


@pytest.fixture
def asked() -> AuditConfig:
    return AuditConfig(strategies=f"{SWAP},{ANTONYM}", limit=12, num_lines=5, perturb=BUILT_IN, shard_size=5)


def of(row: dict[str, Any], strategy: str) -> list[dict[str, Any]]:
    return [each for each in row["touched"] if each["strategy"] == strategy]


def test_a_row_is_a_context_with_every_utterance_that_was_touched(tmp_path: Path, asked: AuditConfig) -> None:
    result = run(asked, tmp_path / "run", Silent())
    found = rows(tmp_path / "run")
    assert len(found) == 12
    likelihood = NGrams(said(load_pairs("helpdesk", every_word=True), "train"))
    for row in found:
        utterances = [tuple(words.split()) for words in row["context"].replace(" <eot> ", " <eou> ").split(" <eou> ")]
        assert (row["num_utterances"], row["num_words"]) == (len(utterances), sum(map(len, utterances)))
        for each in row["touched"]:
            before, after = tuple(each["before"].split()), tuple(each["after"].split())
            assert utterances[each["place"]] == before != after
            scores = likelihood.log_probabilities([before, after])
            assert [each["nats_before"], each["nats_after"]] == pytest.approx([-score.sum() for score in scores])
        for each in of(row, ANTONYM):
            assert each["num_changed"] == each["num_replaced"] == 1
        for each in of(row, SWAP):
            assert sorted(each["before"].split()) == sorted(each["after"].split())
    assert result.metrics[f"contexts_touched.{SWAP}"].value == sum(bool(of(row, SWAP)) for row in found) / 12
    assert {name.partition(".")[0] for name in result.metrics} == {*KINDS} - {"kept", "wrong"}
    assert {*(PERTURB_AUDIT.metrics_of(asked) or ())} == {*result.metrics}
    assert [row[0] for row in next(iter(result.tables.values())).rows] == [SWAP, ANTONYM, CONTROL]


def test_trigrams_that_judge_are_those_of_the_corpus_also_where_strategies_lean_on_another(
    tmp_path: Path, asked: AuditConfig
) -> None:
    other = write_corpus(tmp_path)
    run(replace(asked, perturb=replace(BUILT_IN, corpus=str(other))), tmp_path / "run", Silent())
    likelihood = NGrams(said(load_pairs("helpdesk", every_word=True), "train"))
    (first, *_) = [each for row in rows(tmp_path / "run") for each in row["touched"]]
    (scores,) = likelihood.log_probabilities([tuple(first["after"].split())])
    assert first["nats_after"] == pytest.approx(-scores.sum())


def test_the_control_replaces_as_many_words_as_a_strategy_did_in_the_utterances_that_were_touched(
    tmp_path: Path, asked: AuditConfig
) -> None:
    run(asked, tmp_path / "run", Silent())
    for row in rows(tmp_path / "run"):
        by_place = {each["place"]: each for each in of(row, CONTROL)}
        others = [each for each in row["touched"] if each["strategy"] != CONTROL]
        assert {*by_place} == {each["place"] for each in others}
        for place, each in by_place.items():
            same_length = len(each["before"].split()) == len(each["after"].split())
            changed = sum(a != b for a, b in zip(each["before"].split(), each["after"].split(), strict=True))
            assert same_length
            assert changed in {other["num_changed"] for other in others if other["place"] == place}


def test_an_audit_reads_the_contexts_that_an_evaluation_of_its_seed_asks_about(
    tmp_path: Path, asked: AuditConfig, model: str
) -> None:
    run(replace(asked, model=model), tmp_path / "audit", Silent())
    evaluation = RobustnessConfig(model=model, strategies=asked.strategies, limit=12, perturb=BUILT_IN)
    EVALUATE_ROBUSTNESS.run(evaluation, tmp_path / "robust", Silent())
    for audited, answered in zip(rows(tmp_path / "audit"), rows(tmp_path / "robust"), strict=True):
        assert audited["context"] == answered["context"]
        for made in answered["perturbations"]:
            texts = [each["after"] for each in of(audited, made["strategy"])]
            assert bool(texts) == made["changed"]
            assert all(text in made["text"] for text in texts)


@pytest.mark.usefixtures("workers_here")
def test_rows_and_lines_are_equal_for_no_workers_and_for_two(tmp_path: Path, asked: AuditConfig) -> None:
    run(asked, tmp_path / "here", Silent())
    run(replace(asked, workers=2, shard_size=2), tmp_path / "there", Silent())
    assert rows(tmp_path / "there") == rows(tmp_path / "here")
    assert (tmp_path / "there" / SHEET).read_bytes() == (tmp_path / "here" / SHEET).read_bytes()


def test_a_strategy_of_ones_own_is_audited_by_its_file(tmp_path: Path, asked: AuditConfig) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    result = run(replace(asked, strategies=f"{tmp_path / 'mine.py'}:Shout"), tmp_path / "run", Silent())
    assert result.metrics["utterances_touched.shout"].value == 1.0
    assert result.metrics["words_changed.shout"].value == 1.0
    assert all(line["after"].endswith("[!]") for line in sheet_of(tmp_path / "run"))


def save_lm(folder: Path, vocabulary: PairVocabulary, turns: int = 1) -> str:
    language_model = LanguageModel(vocabulary, LanguageModelSizes(embed=4, hidden=6, max_length=8, turns=turns))
    language_model.initialise(torch.Generator().manual_seed(0))
    save_model(language_model, folder, {"test_nll": 1.0})
    return str(folder)


def test_a_language_model_may_judge_in_the_place_of_trigrams(
    tmp_path: Path, asked: AuditConfig, vocabulary: PairVocabulary
) -> None:
    config = replace(asked, lm=save_lm(tmp_path / "lm", vocabulary))
    result = run(config, tmp_path / "run", Silent())
    scores = WordScores(load_language_model(tmp_path / "lm").eval())
    for row in rows(tmp_path / "run"):
        for each in row["touched"]:
            (alone,) = scores.log_probabilities([tuple(each["after"].split())])
            assert each["nats_after"] == pytest.approx(-alone.sum(), rel=1e-5)
    assert config.lm in next(iter(result.tables.values())).note
    save_lm(tmp_path / "lm", PairVocabulary((*vocabulary.words, "another")))
    with pytest.raises(RunError, match="other weights"):
        run(config, tmp_path / "run", Silent())


def test_entailment_is_asked_in_both_directions(tmp_path: Path, asked: AuditConfig) -> None:
    pytest.importorskip("transformers", reason="the extra hugging-face is not installed")
    from parley.policies.hugging_face.judges import load_entailment
    from tests.policies.hugging_face.test_entailment import save

    save(tmp_path / "nli")
    result = run(replace(asked, entailment=f"hf:{tmp_path / 'nli'}"), tmp_path / "run", Silent())
    model, kept = load_entailment(tmp_path / "nli"), []
    for row in rows(tmp_path / "run"):
        for each in of(row, SWAP):
            before, after = ([detokenise(each[side].split())] for side in ("before", "after"))
            kept.append(model.follows(before, after) == model.follows(after, before) == [True])
            assert each["kept"] == kept[-1]
    assert result.metrics[f"kept.{SWAP}"].value == pytest.approx(sum(kept) / len(kept))
    assert "kept by entailment" in next(iter(result.tables.values())).columns


def sheet_of(path: Path) -> list[dict[str, str]]:
    with (path / SHEET).open(newline="") as file:
        return list(csv.DictReader(file))


def labelled(run_dir: Path, path: Path, labels: Sequence[str]) -> Path:
    """A copy of a run's sheet with labels in the first lines of each strategy."""
    found = sheet_of(run_dir)
    for strategy in {each["strategy"] for each in found}:
        for each, label in zip([each for each in found if each["strategy"] == strategy], labels, strict=False):
            each["label"] = label
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*found[0]])
        writer.writeheader()
        writer.writerows(found)
    return path


def test_labels_become_rates_that_the_run_keeps(tmp_path: Path, asked: AuditConfig) -> None:
    path, notes = tmp_path / "run", Notes()
    run(asked, path, Silent())
    before = rows(path)
    alice, bob = labelled(path, tmp_path / "alice.csv", ["wrong", "ok", "ok"]), tmp_path / "bob.csv"
    result = PERTURB_AUDIT.label(path, [alice], notes)
    assert result.metrics[f"wrong.{SWAP}"].value == pytest.approx(1 / 3)
    assert result.metrics[f"wrong.{SWAP}"].n == 3
    assert notes.said == ["alice: 6 of 10 lines are labelled"]
    assert "3 of 5 of random-swap, 3 of 5 of antonym. Labellers: alice 6." in [*result.tables.values()][-1].note
    labelled(path, bob, ["wrong", "wrong", "ok", "ok"])
    both = PERTURB_AUDIT.label(path, [bob], notes)
    assert both.metrics[f"wrong.{SWAP}"].value == pytest.approx(2 / 4)
    assert (both.metrics["agreement"].value, both.metrics["kappa"].n) == (pytest.approx(4 / 6), 6)
    assert both.metrics["agreement"].n == 3, "two strategies changed the utterances of each context"
    again = PERTURB_AUDIT.label(path, [labelled(path, alice, ["ok", "wrong", "ok"])], notes)
    assert again.metrics["agreement"].value == pytest.approx(4 / 6)
    assert notes.said[-1].endswith("which replace those of before")
    assert rows(path) == before
    # The same command again shows them, and a run whose tables are lost writes them anew.
    assert run(asked, path, Silent()).metrics == again.metrics
    (path / "table.md").unlink()
    assert run(asked, path, Silent()).metrics == again.metrics
    assert "Labellers: alice 6, bob 8." in (path / "table.md").read_text()


def test_a_sheet_that_was_labelled_in_the_run_is_not_written_over(tmp_path: Path, asked: AuditConfig) -> None:
    path = tmp_path / "run"
    run(asked, path, Silent())
    content = labelled(path, path / SHEET, ["ok"]).read_bytes()
    (path / "summary.json").unlink()
    run(asked, path, Silent())
    assert (path / SHEET).read_bytes() == content
    assert PERTURB_AUDIT.label(path, [path / SHEET], Silent()).metrics[f"wrong.{SWAP}"].n == 1


def test_a_mistake_in_the_sheet_of_the_run_keeps_no_other_sheet_out(tmp_path: Path, asked: AuditConfig) -> None:
    """Labels of the other sheet were kept, their rates were not measured, and the message was about a file nobody named."""
    path = tmp_path / "run"
    run(asked, path, Silent())
    mine = labelled(path, tmp_path / "mine.csv", ["ok"])
    content = labelled(path, path / SHEET, ["fine"]).read_bytes()
    assert PERTURB_AUDIT.label(path, [mine], Silent()).metrics[f"wrong.{SWAP}"].n == 1
    assert (path / SHEET).read_bytes() == content


def test_sheets_that_do_not_fit_change_nothing(tmp_path: Path, asked: AuditConfig) -> None:
    path, other = tmp_path / "run", tmp_path / "other"
    run(asked, path, Silent())
    run(replace(asked, seed=2), other, Silent())
    summary = (path / "summary.json").read_bytes()
    mine, foreign = labelled(path, tmp_path / "mine.csv", ["ok"]), labelled(other, tmp_path / "foreign.csv", ["ok"])
    (tmp_path / "more").mkdir()
    twin = labelled(path, tmp_path / "more" / "mine.csv", ["ok"])
    mistakes: list[tuple[list[Path], str]] = [
        ([mine, foreign], "a line of another run"),
        ([mine, path / SHEET], "the sheet has no label"),
        ([mine, twin], "two sheets bear the same name"),
        ([tmp_path / "nothing.csv"], "cannot be read"),
    ]
    for sheets, message in mistakes:
        with pytest.raises(DataError, match=message):
            PERTURB_AUDIT.label(path, sheets, Silent())
    assert (path / "summary.json").read_bytes() == summary
    assert not (path / "labels").exists()


def test_only_finished_audits_are_labelled(tmp_path: Path, asked: AuditConfig, model: str) -> None:
    config = RobustnessConfig(model=model, strategies=SWAP, limit=2, perturb=BUILT_IN)
    EVALUATE_ROBUSTNESS.run(config, tmp_path / "robust", Silent())
    with pytest.raises(RunError, match="only audits"):
        PERTURB_AUDIT.label(tmp_path / "robust", [], Silent())
    RunFolder.open(tmp_path / "run", asked, job="perturb-audit", schema=PERTURB_AUDIT.schema).close()
    with pytest.raises(RunError, match=r"not come to its end(.|\n)*parley resume"):
        PERTURB_AUDIT.label(tmp_path / "run", [], Silent())


MISTAKES: dict[str, tuple[dict[str, Any], type[ParleyError], str]] = {
    "no such strategy": ({"strategies": "antonim"}, ConfigError, "did you mean 'antonym'"),
    "no such corpus": ({"corpus": "helpdisk"}, ConfigError, "did you mean 'helpdesk'"),
    "no model": ({"model": "nothing"}, CheckpointError, "--model needs a checkpoint"),
    "no language model": ({"lm": "nothing"}, CheckpointError, "--lm needs a checkpoint"),
    "no folder of entailment": ({"entailment": "hf:nothing"}, CheckpointError, "needs a config.json"),
    "not said to be of Hugging Face": ({"entailment": "folder"}, OutOfRangeError, "hf:FOLDER"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named_and_no_run_is_made(tmp_path: Path, asked: AuditConfig, mistake: str) -> None:
    changes, kind, message = MISTAKES[mistake]
    with pytest.raises(kind, match=message):
        run(replace(asked, **changes), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()


def test_a_language_model_of_several_turns_is_refused(tmp_path: Path, asked: AuditConfig, vocabulary: PairVocabulary) -> None:
    with pytest.raises(CheckpointError, match="reads several turns"):
        run(replace(asked, lm=save_lm(tmp_path / "lm", vocabulary, turns=2)), tmp_path / "run", Silent())


def test_no_strategy_takes_the_name_of_the_control(tmp_path: Path, asked: AuditConfig) -> None:
    (tmp_path / "mine.py").write_text(OWN.replace('"shout"', f'"{CONTROL}"'))
    with pytest.raises(ConfigError, match="the name of the control"):
        run(replace(asked, strategies=f"{tmp_path / 'mine.py'}:Shout"), tmp_path / "run", Silent())
