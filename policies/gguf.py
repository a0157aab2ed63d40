"""Files of llama.cpp as folders that `save_pretrained` writes, made once and kept in the cache.

transformers reads such a file by turning all of its numbers into plain ones, in seconds and in the memory of each process. The
folder holds the same numbers in float32, four bytes a weight, and is mapped (`kept_weights.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from policies.kept_weights import Save, kept_folder

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
    return kept_folder("gguf", found.stem, [found], lambda: _read(found), readers=READERS)


def _read(file: Path) -> Save:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = {"gguf_file": file.name, "local_files_only": True, "trust_remote_code": False}
    with _no_progress_bar():
        tokenizer = AutoTokenizer.from_pretrained(file.parent, **source)
        model = AutoModelForCausalLM.from_pretrained(file.parent, dtype=torch.float32, **source)
    # These are plain numbers by now, which transformers would not save.
    model.hf_quantizer.remove_quantization_config(model)
    return lambda aside: (tokenizer.save_pretrained(aside), model.save_pretrained(aside))


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
