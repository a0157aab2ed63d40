"""Folders of weights in the cache, for files of llama.cpp and for other precisions, and folders of peft adapters.

transformers maps weights that are stored as they are read, which costs no time and no memory; all others it makes anew in each
process. So folders in another precision, and files of llama.cpp, are kept a second time, as plain numbers that every process of
a machine maps. The folder of a file of llama.cpp holds the same numbers in float32, four bytes a weight.

A file of llama.cpp is checked first: one that was cut, or with weights of a type that cannot be read, is refused with the
reason. transformers 5.23 splits texts as GPT-2 does if it does not know the file's pre-tokenizer: that is an error too.

A folder with an adapter alone names its base in `adapter_config.json`. The base is read first, the adapter is added to its
weights, and the logits of both are compared (`policies/chat/predictor.py`). Nothing is downloaded: the name of a base on a
hub is refused. An adapter beside full weights is not applied: transformers 5.23 applies it only if peft is installed.
"""

from __future__ import annotations

import json
import logging
import shutil
import struct
import tempfile
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open

from parley.envs.core.errors import CheckpointError, StorageError, file_digest
from parley.envs.core.storage.copies import turn_of
from parley.envs.corpora.arrow import cache_root

logger = logging.getLogger(__name__)

_NAMES = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16"}
"""Names of precisions in safetensors."""
Save = Callable[[Path], object]
"""A function that writes a model to a folder."""


def kept_folder(
    kind: str, name: str, files: Sequence[Path], read: Callable[[], Save], *key: str, readers: Sequence[str]
) -> Path:
    """Return a folder of the cache, made at first use; a file of another size or time has another folder.

    Args:
        kind: of the folder, below the cache.
        name: the beginning of its name.
        files: its source files.
        read: reads them, and returns a writer of the folder.
        key: further parts of its key.
        readers: packages that the numbers come from.

    Raises:
        StorageError: it cannot be written.
    """
    file_facts = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    digest = sha256(repr((file_facts, key, *map(version, readers))).encode()).hexdigest()[:16]
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
    """Return a folder with a model's weights in a precision: its own, or one of the cache.

    Args:
        folder: as `save_pretrained` wrote it.
        dtype: float32, bfloat16 or float16.
        kind: the class that reads it.
        read: gives its model in that precision.

    Raises:
        StorageError: it cannot be written.
    """
    # An adapter beside the weights is not one of them.
    files = sorted(path for path in folder.glob("*.safetensors") if not path.name.startswith("adapter_"))
    config = folder / "config.json"
    if _stored_in(files) <= {_NAMES[dtype]} or "quantization_config" in json.loads(config.read_text(encoding="utf-8")):
        return folder

    def read_on() -> Save:
        model = read()
        # The folder's own generation_config is copied; transformers refuses to write many of them.
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
    dtypes = set()
    for file in files:
        with safe_open(file, framework="numpy") as opened:
            dtypes |= {opened.get_slice(key).get_dtype() for key in opened.keys()}  # noqa: SIM118  # it is no mapping
    return dtypes & set(_NAMES.values())


READERS = ("gguf", "transformers")
"""Packages that read the numbers."""
_WHOLE = "copy or download it again, and compare its size"
_LIKE_GPT2 = frozenset(("", "default", "gpt-2", "phi-2", "olmo", "mpt", "jais", "smollm", "starcoder", "refact", "command-r"))
"""Pre-tokenizers that split texts as GPT-2 does, but for single digits; such vocabularies have no others."""


def plain_folder(file: Path) -> Path:
    """Return the folder of the model in a file, made at first use.

    Args:
        file: of llama.cpp, with its tokenizer.

    Raises:
        StorageError: the folder cannot be written.
        CheckpointError: the file is cut, or its weights are of a type that is not read.
        OSError: transformers cannot read the file; KeyError, ValueError and struct.error too.
    """
    resolved = file.resolve()
    return kept_folder("gguf", resolved.stem, [resolved], lambda: _read(resolved), readers=READERS)


def _read(file: Path) -> Save:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = {"gguf_file": file.name, "local_files_only": True, "trust_remote_code": False}
    _look_at(file)
    with _no_progress_bar():
        tokenizer = AutoTokenizer.from_pretrained(file.parent, **source)
        model = AutoModelForCausalLM.from_pretrained(file.parent, dtype=torch.float32, **source)
    # The weights are plain numbers by now, but transformers would refuse to save them.
    model.hf_quantizer.remove_quantization_config(model)
    return lambda aside: (tokenizer.save_pretrained(aside), model.save_pretrained(aside))


def _look_at(file: Path) -> None:
    """Check that a file can be read, and log its pre-tokenizer if transformers does not know it."""
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
    """Hide the progress bar of GGUF files, which ignores the setting."""
    from transformers import modeling_gguf_pytorch_utils as reader

    bar = reader.tqdm
    reader.tqdm = partial(bar, disable=True)
    try:
        yield
    finally:
        reader.tqdm = bar


ADAPTER, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
BASE_DIGEST = "base.json"
"""File beside an adapter with the digest of the base that it was trained on."""
_CONFIG = "config.json"
_FOLDER_FIX = 'write the folder of the base there: "base_model_name_or_path": "/path/of/the/base"'
_warned: set[Path] = set()


def is_adapter_alone(folder: Path) -> bool:
    """Return whether a folder holds an adapter of peft and no model."""
    return (folder / ADAPTER).is_file() and not (folder / _CONFIG).is_file()


