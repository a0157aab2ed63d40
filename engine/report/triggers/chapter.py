"""From the run folders of trigger searches to what their report shows."""

from __future__ import annotations

import json

from engine.jobs.triggers.search import SEARCH
from engine.jobs.triggers.table import SEARCH_TABLE
from engine.metrics.tables import TextTable
from engine.report.content import SearchSection
from engine.store.run_folder import RunFolder

SEARCHES = (SEARCH.name, SEARCH_TABLE.name)
"""Jobs whose runs are shown by this module alone."""


def search_section(heading: str, run: RunFolder, described: bool) -> SearchSection | None:
    """The section of a run; None for one that is no search, or has found nothing yet.

    Args:
        heading: what the run is called.
        run: any run.
        described: whether its description is wanted.
    """
    if run.job != SEARCH.name:
        return None
    summary = run.summary() or {}
    rows = run.read_rows().to_pylist()
    if not rows:
        return None
    settings = {name: value for name, value in run.config.items() if name not in SEARCH.resume_safe}
    effort = dict(settings["search"])
    candidates = effort.pop("candidates")
    return SearchSection(
        name=heading,
        description=summary.get("description", "") if described else "",
        metrics=run.metrics(),
        rows=rows,
        hit=run.config["hit"],
        thresholds=summary.get("thresholds", {}),
        skipped=[(entry["sentence"], ", ".join(entry["unknown"])) for entry in summary.get("skipped", ())],
        candidates=candidates,
        alike=json.dumps({**settings, "search": effort}, sort_keys=True),
    )


def search_tables(heading: str, run: RunFolder) -> list[tuple[str, TextTable]]:
    """The table of a run of `parley search table` with its heading; none of any other run, or before it is measured."""
    if run.job != SEARCH_TABLE.name or run.summary() is None:
        return []
    return [(heading, table) for table in SEARCH_TABLE.tables(run).values()]
