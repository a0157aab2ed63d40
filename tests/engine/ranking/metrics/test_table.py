"""Tables of an evaluation of rankers in the layout of the paper, published figures beside."""

from __future__ import annotations

from typing import Any

import pytest

from parley.engine.core.stats.statistics import Estimate, count
from parley.engine.core.tables.table import EstimateTable
from parley.engine.ranking.metrics.ranking import RankedRows, ranking_metrics
from parley.engine.ranking.metrics.table import EvaluationInfo, differences, overview, tables
from tests.engine.ranking.metrics.ranked_rows import KEEPS, attacked

AS_THEY_ARE, KEEPING, OTHERS = "Candidates as they are", "Rules that keep labels", "Rules that make wrong replies of right ones"


def metrics() -> dict[str, Estimate]:
    """Of 80 contexts that all go wrong under IIW, but for every fourth, which it leaves as it is."""
    found = [attacked(number, [1.0, 2.0, 3.0], touched=number % 4 > 0) for number in range(80)]
    return ranking_metrics(RankedRows(found))


def shown(**changes: Any) -> EvaluationInfo:
    return EvaluationInfo(**{"rules": KEEPS, "controls": ["constant"], "size": 3, **changes})


def cells(table: EstimateTable, name: str) -> list[str]:
    """What stands in a line, without intervals."""
    (row,) = (row[1:] for row in table.rows if row[0] == name)
    return [cell.split("\n")[0] for cell in row]


def test_all_rankers_at_a_glance() -> None:
    table = overview(metrics(), shown())
    assert table.columns == ("ranker", "clean R3@1", "iiw R3@1", "sow A3@1", "n")
    assert table.rows[0][1:3] == ("1.00\n[0.91, 1.00]", "0.00\n[0.00, 0.09]\n−1.00*")
    assert cells(table, "constant") == ["0.33", "0.33", "0.33", "40"]
    assert "Untouched contexts, left out of the figures: iiw 25.0 %." in table.note
    assert table.note.endswith("Controls, to be beaten: constant.")


def test_rules_that_keep_labels_and_others_have_a_table_each() -> None:
    found = tables(metrics(), shown())
    assert [*found] == [AS_THEY_ARE, KEEPING, OTHERS, "What the rules changed"]
    keeping = found[KEEPING]
    assert keeping.columns == ("ranker, rule", "R2@1", "R3@1", "R3@2", "R3@5", "ties right : wrong", "change", "n")
    assert [row[0] for row in keeping.rows] == ["mine, clean", "mine, iiw", "constant, clean", "constant, iiw"]
    assert cells(keeping, "mine, iiw") == ["0.00", "0.00", "0.00", "1.00", "–", "−1.00*", "40"]
    assert cells(keeping, "constant, iiw")[4:6] == ["1.00 : 0.00", "0.00"]
    others = found[OTHERS]
    assert others.columns[1:5] == ("A2@1", "A3@1", "A3@2", "A3@5")
    assert [row[0] for row in others.rows] == ["mine, sow", "constant, sow"]
    assert others.note.startswith("What the rule left of the right reply is the relevant one: lower is better.")
    changed = found["What the rules changed"]
    assert changed.columns[-1] == "dialogues"
    assert cells(changed, "iiw") == ["25.0 %", "1.00", "40"]
    assert cells(changed, "sow") == ["0.0 %", "3.00", "40"]


def test_all_metrics_of_candidates_as_they_are_stand_side_by_side() -> None:
    found = tables(metrics(), shown(rules={}, kinds={"mine": "smn"}, corpus="ubuntu"))
    assert [*found] == [AS_THEY_ARE]
    table = found[AS_THEY_ARE]
    assert table.columns == ("ranker", "R2@1", "R3@1", "R3@2", "R3@5", "MAP", "MRR", "P@1", "ties right : wrong", "n")
    assert [row[0] for row in table.rows[:3]] == ["mine", "published", "constant"]
    assert cells(table, "mine") == ["1.00"] * 7 + ["–", "40"]
    assert table.rows[1][1:] == ("0.926", "0.726", "0.847", "0.961", *["–"] * 4, "")
    assert cells(table, "constant") == ["0.50", "0.33", "0.67", "1.00", "0.61", "0.61", "0.33", "1.00 : 0.00", "40"]


