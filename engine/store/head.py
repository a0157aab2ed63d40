"""The head of a run, `config.json`: which job it is of, as it was asked for, with which columns; and what may go on with it."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from engine.store.documents import ASIDE
from engine.store.layout import CONFIG, ENVIRONMENT, EVENTS, LEASE, LOG, ROWS
from envs.core.config import difference
from envs.core.errors import RunError
from envs.storage.copies import LOCK
from envs.storage.places import display_path

FORMAT = "parley run 1"
OTHER_NAME = "give this run another name"


def make_head(
    job: str, config: Mapping[str, Any], fingerprint: str, schema: pa.Schema, weights: Mapping[str, str]
) -> dict[str, Any]:
    """The content of a new run's `config.json`."""
    head = {"format": FORMAT, "job": job, "fingerprint": fingerprint, "config": config, "columns": _columns(schema)}
    return {**head, "weights": weights}


def read_head(path: Path) -> dict[str, Any]:
    """The content of a run's `config.json`.

    Raises:
        RunError: there is no run, or none that this version can read.
    """
    if not (path / CONFIG).is_file():
        raise RunError("there is no run here", where=display_path(path), fix="name the folder that holds the run's config.json")
    head = read_json(path / CONFIG)
    if head.get("format") != FORMAT or not head.keys() >= {"job", "config", "columns"}:
        raise RunError("no run that this version can read", where=path / CONFIG, got=head.get("format"), fix=OTHER_NAME)
    return head


def read_json(path: Path) -> dict[str, Any]:
    """A document of a run.

    Raises:
        RunError: it is damaged.
    """
    try:
        document = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise RunError("the file cannot be read as JSON", where=path, got=error, fix="restore it from a copy") from error
    return document if isinstance(document, dict) else {}


def require_same(
    path: Path,
    job: str,
    config: Mapping[str, Any],
    schema: pa.Schema,
    resume_safe: Collection[str],
    weights: Mapping[str, str],
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
    if others := changed_weights(head.get("weights", {}), weights):
        raise RunError(
            "a model has other weights now than when this run was started",
            where=path / CONFIG,
            got="; ".join(others),
            fix=f"put the weights back to go on with the run; {OTHER_NAME}",
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
