"""The table of attacks as text: which figures stand in it, what is absent, and its Markdown."""

from __future__ import annotations

from parley.engine.core.stats.statistics import Estimate, count
from parley.engine.core.tables.table import EstimateTable
from parley.engine.negotiation.metrics.attack import ATTACK_METRICS, ATTACKS
from parley.engine.negotiation.metrics.attack_table import ROWS, TABLE_2, TURNS, attack_table

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
    "forced_score_adversary": Estimate(8.1, 8, 8.2, 200),
    "forced_score_target": Estimate(3, 2.75, 3.25, 200),
    "forced_par": Estimate(0.9, 0.85, 0.95, 200),
    "forced_agreement": Estimate(0.98, 0.96, 0.99, 200),
    "attack_ppl": Estimate(28.846, 18, 47, 60),
    "unusual_share": SHARE,
    "seconds": count(2.0, 200),
}
POINTS = "6.18 : 6.38 [6.00, 7.00] : [6.00, 7.00]"
SHARES = "40.8 % [30.0, 50.0] | 96.0 % [90.0, 100.0]"
PAR, TALKED = "50.0 % [40.0, 60.0]", "2.23 [2.00, 3.00] | – | 0.00213 | 200"
MARKDOWN = f"""\
| attack | advantage, live | advantage, forced | advantage, published | points, live | points, forced | points, published | \
PAR, live | PAR, forced | PAR, published | wins | agreement | agreement, forced | agreement, published | \
fluency | unusual | seconds | n |
| ---{" | ---:" * 17} |
| no attack | −0.21 [−0.38, −0.05] | – | 2.68 | {POINTS} | – | 7.23 : 4.55 | {PAR} | – | 75.8 % \
| {SHARES} | – | 89.6 % | {TALKED} |
| transfer | −0.21 [−0.38, −0.05] | – | −0.13 | {POINTS} | – | 6.41 : 6.54 | {PAR} | – | 44.4 % \
| {SHARES} | – | 100.0 % | {TALKED} |
| reactive | 2.50 [2.25, 2.75] | 5.10 [4.90, 5.30] | 5.40 | {POINTS} | 8.10 : 3.00 [8.00, 8.20] : [2.75, 3.25] | 8.83 : 3.43 | \
{PAR} | 90.0 % [85.0, 95.0] | 87.0 % | {SHARES} | 98.0 % [96.0, 99.0] | 100.0 % | 28.85 [18.00, 47.00] | {PAR} | 2 | 200 |
"""


def by_row(**rows: dict[str, Estimate]) -> dict[str, Estimate]:
    return {f"{row}.{name}": estimate for row, metrics in rows.items() for name, estimate in metrics.items()}


def cells(table: EstimateTable, *names: str) -> list[tuple[str, ...]]:
    """The cells of some columns."""
    places = [table.columns.index(name) for name in names]
    return [tuple(row[place] for place in places) for row in table.rows]


def test_markdown_of_a_table_beside_published_figures() -> None:
    table = attack_table(by_row(reactive=SEARCHED, none=PLAIN, transfer=PLAIN), published=ATTACKS["sv"])
    text = table.to_markdown()
    assert text == f"{MARKDOWN}\n{table.note}\n"
    assert "Published: Cheng et al. 2019" in table.note
    assert "Few:" not in table.note


def test_intervals_stand_below_their_figures() -> None:
    table = attack_table(by_row(reactive=SEARCHED))
    below = {name: cell.split("\n")[1:] for name, cell in zip(table.columns, table.rows[0], strict=True)}
    assert below == {
        "attack": [],
        "advantage, live": ["[2.25, 2.75]"],
        "advantage, forced": ["[4.90, 5.30]"],
        "points, live": ["[6.00, 7.00] : [6.00, 7.00]"],
        "PAR, live": ["[40.0, 60.0]"],
        "wins": ["[30.0, 50.0]"],
        "agreement": ["[90.0, 100.0]"],
        "fluency": ["[18.00, 47.00]"],
        "unusual": ["[40.0, 60.0]"],
        "seconds": [],
        "n": [],
    }


def test_a_published_figure_stands_beside_the_forced_one_that_is_like_it() -> None:
    table = attack_table(by_row(rl=PLAIN, reactive=SEARCHED), published=ATTACKS["rl"])
    points = cells(table, "points, live", "points, forced", "points, published")
    par = cells(table, "PAR, live", "PAR, forced", "PAR, published")
    assert (points[0][1:], par[0][1:]) == (("–", "7.11 : 4.79"), ("–", "69.3 %")), "no search, so nothing was forced"
    assert points[1] == ("6.18 : 6.38\n[6.00, 7.00] : [6.00, 7.00]", "8.10 : 3.00\n[8.00, 8.20] : [2.75, 3.25]", "8.72 : 3.77")
    assert par[1] == ("50.0 %\n[40.0, 60.0]", "90.0 %\n[85.0, 95.0]", "90.2 %")
    columns = attack_table(by_row(rl=PLAIN, reactive=SEARCHED)).columns
    assert not {"points, forced", "PAR, forced"} & set(columns)


