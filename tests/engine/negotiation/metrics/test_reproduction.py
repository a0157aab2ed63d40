"""What of the published tables is reproduced: which figures are compared, over which trainings, and what is said of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parley.engine.core.stats.statistics import Estimate
from parley.engine.negotiation.metrics.reproduction import HARDENED, KNOWN, NO, OPEN, PLAIN, RL, SIGN, SV, YES, Reproduction

OTHERS = {
    "par": Estimate(0.5, 0.4, 0.6, 100),
    "agreement": Estimate(0.75, 0.7, 0.8, 100),
    "score_adversary": Estimate(6.5, 6.0, 7.0, 100),
    "score_target": Estimate(4.25, 4.0, 4.5, 100),
}


def gained(live: float, forced: float | None = None, half: float = 0.3) -> dict[str, Estimate]:
    """The metrics of a row, whose advantage has so wide an interval on either side."""
    found = {"advantage": Estimate(live, live - half, live + half, 100), **OTHERS}
    if forced is not None:
        found |= {"forced_advantage": Estimate(forced, forced - half, forced + half, 100)}
        found |= {f"forced_{name}": replace(each, value=each.value + 0.125) for name, each in OTHERS.items()}
    return found


@pytest.mark.parametrize(
    ("live", "half", "said"), [(4.2, 0.3, YES), (3.0, 2.0, OPEN), (3.0, 0.3, SIGN), (0.2, 0.3, NO), (-3.0, 0.3, NO)]
)
def test_a_figure_is_reproduced_where_a_narrow_interval_holds_the_published_one(live: float, half: float, said: str) -> None:
    (line,) = Reproduction({f"{SV}.rl": {1: gained(live, half=half)}}).figures().rows
    assert (line[3], line[-1]) == ("4.25", said)


def test_the_forced_figure_is_compared_where_there_is_one_and_all_trainings_count() -> None:
    told = Reproduction({f"{RL}.reactive": {1: gained(0.0, 4.0), 2: gained(0.0, 5.0)}, f"{RL}.{PLAIN}": {2: gained(0.1)}})
    plain, reactive = told.figures().rows
    assert reactive[1:4] == ("forced", reactive[2], "4.95")
    assert reactive[2].startswith("4.50 [")
    assert (plain[1], plain[3], plain[-2]) == ("live", "0.05", "1")
    (table,) = [table for heading, table in told.tables().items() if heading.startswith("Table 2")]
    assert table.note.endswith("Trainings: 1 RL agent, no attack, both choose; 2 reactive.")
    assert [row[table.columns.index("each training")] for row in table.rows] == ["", "0.00 0.00"]


def test_conclusions_are_differences_within_trainings_that_have_both() -> None:
    rows = {
        f"{RL}.rl": {1: gained(2.0), 2: gained(8.0)},
        f"{HARDENED}.rl": {2: gained(7.0)},
        f"{HARDENED}.{KNOWN}": {2: gained(-2.0)},
    }
    told = {title: cells for title, *cells in Reproduction(rows).conclusions().rows}
    fresh = told["RL attack, the best adversary: adversarial training takes from it"]
    assert fresh == ["1.00 [0.58, 1.42]", "4.12", YES]
    assert told["RL attack, the adversary of training: adversarial training takes from it"][0].startswith("10.00")
    assert not any("plain play" in title for title in told), "there is no control"


def test_agents_that_lost_their_language_are_named_with_their_trainings() -> None:
    shares = {f"{RL}.{PLAIN}": (0.0, 0.01), f"{HARDENED}.{PLAIN}": (0.4, 0.5)}
    rows = {
        row: {
            number: gained(1.0) | {"repetition_target": Estimate(share, 0, 1, 100)}
            for number, share in enumerate(each, start=1)
        }
        for row, each in shares.items()
    }
    rows[f"{SV}.{PLAIN}"] = {1: gained(1.0)}
    told = Reproduction(rows)
    table = told.tables()["Whether the agents still speak"]
    assert table.columns == ("repetition in plain play", "training 1", "training 2")
    assert table.rows == (("the RL agent", "0.00", "0.01"), ("the RL agent after adversarial training", "0.40", "0.50"))
    lost = "Have lost their language, so that what is taken from them says little: "
    lost += "the RL agent after adversarial training in trainings 1 and 2."
    assert table.note.endswith(lost)
    assert told.conclusions().note.endswith(lost)
    del rows[f"{HARDENED}.{PLAIN}"]
    assert Reproduction(rows).lost() == ""
    assert "Whether the agents still speak" not in Reproduction({f"{SV}.{PLAIN}": {1: gained(1.0)}}).tables()


def test_every_column_of_the_papers_tables_stands_beside_what_was_measured_like_it() -> None:
    told = Reproduction({f"{SV}.{PLAIN}": {1: gained(2.0)}, f"{SV}.reactive": {1: gained(0.0, 4.0)}})
    table = told.figures()
    assert table.columns == (
        "figure", "protocol", "advantage", "published", "PAR", "published", "points", "published", "agreement", "published",
        "within", "trainings", "reproduced",
    )  # fmt: skip
    plain, forced = table.rows
    assert plain[4:10] == (
        "50.0 % [40.0, 60.0]", "75.79 %", "6.50 : 4.25 [6.00, 7.00] : [4.00, 4.50]", "7.23 : 4.55",
        "75.0 % [70.0, 80.0]", "89.57 %",
    )  # fmt: skip
    assert forced[4:10] == (
        "62.5 % [40.0, 60.0]", "87 %", "6.62 : 4.38 [6.00, 7.00] : [4.00, 4.50]", "8.83 : 3.43",
        "87.5 % [70.0, 80.0]", "100 %",
    )  # fmt: skip
    assert (plain[10], forced[10]) == ("–", "–"), "no column is within"
    like = {"advantage": 2.5, "par": 0.76, "score_adversary": 7.0, "score_target": 4.5, "agreement": 0.9}
    near = {name: Estimate(value, value - 0.25, value + 0.25, 100) for name, value in like.items()}
    one = near | {"score_target": Estimate(4.0, 3.75, 4.25, 100), "agreement": Estimate(0.5, 0.4, 0.6, 100)}
    told_of = [Reproduction({f"{SV}.{PLAIN}": {1: metrics}}).figures().rows[0][10] for metrics in (near, one)]
    assert told_of == ["advantage, PAR, points, agreement", "advantage, PAR"]
    assert told.figures(brief=True).rows[0][4:10] == ("50.0 %", "75.79 %", "6.50 : 4.25", "7.23 : 4.55", "75.0 %", "89.57 %")
    assert told.as_json()["figures"][0]["points published"] == "7.23 : 4.55"
