"""`RunFolder`: a run is a folder that holds its configuration, its progress and its results.

    config.json        the job, its resolved configuration with a fingerprint, the columns of the rows
    environment.json   versions, commit, device, threads at the start
    events.jsonl       the event log, appended and fsynced line by line
    rows/part-*.parquet   the rows of one finished shard each
    unfinished/*.json  documents from which shards under way are resumed; not of every job
    begun.json         the shards that a process without actors works on, while it does (`InFlightShards`)
    summary.json       the metrics
    lock               held by the process that writes, if the file system has locks

`RunFolder.open` starts or resumes a run: a part counts if it reads back whole and every item in it worked. Shards with a
damaged part or a failed item are done again as a whole. `RunFolder.load` reads a run and changes nothing. If the folder is the
local copy of a URI, the run is at that URI (`remote_sync.py`). No link out of the folder is followed (`refuse_links_out`).

A `begun.json` that is left behind shows that the process died: by `os._exit`, by a crash in a user's code, or by a kill. Any
end that Python sees, an error or a signal, removes its notes.

A document in unfinished/ is whole or absent, and is kept until the rows of its shard are saved. It outlives the process but not
always the machine, because nobody waits for the disk. A damaged document counts as none: its shard is begun again.

A line of the event log has "time" (UTC, ISO 8601, milliseconds) and "kind"; the other fields depend on the kind.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any

import pyarrow as pa

from parley.engine.core.runs.documents import (
    BEGUN,
    CONFIG,
    ENVIRONMENT,
    EVENTS,
    LOG,
    OTHER_NAME,
    ROWS,
    SUMMARY,
    UNFINISHED,
    describe_environment,
    leftovers,
    make_head,
    make_summary,
    no_link,
    plain,
    read_head,
    read_summary,
    refuse_links_out,
    refuse_strangers,
    require_same,
    write_document,
    write_whole,
)
from parley.engine.core.runs.parts import (
    BASE,
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
from parley.engine.core.runs.remote_sync import (
    WRITABLE,
    Mirror,
    RunLock,
    keeper_of,
    names_in,
    refresh_rows,
    replicate,
    withdraw,
)
from parley.engine.core.stats.rows import StoredRows
from parley.engine.core.stats.statistics import Estimate
from parley.envs.core.config import fingerprint, to_dict
from parley.envs.core.errors import ParleyError, RunError
from parley.envs.core.registry import require_trust_in
from parley.envs.core.storage.copies import LOCK
from parley.envs.core.storage.files import delete, put
from parley.envs.core.storage.uris import display_path, join_uri, uri_of

logger = logging.getLogger(__name__)


class InFlightShards:
    """The shards that a process without actors works on, as noted in a run; a damaged file notes nothing.

    Args:
        run: the run's folder, which this process writes.

    Attributes:
        deaths: number of processes that died over a shard, by shard, until it comes to its end.
    """

    def __init__(self, run: Path) -> None:
        self._path = run / BEGUN
        self.deaths: dict[str, int] = {}
        try:
            notes = json.loads(self._path.read_bytes())
            self.deaths = {str(name): int(number) for name, number in notes["deaths"].items()}
            self.deaths |= {str(name): self.deaths.get(name, 0) + 1 for name in notes["begun"]}
        except FileNotFoundError:
            pass
        except (AttributeError, KeyError, OSError, TypeError, ValueError):
            logger.warning("%s is damaged: which shards a process died over is forgotten", self._path)

    def note(self, names: Iterable[str]) -> None:
        """Note the shards that are being worked on from now; nobody waits for the disk, because only the process may die.

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
    """Store the document of a shard, in place of an older one.

    Args:
        run: the run's folder.
        name: name of the shard.
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
    """Remove the document of a shard, if there is one."""
    _path(run, name).unlink(missing_ok=True)


def read_unfinished(run: Path) -> dict[str, Any]:
    """Return the stored documents by shard."""
    documents = {}
    for path in sorted((run / UNFINISHED).glob(f"*{_ENDING}")):
        try:
            documents[path.name.removesuffix(_ENDING)] = json.loads(path.read_bytes())
        except (OSError, ValueError):
            logger.warning("%s is damaged: its shard is begun again", path)
    return documents


def put_unfinished(rows: str, name: str, document: Any) -> None:
    """Put the document of a shard at the URI of its run.

    Args:
        rows: URI of the folder of the run's parts.
        name: name of the shard.
        document: JSON types.

    Raises:
        StorageError: it cannot be written.
    """
    put(_uri(rows, name), _encoded(document))


def delete_unfinished(rows: str, name: str) -> None:
    """Delete the document of a shard at the URI of its run.

    Raises:
        StorageError: it cannot be deleted.
    """
    delete(_uri(rows, name))


def _path(run: Path, name: str) -> Path:
    return run / UNFINISHED / f"{name}{_ENDING}"


def _uri(rows: str, name: str) -> str:
    return join_uri(rows.removesuffix(ROWS), f"{UNFINISHED}/{name}{_ENDING}")


def _encoded(document: Any) -> bytes:
    # Infinite numbers are written as Python writes them.
    return json.dumps(document).encode()


Needs = Mapping[str, Mapping[str, type]]
SESSIONS = ("started", "resumed")
"""Kinds of the events by which a run starts and resumes."""
SUMMARISED = "summary"
"""Kind of the event after a session has written the summary of its run."""
_OWN = {"shard": {"name": str, "done": int, "failed": int}}


def append_event(path: Path, kind: str, fields: dict[str, Any]) -> None:
    """Append one line and wait until it is on the disk.

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
                # A nearly full disk takes a part of the line; the next write raises the reason.
                line = line[os.write(log.fileno(), line) :]
            os.fsync(log.fileno())
        except OSError:
            log.truncate(before)
            raise


