"""Verbs that run jobs: understand the flags, run, show the result."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from parley.engine.core.cli.flags import JobCommand, parse_job
from parley.engine.core.cli.screen import watching
from parley.engine.core.cli.tables import show_result
from parley.engine.core.cli.verbs import Verb
from parley.engine.core.ray import logs
from parley.engine.core.verbs.catalogue import find
from parley.engine.core.verbs.command import flat
from parley.engine.core.verbs.job import Job, Result
from parley.engine.core.verbs.verb_spec import Entry
from parley.envs.core.config import to_dict
from parley.envs.core.storage.uris import display_path
from parley.envs.negotiation.agents import HUMAN


def run_job(verb: Verb, arguments: Sequence[str]) -> int:
    """Runs the job of a verb; returns the exit status."""
    entry = find("-".join(verb.words))
    job = entry.load()
    return carry_out(entry, job, parse_job(verb, job, arguments))


def _without_figures(result: Result) -> Result:
    """A result of which every item failed says so, and shows no table of nothing."""
    if not result.failure or any(estimate.n for estimate in result.metrics.values()):
        return result
    hint = "" if "--debug" in result.failure else "; the same command with --debug shows the traceback"
    failure = f"{result.failure}{hint}"
    return replace(result, metrics={}, legend={}, tables={}, next_commands=(), failure=failure)


def carry_out(entry: Entry, job: Job[Any, Any, Any], command: JobCommand) -> int:
    """Runs a job and shows its result.

    Args:
        entry: what the list of jobs says of it.
        job: the job.
        command: its configuration and folder.

    Returns:
        The exit status: 1 when the result is not what the job promises.
    """
    typed = HUMAN in flat(to_dict(command.config)).values()
    with logs.metadata(run=str(command.run), job=job.name):
        with watching(live=not typed) as reporter:
            result = job.run(command.config, command.run, reporter)
            if entry.reports:
                from parley.engine.core.page.collect import report_from_run

                result = replace(result, files=(report_from_run(result.run), *result.files))
        show_result(_without_figures(result))
    if command.json:
        metrics = {name: estimate.to_json() for name, estimate in result.metrics.items()}
        document = {"metrics": metrics, "run": display_path(result.run)}
        document |= {"warnings": list(result.warnings)} if result.warnings else {}
        document |= {"chat_usage": dict(result.chat_usage)} if result.chat_usage else {}
        sys.stdout.write(f"{json.dumps(document)}\n")
    return int(bool(result.failure))
