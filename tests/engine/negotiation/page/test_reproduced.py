"""Published tables on the page: how many advantages are reproduced, what is drawn beside what, and what is left out."""

from __future__ import annotations

from parley.engine.core.stats.statistics import Estimate
from parley.engine.negotiation.metrics.reproduction import CONTROL, HARDENED, RL, SV, Reproduction
from parley.engine.negotiation.page.chapter import verdict_on
from parley.engine.negotiation.page.populations import (
    Negotiation,
    reproduction_figures,
    reproduction_marks,
    reproduction_sentence,
)
from tests.engine.negotiation.metrics.test_reproduction import gained

ROWS = {
    f"{SV}.rl": {1: gained(4.2), 2: gained(4.3)},
    f"{SV}.ra-pa-da": {1: gained(0.1, 2.0)},
    f"{RL}.rl": {1: gained(-0.2), 2: gained(-0.1)},
    f"{HARDENED}.rl": {1: gained(-0.2), 2: gained(-0.1)},
    f"{CONTROL}.rl": {1: gained(-2.0), 2: gained(-2.2)},
}


def test_the_verdict_counts_what_is_reproduced_and_says_what_holds() -> None:
    found = verdict_on(Negotiation(reproductions=[Reproduction(ROWS)]))
    assert found is not None
    counts, holds, fails = (f"{part}." for part in found.sentence.rstrip(".").split(". "))
    told = "1 within the interval measured here, 1 on the same side of 0, 2 not reproduced"
    assert counts == f"Of 4 published advantages: {told}."
    assert "certainly hold: the RL attack gains from the supervised agent" in holds
    assert fails.endswith("do not hold: RL attack, the best adversary: adversarial training takes more than plain play alone.")
    assert list(found.marks) == [
        "RL attack: supervised agent",
        "RL attack: RL agent",
        "RL attack, the best adversary: RL agent after adversarial training",
        "RL attack: RL agent after plain play alone",
        "RA+PA+DA: supervised agent",
    ]
    assert found.marks["RA+PA+DA: supervised agent"].value == 2.0, "the paper forces the end"


def test_each_table_is_drawn_beside_what_was_published_of_it() -> None:
    drawn = {figure.name: figure.svg for figure in reproduction_figures(Reproduction(ROWS))}
    assert [name.partition(":")[0] for name in drawn] == ["Table 2", "Table 2", "Table 6", "Control"]
    assert all((">published<" in svg) == name.startswith("Table") for name, svg in drawn.items())


def test_a_run_without_a_finished_row_has_no_verdict() -> None:
    empty = Reproduction({})
    assert (reproduction_sentence(empty), reproduction_marks(empty), reproduction_figures(empty)) == ("", {}, [])
    plain = {f"{RL}.none": {1: {"advantage": Estimate(0.1, 0.0, 0.2, 100)}}}
    assert reproduction_sentence(Reproduction(plain)) == ""
