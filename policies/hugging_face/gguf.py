"""Files of llama.cpp as folders that `save_pretrained` writes, made once and kept in the cache.

transformers reads such a file by turning all of its numbers into plain ones, in seconds and in the memory of each process. The
folder holds the same numbers in float32, four bytes a weight, and is mapped (`kept_weights.py`).

A file is looked at first: one that was cut, or whose weights are of a type that cannot be read, is refused by what is wrong
with it. transformers 5.23 parts texts as GPT-2 does where it does not know the pre-tokenizer that a file names: that is said.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from parley.envs.core.errors import CheckpointError
from parley.policies.hugging_face.kept_weights import Save, kept_folder

logger = logging.getLogger(__name__)

READERS = ("gguf", "transformers")
"""Packages that the numbers come from."""
_WHOLE = "copy or download it again, and compare its size"
_LIKE_GPT2 = frozenset(("", "default", "gpt-2", "phi-2", "olmo", "mpt", "jais", "smollm", "starcoder", "refact", "command-r"))
"""Pre-tokenizers that part texts as GPT-2 does, but for single digits, of which such vocabularies have no others."""


def plain_folder(file: Path) -> Path:
    """The folder of the model that a file holds, made where it is not there yet.

    Args:
        file: of llama.cpp, with its tokenizer.

    Raises:
        StorageError: the folder cannot be written.
        CheckpointError: the file is cut, or its weights are of a type that is not read.
        OSError: as `transformers` raises what it cannot read; KeyError, ValueError and struct.error too.
    """
    found = file.resolve()
    return kept_folder("gguf", found.stem, [found], lambda: _read(found), readers=READERS)


def _read(file: Path) -> Save:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = {"gguf_file": file.name, "local_files_only": True, "trust_remote_code": False}
    _look_at(file)
    with _no_progress_bar():
        tokenizer = AutoTokenizer.from_pretrained(file.parent, **source)
        model = AutoModelForCausalLM.from_pretrained(file.parent, dtype=torch.float32, **source)
    # These are plain numbers by now, which transformers would not save.
    model.hf_quantizer.remove_quantization_config(model)
    return lambda aside: (tokenizer.save_pretrained(aside), model.save_pretrained(aside))


def _look_at(file: Path) -> None:
    """Check that a file can be read, and say which pre-tokenizer it names where transformers does not know it.

    Raises:
        CheckpointError: it ends before its weights do, or some are of a type that cannot be read.
    """
    import gguf

    try:
        reader: Any = gguf.GGUFReader(file)
    except (ValueError, IndexError, OverflowError, struct.error) as error:
        got = f"{file.stat().st_size:,} bytes; {type(error).__name__}: {error}"[:200]
        raise CheckpointError("the GGUF file is cut short, or damaged", where=file, got=got, fix=_WHOLE) from None
    for kind in sorted({tensor.tensor_type for tensor in reader.tensors}):
        try:
            gguf.quants.dequantize(np.zeros((1, gguf.GGML_QUANT_SIZES[kind][1]), dtype=np.uint8), kind)
        except NotImplementedError:
            fix = "name a file of another type, such as F16, Q8_0 or Q4_K_M, or serve it by llama.cpp: openai:URL#MODEL"
            what = "weights of this type of GGUF cannot be read"
            raise CheckpointError(what, where=file, got=kind.name, fix=fix) from None
    fields = {name: reader.fields.get(f"tokenizer.ggml.{name}") for name in ("model", "pre")}
    model, named = (str(field.contents()) if field is not None else "" for field in fields.values())
    if model == "gpt2" and named not in _LIKE_GPT2 | _known_splits():
        what = "%s: transformers does not know its pre-tokenizer %r and parts texts as GPT-2 does: tokens may be others"
        logger.warning(what, file, named)


def _known_splits() -> frozenset[str]:
    try:
        from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS
    except ImportError:
        return frozenset()
    return frozenset(map(str, GGUF_PRE_TOKENIZER_SPLITS))


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
