"""A run is a folder; everything that was asked for, done and measured is in it.

    config.json        the job, its resolved configuration and the fingerprint of that, the columns of the rows
    environment.json   versions, commit, device, threads where it was started
    events.jsonl       what happened when, appended and fsynced line by line
    rows/part-*.parquet   the rows of one finished shard each
    unfinished/*.json  what a shard under way is gone on from (`unfinished.py`); not of every job
    begun.json         the shards that a process without actors works on, while it does (`begun.py`)
    summary.json       the metrics
    lock               held by the process that writes, where the file system has locks

`RunFolder.open` starts a run or goes on with it: a part counts when it reads back whole and every item in it worked.
Shards with a damaged part or a failed item are done again, whole. `RunFolder.load` looks at a run and changes nothing. Where
the folder is the local copy of a URI, the run is at that URI (`mirror.py`). No link in it is followed out of it (`links.py`).

Which shards a process without actors works on, so that its death is known to the next one: `begun.json` of a run folder.

They are noted while they are worked on, and no longer however that ends, by an error or a signal that Python sees too. A note
that was left behind says that the process died: by `os._exit` or a crash in code of a user's own, or by a kill from outside.

What a shard under way is gone on from: a JSON document of its job, whole or absent, until the rows of the shard are saved.

It outlives the process that wrote it and not always the machine, because nobody waits for the disk. A damaged document counts
as none: its shard is begun again.

The event log of a run: JSON lines, appended and fsynced one by one, so that what was reported did happen.

A line has "time" (UTC, ISO 8601, milliseconds) and "kind"; the rest is up to who reports.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from pathlib import Path
from parley.engine.core.runs.documents import write_whole
from parley.engine.core.runs.documents import BEGUN
from parley.engine.core.runs.remote_sync import replicate, withdraw
from parley.envs.core.errors import RunError
from parley.envs.core.storage.uris import display_path
from typing import Any
from parley.engine.core.runs.documents import ROWS, UNFINISHED
from parley.envs.core.storage.files import delete, put
from parley.envs.core.storage.uris import display_path, join_uri
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from types import MappingProxyType
from parley.engine.core.runs.documents import no_link, plain
import errno
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from types import MappingProxyType, TracebackType
import pyarrow as pa
from parley.engine.core.stats.statistics import Estimate
from parley.engine.core.runs.documents import leftovers, write_document
from parley.engine.core.runs.documents import describe_environment
from parley.engine.core.runs.documents import OTHER_NAME, make_head, read_head, refuse_strangers, require_same
from parley.engine.core.runs.documents import CONFIG, ENVIRONMENT, EVENTS, ROWS, SUMMARY, UNFINISHED
from parley.engine.core.runs.remote_sync import keeper_of
from parley.engine.core.runs.documents import refuse_links_out
from parley.engine.core.runs.remote_sync import WRITABLE, RunLock
from parley.engine.core.runs.remote_sync import Mirror, names_in, refresh_rows, replicate, withdraw
from parley.engine.core.runs.parts import (
    CORRUPT,
    Outcomes,
    Part,
    count_parts,
    digest_of,
    done_keys,
    list_parts,
    part_path,
    put_part,
    read_part,
    to_table,
    write_part,
)
from parley.engine.core.runs.parts import BASE
from parley.engine.core.runs.documents import make_summary, read_summary
from parley.envs.core.config import fingerprint, to_dict
from parley.envs.core.errors import ParleyError, RunError
from parley.envs.core.registry import require_trust_in
from parley.envs.core.storage.copies import LOCK
from parley.envs.core.storage.uris import display_path, join_uri, uri_of


logger = logging.getLogger(__name__)


class InFlightShards:
    """The notes of a run; a damaged file tells of nothing.

    Args:
        run: its folder, which this process writes.

    Attributes:
        deaths: by shard that has not come to its end since, how many processes died over it.
    """

    def __init__(self, run: Path) -> None:
        self._path = run / BEGUN
        self.deaths: dict[str, int] = {}
        try:
            found = json.loads(self._path.read_bytes())
            self.deaths = {str(name): int(number) for name, number in found["deaths"].items()}
            self.deaths |= {str(name): self.deaths.get(name, 0) + 1 for name in found["begun"]}
        except FileNotFoundError:
            pass
        except (AttributeError, KeyError, OSError, TypeError, ValueError):
            logger.warning("%s is damaged: which shards a process died over is forgotten", self._path)

    def note(self, names: Iterable[str]) -> None:
        """Notes the shards that are worked on from now; nobody waits for the disk, as no more than the process may die.

        Raises:
            RunError: the disk is full or the folder cannot be written.
            StorageError: the URI of the run cannot be written.
        """
        document = {"begun": list(names), "deaths": self.deaths}
        try:
            if any(document.values()):
                write_whole(self._path, json.dumps(document).encode(), durable=False)
                replicate(self._path)
            elif self._path.exists():
                self._path.unlink(missing_ok=True)
                withdraw(self._path)
        except OSError as error:
            fix = f"make room or mend the disk, then parley resume {display_path(self._path.parent)}"
            raise RunError("which shards are begun cannot be noted", where=self._path, got=error.strerror, fix=fix) from None


_ENDING = ".json"


def write_unfinished(run: Path, name: str, document: Any) -> None:
    """Keeps the document of a shard in the place of an older one.

    Args:
        run: the run's folder.
        name: of the shard.
        document: JSON types.

    Raises:
        RunError: the disk is full or the folder cannot be written.
    """
    path = _path(run, name)
    try:
        path.parent.mkdir(exist_ok=True)
        write_whole(path, _encoded(document), durable=False)
    except OSError as error:
        fix = f"make room or mend the disk, then parley resume {display_path(run)}"
        raise RunError(f"what there is of shard {name} cannot be kept", where=path, got=error.strerror, fix=fix) from None


def remove_unfinished(run: Path, name: str) -> None:
    """Removes what is kept of a shard, if there is anything."""
    _path(run, name).unlink(missing_ok=True)


def read_unfinished(run: Path) -> dict[str, Any]:
    """What is kept, by shard."""
    found = {}
    for path in sorted((run / UNFINISHED).glob(f"*{_ENDING}")):
        try:
            found[path.name.removesuffix(_ENDING)] = json.loads(path.read_bytes())
        except (OSError, ValueError):
            logger.warning("%s is damaged: its shard is begun again", path)
    return found


def put_unfinished(rows: str, name: str, document: Any) -> None:
    """Puts the document of a shard at the URI of its run.

    Args:
        rows: URI of the folder of the run's parts.
        name: of the shard.
        document: JSON types.

    Raises:
        StorageError: it cannot be written.
    """
    put(_uri(rows, name), _encoded(document))


def delete_unfinished(rows: str, name: str) -> None:
    """Deletes what is kept of a shard there.

    Raises:
        StorageError: it cannot be deleted.
    """
    delete(_uri(rows, name))


def _path(run: Path, name: str) -> Path:
    return run / UNFINISHED / f"{name}{_ENDING}"


def _uri(rows: str, name: str) -> str:
    return join_uri(rows.removesuffix(ROWS), f"{UNFINISHED}/{name}{_ENDING}")


def _encoded(document: Any) -> bytes:
    # Infinite numbers are told as Python tells them.
    return json.dumps(document).encode()


Needs = Mapping[str, Mapping[str, type]]
SESSIONS = ("started", "resumed")
"""Kinds of the events by which a run begins, and by which it goes on."""
SUMMARISED = "summary"
"""Kind of the event that says that a session has written the summary of its run."""
_OWN = {"shard": {"name": str, "done": int, "failed": int}}


def append_event(path: Path, kind: str, fields: dict[str, Any]) -> None:
    """Appends one line and waits until it is on the disk.

    Raises:
        OSError: the disk is full or the file cannot be written; the log is as it was before.
    """
    moment = datetime.now(UTC).isoformat(timespec="milliseconds")
    text = json.dumps({"time": moment, "kind": kind, **plain(fields)}, ensure_ascii=False, allow_nan=False)
    line = f"{text}\n".encode()
    with open(path, "ab", buffering=0, opener=no_link) as log:
        before = log.seek(0, os.SEEK_END)
        try:
            while line:
                # A disk with little room takes a part of the line; writing on makes it say why.
                line = line[os.write(log.fileno(), line) :]
            os.fsync(log.fileno())
        except OSError:
            log.truncate(before)
            raise


def read_events(path: Path, needs: Needs = MappingProxyType({})) -> list[dict[str, Any]]:
    """The events, oldest first; lines that were cut short, or are damaged otherwise, are left out with a warning.

    Args:
        path: the log.
        needs: by kind of event, the fields that the reader counts on and their types; a float may be a whole number.
    """
    if not path.is_file():
        return []
    # Not `splitlines`: what speakers said may hold other ends of lines.
    lines = [line for line in path.read_text(encoding="utf-8", errors="replace").split("\n") if line]
    events = [event for line in lines if (event := _event(line, {**needs, **_OWN})) is not None]
    if lost := len(lines) - len(events):
        logger.warning("%s: %s cannot be read and left out", path, "1 line" if lost == 1 else f"{lost} lines")
    return events


def seconds_of(events: Sequence[Mapping[str, Any]]) -> float:
    """Seconds on the wall that a run took: of each session those from its start to its last event."""
    told = [(event["kind"], datetime.fromisoformat(event["time"])) for event in events]
    return sum((after - before).total_seconds() for (_, before), (kind, after) in pairwise(told) if kind not in SESSIONS)


def last_session(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The events since a run was last started or resumed."""
    begins = [number for number, event in enumerate(events) if event["kind"] in SESSIONS]
    return list(events[begins[-1] :]) if begins else []


