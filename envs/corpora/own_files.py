"""A user's own file as a corpus: what its name says of columns and shares, what kind of file it is, and what its records hold.

    faq.csv                                     columns are found by their names, such as question and answer
    faq.csv#context=question,reply=answer       or named
    rated.jsonl#context=u1+u2,reply=r,label=ok  several columns are turns, the oldest first; a label, 1 or 0, makes candidates
    faq.csv#shares=70:15:15                     how records are shared out to train, val and test

What stands behind `#` is part of the corpus' name, so that every verb and every file that names the corpus says it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from parley.envs.core.errors import ConfigError, DataError
from parley.envs.core.registry import nearest
from parley.envs.corpora.lines import FileLine, read_lines
from parley.envs.corpora.records import KINDS, RecordKind, header_cells, read_records, record_kind
from parley.envs.corpora.sources import SPLITS

CONTEXT, REPLY, LABEL, SHARES = "context", "reply", "label", "shares"
ROLES = (CONTEXT, REPLY, LABEL)
KNOWN: dict[str, tuple[str, ...]] = {
    CONTEXT: ("context", "source", "question", "prompt", "input", "query", "instruction", "message"),
    REPLY: ("reply", "response", "answer", "target", "output", "completion"),
    LABEL: ("label",),
}
"""Names of columns by which roles are found; where one role has two such columns they are to be named."""
EVEN_SHARES = (90, 5, 5)
_STEMS = {"train": ("train",), "val": ("val", "valid", "dev"), "test": ("test",)}
_SUFFIXES = ("", ".txt", *KINDS)
_OPTION = re.compile(rf"\s*(?:{'|'.join((*ROLES, SHARES))})\s*=", re.IGNORECASE)
_LABELS = {"0": False, "1": True, "false": False, "true": True}
_LOOKED_AT = 20
"""Lines of a file without tabs by which it is told whether they are CSV."""


class ExchangeRecord(NamedTuple):
    """What a record says."""

    line: int
    context: tuple[str, ...]
    """Turns, oldest first."""
    replies: tuple[str, ...]
    label: bool | None
    """Whether the replies are right; None where the file has no labels."""


@dataclass(frozen=True)
class OwnFile:
    """A file or folder of a user's own, as a name says.

    Args:
        path: where it lies.
        columns: role and names of columns, in the order of the name; none to find them.
        shares: of train, val and test, where a file is shared out.
    """

    path: Path
    columns: tuple[tuple[str, tuple[str, ...]], ...] = ()
    shares: tuple[int, int, int] = EVEN_SHARES

    def of(self, path: Path) -> OwnFile:
        """Return a file of this folder, read by the same columns."""
        return replace(self, path=path)

    @property
    def told_shares(self) -> str:
        """How the file is shared out, and how to do it otherwise; nothing of a folder, and of a file of one split."""
        if not self.path.is_file() or split_named(self.path):
            return ""
        shares = ":".join(map(str, self.shares))
        return f"shared out {shares} to train, val and test by hash of the source; {self.path}#shares=70:15:15 does otherwise"

    @property
    def key(self) -> tuple[str, ...]:
        """What of the name the text depends on, beside the content of the files."""
        named = tuple(f"{role}={'+'.join(names)}" for role, names in self.columns)
        return named if self.shares == EVEN_SHARES else (*named, f"{SHARES}={':'.join(map(str, self.shares))}")

    @cached_property
    def kind(self) -> RecordKind | None:
        """The kind of file of records that it is; None of lines.

        Raises:
            DataError: it cannot be read.
        """
        if kind := record_kind(self.path, _is_header):
            return kind
        by_suffix = KINDS.get(self.path.suffix.lower())
        if self.columns:
            return by_suffix or "CSV"
        # Lines of two texts with a tab between are no table, whatever the file is called.
        return None if by_suffix in ("TSV", None) or _has_tabs(self.path) else by_suffix

    @cached_property
    def roles(self) -> dict[str, tuple[str, ...]]:
        """The columns of each role, of a file of records.

        Raises:
            DataError: a column is not there, or it is not known which columns hold context and reply.
        """
        assert self.kind is not None, "lines have no columns"
        columns = next((list(record.values) for record in read_records(self.path, self.kind)), None)
        if columns is None:
            raise DataError("the file holds no row", where=self.path, fix="write rows with a text in the columns of each")
        if self.columns:
            for name in (name for _, names in self.columns for name in names if name not in columns):
                got, fix = f"columns {', '.join(columns)}", "name columns of the file"
                raise DataError(f"there is no column {name!r}{nearest(name, columns)}", where=self.path, got=got, fix=fix)
            return dict(self.columns)
        roles = {role: [name for name in columns if name in KNOWN[role]] for role in ROLES}
        if len(roles[CONTEXT]) == 1 == len(roles[REPLY]) and len(roles[LABEL]) < 2:
            return {role: tuple(names) for role, names in roles.items() if names}
        raise unnamed_columns(self.path, self.kind, columns)

    @property
    def told(self) -> str:
        """How it is read, such as "CSV: context=question, reply=answer"; nothing of lines."""
        if self.kind is None:
            return ""
        return f"{self.kind}: {', '.join(f'{role}={chr(43).join(names)}' for role, names in self.roles.items())}"

    def exchanges(self, broken: list[DataError]) -> Iterator[ExchangeRecord | None]:
        """Read the records of a file in turn.

        Args:
            broken: takes the error of each record that is none, in whose place None comes.
        """
        assert self.kind is not None, "lines are read elsewhere"
        roles = self.roles
        try:
            for record in read_records(self.path, self.kind):
                where = FileLine(str(self.path), record.line)
                try:
                    context = [text for name in roles[CONTEXT] for text in _texts(record.values.get(name), name, where)]
                    replies = [text for name in roles[REPLY] for text in _texts(record.values.get(name), name, where)]
                    labels = [_label(record.values.get(name), name, where) for name in roles.get(LABEL, ())]
                except DataError as error:
                    broken.append(error)
                    yield None
                    continue
                yield ExchangeRecord(record.line, tuple(context), tuple(replies), all(labels) if labels else None)
        except DataError as error:
            # Behind a row that does not fit it is not known where the next begins.
            broken.append(error)


def own_file(name: str) -> OwnFile:
    """Read the name of a user's own file or folder.

    Raises:
        ConfigError: what stands behind `#` is not understood.
    """
    path, mark, options = name.rpartition("#")
    if not mark or "=" not in options or Path(name).expanduser().exists():
        return OwnFile(Path(name).expanduser())
    columns: dict[str, tuple[str, ...]] = {}
    shares = EVEN_SHARES
    fix = f"write {path}#context=COLUMN,reply=COLUMN, and perhaps label=COLUMN and shares=70:15:15"
    for part in options.split(","):
        role, _, value = part.partition("=")
        role, value = role.strip().lower(), value.strip()
        if role == SHARES:
            shares = _shares(value, name)
        elif role in ROLES and role not in columns and value:
            columns[role] = tuple(column.strip().lower() for column in value.split("+"))
        else:
            raise ConfigError(f"the name of a file says {part!r}, which is not known", where=name, fix=fix)
    if columns and not {CONTEXT, REPLY} <= columns.keys():
        raise ConfigError(
            "columns are named for context and reply, or for neither", where=name, got=", ".join(columns), fix=fix
        )
    return OwnFile(Path(path).expanduser(), tuple(columns.items()), shares)


def own_file_names(names: str) -> list[str]:
    """Return the names of files between commas; columns that a name gives, between commas too, stay with it."""
    files: list[str] = []
    for part in map(str.strip, names.split(",")):
        if files and "#" in files[-1] and _OPTION.match(part):
            files[-1] += f",{part}"
        elif part:
            files.append(part)
    return files


def without_options(name: str) -> str:
    """Return the name of a file without what it says of its columns and shares; any other name as it is."""
    path, mark, options = name.rpartition("#")
    return path if mark and _OPTION.match(options) and not Path(name).expanduser().exists() else name


def split_files(folder: Path) -> dict[str, Path]:
    """Return the file of each split that a folder has.

    Raises:
        ConfigError: two files are of one split.
    """
    by_split: dict[str, Path] = {}
    for split in SPLITS:
        stems = _STEMS[split]
        files = sorted(
            path for path in folder.glob("*") if path.stem in stems and path.suffix.lower() in _SUFFIXES and path.is_file()
        )
        if len(files) > 1:
            got, fix = ", ".join(path.name for path in files), "leave one of them there, or name a file"
            raise ConfigError(f"two files of one folder are for {split}", where=folder, got=got, fix=fix)
        if files:
            by_split[split] = files[0]
    return by_split


def split_named(path: Path) -> str | None:
    """Return the split that a file's name stands for; None of other names."""
    return next((split for split, stems in _STEMS.items() if path.stem in stems), None)


