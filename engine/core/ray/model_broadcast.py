"""Models that go with the work to machines which do not see the driver's disk.

The driver puts the files of each checkpoint into Ray's object store, so that a machine fetches them once. A worker that sees
the driver's disk reads them where they lie; another one keeps a copy below its cache, named by its digest. What lies at a URI
is fetched from there (`envs/core/storage`) and is not carried.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from parley.engine.core.ray.shared import SharedArrays
from parley.envs.core.errors import StorageError
from parley.envs.core.storage.copies import fetched_model, hand_over
from parley.envs.core.storage.uris import is_uri
from parley.envs.corpora.root import cache_root
from parley.policies.core.stored import PARTS, model_inside


@dataclass(frozen=True)
class _Carried:
    """The files of a checkpoint.

    Args:
        folder: where they lie on the driver's disk.
        stamps: size and time of each, by its name.
        digest: of all of them.
        content: their bytes by name, in the object store.
    """

    folder: Path
    stamps: Mapping[str, tuple[int, int] | None]
    digest: str
    content: SharedArrays

    @classmethod
    def put(cls, folder: Path) -> _Carried:
        files = {name: (folder / name).read_bytes() for name in PARTS}
        whole = hashlib.sha256()
        for content in files.values():
            whole.update(hashlib.sha256(content).digest())
        shared = SharedArrays.put({name: np.frombuffer(content, dtype=np.uint8) for name, content in files.items()})
        return cls(folder, {name: _stamp(folder / name) for name in PARTS}, whole.hexdigest()[:16], shared)

    def here(self) -> Path:
        """The folder in which the files lie on this machine."""
        if all(_stamp(self.folder / name) == stamp for name, stamp in self.stamps.items()):
            return self.folder
        kept = Path(os.path.abspath(cache_root())) / "carried" / self.digest  # noqa: PTH100  # as other copies are named
        if not kept.is_dir():
            aside = kept.with_name(f".{kept.name}.{uuid.uuid4().hex}.partial")
            try:
                aside.mkdir(parents=True)
                for name, content in self.content.get().items():
                    (aside / name).write_bytes(content.data)
                # Another worker may have been first.
                if not kept.is_dir():
                    aside.rename(kept)
            except OSError as error:
                if not kept.is_dir():
                    fix = "make room, or name another cache folder with PARLEY_CACHE"
                    raise StorageError("a model cannot be kept on this machine", where=kept, got=error, fix=fix) from error
            finally:
                shutil.rmtree(aside, ignore_errors=True)
        return kept


@dataclass(frozen=True)
class CarriedModels:
    """A handle on models that may be given to workers as an argument; the driver must keep it while they work.

    Args:
        models: by the names that work knows them by.
    """

    models: Mapping[str, _Carried]

    @classmethod
    def put(cls, names: Iterable[str]) -> CarriedModels:
        """Shares the checkpoints among some names; others, such as those of scripted agents, are left alone.

        A `session.connect` block must be around the call and around all use of the handle.

        Args:
            names: run or checkpoint folders, or names of other things.
        """
        folders = {name: model_inside(fetched_model(name)).absolute() for name in names if name and not is_uri(name)}
        there = {folder for folder in folders.values() if all((folder / part).is_file() for part in PARTS)}
        carried = {folder: _Carried.put(folder) for folder in there}
        return cls({name: carried[folder] for name, folder in folders.items() if folder in there})

    def open(self) -> None:
        """Makes the names stand for the models in this process, whatever its disk holds.

        Raises:
            StorageError: the disk has no room for them.
        """
        hand_over({name: carried.here() for name, carried in self.models.items()})

    def __deepcopy__(self, memo: dict[int, Any]) -> CarriedModels:
        return self


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns
