"""Evaluation of rankers: rows that depend on the configuration alone, who is asked, what is said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.job import Silent
from parley.engine.perturb.catalogue import Resources
from parley.engine.perturb.replies.catalogue import build_rules
from parley.engine.perturb.replies.settings import ReplySettings
from parley.engine.perturb.replies.shapes import RuleResources
from parley.engine.perturb.strategy import PerturbSettings
from parley.engine.ranking.metrics.ranking import CONTEXT, RankedRows, ranking_metrics
from parley.engine.ranking.metrics.table import differences
from parley.engine.ranking.verbs.config import (
    MetricSettings,
    RankerSpec,
    RankingConfig,
    chosen_groups,
    opened,
    ranker_specs,
    rule_seed,
)
from parley.engine.ranking.verbs.prepared import ERRORS, RANKED_CANDIDATES
from parley.engine.ranking.verbs.ranking import EVALUATE_RANKING
from parley.envs.core.errors import CheckpointError, ConfigError, DataError
from parley.envs.ranking.compiled import load_candidates
from parley.envs.ranking.groups import CandidateOptions
from parley.policies.ranking.ranker import Unread, unread_of
from parley.policies.ranking.rankers import load_ranker
from tests.engine.core.verbs.made_up import Listening, Notes, rows
from tests.engine.perturb.verbs.robust import save_responder, words_of_the_desk
from tests.engine.ranking.verbs.rankings import asked, long_rows, own, save_matcher

run = EVALUATE_RANKING.run


def scores(row: dict[str, Any], model: str) -> dict[str, list[float]]:
    return {entry["rule"]: entry["scores"] for entry in row["ranked"] if entry["model"] == model}


def test_groups_of_any_split_have_the_size_that_is_asked_for_and_few_contexts_name_the_shares(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "faq.csv"
    path.write_text("question,answer\n" + "".join(f"question {n},answer {n}\n" for n in range(200)), encoding="utf-8")
    config = RankingConfig(model="tfidf", corpus=str(path), split="train", candidates=CandidateOptions(size=100))
    groups = chosen_groups(config, opened(config))
    assert {len(ranked.group.candidates) for ranked in groups.values()} == {100}
    assert len(groups) == 184
    assert not caplog.messages
    config = replace(config, split="test", candidates=CandidateOptions(size=2))
    assert len(chosen_groups(config, opened(config))) == 8
    assert "8 of 200 contexts are of the test split: shared out 90:5:5 to train, val and test by hash" in caplog.text
    assert f"{path}#shares=70:15:15 does otherwise" in caplog.text
    with pytest.raises(DataError, match="val split has too few replies"):
        opened(replace(config, candidates=CandidateOptions(size=100))).splits["val"]


def test_every_context_is_a_row_with_what_rules_and_rankers_made_of_it(tmp_path: Path) -> None:
    result = run(asked("tfidf,bm25"), tmp_path / "run", Silent())
    found = rows(tmp_path / "run")
    assert len(found) == len({row["seed"] for row in found}) == 10
    corpus = load_candidates("helpdesk")
    test = corpus.splits["test"]
    groups = {test.key(row): (test[row], test.dialogues[row]) for row in range(len(test))}
    train = [group.context for group in corpus.splits["train"]]
    resources = RuleResources(
        ReplySettings(), Resources(PerturbSettings(lexicon="built-in"), corpus="helpdesk"), contexts={"training": train}
    )
    rules = build_rules(["iiw", "sow", "ngr"], resources)
    rankers = {name: load_ranker(name, train) for name in ("tfidf", "bm25")}
    for row in found:
        group, dialogue = groups[row["item_key"]]
        assert row["dialogue"] == dialogue
        assert row["context"] == [" ".join(turn) for turn in group.context]
        assert row["candidates"] == [" ".join(words) for words in group.candidates]
        assert tuple(row["labels"]) == group.labels
        assert row["kinds"] == [kind.value for kind in group.kinds]
        views = {"clean": group}
        for rule, entry in zip(rules, row["attacks"], strict=True):
            (attacked,) = rule.apply([group], [rule_seed(1, rule.name, group.key)])
            views[rule.name] = attacked.group
            assert (entry["rule"], entry["keeps_labels"]) == (rule.name, rule.keeps_labels)
            assert [(each["place"], each["text"], each["num_changed"]) for each in entry["changed"]] == [
                (place, " ".join(attacked.group.candidates[place]), num) for place, num in enumerate(attacked.changed) if num
            ]
        for name, ranker in rankers.items():
            told = scores(row, name)
            assert [*told] == [*views]
            for rule_name, view in views.items():
                assert told[rule_name] == pytest.approx(list(ranker.score(view.context, view.candidates)))
    assert any(attack["changed"] for row in found for attack in row["attacks"] if attack["rule"] == "iiw")
    read = RankedRows(found)
    assert result.metrics == ranking_metrics(read) | differences(read, [("bm25", "tfidf")]), "rows decide everything"
    assert result.legend["r@1.tfidf.clean"].title == "R10@1, tfidf, clean"
    assert result.legend["a@1.bm25.sow"].title == "A10@1, bm25, sow"


def test_words_of_right_replies_are_erased_in_as_many_contexts_as_are_asked_for(tmp_path: Path) -> None:
    path = own(tmp_path)
    config = asked(f"overlap,{path}:Sour", num_erased=6, controls=True)
    result = run(config, tmp_path / "run", Silent())
    found = [row for row in rows(tmp_path / "run") if row["readings"]]
    assert len(found) == 6
    whole = [row for row in rows(tmp_path / "run") if row["status"] == "ok"]
    run(replace(config, shard_size=10), tmp_path / "one", Silent())
    assert rows(tmp_path / "one") == whole
    for row in found:
        place, said = row["labels"].index(True), set(" ".join(row["context"]).split())
        words = row["candidates"][place].split()
        (reading,) = (each for each in row["readings"] if each["model"] == "overlap")
        assert (reading["place"], reading["words"]) == (place, list(dict.fromkeys(words)))
        # Of words that the ranker counts each is worth as much; those that it does not count are worth nothing.
        known = [word for word in reading["words"] if word in said]
        assert all((value > 0) == (word in known) for word, value in zip(reading["words"], reading["importance"], strict=True))
        assert len(reading["kept"]) == 6
        assert {each["model"] for each in row["readings"]} <= {"overlap", "Sour"}, "controls are not asked"
    assert any(each["model"] == "Sour" for row in found for each in row["readings"])
    assert result.metrics["kept@1.overlap"].n > 0
    assert result.legend["kept@1.overlap"].title == "right first with 1 word kept, overlap"
    table = EVALUATE_RANKING.tables(RunFolder.load(tmp_path / "run"))["Only the most important words of right replies"]
    assert table.columns[1:7] == ("1 word", *(f"{k} words" for k in range(2, 7)))


def test_a_ranker_reads_a_context_once_for_all_rules(tmp_path: Path) -> None:
    from parley.engine.core.ray.worker import Shard

    path = own(tmp_path)
    config = asked(f"{path}:Plain", rules="all")
    prepared = EVALUATE_RANKING.prepare(config, tmp_path / "run", Silent())
    worker = prepared.task.worker()
    keys = tuple(sorted(prepared.items))
    worker.run(Shard("00000", keys, tuple(prepared.items[key] for key in keys)))
    seen = type(worker.rankers["Plain"]).score.__globals__["SEEN"]
    assert [context for context, _ in seen] == [prepared.items[key].group.context for key in keys]
    assert all(len(set(texts)) == len(texts) > 10 for _, texts in seen)


def test_rows_depend_neither_on_the_shard_nor_on_which_others_are_ranked(tmp_path: Path) -> None:
    run(asked(), tmp_path / "here", Silent())
    run(asked(shard_size=1), tmp_path / "one", Silent())
    assert rows(tmp_path / "one") == rows(tmp_path / "here")
    run(asked(limit=4), tmp_path / "few", Silent())
    few = rows(tmp_path / "few")
    assert len(few) == 4
    assert [row for row in rows(tmp_path / "here") if row["item_key"] in {each["item_key"] for each in few}] == few


def test_what_is_not_read_is_counted_and_told(tmp_path: Path) -> None:
    corpus, smn = long_rows(tmp_path / "test.tsv"), save_matcher(tmp_path / "smn")
    options, notes = CandidateOptions(turns=5), Listening()
    config = asked(f"overlap,{smn}", corpus=corpus, rules="none", controls=True, candidates=options, lexicon="built-in")
    result = run(config, tmp_path / "run", notes)
    found = {row["item_key"]: row for row in rows(tmp_path / "run")}
    assert [row["is_cut"] for _, row in sorted(found.items())] == [True, False, False]
    read = {
        (key, each["model"]): (each["turns_unread"], each["replies_unread"])
        for key, row in found.items()
        for each in row["ranked"]
    }
    keys = sorted(found)
    # Four turns are read, of eleven words.
    assert [read[key, "smn"] for key in keys] == [(1, 1), (1, 1), (0, 1)]
    assert [read[key, "response-only:smn"] for key in keys] == [(0, 1)] * 3
    assert {read[key, "overlap"] for key in keys} == {(0, 0)}
    told = str(result.tables)
    assert "1 of 3 contexts have more turns: the newest 5 are kept (candidates.turns)." in told
    assert "smn is made for shorter texts: it did not read all of 2 contexts and 3 replies." in told
    assert "contexts not read whole: smn 2" in " ".join(notes.said)
    assert told.count("made for shorter texts") == 1, "of controls nothing is said"
    twice = replace(config, model=f"{smn},{save_matcher(tmp_path / 'twin')}", controls=False)
    again = run(twice, tmp_path / "twice", notes)
    assert "smn, twin are made for shorter texts: they did not read all of 2 contexts and 3 replies." in str(again.tables)
    assert "contexts not read whole: smn and 1 more 2 each" in " ".join(notes.said)


def test_rankers_that_know_nothing_stand_beside(tmp_path: Path) -> None:
    config = asked("tfidf,longest", controls=True, rules="none")
    result = run(config, tmp_path / "run", Silent())
    rankers = ranker_specs(config.model_names, controls=True)
    labels = [each.label for each in rankers]
    assert labels == ["tfidf", "longest", "constant", "shortest", "overlap", "response-only:tfidf"]
    assert [each.is_control for each in rankers] == [False, False, True, True, True, True]
    assert result.metrics["r@1.constant.clean"].value == pytest.approx(0.1)
    assert result.metrics["mrr.constant.clean"].value == pytest.approx(0.29289682539682543)
    assert result.metrics["r@1_ties_right.constant.clean"].value == 1
    assert result.metrics["r@1_ties_wrong.constant.clean"].value == 0
    overview, clean = result.tables.values()
    assert [row[0] for row in overview.rows] == [row[0] for row in clean.rows] == labels
    assert clean.columns[1:8] == ("R2@1", "R10@1", "R10@2", "R10@5", "MAP", "MRR", "P@1")
    assert "Controls, to be beaten: constant, shortest, overlap, response-only:tfidf." in overview.note


def test_a_label_names_one_ranker(tmp_path: Path) -> None:
    names = "runs/smn,old/smn/checkpoint,hf:models/all-MiniLM-L6-v2.1,seq2seq:runs/dialogue,response-only:lm:runs/lm"
    config = RankingConfig(model=f"{names},mine.py:Ranker,constant", controls=False)
    assert [each.label for each in ranker_specs(config.model_names)] == [
        "smn",
        "smn-2",
        "all-MiniLM-L6-v2_1",
        "seq2seq:dialogue",
        "response-only:lm:lm",
        "Ranker",
        "constant",
    ]
    here = Path.cwd()
    assert [each.name for each in ranker_specs(config.model_names)] == [
        f"{here}/runs/smn",
        f"{here}/old/smn/checkpoint",
        f"hf:{here}/models/all-MiniLM-L6-v2.1",
        f"seq2seq:{here}/runs/dialogue",
        f"response-only:lm:{here}/runs/lm",
        "mine.py:Ranker",
        "constant",
    ]


def test_a_numbered_label_is_no_other_ranker_s() -> None:
    names = ["one/smn", "two/smn", "one/smn-2", "three/smn", "two/smn-2"]
    assert [each.label for each in ranker_specs(names)] == ["smn", "smn-2", "smn-2-2", "smn-3", "smn-2-3"]


def test_a_response_model_ranks(tmp_path: Path) -> None:
    model = save_responder(tmp_path / "model", words_of_the_desk())
    result = run(asked(f"seq2seq:{model}", limit=3, rules="ngr"), tmp_path / "run", Silent())
    ranker = load_ranker(f"seq2seq:{model}")
    for row in rows(tmp_path / "run"):
        context = tuple(tuple(turn.split()) for turn in row["context"])
        told = list(ranker.score(context, [tuple(text.split()) for text in row["candidates"]]))
        assert scores(row, "seq2seq:model")["clean"] == pytest.approx(told, rel=1e-4)
    assert result.metrics["failed.seq2seq:model"].value == 0
    # It reads two turns of nineteen words with the mark between them, and replies of five.
    assert unread_of(ranker, (("hi",), ("hello",) * 9, ("no",) * 9), [("yes",) * 5]) == Unread(turns=1)
    assert unread_of(ranker, (("hello",) * 10, ("no",) * 9), [("yes",) * 6]) == Unread(turns=1, replies=1)
    assert unread_of(ranker, (("no",) * 20,), []) == Unread(turns=1)


def test_trainings_against_rules_stand_beside_their_base(tmp_path: Path) -> None:
    base = save_matcher(tmp_path / "base" / "checkpoint")
    hard = save_matcher(
        tmp_path / "hard", seed=2, role="adversarial", against=["iiw", "sow", "rsw"], base=str(tmp_path / "base")
    )
    as_long = save_matcher(tmp_path / "as-long", seed=3, role="control", against=[], base=str(tmp_path / "base"))
    config = asked(f"{base},{hard},{as_long}", published="ubuntu")
    assert ranker_specs(config.model_names) == (
        RankerSpec("base", base, kind="smn"),
        RankerSpec("hard", hard, kind="smn", against=("iiw", "sow", "rsw"), base="base"),
        RankerSpec("as-long", as_long, kind="smn", base="base"),
    )
    result = run(config, tmp_path / "run", Silent())
    for row in rows(tmp_path / "run"):
        context = tuple(tuple(turn.split()) for turn in row["context"])
        told = load_ranker(hard).score(context, [tuple(text.split()) for text in row["candidates"]])
        assert scores(row, "hard")["clean"] == pytest.approx(list(told), rel=1e-4)
    found = EVALUATE_RANKING.tables(RunFolder.load(tmp_path / "run"))
    assert [row[0] for row in found["Training against rules that keep labels"].rows] == [
        "hard, iiw",
        "published",
        "as-long (control), iiw",
    ]
    assert [row[0] for row in found["Training against other rules"].rows] == [
        "hard, sow",
        "published",
        "as-long (control), sow",
    ]
    pairs = [("hard", "base"), ("hard", "as-long"), ("as-long", "base")]
    beside = found["Rankers beside one another"]
    assert [row[0] for row in beside.rows] == [f"{ranker} less {other}" for ranker, other in pairs]
    known = differences(RankedRows(rows(tmp_path / "run")), pairs)
    assert {name: result.metrics[name] for name in known} == known, "rows decide everything"
    (hard, *_) = found["Training against rules that keep labels"].rows
    assert hard[6] == beside.rows[0][2], "after less before is that difference"
    keeping = found["Rules that keep labels"]
    assert [row[0] for row in keeping.rows][:4] == ["base, clean", "published", "base, iiw", "published"]


def test_a_model_that_does_not_rank_is_told_before_there_is_a_run(tmp_path: Path) -> None:
    model = save_responder(tmp_path / "model", words_of_the_desk())
    with pytest.raises(CheckpointError, match="do not match contexts with replies"):
        run(asked(model), tmp_path / "run", Silent())
    (Path(model) / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match="damaged"):
        run(asked(model), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()


def test_a_rule_of_ones_own(tmp_path: Path) -> None:
    path = own(tmp_path)
    run(asked("longest", rules=f"{path}:Shouting"), tmp_path / "run", Silent())
    for row in rows(tmp_path / "run"):
        (attack,) = row["attacks"]
        assert [each["text"] for each in attack["changed"]] == ["HELLO"]
        (place,) = (each["place"] for each in attack["changed"])
        assert scores(row, "longest")["shouting"][place] == 1.0


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"model": " , "}, ConfigError, "no ranker is named"),
        ({"model": "tfidff"}, ConfigError, "tfidf"),
        ({"rules": "iww"}, ConfigError, "iiw"),
        ({"rules": "add-negation"}, ConfigError, "no longer right"),
        ({"rules": "MINE:Shouting,MINE:Shouting,iiw,MINE2:Shouting"}, ConfigError, "two rules bear one name"),
        ({"corpus": "dailydialog_pp"}, DataError, "dailydialog_pp"),
    ],
)
def test_what_is_wrong_is_told_before_there_is_a_run(
    tmp_path: Path, changes: dict[str, Any], error: type[Exception], said: str
) -> None:
    path = own(tmp_path)
    (tmp_path / "two").mkdir()
    told = {name: str(value).replace("MINE2", own(tmp_path / "two")).replace("MINE", path) for name, value in changes.items()}
    with pytest.raises(error, match=said):
        run(replace(asked(), **told), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()


def test_a_strategy_changes_the_question_and_its_control_as_many_words(tmp_path: Path) -> None:
    path = own(tmp_path)
    config = asked(f"{path}:Plain", rules="random-swap,iiw")
    result = run(config, tmp_path / "run", Silent())
    touched = 0
    for row in rows(tmp_path / "run"):
        attacks = {attack["rule"]: attack["changed"] for attack in row["attacks"]}
        assert list(attacks) == ["random-swap", "random-swap:random-words", "iiw"]
        swapped, control = attacks["random-swap"], attacks["random-swap:random-words"]
        assert len(swapped) == len(control) <= 1
        for change, other in zip(swapped, control, strict=True):
            touched += 1
            assert change["place"] == other["place"] == CONTEXT
            assert change["num_changed"] >= other["num_changed"] > 0
            turns, before = change["text"].split("\n"), row["context"]
            assert [sorted(turn.split()) for turn in turns] == [sorted(turn.split()) for turn in before]
            assert turns != before != other["text"].split("\n")
            # The ranker counts words that the last turn and a reply share, so a swap changes nothing, random words may.
            of = scores(row, "Plain")
            assert of["random-swap"] == of["clean"]
            last = other["text"].split("\n")[-1].split()
            counts = [float(sum(word in last for word in text.split())) for text in row["candidates"]]
            assert of["random-swap:random-words"] == counts
    assert touched
    metrics = result.metrics
    assert metrics["r@1_change.Plain.random-swap"].value == 0
    beyond, control = (metrics[f"r@1_{name}"] for name in ("beyond.Plain.random-swap", "change.Plain.random-swap:random-words"))
    assert beyond.value == pytest.approx(-control.value)
    overview, questions, *_ = EVALUATE_RANKING.tables(RunFolder.load(tmp_path / "run")).values()
    assert [*overview.columns] == ["ranker", "clean R10@1", "iiw R10@1", "n"]
    assert [row[0] for row in questions.rows] == ["Plain, random-swap"]
    changed = next(row for row in rows(tmp_path / "run") if row["attacks"][0]["changed"])
    (lines,) = {tuple(line["context"]) for line in RANKED_CANDIDATES.lines(changed) if line["rule"] == "random-swap"}
    assert "\n".join(lines) == changed["attacks"][0]["changed"][0]["text"]


def test_the_pool_holds_every_right_reply_of_the_corpus_and_all_right_ones_of_a_context(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "faq.csv"
    lines = [f"question {n},answer {n % 20}\n" for n in range(40)] + ["question 1,another\n"]
    path.write_text("question,answer\n" + "".join(lines), encoding="utf-8")
    config = RankingConfig(model="tfidf", corpus=str(path), split="train", pool=True)
    groups = [item.group for item in chosen_groups(config, opened(config)).values()]
    assert {frozenset(group.candidates) for group in groups} == {
        frozenset([("another",), *(("answer", str(n)) for n in range(20))])
    }
    for group in groups:
        rights = {words for words, label in zip(group.candidates, group.labels, strict=True) if label}
        number = int(group.context[0][1])
        assert rights == {("answer", str(number % 20))} | ({("another",)} if number == 1 else set())
    monkeypatch.setattr("parley.engine.ranking.verbs.config.MOST_SCORES", 100)
    with pytest.raises(DataError, match=r"more than 100 replies(.|\n)*--limit 4 contexts"):
        chosen_groups(config, opened(config))


def test_a_ranker_that_fails_leaves_its_reason_and_costs_nobody_a_row(tmp_path: Path) -> None:
    path = own(tmp_path)
    config = asked(f"tfidf,{path}:Moody,{path}:Shy")
    result = run(config, tmp_path / "run", Silent())
    found = rows(tmp_path / "run")
    assert [row["status"] for row in found] == ["ok"] * 10
    for row in found:
        errors = {(entry["model"], entry["rule"]): entry["error"] for entry in row["ranked"]}
        assert errors["tfidf", "ngr"] is None
        assert errors["Moody", "clean"] is errors["Moody", "iiw"] is None, "of the texts of all rules one was to blame"
        assert errors["Moody", "ngr"] == "the ranker raised an error: RuntimeError: no apologies"
        odd = len(row["context"][-1].split()) % 2
        assert all(bool(reason) == odd for (model, _), reason in errors.items() if model == "Shy")
    num_odd = sum(len(row["context"][-1].split()) % 2 for row in found)
    assert 0 < num_odd < 10
    assert result.metrics["failed.Moody"].value == 10
    assert result.metrics["failed.Shy"].value == num_odd
    assert result.metrics["failed.tfidf"].value == 0
    assert result.metrics["a@1.Moody.ngr"].n == 0
    summary = RunFolder.load(tmp_path / "run").summary() or {}
    assert summary[ERRORS]["Shy"].startswith("the ranker gives a score that is not finite: nan for candidate 1")
    overview, _ = result.tables.values()
    assert f"No scores under one rule at least: Moody for 10 of 10 contexts, Shy for {num_odd} of 10 contexts." in overview.note
    assert (
        "Moody gave no scores for 10 of 10 contexts: the ranker raised an error" in (tmp_path / "run" / "table.md").read_text()
    )


def test_where_no_ranker_has_scores_the_row_is_an_error(tmp_path: Path) -> None:
    path = own(tmp_path)
    result = run(asked(f"{path}:Dead", controls=True), tmp_path / "run", Silent())
    assert {(row["status"], row["error"]) for row in rows(tmp_path / "run")} == {
        ("error", "the ranker raised an error: RuntimeError: out of memory")
    }
    assert result.failure.startswith("every item failed, 10 of 10 with: the ranker raised an error")


def test_what_counts_is_a_setting(tmp_path: Path) -> None:
    config = asked(rules="rsw", limit=30)
    left = run(config, tmp_path / "left", Silent()).metrics
    kept = run(replace(config, metrics=MetricSettings(untouched="kept")), tmp_path / "kept", Silent()).metrics
    assert 0 < left["untouched.rsw"].value < 1
    assert left["r@1.tfidf.rsw"].n < kept["r@1.tfidf.rsw"].n


def test_contexts_without_right_replies_are_told_before_there_is_a_run(tmp_path: Path) -> None:
    lines = "".join(f"0\tcontext {number}\treply {place}\n" for number in range(40) for place in range(3))
    (tmp_path / "wrong.tsv").write_text(lines)
    with pytest.raises(
        DataError, match=r"no context of the test split has both right and wrong replies(.|\n)*got: +2 contexts"
    ):
        run(asked(corpus=str(tmp_path / "wrong.tsv"), lexicon="built-in"), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()


def test_the_built_in_lexicon_answers_for_the_built_in_corpus_alone(tmp_path: Path) -> None:
    notes = Notes()
    run(asked(), tmp_path / "run", notes)
    assert any("built-in lexicon" in line for line in notes.said)
    assert (RankingConfig().lexicon_name, RankingConfig(corpus="ubuntu_dialogues").lexicon_name) == ("built-in", "nltk")
    assert RankingConfig(lexicon="nltk").lexicon_name == "nltk"


def test_where_nltk_has_no_data_the_flag_that_needs_none_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NLTK_DATA", str(tmp_path / "nothing"))
    monkeypatch.setattr("nltk.data.path", [])
    with pytest.raises(DataError, match="NLTK's data lack") as caught:
        run(asked(rules="iiw", lexicon="nltk"), tmp_path / "run", Silent())
    assert "--lexicon built-in for the small lexicon" in str(caught.value.fix)
    assert run(asked(rules="none", lexicon="nltk"), tmp_path / "plain", Silent()).metrics, "nothing is tagged without rules"
    monkeypatch.setenv("PARLEY_DATA", str(tmp_path))
    with pytest.raises(DataError, match="grammar errors need sentences") as caught:
        run(asked(rules="misspellings", lexicon="nltk"), tmp_path / "run", Silent())
    assert str(caught.value.fix).endswith("codespell_dictionary.txt; --lexicon built-in needs none")
