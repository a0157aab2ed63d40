"""Grammar Errors: words are written as learners write them.

Source: Niu & Bansal 2018, section 3.1: known errors from a corrected corpus, verbs in the infinitive, plurals in the singular.

- Released: nothing for this strategy but an older function: every word with an entry of a table is replaced by one of its wrong
  forms, drawn uniformly. Table and mixing are not released. Ours, under both rules: the same, where a word's forms are those of
  the table (`corrections.py`) and, beside them, the base of a verb and the singular of a plural.
- Paper: silent on how many words change. Released: that older function changes all. Ours, under both rules: one in five of
  those that have a wrong form (`grammar_rate`), because JFLEG holds one for nearly every common word ("the", "is", "to"), so
  that half of a text would change and nobody could read it.
- Released: Pattern inflects words by themselves. Ours: the tag in the sentence says what is a verb, because "updates" is both.
- Only words that the model knows enter, as in the released code's other strategies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np

from engine.perturb.corrections import open_corrections
from engine.perturb.draws import uniforms
from engine.perturb.flat import Edits, FlatContexts
from engine.perturb.resources import Resources
from engine.perturb.settings import PerturbSettings
from engine.perturb.strategy import ByEdits, Expectation

PLAIN_FORMS = {"VBD": "VB", "VBG": "VB", "VBN": "VB", "VBP": "VB", "VBZ": "VB", "NNS": "NN"}
"""Tags of inflected words, and of the form that learners leave them in."""
Forms = tuple[str, ...]


class GrammarErrors(ByEdits):
    """Words are written as learners write them.

    Args:
        table: from right words to wrong forms.
        resources: the lexicon, and the words that may enter.
        rate: share of the words with a wrong form that get one.
    """

    name = "grammar-errors"
    expectation = Expectation.SHOULD_NOT_CHANGE

    def __init__(self, table: Mapping[str, Forms], resources: Resources, rate: float = 1.0) -> None:
        self._resources, self._rate = resources, rate
        kept = {good: tuple([word for word in bad if resources.may_enter([word])]) for good, bad in table.items()}
        self._table = {good: bad for good, bad in kept.items() if bad}
        self._known: dict[tuple[str, str], Forms] = {}

    def edits(self, flat: FlatContexts, seeds: Sequence[int]) -> Edits:
        """What is changed, see `ByEdits`."""
        known = self._known
        tags = chain.from_iterable(self._resources.lexicon.tag_all(flat.utterances))
        keys = list(zip(flat.words, tags, strict=True))
        for key in {*keys} - known.keys():
            known[key] = self._forms(*key)
        choices = [known[key] for key in keys]
        places = np.flatnonzero(np.fromiter(map(bool, choices), dtype=bool, count=len(choices)))
        drawn = uniforms(seeds, self.name, flat.num_in_contexts(places)) / self._rate
        places, drawn = places[drawn < 1], drawn[drawn < 1]
        wrong = [choices[place] for place in places.tolist()]
        chosen = [(forms[int(share * len(forms))],) for forms, share in zip(wrong, drawn.tolist(), strict=True)]
        return Edits.of_words(places, chosen)

    def _forms(self, word: str, tag: str) -> Forms:
        """The wrong forms of a word that may enter; none for what is not written in letters."""
        if not word.isalpha():
            return ()
        listed = self._table.get(word, ())
        plain = self._resources.lexicon.inflect(word, PLAIN_FORMS[tag]) if tag in PLAIN_FORMS else None
        if plain is None or plain == word or plain in listed or not self._resources.may_enter([plain]):
            return listed
        return (*listed, plain)


def build(settings: PerturbSettings, resources: Resources) -> GrammarErrors:
    """The strategy as the settings say.

    Raises:
        DataError: sentences with corrections or the lexicon's data are not there, or are broken.
    """
    return GrammarErrors(open_corrections(settings, resources), resources, settings.grammar_rate)