def test_published_figures_agree_with_each_other() -> None:
    # The advantages that the paper prints beside the points, in its order.
    printed = {
        "sv": [2.68, 4.25, -0.13, 5.40, 2.81, 5.83, 5.62],
        "rl": [0.05, 2.32, -1.19, 4.95, 0.77, 5.78, 5.70],
        "hardened": [-0.13, -1.80, -2.66, 4.52, -1.77, 3.98, 3.93],
        "turns": [5.52, 4.95, 5.19, 4.84],
    }
    assert {name: [attack.advantage for attack in attacks.values()] for name, attacks in ATTACKS.items()} == printed
    for attacks in ATTACKS.values():
        assert all(0.2 < attack.par < 1 for attack in attacks.values())
        assert all(attack.advantage == round(attack.points[0] - attack.points[1], 2) for attack in attacks.values())
        assert all((attack.agreement == 1) == (row != "none") for row, attack in attacks.items())
    assert ATTACKS["turns"]["reactive-2"] == ATTACKS["rl"]["reactive"], "table 7 is of the RL target, as this row of table 2"


def test_fixed_turns_stand_beside_those_of_table_7() -> None:
    assert list(TURNS.items()) == [(f"reactive-{n}", n) for n in (1, 2, 3, 4)]
    table = attack_table(by_row(**dict.fromkeys(TURNS, SEARCHED)), published=ATTACKS["turns"])
    assert cells(table, "attack", "advantage, published", "PAR, published", "agreement, published") == [
        ("reactive after 1 utterance", "5.52", "94.0 %", "100.0 %"),
        ("reactive after 2 utterances", "4.95", "90.2 %", "100.0 %"),
        ("reactive after 3 utterances", "5.19", "92.0 %", "100.0 %"),
        ("reactive after 4 utterances", "4.84", "90.3 %", "100.0 %"),
    ]


def test_a_screen_has_room_for_the_intervals_of_advantages_alone() -> None:
    whole, brief = (
        attack_table(
            by_row(rl=PLAIN, reactive=SEARCHED), published=ATTACKS["rl"], baseline=by_row(reactive=SEARCHED), brief=brief
        )
        for brief in (False, True)
    )
    kinds = ("forced", "published")
    gone = {f"{figure}, {kind}" for figure in ("points", "PAR", "agreement") for kind in kinds}
    assert brief.columns == tuple(name for name in whole.columns if name not in gone)
    for name in brief.columns:
        shown, full = cells(brief, name), cells(whole, name)
        if name.startswith(("advantage", "before")):
            assert shown == full
        else:
            assert shown == [(cell.split("\n")[0],) for (cell,) in full]
    assert brief.note == whole.note


def test_published_figures_are_shown_where_there_are_any() -> None:
    metrics = by_row(**{"none": PLAIN, "rl": PLAIN, "ra-pa-ta": SEARCHED})
    beside = attack_table(metrics, published=ATTACKS["sv"])
    assert cells(beside, "advantage, published") == [("2.68",), ("4.25",), ("5.62",)]
    table = attack_table(metrics)
    assert not [name for name in table.columns if "published" in name]
    assert "Published" not in table.note
    assert {len(row) for row in table.rows} == {len(table.columns)}


def test_another_target_stands_beside() -> None:
    metrics = by_row(none=PLAIN, rl=PLAIN, reactive=SEARCHED)
    before = by_row(rl={"advantage": Estimate(3.0, 2.5, 3.5, 200)}, reactive=PLAIN, transfer=PLAIN)
    table = attack_table(metrics, published=ATTACKS["hardened"], baseline=before)
    assert cells(table, "attack", "before, live", "before, forced") == [
        ("no attack", "–", "–"),
        ("RL attack", "3.00\n[2.50, 3.50]", "–"),
        ("reactive", "−0.21\n[−0.38, −0.05]", "–"),
    ]
    assert "Before: the same attack" in table.note
    assert {len(row) for row in table.rows} == {len(table.columns)}
    alone = attack_table(metrics, published=ATTACKS["hardened"])
    assert [name for name in table.columns if not name.startswith("before")] == list(alone.columns)
    assert "Before" not in alone.note


def test_rows_stand_in_the_order_of_the_publication() -> None:
    shuffled = by_row(**dict.fromkeys(reversed(ROWS), PLAIN))
    assert [row[0] for row in attack_table(shuffled).rows] == list(ROWS.values())
    for name, attacks in ATTACKS.items():
        assert set(attacks) == set(TURNS if name == "turns" else TABLE_2)


def test_every_figure_of_the_table_is_a_metric() -> None:
    assert set(SEARCHED) <= set(ATTACK_METRICS)
