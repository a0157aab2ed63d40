"""Augmenters of nlpaug and TextAttack that come nearest to strategies, as their manuals show them.

nlpaug's get the same tables and words as the strategies, and are told to change as many words: all that the table holds, at
most eight stop words, one word in four swapped, one antonym. What they do is less: opposites keep no form. TextAttack's
have no table to give, and keep their defaults (one word in ten). Neither has an augmenter that negates.

Not here: how they are clocked (`perturbation.py`).
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.plain_perturbation import PlainLoops

Augment = tuple[Callable[[str], Any], Callable[[list[str]], Any]]
"""A call with a text, and one with a list."""
MOST = 1000
"""Words of an utterance that are changed, where all may be."""


def installed(library: str) -> str | None:
    """Return the version of a library, or None if it is not installed."""
    return version(library) if importlib.util.find_spec(library) is not None else None


def _textattack(plain: PlainLoops, folder: Path) -> dict[str, Augment]:
    from textattack.augmentation import Augmenter, CharSwapAugmenter, DeletionAugmenter, WordNetAugmenter  # type: ignore[import-not-found]  # optional
    from textattack.transformations import WordInnerSwapRandom  # type: ignore[import-not-found]  # optional

    made = {
        "random-swap": Augmenter(transformation=WordInnerSwapRandom()),
        "stopword-dropout": DeletionAugmenter(),
        "data-paraphrase": WordNetAugmenter(),
        "character-noise": CharSwapAugmenter(),
    }
    return {name: (augmenter.augment, augmenter.augment_many) for name, augmenter in made.items()}


def _nlpaug(plain: PlainLoops, folder: Path) -> dict[str, Augment]:
    from nlpaug.augmenter import char, word  # type: ignore[import-not-found]  # optional

    paraphrases = folder / "ppdb.txt"
    lines = [
        f"[NN/VB/JJ/RB] ||| {' '.join(a)} ||| {' '.join(b)} ||| ||| "
        for a, phrases in plain.paraphrases.items()
        for b in phrases
    ]
    paraphrases.write_text("".join(f"{line}\n" for line in lines))
    categories: dict[str, list[str]] = {}
    for entity, of_entity in plain.entities.items():
        for category in of_entity:
            categories.setdefault(category, []).append(" ".join(entity))
    mentioned = sorted({part for entity in plain.entities for part in entity})
    # nlpaug leaves alone what it calls stop words, which it also looks up with blanks around them: here all other words.
    pattern = rf"\s*(?!(?:{'|'.join(map(re.escape, sorted(plain.dropped)))})\s*$)\S"
    every = {"aug_p": 1.0, "aug_max": MOST}
    made = {
        "random-swap": word.RandomWordAug(action="swap", aug_p=0.25, aug_max=MOST),
        "stopword-dropout": word.RandomWordAug(action="delete", aug_p=1.0, aug_max=8, stopwords_regex=pattern),
        "data-paraphrase": word.SynonymAug(aug_src="ppdb", model_path=str(paraphrases), **every),
        "grammar-errors": word.SpellingAug(),
        "antonym": word.AntonymAug(aug_max=1),
        "random-inputs": word.RandomWordAug(action="substitute", target_words=list(plain.common), **every),
        "random-inputs-kept-entities": word.RandomWordAug(
            action="substitute", target_words=list(plain.common), stopwords=mentioned, **every
        ),
        "confusing-entity": word.ReservedAug(reserved_tokens=list(categories.values()), **every),
        "character-noise": char.KeyboardAug(aug_word_p=0.2, aug_word_max=MOST, aug_char_max=1, min_char=4),
    }
    return {name: (augmenter.augment, augmenter.augment) for name, augmenter in made.items()}


LIBRARIES: dict[str, Callable[[PlainLoops, Path], dict[str, Augment]]] = {"textattack": _textattack, "nlpaug": _nlpaug}
"""By the names of their packages: from the loops, which hold the tables, and a folder for files of theirs."""
