"""`parley rows`: the rows of a run as one flat file for pandas, R or a spreadsheet."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

from rich.text import Text
from tyro import conf

from parley.engine.core.cli.flags import parse
from parley.engine.core.cli.screen import watching
from parley.engine.core.cli.tables import make_console, show_lines, show_table
from parley.engine.core.cli.verbs import Verb
from parley.envs.core.storage.uris import display_path


@dataclass(frozen=True, kw_only=True)
class RowsArguments:
    """Which run, and which file."""

    run: Annotated[conf.Positional[str], conf.arg(metavar="RUN")]
    """Folder or URI of a run, finished or not."""
    file: Annotated[conf.Positional[str], conf.arg(metavar="FILE")]
    """What is written, a file or URI that is not there yet: .csv, .parquet or .jsonl."""
    json: Annotated[conf.FlagCreatePairsOff[bool], conf.arg(help_behavior_hint="")] = False
    """Print what was written as one JSON object on standard output."""


def run_rows(verb: Verb, arguments: Sequence[str]) -> int:
    """Writes the file; returns the exit status."""
    asked = parse(RowsArguments, verb, arguments)
    from parley.engine.core.verbs.export import write_flat

    with watching() as reporter:
        written = write_flat(asked.run, asked.file, reporter)
    if asked.json:
        sys.stdout.write(f"{json.dumps({**asdict(written), 'file': display_path(written.file)})}\n")
        return 0
    console = make_console()
    facts = [
        ("lines", f"{written.num_lines:,}, of {written.num_rows:,} rows"),
        ("failed rows", f"{written.num_failed:,}, a line each that says why" if written.num_failed else ""),
        ("columns", ", ".join(written.columns)),
    ]
    show_table(console, f"{asked.run}: {written.job}", ("", "written"), [fact for fact in facts if fact[1]])
    if written.num_guarded:
        told = f"{written.num_guarded:,} texts begin as a formula does, or with an apostrophe: an apostrophe stands in front"
        console.print(Text(f"\n{told}; .parquet and .jsonl hold them as they are"), soft_wrap=True)
    if not written.finished:
        console.print(Text("\nthe run is not finished: these are the rows that it has so far"), soft_wrap=True)
    show_lines(console, "files", [display_path(written.file)])
    show_lines(console, "next", [] if written.finished else [shlex.join(["parley", "resume", asked.run])])
    return 0