def unnamed_columns(path: Path, kind: RecordKind, columns: Sequence[str]) -> DataError:
    """Return the error of a file whose columns say nothing that is known: one sentence of help in the place of many."""
    first, second = [*columns, "COLUMN", "COLUMN"][:2]
    return DataError(
        f"this looks like {kind} with columns {', '.join(columns)}, and which of them hold context and reply is not known",
        where=path,
        fix=f"name them: {path}#context={first},reply={second}",
    )


def looks_like_csv(path: Path) -> DataError | None:
    """Return the error of a file of lines without a tab that are CSV, or ParlAI's; None of others."""
    lines = [line for line in read_lines(path)[:_LOOKED_AT] if line.strip()]
    if any(line.startswith("text:") and "\tlabels:" in line for line in lines):
        what = "this looks like ParlAI's text:...<TAB>labels:..., which is not read"
        return DataError(what, where=path, fix="write lines source<TAB>reply, or JSON Lines with the columns context and reply")
    if not lines or any("\t" in line for line in lines):
        return None
    for separator in (",", ";", "|"):
        counts = {len(header_cells(line, separator)) for line in lines}
        if len(counts) == 1 and counts.pop() > 1:
            if separator == ",":
                return unnamed_columns(path, "CSV", header_cells(lines[0], separator))
            fix = "save the file with commas (CSV) or tabs (TSV) between columns"
            return DataError(f"this looks like CSV with {separator!r} between columns", where=path, got=lines[0][:80], fix=fix)
    return None


