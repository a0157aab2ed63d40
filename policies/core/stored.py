"""What a stored model says of itself: its parts, its kind and its words. No torch, so that drivers may ask without it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from safetensors import SafetensorError

from parley.envs.core.disk import file_digest
from parley.envs.core.errors import CheckpointError, ParleyError
from parley.envs.core.storage.copies import CHECKPOINT
from parley.envs.corpora.words import WordList

FORMAT_VERSION = 1
WEIGHTS, CONFIG, VOCABULARY = "weights.safetensors", "config.json", "vocabulary.json"
PARTS = (WEIGHTS, CONFIG, VOCABULARY)
DIGESTS = "digests"
"""Where the configuration of a checkpoint holds the SHA-256 of the other parts; checkpoints of older versions hold none."""
WordsT = TypeVar("WordsT", bound=WordList)


def read_header(folder: Path, kind: str) -> dict[str, Any]:
    """The configuration of a checkpoint of the given kind, whose parts are all there.

    Raises:
        CheckpointError: a part is missing or damaged, or it is of another kind or format.
    """
    missing = [part for part in PARTS if not (folder / part).is_file()]
    if missing:
        raise CheckpointError(
            "no checkpoint is there",
            where=folder,
            got=f"missing {', '.join(missing)}",
            fix="name a checkpoint folder, such as runs/NAME/checkpoint",
        )
    with reading(folder):
        config: dict[str, Any] = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        found = config["kind"], config["format"]
        if not all(isinstance(config[part], dict) for part in ("sizes", "provenance")):
            raise TypeError("sizes and provenance are mappings")
    if found != (kind, FORMAT_VERSION):
        raise CheckpointError(
            "the checkpoint is of another kind",
            where=folder,
            got=f"kind {found[0]!r}, format {found[1]}",
            fix=f"name a checkpoint of kind {kind!r}, format {FORMAT_VERSION}",
        )
    return config


def model_inside(folder: Path) -> Path:
    """The checkpoint that a folder is, or that the run in it holds."""
    return folder / CHECKPOINT if (folder / CHECKPOINT).is_dir() else folder


def stored_kind(folder: Path) -> str:
    """The kind of model that a run or checkpoint folder holds.

    Raises:
        CheckpointError: nothing is there, or it is damaged.
    """
    inside = model_inside(folder)
    if not (inside / CONFIG).is_file():
        fix = "name a run or checkpoint folder, such as runs/NAME"
        raise CheckpointError("no checkpoint is there", where=inside, got=f"missing {CONFIG}", fix=fix)
    with reading(inside):
        return str(json.loads((inside / CONFIG).read_text(encoding="utf-8"))["kind"])


def is_pretrained(folder: Path) -> bool:
    """Whether a run or folder holds a model that Hugging Face's `save_pretrained` wrote, and none of Parley's own."""
    try:
        return "model_type" in json.loads((model_inside(folder) / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError):
        return False


def reads_pieces(folder: Path) -> bool:
    """Whether the model of a checkpoint folder reads pieces of words; False where its vocabulary cannot be read."""
    try:
        return isinstance(json.loads((folder / VOCABULARY).read_text(encoding="utf-8")), dict)
    except (OSError, ValueError):
        return False


def require_undamaged(folder: Path, part: str, config: Mapping[str, Any]) -> None:
    """Compares a part of a checkpoint with the digest that its configuration holds, if it holds one.

    Raises:
        CheckpointError: the part is not as it was saved.
    """
    with reading(folder):
        wanted = config.get(DIGESTS, {}).get(part)
        found = wanted and file_digest(folder / part)
    if found != wanted:
        raise CheckpointError(
            f"the checkpoint is damaged: {part} is not as it was saved",
            where=folder,
            got=f"SHA-256 {found[:12]}, and {CONFIG} says {str(wanted)[:12]}",
            fix="train it again or copy it again",
        )


def read_words(folder: Path, kind: str, words: type[WordsT]) -> WordsT:
    """The vocabulary of a checkpoint; errors as those of `read_header`."""
    require_undamaged(folder, VOCABULARY, read_header(folder, kind))
    with reading(folder):
        return words.load(folder / VOCABULARY)


@contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Says of a part that cannot be read that the checkpoint is damaged.

    Raises:
        CheckpointError: it is.
    """
    try:
        yield
    except CheckpointError:
        raise
    except ParleyError as error:
        got = ", ".join(str(part) for part in (error.what, error.got) if part is not None)
        fix = "train it again or copy it again"
        raise CheckpointError("the checkpoint is damaged", where=error.where or folder, got=got, fix=fix) from None
    except (OSError, AttributeError, KeyError, RecursionError, TypeError, ValueError, SafetensorError) as error:
        raise CheckpointError(
            "the checkpoint is damaged",
            where=folder,
            got=f"{type(error).__name__}: {error}",
            fix="train it again or copy it again",
        ) from None
