"""Files that are either whole or absent: write aside, fsync, rename, fsync the folder.

Also what JSON can hold of a value (`plain`). Nothing here knows what a run is.

What the files and folders of a run are called.

Links in run folders. A run may come from anywhere, and what a link leads to outside of it is not the run's.

Runs that were moved or copied: where what they name lies now.

A run keeps the name that its folder had when it was started. The names in its settings, such as runs/demo/target of the
campaign runs/demo/minmax, hold where that folder was. What was moved or copied together lies in the same way to each other: so
a name is looked for from where the run lies now, and stands as it is where nothing is there. A name that shares no folder with
the run's old one is never changed.

The head of a run, `config.json`: which job it is of, as it was asked for, with which columns; and what may go on with it.

The summary of a run, `summary.json`: its metrics, and what its job says of them. It can be written again from the rows.

Where a run happened: versions, commit, device and threads, so that its numbers can be made again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from parley.envs.core.errors import RunError
from parley.envs.core.storage.uris import display_path
import json
import math
import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO
import numpy as np
from parley.envs.core.errors import sync
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any
from parley.envs.core.errors import ConfigError
from parley.envs.core.storage.files import entries
from parley.envs.core.storage.uris import CHAT_MODELS, display_path, is_uri, local_copy, split_uri, uri_of
from collections.abc import Collection, Iterator, Mapping
import pyarrow as pa
from parley.envs.core.config import difference
from parley.envs.core.errors import ParleyError, RunError
from parley.envs.core.registry import RUN_FORMAT
from parley.envs.core.storage.copies import LOCK
from parley.engine.core.stats.statistics import Estimate
import platform
import subprocess
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version


CONFIG, ENVIRONMENT, EVENTS, SUMMARY, ROWS = "config.json", "environment.json", "events.jsonl", "summary.json", "rows"
UNFINISHED = "unfinished"
"""Folder of what shards under way are gone on from."""
BEGUN = "begun.json"
"""Which shards a process without actors works on; there while it does."""
LOG, LEASE = "log", "lease.json"
"""At a URI alone: the event log, in segments, and who writes the run."""


def refuse_links_out(run: Path) -> None:
    """Refuse a run in which a link leads out of it: reading, writing and deleting would follow it.

    The folder itself may be a link, because the user has named it.

    Args:
        run: the folder, there or not.

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
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink():
                yield entry.path
            elif entry.is_dir(follow_symlinks=False):
                yield from _links(entry.path)


ASIDE = ".writing"
"""The ending of a file that is being written; one that lies around was left by a process that died."""
_WRITER = re.compile(rf"\.(\d+)-[0-9a-f]{{8}}(?:\.[^.]*)?{re.escape(ASIDE)}$")
"""What a file that is being written is called by, with the number of the process."""


