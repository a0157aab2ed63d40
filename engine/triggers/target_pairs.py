"""Targets that come with a request each: files of (prompt, target) pairs, as CSV, TSV, JSON, JSON Lines or Parquet.

    AdvBench    goal,target
    HarmBench   Behavior,...,ContextString,BehaviorID with a column of targets, or a JSON file of targets by BehaviorID
    others      prompt,target

Such files are the user's own; the project ships none. Their kind is told by content and header (`envs/corpora/records.py`).
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from parley.engine.triggers.targets import Skipped, Target, TargetList, tell_repeated
from parley.envs.core.errors import DataError
from parley.envs.corpora.lines import FileLine, utf8_text
from parley.envs.corpora.records import KINDS, RecordKind, read_records, record_kind, value_text

PROMPTS, TARGETS = ("prompt", "goal", "behavior"), ("target",)
"""Names of columns, in any case."""
CONTEXT, IDENTITY = "contextstring", "behaviorid"
"""HarmBench's columns of what a request is about, and of its name."""
Refused = Callable[[str, str], Skipped | None]
"""From a prompt and a target to why the model cannot say the target there; None where it can."""

logger = logging.getLogger(__name__)


def has_prompts(targets: str) -> bool:
    """Return whether a list of targets is a file of pairs, by its content and header, or by its suffix.

    Raises:
        DataError: the file cannot be read.
    """
    return Path(targets).is_file() and _kind(Path(targets)) is not None


def read_pairs(path: Path, refused: Refused, *, target_file: Path | None = None, strict: bool = False) -> TargetList:
    """Read the pairs of a file; equal ones count once, and their number is logged.

    Args:
        path: a file of records, UTF-8.
        refused: what the model cannot say.
        target_file: JSON of targets by BehaviorID, where the file has no column of targets.
        strict: refuse what the model cannot say, instead of skipping and counting it.

    Raises:
        DataError: the file cannot be read, holds no pair, lacks a column, has a row that does not fit, or (strict) the model
            cannot say a target.
    """
    by_name = _by_name(target_file) if target_file else None
    targets: dict[tuple[str, str], Target] = {}
    skipped: dict[tuple[str, str], Skipped] = {}
    num_pairs = 0
    for record in read_records(path, _kind(path) or "CSV"):
        where = FileLine(str(path), record.line)
        pair = _pair(record.values, by_name, where)
        num_pairs += 1
        if why := refused(*pair):
            if strict:
                fix = "write it, or its prompt, with other or fewer words, or leave out --strict to skip and count such targets"
                raise DataError("the model cannot say a target", where=where, got=why.reason, fix=fix)
            skipped[pair] = why
            continue
        targets.setdefault(pair, Target(f"{path.stem}-{record.number:06d}", (pair[1],), pair[0]))
    tell_repeated(path.stem, num_pairs - len(targets) - len(skipped))
    if skipped:
        first = next(iter(skipped.values()))
        logger.warning("%d targets of %r are skipped, such as %r: %s", len(skipped), path.stem, first.sentence, first.reason)
    elif not targets:
        raise DataError("the file holds no pair", where=path, fix="write a line with a prompt and a target")
    return TargetList(path.stem, tuple(targets.values()), tuple(skipped.values()))


def _kind(path: Path) -> RecordKind | None:
    return record_kind(path, _is_header) or KINDS.get(path.suffix.lower())


def _is_header(cells: Sequence[str]) -> bool:
    """Return whether a first line names the columns of pairs."""
    return not {*PROMPTS}.isdisjoint(cells) and not {*TARGETS, IDENTITY}.isdisjoint(cells)


def _pair(columns: Mapping[str, Any], by_name: Mapping[str, str] | None, where: FileLine) -> tuple[str, str]:
    """Return the prompt and the target of a record."""
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
    return value_text(columns[name], name, where)


def _by_name(path: Path) -> Mapping[str, str]:
    """HarmBench's targets: a text for each BehaviorID."""
    fix = 'write {"BehaviorID": "target", ...}'
    try:
        members = json.loads(utf8_text(path), object_pairs_hook=list)
    except ValueError as error:
        raise DataError("the file of targets is no JSON", where=path, got=error, fix=fix) from None
    if not isinstance(members, list) or not all(isinstance(member, tuple) and isinstance(member[1], str) for member in members):
        raise DataError("the file of targets does not name a text for each behaviour", where=path, fix=fix)
    if twice := [name for name, count in Counter(name for name, _ in members).items() if count > 1]:
        raise DataError("the file of targets names a behaviour twice", where=path, got=twice[0], fix="leave one of them out")
    return dict(members)
