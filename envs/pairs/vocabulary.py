"""Vocabularies of utterances and replies.

Ids 0..4 are `<pad>`, `<s>`, `</s>`, `<eou>`, `<unk>`, as in the code that He & Glass (2018) released later; the words follow by
falling frequency, ties by first occurrence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from envs.data.words import WordList

PAD, BOS, EOS, EOU, UNK = "<pad>", "<s>", "</s>", "<eou>", "<unk>"
SPECIALS = (PAD, BOS, EOS, EOU, UNK)
PAD_ID, BOS_ID, EOS_ID, EOU_ID, UNK_ID = range(5)


@dataclass(frozen=True)
class PairVocabulary(WordList):
    """The words of a corpus of pairs."""

    SPECIALS: ClassVar[tuple[str, ...]] = SPECIALS
    UNKNOWN_ID: ClassVar[int] = UNK_ID

    @classmethod
    def build(cls, sentences: Iterable[Sequence[str]], size: int | None) -> PairVocabulary:
        """Keeps the most frequent words, until the list has `size` entries with the specials; every word for None."""
        counts: Counter[str] = Counter()
        for sentence in sentences:
            counts.update(sentence)
        kept = [word for word, _ in counts.most_common() if word not in SPECIALS]
        return cls((*SPECIALS, *kept[: None if size is None else size - len(SPECIALS)]))
