"""A fixed list of words with special tokens in front: what every vocabulary of Parley is."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Self

import numpy as np

from parley.envs.core.errors import DataError


@dataclass(frozen=True)
class WordList:
    """Words and their ids.

    Args:
        words: every word, index = id; the special tokens of the class first.

    Raises:
        DataError: the specials are not in front, or a word stands twice.
    """

    words: tuple[str, ...]

    SPECIALS: ClassVar[tuple[str, ...]] = ()
    UNKNOWN_ID: ClassVar[int] = 0

    def __post_init__(self) -> None:
        specials = self.SPECIALS
        if self.words[: len(specials)] != specials:
            got, fix = self.words[: len(specials)], f"put {specials} in front"
            raise DataError("a vocabulary must start with its special tokens", got=got, fix=fix)
        if len(set(self.words)) != len(self.words):
            twice = [word for word, count in Counter(self.words).items() if count > 1]
            raise DataError("a vocabulary holds a word twice", got=twice[:5], fix="remove the repeated words")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Reads the JSON list that `save` wrote."""
        return cls(tuple(json.loads(path.read_text(encoding="utf-8"))))

    def save(self, path: Path) -> None:
        """Writes the words as a JSON list, one entry per id."""
        path.write_text(json.dumps(list(self.words), ensure_ascii=False, indent=0), encoding="utf-8")

    @cached_property
    def index(self) -> dict[str, int]:
        """From word to id."""
        return {word: i for i, word in enumerate(self.words)}

    @cached_property
    def digest(self) -> str:
        """Twelve hex digits that two equal vocabularies share."""
        return hashlib.blake2b("\n".join(self.words).encode(), digest_size=6).hexdigest()

    def encode(self, words: Iterable[str]) -> np.ndarray:
        """Ids (n,) int64; an unknown word becomes `<unk>`."""
        return np.array([self.index.get(word, self.UNKNOWN_ID) for word in words], dtype=np.int64)

    def decode(self, ids: Iterable[int]) -> list[str]:
        """The words of the ids."""
        return [self.words[i] for i in ids]

    def __len__(self) -> int:
        return len(self.words)