def test_several_right_replies_ask_for_other_columns() -> None:
    columns = tables(metrics(), shown(several=True))[KEEPING].columns
    assert columns[1:7] == ("MAP", "MRR", "P@1", "R3@1", "R3@2", "R3@5")


def test_of_several_right_replies_the_first_place_is_counted_by_contexts() -> None:
    # R15@1 of five right replies is one fifth at most.
    rows = [attacked(number, [1.0, 2.0, 3.0]) | {"labels": [True, True, False]} for number in range(40)]
    found = ranking_metrics(RankedRows(rows))
    assert (found["r@1.mine.clean"].value, found["p@1.mine.clean"].value) == (0.5, 1.0)
    assert found["p@1_change.mine.iiw"].value == -1.0
    assert "r@1_change.mine.iiw" not in found
    table = overview(found, shown(several=True))
    assert table.columns == ("ranker", "clean P@1", "iiw P@1", "sow A@1", "n")
    assert cells(table, "mine")[:2] == ["1.00", "0.00"]
    assert table.note.startswith("P@1: how often a right reply is first")


def test_wrong_replies_of_several_sources_are_told_apart() -> None:
    # The random one is behind the right reply, the adversarial one before it.
    row = attacked(0, [2.0, 1.0, 3.0]) | {"kinds": ["positive", "random", "adversarial"]}
    row["ranked"][0]["scores"] = [2.0, 1.0, 3.0]
    found = ranking_metrics(RankedRows([row]))
    assert [found[f"p@1{kind}.mine.clean"].value for kind in ("", "_among_random", "_among_adversarial")] == [0.0, 1.0, 0.0]
    assert found["mrr_among_adversarial.mine.clean"].value == 0.5
    table = tables(found, shown())["By where wrong replies come from"]
    assert table.columns == (
        "ranker",
        "MAP, random",
        "MRR, random",
        "P@1, random",
        "MAP, adversarial",
        "MRR, adversarial",
        "P@1, adversarial",
        "n",
    )
    assert cells(table, "mine") == ["1.00", "1.00", "1.00", "0.50", "0.50", "0.00", "1 few"]
    assert "By where wrong replies come from" not in tables(metrics(), shown())


def test_published_figures_stand_below_a_model_of_their_kind_and_at_the_end() -> None:
    found = tables(metrics(), shown(corpus="ubuntu", kinds={"mine": "smn"}))
    names = [row[0] for row in found[KEEPING].rows]
    assert names[:4] == ["mine, clean", "published", "mine, iiw", "published"]
    assert names[6:] == [f"{model}, {rule}, published" for model in ("DAM", "MRFN") for rule in ("clean", "iiw")]
    assert found[KEEPING].rows[3][1:] == ("0.625", "0.345", "0.443", "0.622", "–", "–", "")
    assert found[OTHERS].rows[1][:3] == ("published", "0.917", "0.711")
    douban = tables(metrics(), shown(corpus="douban", kinds={"mine": "smn"}))[KEEPING]
    assert douban.rows[1][1:7] == ("0.529", "0.569", "0.397", "0.233", "0.396", "0.724")
    assert "absolute values cannot" in douban.note


def trained() -> dict[str, Estimate]:
    """IIW misleads "mine" always, "hard" never, and "as-long" in every other dialogue."""
    rows = [attacked(number, [1.0, 2.0, 3.0]) for number in range(80)]
    for number, row in enumerate(rows):
        row["ranked"] = row["ranked"][:3] + attacked(number, [3.0, 2.0, 1.0], model="hard")["ranked"][:3]
        half = [3.0, 2.0, 1.0] if number % 4 < 2 else [1.0, 2.0, 3.0]
        row["ranked"] += attacked(number, half, model="as-long")["ranked"][:3]
    found = RankedRows(rows)
    return ranking_metrics(found) | differences(found, [("hard", "mine"), ("hard", "as-long"), ("as-long", "mine")])