def base_of(folder: Path) -> Path:
    """Return the folder of the base that an adapter alone names; a folder of anything else as it is.

    Raises:
        CheckpointError: there is no such folder, or the adapter's weights are missing or pickled.
    """
    if not is_adapter_alone(folder):
        return folder
    try:
        name = json.loads((folder / ADAPTER).read_text(encoding="utf-8"))["base_model_name_or_path"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        got = f"{type(error).__name__}: {error}"
        raise CheckpointError("the adapter names no base", where=folder / ADAPTER, got=got, fix=_FOLDER_FIX) from None
    if not (folder / WEIGHTS).is_file():
        got = ", ".join(sorted(path.name for path in folder.glob("adapter_model*"))) or "no weights"
        fix = "save the adapter with save_pretrained (safetensors); pickles are not read: they can run any code"
        raise CheckpointError(f"an adapter needs an {WEIGHTS}", where=folder, got=got, fix=fix)
    for base in (Path(str(name)).expanduser(), folder / str(name)):
        if name and (base / _CONFIG).is_file():
            return base
    what = "the adapter's base is no folder here, and nothing is downloaded"
    fix = f"save the base with save_pretrained, and {_FOLDER_FIX}"
    raise CheckpointError(what, where=folder / ADAPTER, got=f"base_model_name_or_path {name!r}", fix=fix)


def weights_digest(folder: Path) -> str:
    """Return one digest of the weights in a folder of `save_pretrained`."""
    digests = sha256()
    for path in sorted(folder.glob("*.safetensors")):
        digests.update(f"{path.name} {file_digest(path)}\n".encode())
    return digests.hexdigest()


def tokenizer_folder(folder: Path, base: Path) -> Path:
    """Return the folder of the tokenizer: the adapter's if it has one, else the base's."""
    has_tokenizer = any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt"))
    return folder if has_tokenizer else base


def require_own_base(folder: Path) -> Path:
    """Return the folder of the base of an adapter alone, after a check that its weights are those that it was trained on.

    Raises:
        CheckpointError: as `base_of`, or the weights are others.
    """
    base = base_of(folder)
    if (recorded := folder / BASE_DIGEST).is_file():
        digest = json.loads(recorded.read_text(encoding="utf-8"))["digest"]
        if digest != (present := weights_digest(base)):
            got = f"weights {present[:12]} in {base}, and it was trained on {digest[:12]}"
            fix = f"put that base back, or {_FOLDER_FIX}"
            raise CheckpointError("the adapter was trained on another base", where=folder, got=got, fix=fix)
    return base


def with_adapter(model: Any, folder: Path) -> Any:
    """Return a base with the adapter of a folder added to its weights.

    Args:
        model: the base; its layers are exchanged in place.
        folder: of the adapter.

    Raises:
        ConfigError: peft is not installed.
        CheckpointError: the adapter does not fit the base, cannot be added to it, or the sum says something else.
    """
    from parley.policies.chat.predictor import merged, require_peft

    require_peft()
    require_own_base(folder)
    return merged(read_adapter(model, folder), str(folder))


def read_adapter(model: Any, folder: Path, adapter_name: str = "default") -> Any:
    """Return a base with the adapter of a folder beside its weights.

    Args:
        model: the base, whose layers are exchanged in place, or already with adapters of other names.
        folder: of the adapter.
        adapter_name: peft's name of the adapter.

    Raises:
        CheckpointError: the adapter does not fit the base.
    """
    from peft import PeftModel

    try:
        with warnings.catch_warnings():
            # Reported below, by name.
            warnings.filterwarnings("ignore", message="Found missing adapter keys")
            warnings.filterwarnings("ignore", message="(?s).*ensure_weight_tying")
            # peft calls a function that transformers is about to rename.
            warnings.filterwarnings("ignore", category=FutureWarning)
            if isinstance(model, PeftModel):
                model.load_adapter(folder, adapter_name)
                adapted = model
            else:
                adapted = PeftModel.from_pretrained(model, folder, adapter_name=adapter_name)
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        got = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:200]
        fix = "name the base that the adapter was trained on"
        raise CheckpointError("the adapter does not fit its base", where=folder, got=got, fix=fix) from None
    if lost := missing_weights(adapted, folder, adapter_name):
        fix = "save the adapter anew with save_pretrained"
        raise CheckpointError("the folder does not hold all weights of its adapter", where=folder, got=lost[0], fix=fix)
    return adapted


def missing_weights(adapted: Any, folder: Path, adapter_name: str = "default") -> list[str]:
    """Return the names of an adapter's weights that its file does not hold: peft leaves these as they were drawn."""
    from peft import get_peft_model_state_dict

    with safe_open(folder / WEIGHTS, framework="pt") as opened:
        stored = set(opened.keys())
    return sorted(set(get_peft_model_state_dict(adapted, adapter_name=adapter_name)) - stored)


def tell_of_adapter(folder: Path) -> bool:
    """Return whether an adapter lies beside full weights, and log once that it is not applied."""
    beside = (folder / ADAPTER).is_file() and (folder / _CONFIG).is_file()
    if beside and folder.resolve() not in _warned:
        _warned.add(folder.resolve())
        what = "%s: the adapter beside the full weights is not applied: name a folder with the adapter alone to apply it"
        logger.warning(what, folder)
    return beside


@contextmanager
def without_adapter(folder: Path) -> Iterator[Path]:
    """Give the folder to read full weights from: one that shows all but an adapter that lies beside them."""
    if not tell_of_adapter(folder):
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="parley-model-") as aside:
        for path in folder.resolve().iterdir():
            if not path.name.startswith("adapter_"):
                (Path(aside) / path.name).symlink_to(path)
        yield Path(aside)
