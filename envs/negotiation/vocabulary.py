"""Vocabularies of negotiations: four special tokens in front, as in the published negotiation code.

Ids 0..3 are `<eos>`, `<unk>`, `<selection>`, `<pad>`; the words follow by falling frequency, ties by first occurrence.
Words belong to a game (`domain.py`): whoever knows a vocabulary knows what the talk is about.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Self

from parley.envs.core.errors import DataError
from parley.envs.core.visible import well_formed
from parley.envs.corpora.words import WordList
from parley.envs.negotiation.domain import DEAL_OR_NO_DEAL, Domain, domain_of

EOS, UNK, SELECTION, PAD = "<eos>", "<unk>", "<selection>", "<pad>"
SPECIALS = (EOS, UNK, SELECTION, PAD)
EOS_ID, UNK_ID, SELECTION_ID, PAD_ID = range(4)
YOU, THEM = "YOU:", "THEM:"
_PIECES = re.compile(r"<\w+>|[\w'-]+|[^\w\s]")


@dataclass(frozen=True)
class Vocabulary(WordList):
    """The words of negotiations; `YOU:` and `THEM:` are among them.

    Args:
        game: the name of the game that is talked about.

    Raises:
        ConfigError: no game is called that.
        DataError: as a `WordList`, or a speaker marker is missing.
    """

    game: str = DEAL_OR_NO_DEAL

    SPECIALS: ClassVar[tuple[str, ...]] = SPECIALS
    UNKNOWN_ID: ClassVar[int] = UNK_ID

    def __post_init__(self) -> None:
        super().__post_init__()
        for marker in (YOU, THEM):
            if marker not in self.index:
                fix = "train on a corpus with both speakers"
                raise DataError(f"a negotiation vocabulary lacks the speaker marker {marker!r}", fix=fix)
        domain_of(self.game)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Reads the JSON that `save` wrote."""
        stored = json.loads(path.read_text(encoding="utf-8"))
        return cls(tuple(stored["words"]), stored["game"]) if isinstance(stored, dict) else cls(tuple(stored))

    def save(self, path: Path) -> None:
        """Writes the words as a JSON list, as a `WordList`; of another game than Deal or No Deal beside its name."""
        super().save(path)
        if self.game != DEAL_OR_NO_DEAL:
            path.write_text(
                json.dumps({"game": self.game, "words": self.words}, ensure_ascii=False, indent=0), encoding="utf-8"
            )

    @classmethod
    def build(cls, sentences: Iterable[Sequence[str]], threshold: int, game: str = DEAL_OR_NO_DEAL) -> Vocabulary:
        """Keeps the words that occur strictly more than `threshold` times (the published rule, threshold 20)."""
        counts: Counter[str] = Counter()
        for sentence in sentences:
            counts.update(sentence)
        kept = [word for word, count in counts.most_common() if count > threshold and word not in SPECIALS]
        return cls((*SPECIALS, *kept), game)

    @property
    def domain(self) -> Domain:
        """What is talked about."""
        return domain_of(self.game)

    @cached_property
    def digest(self) -> str:
        """Twelve hex digits that two equal vocabularies of a game share."""
        if self.game == DEAL_OR_NO_DEAL:
            return super().digest
        return hashlib.blake2b("\n".join((self.game, *self.words)).encode(), digest_size=6).hexdigest()

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


def split_text(text: str, vocabulary: Vocabulary) -> list[str]:
    """A text in words as the corpora write them: lower case, punctuation apart unless the vocabulary has it joined."""
    words: list[str] = []
    for piece in well_formed(text).lower().split():
        words += [piece] if piece in vocabulary.index else _PIECES.findall(piece)
    return [word for word in words if word != EOS]
