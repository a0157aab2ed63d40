"""The page: structure, escaping, self-containment, and what it says about thin or missing data."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from engine.metrics.negotiation.attack import ATTACK_METRICS, attack_metrics
from engine.metrics.statistics import NOTHING, Estimate, Metric
from engine.metrics.tables import TextTable
from engine.report.content import Curve, MatchSection, ReportData
from engine.report.page import metric_tables, render, write_report
from envs.core.errors import RunError
from tests.engine.metrics.negotiation.attacks import attempt
from tests.engine.report.negotiation.dialogues import NAN, attack_row, error_row, metrics, report, row

HOSTILE = "😀 <script>alert(1)</script><img src=x onerror=alert(2)>\"' onload=alert(3) {{ 7*7 }} </style></title> & $x_{"
VOID = {"meta", "br", "img", "hr", "input", "link"}


class Outline(HTMLParser):
    """Tags, attributes, ids and headings of a page; fails on tags that do not nest."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.headings: list[tuple[str, str]] = []
        self.text: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == [], f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1:] == [tag], f"</{tag}> closes {self.open[-1:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "style":
            return
        self.text.append(data)
        if self.open and re.fullmatch("h[1-4]", self.open[-1]):
            self.headings.append((self.open[-1], data))

    def count(self, tag: str, **wanted: str) -> int:
        return sum(name == tag and all(attrs.get(k.rstrip("_")) == v for k, v in wanted.items()) for name, attrs in self.tags)


def words(page: str) -> str:
    return " ".join(" ".join(Outline(page).text).split())


@pytest.fixture(scope="module")
def page() -> str:
    return render(report())


@pytest.fixture(scope="module")
def hostile_page() -> str:
    return render(hostile_report())


def test_outline_of_a_full_page(page: str) -> None:
    outline = Outline(page)
    assert outline.headings == [
        ("h1", "demo"),
        ("h2", "Matches"),
        ("h3", "target vs itself"),
        ("h3", "adversary vs target"),
        ("h2", "Metrics"),
        ("h2", "Outcomes"),
        ("h2", "Training"),
        ("h2", "Dialogues"),
        ("h3", "target vs itself"),
        ("h4", "Best for the adversary"),
        ("h4", "Worst for the adversary"),
        ("h3", "adversary vs target"),
        ("h4", "Best for the adversary"),
        ("h4", "Worst for the adversary"),
        ("h2", "The run"),
    ]
    assert outline.count("table", class_="metrics") == 2
    assert outline.count("svg", role="img") == 4
    assert outline.count("article", class_="dialogue") == 2 + 3
    links = {attrs["href"] for tag, attrs in outline.tags if tag == "a"}
    ids = {attrs.get("id") for _, attrs in outline.tags}
    assert {f"#{name}" for name in ids if name} >= links


def test_same_data_same_page(page: str) -> None:
    assert render(report()) == page


def hostile_report() -> ReportData:
    turns = [{"side": 0, "words": HOSTILE}, {"side": 1, "words": "\u202etxt\x00\ud800 😀"}]
    # Words, base sentence and kind of an attack are hostile too, and a hostile word stands for another one.
    searched = attempt(base=f"x{HOSTILE}", replaced=[0, 3], kind=HOSTILE)
    rows = [
        row(HOSTILE, turns=turns),
        attack_row("b", (1, 9), turns=turns, attempts=[searched, attempt(turn=1, base=HOSTILE)]),
        error_row("c", HOSTILE),
    ]
    estimates = {**metrics(), HOSTILE: Estimate(1, 0, 2, 40)}
    series = {HOSTILE: [(0, 1), (1, 2)], "b": [(0, 1)]}
    return report(
        title=HOSTILE,
        lead=HOSTILE,
        attack_tables=[(HOSTILE, TextTable((HOSTILE, "n"), ((HOSTILE, HOSTILE),), HOSTILE))],
        sections=[MatchSection(name=HOSTILE, description=HOSTILE, metrics=estimates, rows=rows)],
        curves=[Curve(title=HOSTILE, x_label=HOSTILE, y_label=HOSTILE, series=series)],
        commands=[HOSTILE],
        files=[(HOSTILE, HOSTILE)],
        config={HOSTILE: HOSTILE},
        environment={HOSTILE: HOSTILE},
    )


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    page = write_report(hostile_report(), tmp_path / "report.html").read_text(encoding="utf-8")
    outline = Outline(page)
    assert {tag for tag, _ in outline.tags} & {"script", "img", "iframe", "object", "embed", "link", "base"} == set()
    assert not [name for _, attrs in outline.tags for name in attrs if name.startswith("on")]
    assert "".join(outline.text).count("<script>alert(1)</script>") >= 12
    assert "49" not in words(page)


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
    cells = re.findall(r'<span class="(small-n|count)">n = (\d+)</span>\s*</div>', page)
    assert {kind for kind, n in cells if int(n) < 30} == {"small-n"}
    assert {kind for kind, n in cells if int(n) >= 30} == {"count"}
    assert page.count("fewer than 30</span>") == 1


