"""What figures of trainings are called."""

from __future__ import annotations

import pytest

from parley.engine.core.stats.known import AGAINST, DIVERGENCES, LEARNING, NEGOTIATOR, PREDICTION, READING, REWRITING, TEXT
from parley.engine.core.stats.statistics import Metric


@pytest.mark.parametrize("legend", [NEGOTIATOR, LEARNING, PREDICTION, TEXT, REWRITING, READING, DIVERGENCES, AGAINST])
def test_every_figure_has_a_title_of_its_own_a_direction_and_a_definition(legend: dict[str, Metric]) -> None:
    assert len({metric.title for metric in legend.values()}) == len(legend)
    assert all(metric.title and metric.direction and metric.definition for metric in legend.values())
