"""Files of llama.cpp as folders that `save_pretrained` writes, made once and kept in the cache.

transformers reads such a file by turning all of its numbers into plain ones, in seconds and in the memory of each process.
Weights of a folder are mapped instead: the processes of a machine that read them share one copy, which takes no time to open.
It holds the same numbers in float32, four bytes a weight.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

from envs.core.errors import StorageError
from envs.data.root import cache_root
from envs.storage.copies import turn_of

READERS = ("gguf", "transformers")
"""Packages that the numbers come from."""


def plain_folder(file: Path) -> Path:
    """The folder of the model that a file holds, made where it is not there yet.

    Args:
        file: of llama.cpp, with its tokenizer.

    Raises:
        StorageError: the folder cannot be written.
        OSError: as `transformers` raises what it cannot read; KeyError, ValueError and struct.error too.
    """
    found = file.resolve()
    told = found.stat()
    metadata = (str(found), told.st_size, told.st_mtime_ns, *map(version, READERS))
    folder = cache_root().absolute() / "gguf" / f"{found.stem}-{sha256(repr(metadata).encode()).hexdigest()[:16]}"
    with turn_of(folder):
        if not folder.is_dir():
            _write(found, folder)
    return folder


def _write(file: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = {"gguf_file": file.name, "local_files_only": True, "trust_remote_code": False}
    with _no_progress_bar():
        tokenizer = AutoTokenizer.from_pretrained(file.parent, **source)
        model = AutoModelForCausalLM.from_pretrained(file.parent, dtype=torch.float32, **source)
    # These are plain numbers by now, which transformers would not save.
    model.hf_quantizer.remove_quantization_config(model)
    aside = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}.partial")
    try:
        tokenizer.save_pretrained(aside)
        model.save_pretrained(aside)
        aside.rename(folder)
    except OSError as error:
        got, fix = error.strerror or str(error), "make room, or name another cache folder with PARLEY_CACHE"
        raise StorageError("the weights of a GGUF file cannot be kept", where=folder, got=got, fix=fix) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


@contextmanager
def _no_progress_bar() -> Iterator[None]:
    """That of GGUF files heeds no setting."""
    from transformers import modeling_gguf_pytorch_utils as reader

    bar = reader.tqdm
    reader.tqdm = partial(bar, disable=True)
    try:
        yield
    finally:
        reader.tqdm = bar
