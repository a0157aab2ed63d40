"""A person edits candidate replies, with lines from a pipe, and sees what rankers make of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parley.engine.ranking.metrics.searched import expected_ranks
from parley.envs.ranking.compiled import load_candidates
from parley.policies.ranking.ranker import compared_outcomes
from parley.policies.ranking.rankers import load_ranker
from tests.engine.core.cli.conftest import Parley, Typed
from tests.engine.ranking.verbs.rankings import own, save_matcher

KEY = "test-0000196"
RIGHT, WRONG = 2, 3
"""Numbers of replies to the context of that key."""


def played(parley: Parley, typed: Typed, *lines: str, flags: str = "") -> list[dict[str, Any]]:
    """What a game prints on standard output, the first context before all that is typed."""
    typed(*lines)
    outcome = parley(f"play ranking --key {KEY} --json {flags}")
    assert outcome.status == 0
    return [json.loads(line) for line in outcome.out.splitlines()]


def said(record: dict[str, Any], reply: int) -> str:
    words: str = record["replies"][reply - 1]["words"]
    return words


def test_scores_ranks_and_importance_are_those_of_the_ranker_as_replies_stand(parley: Parley, typed: Typed) -> None:
    corpus = load_candidates("helpdesk")
    ranker = load_ranker("tfidf", [group.context for group in corpus.splits["train"]])
    records = played(parley, typed, f"{WRONG} Tell Dora, stop!", "turn 1 the printer tells dora to stop")
    assert [record["move"] for record in records] == ["context", "edit", "turn"]
    assert said(records[1], WRONG) == "tell dora , stop !"
    assert records[2]["context"] == ["the printer tells dora to stop"]
    (before,) = [group for group in corpus.splits["test"] if group.key == KEY]
    assert [each["right"] for each in records[0]["replies"]] == list(before.labels)
    assert [each["words"] for each in records[0]["replies"]] == [" ".join(words) for words in before.candidates]
    for record in records:
        context = tuple(tuple(turn.split()) for turn in record["context"])
        candidates = [tuple(each["words"].split()) for each in record["replies"]]
        scores = list(ranker.score(context, candidates))
        assert [each["scores"]["tfidf"] for each in record["replies"]] == pytest.approx(scores)
        assert [each["ranks"]["tfidf"] for each in record["replies"]] == expected_ranks(scores).tolist()
        reply = tuple(record["importance"]["words"])
        assert reply == candidates[record["importance"]["reply"] - 1]
        whole, *others = ranker.score(context, [reply, *(reply[:i] + reply[i + 1 :] for i in range(len(reply)))])
        assert record["importance"]["lost"]["tfidf"] == pytest.approx([whole - other for other in others])
    assert [record["importance"]["reply"] for record in records] == [RIGHT, WRONG, WRONG]
    assert [each["reply"] for each in records[2]["replies"] if each["edited"]] == [WRONG]


def test_what_a_ranker_does_not_read_is_told(parley: Parley, typed: Typed, tmp_path: Path) -> None:
    flags = f"--model {save_matcher(tmp_path / 'smn')},tfidf"
    first, changed = played(parley, typed, "turn 1 " + "oh " * 12, flags=flags)
    long = sum(len(each["words"].split()) > 11 for each in first["replies"])
    assert first["unread"] == {"smn": {"turns": 0, "replies": long}}
    assert changed["unread"] == {"smn": {"turns": 1, "replies": long}}
    typed("turn 1 " + "oh " * 12)
    told = parley(f"play ranking --key {KEY} {flags}").err
    assert f"smn does not read all of 1 turns and {long} replies, for they are too long" in told


def test_the_screen_says_what_moved(parley: Parley, typed: Typed) -> None:
    typed("7 please stop the printer", "7 please restart the printer", "quit", "attack 3")
    outcome = parley(f"play ranking --key {KEY}")
    lines = [" ".join(line.split()) for line in outcome.err.splitlines()]
    assert outcome.out == ""
    assert f"context {KEY}, the newest turn last" in lines
    assert "2 1 0.0905 right can you explain that to a beginner ?" in lines
    assert "reply 7 - [i am glad that] the [drive works .]" in lines
    assert "+ [please stop] the [printer]" in lines
    assert "3 1 -> 2 0.0801 wrong will fatima find me in the front office ?" not in lines, "what the edit does not pass stays"
    assert "+ please [restart] the printer" in lines, "beside the words before, not beside those of the corpus"
    assert any(line.startswith("restart 0") for line in lines)
    assert lines[-1] == "parley evaluate ranking --model tfidf"
    assert "attack" not in " ".join(lines).partition("quit leave")[2], "whoever quits has left"


def test_an_attack_lifts_a_wrong_reply_and_pushes_the_right_one_down(parley: Parley, typed: Typed) -> None:
    records = played(parley, typed, f"attack {WRONG}", "undo", f"attack {RIGHT}", flags="--edits 2 --budget 60")
    _, promoted, undone, demoted = records
    assert promoted["attack"] | {"closer_at": [], "queries": 0} == {
        "reply": WRONG,
        "goal": "promote",
        "status": "success",
        "reason": "",
        "queries": 0,
        "words_changed": 1,
        "moves": ["insertion"],
        "closer_at": [],
    }
    assert promoted["attack"]["closer_at"][-1] == promoted["attack"]["queries"] <= 60
    assert promoted["replies"][WRONG - 1]["ranks"]["tfidf"] == 1
    assert set(said(promoted, WRONG).split()) > set(said(records[0], WRONG).split())
    assert undone["replies"] == records[0]["replies"]
    assert (demoted["attack"]["goal"], demoted["attack"]["status"]) == ("demote", "failure")
    assert said(demoted, RIGHT) == said(records[0], RIGHT), "no draft came closer, so none stands"


def test_a_rule_edits_what_it_is_for_and_is_taken_back(parley: Parley, typed: Typed) -> None:
    records = played(parley, typed, "rule iiw", "rule ngr", "undo", "undo")
    first, iiw, ngr, *undone = records
    changed = {each["reply"] for each in iiw["replies"] if each["edited"]}
    assert changed == set(map(int, iiw["rule"]["words_changed"]))
    assert WRONG in changed
    assert RIGHT not in changed
    assert said(ngr, RIGHT) == "i am sorry can you repeat"
    assert [record["replies"] for record in undone] == [iiw["replies"], first["replies"]]


def test_a_rule_that_finds_nothing_says_so(parley: Parley, typed: Typed) -> None:
    typed("rule ngr", "rule ngr")
    assert "ngr finds nothing to change: these replies are untouched" in parley(f"play ranking --key {KEY}").err


def test_next_is_another_context_and_equal_seeds_are_equal_games(parley: Parley, typed: Typed) -> None:
    games = []
    for seed in (5, 5, 6):
        typed("next", "next", "words 4", "show")
        out = parley(f"play ranking --json --seed {seed}").out
        games.append([(record["key"], record["importance"]["reply"]) for record in map(json.loads, out.splitlines())])
    assert games[0] == games[1] != games[2]
    keys = [key for key, _ in games[0]]
    assert len(set(keys[:3])) == 3
    assert games[0][3:] == [(keys[2], 4)] * 2


def test_rankers_stand_side_by_side_and_a_network_tells_log_odds(parley: Parley, typed: Typed, tmp_path: Path) -> None:
    folder = save_matcher(tmp_path / "smn")
    (first, edited) = played(parley, typed, f"{WRONG} the drive works", flags=f"--model {folder},longest")
    assert set(first["replies"][0]["ranks"]) == {"smn", "longest"}
    reply = ("the", "drive", "works")
    context = tuple(tuple(turn.split()) for turn in edited["context"])
    asked = [(context, [reply, *(reply[:i] + reply[i + 1 :] for i in range(3))])]
    (scores,) = compared_outcomes(load_ranker(folder), asked)
    assert isinstance(scores, np.ndarray)
    assert edited["importance"]["lost"] == {"smn": pytest.approx(scores[0] - scores[1:], abs=1e-4), "longest": [1, 1, 1]}
    typed("quit")
    assert "words of reply 2: log-odds lost" in parley(f"play ranking --key {KEY} --model {folder}").err


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("11 hello", "type a number from 1 to 10"),
        ("0 hello", "type a number from 1 to 10"),
        ("3", "type words, such as: 3 i am sorry can you repeat"),
        ("turn 9 hello", "type a number from 1 to 1"),
        ("turn 1", "type words, such as: turn 1"),
        ("turn", "the number of a turn is missing"),
        ("attack", "type a number from 1 to 10"),
        ("attack three", "type a number from 1 to 10"),
        ("words x", "type a number from 1 to 10"),
        ("rule iww", "did you mean 'iiw'"),
        ("rule", "such as: rule iiw"),
        ("rule all", "one rule at a time"),
        ("undo", "nothing is changed"),
        ("atack 3", "did you mean 'attack'"),
        ("my printer is on fire", "help lists the moves"),
    ],
)
def test_a_mistake_is_told_and_the_game_goes_on(parley: Parley, typed: Typed, line: str, told: str) -> None:
    typed(line, "", "7 hello")
    outcome = parley(f"play ranking --key {KEY} --json")
    assert outcome.status == 0
    assert told in outcome.err
    first, edited = map(json.loads, outcome.out.splitlines())
    assert (first["move"], edited["move"]) == ("context", "edit")
    assert [each["reply"] for each in edited["replies"] if each["edited"]] == [7], "the mistake has changed nothing"


def test_a_ranker_of_ones_own_that_dies_on_an_edit_leaves_the_replies_as_they_were(
    parley: Parley, typed: Typed, tmp_path: Path
) -> None:
    typed("rule ngr", "4 HELLO")
    outcome = parley(f"play ranking --key {KEY} --json --model {own(tmp_path)}:Moody")
    assert (outcome.status, "RuntimeError: no apologies" in outcome.err) == (0, True)
    _, edited = map(json.loads, outcome.out.splitlines())
    assert [each["reply"] for each in edited["replies"] if each["edited"]] == [4]
    typed("quit")
    outcome = parley(f"play ranking --model {own(tmp_path)}:Dead")
    assert (outcome.status, "out of memory" in outcome.err) == (2, True)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ("--key test-000196", f"did you mean '{KEY}'"),
        ("--model nobody", "no ranker is called 'nobody'"),
        ("--model ,", "no ranker is named"),
        ("--corpus nothing", "no corpus of candidates or pairs is called"),
        ("--edits 0", "--edits is out of range"),
        ("--method best", "no method of attacks on rankers is called 'best'"),
    ],
)
def test_what_cannot_be_played_is_told_before_anything_is_shown(parley: Parley, typed: Typed, flags: str, told: str) -> None:
    typed("quit")
    outcome = parley(f"play ranking {flags}")
    assert (outcome.status, outcome.out) == (2, "")
    assert told in outcome.err


def test_a_single_file_of_candidates_is_played(parley: Parley, typed: Typed, tmp_path: Path) -> None:
    path = tmp_path / "test.tsv"
    path.write_text("1\tmy printer is jammed\topen the tray\n0\tmy printer is jammed\tthe weather was fine\n")
    typed("1 open my printer", "2 a nice day")
    outcome = parley(f"play ranking --model overlap --corpus {path} --lexicon built-in --json")
    ranks = [[each["ranks"]["overlap"] for each in json.loads(line)["replies"]] for line in outcome.out.splitlines()]
    assert (outcome.status, ranks) == (0, [[1.5, 1.5], [1, 2], [1, 2]])


def test_candidates_rules_and_attacks_take_the_settings_of_an_evaluation(parley: Parley, typed: Typed) -> None:
    (five,) = played(parley, typed, flags="--set candidates.size=5 --threads 1 --device cpu")
    assert len(five["replies"]) == 5
    typed("quit")
    told = parley(f"play ranking --key {KEY} --set candidates.size=5 --set attack.keep_tags=false").err
    assert "parley evaluate ranking --model tfidf --set candidates.size=5" in " ".join(told.split())
    assert "attack.keep_tags" not in told


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ("--set candidates.sise=5", "did you mean 'size'"),
        ("--set attack.min_cosine=2", "0 to 1"),
        ("--device cuda:99", "--device names a device that torch cannot use"),
        ("--threads 0", "--threads"),
    ],
)
def test_a_setting_that_is_not_there_or_not_allowed_is_told(parley: Parley, flags: str, told: str) -> None:
    outcome = parley(f"play ranking {flags}")
    assert outcome.status == 2
    assert told in outcome.err


def test_settings_are_listed(parley: Parley) -> None:
    told = parley("settings play ranking").err
    for key in ("candidates.negatives", "replies.rule", "attack.max_perplexity_ratio"):
        assert key in told


def test_rankers_may_be_named_one_flag_each(parley: Parley, typed: Typed) -> None:
    (first, *_) = played(parley, typed, "quit", flags="--model tfidf --model=bm25")
    assert {name for each in first["replies"] for name in each["scores"]} == {"tfidf", "bm25"}


def test_the_next_command_ranks_the_same_candidates(parley: Parley, typed: Typed, tmp_path: Path) -> None:
    settings = tmp_path / "mine.yaml"
    settings.write_text("candidates:\n  negatives: hard\nattack:\n  beams: 2\n")
    typed("quit")
    told = " ".join(parley(f"play ranking --split val --seed 3 --config {settings}").err.split())
    assert told.endswith("parley evaluate ranking --seed 3 --model tfidf --split val --set 'candidates.negatives=\"hard\"'")
