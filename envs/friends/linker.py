"""Which words of an utterance name which entity: the longest known form, from left to right.

A form is a value of the schema or a spelling from a lexicon, cut into words. The context (the entities of a table, or of both)
decides between entities of one form. Outside of the context, a value of the schema is always an entity; another form is one
only where the lexicon has seen it several times, because lexicons of human chats hold slips such as "all of" for a school.
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


class EntityLinker:
    """Finds entities in utterances.

    Args:
        schema: names of entities.
        forms: other spellings of them, repeated as often as they were seen.

    Raises:
        DataError: a form without words, or of an entity that the schema does not have.
    """

    def __init__(self, schema: FriendsSchema, forms: Iterable[Form] = ()) -> None:
        names = {entity: chat_words(entity.value) for entity in schema.entities()}
        seen = Counter(forms)
        self._forms: dict[Entity, dict[Words, None]] = {entity: {words: None} for entity, words in names.items()}
        ranks: dict[Words, list[tuple[int, int, Entity]]] = defaultdict(list)
        for entity, words in names.items():
            if not words:
                raise DataError("a value of the schema has no words", got=repr(entity.value), fix="write letters or digits")
            ranks[words].append((0, 0, entity))
        for (entity, words), count in seen.items():
            if entity not in names or not words:
                got = f"{' '.join(words)!r} for {entity.value!r} ({entity.type})"
                raise DataError("a form names no entity of the schema", got=got, fix="take schema and lexicon of one release")
            self._forms[entity][words] = None
            if words != names[entity]:
                ranks[words].append((1, -count, entity))
        self._named = {words: [entity for _, _, entity in sorted(found)] for words, found in ranks.items()}
        self._outside = {
            words: best[2] for words, found in ranks.items() if (best := min(found))[0] == 0 or -best[1] >= NUM_SEEN_OUTSIDE
        }
        self._longest: dict[str, int] = {}
        for words in self._named:
            self._longest[words[0]] = max(len(words), self._longest.get(words[0], 0))

    def forms(self, entity: Entity) -> list[Words]:
        """How an entity may be said: its name, then the spellings of the lexicon.

        Raises:
            DataError: the schema does not have the entity.
        """
        if entity not in self._forms:
            got = f"{entity.value!r} ({entity.type})"
            raise DataError("the schema does not have the entity", got=got, fix="take tables and schema of one release")
        return list(self._forms[entity])

    def link(self, words: Sequence[str], context: Collection[Entity] = ()) -> tuple[Token, ...]:
        """Tokens with the same words; no word belongs to two entities.

        Args:
            words: an utterance in lower case, see `chat_words`.
            context: entities that win over others of the same form, such as those of the listener's table.
        """
        tokens: list[Token] = []
        at, longest = 0, self._longest
        while at < len(words):
            word = words[at]
            for length in range(longest.get(word, 0), 0, -1):
                form = tuple(words[at : at + length])
                entity = self._meant(form, context)
                if entity is not None:
                    tokens.append(Mention(entity, form))
                    at += len(form)
                    break
            else:
                tokens.append(word)
                at += 1
        return tuple(tokens)

    def _meant(self, form: Words, context: Collection[Entity]) -> Entity | None:
        for entity in self._named.get(form, ()):
            if entity in context:
                return entity
        return self._outside.get(form)


def read_lexicon(path: Path) -> list[Form]:
    """Reads a lexicon in the published format: lines of `value TAB form TAB category`.

    Raises:
        DataError: the file cannot be read, or a line is broken; says which.
    """
    forms: list[Form] = []
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
        forms.append((Entity(parts[0].lower(), parts[2]), words))
    return forms
