"""Which words of an utterance name which entity: the longest known form, from left to right.

A form is a value of the schema or a spelling from a lexicon, cut into words. The context (the entities of a table, or of
both) decides between entities of one form, and which categories there are at all: "go" is no game where tables have no games.
Outside of the context, a value of the schema is an entity; another form is one only where the lexicon has seen it several
times, because lexicons of human chats hold slips such as "all of" for a school.
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
"""An entity and the words that somebody said for it."""
NUM_SEEN_OUTSIDE = 3
"""So often a lexicon must have seen a form before it names an entity that is in no table at hand."""

MOST_MEANINGS = 2
"""A form of more entities must share a word with the name, or it is dropped: "work at" and "studied" name nothing."""
_LEAST_LETTERS = 4
_PLAIN = frozenset(("and", "at", "for", "from", "in", "of", "the", "to", "with", "work", "working", "works"))
"""A form of these alone names nothing: the published lexicon has "work for" for a school and "and works" for a subject."""


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
            known = meanings[words] <= MOST_MEANINGS or _share_a_word(words, names[entity])
            if words != names[entity] and known and not _PLAIN.issuperset(words):
                ranks[words].append((1, -count, entity))
        self._named = {words: [Mention(entity, words) for _, _, entity in sorted(found)] for words, found in ranks.items()}
        """What each form may mean, the likeliest first."""
        self._outside = {
            words: self._named[words][0]
            for words, found in ranks.items()
            if (best := min(found))[0] == 0 or -best[1] >= NUM_SEEN_OUTSIDE
        }
        self._mentions = {entity: [Mention(entity, words)] for entity, words in names.items()}
        for entity, words in sorted(seen, key=lambda form: (-seen[form], form)):
            if words != names[entity] and words in self._outside and self._outside[words].entity == entity:
                self._mentions[entity].append(self._outside[words])
        lengths: dict[str, set[int]] = defaultdict(set)
        for words in self._named:
            lengths[words[0]].add(len(words))
        self._lengths = {word: sorted(found, reverse=True) for word, found in lengths.items()}
        """How long forms are that begin with a word."""

    def __repr__(self) -> str:
        return f"EntityLinker({len(self._mentions)} entities, {len(self._named)} forms)"

    @property
    def words(self) -> frozenset[str]:
        """Every word that stands in some form of an entity."""
        return frozenset(word for words in self._named for word in words)

    def mentions(self, entity: Entity) -> list[Mention]:
        """How an entity may be said: its name, then the spellings that mean it in any company, most frequent ones first.

        Raises:
            DataError: the schema does not have the entity.
        """
        found = self._mentions.get(entity)
        if found is None:
            raise _unknown(entity)
        return found

    def require(self, entity: Entity, where: str | None = None) -> None:
        """Check that the schema has an entity.

        Raises:
            DataError: it does not; `where` says who asks.
        """
        if entity not in self._mentions:
            raise _unknown(entity, where)

    def link(self, words: Sequence[str], *contexts: Collection[Entity]) -> tuple[Token, ...]:
        """Tokens with the same words; no word belongs to two entities.

        Args:
            words: an utterance in lower case, see `chat_words`.
            contexts: entities that win over others of the same form, such as those of a table; the first context wins.
        """
        tokens: list[Token] = []
        end = 0
        for at, mention in self.find(words, *contexts):
            tokens += words[end:at]
            tokens.append(mention)
            end = at + len(mention.words)
        return (*tokens, *words[end:])

    def find(self, words: Sequence[str], *contexts: Collection[Entity]) -> list[tuple[int, Mention]]:
        """What `link` finds: where each mention begins, and the mention, from left to right."""
        words, lengths, found, end = tuple(words), self._lengths, [], 0
        for at in compress(range(len(words)), map(lengths.__contains__, words)):
            if at < end:
                continue
            for length in lengths[words[at]]:
                mention = self.meant(words[at : at + length], contexts)
                if mention is not None:
                    found.append((at, mention))
                    end = at + length
                    break
        return found

    def meant(self, form: Words, contexts: Sequence[Collection[Entity]]) -> Mention | None:
        """What words mean that are a form as a whole; None of others."""
        meanings = self._named.get(form)
        if meanings is None:
            return None
        for context in contexts:
            for mention in meanings:
                if mention.entity in context:
                    return mention
        known = self._outside.get(form)
        if known is None or not contexts:
            return known
        kind = known.entity.type
        for context in contexts:
            for entity in context:
                if entity.type == kind:
                    return known
        return None


def _unknown(entity: Entity, where: str | None = None) -> DataError:
    got, fix = f"{entity.value!r} ({entity.type})", "take tables and schema of one release"
    return DataError("the schema does not have the entity", where=where, got=got, fix=fix)


def _no_entity(entity: Entity, words: Words, where: str | None = None) -> DataError:
    got, fix = f"{' '.join(words)!r} for {entity.value!r} ({entity.type})", "take schema and lexicon of one release"
    return DataError("a form names no entity of the schema", where=where, got=got, fix=fix)


def _share_a_word(words: Words, name: Words) -> bool:
    return any(len(word) >= _LEAST_LETTERS and word in name for word in words)


def read_lexicon(path: Path, schema: FriendsSchema) -> list[Form]:
    """Read a lexicon in the published format: lines of `value TAB form TAB category`.

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