def is_summarised(events: Sequence[dict[str, Any]]) -> bool:
    """Whether the summary of a run that has one is of its last session; one that was cut short leaves that of another.

    Where no line of the log is left, the summary itself says that there is one.
    """
    session = last_session(events)
    return not session or any(event["kind"] == SUMMARISED for event in session)


def _event(line: str, needs: Needs) -> dict[str, Any] | None:
    try:
        event: dict[str, Any] = json.loads(line)
        dated = datetime.fromisoformat(event["time"]).tzinfo is not None
        fields = needs.get(event["kind"], {})
    except (KeyError, RecursionError, TypeError, ValueError):
        return None
    return event if dated and all(_is(event.get(name), kind) for name, kind in fields.items()) else None


def _is(value: object, kind: type) -> bool:
    return isinstance(value, (int, float) if kind is float else kind) and not isinstance(value, bool)


def end_last_line(path: Path) -> None:
    """Ends a line that a crash cut short, so that the next event gets a line of its own."""
    if path.is_file() and path.stat().st_size:
        with open(path, "rb+", opener=no_link) as log:
            log.seek(-1, os.SEEK_END)
            if log.read(1) != b"\n":
                log.write(b"\n")


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
        weights: Mapping[str, str] = MappingProxyType({}),
        lock: RunLock | None = None,
        mirror: Mirror | None = None,
    ) -> None:
        self.path, self.job, self.config, self.schema, self.weights = path, job, config, schema, weights
        self._uri = uri_of(path)
        self._lock, self._mirror = lock, mirror
        self._parts: dict[str, Part] = {}

    @classmethod
    def open(
        cls,
        path: Path,
        config: Any,
        *,
        job: str,
        schema: pa.Schema = BASE,
        resume_safe: Collection[str] = (),
        weights: Mapping[str, str] = MappingProxyType({}),
        day: str = "",
    ) -> RunFolder:
        """Starts a run in an absent or empty folder, or goes on with the run that is there.

        Args:
            path: the folder; parents are made. A local copy of a URI is made the same as that first.
            config: the resolved configuration, a dataclass.
            job: the name that `parley resume` finds the job by.
            schema: the columns of the rows, those of `schemas.BASE` among them.
            resume_safe: top-level keys of the configuration that may differ from the run's, because they change how the
                work is done and not its rows (number of workers, address).
            weights: digests of the models that the rows come from, by the setting that names each.
            day: ISO date of a run that begins, which its chat templates print; today when empty.

        Raises:
            ConfigError: the configuration names a Python file that may not be imported.
            RunError: the folder holds something else, or a run of another job, configuration or schema, or of models with
                other weights; another process writes it; or the disk refuses.
            StorageError: the URI that the folder is the copy of cannot be read or written.
        """
        require_trust_in(to_dict(config))
        if path.exists() and not path.is_dir():
            raise RunError("a run needs a folder and this is a file", where=path, fix=OTHER_NAME)
        refuse_links_out(path)
        found = names_in(path)
        if CONFIG not in found:
            refuse_strangers(path, found)
        try:
            (path / ROWS).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError("the run folder cannot be made", where=path, got=error.strerror, fix=WRITABLE) from error
        lock = RunLock(path / LOCK)
        mirror = None
        try:
            mirror = Mirror(path, uri) if (uri := uri_of(path)) is not None else None
            run = cls(path, job, to_dict(config), schema, weights, lock, mirror)
            if (path / CONFIG).is_file():
                run._go_on(resume_safe)
            else:
                run._start(fingerprint(config), day or date.today().isoformat())
        except BaseException:
            if mirror is not None:
                mirror.abandon()
            lock.release()
            raise
        return run

    @classmethod
    def load(cls, path: Path, schema: pa.Schema = BASE) -> RunFolder:
        """Looks at a run, finished or not, without touching it.

        Args:
            path: the folder.
            schema: the columns of the table that a run without rows reads as.

        Raises:
            RunError: there is no run.
        """
        head = read_head(path)
        return cls(path, head["job"], head["config"], schema, head["weights"])

    def close(self) -> None:
        """Lets the next writer in; a run that was loaded holds nothing.

        Raises:
            RunError: another process has taken over the URI that the run is at.
            StorageError: what is left cannot be put there.
        """
        lock, self._lock = self._lock, None
        mirror, self._mirror = self._mirror, None
        try:
            if mirror is not None:
                mirror.close()
        finally:
            if lock is not None:
                lock.release()

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self.close()
        except ParleyError as further:
            if error is None:
                raise
            # The first error is the one to mend.
            logger.warning("%s: %s", self.path, further)

    @property
    def num_done(self) -> int:
        """How many items worked and are saved; of a run opened for writing."""
        self._assert_writable()
        return sum(part.num_done for part in self._parts.values())

    def done_keys(self) -> frozenset[str]:
        """Keys of the items that worked and are saved, read from the parts; `num_done` says how many without that."""
        refresh_rows(self.path)
        with self._saving("the rows", verb="read"):
            return frozenset().union(*map(done_keys, list_parts(self.path / ROWS).values()))

    def is_done(self, name: str, keys: Collection[str]) -> bool:
        """Whether a shard is saved and every item in it worked.

        Raises:
            RunError: that part of the run holds other items, so the work was cut differently when the run was made.
        """
        self._assert_writable()
        part = self._parts.get(name)
        if part is None:
            return False
        if part.digest != digest_of(keys):
            raise RunError(
                "a part of the run holds other items than the shard of its name",
                where=part_path(self.path / ROWS, name),
                got=f"{part.num_items} items, and the shard has {len(keys)}",
                fix=f"the run was made by another version of this job; {OTHER_NAME}",
            )
        return not part.num_failed

    def write_shard(self, name: str, rows: Sequence[Mapping[str, Any]]) -> Part:
        """Saves the rows of one finished shard, whole or not at all; an older part of that name is replaced.

        Args:
            name: the shard's name; parts are read back in the order of their names.
            rows: one row per item, keyed by the columns of the schema; columns left out are null.

        Raises:
            RunError: the disk is full (the message says how much is saved) or cannot be written.
        """
        self._assert_writable()
        table = to_table(rows, self.schema)
        if self._mirror is not None:
            self._mirror.check()
            size = put_part(self.rows_uri, name, table)
        else:
            with self._saving(f"the rows of shard {name}"):
                size = write_part(part_path(self.path / ROWS, name), table)
        return self.note_part(name, Part.of(table), size)

    @property
    def rows_uri(self) -> str:
        """URI of the folder that parts are put into; empty for a run that is at none, whose parts this process writes."""
        return join_uri(self._uri, ROWS) if self._uri else ""

    def note_part(self, name: str, part: Part, size: int) -> Part:
        """Takes note of a part that is among the rows, such as one that a worker has put there, and returns it.

        Args:
            name: the shard's name.
            part: what it holds.
            size: of its file in bytes.

        Raises:
            RunError: the disk is full or cannot be written, or another process has taken the run over.
            StorageError: the event cannot be put.
        """
        self._assert_writable()
        self._parts[name] = part
        self._append("shard", {"name": name, "done": part.num_done, "failed": part.num_failed, "bytes": size}, at_once=False)
        return part

    def read_parts(self) -> Iterator[pa.Table]:
        """The saved rows part by part, in the order of the parts' names; no more than one part is held.

        Raises:
            RunError: a part is damaged.
        """
        refresh_rows(self.path)
        return map(self._read, list_parts(self.path / ROWS).values())

    def read_rows(self) -> pa.Table:
        """All saved rows at once, as `read_parts` gives them.

        Raises:
            RunError: a part is damaged.
            StorageError: the URI of the run cannot be read.
        """
        tables = list(self.read_parts())
        return pa.concat_tables(tables) if tables else self.schema.empty_table()

    def writer(self) -> str | None:
        """The process that writes the run now, such as "process 7 on node-3"; None when none does."""
        return keeper_of(self.path)

    def outcomes(self, events: Sequence[dict[str, Any]] | None = None) -> Outcomes:
        """How the saved items came out, see `count_parts`; also while another process writes. `events` may be given."""
        refresh_rows(self.path)
        noted = self.events() if events is None else events
        with self._saving("the rows", verb="read"):
            return count_parts(self.path / ROWS, {event["name"]: event for event in noted if event["kind"] == "shard"})

    def event(self, kind: str, **fields: Any) -> None:
        """Appends one line to the event log and waits until it is on the disk, or at the run's URI after what it tells of.

        Args:
            kind: what happened, such as "shard" or "epoch".
            fields: JSON types, numpy scalars or paths, under names other than "time" and "kind".

        Raises:
            RunError: the disk is full or cannot be written, or another process has taken the run over.
            StorageError: the URI cannot be written.
        """
        self._assert_writable()
        if self._mirror is not None:
            self._mirror.put_changes()
        self._append(kind, fields)

    def _append(self, kind: str, fields: dict[str, Any], at_once: bool = True) -> None:
        with self._saving("the event log"):
            append_event(self.path / EVENTS, kind, fields)
        if self._mirror is not None:
            self._mirror.put_log(at_once)

    def events(self, needs: Needs = MappingProxyType({})) -> list[dict[str, Any]]:
        """The event log, oldest first; what is damaged, or lacks what the reader needs (`read_events`), is left out."""
        return read_events(self.path / EVENTS, needs)

    def write_summary(self, metrics: Mapping[str, Estimate], extra: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Writes `summary.json`, whole, and returns what it holds.

        Args:
            metrics: estimates by name.
            extra: more top-level entries of JSON types, under names other than "metrics" and "run".

        Raises:
            RunError: the disk is full or cannot be written.
        """
        self._assert_writable()
        document = make_summary(self.path, metrics, extra or {})
        with self._saving("the summary"):
            write_document(self.path / SUMMARY, document)
        self.event(SUMMARISED)
        return document

    def summary(self) -> dict[str, Any] | None:
        """What `write_summary` wrote last; None when the run has no summary yet. A `RunError` says that it is damaged."""
        return read_summary(self.path)

    def metrics(self) -> dict[str, Estimate]:
        """The metrics of the summary, none before there is one. A `RunError` says that it is damaged."""
        return {name: Estimate.from_json(parts) for name, parts in (self.summary() or {}).get("metrics", {}).items()}

    def _start(self, config_fingerprint: str, day: str) -> None:
        head = make_head(self.path, self.job, self.config, config_fingerprint, self.schema, self.weights)
        with self._saving("the run folder"):
            write_document(self.path / ENVIRONMENT, {**describe_environment(), "date": day})
            # Last, because its presence is what makes the folder a run.
            write_document(self.path / CONFIG, head)
        self.event("started")

    def _go_on(self, resume_safe: Collection[str]) -> None:
        require_same(self.path, self.job, self.config, self.schema, resume_safe, self.weights)
        with self._saving("the run folder"):
            for leftover in (path for folder in (".", ROWS, UNFINISHED) for path in leftovers(self.path / folder)):
                leftover.unlink(missing_ok=True)
            end_last_line(self.path / EVENTS)
        refresh_rows(self.path)
        damaged = [name for name, path in list_parts(self.path / ROWS).items() if not self._take_in(name, path)]
        self.event("resumed", done=self.num_done, damaged=damaged, environment=describe_environment())

    def _take_in(self, name: str, path: Path) -> bool:
        """Notes what a part holds; one that is damaged is moved aside and False is returned."""
        with self._saving(f"the rows of shard {name}", verb="read"):
            table = read_part(path)
        if table is None or not table.schema.equals(self.schema):
            aside = path.with_name(path.name + CORRUPT)
            with self._saving(f"the rows of shard {name}"):
                path.replace(aside)
            replicate(aside)
            withdraw(path)
            logger.warning("%s is damaged: moved to %s, its items are done again", path, aside.name)
            return False
        self._parts[name] = Part.of(table)
        return True

    def _read(self, path: Path) -> pa.Table:
        with self._saving("the rows", verb="read"):
            table = read_part(path)
        if table is None:
            fix = f"parley resume {display_path(self.path)} does its items again"
            raise RunError("a part of the run is damaged", where=path, fix=fix)
        return table

    @contextmanager
    def _saving(self, what: str, verb: str = "written") -> Iterator[None]:
        """Turns what the disk says into what the user can do about it."""
        try:
            yield
        except OSError as error:
            num_saved = sum(part.num_done for part in self._parts.values())
            raise RunError(
                "the disk is full" if error.errno in _NO_ROOM else f"{what} cannot be {verb}",
                where=self.path,
                got=f"{error.strerror or error}, with {num_saved} items in {len(self._parts)} parts saved",
                fix=f"make room or mend the disk, then parley resume {display_path(self.path)} goes on from there",
            ) from error

    def _assert_writable(self) -> None:
        assert self._lock is not None, "the run was loaded, or closed; RunFolder.open makes one that can be written"
