"""What a stored model says of itself: its parts, its kind and its words. No torch, so that drivers may ask without it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from safetensors import SafetensorError

from envs.core.errors import CheckpointError
from envs.data.words import WordList

FORMAT_VERSION = 1
WEIGHTS, CONFIG, VOCABULARY = "weights.safetensors", "config.json", "vocabulary.json"
PARTS = (WEIGHTS, CONFIG, VOCABULARY)
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
        config: dict[str, Any] = json.loads((folder / CONFIG).read_text())
        found = config["kind"], config["format"]
    if found != (kind, FORMAT_VERSION):
        raise CheckpointError(
            "the checkpoint is of another kind",
            where=folder,
            got=f"kind {found[0]!r}, format {found[1]}",
            fix=f"name a checkpoint of kind {kind!r}, format {FORMAT_VERSION}",
        )
    return config


def read_words(folder: Path, kind: str, words: type[WordsT]) -> WordsT:
    """The vocabulary of a checkpoint; errors as those of `read_header`."""
    read_header(folder, kind)
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
    except (OSError, KeyError, TypeError, ValueError, SafetensorError) as error:
        raise CheckpointError(
            "the checkpoint is damaged",
            where=folder,
            got=f"{type(error).__name__}: {error}",
            fix="train it again or copy it again",
        ) from None
