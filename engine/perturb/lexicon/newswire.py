"""Words of a chat as a tagger of newspapers expects to read them.

NLTK's tagger was trained on edited text. It takes a lower-case "i" and "dont" for nouns, and reads the first word of a line
better behind a capital. Our tokens are lower-cased, so what the tagger reads is restored first:

    pronoun         i                        I
    contractions    dont                     do n't              also "gonna", "u" and other short forms
    beginnings      what should i use ?      What should I use ?
    names           she left canada          she left Canada

  * A word has its capital at the beginning of a sentence unless the tagger takes it for a name then ("Hi"). An auxiliary never
    has one, since newspapers ask few questions: "Did you" is two names to the tagger. A word alone is no sentence.
  * Names are those that WordNet knows as nothing else, and days, months, languages and peoples. Those of chat users stay.

Not here: the tagger (`tagger.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from parley.engine.perturb.lexicon.lexicon import word_set
from parley.engine.perturb.strategies.commands import EXTENSIONS

_AUXILIARIES = word_set(
    """
    am is are was were do does did have has had can could will would shall should may might must ca wo sha ai
    """
)
_SHORT_FORMS = """
im i 'm | ive i 've | youre you 're | youve you 've | youll you 'll | weve we 've | theyre they 're | theyve they 've
theyll they 'll | hes he 's | shes she 's | thats that 's | thatll that 'll | whats what 's | wheres where 's | whos who 's
theres there 's | itll it 'll | dont do n't | doesnt does n't | didnt did n't | isnt is n't | arent are n't | wasnt was n't
werent were n't | cant ca n't | cannot can not | couldnt could n't | wont wo n't | wouldnt would n't | shouldnt should n't
havent have n't | hasnt has n't | hadnt had n't | aint ai n't | dunno do n't know | gonna going to | wanna want to
gotta got to | lemme let me | gimme give me | u you | pls please | plz please | thx thanks | thanx thanks | cuz because
coz because | ppl people
"""
SHORT_FORMS = {word: tuple(pieces) for word, *pieces in map(str.split, _SHORT_FORMS.strip().replace("\n", " | ").split("|"))}
"""One token of a chat, and the tokens of edited text that it stands for."""
_SHORT = frozenset(SHORT_FORMS)
CALENDAR_AND_PEOPLES = word_set(
    """
    monday tuesday wednesday thursday friday saturday sunday january february april june july september october november
    december christmas easter english french german spanish italian russian chinese japanese korean portuguese dutch greek
    arabic turkish swedish danish norwegian finnish american british european african asian indian canadian australian
    mexican brazilian irish scottish
    """
)
_ENDS = frozenset({".", "?", "!", "..."})


def expanded(words: Sequence[str]) -> tuple[list[str], list[int]]:
    """Return an utterance without short forms.

    Args:
        words: of the utterance, lower case.

    Returns:
        The words of edited text, and where the first one of each given word stands.
    """
    pieces: list[str] = []
    firsts: list[int] = []
    for word in words:
        firsts.append(len(pieces))
        pieces += SHORT_FORMS.get(word, (word,))
    return pieces, firsts


class Restored(NamedTuple):
    """An utterance as newspapers write it.

    Args:
        words: its words.
        origins: where the first one of each given word stands; None where each stands for itself.
        plain: its words with no capital for the beginning of a sentence.
        beginnings: where the two differ.
    """

    words: Sequence[str]
    origins: Sequence[int] | None
    plain: Sequence[str]
    beginnings: Sequence[int]


class Newswire:
    """Restore utterances for a tagger.

    Args:
        is_name: whether a lower-case word is nothing but a name.
    """

    def __init__(self, is_name: Callable[[str], bool]) -> None:
        self._inside = _Inside(is_name)

    def restored(self, words: Sequence[str]) -> Restored:
        """Return an utterance as newspapers write it.

        Args:
            words: of the utterance, lower case.
        """
        origins = None
        if not _SHORT.isdisjoint(words):
            words, origins = expanded(words)
        plain = list(map(self._inside.__getitem__, words))
        if len(words) < 2:
            return Restored(plain, origins, plain, ())
        first = words[0]
        if first.isalnum() and _ENDS.isdisjoint(words[:-1]):
            # One sentence, as most utterances are.
            if first in _AUXILIARIES or not plain[0][0].islower():
                return Restored(plain, origins, plain, ())
            return Restored([_capitalised(plain[0]), *plain[1:]], origins, plain, (0,))
        beginnings = [index for index in _beginnings(words) if plain[index][0].islower()]
        cased = [*plain]
        for index in beginnings:
            cased[index] = _capitalised(plain[index])
        return Restored(cased, origins, plain, beginnings)


class _Inside(dict[str, str]):
    """Words as they are written within a sentence."""

    def __init__(self, is_name: Callable[[str], bool]) -> None:
        super().__init__()
        self._is_name = is_name

    def __missing__(self, word: str) -> str:
        self[word] = _capitalised(word) if word == "i" or (word not in _AUXILIARIES and self._is_name(word)) else word
        return self[word]


def _capitalised(word: str) -> str:
    return word[:1].upper() + word[1:]


def _beginnings(words: Sequence[str]) -> list[int]:
    """Return where the first words of sentences stand; a full stop within a file's name ends none."""
    indices = []
    begins = True
    for index, word in enumerate(words):
        if begins and word[:1].isalnum():
            begins = False
            if word not in _AUXILIARIES and (not index or words[index - 1] != "." or word not in EXTENSIONS):
                indices.append(index)
        elif word in _ENDS:
            begins = True
    return indices
