"""The runs of a folder, as chapters read them.

A folder may be a run, hold runs, or both: the stages of a demonstration lie below it, and its report shows them together in
the order in which they were started.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from parley.engine.core.runs.layout import CONFIG, ENVIRONMENT
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.runs.schemas import OK
from parley.engine.core.stats.repeats import spread_of, spread_table
from parley.engine.core.stats.rows import Row, finished
from parley.engine.core.stats.statistics import Estimate, Metric
from parley.engine.core.stats.tables import TextTable
from parley.engine.core.verbs.catalogue import find
from parley.envs.core.errors import RunError

_PATH = re.compile(r"[^\s,;()'\"]*/[^\s,;()'\"]+")


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of a page.

    Args:
        name: its folder below the page's own; empty for the page's own run.
        heading: what it is called on the page.
        shown: whether its own metrics and rows are shown; those of a run with stages are shown stage by stage.
        folder: the run.
    """

    name: str
    heading: str
    shown: bool = True
    folder: RunFolder

    @property
    def job(self) -> str:
        """Its job."""
        return self.folder.job

    @property
    def config(self) -> Mapping[str, Any]:
        """Its configuration as JSON types."""
        return self.folder.config

    @cached_property
    def summary(self) -> dict[str, Any]:
        """What it wrote last; empty before."""
        return self.folder.summary() or {}

    @cached_property
    def metrics(self) -> dict[str, Estimate]:
        """Its estimates by name."""
        return estimates(self.summary.get("metrics", {}))

    @cached_property
    def legend(self) -> Mapping[str, Metric]:
        """What its job says of its metrics; nothing for a job that this version does not have."""
        try:
            return find(self.job).load().legend
        except RunError:
            return {}

    @property
    def description(self) -> str:
        """One sentence; the heading of a page already carries that of its own run."""
        text = str(self.summary.get("description", "")) if self.name else ""
        return short_paths([text])[text]

    @property
    def trainings(self) -> list[tuple[str, TextTable]]:
        """The table of its trainings, with its heading, where it made several."""
        values = spread_of(self.summary)
        title = f"{self.heading}: each training" if self.name else "Each training"
        return [(title, spread_table(values, self.metrics, self.legend))] if values else []

    @cached_property
    def rows(self) -> list[Row]:
        """All of its rows."""
        return self.folder.read_rows().to_pylist()

    @property
    def done(self) -> list[Row]:
        """The rows of items that worked."""
        return finished(self.rows)

    @property
    def failed(self) -> list[Row]:
        """The rows of items that ended in an error."""
        return [row for row in self.rows if row["status"] != OK]


def estimates(parts: Mapping[str, Any]) -> dict[str, Estimate]:
    """Estimates by name, as a summary holds them."""
    return {name: Estimate.from_json(estimate) for name, estimate in parts.items()}


def find_runs(folder: Path) -> dict[str, RunFolder]:
    """The runs of a folder by name: its own first, under the empty name, then those below it in the order of their start.

    Raises:
        RunError: there is no run.
    """
    # A checkpoint has a configuration too, and no environment that it was measured in.
    found = [path.parent for path in folder.glob(f"*/{CONFIG}") if (path.parent / ENVIRONMENT).is_file()]
    below = sorted([RunFolder.load(path) for path in found], key=lambda run: (_started(run), run.path.name))
    own = {} if below and not (folder / CONFIG).is_file() else {"": RunFolder.load(folder)}
    return {**own, **{run.path.name: run for run in below}}


def _started(run: RunFolder) -> str:
    events = run.events()
    return str(events[0]["time"]) if events else ""


def short_paths(texts: Iterable[str]) -> dict[str, str]:
    """The texts with each path in them cut to its end, as short as tells the paths of all of them apart; by text."""
    texts = list(texts)
    paths = {path.rstrip("/") for text in texts for path in _PATH.findall(text)}
    ends = {path: _unique_end(path, paths) for path in paths}
    return {text: _PATH.sub(lambda match: ends[match[0].rstrip("/")], text) for text in texts}


def _unique_end(path: str, paths: Iterable[str]) -> str:
    parts, others = path.split("/"), [other.split("/") for other in paths if other != path]
    return next(
        (
            "/".join(parts[-length:])
            for length in range(1, len(parts))
            if all(other[-length:] != parts[-length:] for other in others)
        ),
        path,
    )
