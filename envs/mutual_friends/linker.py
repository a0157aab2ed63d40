"""The entity linker: finds the entities that words of an utterance name, by the longest known form, from left to right.

A form is a value of the schema or a spelling from a lexicon, as words. The context (the entities of one or both tables) decides
between entities of one form, and which categories exist: "go" is no game if the tables have no games. Outside of the context, a
value of the schema is an entity; another form is one only if the lexicon has it several times, because lexicons of human chats
contain slips such as "all of" for a school.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from itertools import compress
from pathlib import Path

from parley.envs.core.errors import DataError
from parley.envs.mutual_friends.game import Mention, Token
from parley.envs.mutual_friends.scenario import Entity, FriendsSchema, chat_words

Words = tuple[str, ...]
Form = tuple[Entity, Words]
"""An entity and words for it."""
NUM_SEEN_OUTSIDE = 3
"""Fewest occurrences in the lexicon of a form that may name an entity outside of the context."""

MOST_MEANINGS = 2
"""A form of more entities is dropped unless it shares a word with the name: "work at" and "studied" name nothing."""
_LEAST_LETTERS = 4
_PLAIN = frozenset(("and", "at", "for", "from", "in", "of", "the", "to", "with", "work", "working", "works"))
"""A form of only these words is dropped: the published lexicon has "work for" for a school and "and works" for a subject."""


class EntityLinker:
    """Finds entities in utterances.

    Args:
        schema: the entities with their names.
        forms: other spellings, repeated by their counts.

    Raises:
        DataError: a form without words, or of an entity that the schema lacks.
    """

    def __init__(self, schema: FriendsSchema, forms: Iterable[Form] = ()) -> None:
        self.schema = schema
        names = {entity: chat_words(entity.value) for entity in schema.entities()}
        form_counts = Counter((entity, _without_and(words)) for entity, words in forms)
        meanings = Counter(words for _, words in form_counts)
        ranks: dict[Words, list[tuple[int, int, Entity]]] = defaultdict(list)
        for entity, words in names.items():
            if not words:
                raise DataError("a value of the schema has no words", got=repr(entity.value), fix="write letters or digits")
            ranks[words].append((0, 0, entity))
        for (entity, words), count in form_counts.items():
            if entity not in names or not words:
                raise _no_entity(entity, words)
            is_known = meanings[words] <= MOST_MEANINGS or _share_a_word(words, names[entity])
            if words != names[entity] and is_known and not _PLAIN.issuperset(words):
                ranks[words].append((1, -count, entity))
        self._named = {
            words: [Mention(entity, words) for _, _, entity in sorted(candidates)] for words, candidates in ranks.items()
        }
        """The possible mentions of each form, the likeliest first."""
        self._outside = {
            words: self._named[words][0]
            for words, candidates in ranks.items()
            if (best := min(candidates))[0] == 0 or -best[1] >= NUM_SEEN_OUTSIDE
        }
        self._mentions = {entity: [Mention(entity, words)] for entity, words in names.items()}
        for entity, words in sorted(form_counts, key=lambda form: (-form_counts[form], form)):
            if words != names[entity] and words in self._outside and self._outside[words].entity == entity:
                self._mentions[entity].append(self._outside[words])
        lengths: dict[str, set[int]] = defaultdict(set)
        for words in self._named:
            lengths[words[0]].add(len(words))
        self._lengths = {word: sorted(sizes, reverse=True) for word, sizes in lengths.items()}
        """The lengths of forms by their first word, in descending order."""

    def __repr__(self) -> str:
        return f"EntityLinker({len(self._mentions)} entities, {len(self._named)} forms)"

    @property
    def words(self) -> frozenset[str]:
        """All words in forms of entities."""
        return frozenset(word for words in self._named for word in words)

    def mentions(self, entity: Entity) -> list[Mention]:
        """Return the mentions of an entity: its name, then unambiguous spellings, the most frequent first.

        Raises:
            DataError: the schema does not have the entity.
        """
        mentions = self._mentions.get(entity)
        if mentions is None:
            raise _unknown(entity)
        return mentions

    def require(self, entity: Entity, where: str | None = None) -> None:
        """Raise unless the schema has an entity.

        Raises:
            DataError: the schema lacks the entity; `where` is the source of the entity.
        """
        if entity not in self._mentions:
            raise _unknown(entity, where)

    def link(self, words: Sequence[str], *contexts: Collection[Entity]) -> tuple[Token, ...]:
        """Return tokens with the same words and the entities that they name; no word belongs to two entities.

        Args:
            words: an utterance in lower case, see `chat_words`.
            contexts: sets of preferred entities, such as those of a table; earlier sets have priority.
        """
        tokens: list[Token] = []
        end = 0
        for start, mention in self.find(words, *contexts):
            tokens += words[end:start]
            tokens.append(mention)
            end = start + len(mention.words)
        return (*tokens, *words[end:])

    def find(self, words: Sequence[str], *contexts: Collection[Entity]) -> list[tuple[int, Mention]]:
        """Return the start and the mention of each entity that `link` finds, from left to right."""
        words, lengths, mentions, end = tuple(words), self._lengths, [], 0
        for start in compress(range(len(words)), map(lengths.__contains__, words)):
            if start < end:
                continue
            for length in lengths[words[start]]:
                mention = self.meant(words[start : start + length], contexts)
                if mention is not None:
                    mentions.append((start, mention))
                    end = start + length
                    break
        return mentions

    def meant(self, form: Words, contexts: Sequence[Collection[Entity]]) -> Mention | None:
        """Return the mention of words that are a complete form; None for other words."""
        meanings = self._named.get(form)
        if meanings is None:
            return None
        for context in contexts:
            for mention in meanings:
                if mention.entity in context:
                    return mention
        outside = self._outside.get(form)
        if outside is None or not contexts:
            return outside
        kind = outside.entity.type
        for context in contexts:
            for entity in context:
                if entity.type == kind:
                    return outside
        return None


def _unknown(entity: Entity, where: str | None = None) -> DataError:
    got, fix = f"{entity.value!r} ({entity.type})", "take tables and schema of one release"
    return DataError("the schema does not have the entity", where=where, got=got, fix=fix)


def _no_entity(entity: Entity, words: Words, where: str | None = None) -> DataError:
    got, fix = f"{' '.join(words)!r} for {entity.value!r} ({entity.type})", "take schema and lexicon of one release"
    return DataError("a form names no entity of the schema", where=where, got=got, fix=fix)


def _without_and(words: Words) -> Words:
    """Return a form without "and" at its ends, which belongs to the sentence: the published lexicon has "and drama"."""
    while len(words) > 1 and words[0] == "and":
        words = words[1:]
    while len(words) > 1 and words[-1] == "and":
        words = words[:-1]
    return words


def _share_a_word(words: Words, name: Words) -> bool:
    return any(len(word) >= _LEAST_LETTERS and word in name for word in words)


def read_lexicon(path: Path, schema: FriendsSchema) -> list[Form]:
    """Read a lexicon in the published format: lines of `value TAB form TAB category`.

    Args:
        path: the file.
        schema: the schema of the entities.

    Raises:
        DataError: the file cannot be read, or a line is broken or names no entity of the schema.
    """
    forms: list[Form] = []
    entities = frozenset(schema.entities())
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError("the lexicon cannot be read", where=path, got=str(error), fix="check the path") from error
    for number, line in enumerate(lines, 1):
        parts = line.split("\t")
        words = chat_words(parts[1]) if len(parts) == 3 else ()
        if not words:
            fix = "value TAB form TAB category"
            raise DataError("no form of an entity", where=f"{path}:{number}", got=repr(line)[:80], fix=fix)
        entity = Entity(parts[0].lower(), parts[2])
        if entity not in entities:
            raise _no_entity(entity, words, f"{path}:{number}")
        forms.append((entity, words))
    return forms
