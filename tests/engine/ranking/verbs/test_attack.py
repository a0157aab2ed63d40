"""Attacks on rankers: rows that depend on the configuration alone, what is refused, breaking off and going on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.job import Silent
from parley.engine.perturb.replies.catalogue import build_rules
from parley.engine.perturb.replies.settings import ReplySettings
from parley.engine.ranking.attacks.attack import FixedRule, RankAttack
from parley.engine.ranking.attacks.cases import AttackOutcome, transferred
from parley.engine.ranking.attacks.catalogue import compose_attack
from parley.engine.ranking.metrics.searched import APPENDING, REACHED_REASON, SearchedRows, search_metrics
from parley.engine.ranking.verbs.attack import ATTACK_RANKING, PreparedAttack
from parley.engine.ranking.verbs.config import RankingAttackConfig, group_seed, rule_resources
from parley.envs.core.errors import ConfigError, DataError
from parley.envs.ranking.compiled import load_candidates
from parley.envs.ranking.edit_game import RankGoal
from parley.envs.ranking.groups import CandidateGroup, CandidateOptions
from parley.policies.ranking.rankers import load_ranker
from tests.engine.core.cli.test_next import understood
from tests.engine.core.verbs.made_up import Listening, Notes, interrupt, rows
from tests.engine.ranking.verbs.rankings import attacks, long_rows, own, save_matcher

run = ATTACK_RANKING.run


def prepared(config: RankingAttackConfig, path: Path, notes: Notes | None = None) -> PreparedAttack:
    return ATTACK_RANKING.prepare(config, path / "run", notes or Silent())


def encoder(folder: Path) -> Path:
    """A bi-encoder of random weights that knows some words of the help desk."""
    from tests.policies.ranking.folders import bi_encoder

    return bi_encoder(folder / "encoder")


def entry(row: dict[str, Any], model: str, method: str) -> dict[str, Any]:
    (found,) = (each for each in row["searches"] if (each["model"], each["method"]) == (model, method))
    return found


def test_rows_hold_what_each_method_and_rule_finds_on_each_ranker_and_what_others_make_of_it(tmp_path: Path) -> None:
    config = attacks("tfidf,bm25", method="greedy,beam")
    result = run(config, tmp_path / "run", Silent())
    corpus = load_candidates("helpdesk")
    resources, train = rule_resources(config, corpus), [group.context for group in corpus.splits["train"]]
    known = {word for group in corpus.splits["train"] for said in (*group.context, *group.candidates) for word in said}
    rankers = {name: load_ranker(name, train) for name in ("tfidf", "bm25")}
    (iiw,) = build_rules(["iiw"], resources)
    found = {row["item_key"]: row for row in rows(tmp_path / "run")}
    groups = [group for group in corpus.splits["test"] if group.key in found]
    seeds = [group_seed(1, group.key) for group in groups]
    assert [found[group.key]["seed"] for group in groups] == seeds
    for name, ranker in rankers.items():
        made = {
            method: compose_attack(ranker, resources.language, config.settings(method), vocabulary=known)
            for method in ("greedy", "beam", "random")
        }
        made["iiw"] = RankAttack(ranker, resources.language, method=FixedRule(iiw), budget=1)
        (other,) = set(rankers) - {name}
        for method, attack in made.items():
            outcomes = attack.run(groups, seeds)
            shown = transferred(outcomes, groups, RankGoal(), rankers[other])
            for group, outcome, reached in zip(groups, outcomes, shown, strict=True):
                told = entry(found[group.key], name, method)
                assert_told(told, group, outcome)
                assert told["transfers"] == [{"model": other, "reached": reached, "error": None}]
    statuses = {each["status"] for row in found.values() for each in row["searches"]}
    assert {"success", "skipped"} <= statuses
    assert result.metrics == search_metrics(SearchedRows([*found.values()]), 30), "rows decide everything"
    assert result.legend["success@10.tfidf.beam"].title == "success within 10 queries, tfidf, beam"


def assert_told(told: dict[str, Any], group: CandidateGroup, outcome: AttackOutcome) -> None:
    assert (told["status"], told["reason"]) == (outcome.status, outcome.reason)
    assert (told["place"], told["queries"], told["num_changed"]) == (outcome.index, outcome.queries, outcome.cost)
    assert told["text"] == (" ".join(outcome.words) if outcome.was_tried else None)
    assert tuple(told["edited"]) == outcome.edited
    assert tuple(told["moves"]) == outcome.moves
    assert told["score"] == outcome.score
    assert [tuple(point.values()) for point in told["trace"]] == [tuple(point) for point in outcome.trace]
    assert (told["rank_before"], told["rank_after"]) == (outcome.ranks() or (None, None))
    if told["status"] == "success":
        assert group.labels[told["place"]] is False
        assert told["rank_after"] == 1
        assert len(told["text"].split()) == len(told["edited"])


def test_random_edits_stand_beside_whoever_is_named(tmp_path: Path) -> None:
    assert attacks(method="beam, greedy,beam").method_names == ("beam", "greedy", "random")
    result = run(attacks(goal="demote", rules="none"), tmp_path / "run", Silent())
    (table,) = result.tables.values()
    assert [row[0] for row in table.rows] == ["tfidf, greedy", "tfidf, random"]
    assert table.columns == ("ranker, method", "10 queries", "30 queries", "n")
    for row in rows(tmp_path / "run"):
        for each in row["searches"]:
            assert each["status"] == "skipped" or row["labels"][each["place"]], "the right reply is demoted"
    headings = [*ATTACK_RANKING.tables(RunFolder.load(tmp_path / "run"))]
    assert headings == ["Success against queries", "What it took", "Contexts"], "one ranker shows nothing to others"


def test_a_white_box_method_leaves_out_rankers_without_slopes_and_counts_gradients(tmp_path: Path) -> None:
    model, notes = save_matcher(tmp_path / "smn"), Notes()
    result = run(attacks(f"{model},tfidf", method="gradient", limit=30), tmp_path / "run", notes)
    assert "gradient leaves out rankers that give no slopes: tfidf" in notes.said
    methods = {(each["model"], each["method"]) for row in rows(tmp_path / "run") for each in row["searches"]}
    assert methods == {("smn", "gradient"), ("smn", "random"), ("smn", "iiw"), ("tfidf", "random"), ("tfidf", "iiw")}
    assert result.metrics["slopes.smn.gradient"].value > 0
    (harden,) = (each for each in result.next_commands if each.startswith("parley train matcher"))
    assert f"--start {model} --against search --run {model}-search" in harden
    assert "slopes.smn.random" not in result.metrics


def test_gaslite_attacks_bi_encoders_with_its_controls_beside_it(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="the extra hugging-face is not installed")
    notes = Notes()
    config = attacks(f"hf:{encoder(tmp_path)},tfidf", method="gaslite", rules="none")
    assert config.method_names == (*APPENDING, "random")
    assert attacks("tfidf", method="random-words").method_names == ("random-words", "random")
    run(config, tmp_path / "run", notes)
    assert "gaslite leaves out rankers that give no words of a vocabulary: tfidf" in notes.said
    summary = RunFolder.load(tmp_path / "run").summary()
    assert "gaslite, random-steps, random-words put 10 words behind the reply" in str(summary)
    found = [each for row in rows(tmp_path / "run") for each in row["searches"]]
    methods = {(each["model"], each["method"]) for each in found}
    assert methods == {("encoder", name) for name in (*APPENDING, "random")} | {("tfidf", "random")}
    tried = [each for each in found if each["queries"] and each["method"] in APPENDING]
    for each in tried:
        assert each["num_changed"] in (0, 10), "as many words for all"
        assert each["edited"][-1] is bool(each["num_changed"])
        assert [shown["model"] for shown in each["transfers"]] == ["tfidf"]
        assert (each["num_slopes"] > 0) == (each["method"] == "gaslite")
    assert {each["method"] for each in tried} == set(APPENDING)


def test_rules_of_a_group_that_do_not_suit_the_goal_are_left_out(tmp_path: Path) -> None:
    notes = Notes()
    prepared(attacks(goal="demote"), tmp_path, notes)
    assert "rules that do not suit the goal are left out: iiw, sow, rlw-half, rlw-1, rnpv, ngr" in notes.said
    run(attacks(rules="copy-1", limit=4), tmp_path / "run", Silent())
    for row in rows(tmp_path / "run"):
        told = entry(row, "tfidf", "copy-1")
        assert told["status"] == "skipped" or told["text"] in row["context"], "a rule changes the reply that is attacked"


def test_limits_are_judged_by_the_training_split(tmp_path: Path) -> None:
    free = attacks("constant", method="beam", rules="none", moves="insertion", budget=60, limit=3)
    wanted: dict[str, dict[str, float]] = {"free": {}, "fluent": {"max_perplexity_ratio": 0.9}, "close": {"min_cosine": 0.98}}
    found = {}
    for name, limits in wanted.items():
        run(replace(free, attack=replace(free.attack, **limits)), tmp_path / name, Silent())
        found[name] = [entry(row, "constant", "beam")["queries"] for row in rows(tmp_path / name)]
    assert sum(found["fluent"]) < sum(found["free"])
    assert sum(found["close"]) < sum(found["free"])


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"method": "gready"}, ConfigError, "did you mean 'greedy'"),
        ({"method": " "}, ConfigError, "no method of attacks is named"),
        ({"moves": "insert"}, ConfigError, "moves is out of range"),
        ({"goal": "remove"}, ConfigError, "goal is out of range"),
        ({"budget": 0}, ConfigError, "budget is out of range"),
        ({"edits": 0}, ConfigError, "edits is out of range"),
        ({"method": "gradient"}, ConfigError, "no ranker gives slopes"),
        ({"method": "gaslite"}, ConfigError, "no ranker gives words of a vocabulary"),
        ({"method": "gaslite", "model": "gguf:nope.gguf"}, ConfigError, r"no ranker gives words(.|\n)*gguf:nope"),
        ({"method": "MINE:Plain"}, ConfigError, "no method of attacks"),
        ({"method": "MINE:Shuffled,MINE2:Shuffled"}, ConfigError, "bear one name"),
        ({"rules": "sow"}, ConfigError, "does not suit the goal"),
        ({"rules": "character-noise"}, ConfigError, "does not suit the goal"),
        ({"goal": "demote", "rules": "iiw,rsw"}, ConfigError, "does not suit the goal"),
        ({"rank": 10}, ConfigError, "at the top from the first"),
        ({"corpus": "RIGHT"}, DataError, "no context has a wrong reply that may be attacked"),
    ],
)
def test_what_is_wrong_is_told_before_there_is_a_run(
    tmp_path: Path, changes: dict[str, Any], error: type[Exception], said: str
) -> None:
    path = own(tmp_path)
    (tmp_path / "two").mkdir()
    other = own(tmp_path / "two")
    told = {
        name: value.replace("MINE2", other).replace("MINE", path) if isinstance(value, str) else value
        for name, value in changes.items()
        if name != "rank"
    }
    if told.get("corpus") == "RIGHT":
        rows_of = "".join(f"1\thow are you\t{word} day\n" for word in ("good", "bad", "nice"))
        (tmp_path / "all-right.tsv").write_text(rows_of)
        told |= {"corpus": str(tmp_path / "all-right.tsv"), "split": "train", "lexicon": "built-in"}
    details = replace(attacks().attack, rank=changes.get("rank", 1))
    with pytest.raises(error, match=said):
        run(attacks(**told, attack=details), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()


def errors_of(found: list[dict[str, Any]], model: str) -> set[str]:
    return {
        row["item_key"] for row in found for each in row["searches"] if each["model"] == model and each["status"] == "error"
    }


def test_a_ranker_that_fails_leaves_its_reason_and_the_run_goes_on(tmp_path: Path) -> None:
    path = own(tmp_path)
    result = run(attacks(f"tfidf,{path}:Sour,{path}:Shy", limit=20), tmp_path / "run", Silent())
    found = rows(tmp_path / "run")
    assert {row["status"] for row in found} == {"ok"}
    failed = [each for row in found for each in row["searches"] if each["status"] == "error"]
    reasons = {model: {each["reason"] for each in failed if each["model"] == model} for model in ("tfidf", "Sour", "Shy")}
    assert reasons["tfidf"] == set()
    assert any("too long" in reason for reason in reasons["Sour"])
    assert any("not finite" in reason for reason in reasons["Shy"])
    assert 0 < result.metrics["failed.Shy"].value < 20
    assert result.metrics["failed.tfidf"].value == 0
    shown = [each["transfers"] for row in found for each in row["searches"] if each["model"] == "tfidf"]
    lost = [each["error"] for transfers in shown for each in transfers if each["error"]]
    assert any("too long" in reason for reason in lost), "what others make of a reply may fail too"
    num = len(errors_of(found, "Sour"))
    assert f"Sour gave no scores for {num} of 20 contexts" in (tmp_path / "run" / "table.md").read_text()
    dead = run(attacks(f"{path}:Dead"), tmp_path / "dead", Silent())
    assert "every item failed, 10 of 10 with: the ranker raised an error" in dead.failure


def test_contexts_that_have_the_reply_there_already_are_counted_and_not_attacked(tmp_path: Path) -> None:
    result = run(attacks("constant,tfidf", limit=0), tmp_path / "run", Silent())
    skipped = [entry(row, "tfidf", "greedy")["reason"] == REACHED_REASON for row in rows(tmp_path / "run")]
    assert result.metrics["already.tfidf"].value == sum(skipped) > 0
    assert result.metrics["attacked.tfidf"].value == len(skipped) - sum(skipped)
    assert result.metrics["success@30.constant.greedy"].value == 0, "no edit tells a reply from another to it"


def test_what_is_not_read_is_counted_and_told(tmp_path: Path) -> None:
    corpus, smn, notes = long_rows(tmp_path / "test.tsv"), save_matcher(tmp_path / "smn"), Listening()
    config = attacks(smn, corpus=corpus, rules="none", known_words=False, lexicon="built-in", budget=5)
    result = run(config, tmp_path / "run", notes)
    found = {row["item_key"]: row for row in rows(tmp_path / "run")}
    assert [[each["turns_unread"] for each in found[key]["before"]] for key in sorted(found)] == [[2], [1], [0]]
    assert "smn is made for shorter texts: it did not read all of 2 contexts and 3 replies." in str(result.tables)
    assert "contexts not read whole: smn 2" in " ".join(notes.said)


def test_a_method_of_ones_own(tmp_path: Path) -> None:
    path = own(tmp_path)
    run(attacks("overlap", method=f"{path}:Shuffled", rules="none"), tmp_path / "run", Silent())
    for row in rows(tmp_path / "run"):
        told = entry(row, "overlap", "Shuffled")
        assert told["queries"] <= 1


@pytest.mark.usefixtures("workers_here")
def test_two_workers_of_which_one_is_killed_write_the_rows_of_none(tmp_path: Path) -> None:
    config = attacks(f"tfidf,hf:{encoder(tmp_path)}", method="beam,gaslite")
    whole = run(config, tmp_path / "whole", Silent())
    result = run(replace(config, workers=2), tmp_path / "run", Silent())
    assert rows(tmp_path / "run") == rows(tmp_path / "whole")
    assert result.metrics == whole.metrics


def test_an_interrupted_run_goes_on_where_it_was_and_shards_do_not_matter(tmp_path: Path) -> None:
    interrupt(ATTACK_RANKING, attacks(), tmp_path / "run", done=4)
    assert len(rows(tmp_path / "run")) == 4
    notes = Notes()
    run(attacks(), tmp_path / "run", notes)
    assert notes.steps[0] == 4, "what is saved is not attacked again"
    run(attacks(shard_size=10), tmp_path / "whole", Silent())
    assert rows(tmp_path / "run") == rows(tmp_path / "whole")


def test_trainings_and_evaluations_name_the_attack_as_the_next_command() -> None:
    from parley.engine.ranking.verbs.config import RankingConfig
    from parley.engine.ranking.verbs.matcher import TRAIN_MATCHER
    from parley.engine.ranking.verbs.ranking import EVALUATE_RANKING

    evaluated = RankingConfig(model="tfidf,runs/smn", corpus="ubuntu_dialogues", published="ubuntu")
    (asked,) = (each for each in EVALUATE_RANKING.next_commands(evaluated, Path("runs/ranking")) if "attack ranking" in each)
    assert understood(asked) == RankingAttackConfig(model="tfidf,runs/smn", corpus="ubuntu_dialogues", limit=300)
    # The default rankers of the one verb are not those of the other's default preset.
    asked = EVALUATE_RANKING.next_commands(RankingConfig(corpus="dailydialog_pp"), Path("runs/ranking"))[-1]
    assert understood(asked).model == "tfidf,bm25"
    # A run of own data names no paper, and each ranker once.
    asked = EVALUATE_RANKING.next_commands(RankingConfig(corpus="mine.csv", model="bm25,bm25"), Path("runs/ranking"))[-1]
    assert asked == "parley attack ranking --model bm25 --corpus mine.csv --limit 300"
    trained = TRAIN_MATCHER.next_commands(TRAIN_MATCHER.presets["smn"](), Path("runs/matcher"))
    assert "parley attack ranking --model runs/matcher" in trained


def test_what_follows_reads_words_and_candidates_as_the_run_did(tmp_path: Path) -> None:
    from parley.engine.ranking.verbs.matcher import TRAIN_MATCHER
    from parley.engine.ranking.verbs.minmax import MINMAX_RANKING, HardenRankingConfig

    model, few = save_matcher(tmp_path / "smn"), CandidateOptions(turns=3)
    known: dict[str, Any] = {"lexicon": "built-in", "candidates": few}
    trained = replace(TRAIN_MATCHER.presets["smn"](), replies=ReplySettings(num_important=2), **known)
    asked = TRAIN_MATCHER.next_commands(trained, tmp_path / "trained")
    asked += TRAIN_MATCHER.next_commands(replace(trained, start=model, against="iiw", corpus="ubuntu_dialogues"), tmp_path)
    assert all("--set replies.num_important=2" in each for each in asked)
    asked += MINMAX_RANKING.next_commands(HardenRankingConfig(model=model, **known), tmp_path)[1:]
    asked += ATTACK_RANKING.next_commands(RankingAttackConfig(model=model, **known), tmp_path)[1:]
    assert len(asked) == 8
    assert all("--lexicon built-in" in each and "--set candidates.turns=3" in each for each in asked)
