"""Verbs that take a run: `parley report` and `parley resume`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from tyro import conf

from engine.cli.flags import JobCommand, parse
from engine.cli.jobs import carry_out
from engine.cli.screen import watching
from engine.cli.tables import make_console, show_lines
from engine.cli.verbs import Verb
from engine.jobs.catalogue import find
from engine.store.run_folder import RunFolder
from envs.core.config import from_dict


@dataclass(frozen=True, kw_only=True)
class ReportArguments:
    """Which run."""

    run: Annotated[conf.Positional[Path], conf.arg(metavar="RUN")]
    """Folder of a run, or a folder that holds runs."""
    picture: Annotated[Path | None, conf.arg(metavar="FILE.png")] = None
    """Also draw outcomes and the newest curve into one PNG, for a slide or a README."""
    json: Annotated[conf.FlagCreatePairsOff[bool], conf.arg(help_behavior_hint="")] = False
    """Print where the page is as one JSON object on standard output."""


@dataclass(frozen=True, kw_only=True)
class ResumeArguments:
    """Which run."""

    run: Annotated[conf.Positional[Path], conf.arg(metavar="RUN")]
    """Folder of the run."""
    json: Annotated[conf.FlagCreatePairsOff[bool], conf.arg(help_behavior_hint="")] = False
    """Print the metrics as one JSON object on standard output."""


def run_report(verb: Verb, arguments: Sequence[str]) -> int:
    """Writes report.html into a run folder; returns the exit status."""
    asked = parse(ReportArguments, verb, arguments)
    from engine.report.collect import collect_run, report_from_run
    from engine.report.plots import write_picture

    with watching():
        files = [report_from_run(asked.run)]
        if asked.picture is not None:
            asked.picture.parent.mkdir(parents=True, exist_ok=True)
            files.append(write_picture(collect_run(asked.run), asked.picture))
    show_lines(make_console(), "files", [str(file) for file in files])
    if asked.json:
        sys.stdout.write(f"{json.dumps({'report': str(files[0]), 'run': str(asked.run)})}\n")
    return 0


def run_resume(verb: Verb, arguments: Sequence[str]) -> int:
    """Goes on with a run as its folder says it was asked for; returns the exit status."""
    asked = parse(ResumeArguments, verb, arguments)
    folder = RunFolder.load(asked.run)
    entry = find(folder.job)
    job = entry.load()
    config: Any = from_dict(job.config, folder.config, str(asked.run / "config.json"))
    return carry_out(entry, job, JobCommand(config, asked.run, asked.json))
