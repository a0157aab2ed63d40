"""Folders of weights in the cache, in the numbers that they are read in, made once and mapped by every process of a machine.

transformers maps weights that are stored as they are read, which takes no time and no memory of a process; others it makes anew
in each. So folders in another precision, and files of llama.cpp (`gguf.py`), are kept a second time, as plain numbers.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable, Sequence
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

from safetensors import safe_open

from parley.envs.core.errors import StorageError
from parley.envs.core.storage.copies import turn_of
from parley.envs.corpora.root import cache_root

_NAMES = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16"}
"""How safetensors calls each precision."""
Save = Callable[[Path], object]
"""Writes a model to a folder."""


def kept_folder(
    kind: str, name: str, files: Sequence[Path], read: Callable[[], Save], *key: str, readers: Sequence[str]
) -> Path:
    """A folder of the cache, made where it is not there yet; another one where a file is another by its size or time.

    Args:
        kind: of the folder, below the cache.
        name: what it begins with.
        files: what it is made of.
        read: reads them, and returns what writes the folder.
        key: what else tells it from others.
        readers: packages that the numbers come from.

    Raises:
        StorageError: it cannot be written.
    """
    told = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    digest = sha256(repr((told, key, *map(version, readers))).encode()).hexdigest()[:16]
    folder = cache_root().absolute() / kind / f"{name}-{digest}"
    with turn_of(folder):
        if not folder.is_dir():
            save, aside = read(), folder.with_name(f".{folder.name}.{uuid.uuid4().hex}.partial")
            try:
                save(aside)
                aside.rename(folder)
            except OSError as error:
                got = error.strerror or str(error)
                fix = "make room, name another cache folder with PARLEY_CACHE, or read weights as they are stored (dtype auto)"
                raise StorageError("weights cannot be kept in the cache", where=folder, got=got, fix=fix) from error
            finally:
                shutil.rmtree(aside, ignore_errors=True)
    return folder


def in_precision(folder: Path, dtype: str, kind: str, read: Callable[[], Any]) -> Path:
    """The folder of a model whose weights are stored in a precision: itself, or one of the cache.

    Args:
        folder: as `save_pretrained` wrote it.
        dtype: float32, bfloat16 or float16.
        kind: the class that reads it.
        read: gives its model in that precision.

    Raises:
        StorageError: it cannot be written.
    """
    # An adapter beside the weights is none of them (`adapter_folders.py`).
    files = sorted(path for path in folder.glob("*.safetensors") if not path.name.startswith("adapter_"))
    config = folder / "config.json"
    if _stored_in(files) <= {_NAMES[dtype]} or "quantization_config" in json.loads(config.read_text(encoding="utf-8")):
        return folder

    def read_on() -> Save:
        model = read()
        # That of the folder is taken; transformers refuses to write what many hold.
        model.generation_config = type(model.generation_config)()
        return lambda aside: _save(model, folder, aside)

    return kept_folder("weights", folder.name, [config, *files], read_on, dtype, kind, readers=("transformers",))


def _save(model: Any, folder: Path, aside: Path) -> None:
    model.save_pretrained(aside)
    for path in folder.resolve().iterdir():
        if ".safetensors" not in path.name and not path.name.startswith("adapter_"):
            (aside / path.name).unlink(missing_ok=True)
            (aside / path.name).symlink_to(path)


def _stored_in(files: Sequence[Path]) -> set[str]:
    found = set()
    for file in files:
        with safe_open(file, framework="numpy") as opened:
            found |= {opened.get_slice(key).get_dtype() for key in opened.keys()}  # noqa: SIM118  # it is no mapping
    return found & set(_NAMES.values())
