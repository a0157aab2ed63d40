"""Folders of peft: an adapter alone, whose base lies in another folder here, or one beside full weights.

An adapter alone names its base in `adapter_config.json`. The base is read first, the adapter is added to its weights, and the
logits of both are compared (`policies/chat/lora.py`). Nothing is downloaded: a base that is named as it is on a hub is refused.

An adapter beside full weights is not applied: transformers 5.23 applies it where peft is installed, and only there.
"""

from __future__ import annotations

import json
import logging
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from parley.envs.core.errors import CheckpointError

logger = logging.getLogger(__name__)
ADAPTER, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
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


def tokenizer_folder(folder: Path, base: Path) -> Path:
    """Return the folder whose tokenizer counts: the adapter's where it has one, else the base's."""
    own = any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt"))
    return folder if own else base


def with_adapter(model: Any, folder: Path) -> Any:
    """Return a base with the adapter of a folder added to its weights.

    Args:
        model: the base; its layers are exchanged in place.
        folder: of the adapter.

    Raises:
        ConfigError: peft is not installed.
        CheckpointError: the adapter does not fit the base, cannot be added to it, or the sum says something else.
    """
    from parley.policies.chat.lora import merged, require_peft

    require_peft()
    from peft import PeftModel

    try:
        with warnings.catch_warnings():
            # Told below, by name.
            warnings.filterwarnings("ignore", message="Found missing adapter keys")
            warnings.filterwarnings("ignore", message="(?s).*ensure_weight_tying")
            adapted = PeftModel.from_pretrained(model, folder)
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        got = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:200]
        fix = "name the base that the adapter was trained on"
        raise CheckpointError("the adapter does not fit its base", where=folder, got=got, fix=fix) from None
    if lost := missing_weights(adapted, folder):
        fix = "save the adapter anew with save_pretrained"
        raise CheckpointError("the folder does not hold all weights of its adapter", where=folder, got=lost[0], fix=fix)
    return merged(adapted, str(folder))


def missing_weights(adapted: Any, folder: Path) -> list[str]:
    """Return the names of an adapter's weights that its file does not hold: peft leaves these as they were drawn."""
    from peft import get_peft_model_state_dict
    from safetensors import safe_open

    with safe_open(folder / WEIGHTS, framework="pt") as opened:
        stored = set(opened.keys())
    return sorted(set(get_peft_model_state_dict(adapted)) - stored)


def tell_of_adapter(folder: Path) -> bool:
    """Return whether an adapter lies beside full weights, and say once that it is not applied."""
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