def test_interval_direction_and_definition_stand_beside_the_value(page: str) -> None:
    text = words(page)
    assert "3.50 3.00 to 4.00" in text
    assert "80.0 % 75.0 % to 85.0 %" in text
    assert "+3.50 points ahead per dialogue" in text
    table = metric_tables(report().sections)[0]
    assert len(table.rows) == 4
    for metric in table.rows:
        assert metric.title in text
        assert metric.direction in text
        assert metric.definition in text


def test_sections_share_a_table_only_when_they_share_a_metric() -> None:
    columns = [table.columns for table in metric_tables(report().sections)]
    assert columns == [("target vs itself", "adversary vs target"), ("target, supervised",)]
    a, b, both = ({name: Estimate(1, 0, 2, 50) for name in names} for names in (["x"], ["y"], ["x", "y"]))
    sections = [MatchSection(name=name, metrics=found) for name, found in (("a", a), ("b", b), ("both", both))]
    (table,) = metric_tables(sections)
    assert table.columns == ("a", "b", "both")
    assert [[cell is None for cell in metric.cells] for metric in table.rows] == [[False, True, False], [True, False, False]]


def test_figures_of_one_name_that_mean_different_things_have_rows_of_their_own() -> None:
    def section(name: str, definition: str, *more: str) -> MatchSection:
        found = {known: Estimate(1, 0, 2, 50) for known in ("test_ppl", *more)}
        return MatchSection(name=name, metrics=found, legend={"test_ppl": Metric("test perplexity", "", definition)})

    released, plain = section("a", "released formula"), section("b", "plain formula")
    tables = metric_tables([released, plain, section("c", "plain formula")])
    assert [table.columns for table in tables] == [("a",), ("b", "c")]
    assert [table.rows[0].definition for table in tables] == ["released formula", "plain formula"]
    (table,) = metric_tables([section("a", "released formula", "x"), section("b", "plain formula", "x")])
    shown = [(row.title, row.definition, [cell is not None for cell in row.cells]) for row in table.rows]
    assert shown == [
        ("Test perplexity", "released formula", [True, False]),
        ("X", "", [True, True]),
        ("Test perplexity", "plain formula", [False, True]),
    ]


def test_metrics_that_few_readers_look_for_are_folded_away() -> None:
    everything = {name: Estimate(0.5, 0.4, 0.6, 90) for name in ATTACK_METRICS}
    (table,) = metric_tables([MatchSection(name="m", metrics=everything)])
    titles = [row.title.lower() for row in table.rows]
    assert titles[0] == "advantage"
    assert len(table.rows) + len(table.more) == len(ATTACK_METRICS)
    assert "adversary's distinct share" in {row.title.lower() for row in table.more}
    text = render(ReportData(title="t", sections=[MatchSection(name="m", metrics=everything)]))
    assert text.index("<details>") < text.index("distinct share") < text.index("</details>")


