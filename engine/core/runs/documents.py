"""The documents of a run folder: names of its files, atomic writes, `config.json`, `summary.json` and `environment.json`.

Writes. A file is either whole or absent: it is written under another name, fsynced and renamed, then its folder is fsynced.

Links. A run may come from anywhere, so a link that leads out of it is refused (`refuse_links_out`).

Moved runs. A run keeps the name that its folder had at the start. Names in its settings, such as runs/demo/target in the
campaign runs/demo/minmax, hold for that folder. Things moved or copied together keep their relative places, so a name is
looked for from the present place of the run (`relocated`), and stays as it is if nothing is there. A name that shares no
folder with the run's old one never changes.

`config.json` holds the job, its configuration and the columns of its rows; it decides what may resume the run. `summary.json`
holds the metrics and can be written again from the rows. `environment.json` holds versions, commit, device and threads, so that
numbers can be reproduced.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import re
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from parley.engine.core.stats.statistics import Estimate
from parley.envs.core.config import as_now, difference
from parley.envs.core.errors import ConfigError, ParleyError, RunError, sync
from parley.envs.core.registry import RUN_FORMAT
from parley.envs.core.storage.copies import LOCK
from parley.envs.core.storage.files import entries
from parley.envs.core.storage.uris import display_path, is_uri, local_copy, split_uri, uri_of
from parley.policies.chat.settings import REQUEST_LIMITS

CONFIG, ENVIRONMENT, EVENTS, SUMMARY, ROWS = "config.json", "environment.json", "events.jsonl", "summary.json", "rows"
UNFINISHED = "unfinished"
"""Folder of the documents from which shards under way are resumed."""
BEGUN = "begun.json"
"""Names of the shards that a process without actors works on; the file exists while it does."""
LOG, LEASE = "log", "lease.json"
"""At a URI only: the event log in segments, and the lease of the writer."""


def refuse_links_out(run: Path) -> None:
    """Refuse a run with a link that leads out of it, because reading, writing and deleting would follow it.

    The folder itself may be a link, because the user has named it.

    Args:
        run: the folder, which may not exist.

    Raises:
        RunError: a link leads out, or a folder cannot be listed.
    """
    try:
        root = os.path.realpath(run)
        for link in _links(root) if run.is_dir() else ():
            target = os.path.realpath(link)
            if os.path.commonpath((root, target)) != root:
                raise RunError(
                    "a link in the run leads out of it",
                    where=display_path(run / os.path.relpath(link, root)),
                    got=f"it leads to {target}",
                    fix="delete the link, or put a copy of what it leads to in its place",
                )
    except OSError as error:
        raise RunError("the run folder cannot be read", where=display_path(run), got=error.strerror) from error


def _links(folder: str) -> Iterator[str]:
    # A writer may delete a folder meanwhile, such as a checkpoint that it replaces.
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink():
                yield entry.path
            elif entry.is_dir(follow_symlinks=False):
                yield from _links(entry.path)


ASIDE = ".writing"
"""The ending of a file that is being written; a process that died may leave one."""
_WRITER = re.compile(rf"\.(\d+)-(?:([0-9a-f]{{8}})-)?[0-9a-f]{{8}}(?:\.[^.]*)?{re.escape(ASIDE)}$")
"""Pattern of the name of a file that is being written: the number of the process, and its machine, which may be missing."""
_SAVER = re.compile(r"\.(\d+)()\.(?:partial|old)$")
"""The same of a checkpoint or state that is being saved or replaced (`policies/core/checkpoint.py`); it names no machine."""
_DEAD_S = 86400.0
"""Age in seconds from which a file that a process of another machine was writing counts as left behind."""


def write_whole(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Write a file so that a reader, or a restart after a crash, sees the new file or the old one, whole.

    Args:
        path: the file.
        content: the new content.
        durable: as in `whole_file`.

    Raises:
        OSError: the disk is full or the folder cannot be written; nothing is left behind.
    """
    with whole_file(path, durable=durable) as file:
        file.write(content)


@contextmanager
def whole_file(path: Path, *, durable: bool = True) -> Iterator[BinaryIO]:
    """Open a file to write in a `with` block; its end moves the file to its place, as in `write_whole`.

    Until then the file has a name of its own, with the process and the machine in it. So two writers do not disturb each other,
    `leftovers` spares it, and no link at its place is followed.

    Args:
        path: the file; a link of that name is replaced.
        durable: whether to wait for the disk, so that the file survives a crash of the machine.

    Raises:
        OSError: as in `write_whole`. After any error of the block nothing is left behind.
    """
    aside = path.with_name(f"{path.stem}.{os.getpid()}-{_machine()}-{uuid.uuid4().hex[:8]}{path.suffix}{ASIDE}")
    try:
        with aside.open("xb") as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    if durable:
        sync(path.parent)


