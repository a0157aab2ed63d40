"""Verbs that take a run: `parley report` and `parley resume`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from tyro import conf

from parley.engine.core.cli.flags import JobCommand, parse
from parley.engine.core.cli.jobs import carry_out
from parley.engine.core.cli.screen import watching
from parley.engine.core.cli.tables import make_console, show_lines
from parley.engine.core.cli.verbs import Verb
from parley.engine.core.runs.remote_sync import fetched_run, replicate
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.catalogue import find
from parley.envs.core.config import from_dict
from parley.envs.core.storage.uris import display_path, local_copy


@dataclass(frozen=True, kw_only=True)
class ReportArguments:
    """Which run."""

    run: Annotated[conf.Positional[str], conf.arg(metavar="RUN")]
    """Folder or URI of a run, or of a folder that holds runs."""
    picture: Annotated[str, conf.arg(metavar="FILE", help_behavior_hint="")] = ""
    """Also draw the verdicts into one .png, .svg or .pdf, for a slide or a README."""
    json: Annotated[conf.FlagCreatePairsOff[bool], conf.arg(help_behavior_hint="")] = False
    """Print where the page is as one JSON object on standard output."""


@dataclass(frozen=True, kw_only=True)
class ResumeArguments:
    """Which run."""

    run: Annotated[conf.Positional[str], conf.arg(metavar="RUN")]
    """Folder or URI of the run."""
    json: Annotated[conf.FlagCreatePairsOff[bool], conf.arg(help_behavior_hint="")] = False
    """Print the metrics as one JSON object on standard output."""


def run_report(verb: Verb, arguments: Sequence[str]) -> int:
    """Writes report.html into a run folder; returns the exit status."""
    asked = parse(ReportArguments, verb, arguments)
    from parley.engine.core.page.chapters import load_chapters
    from parley.engine.core.page.collect import collect_run, report_from_run
    from parley.engine.core.page.picture import require_suffix, write_picture

    if asked.picture:
        require_suffix(asked.picture)
    with watching():
        run = fetched_run(asked.run)
        files = [report_from_run(run)]
        if asked.picture:
            picture = local_copy(asked.picture)
            shown = collect_run(run)
            files.append(write_picture(shown, load_chapters(shown.jobs), picture))
            replicate(picture)
    # Of a URI the copy too, for the browser.
    names = [name for file in files for name in dict.fromkeys((display_path(file), str(file)))]
    show_lines(make_console(), "files", names)
    if asked.json:
        sys.stdout.write(f"{json.dumps({'report': names[0], 'run': display_path(run)})}\n")
    return 0


def run_resume(verb: Verb, arguments: Sequence[str]) -> int:
    """Goes on with a run as its folder says it was asked for; returns the exit status."""
    asked = parse(ResumeArguments, verb, arguments)
    run = fetched_run(asked.run)
    folder = RunFolder.load(run)
    entry = find(folder.job)
    job = entry.load()
    config: Any = from_dict(job.config, folder.config, str(run / "config.json"))
    return carry_out(entry, job, JobCommand(config, run, asked.json))
