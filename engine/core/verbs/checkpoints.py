"""Checkpoints by name: what a setting that names a model must have, and what to say when it has none."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

from parley.engine.core.runs.manifest import read_head
from parley.engine.core.verbs.weights import checkpoint_folder
from parley.envs.core.errors import CheckpointError, ConfigError, RunError
from parley.envs.core.storage.copies import CHECKPOINT, fetched_model
from parley.envs.core.storage.uris import display_path
from parley.policies.chat.addresses import absolute_address, is_chat_address
from parley.policies.core.decoders import MAKERS, DecoderSettings
from parley.policies.core.stored import WEIGHTS, reads_pieces


def require_checkpoint(spec: str, option: str, maker: str = "parley train negotiator") -> Path:
    """The checkpoint that a name stands for.

    Args:
        spec: a run or checkpoint folder.
        option: what named it.
        maker: the command that makes such a checkpoint.

    Raises:
        CheckpointError: there is none, with what to do.
    """
    folder = checkpoint_folder(spec)
    if folder is None:
        got, fix = _instead(spec) or (None, "name a run or checkpoint folder")
        fix = fix if fix.startswith("parley") else f"{fix}; {maker} makes one"
        raise CheckpointError(f"{option} needs a checkpoint and there is none", where=spec, got=got, fix=fix)
    return folder


def require_word_model(spec: str, option: str, maker: str) -> Path:
    """The checkpoint of a model that reads words and no pieces; the arguments are those of `require_checkpoint`.

    Raises:
        CheckpointError: there is none; one that is damaged is told of by who loads it.
        ConfigError: it reads pieces, so that what is chosen one unit at a time is no word.
    """
    folder = require_checkpoint(spec, option, maker)
    if reads_pieces(folder):
        raise ConfigError(
            f"{option} needs a model that reads words: here they are chosen one by one, and pieces of words are none",
            where=spec,
            got="a model that was trained with subwords",
            fix=f"name a run of {maker} without subwords",
        )
    return folder


def absolute_name(name: str, option: str = "--model", maker: str = "parley train seq2seq") -> str:
    """The name of a response model for workers, which may stand in other folders.

    Args:
        name: a run or checkpoint, hf:FOLDER, gguf:FILE, openai:URL#MODEL or path/file.py:Name.
        option: what named it.
        maker: the command that makes such a checkpoint.

    Raises:
        CheckpointError: there is no checkpoint of that name.
    """
    if is_chat_address(name):
        return absolute_address(name)
    if ".py:" in name:
        path, _, part = name.rpartition(":")
        return f"{Path(path).expanduser().absolute()}:{part}"
    return display_path(require_checkpoint(name, option, maker).absolute())


def located(decoder: DecoderSettings) -> DecoderSettings:
    """The decoder with the models that it names by names which hold on other machines and in other folders.

    Raises:
        CheckpointError: one of them is not there.
    """
    found = {option: absolute_name(name, f"the decoder's {option}", MAKERS[option]) for option, name in decoder.models.items()}
    return replace(decoder, backward=found.get("backward", ""), lm=found.get("lm", ""))


def _instead(spec: str) -> tuple[str, str] | None:
    """What is where a checkpoint was looked for, and what to do about it; None when nothing is there."""
    from parley.engine.core.verbs.catalogue import find

    if not spec:
        return "an empty name", "name a run or checkpoint folder"
    path = fetched_model(spec)
    if path.is_file():
        return "a file", "name a run or checkpoint folder"
    if not path.is_dir():
        return None
    inside = [display_path(weights.parents[1]) for weights in sorted(path.glob(f"*/{CHECKPOINT}/{WEIGHTS}"))]
    fix = f"name one of the runs in it: {', '.join(inside)}" if inside else "name the run of a training"
    try:
        entry = find(read_head(path)["job"])
    except RunError:
        return "a folder that is no run", fix
    job = f"a run of parley {' '.join(entry.words)}"
    if CHECKPOINT in entry.load().files:
        return f"{job} that has not come to its end", f"{shlex.join(['parley', 'resume', spec])} goes on with it"
    return f"{job}, which is no training", fix