def test_intervals_of_a_row_share_one_scale() -> None:
    estimates = {"a": Estimate(-3, -4, -2, 90), "b": Estimate(3, 2, 4, 90)}
    sections = [MatchSection(name=name, metrics={"advantage": estimate}) for name, estimate in estimates.items()]
    (cells,) = [row.cells for row in metric_tables(sections)[0].rows]
    shown = [(cell.value, cell.dot, cell.zero, cell.span) for cell in cells if cell]
    assert shown == [("\N{MINUS SIGN}3.00", 18, 60, (4, 28)), ("3.00", 102, 60, (88, 28))]


def test_estimate_without_data_or_interval() -> None:
    page = render(ReportData(title="t", sections=[MatchSection(name="m", metrics={"x": Estimate(NAN, NAN, NAN, 0)})]))
    assert "none" in words(page)
    assert "nan" not in words(page).lower()
    assert 'class="interval"' not in page


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (ReportData(title="t"), "This run holds no results yet."),
        (report(sections=[MatchSection(name="m", metrics=metrics(), rows=[])], curves=[]), "Metrics"),
        (report(sections=[MatchSection(name="m", rows=[row()])], curves=[]), "There is only one dialogue."),
        (report(sections=[MatchSection(name="m", rows=[error_row("a", "no memory")])]), "1 of 1 dialogues ended in an error"),
        (report(curves=[Curve(title="c", x_label="x", y_label="y", series={})]), "Dialogues"),
    ],
    ids=["nothing", "no-rows", "one-row", "only-errors", "empty-curve"],
)
def test_missing_parts_leave_a_page_that_says_so(data: ReportData, said: str) -> None:
    assert said in words(render(data))


def test_failures_are_counted_by_reason() -> None:
    rows = [row(), *(error_row(str(i), "CheckpointError: NaN\n  where: here") for i in range(3)), error_row("x", "other")]
    text = words(render(report(sections=[MatchSection(name="m", rows=rows)])))
    assert "m: 4 of 5 dialogues ended in an error" in text
    assert "3 × CheckpointError: NaN 1 × other" in text


