"""Published tables on the page: how many advantages are reproduced, what is drawn beside what, and what is left out."""

from __future__ import annotations

from parley.engine.core.page.plots import drawn
from parley.engine.core.stats.statistics import Estimate
from parley.engine.negotiation.metrics.reproduction import CONTROL, HARDENED, RL, SV, Reproduction
from parley.engine.negotiation.page import reproduction_figures, reproduction_verdict
from tests.engine.core.page.pages import assert_brief
from tests.engine.negotiation.metrics.test_reproduction import gained

ROWS = {
    f"{SV}.rl": {1: gained(4.2), 2: gained(4.3)},
    f"{SV}.ra-pa-da": {1: gained(0.1, 2.0)},
    f"{RL}.rl": {1: gained(-0.2), 2: gained(-0.1)},
    f"{HARDENED}.rl": {1: gained(-0.2), 2: gained(-0.1)},
    f"{CONTROL}.rl": {1: gained(-2.0), 2: gained(-2.2)},
}


def test_the_verdict_counts_what_is_reproduced_and_says_what_holds() -> None:
    found = reproduction_verdict(Reproduction(ROWS))
    assert found is not None
    assert_brief(found)
    assert found.sentence == "Of 4 published advantages 1 lie within the interval measured here."
    assert (found.number.value, found.label) == (4.25, "Points ahead, RL attack: supervised agent")
    others, holds, fails = found.details
    assert others == "The others: 1 on the same side of 0, 2 not reproduced."
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
    figures = {figure.name: drawn(figure).svg for figure in reproduction_figures(Reproduction(ROWS))}
    assert [name.partition(":")[0] for name in figures] == ["Table 2", "Table 2", "Table 6", "Control"]
    assert all((">published<" in svg) == name.startswith("Table") for name, svg in figures.items())


def test_a_run_without_a_finished_row_has_no_verdict() -> None:
    empty = Reproduction({})
    assert (reproduction_verdict(empty), [*reproduction_figures(empty)]) == (None, [])
    plain = {f"{RL}.none": {1: {"advantage": Estimate(0.1, 0.0, 0.2, 100)}}}
    assert reproduction_verdict(Reproduction(plain)) is None
