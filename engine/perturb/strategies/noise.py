"""Character Noise and Misspellings: letters of a word slip, and a reader still knows the word.

Sources: Belinkov & Bisk 2018 (arXiv 1711.02173), letters that change places and neighbouring keys in words of at least four
letters; Pruthi, Dhingra & Lipton 2019 (arXiv 1905.11268), also left out and added letters, the first and the last one always in
place; Gao et al. 2018 (arXiv 1801.04354), letters that look alike. Not one of Niu & Bansal's (2018) strategies.

A word gets one slip, of a kind and at a place that are drawn uniformly, because the sources draw so:

    transposition   two inner letters change places          package    pakcage
    key             the next key of a QWERTY keyboard        package    pavkage
    omission        an inner letter goes                     package    packge
    repetition      an inner letter stands twice             package    packkage
    homoglyph       a Cyrillic letter of the same shape (Unicode Technical Standard 39)

Misspellings are slips that people were seen to make, letters added, left out, doubled and hit beside: one of those that lists
know of the word (`engine/perturb/lexicon/corrections.py`), drawn uniformly; a word that no list knows stays.

- A share of the words of at least four letters slips (`noise_rate`). Only words of the letters a to z do: no address, path,
  number, smiley or hyphenated word (package names), no name of a program, nothing that belongs to a command line or a flag
  (`commands.py`), and no name of a file ("xorg . conf").
- A slip may be unknown to the model, unlike the results of other strategies: a model meets the slips of people as unknown
  words too. A slip that is another word of the model or of the corpus is not used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from string import ascii_lowercase

import numpy as np

from parley.engine.perturb.catalogue import USUAL, Resources
from parley.engine.perturb.lexicon.corrections import Corrections, misspellings_of, open_corrections
from parley.engine.perturb.strategies.commands import NAMES, in_commands
from parley.engine.perturb.strategies.draws import uniforms
from parley.engine.perturb.strategies.texts import Edits, FlatContexts
from parley.engine.perturb.strategy import ByEdits, Expectation, PerturbSettings

SHORTEST = 4
"""Letters of the shortest word that slips."""
_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
_OFFSETS = (0.0, 0.25, 0.75)
"""By how much of a key each row stands to the right of the first."""
HOMOGLYPHS = dict(zip("acdehijopsxy", "асԁеһіјорѕху", strict=True))  # noqa: RUF001  # the letters that look alike
_NUM_WORDS = 1 << 16


def _beside() -> dict[str, str]:
    """Return the neighbours of each key."""
    where = {key: (x + _OFFSETS[y], y) for y, row in enumerate(_ROWS) for x, key in enumerate(row)}
    return {
        key: "".join(other for other, (u, v) in where.items() if other != key and abs(v - y) <= 1 and abs(u - x) <= 1)
        for key, (x, y) in where.items()
    }


KEYS = _beside()
"""The neighbours of each key."""


class CharacterNoise(ByEdits):
    """Letters of words slip.

    Args:
        resources: the words that a model knows, which no slip makes.
        rate: share of the words of at least four letters that slip.
    """

    name = "character-noise"
    expectation = Expectation.SHOULD_NOT_CHANGE

    def __init__(self, resources: Resources, rate: float) -> None:
        self._resources, self._rate = resources, rate
        self._slips = lru_cache(_NUM_WORDS)(self._slips_of)
        self._long = _Long()

    def edits(self, flat: FlatContexts, seeds: Sequence[int]) -> Edits:
        words = flat.words
        may_slip = np.frombuffer(bytearray(map(self._long.__getitem__, words)), dtype=bool)
        positions = np.flatnonzero(may_slip & ~in_commands(flat))
        drawn = uniforms(seeds, self.name, flat.num_in_contexts(positions)) / self._rate
        chosen = [
            (position, slip)
            for position, share in zip(positions[drawn < 1].tolist(), drawn[drawn < 1].tolist(), strict=True)
            if (slip := self._slip(words[position], share)) is not None
        ]
        return Edits.of_words(np.array([position for position, _ in chosen], dtype=np.int64), [(slip,) for _, slip in chosen])

    def _slip(self, word: str, share: float) -> str | None:
        """Return one of a word's slips: of the drawn kind, else of the next kind that has one, else None."""
        kind, share = divmod(share * len(_KINDS), 1)
        for number in range(len(_KINDS)):
            slips = self._slips(word, (int(kind) + number) % len(_KINDS))
            if slips:
                return slips[int(share * len(slips))]
        return None

    def _slips_of(self, word: str, kind: int) -> tuple[str, ...]:
        return tuple(dict.fromkeys(other for other in _KINDS[kind](word) if other != word and not self._is_word(other)))

    def _is_word(self, slip: str) -> bool:
        listed, language = self._resources.listed, self._resources.language
        return slip in listed or (language is not None and language.counts[slip] >= USUAL)


class Misspellings(CharacterNoise):
    """Words are misspelt as lists of misspellings have it.

    Args:
        resources: as of `CharacterNoise`.
        rate: share of the words of at least four letters that are misspelt where a list knows how.
        corrections: the lists.
    """

    name = "misspellings"

    def __init__(self, resources: Resources, rate: float, corrections: Corrections) -> None:
        super().__init__(resources, rate)
        self._corrections = corrections

    def _slip(self, word: str, share: float) -> str | None:
        misspellings = self._slips(word, 0)
        return misspellings[int(share * len(misspellings))] if misspellings else None

    def _slips_of(self, word: str, kind: int) -> tuple[str, ...]:
        listed = dict.fromkeys(misspellings_of(word, self._corrections))
        return tuple(wrong for wrong in listed if wrong != word and not self._is_word(wrong))


class _Long(dict[str, bool]):
    """A mask of the words that may slip."""

    def __missing__(self, word: str) -> bool:
        if len(self) >= _NUM_WORDS:
            self.clear()
        self[word] = len(word) >= SHORTEST and not word.strip(ascii_lowercase) and word not in NAMES
        return self[word]


_KINDS: tuple[Callable[[str], Iterable[str]], ...] = (
    lambda word: (word[:i] + word[i + 1] + word[i] + word[i + 2 :] for i in range(1, len(word) - 2)),
    lambda word: (word[:i] + key + word[i + 1 :] for i in range(1, len(word) - 1) for key in KEYS[word[i]]),
    lambda word: (word[:i] + word[i + 1 :] for i in range(1, len(word) - 1)),
    lambda word: (word[:i] + word[i] + word[i:] for i in range(1, len(word) - 1)),
    lambda word: (word[:i] + HOMOGLYPHS[word[i]] + word[i + 1 :] for i in range(1, len(word) - 1) if word[i] in HOMOGLYPHS),
)
"""Slips of a word but for its ends: letters exchanged, a key beside, a letter left out, said twice, or one that looks alike."""


def build(settings: PerturbSettings, resources: Resources) -> CharacterNoise:
    """Build character noise from the settings."""
    return CharacterNoise(resources, settings.noise_rate)


def build_misspellings(settings: PerturbSettings, resources: Resources) -> Misspellings:
    """Build misspellings from the settings; raises as `open_corrections` does."""
    return Misspellings(resources, settings.noise_rate, open_corrections(settings, resources))
