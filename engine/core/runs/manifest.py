"""The head of a run, `config.json`: which job it is of, as it was asked for, with which columns; and what may go on with it."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from parley.engine.core.runs.documents import ASIDE
from parley.engine.core.runs.layout import CONFIG, ENVIRONMENT, EVENTS, LEASE, LOG, ROWS
from parley.engine.core.runs.links import refuse_links_out
from parley.engine.core.runs.moved import relocated
from parley.envs.core.config import difference
from parley.envs.core.errors import ParleyError, RunError
from parley.envs.core.trust import RUN_FORMAT
from parley.envs.core.storage.copies import LOCK
from parley.envs.core.storage.uris import display_path

FORMAT = f"{RUN_FORMAT} 1"
OTHER_NAME = "give this run another name"
RESTORE = "restore it from a copy"
_PARTS = {"job": str, "config": dict, "columns": dict}
_DEEPEST = 64
"""Levels of a document; what walks through one would otherwise reach the end of Python's stack."""


def make_head(
    path: Path, job: str, config: Mapping[str, Any], fingerprint: str, schema: pa.Schema, weights: Mapping[str, str]
) -> dict[str, Any]:
    """The content of a new run's `config.json`."""
    head = {"format": FORMAT, "job": job, "fingerprint": fingerprint, "config": config, "columns": _columns(schema)}
    return {**head, "weights": weights, "run": display_path(path)}


def read_head(path: Path) -> dict[str, Any]:
    """The content of a run's `config.json`; of one that was moved or copied, names are as they are now (`moved.py`).

    Raises:
        RunError: there is no run, none that this version can read, its head is damaged, or a link leads out of it.
    """
    if not (path / CONFIG).is_file():
        raise RunError("there is no run here", where=display_path(path), fix="name the folder that holds the run's config.json")
    refuse_links_out(path)
    head = read_json(path / CONFIG)
    if head.get("format") != FORMAT or not head.keys() >= _PARTS.keys():
        raise RunError("no run that this version can read", where=path / CONFIG, got=head.get("format"), fix=OTHER_NAME)
    head.setdefault("weights", {})
    with whole(path / CONFIG):
        for name, kind in (_PARTS | {"weights": dict}).items():
            if not isinstance(head[name], kind):
                raise TypeError(f"{name} is a {type(head[name]).__name__} and not a {kind.__name__}")
    before = head.setdefault("run", "")
    return head | {"config": relocated(path, str(before), head["config"])}


def name_now(path: Path, name: str) -> str:
    """Return where something lies now that the rows or events of a run name; the same where the run was not moved."""
    return str(relocated(path, str(read_head(path)["run"]), name))


def read_json(path: Path, fix: str = RESTORE) -> dict[str, Any]:
    """A document of a run: a mapping, whose values are the reader's to check.

    Args:
        path: the file.
        fix: what helps where it is damaged.

    Raises:
        RunError: it is damaged.
    """
    with whole(path, fix):
        document = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(document, dict):
            raise TypeError(f"a {type(document).__name__} and not a mapping")
        if _is_deeper(document, _DEEPEST):
            raise ValueError(f"nested more than {_DEEPEST} deep")
        return document


@contextmanager
def whole(path: Path | str, fix: str = RESTORE) -> Iterator[None]:
    """Says of a document that cannot be read, or holds something else than its reader expects, that it is damaged.

    Args:
        path: the file or its URI, or the run that it is of.
        fix: what helps.

    Raises:
        RunError: it is. Other errors of Parley go through.
    """
    try:
        yield
    except ParleyError:
        raise
    except (OSError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        got = f"{type(error).__name__}: {error}"
        raise RunError("what is stored there is damaged, or of another version", where=path, got=got, fix=fix) from error


def _is_deeper(value: Any, levels: int) -> bool:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels == 0 or any(_is_deeper(part, levels - 1) for part in inside)


def require_same(
    path: Path, job: str, config: Mapping[str, Any], schema: pa.Schema, resume_safe: Collection[str], weights: Mapping[str, str]
) -> None:
    """Makes sure that the run in a folder is the one that is asked for.

    Args:
        path: the folder.
        job: the name of the job.
        config: its configuration as JSON types.
        schema: the columns of its rows.
        resume_safe: top-level keys of the configuration that may differ.
        weights: digests of the models that its rows come from.

    Raises:
        RunError: it is a run of another job, configuration or schema, or of models with other weights.
    """
    head = read_head(path)
    if head["job"] != job:
        got = f"{head['job']}, not {job}"
        raise RunError("the folder holds a run of another job", where=display_path(path), got=got, fix=OTHER_NAME)
    other_columns = difference(head["columns"], _columns(schema))
    if other_columns:
        raise RunError(
            "the rows of this run have other columns than this version writes",
            where=path / CONFIG,
            got="; ".join(other_columns),
            fix=OTHER_NAME,
        )
    before, now = ({k: v for k, v in each.items() if k not in resume_safe} for each in (head["config"], config))
    changes = difference(before, now)
    if changes:
        raise RunError(
            "the configuration differs from the one this run was started with",
            where=path / CONFIG,
            got="; ".join(changes),
            fix=f"undo the change to go on with the run; {OTHER_NAME}",
        )
    if others := changed_weights(head["weights"], weights):
        raise RunError(
            "a model has other weights, or a file other contents, than when this run was started",
            where=path / CONFIG,
            got="; ".join(others),
            fix=f"put back what was there to go on with the run; {OTHER_NAME}",
        )


def changed_weights(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Models whose weights are not those of before; one that is gone, or that a run does not know of, has not changed."""
    return [f"{name}: {before[name]} -> {digest}" for name, digest in now.items() if before.get(name, digest) != digest]


def refuse_strangers(path: Path, found: Collection[str]) -> None:
    """Only an absent folder, an empty one, or one whose run was killed at its birth may become a run.

    Args:
        path: the folder.
        found: what lies in it, or at the URI that it is the copy of.

    Raises:
        RunError: something else does.
    """
    own = {ENVIRONMENT, EVENTS, ROWS, LOCK, LOG, LEASE}
    strangers = sorted(name for name in found if name not in own and not name.endswith(ASIDE))
    if strangers:
        raise RunError(
            "the folder is not a run and not empty",
            where=display_path(path),
            got=", ".join(strangers[:5]) + (", ..." if len(strangers) > 5 else ""),
            fix=OTHER_NAME,
        )


def _columns(schema: pa.Schema) -> dict[str, str]:
    """The types of the columns by name, as text that tells two schemas apart."""
    return {field.name: f"{field.type}{'' if field.nullable else ' not null'}" for field in schema}
