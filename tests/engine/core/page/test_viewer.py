"""The viewer's items: the first stand in the page, all others are packed and drawn as the reader scrolls to them."""

from __future__ import annotations

import base64
import itertools
import json
import shutil
import time
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from markupsafe import Markup

from parley.engine.core.page import content
from parley.engine.core.page.content import (
    MOST_DRAWN,
    Chapter,
    Item,
    PackedItems,
    Report,
    Run,
    pack_items,
)
from parley.engine.core.page.page import render
from parley.engine.core.tables.table import EstimateTable
from tests.engine.core.page.pages import HOSTILE, assert_harmless, run_of
from tests.engine.core.page.test_browser import look

TOTAL = 1_000


def item(number: int, text: str = "") -> Item:
    words = text or f"word{number} {number * 7919 % 10007} the of and a hat ball book " * 3
    return Item(
        kind="dialogue",
        key=f"d-{number}",
        summary=Markup("<q>{}</q>").format(f"line {number}"),
        tags=("even" if number % 2 == 0 else "odd",),
        values={"number": float(number)},
        body=Markup("<p>{}</p>").format(words),
    )


def unpacked(items: PackedItems) -> list[list[Any]]:
    text = zlib.decompress(base64.b64decode(items.packed), -zlib.MAX_WBITS).decode()
    return [json.loads(line) for line in text.splitlines()]


class Dialogues(Chapter):
    """A chapter of as many items as it is told, the first of them linked."""

    name, title = "dialogues", "Dialogues"

    def __init__(self, num: int) -> None:
        self.num = num

    def items(self, run: Run) -> Iterable[tuple[str, Iterator[Item]]]:
        yield "", (replace(item(number), link="the first" * (not number)) for number in range(self.num))

    def tables(self, run: Run) -> dict[str, EstimateTable]:
        return {}


def page_with(num: int) -> str:
    return render(Report(title="t", found={"dialogues": [run_of("selfplay")]}), [Dialogues(num)])


def test_the_first_items_are_html_and_all_others_are_packed() -> None:
    items = pack_items([("run", map(item, range(TOTAL)))])
    assert [each.item.key for each in items.drawn] == [f"d-{number}" for number in range(MOST_DRAWN)]
    records = unpacked(items)
    assert [record[3] for record in records] == [f"d-{number}" for number in range(MOST_DRAWN, TOTAL)]
    assert records[0][:7] == ["dialogue-run-d-200", "dialogue", "run", "d-200", ["even"], {"number": 200.0}, "<q>line 200</q>"]
    assert (items.num, items.left_out, items.kinds) == (TOTAL, False, ["dialogues"])
    assert pack_items([("run", map(item, range(MOST_DRAWN)))]).packed == ""


def test_a_full_page_asks_for_no_more_items_and_keeps_the_chosen_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "MOST_PACKED_BYTES", 5_000)
    asked = 0

    def endless() -> Iterator[Item]:
        nonlocal asked
        for asked in itertools.count():
            yield item(asked)

    wanted = replace(item(10**6), link="an example")
    items = pack_items([("run", endless()), ("other", iter([wanted, item(7)]))])
    assert items.left_out
    assert asked < 10_000
    assert items.links == {("other", "an example"): "dialogue-other-d-1000000"}
    assert unpacked(items)[-1][3] == "d-1000000"
    assert len(base64.b64decode(items.packed)) < 5_000 + 3_000


def test_a_page_of_100_000_rows_stays_below_5_mb() -> None:
    began = time.process_time()
    page = page_with(100_000)
    assert len(page.encode()) < 5_000_000
    assert "The page is full: more rows are in the run" in page
    # A core's seconds, far above what it takes: a page that formats every row would take minutes.
    assert time.process_time() - began < 60


def test_hostile_words_stay_words_in_the_packed_block() -> None:
    items = pack_items([("run", (item(number, HOSTILE) for number in range(MOST_DRAWN + 1)))])
    (record,) = unpacked(items)
    assert "<script>" not in record[7]
    assert "\x1b" not in record[7]
    assert_harmless(page_with(MOST_DRAWN + 50))


BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium here: apt-get install chromium")
def test_a_browser_reads_searches_and_opens_packed_items(tmp_path: Path) -> None:
    asked = [{}, {"search": "word987"}, {"order": "-number, high first"}, {"tag": "odd"}]
    (found, *_) = look(page_with(TOTAL), tmp_path, asked)
    everything, searched, ordered, odd = found["viewer"]
    assert everything[1] == "1,000 of 1,000"
    assert len(everything[0]) < TOTAL
    assert searched == [["dialogue-run-d-987"], "1 of 1,000"]
    assert ordered[0][:2] == ["dialogue-run-d-999", "dialogue-run-d-998"]
    assert odd[1] == "500 of 1,000"
    assert found["over"] == 0
    assert found["cut"] == []
