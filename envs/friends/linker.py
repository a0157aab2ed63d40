"""Which words of an utterance name which entity: the longest known form, from left to right.

A form is a value of the schema or a spelling from a lexicon, cut into words. The context (the entities of a table, or of
both) decides between entities of one form, and which categories there are at all: "go" is no game where tables have no games.
Outside of the context, a value of the schema is an entity; another form is one only where the lexicon has seen it several
times, because lexicons of human chats hold slips such as "all of" for a school.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from envs.core.errors import DataError
from envs.friends.events import Mention, Token
from envs.friends.schema import Entity, FriendsSchema, chat_words

Words = tuple[str, ...]
Form = tuple[Entity, Words]
"""An entity and the words that somebody said for it."""
NUM_SEEN_OUTSIDE = 3
"""So often a lexicon must have seen a form before it names an entity that is in no table at hand."""

MOST_MEANINGS = 2
"""A form of more entities must share a word with the name, or it is dropped: "work at" and "studied" name nothing."""
_LEAST_LETTERS = 4


class EntityLinker:
    """Finds entities in utterances.

    Args:
        schema: names of entities.
        forms: other spellings of them, repeated as often as they were seen.

    Raises:
        DataError: a form without words, or of an entity that the schema does not have.
    """

    def __init__(self, schema: FriendsSchema, forms: Iterable[Form] = ()) -> None:
        self.schema = schema
        names = {entity: chat_words(entity.value) for entity in schema.entities()}
        seen = Counter(forms)
        meanings = Counter(words for _, words in seen)
        ranks: dict[Words, list[tuple[int, int, Entity]]] = defaultdict(list)
        for entity, words in names.items():
            if not words:
                raise DataError("a value of the schema has no words", got=repr(entity.value), fix="write letters or digits")
            ranks[words].append((0, 0, entity))
        for (entity, words), count in seen.items():
            if entity not in names or not words:
                raise _no_entity(entity, words)
            if words != names[entity] and (meanings[words] <= MOST_MEANINGS or _share_a_word(words, names[entity])):
                ranks[words].append((1, -count, entity))
        self._named = {words: [entity for _, _, entity in sorted(found)] for words, found in ranks.items()}
        self._outside = {
            words: best[2] for words, found in ranks.items() if (best := min(found))[0] == 0 or -best[1] >= NUM_SEEN_OUTSIDE
        }
        self._forms = {entity: [words] for entity, words in names.items()}
        for entity, words in sorted(seen, key=lambda form: (-seen[form], form)):
            if words != names[entity] and self._outside.get(words) == entity:
                self._forms[entity].append(words)
        self._longest: dict[str, int] = {}
        for words in self._named:
            self._longest[words[0]] = max(len(words), self._longest.get(words[0], 0))

    def __repr__(self) -> str:
        return f"EntityLinker({len(self._forms)} entities, {len(self._named)} forms)"

    @property
    def words(self) -> frozenset[str]:
        """Every word that stands in some form of an entity."""
        return frozenset(word for words in self._named for word in words)

    def forms(self, entity: Entity) -> list[Words]:
        """How an entity may be said: its name, then the spellings that mean it in any company, most frequent ones first.

        Raises:
            DataError: the schema does not have the entity.
        """
        self.require(entity)
        return self._forms[entity]

    def require(self, entity: Entity, where: str | None = None) -> None:
        """Checks that the schema has an entity.

        Raises:
            DataError: it does not; `where` says who asks.
        """
        if entity not in self._forms:
            got, fix = f"{entity.value!r} ({entity.type})", "take tables and schema of one release"
            raise DataError("the schema does not have the entity", where=where, got=got, fix=fix)

    def link(self, words: Sequence[str], *contexts: Collection[Entity]) -> tuple[Token, ...]:
        """Tokens with the same words; no word belongs to two entities.

        Args:
            words: an utterance in lower case, see `chat_words`.
            contexts: entities that win over others of the same form, such as those of a table; the first context wins.
        """
        at, longest = 0, self._longest
        if longest.keys().isdisjoint(words):
            return tuple(words)
        tokens: list[Token] = []
        while at < len(words):
            word = words[at]
            at += 1
            length = longest.get(word, 0)
            while length:
                form = tuple(words[at - 1 : at - 1 + length])
                entity = self._meant(form, contexts)
                if entity is not None:
                    tokens.append(Mention(entity, form))
                    at += len(form) - 1
                    break
                length -= 1
            else:
                tokens.append(word)
        return tuple(tokens)

    def _meant(self, form: Words, contexts: Sequence[Collection[Entity]]) -> Entity | None:
        named = self._named.get(form, ())
        for context in contexts:
            for entity in named:
                if entity in context:
                    return entity
        known = self._outside.get(form)
        if known is None or not contexts or any(entity.type == known.type for context in contexts for entity in context):
            return known
        return None


def _no_entity(entity: Entity, words: Words, where: str | None = None) -> DataError:
    got, fix = f"{' '.join(words)!r} for {entity.value!r} ({entity.type})", "take schema and lexicon of one release"
    return DataError("a form names no entity of the schema", where=where, got=got, fix=fix)


def _share_a_word(words: Words, name: Words) -> bool:
    return any(len(word) >= _LEAST_LETTERS and word in name for word in words)


def read_lexicon(path: Path, schema: FriendsSchema) -> list[Form]:
    """Reads a lexicon in the published format: lines of `value TAB form TAB category`.

    Args:
        path: the file.
        schema: whose entities the forms mean.

    Raises:
        DataError: the file cannot be read, or a line is broken or names no entity of the schema; says which.
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
