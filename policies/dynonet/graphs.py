"""The knowledge graph of one side of a chat (its friends, their attributes and values, mentioned entities), and its vocabulary.

Source: He et al. 2017, section 3.1, and the released code. Nodes are items, attributes and entities. Every value joins its item
and its entity, by an edge and its inverse; every attribute joins its entities likewise. A mentioned entity that no own item has
is a node without edges.

Features of a node are one-hot: its degree, its degree as a share of the number of items (six bins), and its kind: an entity
of a category, an attribute, or the item at a position of the table. The degree of an entity is the number of items that have
it; items have no degree, because it is the same for all.

Ids of the vocabulary: 0..5 are `<pad>`, `</s>`, `<go>`, `<select>`, `<item>`, `<unk>`; then a word for each category of
entities, which stands for all of them, and a name for each attribute; then the words of chats by falling frequency, ties by
first occurrence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from parley.envs.core.errors import DataError
from parley.envs.corpora.lines import WordList
from parley.envs.mutual_friends.scenario import Attribute, Entity, FriendsSchema

SPECIALS = ("<pad>", "</s>", "<go>", "<select>", "<item>", "<unk>")
PAD_ID, EOS_ID, GO_ID, SELECT_ID, ITEM_ID, UNK_ID = range(6)
_TYPE, _ATTRIBUTE = "<type> ", "<attribute> "


@dataclass(frozen=True)
class FriendsVocabulary(WordList):
    """The words of a DynoNet, with categories and attributes."""

    SPECIALS: ClassVar[tuple[str, ...]] = SPECIALS
    UNKNOWN_ID: ClassVar[int] = UNK_ID

    @classmethod
    def build(cls, schema: FriendsSchema, utterances: Iterable[Sequence[str]], least: int) -> FriendsVocabulary:
        """Return the vocabulary of a schema's categories and attributes, and of words with at least `least` occurrences.

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
        """Return the word of all entities of a category."""
        return self.index[_TYPE + kind]

    @cached_property
    def first_word(self) -> int:
        """The id of the first word of chats; of the ids below only `</s>` and `<select>` are ever said."""
        return len(SPECIALS) + len(self.types) + len(self.attributes)

    def _named(self, kind: str) -> dict[str, int]:
        return {name: i for i, name in enumerate(word.removeprefix(kind) for word in self.words if word.startswith(kind))}


NUM_SHARES = 6
"""Bins of a degree as a share: 0, up to 1/4, up to 1/2, up to 3/4, below 1, 1 (or more, of a value of two attributes)."""


def num_features(vocabulary: FriendsVocabulary, max_items: int) -> int:
    """Return the width of the features of a node."""
    return max_items + 1 + NUM_SHARES + len(vocabulary.types) + len(vocabulary.attributes) + max_items


def num_relations(vocabulary: FriendsVocabulary) -> int:
    """Return the number of relations between nodes: each attribute, "has", and their inverses."""
    return 2 * (len(vocabulary.attributes) + 1)


