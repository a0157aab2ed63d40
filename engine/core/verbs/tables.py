"""Text tables that a run keeps beside its summary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from parley.engine.core.runs.documents import write_whole
from parley.engine.core.stats.tables import TextTable
from parley.envs.core.errors import RunError
from parley.envs.core.visible import visible

TABLE_FILE = "table.md"


def write_tables(path: Path, tables: Mapping[str, TextTable], about: Mapping[str, str], note: str = "") -> None:
    """Writes tables as Markdown, with what a terminal would obey spelled out.

    Args:
        path: the file.
        tables: what to write, by heading; an empty heading is left out.
        about: the title, the description and the command that made them.
        note: a sentence below them.

    Raises:
        RunError: the disk refuses.
    """
    parts = [f"# {about['title'][:1].upper()}{about['title'][1:]}\n\n{about['description']}\n"]
    parts += [(f"## {heading}\n\n" if heading else "") + table.to_markdown() for heading, table in tables.items()]
    parts += [f"{note}\n"] if note else []
    parts.append(f"```\n{about['command']}\n```\n")
    try:
        write_whole(path, visible("\n".join(parts), keep="\n").encode())
    except OSError as error:
        fix = "free some space, then the same command writes it"
        raise RunError("the table cannot be written", where=path, got=error.strerror, fix=fix) from None


def noted(tables: Mapping[str, TextTable], note: str) -> dict[str, TextTable]:
    """Tables with a sentence more below the last of them; as they are where there is none, or no table."""
    found = {**tables}
    if found and note:
        heading, last = found.popitem()
        found[heading] = replace(last, note=f"{last.note}\n{note}".strip())
    return found
