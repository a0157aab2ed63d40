"""Vocabularies: a fixed list of words with four special tokens in front, as in the published negotiation code.

Ids 0..3 are `<eos>`, `<unk>`, `<selection>`, `<pad>`; the words follow by falling frequency, ties by first occurrence.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from envs.core.errors import DataError

EOS, UNK, SELECTION, PAD = "<eos>", "<unk>", "<selection>", "<pad>"
SPECIALS = (EOS, UNK, SELECTION, PAD)
EOS_ID, UNK_ID, SELECTION_ID, PAD_ID = range(4)
YOU, THEM = "YOU:", "THEM:"


@dataclass(frozen=True)
class Vocabulary:
    """Words and their ids.

    Args:
        words: every word, index = id; the four specials first, `YOU:` and `THEM:` somewhere after them.

    Raises:
        DataError: the specials are not in front, a word stands twice, or a speaker marker is missing.
    """

    words: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.words[:4] != SPECIALS:
            fix = f"put {SPECIALS} in front"
            raise DataError("a vocabulary must start with the four specials", got=self.words[:4], fix=fix)
        if len(set(self.words)) != len(self.words):
            twice = [word for word, count in Counter(self.words).items() if count > 1]
            raise DataError("a vocabulary holds a word twice", got=twice[:5], fix="remove the repeated words")
        for marker in (YOU, THEM):
            if marker not in self.index:
                fix = "train on a corpus with both speakers"
                raise DataError(f"a negotiation vocabulary lacks the speaker marker {marker!r}", fix=fix)

    @classmethod
    def build(cls, sentences: Iterable[Sequence[str]], threshold: int) -> Vocabulary:
        """Keeps the words that occur strictly more than `threshold` times (the published rule, threshold 20)."""
        counts: Counter[str] = Counter()
        for sentence in sentences:
            counts.update(sentence)
        kept = [word for word, count in counts.most_common() if count > threshold and word not in SPECIALS]
        return cls((*SPECIALS, *kept))

    @classmethod
    def load(cls, path: Path) -> Vocabulary:
        """Reads the JSON list that `save` wrote."""
        return cls(tuple(json.loads(path.read_text())))

    def save(self, path: Path) -> None:
        """Writes the words as a JSON list, one entry per id."""
        path.write_text(json.dumps(list(self.words), ensure_ascii=False, indent=0))

    @cached_property
    def index(self) -> dict[str, int]:
        """From word to id."""
        return {word: i for i, word in enumerate(self.words)}

    @cached_property
    def you_id(self) -> int:
        """Id of the marker of one's own turns."""
        return self.index[YOU]

    @cached_property
    def them_id(self) -> int:
        """Id of the marker of the partner's turns."""
        return self.index[THEM]

    @cached_property
    def unspeakable_ids(self) -> tuple[int, ...]:
        """Ids that no speaker may say: `<unk>`, `<pad>` and the two speaker markers."""
        return (UNK_ID, PAD_ID, self.you_id, self.them_id)

    @cached_property
    def digest(self) -> str:
        """Twelve hex digits that two equal vocabularies share."""
        return hashlib.blake2b("\n".join(self.words).encode(), digest_size=6).hexdigest()

    def encode(self, words: Iterable[str]) -> np.ndarray:
        """Ids (n,) int64; an unknown word becomes `<unk>`."""
        return np.array([self.index.get(word, UNK_ID) for word in words], dtype=np.int64)

    def decode(self, ids: Iterable[int]) -> list[str]:
        """The words of the ids."""
        return [self.words[i] for i in ids]

    def __len__(self) -> int:
        return len(self.words)
