"""Text tables that a run keeps beside its summary."""

from __future__ import annotations

from pathlib import Path

from engine.metrics.tables import TextTable
from engine.store.documents import write_whole
from envs.core.errors import RunError

TABLE_FILE = "table.md"


def write_table(path: Path, table: TextTable, about: dict[str, str]) -> None:
    """Writes a table as Markdown.

    Args:
        path: the file.
        table: what to write.
        about: the title, the description and the command that made it.

    Raises:
        RunError: the disk refuses.
    """
    heading = about["title"][:1].upper() + about["title"][1:]
    text = f"# {heading}\n\n{about['description']}\n\n{table.to_markdown()}\n```\n{about['command']}\n```\n"
    try:
        write_whole(path, text.encode())
    except OSError as error:
        fix = "free some space, then the same command writes it"
        raise RunError("the table cannot be written", where=path, got=error.strerror, fix=fix) from None
