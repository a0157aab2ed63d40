"""Pages in headless Chromium: nothing is cut at any width, the verdict is on the first screen, the viewer works."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parley.engine.core.page.content import Report, RunLine
from parley.engine.core.stats.statistics import NOTHING, Estimate
from parley.engine.core.tables.table import EstimateTable
from parley.engine.negotiation.metrics.attack import attack_metrics
from parley.engine.negotiation.page import Negotiations
from parley.engine.triggers.metrics.hits import search_metrics
from parley.engine.triggers.verbs.config import TriggerConfig
from tests.engine.core.page.pages import page_of, run_of
from tests.engine.negotiation.metrics.attacks import attempt
from tests.engine.negotiation.page.dialogues import attack_row, match, negotiations
from tests.engine.triggers.metrics.searches import KINDS, restart, searched

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="there is no Chromium here: apt-get install chromium")

WIDTHS = (400, 1200, 1920)
LONG = "a-name-without-any-blank-" * 6
HOST = """<!doctype html><meta charset="utf-8"><body><pre id="out"></pre><script>
const page = PAGE;
async function look(width) {
  const frame = document.createElement("iframe");
  frame.style = `width: ${width}px; height: 800px; border: 0`;
  frame.srcdoc = page;
  document.body.append(frame);
  await new Promise((done) => (frame.onload = done));
  while (frame.contentDocument.querySelector("#items[aria-busy=true]")) await new Promise((done) => setTimeout(done, 20));
  const [shown, view] = [frame.contentDocument, frame.contentWindow];
  const sentence = shown.querySelector(".sentence");
  const found = { verdict: sentence && sentence.getBoundingClientRect().bottom };
  for (const each of shown.querySelectorAll("details")) each.open = true;
  found.over = shown.documentElement.scrollWidth - shown.documentElement.clientWidth;
  found.cut = [...shown.querySelectorAll("body *:not(.unseen):not(.skip)")].filter((each) => {
    const hidden = view.getComputedStyle(each).overflowX !== "visible" && each.scrollWidth > each.clientWidth + 1;
    const headings = each.closest("thead") && each.getBoundingClientRect().right < 0;
    return (hidden || each.getBoundingClientRect().right > width + 1) && !headings && !each.closest("svg");
  }).map((each) => each.outerHTML.slice(0, 120));
  const controls = shown.querySelector(".controls");
  if (controls) {
    const set = (values) => {
      for (const [name, value] of Object.entries(values)) {
        controls.querySelector(`[name=${name}]`).value = value;
        controls.dispatchEvent(new view.Event("input"));
      }
      const left = [...shown.querySelectorAll(".item")].filter((each) => !each.hidden);
      return [left.map((each) => each.querySelector(".body").id), controls.querySelector("output").value];
    };
    const none = { search: "", kind: "", group: "", tag: "", order: "" };
    found.viewer = ASKED.map((values) => set({ ...none, ...values }));
    const selects = [...controls.querySelectorAll("select")];
    found.offered = selects.map((each) => [each.name, [...each.options].map((one) => one.value)]);
    set(none);
    shown.querySelector(".chosen a").click();
    for (const each of shown.querySelectorAll(".item")) each.open = false;
    view.location.hash = "#" + shown.querySelectorAll(".item .body")[1].id;
    await new Promise((done) => setTimeout(done, 100));
    found.opened = [...shown.querySelectorAll(".item[open] .body")].map((each) => each.id);
  }
  return found;
}
(async () => {
  const found = [];
  for (const width of WIDTHS) found.push(await look(width));
  document.getElementById("out").textContent = JSON.stringify(found);
})();
</script>"""


def look(page: str, folder: Path, asked: list[dict[str, str]] | None = None) -> list[dict[str, Any]]:
    """What a browser finds on a page at each of `WIDTHS`, and which items its viewer shows when it is asked."""
    script = {"PAGE": page, "ASKED": asked or [], "WIDTHS": WIDTHS}
    host = HOST
    for name, value in script.items():
        host = host.replace(name, json.dumps(value).replace("</", "<\\/"), 1)
    (folder / "host.html").write_text(host.encode("utf-8", "replace").decode())
    command = [str(BROWSER), "--headless=new", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=60000", "--dump-dom"]
    command += [f"--user-data-dir={folder / 'profile'}", (folder / "host.html").as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=550, check=True).stdout
    (out,) = re.findall(r'<pre id="out">(.*?)</pre>', shown, flags=re.DOTALL)
    found: list[dict[str, Any]] = json.loads(html.unescape(out))
    return found


def wide_report(monkeypatch: pytest.MonkeyPatch) -> Report:
    """Long names, wide tables, many items of two kinds."""
    metrics = attack_metrics([attack_row(key) for key in "ab"], NOTHING)
    hats = attempt(base="i would like the ball", replaced=[4])
    attacks = [
        match(
            name=f"{LONG}{number}",
            job="attack-reactive",
            metrics=metrics,
            rows=[attack_row("a", (8, 2), attempts=[hats]), attack_row("b", (number, 9), attempts=[]), attack_row("c", (5, 5))],
        )
        for number in range(2)
    ]
    columns = tuple(f"heading {number}" for number in range(18))
    cells = tuple("80.2 %\n[76.5, 83.5]" for _ in columns)
    tables = {
        "turned": EstimateTable(columns, (cells,) * 4, LONG),
        "stacked": EstimateTable(columns, (cells,) * 12, "note"),
    }
    found = [
        searched("near", restart(0, 1.0), target=LONG),
        searched("hit", restart(0, 0.2, KINDS, stopped="satisfied"), target="no hats here"),
    ]
    config = TriggerConfig(hit=KINDS[0], targets=LONG)
    search = run_of("search", found, search_metrics(found, NOTHING, 1), heading="mal", config=config)
    tables = {**tables, "plain": EstimateTable(columns[:8], (cells[:8],) * 9, "")}
    monkeypatch.setattr(Negotiations, "shared_tables", lambda self, runs: tables)
    return Report(
        title=LONG,
        lead=LONG,
        found=negotiations(*attacks).found | {"triggers": [search]},
        commands=[f"parley attack --target {LONG}" * 3],
        files=[(LONG, LONG)],
        config={LONG: LONG},
    )


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    asked = [
        {},
        {"search": "no HATS here"},
        {"kind": "trigger", "order": "+loss, low first"},
        {"kind": "dialogue", "order": "-points ahead, high first", "group": f"{LONG}0"},
        {"tag": "deal"},
        {"search": "nowhere"},
    ]
    with pytest.MonkeyPatch.context() as monkeypatch:
        return look(page_of(wide_report(monkeypatch)), tmp_path_factory.mktemp("browser"), asked)


def test_nothing_is_cut_at_any_width(found: list[dict[str, Any]]) -> None:
    assert [(each["over"], each["cut"]) for each in found] == [(0, [])] * len(WIDTHS)


def test_the_verdict_is_on_the_first_screen(found: list[dict[str, Any]]) -> None:
    assert all(0 < each["verdict"] < 800 for each in found)


def test_the_viewer_searches_filters_and_sorts(found: list[dict[str, Any]]) -> None:
    everything, searched_for, triggers, dialogues, deals, nothing = found[1]["viewer"]
    assert len(everything[0]) == 8
    assert everything[1] == "8 of 8"
    assert [*searched_for] == [["trigger-mal-hit"], "1 of 8"]
    assert triggers[0] == ["trigger-mal-hit", "trigger-mal-near"]
    assert [key.rpartition("-")[2] for key in dialogues[0]] == ["a", "c", "b"]
    assert len(deals[0]) == 6
    assert nothing == [[], "0 of 8"]
    assert [[*map(list, each["viewer"])] for each in found] == [[*map(list, found[0]["viewer"])]] * 3
    assert dict(found[0]["offered"])["kind"] == ["", "dialogue", "trigger"]


def test_an_address_opens_its_item(found: list[dict[str, Any]]) -> None:
    assert all(len(each["opened"]) == 1 for each in found)


def test_a_folder_of_runs_is_not_cut_either(tmp_path: Path) -> None:
    lines = [RunLine(f"{LONG}{number}", "attack-reactive", f"interrupted; {LONG}", "it is " * 30) for number in range(3)]
    metrics = {"advantage": Estimate(1.0, 0.5, 1.5, 40)}
    runs = negotiations(*(match(name=f"{LONG}{number}", metrics=metrics) for number in range(9)))
    found = look(page_of(replace(runs, overview=lines)), tmp_path)
    assert [(each["over"], each["cut"]) for each in found] == [(0, [])] * len(WIDTHS)