class TableGraph:
    """A graph that grows with mentions.

    Args:
        table: the entities of each own item.
        attributes: the columns of the table.
        vocabulary: of the model.
        max_items: of the model.

    Raises:
        DataError: the model does not know a category or an attribute, or the table is too long for it.
    """

    def __init__(
        self, table: Sequence[Sequence[Entity]], attributes: Sequence[Attribute], vocabulary: FriendsVocabulary, max_items: int
    ) -> None:
        self._vocabulary, self._max_items = vocabulary, max_items
        kinds = vocabulary.attributes, vocabulary.types
        unknown = [
            attribute.name for attribute in attributes if attribute.name not in kinds[0] or attribute.type not in kinds[1]
        ]
        if unknown:
            known_names, fix = ", ".join(vocabulary.attributes), "play scenarios of the schema that the model was trained on"
            raise DataError(f"the model does not know the attribute {unknown[0]!r}", got=f"it knows {known_names}", fix=fix)
        if len(table) > max_items:
            got, fix = f"{len(table)} items, and it reads {max_items}", "train one with a larger sizes.max_items"
            raise DataError("a table is too long for the model", got=got, fix=fix)
        self.num_items = len(table)
        self.first_entity = len(table) + len(attributes)
        self.nodes: dict[Entity, int] = {}
        """Of every entity, in order of their numbers; those of the table come first."""
        for item in table:
            for entity in item:
                self.nodes.setdefault(entity, self.first_entity + len(self.nodes))
        joined = [(i, self.nodes[entity], column) for i, item in enumerate(table) for column, entity in enumerate(item)]
        numbers = [vocabulary.attributes[attribute.name] for attribute in attributes]
        self.edges_E3 = _edges(joined, numbers, len(table), len(vocabulary.attributes))
        """Who gets a message, from whom, by which relation; sorted by who gets it."""
        degrees = np.bincount([node for _, node, _ in joined], minlength=len(self)).tolist()
        columns = [len({node for _, node, at in joined if at == column}) for column in range(len(attributes))]
        self._degrees = [*([-1] * len(table)), *columns, *degrees[self.first_entity :]]
        first_attribute = len(vocabulary.types)
        first_item = first_attribute + len(vocabulary.attributes)
        items, columns_kinds = range(first_item, first_item + len(table)), [first_attribute + number for number in numbers]
        self._kinds = [*items, *columns_kinds, *(self._kind(entity) for entity in self.nodes)]
        self.words = [*([ITEM_ID] * len(table)), *([PAD_ID] * len(attributes))]
        """What each node is read as when it is named: the word of its category, or `<item>`; attributes are never named."""
        self.words += [vocabulary.type_word(entity.type) for entity in self.nodes]

    def __len__(self) -> int:
        """Return the number of nodes."""
        return self.first_entity + len(self.nodes)

    def node(self, entity: Entity) -> int:
        """Return the node of a mentioned entity, a new one if there is none."""
        if entity not in self.nodes:
            self.nodes[entity] = len(self)
            self._kinds.append(self._kind(entity))
            self._degrees.append(0)
            self.words.append(self._vocabulary.type_word(entity.type))
        return self.nodes[entity]

    def features(self, first: int = 0) -> np.ndarray:
        """Return one-hot features (N, F) float32 of the nodes from the first one on."""
        degrees = np.array(self._degrees[first:])
        features = np.zeros((len(degrees), num_features(self._vocabulary, self._max_items)), np.float32)
        with_degree = np.flatnonzero(degrees >= 0)
        shares = np.ceil(4 * degrees[with_degree] / self.num_items).astype(int)
        features[with_degree, np.minimum(degrees[with_degree], self._max_items)] = 1
        full = degrees[with_degree] >= self.num_items
        features[with_degree, self._max_items + 1 + np.where(full, NUM_SHARES - 1, shares)] = 1
        features[np.arange(len(degrees)), self._max_items + 1 + NUM_SHARES + np.array(self._kinds[first:])] = 1
        return features

    def _kind(self, entity: Entity) -> int:
        if entity.type not in self._vocabulary.types:
            known_types, fix = ", ".join(self._vocabulary.types), "play scenarios of the schema that the model was trained on"
            raise DataError(f"the model does not know the category {entity.type!r}", got=f"it knows {known_types}", fix=fix)
        return self._vocabulary.types[entity.type]


def _edges(joined: Sequence[tuple[int, int, int]], numbers: Sequence[int], num_items: int, num_attributes: int) -> np.ndarray:
    has = {(column, node) for _, node, column in joined}
    edges = [(item, node, numbers[column]) for item, node, column in joined]
    edges += [(node, item, num_attributes + 1 + numbers[column]) for item, node, column in joined]
    edges += [(num_items + column, node, num_attributes) for column, node in has]
    edges += [(node, num_items + column, 2 * num_attributes + 1) for column, node in has]
    return np.array(sorted(edges), dtype=np.int64)