def leftovers(folder: Path) -> list[Path]:
    """Return the files and checkpoints of a folder that dead processes left half written."""
    forms = (f"*{ASIDE}", ".*.partial", ".*.old")
    return [path for form in forms for path in folder.glob(form) if not _is_being_written(path)]


def _is_being_written(aside: Path) -> bool:
    writer = _WRITER.search(aside.name) or _SAVER.search(aside.name)
    if writer is None:
        return False
    try:
        if writer[2] and writer[2] != _machine():
            # Numbers of processes of another machine, or of another container, mean nothing here.
            return time.time() - aside.stat().st_mtime < _DEAD_S
        os.kill(int(writer[1]), 0)
    except (FileNotFoundError, ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def _machine() -> str:
    return hashlib.blake2b(socket.gethostname().encode(), digest_size=4).hexdigest()


def no_link(path: str, flags: int) -> int:
    """Open a file, but no link, for Python's `open(..., opener=no_link)`.

    Raises:
        OSError: there is a link, or the file cannot be opened.
    """
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def write_document(path: Path, values: Mapping[str, Any]) -> None:
    """Write a JSON document whole, see `write_whole`."""
    text = json.dumps(plain(values), indent=2, ensure_ascii=False, allow_nan=False)
    write_whole(path, f"{text}\n".encode())


def plain(value: Any) -> Any:
    """Return a value as JSON types: numpy scalars and arrays unwrapped, paths as text, NaN and infinities as null.

    Raises:
        TypeError: the value has no JSON form.
    """
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    raise TypeError(f"JSON has no form for a {type(value).__name__}: {value!r}")


_PYTHON = ".py:"
"""Mark in the name of a part in a Python file, before the name of the part."""
_KINDS = re.compile(r"(?:[a-z][a-z0-9-]*:(?!//))*")
"""What may stand before the name of a folder, such as hf:, editor: or response-only:seq2seq:, but not the scheme of a URI."""


def relocated(path: Path, before: str, value: Any) -> Any:
    """Return settings of a run with the present names of things that were moved together with it.

    Args:
        path: the run's folder.
        before: name of the folder when the run was started; empty for runs that do not know.
        value: the settings, JSON types.
    """
    return value if not before or _is_unmoved(path, before) else _relocated_value(path, before, value)


def _is_unmoved(path: Path, before: str) -> bool:
    now = display_path(path)
    return now == before or (not is_uri(now) and not is_uri(before) and _absolute(now) == _absolute(before))


def _absolute(name: str) -> str:
    return os.path.abspath(name)  # noqa: PTH100  # links stay, as in the names of copies


def _relocated_value(path: Path, before: str, value: Any) -> Any:
    if isinstance(value, str):
        return ",".join(_name_now(path, before, name) for name in value.split(","))
    if isinstance(value, Mapping):
        return {key: _relocated_value(path, before, part) for key, part in value.items()}
    return [_relocated_value(path, before, part) for part in value] if isinstance(value, list) else value


def _name_now(path: Path, before: str, name: str) -> str:
    prefix = _KINDS.match(name)[0]  # type: ignore[index]  # it matches every name
    file, colon, part = name.removeprefix(prefix).rpartition(":") if _PYTHON in name else (name.removeprefix(prefix), "", "")
    below = _from_run(before, file.strip())
    if below is None:
        return name
    now = _existing_name(path, below)
    return f"{prefix}{now}{colon}{part}" if now else name


def _existing_name(path: Path, below: str) -> str:
    """Return the name of a thing at a path relative to a run, empty if nothing is there."""
    uri = uri_of(path)
    if uri is None:
        file = Path(os.path.normpath(path / below))
        return str(file) if file.exists() else ""
    root, inside = split_uri(uri)
    inside_path = os.path.normpath(PurePosixPath(inside) / below)
    base, mark, query = root.partition("?")
    candidate_uri = f"{base}/{inside_path}{mark}{query}"
    return candidate_uri if local_copy(candidate_uri).exists() or entries(candidate_uri, recursive=True) else ""


def _from_run(before: str, name: str) -> str | None:
    """Return the path of a name relative to a run's old folder; None if they share no folder."""
    try:
        (root, folders), (name_root, name_folders) = _parts(before), _parts(name)
    except ConfigError:
        # The name is the address of a server, or a text that holds one.
        return None
    if root == name_root:
        shared = 0
        while shared < min(len(folders), len(name_folders)) and folders[shared] == name_folders[shared]:
            shared += 1
        return _relative(folders, shared, name_folders[shared:]) if shared else None
    if name_root:
        return None
    # The name is relative and the run was named by its absolute path: find the folder at the end of one that begins the other.
    for shared in range(len(name_folders), 0, -1):
        for end in range(len(folders), shared - 1, -1):
            if folders[end - shared : end] == name_folders[:shared]:
                return _relative(folders, end, name_folders[shared:])
    return None


def _relative(folders: list[str], shared: int, down: list[str]) -> str | None:
    """Return the path from a run to a place below a folder above it, or to the run itself; a folder above it is no name."""
    return "/".join([".."] * (len(folders) - shared) + down) or "." if down or shared == len(folders) else None


def _parts(name: str) -> tuple[str, list[str]]:
    if is_uri(name):
        root, inside = split_uri(name)
        return root, list(PurePosixPath(inside).parts)
    pure = PurePosixPath(os.path.normpath(name)) if name else PurePosixPath()
    return (pure.root, list(pure.parts[1:])) if pure.root else ("", [part for part in pure.parts if part != "."])


FORMAT = f"{RUN_FORMAT} 1"
OTHER_NAME = "give this run another name: --run runs/NAME"
RESTORE = "restore it from a copy"
_PARTS = {"job": str, "config": dict, "columns": dict}
_DEEPEST = 64
"""The most levels of a document, so that a walk through one does not reach the end of Python's stack."""


def make_head(
    path: Path, job: str, config: Mapping[str, Any], fingerprint: str, schema: pa.Schema, weights: Mapping[str, str]
) -> dict[str, Any]:
    """Return the content of a new run's `config.json`."""
    head = {"format": FORMAT, "job": job, "fingerprint": fingerprint, "config": config, "columns": _columns(schema)}
    return {**head, "weights": weights, "run": display_path(path)}


def read_head(path: Path) -> dict[str, Any]:
    """Return the content of a run's `config.json`, with present names if the run was moved or copied.

    Raises:
        RunError: there is no run, or none that this version can read; `config.json` is damaged; or a link leads out of the run.
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
    """Return the present name of a thing that the rows or events of a run name; the same if the run was not moved."""
    return str(relocated(path, str(read_head(path)["run"]), name))


def read_json(path: Path, fix: str = RESTORE) -> dict[str, Any]:
    """Return a document of a run: a mapping, whose values the reader must check.

    Args:
        path: the file.
        fix: the fix to name if it is damaged.

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
    """Report a document as damaged if the `with` block cannot read it, or finds unexpected content.

    Args:
        path: the file or its URI, or its run.
        fix: the fix to name.

    Raises:
        RunError: it is damaged. Other errors of Parley pass through.
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
    path: Path,
    job: str,
    config: Mapping[str, Any],
    schema: pa.Schema,
    resume_safe: Collection[str],
    weights: Mapping[str, str],
    kind: type,
) -> None:
    """Raise an error unless the run in a folder is the requested one.

    Args:
        path: the folder.
        job: the name of the job.
        config: its configuration as JSON types.
        schema: the columns of its rows.
        resume_safe: top-level keys of the configuration that may differ.
        weights: digests of the models behind its rows.
        kind: the class of its configuration, which knows the settings of earlier versions.

    Raises:
        ConfigError: an earlier version made the run, with a setting that has another value today.
        RunError: it is a run of another job, configuration or schema, or its models have other weights.
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
    stored = as_now(kind, head["config"], str(path / CONFIG))
    changes = difference(fixed_settings(stored, resume_safe), fixed_settings(config, resume_safe))
    if changes:
        raise RunError(
            "the configuration differs from the one this run was started with",
            where=path / CONFIG,
            got="; ".join(changes),
            fix=f"undo the change to go on with the run; {OTHER_NAME}",
        )
    if changed_models := changed_weights(head["weights"], weights):
        raise RunError(
            "a model has other weights, or a file other contents, than when this run was started",
            where=path / CONFIG,
            got="; ".join(changed_models),
            fix=f"put back what was there to go on with the run; {OTHER_NAME}",
        )


def fixed_settings(config: Mapping[str, Any], resume_safe: Collection[str]) -> dict[str, Any]:
    """Return the settings that a resumed run must have as they were: not limits on requests to chat models.

    Args:
        config: a configuration as JSON types.
        resume_safe: top-level keys that may differ.
    """
    return {
        key: fixed_settings(value, REQUEST_LIMITS if key == "chat" else ()) if isinstance(value, Mapping) else value
        for key, value in config.items()
        if key not in resume_safe
    }


def changed_weights(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the models whose weights have changed; a model that is gone, or unknown to the run, has not changed."""
    return [f"{name}: {before[name]} -> {digest}" for name, digest in now.items() if before.get(name, digest) != digest]


def refuse_strangers(path: Path, names: Collection[str]) -> None:
    """Refuse to make a run in a folder with foreign files; absent, empty and barely begun runs pass.

    Args:
        path: the folder.
        names: names of the files in it, or at the URI that it is the copy of.

    Raises:
        RunError: there are foreign files.
    """
    run_files = {ENVIRONMENT, EVENTS, ROWS, LOCK, LOG, LEASE}
    strangers = sorted(name for name in names if name not in run_files and not name.endswith(ASIDE))
    if strangers:
        raise RunError(
            "the folder is not a run and not empty",
            where=display_path(path),
            got=", ".join(strangers[:5]) + (", ..." if len(strangers) > 5 else ""),
            fix=OTHER_NAME,
        )


def _columns(schema: pa.Schema) -> dict[str, str]:
    return {field.name: f"{field.type}{'' if field.nullable else ' not null'}" for field in schema}


def make_summary(path: Path, metrics: Mapping[str, Estimate], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a run's `summary.json`; `extra` has names other than "metrics" and "run"."""
    document = {"metrics": {name: estimate.to_json() for name, estimate in metrics.items()}, "run": display_path(path)}
    further: dict[str, Any] = plain(extra)
    assert not set(document) & set(further), f"names that are taken: {set(document) & set(further)}"
    return document | further


def read_summary(path: Path) -> dict[str, Any] | None:
    """Return the content of a run's `summary.json`; None if there is none yet.

    Raises:
        RunError: it is damaged.
    """
    file, fix = path / SUMMARY, f"parley resume {display_path(path)} writes it again"
    if not file.is_file():
        return None
    summary = read_json(file, fix)
    with whole(file, fix):
        for estimate in summary["metrics"].values():
            Estimate.from_json(estimate)
        if not all(isinstance(summary.get(name, ""), str) for name in ("title", "description", "command")):
            raise TypeError("title, description and command are texts")
    return summary


@contextmanager
def reading_summary(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the content of a `summary.json`, empty if there is none yet, to a `with` block that reads it.

    Raises:
        RunError: it is damaged, or holds something unexpected for the block.
    """
    summary = read_summary(path) or {}
    with whole(path / SUMMARY, f"delete it; parley resume {display_path(path)} writes it again"):
        yield summary


PACKAGES = ("parley", "torch", "ray", "gymnasium", "nltk", "numpy", "pyarrow", "safetensors", "scipy")
_DISTRIBUTIONS = {"parley": "parley-redteam"}
"""Packages whose distribution has another name."""
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def describe_environment() -> dict[str, Any]:
    """Return everything that could change a run's numbers, as JSON types.

    Returns:
        python, platform, packages (versions by name, null if absent), git_commit (null outside a checkout; ends in "-dirty"
        if tracked files were changed), device, cpus, threads (by source, null if not set).
    """
    # Importing torch takes seconds; a run that computes with it has loaded it by now.
    torch = sys.modules.get("torch")
    device = torch.cuda.get_device_name() if torch is not None and torch.cuda.is_available() else "cpu"
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        **_code_versions(),
        "device": device,
        "cpus": os.cpu_count(),
        "threads": {name: os.environ.get(name) for name in _THREAD_VARIABLES}
        | {"torch": None if torch is None else torch.get_num_threads()},
    }


@cache
def _code_versions() -> dict[str, Any]:
    return {"packages": {name: _version(name) for name in PACKAGES}, "git_commit": git_commit(Path(__file__))}


def git_commit(source: Path) -> str | None:
    """Return the commit of the checkout that tracks a source file, with "-dirty" if tracked files were changed.

    None if the file is installed and not checked out, even if it is installed inside another checkout.
    """
    where = ["git", "-C", str(source.parent)]
    if _output([*where, "ls-files", "--error-unmatch", source.name]) is None:
        return None
    return _output([*where, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"])


def _output(command: list[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=True, timeout=20)
        return done.stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def _version(package: str) -> str | None:
    try:
        return version(_DISTRIBUTIONS.get(package, package))
    except PackageNotFoundError:
        return None