def write_whole(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Writes a file so that a reader, or a restart after a crash, sees all of it or the file as it was before.

    Args:
        path: the file.
        content: of it.
        durable: as in `whole_file`.

    Raises:
        OSError: the disk is full or the folder cannot be written; nothing is left behind.
    """
    with whole_file(path, durable=durable) as file:
        file.write(content)


@contextmanager
def whole_file(path: Path, *, durable: bool = True) -> Iterator[BinaryIO]:
    """A file to be written bit by bit in a `with` block, whose end puts it where it belongs, see `write_whole`.

    Until then it has a name of its own, which says the process: two writers take nothing from each other, whoever clears up
    leaves it alone (`leftovers`), and no link that lies there is followed.

    Args:
        path: the file; a link of that name is replaced.
        durable: whether to wait for the disk, so that the file outlives the machine.

    Raises:
        OSError: as there. Whatever the block raises leaves nothing behind either.
    """
    aside = path.with_name(f"{path.stem}.{os.getpid()}-{uuid.uuid4().hex[:8]}{path.suffix}{ASIDE}")
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
    """Return the files of a folder that were being written by processes which have died since."""
    return [path for path in folder.glob(f"*{ASIDE}") if not _is_being_written(path)]


def _is_being_written(aside: Path) -> bool:
    writer = _WRITER.search(aside.name)
    if writer is None:
        return False
    try:
        os.kill(int(writer[1]), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def no_link(path: str, flags: int) -> int:
    """Open a file for Python's `open(..., opener=no_link)`, but no link.

    Raises:
        OSError: there is a link, or the file cannot be opened.
    """
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def write_document(path: Path, values: Mapping[str, Any]) -> None:
    """Writes a JSON document whole, see `write_whole`."""
    text = json.dumps(plain(values), indent=2, ensure_ascii=False, allow_nan=False)
    write_whole(path, f"{text}\n".encode())


def plain(value: Any) -> Any:
    """A value as JSON types: numpy scalars and arrays unwrapped, paths as text, NaN and infinities as null.

    Raises:
        TypeError: JSON has no form for the value.
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
"""Stands in the name of a part in a Python file, before the part's own."""


def relocated(path: Path, before: str, value: Any) -> Any:
    """Return settings of a run with the names of what was moved along as they are now.

    Args:
        path: the run's folder.
        before: what that was called when the run was started; empty for runs that do not know.
        value: the settings, JSON types.
    """
    return value if not before or _is_there(path, before) else _walked(path, before, value)


def _is_there(path: Path, before: str) -> bool:
    """Return whether a run still lies where it was started."""
    now = display_path(path)
    return now == before or (not is_uri(now) and not is_uri(before) and _absolute(now) == _absolute(before))


def _absolute(name: str) -> str:
    return os.path.abspath(name)  # noqa: PTH100  # links stay, as in the names of copies


def _walked(path: Path, before: str, value: Any) -> Any:
    if isinstance(value, str):
        return ",".join(_name_now(path, before, name) for name in value.split(","))
    if isinstance(value, Mapping):
        return {key: _walked(path, before, part) for key, part in value.items()}
    return [_walked(path, before, part) for part in value] if isinstance(value, list) else value


def _name_now(path: Path, before: str, name: str) -> str:
    prefix = next((kind for kind in CHAT_MODELS if name.startswith(kind)), "")
    file, colon, part = name.removeprefix(prefix).rpartition(":") if _PYTHON in name else (name.removeprefix(prefix), "", "")
    below = _from_run(before, file.strip())
    if below is None:
        return name
    now = _candidate(path, below)
    return f"{prefix}{now}{colon}{part}" if now else name


def _candidate(path: Path, below: str) -> str:
    """Return what lies at a path relative to a run, empty where nothing does."""
    uri = uri_of(path)
    if uri is None:
        file = Path(os.path.normpath(path / below))
        return str(file) if file.exists() else ""
    root, inside = split_uri(uri)
    place = os.path.normpath(PurePosixPath(inside) / below)
    base, mark, query = root.partition("?")
    found_uri = f"{base}/{place}{mark}{query}"
    return found_uri if local_copy(found_uri).exists() or entries(found_uri, recursive=True) else ""


def _from_run(before: str, name: str) -> str | None:
    """Return the path of a name relative to a run's old folder; None where they share no folder."""
    try:
        (root, folders), (other_root, others) = _parts(before), _parts(name)
    except ConfigError:
        # The address of a server, or a text that holds one.
        return None
    if root == other_root:
        shared = 0
        while shared < min(len(folders), len(others)) and folders[shared] == others[shared]:
            shared += 1
        return _relative(folders, shared, others[shared:]) if shared else None
    if other_root:
        return None
    # A relative name beside a run that was named by its whole path: the folder in which the end of the one begins the other.
    for shared in range(len(others), 0, -1):
        for end in range(len(folders), shared - 1, -1):
            if folders[end - shared : end] == others[:shared]:
                return _relative(folders, end, others[shared:])
    return None


def _relative(folders: list[str], shared: int, down: list[str]) -> str | None:
    """Return the path from a run to what lies below a folder above it, or the run itself; a folder above it is no name."""
    return "/".join([".."] * (len(folders) - shared) + down) or "." if down or shared == len(folders) else None


def _parts(name: str) -> tuple[str, list[str]]:
    """Return the root of a name, empty for a relative one, and its folders."""
    if is_uri(name):
        root, inside = split_uri(name)
        return root, list(PurePosixPath(inside).parts)
    pure = PurePosixPath(os.path.normpath(name)) if name else PurePosixPath()
    return (pure.root, list(pure.parts[1:])) if pure.root else ("", [part for part in pure.parts if part != "."])


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


def make_summary(path: Path, metrics: Mapping[str, Estimate], extra: Mapping[str, Any]) -> dict[str, Any]:
    """The content of the `summary.json` of a run folder; `extra` has names other than "metrics" and "run"."""
    document = {"metrics": {name: estimate.to_json() for name, estimate in metrics.items()}, "run": display_path(path)}
    more: dict[str, Any] = plain(extra)
    assert not set(document) & set(more), f"names that are taken: {set(document) & set(more)}"
    return document | more


def read_summary(path: Path) -> dict[str, Any] | None:
    """The content of the `summary.json` of a run folder; None when there is none yet.

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
    """The content of a `summary.json`, empty when there is none yet, for a `with` block that reads it.

    Raises:
        RunError: it is damaged, or holds something else than the block expects.
    """
    summary = read_summary(path) or {}
    with whole(path / SUMMARY, f"delete it; parley resume {display_path(path)} writes it again"):
        yield summary


PACKAGES = ("parley", "torch", "ray", "gymnasium", "nltk", "numpy", "pyarrow", "safetensors", "scipy")
_DISTRIBUTIONS = {"parley": "parley-redteam"}
"""Packages whose distribution has another name."""
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def describe_environment() -> dict[str, Any]:
    """What could change a run's numbers, as JSON types.

    Returns:
        python, platform, packages (versions by name, null where absent), git_commit (null outside a checkout; ends in
        "-dirty" when tracked files were changed), device, cpus, threads (by source, null where not set).
    """
    # Importing torch takes seconds; a run that computes with it has loaded it by now.
    torch = sys.modules.get("torch")
    device = torch.cuda.get_device_name() if torch is not None and torch.cuda.is_available() else "cpu"
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        **_code(),
        "device": device,
        "cpus": os.cpu_count(),
        "threads": {name: os.environ.get(name) for name in _THREAD_VARIABLES}
        | {"torch": None if torch is None else torch.get_num_threads()},
    }


@cache
def _code() -> dict[str, Any]:
    """What this process has loaded its code from; read once, before files are edited."""
    return {"packages": {name: _version(name) for name in PACKAGES}, "git_commit": git_commit(Path(__file__))}


def git_commit(source: Path) -> str | None:
    """The commit of the checkout that tracks a source file, "-dirty" appended when tracked files were changed.

    None when the file is installed rather than checked out, even where it is installed inside some other checkout.
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
