"""Vocabularies of negotiations: four special tokens in front, as in the published negotiation code.

Ids 0..3 are `<eos>`, `<unk>`, `<selection>`, `<pad>`; the words follow by falling frequency, ties by first occurrence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from envs.core.errors import DataError
from envs.data.words import WordList

EOS, UNK, SELECTION, PAD = "<eos>", "<unk>", "<selection>", "<pad>"
SPECIALS = (EOS, UNK, SELECTION, PAD)
EOS_ID, UNK_ID, SELECTION_ID, PAD_ID = range(4)
YOU, THEM = "YOU:", "THEM:"


@dataclass(frozen=True)
class Vocabulary(WordList):
    """The words of negotiations; `YOU:` and `THEM:` are among them.

    Raises:
        DataError: as a `WordList`, or a speaker marker is missing.
    """

    SPECIALS: ClassVar[tuple[str, ...]] = SPECIALS
    UNKNOWN_ID: ClassVar[int] = UNK_ID

    def __post_init__(self) -> None:
        super().__post_init__()
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
