"""Checkpoints of jobs: find them by name, digest their weights, and set the date, device and threads of a run.

A digest covers files: the weights of a checkpoint, all files of a Hugging Face folder, or the Python file of a user's model. A
run stores the digests of its models and refuses to resume with other weights under the same name. Agents without files, such as
scripted ones, belong to the version of Parley.

The date of a run is the day on which it began. Chat templates print it, so a resumed run keeps it on any machine.
"""

from __future__ import annotations

import dataclasses
import hashlib
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any, TypeVar

from parley import after_import
from parley.engine.core.runs.documents import CONFIG, ENVIRONMENT, EVENTS, name_now, read_head, read_json
from parley.engine.core.runs.run_folder import read_events
from parley.envs.core.errors import CheckpointError, ConfigError, RunError, file_digest
from parley.envs.core.storage.copies import CHECKPOINT, fetched_model
from parley.envs.core.storage.uris import display_path
from parley.policies.chat.addresses import absolute_address, is_chat_address, weights_of
from parley.policies.chat.settings import DateSettings
from parley.policies.core.responder import MAKERS, WEIGHTS, DecoderSettings, model_inside, reads_pieces

ConfigT = TypeVar("ConfigT")


def weights_digests(models: Mapping[str, str]) -> dict[str, str]:
    """Return the digests of the models that exist.

    Args:
        models: names of models by the setting that names each, such as "model". A name is a run or checkpoint folder, another
            folder, the address of a chat model (a server has no digest), or path/file.py:Name.

    Returns:
        The first 12 digits of SHA-256, by setting.
    """
    files = {option: _files(spec) for option, name in models.items() if (spec := weights_of(name))}
    return {option: _digest(paths) for option, paths in files.items() if paths}


def _files(spec: str) -> list[Path]:
    checkpoint = checkpoint_folder(spec)
    if checkpoint is not None:
        return [checkpoint / WEIGHTS]
    path = Path(spec.rpartition(":")[0] if ".py:" in spec else spec).expanduser()
    if path.is_file():
        return [path]
    # A run that holds a model of another kind gives that model alone; an adapter gives its base, too.
    folder = model_inside(path)
    if not folder.is_dir():
        return []
    from parley.policies.hugging_face.gguf import base_of, is_adapter_alone

    folders = [base_of(folder), folder] if is_adapter_alone(folder) else [folder]
    return [part for inside in folders for part in sorted(inside.glob("*")) if part.is_file()]


def _digest(files: list[Path]) -> str:
    whole = hashlib.sha256()
    for path in files:
        whole.update(f"{path.name}\n{file_digest(path)}\n".encode())
    return whole.hexdigest()[:12]


def checkpoint_folder(spec: str) -> Path | None:
    """Return the checkpoint that a name stands for: a checkpoint folder, or that of a run; None for anything else."""
    if not spec or is_chat_address(spec):
        # An empty name, for example of a variable that is not set, would stand for the working folder.
        return None
    path = fetched_model(spec)
    for folder in (path, path / CHECKPOINT):
        if (folder / WEIGHTS).is_file():
            return folder
    return None


def name_beside(checkpoint: Path | None, name: str) -> str:
    """Return the present name of a file that a checkpoint names, if it was moved together with the checkpoint's run."""
    run = None if checkpoint is None else checkpoint.parent
    return name if run is None or not (run / CONFIG).is_file() else name_now(run, name)


def require_checkpoint(spec: str, option: str, maker: str = "parley train negotiator") -> Path:
    """Return the checkpoint that a name stands for, or raise an error.

    Args:
        spec: a run or checkpoint folder.
        option: the option that named it.
        maker: the command that makes such a checkpoint, for the error.

    Raises:
        CheckpointError: there is no checkpoint; the error says what to do.
    """
    folder = checkpoint_folder(spec)
    if folder is None:
        got, fix = _instead(spec) or (None, "name a run or checkpoint folder")
        fix = fix if fix.startswith("parley") else f"{fix}; {maker} makes one"
        raise CheckpointError(f"{option} needs a checkpoint and there is none", where=spec, got=got, fix=fix)
    return folder


