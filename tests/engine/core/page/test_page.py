"""The page: structure, escaping, self-containment, and what it says about thin or missing data."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from parley.engine.core.page.content import Report, Run
from parley.engine.core.page.page import MOST_NUMBERS, MetricBlock, fitted, load_chapters, metric_blocks, render, write_report
from parley.engine.core.stats.statistics import Estimate, Metric
from parley.engine.core.tables.table import EstimateTable
from parley.engine.core.verbs.job import write_tables
from parley.engine.negotiation.metrics.attack import ATTACK_METRICS
from parley.engine.negotiation.page import Negotiations
from parley.envs.core.errors import RunError
from parley.envs.core.visible import visible
from tests.engine.core.page.pages import HOSTILE, Outline, assert_harmless, page_of, run_of, words
from tests.engine.negotiation.metrics.attacks import attempt
from tests.engine.negotiation.page.dialogues import (
    NAN,
    attack_row,
    error_row,
    match,
    metrics,
    negotiations,
    report,
    row,
    searched,
)


@pytest.fixture(scope="module")
def page() -> str:
    return page_of(report())


@pytest.fixture(scope="module")
def hostile_page() -> str:
    return page_of(hostile_report())


def test_outline_of_a_full_page(page: str) -> None:
    outline = Outline(page)
    assert outline.headings == [("h1", "demo"), ("h2", "Negotiation"), ("h2", "Training"), ("h2", "Items"), ("h2", "The run")]
    assert outline.count("article", class_="verdict") == 1, "a training is no verdict beside an attack"
    assert outline.count("svg", role="img") == 4
    assert outline.count("details", class_="item") == 2 + 3
    links = {attrs["href"] for tag, attrs in outline.tags if tag == "a"}
    ids = {attrs.get("id") for _, attrs in outline.tags}
    assert {f"#{name}" for name in ids if name} >= links


def test_same_data_same_page(page: str) -> None:
    assert page_of(report()) == page


def hostile_report() -> Report:
    turns = [{"side": 0, "words": HOSTILE}, {"side": 1, "words": "\u202etxt\x00\ud800 😀"}]
    # Words, base sentence and kind of an attack are hostile too, and a hostile word stands for another one.
    searched = attempt(base=f"x{HOSTILE}", replaced=[0, 3], kind=HOSTILE)
    rows = [
        row(HOSTILE, turns=turns),
        attack_row("b", (1, 9), turns=turns, attempts=[searched, attempt(turn=1, base=HOSTILE)]),
        error_row("c", HOSTILE),
    ]
    estimates = {**metrics(), HOSTILE: Estimate(1, 0, 2, 40)}
    table = EstimateTable((HOSTILE, "n"), ((HOSTILE, HOSTILE),), HOSTILE)
    training = run_of("train-negotiator", heading=HOSTILE, events=[{"kind": "epoch", "number": 1, "train_perplexity": 2.0}])
    training.__dict__["trainings"] = [(HOSTILE, table)]
    return report(
        title=HOSTILE,
        lead=HOSTILE,
        state=HOSTILE,
        found={
            "negotiation": [match(name=HOSTILE, job=HOSTILE, description=HOSTILE, metrics=estimates, rows=rows)],
            "training": [training],
        },
        commands=[HOSTILE],
        runs=[(HOSTILE, HOSTILE), ("b", HOSTILE)],
        files=[(HOSTILE, HOSTILE)],
        config={HOSTILE: HOSTILE},
        environment={HOSTILE: HOSTILE},
    )


def test_a_title_breaks_behind_the_signs_of_a_file_and_in_no_number() -> None:
    text = page_of(Report(title="attacks on tfidf on a/my_faq.csv#shares=50:15:35 & <b>", found={}))
    assert "<h1>attacks on tfidf on a/<wbr>my_<wbr>faq.csv#<wbr>shares=<wbr>50:15:35 &amp; &lt;b&gt;</h1>" in text


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    page = write_report(hostile_report(), load_chapters(), tmp_path / "report.html").read_text(encoding="utf-8")
    outline = assert_harmless(page)
    assert "".join(outline.text).count("<script>alert(1)</script>") >= 16
    assert "49" not in words(page)


def test_data_of_the_viewer_is_what_it_filters_by_and_nothing_else(hostile_page: str) -> None:
    shown = [attrs for _, attrs in Outline(hostile_page).tags if attrs.get("class") == "item"]
    assert {attrs["data-group"] for attrs in shown} == {visible(HOSTILE)}
    assert {attrs["data-kind"] for attrs in shown} == {"dialogue"}


def test_invisible_characters_are_written_out(hostile_page: str) -> None:
    assert "\\u202etxt\\u0000\\ud800 😀" in hostile_page
    assert "\u202e" not in hostile_page


def test_page_loads_nothing(hostile_page: str) -> None:
    loading = {"src", "href", "xlink:href", "action", "srcset"}
    targets = [value for _, attrs in Outline(hostile_page).tags for name, value in attrs.items() if name in loading]
    assert targets
    assert all(target and target.startswith("#") for target in targets)
    assert set(re.findall(r"url\(\s*['\"]?(.)", hostile_page)) <= {"#"}
    assert "@import" not in hostile_page
    assert "http://" not in hostile_page
    assert "https://" not in hostile_page
    assert "default-src 'none'" in hostile_page


def test_colours_of_figures_follow_the_style_sheet(page: str) -> None:
    svg = re.findall(r"<svg role=.*?</svg>", page, flags=re.DOTALL)
    colours = {colour for figure in svg for colour in re.findall(r"(?:fill|stroke): ([^;\"]+)", figure)}
    assert {colour for colour in colours if colour.startswith("#")} == set()
    style = re.findall(r"<style>(.*?)</style>", page, flags=re.DOTALL)[0]
    variables = set(re.findall(r"var\((--[\w-]+)\)", " ".join(colours)))
    assert variables
    # Once for the light page and once for the dark one.
    assert {name: style.count(f"{name}:") for name in variables} == dict.fromkeys(variables, 2)


def test_few_dialogues_are_flagged_where_the_number_stands(page: str) -> None:
    cells = re.findall(r'<span class="(small-n|count)">n = (\d+)( few)?</span>', page)
    assert {kind + few for kind, n, few in cells if int(n) < 30} == {"small-n few"}
    assert {kind + few for kind, n, few in cells if int(n) >= 30} == {"count"}
    assert "Few dialogues (12): do not lean on it." in words(page), "in the verdict too"


def test_interval_direction_and_definition_stand_beside_the_value(page: str) -> None:
    text = words(page)
    assert "3.50 3.00 to 4.00" in text
    assert "80.0 % 75.0 % to 85.0 %" in text
    assert "takes 6.75 of 10 points and leaves the target 3.25: it is certainly ahead." in text
    blocks = blocks_of(*report().found["negotiation"])
    assert len(blocks) == 4
    for block in blocks:
        assert block.title in text
        assert block.direction in text
        assert block.definition in text


def blocks_of(*matches: Run) -> list[MetricBlock]:
    return [block for _, block in metric_blocks((run.heading, run.metrics, run.legend) for run in matches)]


def test_a_metric_is_shown_over_the_runs_that_have_it() -> None:
    a, b, both = ({name: Estimate(1, 0, 2, 50) for name in names} for names in (["x"], ["y"], ["x", "y"]))
    blocks = blocks_of(*(match(name=name, metrics=found) for name, found in (("a", a), ("b", b), ("both", both))))
    shown = {block.title: [line.name for line in block.lines] for block in blocks}
    assert shown == {"X": ["a", "both"], "Y": ["b", "both"]}


def test_figures_of_one_name_that_mean_different_things_have_blocks_of_their_own() -> None:
    def named(name: str, definition: str, *more: str) -> Run:
        found = {known: Estimate(1, 0, 2, 50) for known in ("test_ppl", *more)}
        return match(name=name, metrics=found, legend={"test_ppl": Metric("test perplexity", "", definition)})

    released, plain = named("a", "released formula", "x"), named("b", "plain formula", "x")
    shown = {(block.title, block.definition): [line.name for line in block.lines] for block in blocks_of(released, plain)}
    assert shown == {
        ("Test perplexity", "released formula"): ["a"],
        ("Test perplexity", "plain formula"): ["b"],
        ("X", ""): ["a", "b"],
    }


def test_metrics_that_few_readers_look_for_are_folded_away() -> None:
    everything = {name: Estimate(0.5, 0.4, 0.6, 90) for name in ATTACK_METRICS}
    blocks = blocks_of(match(name="m", metrics=everything))
    titles = [block.title.lower() for block in blocks]
    assert titles[0] == "advantage"
    assert len(blocks) == len(ATTACK_METRICS)
    assert titles.index("attack sentence's perplexity") < titles.index("adversary's distinct share")
    text = page_of(negotiations(match(name="m", metrics=everything)))
    assert text.index("<details>") < text.index("distinct share") < text.index("</details>")


def with_tables(tables: dict[str, EstimateTable], *matches: Run) -> str:
    """The page of some matches and tables."""

    class Tabled(Negotiations):
        def shared_tables(self, runs: object) -> dict[str, EstimateTable]:
            return tables

    return render(negotiations(*matches), [Tabled()])


def open_numbers(page: str) -> int:
    """Numbers of the only chapter of a page that are not folded away."""
    (chapter,) = re.findall(r'<section id="\w+" class="chapter">(.*?)</section>', page, flags=re.DOTALL)
    return re.sub(r"<details.*?</details>", "", chapter, flags=re.DOTALL).count('class="value"')


@pytest.mark.parametrize("num_matches", [1, 3, 5, 13])
def test_a_chapter_shows_a_dozen_numbers_and_folds_the_rest(num_matches: int) -> None:
    everything = {name: Estimate(0.5, 0.4, 0.6, 90) for name in ATTACK_METRICS}
    small = EstimateTable(("target", "before", "after"), (("x", "1", "2"),), "")
    large = EstimateTable(("attack", "a", "b"), (("x", "1", "2"),) * 9, "")
    words_alone = EstimateTable(("asked", "replied"), (("x", "y"),) * 40, "", texts=("asked", "replied"))
    matches = [match(name=str(number), metrics=everything) for number in range(num_matches)]
    page = with_tables({"words": words_alone, "large": large, "small": small}, *matches)
    assert open_numbers(page) == 40 + 2 + num_matches * ((MOST_NUMBERS - 2) // num_matches), "words are no numbers"
    assert page.index("Table: large") > page.index("<h3>small</h3>")


def test_intervals_of_a_row_share_one_scale() -> None:
    estimates = {"a": Estimate(-3, -4, -2, 90), "b": Estimate(3, 2, 4, 90)}
    (block,) = blocks_of(*(match(name=name, metrics={"advantage": estimate}) for name, estimate in estimates.items()))
    shown = [(line.value, line.dot, line.zero, line.span) for line in block.lines]
    assert shown == [("\N{MINUS SIGN}3.00", 18, 60, (4, 28)), ("3.00", 102, 60, (88, 28))]


def test_rates_share_one_scale_whatever_they_are_rates_of() -> None:
    estimates = {"r1": Estimate(0.1, 0.0, 0.25, 90), "map": Estimate(0.5, 0.25, 1.0, 90), "loss": Estimate(0.5, 0.25, 0.5, 90)}
    legend = {name: Metric(name, "", "", "number" if name == "loss" else "rate") for name in estimates}
    blocks = metric_blocks([("run", estimates, legend)])
    dots = {metric.title: (block.lines[0].value, block.lines[0].dot) for metric, block in blocks}
    assert dots == {"r1": ("0.10", 15.2), "map": ("0.50", 60), "loss": ("0.50", 116)}


def test_estimate_without_data_or_interval() -> None:
    page = page_of(negotiations(match(name="m", metrics={"x": Estimate(NAN, NAN, NAN, 0)})))
    assert "none" in words(page)
    assert "nan" not in words(page).lower()
    assert 'class="interval"' not in page


EMPTY = run_of("train-rl")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (Report(title="t"), "This run holds no results yet."),
        (negotiations(match(name="m", metrics=metrics(), rows=[])), "Negotiation"),
        (negotiations(match(name="m", rows=[row()])), "1 dialogues: 1 deals"),
        (negotiations(match(name="m", rows=[error_row("a", "no memory")])), "1 of 1 dialogues ended in an error"),
        (report(found={"training": [EMPTY]}), "Training"),
    ],
    ids=["nothing", "no-rows", "one-row", "only-errors", "empty-curve"],
)
def test_missing_parts_leave_a_page_that_says_so(data: Report, said: str) -> None:
    assert said in words(page_of(data))


def test_failures_are_counted_by_reason() -> None:
    rows = [row(), *(error_row(str(i), "CheckpointError: NaN\n  where: here") for i in range(3)), error_row("x", "other")]
    text = words(page_of(negotiations(match(name="m", rows=rows))))
    assert "m: 4 of 5 dialogues ended in an error" in text
    assert "3 × CheckpointError: NaN , 1 × other" in text


def test_no_page_is_better_than_half_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("parley.engine.core.runs.documents.os.fsync", full)
    with pytest.raises(RunError, match="No space left on device"):
        write_report(report(), load_chapters(), path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_small_tables_of_attacks_come_first() -> None:
    table = EstimateTable(("attack", "n"), (("reactive", "200"), ("transfer", "12 few")), "How to read it.")
    outline = Outline(with_tables({"some": table, "others": table}, match(name="m", metrics=metrics())))
    assert outline.headings[:4] == [("h1", "t"), ("h2", "Negotiation"), ("h3", "some"), ("h3", "others")]
    assert outline.count("table", class_="sheet wide") == 2
    assert "attack n reactive 200 transfer 12 few How to read it." in " ".join(" ".join(outline.text).split())


def test_what_stands_below_a_figure_is_marked_as_such() -> None:
    table = EstimateTable(("attack", "PAR"), (("reactive", "80.2 %\n[76.5, <83.5>]"), ("transfer", "–")), "note")
    page = with_tables({"t": table})
    assert '<td data-label="PAR"><span class="value">80.2 %</span> <span class="below">[76.5, &lt;83.5&gt;]</span></td>' in page
    assert '<td data-label="PAR"><span class="value">–</span></td>' in page


def test_a_table_that_is_too_wide_is_turned_round_or_stacked() -> None:
    def sheet(num_columns: int, num_rows: int) -> tuple[int, int, str]:
        columns = tuple(map(str, range(num_columns)))
        found = fitted("t", EstimateTable(columns, (columns,) * num_rows, ""))
        return len(found.table.columns), len(found.table.rows), found.form

    assert sheet(8, 20) == (8, 20, "wide")
    assert sheet(18, 7) == (8, 17, "wide")
    assert sheet(18, 8) == (18, 8, "stacked")


def test_words_are_explained_where_they_occur_and_nowhere_else() -> None:
    def glossary(page: str) -> list[str]:
        return re.findall(r"<dt>(.*?)</dt>", "".join(re.findall(r'<dl class="glossary".*?</dl>', page, flags=re.DOTALL)))

    assert glossary(page_of(negotiations(match(name="m", metrics={"turns": Estimate(3, 2, 4, 40)})))) == []
    assert "PAR" in glossary(page_of(negotiations(match(name="m", metrics={"par": Estimate(0.5, 0.4, 0.6, 40)}))))
    attacked = glossary(page_of(negotiations(searched())))
    assert attacked == ["PAR", "Forced end", "Live", "Pareto optimal", "Reactive", "Preemptive", "Judge"]


def test_every_item_has_an_address_and_the_chapter_leads_to_some() -> None:
    twice = [match(name="m", rows=[row("a", (8, 2)), row("b", (1, 9))])] * 2
    outline = Outline(page_of(negotiations(*twice)))
    bodies = [attrs["id"] for _, attrs in outline.tags if attrs.get("class") == "body"]
    assert bodies == ["dialogue-m-a", "dialogue-m-b", "dialogue-m-a--2", "dialogue-m-b--2"]
    assert {"#dialogue-m-a", "#dialogue-m-b"} <= {attrs["href"] for tag, attrs in outline.tags if tag == "a"}


def test_the_markdown_table_of_a_run_spells_what_a_terminal_would_obey(tmp_path: Path) -> None:
    about = {"title": f"t{HOSTILE}", "description": HOSTILE, "command": HOSTILE}
    write_tables(tmp_path / "table.md", {HOSTILE: EstimateTable((HOSTILE, "n"), ((HOSTILE, "1"),), HOSTILE)}, about, HOSTILE)
    text = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert visible(text, keep="\n") == text
    assert text.count(r"\u001b[31m\u202e\u2066") >= 6
