"""Evaluations of rankers on the page: a verdict, tables, drawings, candidates with marks and ranks, hostile words."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from parley.engine.core.page.content import Item, Report, Run, Verdict
from parley.engine.core.page.page import collect_run, headed_tables
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.ranking.metrics.ranking import RankedRows, ranking_metrics
from parley.engine.ranking.metrics.searched import expected_ranks, rank_movement
from parley.engine.ranking.page import NUM_SHOWN, AttackedContext, Rankings, draw_movement, example, item_of
from parley.engine.ranking.verbs.config import RankingConfig
from parley.engine.ranking.verbs.prepared import ERRORS, RANKING
from parley.engine.ranking.verbs.ranking import EVALUATE_RANKING, NUM_CONTEXTS, RANKERS, RULES, SEVERAL, SIZE
from tests.engine.core.page.pages import HOSTILE, Outline, assert_brief, assert_harmless, page_of, run_of, words
from tests.engine.core.verbs.made_up import rows as rows_of
from tests.engine.ranking.metrics.ranked_rows import attacked, context, scored

RIGHT, WRONG, TIED = [3.0, 2.0, 1.0], [1.0, 2.0, 3.0], [2.0, 2.0, 1.0]


def made(*rows: dict[str, Any], **changes: Any) -> Run:
    found = rows or tuple(attacked(number, WRONG if number % 2 else RIGHT) for number in range(80))
    read = RankedRows(found)
    rankers = {"mine": {"is_control": False}, "constant": {"is_control": True}}
    settings: dict[str, Any] = {RANKERS: rankers, RULES: read.rules, SIZE: 3, SEVERAL: False, ERRORS: {}, NUM_CONTEXTS: 2}
    run = run_of("evaluate-ranking", found, ranking_metrics(read), **settings | {"heading": "desk"} | changes)
    run.__dict__["tables"] = {}
    return run


def verdict_of(run: Run) -> Verdict:
    verdict = Rankings().verdict([run])
    assert verdict is not None
    assert_brief(verdict)
    return verdict


def shown(item: Item | None) -> str:
    assert item is not None
    return str(item.body)


def candidates(item: Item | None) -> list[tuple[str, ...]]:
    """The candidates: heading, words with marks, ranks."""
    lines = re.findall(r"<tr><th scope=\"row\">(.*?)</th>(.*?)</tr>", shown(item))
    return [(heading, *re.findall(r"<td[^>]*>(.*?)</td>", cells)) for heading, cells in lines]


def test_the_verdict_says_how_good_and_what_costs_most() -> None:
    verdict = verdict_of(made())
    assert verdict.sentence.replace("\N{NO-BREAK SPACE}", " ") == (
        "mine puts a right reply first in 100.0 % of the contexts; under iiw in 50.0 % of those that it changes."
    )
    assert [detail.replace("\N{NO-BREAK SPACE}", " ") for detail in verdict.details] == [
        "iiw: the three weightiest words of the context replace words of wrong replies.",
        "It still puts first in 100.0 % what sow leaves of the right reply.",
        "sow: words of right replies in a random order.",
        "The best control, constant, is right in 33.3 %.",
    ]
    assert [*verdict.marks] == ["mine, clean", "mine, iiw", "mine, sow", "constant, clean"]
    assert "under iiw" not in verdict_of(made(*(attacked(number, RIGHT) for number in range(80)))).sentence
    few = verdict_of(made(*(attacked(number, WRONG) for number in range(8))))
    assert "Few dialogues (4): do not lean on it." in few.cautions


def test_candidates_stand_by_their_ranks_with_changed_words_marked() -> None:
    item = example(made(attacked(0, WRONG)), 0, "iiw")
    assert '<p class="words" dir="auto">it is broken</p><p class="words" dir="auto">what is 0</p>' in shown(item)
    assert candidates(item) == [
        ("wrong, changed", "what a <del>day</del> <mark>broken</mark>", "3 \N{RIGHTWARDS ARROW} 1"),
        ("wrong, changed", "hello <del>there</del> <mark>broken</mark>", "2"),
        ("right", "the blue screen", "1 \N{RIGHTWARDS ARROW} 3"),
    ]
    assert item is not None
    assert (item.values, item.tags) == ({"rank before": 1, "rank after": 3, "words changed": 2}, ("fooled",))
    tied = example(made(attacked(0, TIED)), 0, "iiw")
    assert tied is not None
    assert (tied.values["rank after"], tied.tags) == (1.5, ("fooled",))
    left = example(made(attacked(0, WRONG)), 0, "sow")
    assert left is not None
    assert (left.values["rank before"], left.values["rank after"]) == (1, 1)
    assert left.tags == ("fooled",), "what is left of the right reply should not be first"


def test_where_the_ranker_was_fooled_comes_first_and_untouched_contexts_not_at_all() -> None:
    rows = [attacked(number, WRONG if number == 7 else RIGHT, touched=number != 3) for number in range(NUM_SHOWN + 5)]
    items = dict(Rankings().items(made(*rows)))["iiw"]
    assert isinstance(items, list)
    assert (items[0].key, items[0].tags) == ("test-0000007", ("fooled",))
    assert len(items) == NUM_SHOWN
    assert "test-0000003" not in [each.key for each in items]


def test_a_context_without_scores_or_right_replies_is_no_example() -> None:
    lost = attacked(0, WRONG)
    lost["ranked"][0] = scored("mine", "clean", None, "it died")
    assert example(made(lost, attacked(2, WRONG)), 0, "iiw") is None
    assert example(made(attacked(0, WRONG) | {"labels": [False] * 3}, attacked(2, WRONG)), 0, "iiw") is None


def test_ranks_before_and_after() -> None:
    assert expected_ranks(TIED).tolist() == [1.5, 1.5, 3.0]
    found = RankedRows([attacked(0, WRONG), attacked(2, RIGHT), attacked(4, WRONG, touched=False)])
    # Places 1 and 2 were changed: ranks 2 and 3 became 2 and 1, or stayed.
    assert rank_movement(found, "mine", "iiw").tolist() == [[0, 0, 0], [0, 2, 0], [1, 0, 1]]
    assert rank_movement(found, "mine", "sow").tolist() == (np.eye(3, dtype=int) * [3, 0, 0]).tolist()
    assert rank_movement(found, "constant", "sow")[1, 1] == 3


def test_a_rule_that_changes_no_context_moves_no_rank_and_has_a_page() -> None:
    run = made(attacked(0, WRONG, touched=False), attacked(2, RIGHT, touched=False))
    assert not rank_movement(run.read(RankedRows), "mine", "iiw").any()
    moved = {figure.name: figure for figure in Rankings().figures(run)}["Ranks before and after iiw"]
    assert (moved.draw, moved.caption) == (None, "mine: 0 changed replies; areas are shares of a rank before")


def test_a_page_of_an_evaluation() -> None:
    section = made(description="Eighty contexts.", **{ERRORS: {"Shy": "a score is not finite"}})
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
    text = words(shown(example(made(*rows), 0, "iiw")))
    assert text.endswith("a share of the score. blue 0.50 0.50 screen 0.25 0.25 the \N{MINUS SIGN}0.10 \N{MINUS SIGN}0.10")
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
    section = made(row, failed, heading=HOSTILE, description=HOSTILE, **{ERRORS: {HOSTILE: HOSTILE}})
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
        assert headed_tables(Rankings(), [unmeasured]) == []
        assert "Rankers" in page_of(collect_run(tmp_path))
        run.write_summary(ranking_metrics(read), {"title": "ranking", "description": "Two contexts.", **about})
    data = collect_run(tmp_path)
    (found,) = data.found["ranking"]
    assert [*Rankings().shown(found)] == ["r@1.mine.clean", "r@1.constant.clean", "r@1.mine.iiw", "a@1.mine.sow"]
    assert next(iter(found.tables)) == "Right replies in the first place"
    assert [row["item_key"] for row in found.rows] == [row["item_key"] for row in rows_of(tmp_path)]
    assert "Rankers" in page_of(data)


def test_a_run_without_rows_has_no_section(tmp_path: Path) -> None:
    RunFolder.open(tmp_path, RankingConfig(), job=EVALUATE_RANKING.name, schema=RANKING).close()
    assert collect_run(tmp_path).found == {}


def test_of_a_pool_the_viewer_shows_the_first_ranks_and_those_that_it_is_about() -> None:
    num, right = 600, 40
    labels = [index == right for index in range(num)]
    row = {"item_key": "test-1", "context": ["a question"], "candidates": [f"reply {index}" for index in range(num)]}
    ranks = np.arange(1, num + 1, dtype=np.float64)
    draft = AttackedContext(row | {"labels": labels}, {300: "reply x"}, {"mine": (ranks, ranks)}, right, False, 1)
    item = item_of(draft)
    headings = candidates(item)
    assert len(headings) == 14
    assert [heading for heading, *_ in headings[-2:]] == ["right", "wrong, changed"]
    assert "586 more candidates" in shown(item)
    counts = np.zeros((num, num), dtype=np.int64)
    counts[np.arange(num), np.arange(num)[::-1]] = 1
    axes = Figure().subplots()
    draw_movement(counts, axes)
    assert len(axes.get_xticks()) == 6
    assert axes.collections[0].get_rasterized()
