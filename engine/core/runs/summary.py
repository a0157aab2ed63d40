"""The summary of a run, `summary.json`: its metrics, and what its job says of them. It can be written again from the rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from parley.engine.core.stats.statistics import Estimate
from parley.engine.core.runs.documents import plain
from parley.engine.core.runs.manifest import read_json, whole
from parley.engine.core.runs.layout import SUMMARY
from parley.envs.core.storage.uris import display_path


def make_summary(path: Path, metrics: Mapping[str, Estimate], extra: Mapping[str, Any]) -> dict[str, Any]:
    """The content of the `summary.json` of a run folder; `extra` has names other than "metrics" and "run"."""
    document = {"metrics": {name: estimate.to_json() for name, estimate in metrics.items()}, "run": display_path(path)}
    more: dict[str, Any] = plain(extra)
    assert not set(document) & set(more), f"names that are taken: {set(document) & set(more)}"
    return document | more


def read_summary(path: Path) -> dict[str, Any] | None:
    """The content of the `summary.json` of a run folder; None when there is none yet.

    Raises:
        RunError: it is damaged.
    """
    file, fix = path / SUMMARY, f"parley resume {display_path(path)} writes it again"
    if not file.is_file():
        return None
    summary = read_json(file, fix)
    with whole(file, fix):
        for estimate in summary["metrics"].values():
            Estimate.from_json(estimate)
        if not all(isinstance(summary.get(name, ""), str) for name in ("title", "description", "command")):
            raise TypeError("title, description and command are texts")
    return summary


@contextmanager
def reading_summary(path: Path) -> Iterator[dict[str, Any]]:
    """The content of a `summary.json`, empty when there is none yet, for a `with` block that reads it.

    Raises:
        RunError: it is damaged, or holds something else than the block expects.
    """
    summary = read_summary(path) or {}
    with whole(path / SUMMARY, f"delete it; parley resume {display_path(path)} writes it again"):
        yield summary