def test_trainings_stand_beside_their_base() -> None:
    beside = shown(trainings={"hard": (["iiw", "sow", "rnpv"], "mine")}, kinds={"hard": "smn"}, corpus="ubuntu")
    found = tables(trained(), beside)
    keeping, others = found["Training against rules that keep labels"], found["Training against other rules"]
    assert keeping.columns[1:4] == ("R3@1 before", "R3@1 after", "R3@1 change")
    assert keeping.columns[4:] == ("attacked R3@1 before", "attacked R3@1 after", "attacked R3@1 change", "n")
    assert cells(keeping, "hard, iiw") == ["1.00", "1.00", "0.00", "0.00", "1.00", "1.00*", "40"]
    assert keeping.rows[1] == ("published", "0.726", "0.737", "0.011", "0.345", "0.458", "0.113", "")
    assert others.columns[4:6] == ("attacked A3@1 before", "attacked A3@1 after")
    assert [row[0] for row in others.rows] == ["hard, sow", "published"]
    assert others.rows[1][1:] == ("0.726", "0.723", "−0.003", "0.711", "0.057", "−0.654", "")
    against = {"trainings": {"hard": (["rsw"], "mine")}, "kinds": {"hard": "mrfn"}}
    fused = shown(**against, rules={**KEEPS, "rsw": True}, corpus="ubuntu")
    repeated = tables(trained(), fused)["Training against rules that keep labels"].rows[1]
    assert repeated[1:7] == ("0.786", "0.789", "0.003", "0.529", "0.596", "0.067"), "of table 5, not .569 of table 3"
    alone = tables(trained(), shown(trainings={"hard": (["iiw"], "")}))["Training against rules that keep labels"]
    assert cells(alone, "hard, iiw")[:6] == ["–", "1.00", "–", "–", "1.00", "–"]


def test_trainings_stand_beside_the_control_that_was_trained_as_long() -> None:
    trainings = {"hard": (["iiw"], "mine"), "as-long": ([], "mine"), "another": ([], "other")}
    table = tables(trained(), shown(trainings=trainings, corpus="ubuntu"))["Training against rules that keep labels"]
    assert [row[0] for row in table.rows] == ["hard, iiw", "as-long (control), iiw"]
    assert table.columns[7:] == ("R3@1 less control", "attacked R3@1 less control", "n")
    assert cells(table, "hard, iiw")[6:8] == ["0.00", "0.50*"]
    assert table.rows[0][8] == "0.50*\n[0.33, 0.65]"
    assert cells(table, "as-long (control), iiw") == ["1.00", "1.00", "0.00", "0.00", "0.50", "0.50*", "–", "–", "40"]


def test_rankers_stand_beside_one_another() -> None:
    heading = "Rankers beside one another"
    assert heading not in tables(metrics(), shown()), "a control alone is beside"
    table = tables(trained(), shown(trainings={"hard": (["iiw"], "mine"), "as-long": ([], "mine")}))[heading]
    assert table.columns == ("rankers", "clean R3@1", "iiw R3@1", "sow A3@1", "n")
    assert [row[0] for row in table.rows] == ["hard less mine", "hard less as-long", "as-long less mine"]
    assert cells(table, "hard less as-long") == ["0.00", "0.50*", "0.00", "40"]


@pytest.mark.parametrize(("unranked", "told"), [("left-out", "left out"), ("zero", "worth 0")])
def test_contexts_with_nothing_to_rank_are_told(unranked: Any, told: str) -> None:
    rows = [attacked(number, [3.0, 2.0, 1.0]) for number in range(8)]
    rows[0]["labels"], rows[1]["labels"] = [False] * 3, [True] * 3
    note = overview(ranking_metrics(RankedRows(rows, unranked=unranked)), shown(unranked=unranked)).note
    assert f"Without a right or a wrong reply, {told}: 2 of 8 contexts." in note
    assert "Without a right" not in overview(metrics(), shown()).note


def test_rankers_without_scores_are_named() -> None:
    found = metrics() | {"failed.mine": count(3, 80)}
    note = "No scores under one rule at least: mine for 3 of 80 contexts."
    assert note in overview(found, shown()).note
    assert note in tables(found, shown())[KEEPING].note
