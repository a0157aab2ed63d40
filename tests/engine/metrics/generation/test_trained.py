"""What a table of trainings comes to in sentences: each verb, and when a judge is not to be leaned on."""

from __future__ import annotations

import pytest

from engine.metrics.generation.trained import AnsweredRow, conclusions, describe, table_metrics
from engine.metrics.statistics import NOTHING, Estimate

ABOVE, WITHIN, BELOW = Estimate(0.04, 0.01, 0.07, 90), Estimate(0.01, -0.02, 0.04, 90), Estimate(-0.04, -0.07, -0.01, 90)


@pytest.mark.parametrize(
    ("adversuc", "random", "verb"),
    [
        (ABOVE, ABOVE, "beats"),
        (ABOVE, WITHIN, "beats"),
        (ABOVE, NOTHING, "beats"),
        (ABOVE, BELOW, "deceives more often, and is nearer to random replies, than"),
        (WITHIN, BELOW, "cannot be told from"),
        (BELOW, ABOVE, "does worse than"),
    ],
)
def test_a_difference_has_a_verb_and_machine_vs_random_beside_it(adversuc: Estimate, random: Estimate, verb: str) -> None:
    metrics = {"regs-mc less forced.adversuc-svm": adversuc, "regs-mc less forced.random-svm": random}
    (said,) = conclusions(metrics, "svm")
    assert said.startswith(f"REGS, Monte Carlo {verb} teacher forcing alone (AdverSuc {adversuc.value:+.3f} [")
    told = f"machine-vs-random {random.value:+.3f} [{random.low:+.3f}, {random.high:+.3f}])" if random.n else "not measured)"
    assert said.endswith(f"{told}.")


def test_each_method_has_a_sentence_and_other_judges_and_controls_none() -> None:
    metrics = {
        "regs-mc less constant.adversuc-svm": ABOVE,
        "regs-mc less forced.adversuc-svm": BELOW,
        "reinforce less forced.adversuc-svm": WITHIN,
        "reinforce less greedy.adversuc-svm": ABOVE,
        "regs-partial less forced.adversuc-other": ABOVE,
    }
    first, second = conclusions(metrics, "svm")
    assert first.startswith("REINFORCE cannot be told from teacher forcing alone")
    assert "does worse than teacher forcing alone" in second
    assert "and beats constant reward" in second
    assert conclusions({}, "svm") == []


def test_a_judge_no_better_than_a_constant_is_named_with_the_rows_it_is_asked_of() -> None:
    metrics = {"regs-mc less forced.adversuc-svm": ABOVE}
    (*_, last) = conclusions(metrics, "svm", {"regs-mc", "greedy"})
    assert last == "svm is a judge no better than a constant (ERE) of: REGS, Monte Carlo; do not lean on it."
    assert len(conclusions(metrics, "svm", {"greedy"})) == 1, "greedy is not compared with"


def test_machine_vs_random_is_compared_too_where_it_was_judged() -> None:
    def row(adversuc: float, random: float | None) -> AnsweredRow:
        told = {("adversuc", "svm"): adversuc} | ({} if random is None else {("random", "svm"): random})
        return AnsweredRow({key: {str(n): value for n in range(9)} for key, value in told.items()}, {})

    metrics = table_metrics({"regs-mc": [row(0.3, 0.6)], "forced": [row(0.2, 0.9)], "constant": [row(0.2, None)]}, ["svm"], {})
    assert metrics["regs-mc less forced.random-svm"].value == pytest.approx(-0.3)
    assert "regs-mc less constant.random-svm" not in metrics
    told = describe("regs-mc less forced.random-svm")
    assert (told.form, told.main) == ("number", True)
