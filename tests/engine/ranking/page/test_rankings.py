"""Evaluations of rankers on the page: a verdict, tables, drawings, candidates with marks and ranks, hostile words."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from parley.engine.core.page.content import Piece, Report
from parley.engine.core.page.page import collect_run
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.ranking.metrics.ranking import RankedRows, ranking_metrics
from parley.engine.ranking.metrics.searched import expected_ranks, rank_movement
from parley.engine.ranking.page.chapter import NUM_SHOWN, RankedCandidate, RankingRun, Rankings, example_items, read_example
from parley.engine.ranking.verbs.config import RankingConfig
from parley.engine.ranking.verbs.prepared import ERRORS, RANKING
from parley.engine.ranking.verbs.ranking import EVALUATE_RANKING, NUM_CONTEXTS, RANKERS, RULES, SEVERAL, SIZE
from tests.engine.core.page.pages import HOSTILE, Outline, assert_harmless, words
from tests.engine.core.verbs.made_up import rows as rows_of
from tests.engine.negotiation.page.dialogues import page_of
from tests.engine.ranking.metrics.ranked_rows import attacked, context, scored

RIGHT, WRONG, TIED = [3.0, 2.0, 1.0], [1.0, 2.0, 3.0], [2.0, 2.0, 1.0]


def made(*rows: dict[str, Any], **changes: Any) -> RankingRun:
    found = rows or tuple(attacked(number, WRONG if number % 2 else RIGHT) for number in range(80))
    metrics = ranking_metrics(RankedRows(found))
    settings: dict[str, Any] = {"name": "desk", "metrics": metrics, "estimates": metrics}
    settings |= {"rankers": ["mine"], "controls": ["constant"]}
    return RankingRun(rows=found, **settings | changes)


def test_the_verdict_says_how_good_and_what_costs_most() -> None:
    verdict = Rankings().verdict([made()])
    assert verdict is not None
    assert verdict.sentence.replace("\N{NO-BREAK SPACE}", " ") == (
        "mine puts a right reply first in 100.0 % of the contexts; under iiw (the three weightiest words of the context "
        "replace words of wrong replies) in 50.0 % of those that it changes; it still puts first in 100.0 % what sow (words of "
        "right replies in a random order) leaves of the right reply; the best control, constant, is right in 33.3 %."
    )
    assert [*verdict.marks] == ["mine, clean", "mine, iiw", "mine, sow", "constant, clean"]
    harmless = Rankings().verdict([made(*(attacked(number, RIGHT) for number in range(80)))])
    assert harmless is not None
    assert "under iiw" not in harmless.sentence
    few = Rankings().verdict([made(*(attacked(number, WRONG) for number in range(8)))])
    assert few is not None
    assert "Few dialogues (4): do not lean on it." in few.sentence


def test_candidates_stand_by_their_ranks_with_changed_words_marked() -> None:
    found = read_example(made(attacked(0, WRONG)), 0, "iiw")
    assert found is not None
    assert found.context == ["it is broken", "what is"]
    assert found.candidates == [
        RankedCandidate([Piece("what a"), Piece("day", "before"), Piece("broken", "after")], False, True, ["3 → 1"]),
        RankedCandidate([Piece("hello"), Piece("there", "before"), Piece("broken", "after")], False, True, ["2"]),
        RankedCandidate([Piece("the blue screen")], True, False, ["1 → 3"]),
    ]
    assert (found.before, found.after, found.num_changed, found.fooled) == (1, 3, 2, True)
    tied = read_example(made(attacked(0, TIED)), 0, "iiw")
    assert tied is not None
    assert (tied.after, tied.fooled) == (1.5, True)
    left = read_example(made(attacked(0, WRONG)), 0, "sow")
    assert left is not None
    assert (left.before, left.after, left.fooled) == (1, 1, True), "what is left of the right reply should not be first"


def test_where_the_ranker_was_fooled_comes_first_and_untouched_contexts_not_at_all() -> None:
    rows = [attacked(number, WRONG if number == 7 else RIGHT, touched=number != 3) for number in range(NUM_SHOWN + 5)]
    items = example_items(made(*rows), "iiw")
    assert (items[0].key, items[0].tags) == ("test-0000007", ("fooled",))
    assert len(items) == NUM_SHOWN
    assert "test-0000003" not in [each.key for each in items]


def test_a_context_without_scores_or_right_replies_is_no_example() -> None:
    lost = attacked(0, WRONG)
    lost["ranked"][0] = scored("mine", "clean", None, "it died")
    assert read_example(made(lost, attacked(2, WRONG)), 0, "iiw") is None
    assert read_example(made(attacked(0, WRONG) | {"labels": [False] * 3}, attacked(2, WRONG)), 0, "iiw") is None


def test_ranks_before_and_after() -> None:
    assert expected_ranks(TIED).tolist() == [1.5, 1.5, 3.0]
    found = RankedRows([attacked(0, WRONG), attacked(2, RIGHT), attacked(4, WRONG, touched=False)])
    # Places 1 and 2 were changed: ranks 2 and 3 became 2 and 1, or stayed.
    assert rank_movement(found, "mine", "iiw").tolist() == [[0, 0, 0], [0, 2, 0], [1, 0, 1]]
    assert rank_movement(found, "mine", "sow").tolist() == (np.eye(3, dtype=int) * [3, 0, 0]).tolist()
    assert rank_movement(found, "constant", "sow")[1, 1] == 3


def test_a_page_of_an_evaluation() -> None:
    section = made(description="Eighty contexts.", not_scored=["Shy gave no scores for some contexts: a score is not finite."])
    text = page_of(Report(title="ranking", found={"ranking": [section]}))
    assert Outline(text).headings == [("h1", "ranking"), ("h2", "Rankers"), ("h2", "Items"), ("h2", "The run")]
    assert "desk: Shy gave no scores for some contexts: a score is not finite." in words(text)
    assert re.findall(r"<figcaption><strong>(.*?)</strong>", text) == [
        "Right replies in the first place",
        "First places by alpha",
        "First places by beta",
        "Ranks before and after iiw",
        "Ranks before and after sow",
    ]
    assert "<del>there</del> <mark>broken</mark>" in text


def test_the_importance_of_words_stands_below_the_candidates_and_figure_2_among_the_drawings() -> None:
    reading = {"model": "mine", "place": 0, "words": ["the", "blue", "screen"], "importance": [-0.1, 0.5, 0.25]}
    rows = [attacked(number, WRONG) | {"readings": [reading | {"kept": [0.5, 9.0, 9.0, 9.0, 9.0, 9.0]}]} for number in range(4)]
    found = read_example(made(*rows), 0, "iiw")
    assert found is not None
    assert found.importance == [("blue", 0.5, "0.50"), ("screen", 0.25, "0.25"), ("the", -0.1, "\N{MINUS SIGN}0.10")]
    metrics = ranking_metrics(RankedRows(rows))
    assert [metrics[f"kept@{k}.mine"].value for k in (1, 2)] == [0, 1], "one word alone is last"
    assert metrics["kept_relative@2.mine"].n == 2, "dialogues of two contexts"
    text = page_of(Report(title="ranking", found={"ranking": [made(*rows)]}))
    assert "First places with a few words alone" in text
    assert '<meter min="0" max="0.5" value="0.25">0.25</meter>' in text


def test_hostile_words_stay_text() -> None:
    evil = " ".join(HOSTILE.split())
    row = attacked(0, WRONG) | {"item_key": HOSTILE, "context": [f"{evil} \u202ex"], "candidates": [evil, "a", "b"]}
    row["attacks"][0]["changed"][0]["text"] = evil
    failed = context(1, [], [], status="error", error=HOSTILE)
    section = made(row, failed, name=HOSTILE, description=HOSTILE, not_scored=[HOSTILE])
    text = page_of(Report(title="ranking", found={"ranking": [section]}))
    outline = assert_harmless(text)
    assert "".join(outline.text).count("<script>alert(1)</script>") >= 6
    assert "\u202e" not in text


def test_a_run_becomes_a_section(tmp_path: Path) -> None:
    base = {"error": None, "seed": 1, "schema_version": 1}
    rows = [attacked(number, WRONG) | base for number in range(2)]
    read = RankedRows(rows)
    labels = {"mine": False, "constant": True}
    about = {
        RANKERS: {label: {"is_control": control, "kind": "", "against": [], "base": ""} for label, control in labels.items()},
        RULES: read.rules,
        SIZE: 3,
        SEVERAL: False,
        ERRORS: {},
        NUM_CONTEXTS: 2,
    }
    with RunFolder.open(tmp_path, RankingConfig(), job=EVALUATE_RANKING.name, schema=RANKING) as run:
        run.write_shard("00000", rows)
        (unmeasured,) = collect_run(tmp_path).found["ranking"]
        assert unmeasured.tables == {}
        assert "Rankers" in page_of(collect_run(tmp_path))
        run.write_summary(ranking_metrics(read), {"title": "ranking", "description": "Two contexts.", **about})
    data = collect_run(tmp_path)
    (found,) = data.found["ranking"]
    assert (found.rankers, found.controls, found.several) == (["mine"], ["constant"], False)
    assert [*found.metrics] == ["r@1.mine.clean", "r@1.constant.clean", "r@1.mine.iiw", "a@1.mine.sow"]
    assert next(iter(found.tables)) == "Right replies in the first place"
    assert [row["item_key"] for row in found.rows] == [row["item_key"] for row in rows_of(tmp_path)]
    assert "Rankers" in page_of(data)


def test_a_run_without_rows_has_no_section(tmp_path: Path) -> None:
    RunFolder.open(tmp_path, RankingConfig(), job=EVALUATE_RANKING.name, schema=RANKING).close()
    assert collect_run(tmp_path).found == {}
