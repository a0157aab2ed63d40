"""`parley perturb label`: labelled lines of an audit, read back into its run."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from tyro import conf

from parley.engine.core.cli.flags import parse
from parley.engine.core.cli.screen import watching
from parley.engine.core.cli.tables import show_result
from parley.engine.core.cli.verbs import Verb
from parley.engine.core.runs.remote_sync import fetched_run
from parley.envs.core.storage.copies import fetched_file
from parley.envs.core.storage.uris import display_path


@dataclass(frozen=True, kw_only=True)
class LabelArguments:
    """Which run, and whose labels."""

    run: Annotated[conf.Positional[str], conf.arg(metavar="RUN")]
    """Folder or URI of a finished run of parley perturb audit."""
    sheets: Annotated[conf.Positional[tuple[str, ...]], conf.arg(metavar="FILE ...", help_behavior_hint="")]
    """Labelled copies of its sheet.csv, files or URIs, each named after its labeller; labels are ok or wrong, or empty."""
    json: Annotated[conf.FlagCreatePairsOff[bool], conf.arg(help_behavior_hint="")] = False
    """Print the metrics as one JSON object on standard output."""


def run_label(verb: Verb, arguments: Sequence[str]) -> int:
    """Reads the sheets, shows the tables and writes the page; returns the exit status."""
    asked = parse(LabelArguments, verb, arguments)
    from parley.engine.core.page.collect import report_from_run
    from parley.engine.perturb.verbs.audit import PERTURB_AUDIT
    from parley.envs.core.errors import ConfigError

    if not asked.sheets:
        fix = "parley perturb label RUN RUN/sheet.csv, when its column label is filled in"
        raise ConfigError("there is no sheet to read", where=asked.run, fix=fix)
    run = fetched_run(asked.run)
    with watching() as reporter:
        result = PERTURB_AUDIT.label(run, [fetched_file(name) for name in asked.sheets], reporter)
        result = replace(result, files=(report_from_run(run), *result.files))
    show_result(result)
    if asked.json:
        metrics = {name: estimate.to_json() for name, estimate in result.metrics.items()}
        sys.stdout.write(f"{json.dumps({'metrics': metrics, 'run': display_path(run)})}\n")
    return 0