def read_events(path: Path, needs: Needs = MappingProxyType({})) -> list[dict[str, Any]]:
    """Return the events, oldest first; damaged lines and those cut short are left out with a warning.

    Args:
        path: the log.
        needs: by kind of event, the fields that the reader needs and their types; a float may be a whole number.
    """
    if not path.is_file():
        return []
    # Not `splitlines`: words of speakers may hold other ends of lines.
    lines = [line for line in path.read_text(encoding="utf-8", errors="replace").split("\n") if line]
    events = [event for line in lines if (event := _event(line, {**needs, **_OWN})) is not None]
    if lost := len(lines) - len(events):
        logger.warning("%s: %s cannot be read and left out", path, "1 line" if lost == 1 else f"{lost} lines")
    return events


def seconds_of(events: Sequence[Mapping[str, Any]]) -> float:
    """Return the wall-clock seconds of a run: of each session, from its start to its last event."""
    moments = [(event["kind"], datetime.fromisoformat(event["time"])) for event in events]
    return sum((after - before).total_seconds() for (_, before), (kind, after) in pairwise(moments) if kind not in SESSIONS)


def last_session(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the events since a run was last started or resumed."""
    begins = [number for number, event in enumerate(events) if event["kind"] in SESSIONS]
    return list(events[begins[-1] :]) if begins else []


def is_summarised(events: Sequence[dict[str, Any]]) -> bool:
    """Return whether the last session of a run wrote its summary; a session that was cut short leaves an older one.

    If the log has no readable line, the summary itself counts.
    """
    session = last_session(events)
    return not session or any(event["kind"] == SUMMARISED for event in session)


def is_blank(path: Path) -> bool:
    """Return whether a run on this machine holds nothing but failed items, and no stages. No run raises a `RunError`."""
    read_head(path)
    begun = (CONFIG, ENVIRONMENT, EVENTS, LOCK, LOG)
    files = (file for file in path.rglob("*") if not file.is_dir() and file.lstat().st_size)
    if list_parts(path / ROWS):
        outcomes, damaged = RunFolder.load(path).outcomes(), any((path / ROWS).glob(f"*{CORRUPT}"))
        has_stages = any(path.glob(f"*/{CONFIG}"))
        return uri_of(path) is None and not (outcomes.done or outcomes.damaged or damaged or has_stages)
    if uri_of(path) is not None or any(file.relative_to(path).as_posix() not in begun for file in files):
        return False
    return all(event["kind"] in SESSIONS for event in read_events(path / EVENTS))


def _event(line: str, needs: Needs) -> dict[str, Any] | None:
    try:
        event: dict[str, Any] = json.loads(line)
        has_zone = datetime.fromisoformat(event["time"]).tzinfo is not None
        fields = needs.get(event["kind"], {})
    except (KeyError, RecursionError, TypeError, ValueError):
        return None
    return event if has_zone and all(_has_type(event.get(name), kind) for name, kind in fields.items()) else None


def _has_type(value: object, kind: type) -> bool:
    return isinstance(value, (int, float) if kind is float else kind) and not isinstance(value, bool)


def end_last_line(path: Path) -> None:
    """End a line that a crash cut short, so that the next event gets a line of its own."""
    if path.is_file() and path.stat().st_size:
        with open(path, "rb+", opener=no_link) as log:
            log.seek(-1, os.SEEK_END)
            if log.read(1) != b"\n":
                log.write(b"\n")


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class RunFolder:
    """One run on disk; made by `open` (to write and read) or `load` (to read).

    Attributes:
        path: the folder.
        job: name of the job of the run.
        config: its configuration as JSON types.
        schema: columns of its rows.
        weights: digests of its models at the start, by the setting that names each.
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
        """Start a run in an absent or empty folder, or resume the run that is there.

        Args:
            path: the folder; parents are made. A local copy of a URI is first made the same as the URI.
            config: the resolved configuration, a dataclass.
            job: the job's name, by which `parley resume` finds it.
            schema: columns of the rows, with those of `parts.BASE`.
            resume_safe: top-level keys of the configuration that may differ from the run's, because they change how the work is
                done and not its rows (number of workers, address).
            weights: digests of the models behind the rows, by the setting that names each.
            day: ISO date of a new run, which its chat templates print; today if empty.

        Raises:
            ConfigError: the configuration names a Python file that may not be imported.
            RunError: the folder holds something else, or a run of another job, configuration or schema, or with models of other
                weights; another process writes it; or the disk refuses.
            StorageError: the URI that the folder is the copy of cannot be read or written.
        """
        require_trust_in(to_dict(config))
        if path.exists() and not path.is_dir():
            raise RunError("a run needs a folder and this is a file", where=path, fix=OTHER_NAME)
        refuse_links_out(path)
        names = names_in(path)
        if CONFIG not in names:
            refuse_strangers(path, names)
        try:
            (path / ROWS).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError("the run folder cannot be made", where=path, got=error.strerror, fix=WRITABLE) from error
        lock = RunLock(path / LOCK)
        mirror = None
        try:
            mirror = Mirror(path, uri) if (uri := uri_of(path)) is not None else None
            run = cls(path, job, to_dict(config), schema, weights, lock, mirror)
            run._sweep()
            resumes = (path / CONFIG).is_file()
            try:
                if resumes:
                    run._resume(resume_safe, type(config))
            except RunError as error:
                if not is_blank(path):
                    raise
                resumes = False
                if list_parts(path / ROWS):
                    logger.warning("every item of %s failed, and there is a change: it begins anew (%s)", path, error.got)
                    run._clear()
            if not resumes:
                run._start(fingerprint(config), day or date.today().isoformat())
        except BaseException:
            if mirror is not None:
                mirror.abandon()
            lock.release()
            raise
        return run

    @classmethod
    def load(cls, path: Path | str, schema: pa.Schema = BASE) -> RunFolder:
        """Return a run, finished or not, for reading; nothing is changed.

        Args:
            path: the folder.
            schema: columns of the table that a run without rows reads as.

        Raises:
            RunError: there is no run.
        """
        path = Path(path)
        head = read_head(path)
        return cls(path, head["job"], head["config"], schema, head["weights"])

    def close(self) -> None:
        """Let the next writer in; a loaded run holds nothing.

        Raises:
            RunError: another process has taken over the URI of the run.
            StorageError: the rest cannot be put there.
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
            # The first error is the one to fix.
            logger.warning("%s: %s", self.path, further)

    @property
    def num_done(self) -> int:
        """The number of saved items that worked; only for a run opened for writing."""
        self._assert_writable()
        return sum(part.num_done for part in self._parts.values())

    def done_keys(self) -> frozenset[str]:
        """Return the keys of saved items that worked, read from the parts; `num_done` counts them without reading."""
        refresh_rows(self.path)
        with self._saving("the rows", verb="read"):
            return frozenset().union(*map(done_keys, list_parts(self.path / ROWS).values()))

    def is_done(self, name: str, keys: Collection[str]) -> bool:
        """Return whether a shard is saved and every item in it worked.

        Raises:
            RunError: the part holds other items, so the work was cut differently when the run was made.
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
        """Save the rows of one finished shard, whole or not at all; an older part of that name is replaced.

        Args:
            name: the shard's name; parts are read back in the order of their names.
            rows: one row per item, keyed by the columns of the schema; missing columns are null.

        Raises:
            RunError: the disk is full (the message tells how much is saved) or cannot be written.
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
        """The URI of the folder of parts; empty for a run without a URI, whose parts this process writes."""
        return join_uri(self._uri, ROWS) if self._uri else ""

    def note_part(self, name: str, part: Part, size: int) -> Part:
        """Record a part that is among the rows, such as one that a worker has put there, and return it.

        Args:
            name: the shard's name.
            part: its summary.
            size: size of its file in bytes.

        Raises:
            RunError: the disk is full or cannot be written, or another process has taken the run over.
            StorageError: the event cannot be put.
        """
        self._assert_writable()
        self._parts[name] = part
        self._append("shard", {"name": name, "done": part.num_done, "failed": part.num_failed, "bytes": size}, at_once=False)
        return part

    def read_parts(self) -> Iterator[pa.Table]:
        """Return an iterator over the saved rows part by part, in the order of names; one part at a time is in memory.

        Raises:
            RunError: a part is damaged.
        """
        refresh_rows(self.path)
        return map(self._read, list_parts(self.path / ROWS).values())

    def rows(self) -> StoredRows:
        """Return the saved rows, which are read when they are asked for; one part at a time is in memory.

        Raises:
            RunError: a part is damaged; then or when it is read.
            StorageError: the URI of the run cannot be read.
        """
        refresh_rows(self.path)
        return StoredRows([partial(self._read, path) for path in list_parts(self.path / ROWS).values()])

    def read_rows(self) -> pa.Table:
        """Return all saved rows as one table.

        Raises:
            RunError: a part is damaged.
            StorageError: the URI of the run cannot be read.
        """
        tables = list(self.read_parts())
        return pa.concat_tables(tables) if tables else self.schema.empty_table()

    def writer(self) -> str | None:
        """Return the process that writes the run now, such as "process 7 on node-3"; None if none does."""
        return keeper_of(self.path)

    def outcomes(self, events: Sequence[dict[str, Any]] | None = None) -> Outcomes:
        """Return the outcomes of the saved items, see `count_parts`; also while another process writes."""
        refresh_rows(self.path)
        log = self.events() if events is None else events
        with self._saving("the rows", verb="read"):
            return count_parts(self.path / ROWS, {event["name"]: event for event in log if event["kind"] == "shard"})

    def event(self, kind: str, **fields: Any) -> None:
        """Append one line to the event log and wait for the disk; at a URI, the files that it tells of are put first.

        Args:
            kind: kind of the event, such as "shard" or "epoch".
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
        """Return the event log, oldest first; damaged events, or those without a needed field (`read_events`), are left out."""
        return read_events(self.path / EVENTS, needs)

    def write_summary(self, metrics: Mapping[str, Estimate], extra: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Write `summary.json`, whole, and return its content.

        Args:
            metrics: estimates by name.
            extra: further top-level entries of JSON types, under names other than "metrics" and "run".

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
        """Return the last written summary; None if the run has none yet. A damaged one raises a `RunError`."""
        return read_summary(self.path)

    def metrics(self) -> dict[str, Estimate]:
        """Return the metrics of the summary, none before there is one. A damaged one raises a `RunError`."""
        return {name: Estimate.from_json(parts) for name, parts in (self.summary() or {}).get("metrics", {}).items()}

    def _sweep(self) -> None:
        """Delete what dead processes left half written, in the run and in its folders."""
        with self._saving("the run folder"):
            for folder in (self.path, *(path for path in self.path.iterdir() if path.is_dir())):
                for leftover in leftovers(folder):
                    if leftover.is_dir() and not leftover.is_symlink():
                        shutil.rmtree(leftover, ignore_errors=True)
                    else:
                        leftover.unlink(missing_ok=True)

    def _clear(self) -> None:
        """Delete the rows and documents of the run; paid answers, its events and its log stay."""
        with self._saving("the run folder"):
            # The file that makes the folder a run goes first.
            for file in sorted(self.path.iterdir(), key=lambda file: file.name != CONFIG):
                if file.name in (ROWS, UNFINISHED):
                    shutil.rmtree(file)
                elif not file.is_dir() and file.name not in (EVENTS, LOCK, LOG):
                    file.unlink()
            (self.path / ROWS).mkdir()

    def _start(self, config_fingerprint: str, day: str) -> None:
        head = make_head(self.path, self.job, self.config, config_fingerprint, self.schema, self.weights)
        with self._saving("the run folder"):
            write_document(self.path / ENVIRONMENT, {**describe_environment(), "date": day})
            # Written last, because this file makes the folder a run.
            write_document(self.path / CONFIG, head)
        self.event("started")

    def _resume(self, resume_safe: Collection[str], kind: type) -> None:
        require_same(self.path, self.job, self.config, self.schema, resume_safe, self.weights, kind)
        with self._saving("the run folder"):
            end_last_line(self.path / EVENTS)
        refresh_rows(self.path)
        damaged = [name for name, path in list_parts(self.path / ROWS).items() if not self._load_part(name, path)]
        self.event("resumed", done=self.num_done, damaged=damaged, environment=describe_environment())

    def _load_part(self, name: str, path: Path) -> bool:
        """Record the content of a part; move a damaged one aside and return False."""
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

    def _read(self, path: Path, columns: Sequence[str] | None = None) -> pa.Table:
        with self._saving("the rows", verb="read"):
            table = read_part(path, columns)
        if table is None:
            fix = f"parley resume {display_path(self.path)} does its items again"
            raise RunError("a part of the run is damaged", where=path, fix=fix)
        return table

    @contextmanager
    def _saving(self, what: str, verb: str = "written") -> Iterator[None]:
        """Turn an error of the disk into an error that names the fix."""
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
