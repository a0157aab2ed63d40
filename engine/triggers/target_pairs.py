"""Targets that come with a request each: CSV or JSONL files of (prompt, target) pairs.

    AdvBench    goal,target
    HarmBench   Behavior,...,ContextString,BehaviorID with a column of targets, or a JSON file of targets by BehaviorID
    others      prompt,target

Such files are the user's own; the project ships none.
"""

from __future__ import annotations

import csv
import io
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from engine.triggers.targets import Skipped, Target, TargetList
from envs.core.errors import DataError
from envs.data.lines import FileLine
from envs.data.root import read_file

PROMPTS, TARGETS = ("prompt", "goal", "behavior"), ("target",)
"""Names of columns, in any case."""
CONTEXT, IDENTITY = "contextstring", "behaviorid"
"""HarmBench's columns of what a request is about, and of its name."""
SUFFIXES = (".csv", ".jsonl")
"""Of files of pairs."""
Refused = Callable[[str, str], Skipped | None]
"""From a prompt and a target to why the model cannot say the target there; None where it can."""

logger = logging.getLogger(__name__)


def has_prompts(targets: str) -> bool:
    """Whether a list of targets is a file of pairs."""
    return targets.endswith(SUFFIXES)


def read_pairs(path: Path, refused: Refused, *, target_file: Path | None = None, strict: bool = False) -> TargetList:
    """The pairs of a file; equal ones count once.

    Args:
        path: CSV with a line of names, or JSONL with an object a line; UTF-8.
        refused: what the model cannot say.
        target_file: JSON of targets by BehaviorID, where the file has no column of targets.
        strict: refuse what the model cannot say, instead of skipping and counting it.

    Raises:
        DataError: the file cannot be read, holds no pair, lacks a column, or (strict) the model cannot say a target.
    """
    by_name = _by_name(target_file) if target_file else None
    found: dict[tuple[str, str], Target] = {}
    skipped: dict[tuple[str, str], Skipped] = {}
    for line, entry in _entries(path):
        where = FileLine(str(path), line)
        pair = _pair(entry, by_name, where)
        if why := refused(*pair):
            if strict:
                fix = "write it, or its prompt, with other or fewer words, or leave out --strict to skip and count such targets"
                raise DataError("the model cannot say a target", where=where, got=why.reason, fix=fix)
            skipped[pair] = why
            continue
        found.setdefault(pair, Target(f"{path.stem}-{line:06d}", (pair[1],), pair[0]))
    if skipped:
        first = next(iter(skipped.values()))
        logger.warning("%d targets of %r are skipped, such as %r: %s", len(skipped), path.stem, first.sentence, first.reason)
    elif not found:
        raise DataError("the file holds no pair", where=path, fix="write a line with a prompt and a target")
    return TargetList(path.stem, tuple(found.values()), tuple(skipped.values()))


def _pair(entry: Mapping[str, Any], by_name: Mapping[str, str] | None, where: FileLine) -> tuple[str, str]:
    """The prompt and the target of an entry."""
    columns = {str(name).strip().lower(): value for name, value in entry.items() if name is not None}
    prompt = _column(columns, PROMPTS, where)
    if context := str(columns.get(CONTEXT) or "").strip():
        # As HarmBench puts them together.
        prompt = f"{context}\n\n---\n\n{prompt}"
    if by_name is None:
        return prompt, _column(columns, TARGETS, where)
    name = _column(columns, (IDENTITY,), where)
    # A blank target would be the beginning of any reply.
    if not (target := by_name.get(name, "").strip()):
        fix = "write it into the file of targets, or leave the line out"
        raise DataError("the file of targets has no target for a behaviour", where=where, got=name, fix=fix)
    return prompt, target


def _column(columns: Mapping[str, Any], names: tuple[str, ...], where: FileLine) -> str:
    name = next((name for name in names if name in columns), None)
    if name is None:
        got = f"columns {', '.join(columns) or 'none'}"
        fix = "name the columns prompt,target; targets without prompts stand in a file of sentences (.txt), one a line"
        raise DataError(f"the file has no column {' or '.join(names)}", where=where, got=got, fix=fix)
    value = columns[name]
    if not isinstance(value, str) or not value.strip():
        raise DataError(f"a {name} is empty", where=where, got=repr(value), fix="write a text there, or leave the line out")
    return value.strip()


def _entries(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The entries of a file, each with its line."""
    text = _text(path)
    if path.suffix == ".csv":
        reader = csv.DictReader(io.StringIO(text, newline=""))
        if not reader.fieldnames:
            raise DataError("the file of targets is empty", where=path, fix="write prompt,target and then a pair a line")
        try:
            for entry in reader:
                yield reader.line_num, entry
        except csv.Error as error:
            fix = "save the file as CSV again"
            raise DataError("a line is no CSV", where=FileLine(str(path), reader.line_num), got=error, fix=fix) from None
        return
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                entry = json.loads(line)
            except ValueError as error:
                fix = 'write {"prompt": "...", "target": "..."}'
                raise DataError("a line is no JSON", where=FileLine(str(path), number), got=error, fix=fix) from None
            if not isinstance(entry, dict):
                fix = 'write {"prompt": "...", "target": "..."}'
                raise DataError("a line is no object", where=FileLine(str(path), number), got=line[:80], fix=fix)
            yield number, entry


def _by_name(path: Path) -> Mapping[str, str]:
    """HarmBench's targets: a text for each BehaviorID."""
    fix = 'write {"BehaviorID": "target", ...}'
    try:
        found = json.loads(_text(path))
    except ValueError as error:
        raise DataError("the file of targets is no JSON", where=path, got=error, fix=fix) from None
    if not isinstance(found, dict) or not all(isinstance(text, str) for text in found.values()):
        raise DataError("the file of targets does not name a text for each behaviour", where=path, fix=fix)
    return found


def _text(path: Path) -> str:
    try:
        return read_file(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        fix = "save the file as UTF-8"
        raise DataError("the file of targets is not UTF-8 text", where=path, got=error.reason, fix=fix) from None
