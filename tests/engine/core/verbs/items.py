"""Checks that the figures of single items of a run add up to its metrics."""

from __future__ import annotations

from pathlib import Path

import pytest

from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.catalogue import find
from parley.engine.core.verbs.compare import read_runs
from parley.engine.core.verbs.job import Silent


def require_figures_of(path: Path) -> set[str]:
    """Require that figures of single items give the run's metrics with their intervals; return the names of these."""
    folder = RunFolder.load(path)
    rule = find(folder.job).load().item_metrics
    assert rule is not None
    (run,), metrics = read_runs(str(path), rule, Silent()), folder.metrics()
    keys = list(run.positions)
    _, clusters = rule.units([run.links[run.positions[key]] for key in keys])
    for name in run.figures:
        result, expected = run.sample(name, keys, clusters).estimate(), metrics.get(name)
        if expected is None:
            # Verbs leave out what did not occur.
            assert result.value == 0, name
            continue
        shown = (result.value, result.low, result.high, result.n)
        assert shown == pytest.approx((expected.value, expected.low, expected.high, expected.n), nan_ok=True), name
        assert rule.describe(name).title
    return set(run.figures)