def test_no_page_is_better_than_half_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("engine.store.documents.os.fsync", full)
    with pytest.raises(RunError, match="No space left on device"):
        write_report(report(), path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_dialogue_shows_the_scenario_the_talk_and_the_deal() -> None:
    text = words(render(report(sections=[MatchSection(name="m", rows=[row(points=(6, 8))])])))
    assert "adversary 6 : 8 target deal Pareto optimal ended by the adversary 3 turns" in text
    assert "book 1 0 0 4 1 hat 2 2 2 0 0 ball 3 2 1 2 2" in text
    assert "adversary i would like the hats target fine , the rest for me the adversary ends the talk" in text


def refusal(**changes: Any) -> str:
    return words(render(report(sections=[MatchSection(name="m", rows=[row(points=(0, 0), **changes)])])))


def test_dialogue_without_a_deal_says_why() -> None:
    no = ["<no_agreement>"] * 6
    assert "no deal: both refused" in refusal(selection_adversary=no, selection_target=no)
    assert "no deal: the target refused" in refusal(selection_target=no)
    assert "no deal: the choices do not fit together" in refusal()
    assert "book 1 0 – 4 1" in refusal(selection_adversary=no)


def searched(**changes: Any) -> MatchSection:
    rows = [attack_row("a", (8, 2)), attack_row("b", (5, 5), **changes)]
    return MatchSection(name="reactive", metrics=attack_metrics(rows, NOTHING), rows=rows)


def test_replaced_words_are_marked_and_can_be_told_without_colour() -> None:
    page = render(report(sections=[searched()]))
    assert 'the <mark>hats</mark> <del><span class="unseen">instead of </span>ball</del></span>' in page
    assert page.count("<mark>") == page.count("<del>") == 2
    text = words(page)
    assert "adversary reactive, 1 word replaced, target ends with 63 %: it did i would like the hats instead of ball" in text


def test_both_protocols_stand_over_a_dialogue() -> None:
    text = words(render(report(sections=[searched()])))
    assert "adversary 8 : 2 target as played; with the end forced, 9 : 1 deal" in text
    assert "+8.00 where the end is forced, 95 % interval 8.00 to 8.00" in text
    plain = words(render(report(sections=[MatchSection(name="m", metrics=metrics(), rows=[row()])])))
    assert "forced" not in plain


def test_a_sentence_plugged_in_stands_beside_what_it_replaced() -> None:
    page = render(report(sections=[searched(attempts=[attempt(base="ok deal", replaced=[], kind="transfer")])]))
    assert 'like the hats <del><span class="unseen">instead of </span>ok deal</del></span>' in page


def test_budget_curves_of_reactive_attacks_have_figures() -> None:
    page = render(report(sections=[searched()]))
    assert "Advantage by replaced words" in words(page)
    text = words(page)
    assert text.count("mean over 2 dialogues with a reactive attack; bands are 95 % intervals; ") == 2
    assert (
        text.count("asks whether a sentence makes the target end the talk, or what it would then choose; gradients do not") == 1
    )
    assert (
        text.count("preemptive attacks record no steps, combined ones only those that succeeded, so neither has a curve") == 2
    )
    figures = re.findall(r"<figcaption><strong>(.*?)</strong>", page)
    assert [figure for figure in figures if figure.startswith("Advantage")] == [
        "Advantage by replaced words",
        "Advantage by queries of the target",
    ]


def test_every_attack_has_a_budget_curve_of_its_own_even_under_an_equal_name() -> None:
    page = render(report(sections=[searched(), searched(attempts=[attempt(accepted=False)])]))
    assert words(page).count("mean over 2, 2 dialogues with a reactive attack") == 2
    assert page.count(">reactive (1)</text>") == page.count(">reactive (2)</text>") == 2


@pytest.mark.parametrize(
    "attempts",
    [
        pytest.param([attempt(), attempt(kind="preemptive", steps=[])], id="only-successes-on-record"),
        pytest.param([attempt(kind="preemptive", steps=[])], id="not-reactive"),
        pytest.param([], id="none"),
    ],
)
def test_other_attacks_have_no_budget_curve(attempts: list[dict[str, Any]]) -> None:
    rows = [attack_row(key, attempts=attempts) for key in "ab"]
    assert "Advantage by" not in render(report(sections=[MatchSection(name="m", rows=rows)]))


def test_attacks_that_record_only_successes_have_no_budget_curve_even_when_all_were_reactive() -> None:
    section = MatchSection(name="m", rows=[attack_row(key) for key in "ab"], only_successes=True)
    assert "Advantage by" not in render(report(sections=[section]))


def test_a_search_that_never_went_a_step_has_no_curve() -> None:
    rows = [attack_row(attempts=[attempt(steps=attempt()["steps"][:1])])]
    assert "Advantage by" not in render(report(sections=[MatchSection(name="m", rows=rows)]))


def test_the_table_of_attacks_comes_first() -> None:
    table = TextTable(("attack", "n"), (("reactive", "200"), ("transfer", "12 few")), "How to read it.")
    outline = Outline(render(report(attack_tables=[("", table), ("others", table)])))
    assert outline.headings[:4] == [("h1", "demo"), ("h2", "Attacks"), ("h3", "others"), ("h2", "Matches")]
    assert outline.count("table", class_="attacks") == 2
    assert "attack n reactive 200 transfer 12 few How to read it." in " ".join(" ".join(outline.text).split())


def test_what_stands_below_a_figure_is_marked_as_such() -> None:
    table = TextTable(("attack", "PAR"), (("reactive", "80.2 %\n[76.5, <83.5>]"), ("transfer", "–")), "note")
    page = render(report(attack_tables=[("", table)]))
    assert '<td>80.2 % <span class="below">[76.5, &lt;83.5&gt;]</span></td>' in page
    assert "<td>–</td>" in page


def test_a_match_that_a_table_speaks_of_has_no_large_figures() -> None:
    sections = [MatchSection(name="reactive", metrics=metrics(), rows=[row()], large=False)]
    headings = Outline(render(report(sections=sections))).headings
    assert ("h2", "Matches") not in headings
    assert ("h2", "Metrics") in headings


def test_forced_end_belongs_to_nobody() -> None:
    text = refusal(forced=True, ended_by=-1)
    assert "ended by a limit" in text
    assert "a limit ends the talk" in text
    assert "the adversary ends" not in text
