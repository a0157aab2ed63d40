"""Attacks on rankers on the page: a verdict, curves, a heat table, replies with marks and ranks, hostile words."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from parley.engine.core.page.content import Item, Report, Run, Verdict
from parley.engine.core.page.page import collect_run
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.ranking.metrics.searched import SearchedRows, search_metrics
from parley.engine.ranking.page import NUM_SEARCHED, RankerAttacks, search_item
from parley.engine.ranking.verbs.attack import ATTACK_RANKING, BUDGET, GOAL
from parley.engine.ranking.verbs.config import RankingAttackConfig
from parley.engine.ranking.verbs.prepared import ERRORS, NUM_CONTEXTS, SEARCHES
from tests.engine.core.page.pages import HOSTILE, assert_brief, assert_harmless, page_of, run_of, words
from tests.engine.ranking.metrics.searched_rows import attacked_context, left, search
from tests.engine.ranking.page.test_rankings import candidates

SHY = "Shy gave no scores for some contexts: a score is not finite."


def a_context(number: int, **changes: Any) -> dict[str, Any]:
    """Greedy always succeeds on "smn", and random edits in every fourth context; half of what greedy finds fools "bm25"."""
    greedy = search("smn", "greedy", 20, "bm25", number % 2 == 0)
    lucky = search("smn", "random", 5 if number % 4 == 0 else None, "bm25", None)
    others = [search("bm25", method, None, "smn", None) for method in ("greedy", "random")]
    return attacked_context(number, greedy, lucky, *others, **changes)


def made(*rows: dict[str, Any], **changes: Any) -> Run:
    found = rows or tuple(map(a_context, range(40)))
    settings: dict[str, Any] = {
        "heading": "desk",
        GOAL: "promote a wrong reply to rank 1",
        BUDGET: 50,
        ERRORS: {},
        NUM_CONTEXTS: 40,
    }
    run = run_of("attack-ranking", found, changes.pop("metrics", search_metrics(SearchedRows(found), 50)), **settings | changes)
    run.__dict__["tables"] = {}
    return run


def verdict_of(run: Run) -> Verdict:
    verdict = RankerAttacks().verdict([run])
    assert verdict is not None
    assert_brief(verdict)
    return verdict


def searched_items(run: Run, model: str, method: str) -> list[Item]:
    return list(dict(RankerAttacks().items(run))[f"{method} on {model}"])


def test_the_verdict_says_what_the_best_method_reaches_and_random_edits_beside_it() -> None:
    verdict = verdict_of(made())
    assert verdict.sentence.replace("\N{NO-BREAK SPACE}", " ") == (
        "greedy reaches the goal on smn in 100.0 % of the attacked contexts; random edits in 25.0 %, certainly fewer."
    )
    assert [detail.replace("\N{NO-BREAK SPACE}", " ") for detail in verdict.details] == [
        "The goal: promote a wrong reply to rank 1; at most 50 queries. With 10: greedy 0.0 %, random edits 25.0 %.",
        "50.0 % of its successes fool bm25 too.",
    ]
    assert [*verdict.marks] == ["smn, greedy", "smn, random", "bm25, greedy", "bm25, random"]
    assert "Few dialogues (8): do not lean on it." in verdict_of(made(*map(a_context, range(8)))).cautions
    assert RankerAttacks().verdict([made(metrics={})]) is None


def test_the_verdict_passes_over_a_method_that_ended_without_scores() -> None:
    def context(number: int) -> dict[str, Any]:
        lost, greedy = left("smn", "gradient", "error", "no slopes"), search("smn", "greedy", 20)
        return attacked_context(number, lost, greedy, search("smn", "random", None))

    verdict = verdict_of(made(*map(context, range(40))))
    assert verdict.sentence.startswith("greedy reaches the goal on smn")
    assert [*verdict.marks] == ["smn, greedy", "smn, random"]


def test_the_verdict_on_gaslite_names_its_own_control() -> None:
    rows = [
        attacked_context(
            number,
            search("minilm", "gaslite", 20),
            search("minilm", "random-steps", 5 if number % 4 == 0 else None),
            search("minilm", "random-words", None),
            search("minilm", "random", 5 if number % 2 else None),
        )
        for number in range(40)
    ]
    verdict = verdict_of(made(*rows))
    assert "the same steps with random words in 25.0" in verdict.sentence
    assert "random edits" not in verdict.sentence


def test_candidates_stand_by_their_ranks_with_the_edited_words_marked() -> None:
    row = a_context(0)
    item = search_item(row, row["searches"][0])
    assert candidates(item) == [
        ("wrong, changed", "hello <del>there</del> <mark>broken</mark>", "2 \N{RIGHTWARDS ARROW} 1"),
        ("right", "the blue screen", "1 \N{RIGHTWARDS ARROW} 2"),
        ("wrong", "what a day", "3"),
    ]
    assert (item.values["rank before"], item.values["rank after"], item.tags) == (2, 1, ("fooled",))
    assert '<span class="note">20 queries</span><span class="note">context</span>' in item.body


def test_successes_come_first_and_untouched_replies_not_at_all() -> None:
    rows = list(map(a_context, range(4 * NUM_SEARCHED)))
    items = searched_items(made(*rows), "smn", "random")
    assert len(items) == NUM_SEARCHED
    assert {item.tags for item in items} == {("fooled",)}
    untouched = [a_context(number) for number in range(3)]
    for row in untouched:
        row["searches"][0]["num_changed"] = 0
    assert searched_items(made(*untouched), "smn", "greedy") == []


def test_a_page_of_attacks() -> None:
    text = page_of(
        Report(
            title="attacks",
            found={"ranker-attacks": [made(**{ERRORS: {"Shy": "a score is not finite"}})]},
        )
    )
    assert f"desk: {SHY}" in words(text)
    assert re.findall(r"<figcaption><strong>(.*?)</strong>", text) == [
        "Success against queries, smn",
        "Success against queries, bm25",
        "Transfer of greedy",
        "Transfer of random",
    ]
    assert "<del>there</del> <mark>broken</mark>" in text
    assert "50 %" in text


def test_hostile_words_stay_text() -> None:
    evil, label = " ".join(HOSTILE.split()), HOSTILE.replace(".", "")
    row = a_context(0, item_key=HOSTILE, context=[evil], candidates=[evil, "a", "b"])
    row["searches"][0] |= {"text": evil, "model": label, "method": label}
    row["searches"][1]["model"] = row["before"][0]["model"] = label
    section = made(row, heading=HOSTILE, description=HOSTILE, **{GOAL: HOSTILE, ERRORS: {HOSTILE: HOSTILE}})
    outline = assert_harmless(page_of(Report(title="attacks", found={"ranker-attacks": [section]})))
    assert "".join(outline.text).count("<script>alert(1)</script>") >= 6


def test_a_run_becomes_a_section_of_its_own(tmp_path: Path) -> None:
    rows = list(map(a_context, range(3)))
    about = {GOAL: "promote", BUDGET: 50, ERRORS: {}, NUM_CONTEXTS: 3, "title": "attack", "description": "Three."}
    with RunFolder.open(tmp_path, RankingAttackConfig(), job=ATTACK_RANKING.name, schema=SEARCHES) as run:
        run.write_shard("00000", rows)
        assert "Attacks on rankers" in page_of(collect_run(tmp_path))
        run.write_summary(search_metrics(SearchedRows(rows), 50), about)
    data = collect_run(tmp_path)
    assert [*data.found] == ["ranker-attacks"], "no other chapter takes it"
    (found,) = data.found["ranker-attacks"]
    assert [*RankerAttacks().shown(found)] == [
        "success@50.smn.greedy",
        "success@50.smn.random",
        "success@50.bm25.greedy",
        "success@50.bm25.random",
    ]
    assert "Transfer to other rankers" in found.tables
    assert "Attacks on rankers" in page_of(data)
