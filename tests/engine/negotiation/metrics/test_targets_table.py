"""Who stands up to which attack: which figures stand in which column, and which is the strongest."""

from __future__ import annotations

from parley.engine.core.stats.statistics import Estimate
from parley.engine.negotiation.metrics.attack_table import strongest_attack, targets_table, titles_of

TRAINED = ("runs/minmax", "runs/other")


def gains(**advantages: float) -> dict[str, Estimate]:
    return {
        f"{row.replace('__', '+').replace('_', '-')}.advantage": Estimate(value, value - 1, value + 1, 100)
        for row, value in advantages.items()
    }


def shown(**advantages: float) -> dict[str, tuple[str, ...]]:
    table = targets_table(gains(**advantages), TRAINED)
    assert table is not None
    return {row[0]: tuple(cell.split("\n")[0] for cell in row[1:]) for row in (table.columns, *table.rows)}


def test_each_attack_has_a_line_for_what_it_was_made_for() -> None:
    found = shown(
        none=-1.0, none__filter=-1.25, none__trained1=-2.5, rl=3.0, rl__filter=2.75, rl__filter_known=2.8, rl__trained1=0.5,
        rl__trained1_adaptive=1.5, reactive=2.0, reactive__filter=-1.5, reactive__filter_known=-0.5, reactive__trained1=-2.0,
        reactive__trained1_adaptive=0.25, trigger=5.0, trigger__trained1_adaptive=4.0,
        strongest=4.75, strongest__filter=2.75, strongest__trained1=3.75,
    )  # fmt: skip
    assert found == {
        "attack": ("target", "perplexity filter", "runs/minmax"),
        "no attack": ("−1.00", "−1.25", "−2.50"),
        "RL attack": ("3.00", "2.75", "0.50"),
        "RL attack, adaptive": ("3.00", "2.80", "1.50"),
        "reactive": ("2.00", "−1.50", "−2.00"),
        "reactive, adaptive": ("2.00", "−0.50", "0.25"),
        "searched words": ("5.00", "–", "–"),
        "searched words, adaptive": ("5.00", "–", "4.00"),
        "strongest": ("4.75", "2.75", "3.75"),
    }


def test_plain_play_says_what_a_defence_costs() -> None:
    metrics = gains(none=0.0, none__trained2=0.0)
    for row, points, deals in (("plain", 4.0, 0.5), ("plain+trained2", 6.5, 0.875)):
        metrics |= {f"{row}.score_target": Estimate(points, 3, 7, 100), f"{row}.agreement": Estimate(deals, 0.25, 0.9, 100)}
    table = targets_table(metrics, TRAINED)
    assert table is not None
    assert table.columns == ("attack", "target", "runs/other")
    assert table.rows[:2] == (
        ("plain play: target's points", "4.00\n[3.00, 7.00]", "6.50\n[3.00, 7.00]"),
        ("plain play: agreement", "50.0 %\n[25.0, 90.0]", "87.5 %\n[25.0, 90.0]"),
    )
    assert [row[0] for row in table.rows] == [*(row[0] for row in table.rows[:2]), "no attack"], (
        "nobody attacks: none is strongest"
    )


def test_a_target_alone_has_no_such_table() -> None:
    assert targets_table(gains(none=0.0, rl=3.0)) is None


def test_rows_are_titled_by_what_stands_in_the_targets_place() -> None:
    titles = titles_of(("runs/minmax",))
    own = {
        row: title for row, title in titles.items() if "trained" in row and row.startswith(("none", "rl", "trigger+", "tactic"))
    }
    assert own == {
        "none+trained1": "no attack, runs/minmax",
        "rl+trained1": "RL attack, runs/minmax",
        "rl+trained1-adaptive": "RL attack, runs/minmax, adaptive",
        "trigger+trained1-adaptive": "searched words, runs/minmax, adaptive",
        "tactic+trained1": "refined tactic, runs/minmax",
        "tactic+trained1-adaptive": "refined tactic, runs/minmax, adaptive",
        "tactic-none+trained1": "chat player, no tactic, runs/minmax",
        "tactic-gains+trained1": "tactics by gains, runs/minmax",
        "tactic-gains+trained1-adaptive": "tactics by gains, runs/minmax, adaptive",
        "tactic-blind+trained1": "tactics drawn blind, runs/minmax",
        "tactic-blind+trained1-adaptive": "tactics drawn blind, runs/minmax, adaptive",
    }
    against = [
        row for row in titles if row.startswith(("none+", "rl+", "transfer+", "reactive+", "tactic+")) and "trained" not in row
    ]
    assert against == [
        "none+filter", "none+own-demand",
        "rl+filter", "rl+filter-known", "rl+own-demand", "rl+own-demand-known",
        "transfer+filter", "transfer+filter-known", "transfer+own-demand", "transfer+own-demand-known",
        "reactive+filter", "reactive+filter-known", "reactive+own-demand",
    ]  # fmt: skip


def test_what_won_nothing_is_no_dash() -> None:
    table = targets_table(gains(rl=3.0, transfer=1.0, rl__trained1=0.5), TRAINED, {"transfer+trained1-adaptive"})
    assert table is not None
    found = {row[0]: tuple(cell.split("\n")[0] for cell in row[1:]) for row in table.rows}
    assert found["transfer, adaptive"] == ("1.00", "no sentence")
    assert "No sentence" in table.note
    assert "No sentence" not in (targets_table(gains(rl=3.0, rl__trained1=0.5), TRAINED) or table).note


def test_tactics_stand_behind_the_player_without_one() -> None:
    found = shown(**{"rl": 1.0, "tactic": 3.0, "tactic-none": 4.0, "tactic__trained1": 2.0, "tactic-none__trained1": 5.0})
    assert list(found)[2:] == ["chat player, no tactic", "refined tactic"], "they have other dialogues than attacks"
    ended = shown(rl=1.0, rl__trained1=2.0, strongest=0.75)
    assert ended["strongest"] == ("0.75", "–"), "as it was measured, never the largest figure of the column"


def test_the_strongest_attack_is_measured_where_it_was_not_chosen() -> None:
    keys = [f"{number:02d}" for number in range(8)]
    # Either is best in the dialogues that the other half measures.
    even, odd = ({key: float(int(key) % 2 == rest) for key in keys} for rest in (0, 1))
    assert strongest_attack([even, odd]).value == 0
    assert strongest_attack([even, dict.fromkeys(keys, 2.0)]).value == 2
    shared = strongest_attack([{**even, "99": 9.0}, even])
    assert (shared.value, shared.n) == (0.5, 8), "in dialogues that all have"
    assert strongest_attack([]).n == strongest_attack([even, {"99": 1.0}]).n == 0
