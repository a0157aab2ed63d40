"""The words of a DynoNet, and the categories and attributes that nodes of its graphs may have.

Ids 0..5 are `<pad>`, `</s>`, `<go>`, `<select>`, `<item>`, `<unk>`; then a word for each category of entities, which stands
for all of them, and a name for each attribute; then the words of chats by falling frequency, ties by first occurrence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from parley.envs.corpora.words import WordList
from parley.envs.mutual_friends.schema import FriendsSchema

SPECIALS = ("<pad>", "</s>", "<go>", "<select>", "<item>", "<unk>")
PAD_ID, EOS_ID, GO_ID, SELECT_ID, ITEM_ID, UNK_ID = range(6)
_TYPE, _ATTRIBUTE = "<type> ", "<attribute> "


@dataclass(frozen=True)
class FriendsVocabulary(WordList):
    """Words, categories and attributes."""

    SPECIALS: ClassVar[tuple[str, ...]] = SPECIALS
    UNKNOWN_ID: ClassVar[int] = UNK_ID

    @classmethod
    def build(cls, schema: FriendsSchema, utterances: Iterable[Sequence[str]], least: int) -> FriendsVocabulary:
        """The categories and attributes of a schema, and the words that stand at least `least` times in utterances.

        Args:
            schema: of the chats.
            utterances: words of each, without those of entities.
            least: occurrences.
        """
        counts = Counter(word for words in utterances for word in words)
        types = [_TYPE + kind for kind in dict.fromkeys(attribute.type for attribute in schema.attributes)]
        attributes = [_ATTRIBUTE + attribute.name for attribute in schema.attributes]
        return cls((*SPECIALS, *types, *attributes, *(word for word, count in counts.most_common() if count >= least)))

    @cached_property
    def types(self) -> dict[str, int]:
        """Categories of entities, numbered from 0."""
        return self._named(_TYPE)

    @cached_property
    def attributes(self) -> dict[str, int]:
        """Attributes, numbered from 0."""
        return self._named(_ATTRIBUTE)

    def type_word(self, kind: str) -> int:
        """The word that stands for all entities of a category."""
        return self.index[_TYPE + kind]

    @cached_property
    def first_word(self) -> int:
        """The id of the first word of chats: those below are no words that anybody says, but `</s>` and `<select>`."""
        return len(SPECIALS) + len(self.types) + len(self.attributes)

    def _named(self, kind: str) -> dict[str, int]:
        return {name: i for i, name in enumerate(word.removeprefix(kind) for word in self.words if word.startswith(kind))}
