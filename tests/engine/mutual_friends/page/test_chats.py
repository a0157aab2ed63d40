"""Collaborating bots on the page: a verdict, tables, drawings, chats as said and as heard, hostile words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from parley.engine.core.page.content import Item, Report, Run, Verdict
from parley.engine.core.page.page import collect_run
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.job import Silent
from parley.engine.mutual_friends.metrics.chats import NORMAL, by_condition, chat_metrics
from parley.engine.mutual_friends.page import NUM_SHOWN, MutualFriendsChapter
from parley.engine.mutual_friends.verbs.config import BLIND, MutualFriendsConfig
from parley.engine.mutual_friends.verbs.evaluate import ATTRIBUTES, CHATS, CONDITIONS, EVALUATE_MUTUAL_FRIENDS, PAIRS, demo
from tests.engine.core.page.pages import HOSTILE, Outline, assert_brief, assert_harmless, page_of, run_of, tables_on, words

CONFUSING = "confusing-entity"
LIE = {"type": "hobby", "said": "chess", "heard": "golf", "believed": True}


def chat(number: int, strategy: str, agreed: bool, pair: str = "model", **changes: Any) -> dict[str, Any]:
    heard = "any golf ?" if strategy == CONFUSING else "any chess ?"
    mention = LIE if strategy == CONFUSING else LIE | {"heard": "chess", "believed": None}
    said = {"side": 0, "said": "any chess ?", "heard": heard, "selected": None, "mentions": [mention]}
    selects: dict[str, Any] = {"side": 1, "said": None, "heard": None, "selected": int(not agreed), "mentions": []}
    row: dict[str, Any] = {"item_key": f"00-{strategy}-{number:06d}", "status": "ok", "error": None, "seed": number}
    row |= {"schema_version": 1, "pair": pair, "strategy": strategy, "agents": ["bot", "other"], "scenario": f"{number:06d}"}
    row |= {"attributes": ["Name", "Hobby"], "types": ["name", "hobby"], "shared": [1, 0]}
    row |= {"tables": [[["Ada", "Golf"], ["Ben", "Chess"]], [["Ben", "Chess"], ["Cleo", "Golf"]]]}
    row |= {"events": [said, selects], "agreed": agreed, "num_selections": [0, 1], "first_selection_right": agreed}
    return row | changes


def made(*rows: dict[str, Any], **changes: Any) -> Run:
    found = rows or tuple(
        chat(number, strategy, agreed=strategy == NORMAL or number % 4 == 0, pair=pair)
        for number in range(40)
        for pair, strategy in (("model", NORMAL), ("model", CONFUSING), (BLIND, NORMAL))
    )
    settings: dict[str, Any] = {"heading": "friends", ATTRIBUTES: {"hobby": "Hobby"}}
    settings |= {
        CONDITIONS: [list(each) for each in by_condition(found)],
        PAIRS: {"model": "runs/dynonet", BLIND: "blind selectors"},
    }
    settings |= {"config": demo()} | changes
    return run_of("evaluate-collaboration", found, chat_metrics(found), **settings)


def verdict_of(run: Run) -> Verdict:
    verdict = MutualFriendsChapter().verdict([run])
    assert verdict is not None
    assert_brief(verdict)
    return verdict


def items_of(run: Run) -> dict[str, list[Item]]:
    return {name: list(items) for name, items in MutualFriendsChapter().items(run)}


def test_the_verdict_says_who_finds_the_friend_and_what_costs_most() -> None:
    verdict = verdict_of(made())
    assert verdict.sentence.replace("\N{NO-BREAK SPACE}", " ") == (
        "runs/dynonet finds the common friend in 100.0 % of the chats; under confusing-entity in 25.0 %."
    )
    (detail,) = verdict.details
    assert detail.replace("\N{NO-BREAK SPACE}", " ") == "blind selectors, who never speak, find it in 100.0 %."
    assert [*verdict.marks] == [NORMAL, CONFUSING, "blind selectors, normal"]
    harmless = verdict_of(made(chat(0, NORMAL, agreed=True), chat(0, CONFUSING, agreed=True)))
    assert harmless.sentence.endswith("; no strategy lowers that for certain.")
    assert harmless.cautions == ["Few chats (1): do not lean on it."]
    deaf = [chat(number, "unheard", agreed=False) for number in range(40)]
    unheard = verdict_of(made(*(chat(number, NORMAL, agreed=True) for number in range(40)), *deaf))
    assert unheard.sentence.endswith("in 100.0\N{NO-BREAK SPACE}% of the chats."), "a control costs nobody anything"
    assert MutualFriendsChapter().verdict([made(chat(0, CONFUSING, agreed=True))]) is None, "every normal chat failed"


def test_a_chat_is_shown_with_both_tables_and_what_was_heard() -> None:
    (item,) = items_of(made(chat(3, CONFUSING, agreed=False)))[CONFUSING]
    text, body = words(str(item.body)), str(item.body)
    assert text.startswith("no agreement in 2 events selections: 1 entities replaced: 1, believed: 1")
    assert "friends of side 0, bot Name Hobby Ada Golf Ben Chess common friends of side 1, other" in text
    assert '<td class="words" dir="auto" data-label="as said">any <del>chess</del> ?</td>' in body
    assert '<td class="words" dir="auto" data-label="as heard">any <mark>golf</mark> ?</td>' in body
    assert "side 1, other selects Cleo, Golf another" in text
    (same,) = items_of(made(chat(3, NORMAL, agreed=True)))[NORMAL]
    assert "any chess ? the same" in words(str(same.body))


def test_chats_without_agreement_come_first() -> None:
    items = items_of(made(*(chat(number, CONFUSING, agreed=number != 7) for number in range(NUM_SHOWN + 5))))[CONFUSING]
    assert (items[0].key, items[0].tags) == (f"00-{CONFUSING}-000007", ["no agreement", "a lie is believed"])
    assert len(items) == NUM_SHOWN


def test_a_page_of_an_evaluation() -> None:
    text = page_of(Report(title="friends", found={"collaboration": [made(description="Forty scenarios.")]}))
    headings = ["friends", "Looking for the common friend", "At a glance", "Items", "The run"]
    assert [text for _, text in Outline(text).headings] == headings
    for title in ("Completion by strategy", "Completion by who plays", "Lies believed by attribute"):
        assert f"<figcaption><strong>{title}</strong>" in text
    assert "<del>chess</del>" in text
    assert "<mark>golf</mark>" in text
    assert "friends: Forty scenarios." in words(text)
    assert "confusing-entity: an example" in words(text)


def test_hostile_words_stay_text() -> None:
    evil = " ".join(HOSTILE.split())
    event = {"side": 0, "said": f"{evil} \u202ex", "heard": evil, "selected": None, "mentions": [LIE | {"type": HOSTILE}]}
    changes: dict[str, Any] = {"agents": [HOSTILE, HOSTILE], "attributes": [HOSTILE, "b"], "events": [event]}
    changes |= {"tables": [[[HOSTILE, "x"]], [[HOSTILE, "x"]]], "shared": [0, 0], "item_key": HOSTILE}
    rows = [chat(0, strategy, agreed=False, **changes) for strategy in (NORMAL, CONFUSING, HOSTILE)]
    section = made(*rows, heading=HOSTILE, description=HOSTILE, **{PAIRS: {"model": HOSTILE}, ATTRIBUTES: {HOSTILE: HOSTILE}})
    text = page_of(Report(title="friends", found={"collaboration": [section]}))
    outline = assert_harmless(text)
    assert "".join(outline.text).count("<script>alert(1)</script>") >= 6
    assert "\u202e" not in text


@pytest.mark.parametrize("controls", [False, True])
def test_a_run_becomes_a_section(tmp_path: Path, controls: bool) -> None:
    config = MutualFriendsConfig(scenarios=2, strategies="confusing-entity", controls=controls, model="selector")
    EVALUATE_MUTUAL_FRIENDS.run(config, tmp_path / "run", Silent())
    data = collect_run(tmp_path / "run")
    (found,) = data.found["collaboration"]
    headings = [heading for heading, _ in tables_on(data, "collaboration")]
    assert headings[:3] == ["At a glance", "Completion and turns", "Completion by selections allowed"]
    assert len(found.summary[CONDITIONS]) == (11 if controls else 2)
    assert "selector finds the common friend in 100.0" in words(page_of(data))


def test_a_run_without_rows_has_no_section_and_an_unfinished_one_no_verdict(tmp_path: Path) -> None:
    with RunFolder.open(tmp_path / "run", demo(), job=EVALUATE_MUTUAL_FRIENDS.name, schema=CHATS) as run:
        assert collect_run(tmp_path / "run").found == {}
        run.write_shard("00000", [chat(0, NORMAL, agreed=True)])
        data = collect_run(tmp_path / "run")
    assert MutualFriendsChapter().verdict(data.found["collaboration"]) is None
    assert "Looking for the common friend" in page_of(data)
