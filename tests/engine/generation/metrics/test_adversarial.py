"""AdverSuc, ERE and what goes with them, against counts by hand and known cases."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from parley.engine.generation.metrics.adversarial import (
    JudgedRows,
    JudgedScores,
    adversarial_metrics,
    chance_range,
    describe,
    num_different,
    reliability_error,
)
from parley.engine.generation.metrics.tables import JudgeSpecs, by_judge, is_reliable, strongest_features, tables, verdicts

CONTROLS = ("constant", "length")


def scored(errors: Sequence[float], sources: Sequence[str] | None = None, num_folds: int = 1) -> JudgedScores:
    """Labels alternate; an error of 0.5 is an undecided score."""
    labels = np.arange(len(errors)) % 2 == 0
    right = np.where(labels, 1.0, -1.0)
    scores = np.where(np.array(errors) == 0.5, 0.0, np.where(np.array(errors) == 1, -right, right))
    return JudgedScores(np.array(sources or [str(number) for number in range(len(errors))]), labels, scores, num_folds)


def row(
    scenario: str, judge: str, each: JudgedScores, fold: int = 0, features: Mapping[str, float] | None = None
) -> dict[str, Any]:
    return {
        "item_key": f"{scenario}/{judge}/{fold}",
        "status": "ok",
        "scenario": scenario,
        "judge": judge,
        "fold": fold,
        "sources": each.sources.tolist(),
        "labels": each.labels.tolist(),
        "scores": each.scores.tolist(),
        "examples": [],
        "features": [{"word": word, "weight": weight} for word, weight in (features or {}).items()],
    }


def test_adversuc_is_one_less_the_accuracy_and_an_undecided_pair_half_an_error() -> None:
    found = scored([0, 1, 0.5, 0, 0, 0, 0, 0]).adversuc()
    assert found.value == pytest.approx(1.5 / 8)
    assert found.low <= found.value <= found.high


def test_what_nobody_has_to_be_asked_counts_as_told() -> None:
    judged = scored([1, 1, 0.5, 0.5], ["a", "a", "b", "b"])
    told = judged.with_judged_right(["b", "c", "c"])
    assert told.by_source == {"a": 1, "b": 0.25, "c": 0}
    assert told.adversuc().value == pytest.approx(3 / 10)
    assert judged.with_judged_right([]) is judged
    nothing = JudgedScores(np.array([]), np.array([], dtype=bool), np.zeros(0), 1)
    assert nothing.with_judged_right(["a"]).accuracy().value == 1


def test_pairs_of_a_source_are_drawn_together() -> None:
    errors = [0.0, 0.0, 1.0, 1.0] * 20
    alone = scored(errors).adversuc()
    together = scored(errors, [str(number // 2) for number in range(80)]).adversuc()
    assert (alone.n, together.n) == (80, 40)
    assert together.high - together.low > 1.2 * (alone.high - alone.low)


def test_the_constant_judge_has_an_adversuc_of_a_half_and_an_ere_of_a_quarter() -> None:
    nothing = scored([0.5] * 40)
    assert (nothing.adversuc().value, nothing.adversuc().low, nothing.adversuc().high) == (0.5, 0.5, 0.5)
    kinds = ("human-human", "machine-machine.a", "machine-machine.b", "human-random", "human-next")
    found = reliability_error(dict.fromkeys(kinds, nothing))
    assert (found.value, found.low, found.high) == (0.25, 0.25, 0.25)


def test_ere_weighs_kinds_of_scenarios_equally_and_looks_at_no_other() -> None:
    found = reliability_error(
        {
            "human-human": scored([1, 0, 1, 0, 1, 0, 0, 0]),  # .375, off by .125
            "machine-machine.a": scored([0.0] * 8),  # off by .5
            "machine-machine.b": scored([1, 0] * 4),  # off by 0
            "human-random": scored([1, 0, 0, 0] * 2),  # off by .25
            "adversuc.a": scored([1.0] * 8),
        }
    )
    assert found.value == pytest.approx((0.125 + 0.25 + 0.25) / 3)
    assert reliability_error({"adversuc.a": scored([1.0] * 8)}).n == 0


def test_the_interval_of_ere_holds_what_a_judge_would_have_on_endless_pairs() -> None:
    rng, held, num = np.random.default_rng(1), 0, 20
    for _ in range(num):
        shares = {"human-human": 0.5, "machine-machine.a": 0.5, "machine-machine.b": 0.5, "human-random": 0.06}
        found = reliability_error({name: scored(rng.random(200) < share) for name, share in shares.items()})
        assert found.low <= found.value <= found.high
        held += found.low <= 0.06 / 3 <= found.high
    assert held >= 0.85 * num


@pytest.mark.parametrize(("num", "low", "high"), [(10, 2, 8), (100, 40, 60), (1536, 730, 806)])
def test_the_range_of_chance_is_that_of_fair_coins(num: int, low: int, high: int) -> None:
    found = chance_range(num, 1)
    assert (round(found.low * num), round(found.high * num)) == (low, high)
    tosses = [math.comb(num, heads) for heads in range(num + 1)]
    assert 100 * sum(tosses[low : high + 1]) >= 95 * 2**num > 100 * sum(tosses[low + 1 : high])
    refitted = chance_range(num, 5)
    assert refitted.high - 0.5 == pytest.approx(min(0.5, 1.5 * (found.high - 0.5)))


def test_pairs_that_repeat_another_are_no_further_coins() -> None:
    sources, labels = np.repeat(["a", "b", "c", "d"], 2), np.tile([True, False], 4)
    scores = np.array([1.0, -1.0, 2.0, 2.0, 0.5, -0.5, 1.0, -1.0])
    one, other = JudgedScores(sources, labels, scores, 1), JudgedScores(sources, labels, -scores, 1)
    thrice = [JudgedScores(np.tile(sources, 3), np.tile(labels, 3), np.tile(of.scores, 3), 1) for of in (one, other)]
    assert num_different([one, other]) == num_different(thrice) == 8
    assert thrice[0].adversuc().low == pytest.approx(one.adversuc().low, abs=0.01)
    mostly_one = JudgedScores(np.append(sources, ["a"] * 8), np.append(labels, [True] * 8), np.append(scores, [1.0] * 8), 1)
    assert num_different([mostly_one]) == round(16**2 / (9**2 + 7))


def asked(*systems: str, judges: Sequence[str] = ("svm",)) -> JudgeSpecs:
    return JudgeSpecs(judges, CONTROLS, systems)


def measured(errors: Mapping[tuple[str, str], Sequence[float]], who: JudgeSpecs, folds: int = 1) -> dict[str, Any]:
    rows = [row(scenario, judge, scored(each)) for (scenario, judge), each in errors.items()]
    return adversarial_metrics(JudgedRows(rows), who.all_judges, who.systems, folds)


def test_machine_vs_random_is_an_accuracy() -> None:
    found = measured({("random.a", "svm"): [0, 0, 0, 1] * 10}, asked("a"))
    assert found["random.svm.a"].value == pytest.approx(0.75)
    assert found["random.svm.a"].low < 0.75 < found["random.svm.a"].high


def test_a_judge_that_failed_in_a_fold_has_no_figure_of_the_scenario() -> None:
    found = measured({("adversuc.a", "svm"): [0.0] * 40}, asked("a"), folds=2)
    assert "adversuc.svm.a" not in found


def test_systems_are_compared_on_the_sources_that_both_answer() -> None:
    good, bad = scored([0, 0, 1, 0] * 10), scored([1, 0, 1, 0] * 10)
    bad = JudgedScores(np.array([str(int(source) + 10) for source in bad.sources]), bad.labels, bad.scores, 1)
    rows = [row("adversuc.a", "svm", good), row("adversuc.b", "svm", bad)]
    found = adversarial_metrics(JudgedRows(rows), ["svm"], ["a", "b"], 1)["ahead.svm.a.b"]
    assert found.n == 30
    shared = [(good.by_source[str(number)], bad.by_source[str(number)]) for number in range(10, 40)]
    assert found.value == pytest.approx(np.mean([one - other for one, other in shared]))


def test_judges_that_order_systems_alike_agree() -> None:
    share = {"a": 1, "b": 2, "c": 4}
    errors = {}
    for system, num in share.items():
        errors[f"adversuc.{system}", "svm"] = [1.0] * num + [0.0] * (40 - num)
        errors[f"adversuc.{system}", "length"] = [1.0] * (20 - num) + [0.0] * (20 + num)
    found = measured(errors, asked(*share))
    assert found["tau.svm.length"].value == -1
    assert "tau.svm.constant" not in found
    assert not any(name.startswith("tau") for name in measured(errors, asked("a", "b")))


def test_calibration_compares_told_probabilities_with_shares() -> None:
    sure = JudgedScores(np.arange(100).astype(str), np.arange(100) < 90, np.full(100, math.log(9)), 1)
    assert sure.calibration() == [(pytest.approx(0.9), 0.9, 100)]
    metrics = adversarial_metrics(JudgedRows([row("adversuc.a", "svm", sure)]), ["svm"], ["a"], 1)
    assert metrics["calibration.svm.a"].value == pytest.approx(0)


PERFECT = {("human-human", "svm"): [1, 0] * 50, ("human-random", "svm"): [0] * 100, ("human-next", "svm"): [0] * 100}
NOTHING = {(name, "constant"): [0.5] * 100 for name in ("human-human", "human-random", "human-next")}


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        ({("adversuc.a", "svm"): [1, 0] * 50}, "a: these judges cannot tell its replies from people's"),
        (
            {("adversuc.a", "svm"): [1, 0] * 50, ("adversuc.a", "length"): [1, 0, 0, 0] * 25},
            "a: length (control) tells its replies from people's, these judges cannot (AdverSuc 0.250 by length, 0.500 by",
        ),
        (
            {("adversuc.a", "svm"): [1, 1, 1, 0] * 25},
            "a: these judges are wrong more often than coins (AdverSuc 0.750 by svm, above",
        ),
        (
            {
                ("adversuc.a", "svm"): [1, 0, 0, 0] * 25,
                ("adversuc.a", "length"): [1, 0, 0, 0, 0] * 20,
                ("matched.a", "svm"): [0] * 4,
                ("cut.a", "svm"): [1, 0] * 40,
            },
            "a: length explains it (AdverSuc 0.250 by svm, 0.200 by length alone, 0.500 with all replies cut to one length",
        ),
        (
            {("adversuc.a", "svm"): [0] * 100, ("adversuc.a", "length"): [0] * 100, ("cut.a", "svm"): [0] * 80},
            "a: svm tells its replies from people's (AdverSuc 0.000 by svm, 0.000 with all replies cut to one length; machine",
        ),
        (
            {("adversuc.a", "svm"): [0] * 100, ("adversuc.a", "length"): [1, 0, 0, 0] * 25, ("matched.a", "svm"): [1, 0] * 20},
            "a: length explains it (AdverSuc 0.000 by svm, 0.250 by length alone, 0.500 with lengths matched, no better",
        ),
        (
            {
                ("adversuc.a", "svm"): [1, 0, 0, 1, 0, 0, 1, 0, 0, 0] * 10,
                ("adversuc.a", "length"): [1, 0] * 50,
                ("matched.a", "svm"): [1, 0, 0, 1, 0, 0, 1, 0, 0, 0],
                ("random.a", "svm"): [1, 0] * 50,
            },
            "a: svm tells its replies from people's (AdverSuc 0.300 by svm, 0.300 with lengths matched; machine-vs-random 0.5",
        ),
        (
            {
                ("adversuc.a", "svm"): [0] * 100,
                ("adversuc.a", "length"): [1, 0, 0, 0] * 25,
                ("matched.a", "svm"): [0] * 40,
                ("random.a", "svm"): [1, 0, 0, 0] * 10,
            },
            "a: svm tells its replies from people's (AdverSuc 0.000 by svm, 0.000 with lengths matched; machine-vs-random 0.75",
        ),
    ],
)
def test_the_verdict_is_in_words(figures: Mapping[tuple[str, str], Sequence[float]], said: str) -> None:
    who = asked("a")
    found = measured({**PERFECT, **NOTHING, **figures}, who)
    (sentence,) = verdicts(found, who)
    assert sentence.startswith(said)
    assert "machine-vs-random" in sentence


def test_the_judge_of_the_headline_is_the_most_reliable_not_the_one_with_the_best_outcome() -> None:
    who = asked("a", judges=("svm", "net"))
    poor = {(name, "net"): [1, 0] * 50 for name in ("human-human", "human-random", "human-next")}
    lucky = {("adversuc.a", "svm"): [1, 0] * 50, ("adversuc.a", "net"): [1, 0, 0, 0] * 25}
    metrics = measured({**PERFECT, **NOTHING, **poor, **lucky}, who)
    assert metrics["ere.svm"].value < metrics["ere.net"].value
    assert verdicts(metrics, who)[0].startswith(
        "a: svm cannot tell its replies from people's, net can (AdverSuc 0.500 by svm, the judge of least ERE, 0.250 by net; "
    )
    without = {name: estimate for name, estimate in metrics.items() if not name.startswith("ere.")}
    assert by_judge(without, ("net", "svm")) == "by net, the judge named first"


def test_systems_of_one_outcome_share_a_sentence() -> None:
    who = asked("a", "b", "c")
    told = {("adversuc.a", "svm"): [0] * 100, ("adversuc.b", "svm"): [0] * 99 + [1], ("adversuc.c", "svm"): [1, 0] * 50}
    tells, cannot = verdicts(measured({**PERFECT, **NOTHING, **told}, who), who)
    assert tells.startswith("svm tells the replies from people's: a (AdverSuc 0.000 by svm; ")
    assert "; b (AdverSuc 0.010 by svm; " in tells
    assert cannot.startswith("c: these judges cannot tell its replies from people's (")


def test_a_judge_no_better_than_a_constant_is_named() -> None:
    poor = {(name, "svm"): [1, 0] * 50 for name in ("human-human", "human-random", "human-next")}
    who = asked("a")
    found = measured({**poor, **NOTHING, ("adversuc.a", "svm"): [0] * 100}, who)
    assert not is_reliable(found, "svm")
    assert verdicts(found, who)[-1] == "ERE no better than that of a constant (0.333): do not use svm."
    assert is_reliable(measured({**PERFECT, **NOTHING}, who), "svm")


def test_every_table_with_adversuc_of_a_system_has_machine_vs_random() -> None:
    who = JudgeSpecs(["svm"], CONTROLS, ["a", "b"], published=True)
    errors = {
        (f"{kind}.{system}", judge): [1, 0, 0, 0] * 10
        for kind in ("adversuc", "random", "matched", "cut")
        for system in "ab"
        for judge in who.all_judges
    }
    found = measured({**errors, **PERFECT, **NOTHING}, who)
    rows = [row("adversuc.a", "svm", scored([0.0] * 4), fold, {"yes": 2.0, "no": -1.0}) for fold in range(2)]
    made = tables(found, who, rows)
    assert list(made) == [
        "AdverSuc and machine-vs-random (table 3)",
        "Reliability of the judges (table 2)",
        "Systems against each other",
        "Strongest features of linear judges",
    ]
    for table in list(made.values())[:1] + list(made.values())[2:3]:
        assert any("AdverSuc" in column for column in table.columns) == ("machine-vs-random" in table.columns)
        assert all(len(each) == len(table.columns) for each in table.rows)
    first, second, *_ = made.values()
    assert ("Adver-REGS, published", "0.098", "–", "0.952", "–", "–", "–", "") in first.rows
    assert second.rows[0][1].startswith("0.000")
    assert [line[0] for line in second.rows] == [
        "svm",
        "constant (control)",
        "length (control)",
        "SVM+Unigram, published",
        "Concat Neural, published",
        "Hierarchical Neural, published",
        "SVM+Neural+multi-features, published",
    ]
    assert made["Strongest features of linear judges"].rows == (("svm, a", "yes +2.00", "no -1.00"),)


def test_features_are_means_over_folds() -> None:
    told = ({"yes": 2.0}, {"no": -1.0})
    rows = [row("adversuc.a", "svm", scored([0.0] * 4), fold, words) for fold, words in enumerate(told)]
    assert strongest_features(rows) == {("a", "svm"): [("yes", 1.0), ("no", -0.5)]}


def test_every_metric_is_described() -> None:
    for name in ("adversuc.svm.a", "ere.svm", "human-next.svm", "tau.a.b", "machine-machine.svm.a", "chance.adversuc.a"):
        assert describe(name).definition
