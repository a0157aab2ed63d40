"""Which weights a run was made with, so that it does not go on with others under the same name.

A digest is of files: a checkpoint's weights, all files of a folder of another kind (a Hugging Face model), the Python file of a
model of a user's own. Agents that are neither, such as scripted ones, belong to the version of Parley.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from parley.engine.core.runs.layout import CONFIG
from parley.engine.core.runs.manifest import name_now
from parley.envs.core.disk import file_digest
from parley.envs.core.storage.copies import CHECKPOINT, fetched_model
from parley.policies.chat.addresses import is_chat_address, weights_of
from parley.policies.core.stored import WEIGHTS, model_inside
from parley.policies.hugging_face.adapter_folders import base_of, is_adapter_alone


def weights_digests(models: Mapping[str, str]) -> dict[str, str]:
    """Digests of the models that are there.

    Args:
        models: what names each, such as "model", and its name: a run or checkpoint folder, another folder, the address
            of a chat model (of a server nothing can be kept to), or path/file.py:Name.

    Returns:
        SHA-256, its first 12 digits, by what named the model.
    """
    files = {option: _files(spec) for option, name in models.items() if (spec := weights_of(name))}
    return {option: _digest(found) for option, found in files.items() if found}


def _files(spec: str) -> list[Path]:
    checkpoint = checkpoint_folder(spec)
    if checkpoint is not None:
        return [checkpoint / WEIGHTS]
    path = Path(spec.rpartition(":")[0] if ".py:" in spec else spec).expanduser()
    if path.is_file():
        return [path]
    # Of a run that holds a model of another kind its model alone; of an adapter its base, too.
    folder = model_inside(path)
    folders = [folder, base_of(folder)] if is_adapter_alone(folder) else [folder]
    return sorted(part for inside in folders for part in inside.glob("*") if part.is_file())


def _digest(files: list[Path]) -> str:
    whole = hashlib.sha256()
    for path in files:
        whole.update(f"{path.name}\n{file_digest(path)}\n".encode())
    return whole.hexdigest()[:12]


def checkpoint_folder(spec: str) -> Path | None:
    """The checkpoint that a name stands for: a checkpoint folder, or a run that holds one; None for anything else."""
    if not spec or is_chat_address(spec):
        # An empty name, such as of a variable that is not set, would stand for the working folder.
        return None
    path = fetched_model(spec)
    for folder in (path, path / CHECKPOINT):
        if (folder / WEIGHTS).is_file():
            return folder
    return None


def name_beside(checkpoint: Path | None, name: str) -> str:
    """Return where something lies now that a checkpoint names, if the run that holds the checkpoint was moved with it."""
    run = None if checkpoint is None else checkpoint.parent
    return name if run is None or not (run / CONFIG).is_file() else name_now(run, name)
