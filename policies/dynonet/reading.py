"""A side's view of a chat, event by event: words, the nodes that they name, and the nodes that change.

Source: He et al. 2017, section 3.2, and the released code. An entity is read as the word of its category, beside the
embedding of its node. A heard selection is `<select>` and all values of the item; one's own is `<select>` and the node of the
item. An utterance changes the nodes that it names; one that names none changes those of the newest that did.

An entity is copied from the own table or from earlier mentions. A recorded speaker's mention of any other entity is read and
learnt as plain words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from parley.envs.mutual_friends.game import ChatEvent, Mention, Token
from parley.envs.mutual_friends.linker import EntityLinker
from parley.envs.mutual_friends.scenario import Attribute, Entity
from parley.policies.dynonet.graphs import EOS_ID, ITEM_ID, SELECT_ID, UNK_ID, FriendsVocabulary, TableGraph

NO_NODE = -1


@dataclass(frozen=True)
class EventReading:
    """An event as a side reads it.

    Args:
        words: ids, `</s>` at the end.
        nodes: the node that each names, or `NO_NODE`.
        touched: different nodes that it changes.
        num_nodes: nodes of the graph when it is read, its own included.
    """

    words: list[int]
    nodes: list[int]
    touched: list[int]
    num_nodes: int


class ChatReader:
    """A reader of one side of a chat.

    Args:
        table: entities of each own item.
        attributes: columns of the table.
        vocabulary: of the model.
        max_items: of the model.
        linker: finds the entities of utterances.

    Raises:
        DataError: as `TableGraph`.
    """

    def __init__(
        self,
        table: Sequence[Sequence[Entity]],
        attributes: Sequence[Attribute],
        vocabulary: FriendsVocabulary,
        max_items: int,
        linker: EntityLinker,
    ) -> None:
        self._attributes, self._vocabulary, self._linker = attributes, vocabulary, linker
        self.graph = TableGraph(table, attributes, vocabulary, max_items)
        self._newest: list[int] = []

    def hear(self, event: ChatEvent) -> EventReading:
        """Return the reading of the partner's event, by its words alone; newly mentioned entities become nodes."""
        if event.selected is None:
            return self._reading([], self._linker.link(event.words, self.graph.nodes), new=True)
        entities = [
            Entity(value.lower(), attribute.type) for value, attribute in zip(event.item, self._attributes, strict=True)
        ]
        return self._reading([SELECT_ID], [Mention(entity, ()) for entity in entities], new=True)

    def read_own(self, event: ChatEvent) -> EventReading:
        """Return the reading of this side's own event; mentions are linked if none are marked."""
        if event.selected is None:
            marked = any(isinstance(token, Mention) for token in event.tokens)
            tokens = event.tokens if marked else self._linker.link(event.words, self.graph.nodes)
            return self._reading([], tokens, new=False)
        return self.read([SELECT_ID, ITEM_ID, EOS_ID], [NO_NODE, event.selected, NO_NODE])

    def _reading(self, words: list[int], tokens: Sequence[Token], *, new: bool) -> EventReading:
        nodes, index, graph = [NO_NODE] * len(words), self._vocabulary.index, self.graph
        for token in tokens:
            if isinstance(token, str):
                words.append(index.get(token, UNK_ID))
                nodes.append(NO_NODE)
            elif new or token.entity in graph.nodes:
                nodes.append(graph.node(token.entity))
                words.append(graph.words[nodes[-1]])
            else:
                words += [index.get(word, UNK_ID) for word in token.words]
                nodes += [NO_NODE] * len(token.words)
        return self.read([*words, EOS_ID], [*nodes, NO_NODE])

    def read(self, words: list[int], nodes: list[int]) -> EventReading:
        """Return the reading of ids, `</s>` at the end: of an entity the word of its category, and its node."""
        self._newest = sorted({node for node in nodes if node != NO_NODE}) or self._newest
        return EventReading(words, nodes, self._newest, len(self.graph))
