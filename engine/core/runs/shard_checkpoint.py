"""What a shard under way is gone on from: a JSON document of its job, whole or absent, until the rows of the shard are saved.

It outlives the process that wrote it and not always the machine, because nobody waits for the disk. A damaged document counts
as none: its shard is begun again.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from parley.engine.core.runs.documents import write_whole
from parley.engine.core.runs.layout import ROWS, UNFINISHED
from parley.envs.core.errors import RunError
from parley.envs.core.storage.files import delete, put
from parley.envs.core.storage.uris import display_path, join_uri

logger = logging.getLogger(__name__)

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
