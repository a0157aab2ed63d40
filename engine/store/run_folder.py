"""A run is a folder; everything that was asked for, done and measured is in it.

    config.json        the job, its resolved configuration and the fingerprint of that, the columns of the rows
    environment.json   versions, commit, device, threads where it was started
    events.jsonl       what happened when, appended and fsynced line by line
    rows/part-*.parquet   the rows of one finished shard each
    summary.json       the metrics
    lock               held by the process that writes

`RunFolder.open` starts a run or goes on with it: a part counts when it reads back whole and every item in it worked.
Shards with a damaged part or a failed item are done again, whole. `RunFolder.load` looks at a run and changes nothing.
"""

from __future__ import annotations

import errno
import json
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any

import pyarrow as pa

from engine.metrics.statistics import Estimate
from engine.store.documents import ASIDE, plain, write_document
from engine.store.environment import describe_environment
from engine.store.event_log import append_event, end_last_line, read_events
from engine.store.lock import RunLock, holder_of
from engine.store.parts import CORRUPT, Outcomes, Part, count_part, list_parts, part_path, read_part, to_table, write_part
from engine.store.schemas import DIALOGUES
from envs.core.config import difference, fingerprint, to_dict
from envs.core.errors import RunError

logger = logging.getLogger(__name__)

FORMAT = "parley run 1"
_CONFIG, _ENVIRONMENT, _EVENTS, _SUMMARY, _ROWS, _LOCK = (
    "config.json",
    "environment.json",
    "events.jsonl",
    "summary.json",
    "rows",
    "lock",
)
_OTHER_NAME = "give this run another name"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class RunFolder:
    """One run on disk; made by `open` (to write, and read) or `load` (to read).

    Attributes:
        path: the folder.
        job: the name of the job that the run belongs to.
        config: its configuration as JSON types.
        schema: the columns of its rows.
        weights: digests of the models that it was started with, by the setting that names each.
    """

    def __init__(
        self,
        path: Path,
        job: str,
        config: Mapping[str, Any],
        schema: pa.Schema,
        lock: RunLock | None,
        weights: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.path, self.job, self.config, self.schema, self.weights = path, job, config, schema, weights
        self._lock = lock
        self._parts: dict[str, Part] = {}

    @classmethod
    def open(
        cls,
        path: Path,
        config: Any,
        *,
        job: str,
        schema: pa.Schema = DIALOGUES,
        unchecked: Collection[str] = (),
        weights: Mapping[str, str] = MappingProxyType({}),
    ) -> RunFolder:
        """Starts a run in an absent or empty folder, or goes on with the run that is there.

        Args:
            path: the folder; parents are made.
            config: the resolved configuration, a dataclass.
            job: the name that `parley resume` finds the job by.
            schema: the columns of the rows, those of `schemas.BASE` among them.
            unchecked: top-level keys of the configuration that may differ from the run's, because they change how the
                work is done and not its rows (number of workers, address).
            weights: digests of the models that the rows come from, by the setting that names each.

        Raises:
            RunError: the folder holds something else, or a run of another job, configuration or schema, or of models with
                other weights; another process writes it; or the disk refuses.
        """
        if path.exists() and not path.is_dir():
            raise RunError("a run needs a folder and this is a file", where=path, fix=_OTHER_NAME)
        if not (path / _CONFIG).is_file():
            _refuse_strangers(path)
        try:
            (path / _ROWS).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError("the run folder cannot be made", where=path, got=error.strerror) from error
        lock = RunLock(path / _LOCK)
        try:
            run = cls(path, job, to_dict(config), schema, lock, weights)
            if (path / _CONFIG).is_file():
                run._go_on(unchecked)
            else:
                run._start(fingerprint(config))
        except BaseException:
            lock.release()
            raise
        return run

    @classmethod
    def load(cls, path: Path, schema: pa.Schema = DIALOGUES) -> RunFolder:
        """Looks at a run, finished or not, without touching it.

        Args:
            path: the folder.
            schema: the columns of the table that a run without rows reads as.

        Raises:
            RunError: there is no run.
        """
        head = _read_config(path)
        return cls(path, head["job"], head["config"], schema, None, head.get("weights", {}))

    def close(self) -> None:
        """Lets the next writer in; a run that was loaded holds nothing."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def done_keys(self) -> frozenset[str]:
        """Keys of the items that worked and are saved; of a run opened for writing."""
        self._assert_writable()
        return frozenset().union(*(part.done for part in self._parts.values()))

    def is_done(self, name: str, keys: Collection[str]) -> bool:
        """Whether a shard is saved and every item in it worked.

        Args:
            name: the shard's name.
            keys: its items.

        Raises:
            RunError: that part of the run holds other items, so the work was cut differently when the run was made.
        """
        self._assert_writable()
        part = self._parts.get(name)
        if part is None:
            return False
        if part.keys != frozenset(keys):
            raise RunError(
                "a part of the run holds other items than the shard of its name",
                where=part_path(self.path / _ROWS, name),
                got=f"{len(part.keys)} items, {len(part.keys - frozenset(keys))} of them not in the shard of {len(keys)}",
                fix=f"the run was made by another version of this job; {_OTHER_NAME}",
            )
        return not part.failed

    def write_shard(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Saves the rows of one finished shard, whole or not at all; an older part of that name is replaced.

        Args:
            name: the shard's name; parts are read back in the order of their names.
            rows: one row per item, keyed by the columns of the schema; columns left out are null.

        Raises:
            RunError: the disk is full (the message says how much is saved) or cannot be written.
        """
        self._assert_writable()
        table = to_table(rows, self.schema)
        with self._saving(f"the rows of shard {name}"):
            write_part(part_path(self.path / _ROWS, name), table)
        part = self._parts[name] = Part.of(table)
        self.event("shard", name=name, done=len(part.done), failed=len(part.failed))

    def read_rows(self) -> pa.Table:
        """All saved rows in the order of the parts' names, then of the rows in them.

        Raises:
            RunError: a part is damaged.
        """
        tables = [self._read(part) for part in list_parts(self.path / _ROWS).values()]
        return pa.concat_tables(tables) if tables else self.schema.empty_table()

    def writer(self) -> str | None:
        """The process that writes the run now, such as "process 7 on node-3"; None when none does."""
        return holder_of(self.path / _LOCK)

    def outcomes(self) -> Outcomes:
        """How the saved items came out, counted without their rows; also while another process writes."""
        with self._saving("the rows", verb="read"):
            return sum(map(count_part, list_parts(self.path / _ROWS).values()), Outcomes())

    def event(self, kind: str, **fields: Any) -> None:
        """Appends one line to the event log and waits until it is on the disk.

        Args:
            kind: what happened, such as "shard" or "epoch".
            fields: JSON types, numpy scalars or paths, under names other than "time" and "kind".

        Raises:
            RunError: the disk is full or cannot be written.
        """
        self._assert_writable()
        with self._saving("the event log"):
            append_event(self.path / _EVENTS, kind, fields)

    def events(self) -> list[dict[str, Any]]:
        """The event log, oldest first; lines that a crash cut short are left out with a warning."""
        return read_events(self.path / _EVENTS)

    def write_summary(self, metrics: Mapping[str, Estimate], extra: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Writes `summary.json`, whole, and returns what it holds.

        Args:
            metrics: estimates by name.
            extra: more top-level entries of JSON types, under names other than "metrics" and "run".

        Raises:
            RunError: the disk is full or cannot be written.
        """
        self._assert_writable()
        document = {"metrics": {name: estimate.to_json() for name, estimate in metrics.items()}, "run": str(self.path)}
        more = plain(extra or {})
        assert not set(document) & set(more), f"names that are taken: {set(document) & set(more)}"
        with self._saving("the summary"):
            write_document(self.path / _SUMMARY, document | more)
        self.event("summary")
        return document | more

    def summary(self) -> dict[str, Any] | None:
        """What `write_summary` wrote last; None when the run has no summary yet.

        Raises:
            RunError: the file is damaged.
        """
        return _read_json(self.path / _SUMMARY) if (self.path / _SUMMARY).is_file() else None

    def _start(self, config_fingerprint: str) -> None:
        head = {"format": FORMAT, "job": self.job, "fingerprint": config_fingerprint, "config": self.config}
        head["columns"] = _columns(self.schema)
        head["weights"] = self.weights
        with self._saving("the run folder"):
            write_document(self.path / _ENVIRONMENT, describe_environment())
            # Last, because its presence is what makes the folder a run.
            write_document(self.path / _CONFIG, head)
        self.event("started")

    def _go_on(self, unchecked: Collection[str]) -> None:
        head = _read_config(self.path)
        if head["job"] != self.job:
            raise RunError(
                "the folder holds a run of another job", where=self.path, got=f"{head['job']}, not {self.job}", fix=_OTHER_NAME
            )
        other_columns = difference(head["columns"], _columns(self.schema))
        if other_columns:
            raise RunError(
                "the rows of this run have other columns than this version writes",
                where=self.path / _CONFIG,
                got="; ".join(other_columns),
                fix=_OTHER_NAME,
            )
        before, now = ({k: v for k, v in each.items() if k not in unchecked} for each in (head["config"], self.config))
        changes = difference(before, now)
        if changes:
            raise RunError(
                "the configuration differs from the one this run was started with",
                where=self.path / _CONFIG,
                got="; ".join(changes),
                fix=f"undo the change to go on with the run; {_OTHER_NAME}",
            )
        if others := changed_weights(head.get("weights", {}), self.weights):
            raise RunError(
                "a model has other weights now than when this run was started",
                where=self.path / _CONFIG,
                got="; ".join(others),
                fix=f"put the weights back to go on with the run; {_OTHER_NAME}",
            )
        with self._saving("the run folder"):
            for leftover in [*self.path.glob(f"*{ASIDE}"), *(self.path / _ROWS).glob(f"*{ASIDE}")]:
                leftover.unlink()
            end_last_line(self.path / _EVENTS)
        damaged = [name for name, path in list_parts(self.path / _ROWS).items() if not self._take_in(name, path)]
        self.event("resumed", done=len(self.done_keys()), damaged=damaged, environment=describe_environment())

    def _take_in(self, name: str, path: Path) -> bool:
        """Notes what a part holds; one that is damaged is moved aside and False is returned."""
        with self._saving(f"the rows of shard {name}", verb="read"):
            table = read_part(path)
        if table is None or not table.schema.equals(self.schema):
            aside = path.with_name(path.name + CORRUPT)
            with self._saving(f"the rows of shard {name}"):
                path.replace(aside)
            logger.warning("%s is damaged: moved to %s, its items are done again", path, aside.name)
            return False
        self._parts[name] = Part.of(table)
        return True

    def _read(self, path: Path) -> pa.Table:
        with self._saving("the rows", verb="read"):
            table = read_part(path)
        if table is None:
            raise RunError("a part of the run is damaged", where=path, fix=f"parley resume {self.path} does its items again")
        return table

    @contextmanager
    def _saving(self, what: str, verb: str = "written") -> Iterator[None]:
        """Turns what the disk says into what the user can do about it."""
        try:
            yield
        except OSError as error:
            num_saved = sum(len(part.done) for part in self._parts.values())
            raise RunError(
                "the disk is full" if error.errno in _NO_ROOM else f"{what} cannot be {verb}",
                where=self.path,
                got=f"{error.strerror or error}, with {num_saved} items in {len(self._parts)} parts saved",
                fix=f"make room or mend the disk, then parley resume {self.path} goes on from there",
            ) from error

    def _assert_writable(self) -> None:
        assert self._lock is not None, "the run was loaded, or closed; RunFolder.open makes one that can be written"


def changed_weights(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Models whose weights are not those of before; one that is gone, or that a run does not know of, has not changed."""
    return [f"{name}: {before[name]} -> {digest}" for name, digest in now.items() if before.get(name, digest) != digest]


def _columns(schema: pa.Schema) -> dict[str, str]:
    """The types of the columns by name, as text that tells two schemas apart."""
    return {field.name: f"{field.type}{'' if field.nullable else ' not null'}" for field in schema}


def _refuse_strangers(path: Path) -> None:
    """Only an absent folder, an empty one, or one whose run was killed at its birth may become a run."""
    own = {_ENVIRONMENT, _EVENTS, _ROWS, _LOCK}
    strangers = sorted(entry.name for entry in path.glob("*") if entry.name not in own and not entry.name.endswith(ASIDE))
    if strangers:
        raise RunError(
            "the folder is not a run and not empty",
            where=path,
            got=", ".join(strangers[:5]) + (", ..." if len(strangers) > 5 else ""),
            fix=_OTHER_NAME,
        )


def _read_config(path: Path) -> dict[str, Any]:
    """The content of a run's `config.json`."""
    if not (path / _CONFIG).is_file():
        raise RunError("there is no run here", where=path, fix="name the folder that holds the run's config.json")
    head = _read_json(path / _CONFIG)
    if head.get("format") != FORMAT or not head.keys() >= {"job", "config", "columns"}:
        raise RunError("no run that this version can read", where=path / _CONFIG, got=head.get("format"), fix=_OTHER_NAME)
    return head


def _read_json(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise RunError("the file cannot be read as JSON", where=path, got=error, fix="restore it from a copy") from error
    return document if isinstance(document, dict) else {}
