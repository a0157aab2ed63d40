"""Published figures are complete, and contradict each other where the paper does."""

from __future__ import annotations

import pytest

from parley.engine.ranking.metrics.ranks import group_metrics
from parley.engine.ranking.metrics.table import BASE, LI_2019

MODELS = ("smn", "dam", "mrfn")
KEEPING, SPOILING = ("iiw", "rsw"), ("sow", "rlw-half", "rlw-1", "rnpv")


def test_every_model_rule_and_metric_has_its_figure() -> None:
    names = set(group_metrics([], [], []).values)
    for table, rules in (("3", (BASE, *KEEPING)), ("4", (*SPOILING, "ngr"))):
        for corpus, size in (("ubuntu", 4), ("douban", 6)):
            rows = LI_2019[f"{table} {corpus}"]
            assert set(rows) == {f"{model} {rule}" for model in MODELS for rule in rules}
            for figures in rows.values():
                assert len(figures) == size
                assert set(figures) <= names
                assert figures["r@1"] < figures["r@2"] < figures["r@5"]
    assert set(LI_2019["5 after"]) == {f"{model} {rule}" for model in MODELS for rule in KEEPING}
    assert set(LI_2019["6 after"]) == {f"{model} {rule}" for model in MODELS for rule in SPOILING}


def test_tables_3_and_5_agree_but_for_one_figure() -> None:
    different = {
        (model, rule)
        for model, figures in LI_2019["5 before"].items()
        for rule, figure in figures.items()
        if LI_2019["3 ubuntu"][f"{model} {rule}"]["r@1"] != figure
    }
    assert different == {("mrfn", "rsw")}


def test_mean_drops_are_those_of_the_text_but_for_two() -> None:
    before, after = LI_2019["4 ubuntu"], LI_2019["6 after"]
    drops = {
        rule: 100 * sum(before[f"{model} {rule}"]["r@1"] - after[f"{model} {rule}"]["attacked"] for model in MODELS) / 3
        for rule in SPOILING
    }
    text = {"sow": 67.1, "rlw-half": 70.2, "rlw-1": 63.8, "rnpv": 67.2}
    different = {rule: drop for rule, drop in drops.items() if drop != pytest.approx(text[rule], abs=0.1)}
    assert different == {"rlw-half": pytest.approx(68.4, abs=0.05), "rlw-1": pytest.approx(64.2, abs=0.05)}