def require_word_model(spec: str, option: str, maker: str) -> Path:
    """Return the checkpoint of a model that reads words, not pieces; the arguments are those of `require_checkpoint`.

    Raises:
        CheckpointError: there is no checkpoint. The loader reports a damaged one.
        ConfigError: the model reads pieces. A choice unit by unit would then not choose words.
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
    """Return the name of a response model with absolute paths, for workers in other folders.

    Args:
        name: a run or checkpoint, hf:FOLDER, gguf:FILE, openai:URL#MODEL or path/file.py:Name.
        option: the option that named it.
        maker: the command that makes such a checkpoint, for the error.

    Raises:
        CheckpointError: no checkpoint has this name.
    """
    if is_chat_address(name):
        return absolute_address(name)
    if ".py:" in name:
        path, _, part = name.rpartition(":")
        return f"{Path(path).expanduser().absolute()}:{part}"
    return display_path(require_checkpoint(name, option, maker).absolute())


def located(decoder: DecoderSettings) -> DecoderSettings:
    """Return the decoder with absolute names of its models, for workers in other folders and on other machines.

    Raises:
        CheckpointError: one of the models does not exist.
    """
    names = {option: absolute_name(name, f"the decoder's {option}", MAKERS[option]) for option, name in decoder.models.items()}
    return replace(decoder, backward=names.get("backward", ""), lm=names.get("lm", ""))


def _instead(spec: str) -> tuple[str, str] | None:
    """Return the kind of thing at a name without a checkpoint, and a fix; None if nothing is there."""
    from parley.engine.core.verbs.catalogue import find

    if not spec:
        return "an empty name", "name a run or checkpoint folder"
    path = fetched_model(spec)
    if path.is_file():
        return "a file", "name a run or checkpoint folder"
    if not path.is_dir():
        return None
    inside = ", ".join(display_path(weights.parents[1]) for weights in sorted(path.glob(f"*/{CHECKPOINT}/{WEIGHTS}")))
    fix = f"name one of the runs in it: {inside}" if inside else "name the run of a training"
    try:
        entry = find(read_head(path)["job"])
    except RunError:
        return "a folder that is no run", f"hf:{spec}, for Hugging Face" if (path / "tokenizer.json").is_file() else fix
    job = f"a run of parley {' '.join(entry.words)}"
    if CHECKPOINT in entry.load().files:
        return f"{job} that has not come to its end", f"{shlex.join(['parley', 'resume', spec])} goes on with it"
    return f"{job}, which is no training", fix


DATE = "date"
"""Entry of `environment.json` that holds the date of a run."""


def date_of(path: Path) -> str:
    """Return the ISO date of the run in a folder; today if there is no run yet.

    Raises:
        RunError: the stored files are damaged.
    """
    if not (path / CONFIG).is_file():
        return date.today().isoformat()
    if (path / ENVIRONMENT).is_file() and isinstance(stored := read_json(path / ENVIRONMENT).get(DATE), str):
        return stored
    # Runs of older versions store the time of their first event, and no date.
    times = [str(event["time"]) for event in read_events(path / EVENTS)]
    return times[0][: len("2026-11-28")] if times else date.today().isoformat()


def dated(config: ConfigT, day: str) -> ConfigT:
    """Return a configuration with the date filled in where settings of chat templates have none."""
    if not dataclasses.is_dataclass(config) or isinstance(config, type):
        return config
    changed: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        is_date = field.name == DATE and isinstance(config, DateSettings)
        if (other := value or day if is_date else dated(value, day)) is not value:
            changed[field.name] = other
    return dataclasses.replace(config, **changed) if changed else config


def require_device(device: str, option: str) -> None:
    """Raise an error unless torch can compute on a device.

    Args:
        device: a torch device, such as cpu or cuda.
        option: the option that named it.

    Raises:
        ConfigError: torch cannot; the error holds torch's reason.
    """
    import torch

    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        what = f"{option} names a device that torch cannot use"
        raise ConfigError(what, where=device, got=reason, fix="compute on the CPU") from None


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Set the number of torch threads within a `with` block.

    The number of threads may change the last digit of sums of gradients. A resumed training would then differ, so earlier
    work in the process must not decide this number.
    """
    before: list[int] = []

    def limit(torch: Any) -> None:
        before.append(torch.get_num_threads())
        torch.set_num_threads(number)

    # Much work within such a block needs no torch, whose import takes longer than the work may.
    cancel = after_import("torch", limit)
    try:
        yield
    finally:
        cancel()
        if before:
            sys.modules["torch"].set_num_threads(before[0])
