"""Hardening against triggers: what all known inputs reach in each model, and where they cannot be typed."""

from __future__ import annotations

import pytest

from parley.engine.core.stats.statistics import Estimate
from parley.engine.triggers.metrics.transfer import NO_INPUT, KnownInputs, hardening_table

MODELS = {"m": "start", "hardened-round-1": "round-1", "hardened-control": "control"}
ATTACKS = {f"search-{name}": name for name in MODELS.values()}
REACHED = {
    # Inputs of the start still reach target 0 of the hardened model, though its own search found nothing.
    "m": {"search-start": [0, 1, 2], "search-round-1": [0], "search-control": [], NO_INPUT: []},
    "hardened-round-1": {"search-start": [0], "search-round-1": [], "search-control": [3], NO_INPUT: []},
    "hardened-control": {"search-start": [0, 1], "search-round-1": [], "search-control": [1, 2, 3], NO_INPUT: [3]},
}


def known_inputs(failed: str = "") -> KnownInputs:
    rows = [
        {
            "item_key": f"{model}/{source}/{i}",
            "status": "ok",
            "source": source,
            "model": model,
            "prompt": None,
            "target": f"t{i}",
            "verified": i in reached,
        }
        for model, sources in REACHED.items()
        for source, reached in sources.items()
        for i in range(4)
        # This search found nothing that can be typed for target 3.
        if (source, i) != ("search-round-1", 3)
    ]
    lost = {"status": "error", "error": "x", "source": None, "model": None, "prompt": None, "target": None, "verified": None}
    return KnownInputs.of([row | lost if row["item_key"] == failed else row for row in rows], MODELS, ATTACKS)


def test_a_model_is_measured_by_what_any_known_input_reaches() -> None:
    figures = known_inputs().figures()
    assert {name: figure.value for name, figure in figures.items()} == {
        "start.exploitability": 0.75,
        "round-1.exploitability": 0.5,
        "control.exploitability": 1.0,
        "start.gain_over_control": 0.25,
        "round-1.gain_over_control": 0.5,
    }
    assert figures["round-1.exploitability"].n == 4


def test_a_target_of_which_an_answer_failed_is_no_target_that_a_model_resists() -> None:
    figures = known_inputs(failed="hardened-round-1/search-start/0").figures()
    assert (figures["round-1.exploitability"].value, figures["round-1.exploitability"].n) == (pytest.approx(1 / 3), 3)
    assert figures["start.exploitability"].value == pytest.approx(2 / 3)


def test_the_best_search_is_named_and_one_that_found_nothing_has_learned_nothing() -> None:
    known = known_inputs().adversaries()
    assert known.targets == ["start", "round-1", "control"]
    assert known.adversaries == ["start", "round-1", "control", NO_INPUT]
    assert [known.best_of(target) for target in known.targets] == ["start", "start", "control"]
    assert [gain.value for gain in known.gains_TA[1]] == [0.25, 0.0, 0.25, 0.0]
    assert [measured.value for measured in known.measured] == [0.75, 0.5, 1.0]
    assert known.learned["control"].value == pytest.approx(0.5), "more than no input"
    assert "round-1" in known.idle
    assert "all together, each tried on every item" in known.table().note


def test_the_table_says_where_known_inputs_were_not_typed() -> None:
    found = {"start.adaptive": Estimate(0.5, 0.2, 0.8, 40)}
    assert "cannot be typed to another model" in hardening_table(found).note
    typed = hardening_table(found | known_inputs().figures())
    assert typed.columns[:4] == ("model", "any known input", "less than control", "found anew")
    assert typed.note.startswith("Any known input: share of the targets")
