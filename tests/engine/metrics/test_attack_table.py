"""The table of attacks as text: which figures stand in it, what is absent, and its Markdown."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from engine.metrics.attack import ATTACK_METRICS
from engine.metrics.attack_table import ROWS, AttackLine, TextTable, attack_table, table_lines
from engine.metrics.published import ADVANTAGE
from engine.metrics.statistics import Estimate, count

SHARE = Estimate(0.5, 0.4, 0.6, 200)
PLAIN = {
    "advantage": Estimate(-0.21, -0.38, -0.05, 200),
    "par": SHARE,
    "par_strict": Estimate(0.408, 0.3, 0.5, 200),
    "score_adversary": Estimate(6.184, 6, 7, 200),
    "score_target": Estimate(6.38, 6, 7, 200),
    "agreement": Estimate(0.96, 0.9, 1, 200),
    "fluency_ppl": Estimate(2.23, 2, 3, 200),
    "seconds": count(0.00213, 200),
}
SEARCHED = {
    **PLAIN,
    "advantage": Estimate(2.5, 2.25, 2.75, 200),
    "forced_advantage": Estimate(5.1, 4.9, 5.3, 200),
    "attack_ppl": Estimate(28.846, 18, 47, 60),
    "unusual_share": SHARE,
    "seconds": count(2.0, 200),
}
MARKDOWN = """\
| attack | advantage, live | advantage, forced | published | PAR | wins | points | agreement | fluency | unusual | seconds | n |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| no attack | −0.21 [−0.38, −0.05] | – | – | 50.0 % | 40.8 % | 6.18 : 6.38 | 96.0 % | 2.23 | – | 0.00213 | 200 |
| transfer | −0.21 [−0.38, −0.05] | – | −1.19 | 50.0 % | 40.8 % | 6.18 : 6.38 | 96.0 % | 2.23 | – | 0.00213 | 200 |
| reactive | 2.50 [2.25, 2.75] | 5.10 [4.90, 5.30] | 4.95 | 50.0 % | 40.8 % | 6.18 : 6.38 | 96.0 % | 28.85 | 50.0 % | 2 | 200 |
"""


def named(**rows: dict[str, Estimate]) -> dict[str, Estimate]:
    return {f"{row}.{name}": estimate for row, metrics in rows.items() for name, estimate in metrics.items()}


def test_markdown_of_a_table_beside_published_figures() -> None:
    table = attack_table(table_lines(named(reactive=SEARCHED, none=PLAIN, transfer=PLAIN), "rl"))
    text = table.to_markdown()
    assert text == f"{MARKDOWN}\n{table.note}\n"
    assert "Published: advantage in Cheng et al. 2019" in table.note
    assert "Few:" not in table.note


def test_published_figures_are_shown_where_there_are_any() -> None:
    metrics = named(**{"none": PLAIN, "rl": PLAIN, "ra-pa-ta": SEARCHED})
    assert [line.published for line in table_lines(metrics, "sv")] == [None, 4.25, 5.62]
    assert [line.published for line in table_lines(metrics, "none")] == [None, None, None]
    table = attack_table(table_lines(metrics, "none"))
    assert "published" not in table.columns
    assert "Published" not in table.note
    assert {len(row) for row in table.rows} == {len(table.columns)}


def test_another_target_stands_beside() -> None:
    metrics = named(none=PLAIN, rl=PLAIN, reactive=SEARCHED)
    before = named(rl={"advantage": Estimate(3.0, 2.5, 3.5, 200)}, reactive=PLAIN, transfer=PLAIN)
    table = attack_table(table_lines(metrics, "hardened", before))
    places = [table.columns.index(name) for name in ("attack", "before, live", "before, forced")]
    assert [tuple(row[place] for place in places) for row in table.rows] == [
        ("no attack", "–", "–"),
        ("RL attack", "3.00 [2.50, 3.50]", "–"),
        ("reactive", "−0.21 [−0.38, −0.05]", "–"),
    ]
    assert "Before: the same attack" in table.note
    assert {len(row) for row in table.rows} == {len(table.columns)}
    alone = attack_table(table_lines(metrics, "hardened"))
    assert [name for name in table.columns if not name.startswith("before")] == list(alone.columns)
    assert "Before" not in alone.note


def test_rows_stand_in_the_order_of_the_publication() -> None:
    shuffled = named(**dict.fromkeys(reversed(ROWS), PLAIN))
    assert [line.title for line in table_lines(shuffled, "sv")] == list(ROWS.values())
    assert all(set(figures) == set(ROWS) - {"none"} for figures in ADVANTAGE.values())


@pytest.mark.parametrize("name", ["advantage", "forced_advantage", "par", "attack_ppl", "unusual_share", "seconds"])
def test_what_could_not_be_estimated_is_a_dash(name: str) -> None:
    whole = attack_table([AttackLine("a", SEARCHED)])
    nothing = replace(SEARCHED[name], value=math.nan, low=math.nan, high=math.nan)
    broken = attack_table([AttackLine("a", SEARCHED | {name: nothing})])
    changed = [
        (column, now) for column, now, before in zip(whole.columns, broken.rows[0], whole.rows[0], strict=True) if now != before
    ]
    assert [now for _, now in changed] == ["–"]


def test_few_dialogues_are_flagged() -> None:
    few = {name: replace(estimate, n=12) for name, estimate in PLAIN.items()}
    table = attack_table([AttackLine("a", few), AttackLine("b", PLAIN)])
    assert [row[-1] for row in table.rows] == ["12 few", "200"]
    assert "Few: fewer than 30 dialogues" in table.note


def test_every_figure_of_the_table_is_a_metric() -> None:
    assert set(SEARCHED) <= set(ATTACK_METRICS)


def test_a_title_cannot_break_out_of_its_cell() -> None:
    table = TextTable(("attack", "n"), (("a | b", "1"),), "note")
    assert table.to_markdown() == "| attack | n |\n| --- | ---: |\n| a \\| b | 1 |\n\nnote\n"
