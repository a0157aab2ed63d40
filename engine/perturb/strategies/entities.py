"""Perturbations of dialogues about entities: Random Inputs, Random Inputs with Kept Entities, Confusing Entity.

Source: Niu & Bansal 2018, section 3.2, for DynoNet on MutualFriends (He et al. 2017). No code is released; they are perturbed
in play there, while nothing but the partner's utterances changes.

- Random inputs: every token by a random one. Paper: from which words is not said. Ours: uniformly from `Resources.common`,
  the words of the model or corpus without its special ones.
- Kept entities: the same, but words of entities stay.
- Confusing entity: every entity by another one of its category, drawn from the knowledge base of the other side and not from
  what both sides share. Ours: from `partner_entities`; that file must leave out what both share, because this module
  sees contexts and no scenario.

An entities file has entity<TAB>category lines; an entity of several categories has several lines. People rarely write names
in full, so a line may say how they do: entity<TAB>form<TAB>category, as MutualFriends' `inverse_lexicon_data.txt` has it. A
form may mean several entities, and none of those comes in its place. A JSON file with the layout of MutualFriends'
`schema.json` ({"values": {category: [entity, ...]}}) is read as well. Names and forms may have several words: the longest that
matches wins, from left to right.

A file of forms is taken as it is: that lexicon also holds "work at" and "one of", which people once wrote for a name, and lacks
names that nobody wrote; lines entity<TAB>category may be added to it.

Phrases of a table among the words of many contexts: all places walk down one tree of words at once.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from parley.engine.perturb.catalogue import Resources
from parley.engine.perturb.strategies.draws import uniforms
from parley.engine.perturb.strategies.texts import Edits, FlatContexts
from parley.engine.perturb.strategy import ByEdits, Expectation, PerturbSettings
from parley.envs.core.errors import ConfigError, DataError
from parley.envs.corpora.arrow import read_file
from parley.envs.corpora.lines import broken_rule, located, read_lines, require_utf8, utf8_start
from parley.envs.corpora.pairs.tokens import tokenise
from parley.envs.corpora.pairs.turns import EOT, Utterance
from parley.envs.corpora.pairs.vocabulary import SPECIALS


class Matches(NamedTuple):
    """Phrases in a text, by the positions where they begin."""

    starts: np.ndarray
    """Where each begins among the words (M,) int64, ascending."""
    ends: np.ndarray
    """Where it ends, within its utterance (M,) int64."""
    phrases: np.ndarray
    """Which of `Phrases.listed` it is (M,) int64."""

    def where(self, kept: np.ndarray) -> Matches:
        """Return the matches of a mask (M,) bool."""
        return Matches(*(column[kept] for column in self))


class _Level(NamedTuple):
    """The beginnings of all phrases that are so many words long, numbered from 0."""

    keys: np.ndarray
    """The number of what is before the last word, times one more than there are words, plus the last word's, counted from 1
    (B,) int64, ascending."""
    phrases: np.ndarray
    """Which phrase each is as it stands; -1: none (B,) int64."""


class Phrases:
    """A table of phrases, searched in many contexts at once.

    Args:
        listed: phrases of at least one word, none twice.
    """

    def __init__(self, listed: Collection[Utterance]) -> None:
        self.listed = tuple(listed)
        self._words = {word: i for i, word in enumerate(dict.fromkeys(chain.from_iterable(self.listed)), 1)}
        self._beginnings = frozenset(phrase[0] for phrase in self.listed)
        lengths = np.fromiter(map(len, self.listed), dtype=np.int64, count=len(self.listed))
        flat = np.fromiter(map(self._words.__getitem__, chain.from_iterable(self.listed)), dtype=np.int64, count=lengths.sum())
        firsts, numbers = np.cumsum(lengths) - lengths, np.zeros(len(lengths), dtype=np.int64)
        self._levels: list[_Level] = []
        for length in range(1, lengths.max(initial=0) + 1):
            longer = np.flatnonzero(lengths >= length)
            keys = numbers[longer] * (len(self._words) + 1) + flat[firsts[longer] + length - 1]
            kinds, numbers[longer] = np.unique(keys, return_inverse=True)
            whole, phrases = np.flatnonzero(lengths == length), np.full(len(kinds), -1)
            phrases[numbers[whole]] = whole
            self._levels.append(_Level(kinds, phrases))
        self._first = np.full(len(self._words) + 1, -1)
        if self._levels:
            self._first[self._levels[0].keys] = np.arange(len(self._levels[0].keys))

    def longest(self, flat: FlatContexts) -> Matches:
        """Return the longest phrase that begins at each position, overlaps included."""
        if self._beginnings.isdisjoint(flat.words):
            nowhere = np.zeros(0, dtype=np.int64)
            return Matches(nowhere, nowhere, nowhere)
        # Words of no phrase stand behind the last one too, so that no phrase leads beyond it.
        words = np.zeros(len(flat.words) + len(self._levels), dtype=np.int64)
        words[: len(flat.words)] = flat.numbered(self._words)
        numbers = self._first[words]
        starts = np.flatnonzero(numbers >= 0)
        numbers = numbers[starts]
        ends = starts + 1
        phrases = self._levels[0].phrases[numbers] if self._levels else numbers
        walking = np.arange(len(starts))
        for length, level in enumerate(self._levels[1:], 2):
            keys = numbers * (len(self._words) + 1) + words[starts[walking] + (length - 1)]
            numbers = np.searchsorted(level.keys, keys)
            met = np.flatnonzero(level.keys[np.minimum(numbers, len(level.keys) - 1)] == keys)
            met = met[starts[walking[met]] + length <= flat.ends_of(starts[walking[met]])]
            walking, numbers = walking[met], numbers[met]
            whole = level.phrases[numbers]
            phrases[walking[whole >= 0]] = whole[whole >= 0]
            ends[walking[whole >= 0]] = starts[walking[whole >= 0]] + length
        return Matches(starts, ends, phrases).where(phrases >= 0)

    @cached_property
    def _places(self) -> dict[Utterance, int]:
        return {phrase: i for i, phrase in enumerate(self.listed)}

    def first_of(self, words: Utterance) -> int | None:
        """Return the number of the longest phrase that some words begin with; None if there is none."""
        beginnings = (self._places.get(words[:length]) for length in range(len(words), 0, -1))
        return next((phrase for phrase in beginnings if phrase is not None), None)


class Entities:
    """The entities of a corpus.

    Args:
        categories: of every entity, given by the words of its name, at least one.
        forms: what else people write, and which entities they may mean by it.
    """

    def __init__(
        self, categories: Mapping[Utterance, Sequence[str]], forms: Mapping[Utterance, Collection[Utterance]] | None = None
    ) -> None:
        self.categories = categories
        meant = {form: frozenset(entities) for form, entities in (forms or {}).items()}
        self._meant = {entity: frozenset({entity}) for entity in categories} | {
            form: entities | ({form} & categories.keys()) for form, entities in meant.items()
        }
        self._phrases = Phrases(self._meant)

    @property
    def forms(self) -> Sequence[Utterance]:
        """Names, and what people write for them; matches number these."""
        return self._phrases.listed

    def meant_by(self, form: Utterance) -> frozenset[Utterance]:
        """Return the entities that a form may mean."""
        return self._meant[form]

    def find(self, flat: FlatContexts) -> Matches:
        """Find the entities in contexts; where two overlap, the left one."""
        matches = self._phrases.longest(flat)
        stays = np.ones(len(matches.starts), dtype=bool)
        done = 0
        for i, (start, end) in enumerate(zip(matches.starts.tolist(), matches.ends.tolist(), strict=True)):
            stays[i] = start >= done
            done = end if start >= done else done
        return matches.where(stays)


class RandomInputs(ByEdits):
    """Every word by a random one.

    Args:
        common: what is drawn from.
        kept: entities that stay; None keeps nothing.
    """

    expectation = Expectation.SHOULD_CHANGE

    def __init__(self, common: Sequence[str], kept: Entities | None = None) -> None:
        self.name = "random-inputs" if kept is None else "random-inputs-kept-entities"
        self.common, self.kept = np.array(common, dtype=object), kept

    def edits(self, flat: FlatContexts, seeds: Sequence[int]) -> Edits:
        return random_words(flat, seeds, self.name, self.common, None if self.kept is None else self.kept.find(flat))


class ConfusingEntity(ByEdits):
    """Every entity by another one of its category.

    Args:
        entities: what is replaced.
        substitutes: entities that may replace them.
        resources: the words that may enter.
    """

    name = "confusing-entity"
    expectation = Expectation.SHOULD_CHANGE

    def __init__(self, entities: Entities, substitutes: Iterable[Utterance], resources: Resources) -> None:
        self._entities = entities
        self._by_category: dict[str, list[Utterance]] = {}
        for entity in substitutes:
            if resources.may_enter(entity):
                for category in entities.categories[entity]:
                    self._by_category.setdefault(category, []).append(entity)
        self._choices: dict[int, list[Utterance]] = {}

    def edits(self, flat: FlatContexts, seeds: Sequence[int]) -> Edits:
        matches = self._entities.find(flat)
        kinds, kind = np.unique(matches.phrases, return_inverse=True)
        choices = [self._choices_for(form) for form in kinds.tolist()]
        return other_entities(flat, seeds, self.name, matches, [choices[which] for which in kind.tolist()])

    def _choices_for(self, form: int) -> list[Utterance]:
        """Return the entities that may replace a form."""
        if form not in self._choices:
            meant = self._entities.meant_by(self._entities.forms[form])
            categories = dict.fromkeys(category for entity in sorted(meant) for category in self._entities.categories[entity])
            near = chain.from_iterable(self._by_category.get(category, ()) for category in categories)
            self._choices[form] = [other for other in dict.fromkeys(near) if other not in meant]
        return self._choices[form]


def random_words(flat: FlatContexts, seeds: Sequence[int], name: str, common: np.ndarray, kept: Matches | None = None) -> Edits:
    """Replace every word by a random one.

    Args:
        flat: the contexts.
        seeds: one for each context.
        name: who draws.
        common: what is drawn from, each as likely (words,) of str objects.
        kept: words that stay.
    """
    drawn = (uniforms(seeds, name, flat.num_words) * len(common)).astype(np.int64)
    changes = np.ones(len(drawn), dtype=bool)
    if kept is not None:
        for start, end in zip(kept.starts.tolist(), kept.ends.tolist(), strict=True):
            changes[start:end] = False
    positions = np.flatnonzero(changes)
    return Edits.of_words(positions, list(zip(common.take(drawn[positions]).tolist())))


def other_entities(
    flat: FlatContexts, seeds: Sequence[int], name: str, matches: Matches, choices: Sequence[Sequence[Utterance]]
) -> Edits:
    """Replace entities by other entities.

    Args:
        flat: the contexts.
        seeds: one for each context.
        name: who draws.
        matches: the entities (M).
        choices: the entities that may replace each, equally likely (M); an entity without choices draws no number.
    """
    counts = np.fromiter(map(len, choices), dtype=np.int64, count=len(choices))
    may_change = counts > 0
    matches, choices = matches.where(may_change), [options for options in choices if options]
    if not choices:
        return Edits.of_words(matches.starts, ())
    drawn = (uniforms(seeds, name, flat.num_in_contexts(matches.starts)) * counts[may_change]).astype(np.int64)
    return Edits(matches.starts, matches.ends, [few[number] for few, number in zip(choices, drawn.tolist(), strict=True)])


def build_random(settings: PerturbSettings, resources: Resources) -> RandomInputs:
    """Build random inputs.

    Raises:
        ConfigError: there are no words to draw from.
    """
    return RandomInputs(_common(resources))


def build_kept(settings: PerturbSettings, resources: Resources) -> RandomInputs:
    """Build random inputs with kept entities.

    Raises:
        ConfigError: there are no words to draw from, or no entities.
        DataError: the file of entities is broken.
    """
    return RandomInputs(_common(resources), read_entities(_named(settings)))


def build_confusing(settings: PerturbSettings, resources: Resources) -> ConfusingEntity:
    """Build confusing entities.

    Raises:
        ConfigError: there are no entities.
        DataError: a file of entities is broken.
    """
    entities = read_entities(_named(settings))
    partner = settings.partner_entities
    return ConfusingEntity(entities, entities.categories if partner is None else _read_partner(partner, entities), resources)


def read_entities(path: Path) -> Entities:
    """Read the entities of a file.

    Args:
        path: lines entity<TAB>category or entity<TAB>form<TAB>category; or MutualFriends' schema, which is JSON by its name or
            its content.

    Raises:
        DataError: it cannot be read, or a line is broken.
    """
    categories: dict[Utterance, list[str]] = {}
    forms: dict[Utterance, set[Utterance]] = {}
    is_json = path.suffix.lower() == ".json" or utf8_start(path).startswith("{")
    for entity, form, category in _schema(path) if is_json else _lines(path):
        of_entity = categories.setdefault(entity, [])
        if category not in of_entity:
            of_entity.append(category)
        forms.setdefault(form, set()).add(entity)
    return Entities(categories, forms)


def _named(settings: PerturbSettings) -> Path:
    if settings.entities is None:
        raise ConfigError(
            "this strategy needs to know the entities",
            where="perturb.entities",
            fix="--set perturb.entities=FILE, with entity<TAB>category lines, or MutualFriends' schema or lexicon",
        )
    return settings.entities


def _common(resources: Resources) -> list[str]:
    special = {*SPECIALS, EOT}
    common = [word for word in resources.common if word not in special and resources.may_enter([word])]
    if not common:
        raise ConfigError(
            "random inputs need words to draw from", fix="name a model of words with --model, or give Resources(common=...)"
        )
    return common


def _lines(path: Path) -> Iterator[tuple[Utterance, Utterance, str]]:
    tokens_of: dict[str, Utterance] = {}
    for number, line in enumerate(read_lines(path), 1):
        *names, category = line.split("\t")
        try:
            require_utf8(line)
            for text in names:
                if text not in tokens_of:
                    tokens_of[text] = tuple(tokenise(text))
            if len(names) not in (1, 2) or not category.strip() or not all(tokens_of[text] for text in names):
                raise broken_rule("a line is entity<TAB>category or entity<TAB>form<TAB>category", line)
        except DataError as error:
            raise located(error, str(path), number) from None
        yield tokens_of[names[0]], tokens_of[names[-1]], category.strip()


def _schema(path: Path) -> Iterator[tuple[Utterance, Utterance, str]]:
    try:
        values = json.loads(read_file(path))["values"]
        named = [(tuple(tokenise(name)), str(category)) for category, names in values.items() for name in names]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        fix = 'its layout is {"values": {CATEGORY: [ENTITY, ...]}}'
        raise DataError("the schema is not as MutualFriends has it", where=path, got=repr(error), fix=fix) from None
    yield from ((words, words, category) for words, category in named if words)


def _read_partner(path: Path, entities: Entities) -> list[Utterance]:
    entities_read: list[Utterance] = []
    for number, line in enumerate(read_lines(path), 1):
        words = tuple(tokenise(line))
        if words not in entities.categories:
            error = broken_rule("a line is one of the entities that perturb.entities names", line)
            raise located(error, str(path), number)
        entities_read.append(words)
    return entities_read