def _is_header(cells: Sequence[str]) -> bool:
    return not {*KNOWN[CONTEXT]}.isdisjoint(cells) and not {*KNOWN[REPLY]}.isdisjoint(cells)


def _has_tabs(path: Path) -> bool:
    return any("\t" in line for line in read_lines(path)[:1])


def _shares(value: str, name: str) -> tuple[int, int, int]:
    parts = value.split(":")
    if len(parts) != len(SPLITS) or not all(part.isdecimal() and len(part) < 6 for part in parts) or not any(map(int, parts)):
        fix = "write whole numbers for train, val and test, such as shares=70:15:15"
        raise ConfigError("the shares of a split are three whole numbers", where=name, got=value, fix=fix)
    train, val, test = map(int, parts)
    return train, val, test


def _texts(value: Any, column: str, where: FileLine) -> list[str]:
    """Return the texts of a value: one, or those of a list; of messages what they say."""
    parts = value if isinstance(value, list) else [value]
    texts = [part.get("content") if isinstance(part, dict) else part for part in parts]
    if texts and all(isinstance(text, str) and text.strip() for text in texts):
        return [str(text) for text in texts]
    got, fix = repr(value)[:80], "write a text there, or leave the line out"
    raise DataError(f"a {column} is empty, or no text", where=where, got=got, fix=fix)


def _label(value: Any, column: str, where: FileLine) -> bool:
    label = _LABELS.get(str(value).strip().lower())
    if label is None:
        raise DataError(f"a {column} is 0 or 1", where=where, got=repr(value)[:80], fix="write 0 or 1, or name other columns")
    return label
