"""Antonym: one word of an utterance by its opposite.

Source: Niu & Bansal 2018 (arXiv 1809.02079), section 3.2: the first word that has an opposite in the vocabulary changes to
one of its opposites, drawn uniformly; forms of "be" never do.

WordNet knows verbs in their own right alone: the opposite of "do" is "unmake" there, those of "have" are "lack", "refuse" and
"abstain". It has none of "install", so that the paper's first example cannot come from it.

Departures:
  * # Paper: verbs, adjectives and adverbs. Released: nouns too, modals as verbs, and words of all other parts of speech,
    whatever that of the opposite is ("on" by "off"). Ours: as `rule` says.
  * # Paper: silent. Released: WordNet's base form stands for whatever form the word had ("opens" by "close"). Ours: the form of
    the word ("closes"), and no opposite whose form is unknown, because a wrong ending would be a second change; under rule
    "released", as released.
  * # Paper: silent. Released: "do" and "have" change as other verbs do. Ours: forms of "do" never change, and forms of "have"
    not before another verb, adverbs and pronouns between them passed over ("have n't you tried"), because these are auxiliaries
    and "unmake you know" or "i refuse tried" is no sentence; under rule "released", as released.
  * # Released: joins the words to a string that its caller joins again, letter by letter. Ours: words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from engine.perturb.draws import uniforms
from engine.perturb.flat import Edits, FlatContexts
from engine.perturb.lexicon import Lexicon
from engine.perturb.resources import Resources
from engine.perturb.settings import PerturbSettings, Rule
from engine.perturb.strategy import ByEdits, Expectation
from envs.pairs.turns import Utterance

BE = frozenset({"be", "am", "is", "are", "was", "were", "been"})
DO = frozenset({"do", "does", "did", "doing", "done"})
HAVE = frozenset({"have", "has", "had", "having"})
_PAPER = {"VB": "v", "JJ": "a", "RB": "r"}
"""Parts of speech that are changed, by the beginnings of their tags."""
_RELEASED = {**_PAPER, "NN": "n", "MD": "v", "WR": "r"}
_BETWEEN = frozenset({"RB", "PRP"})
"""Tags of what may stand between an auxiliary and its verb."""
_BASE_FORMS = frozenset({"VB", "VBP", "JJ", "RB"})
_NUM_WORDS = 1 << 17


class Antonym(ByEdits):
    """The first word that has an opposite gets one.

    Args:
        lexicon: tags words, knows opposites and inflects them.
        may_enter: whether a model knows all of some words.
        rule: the paper's or the released one.
    """

    name = "antonym"
    expectation = Expectation.SHOULD_CHANGE

    def __init__(self, lexicon: Lexicon, may_enter: Callable[[Sequence[str]], bool], rule: Rule = "paper") -> None:
        self.lexicon, self.may_enter, self.rule = lexicon, may_enter, rule
        self._opposites = lru_cache(_NUM_WORDS)(self._opposites_of)

    def edits(self, flat: FlatContexts, seeds: Sequence[int]) -> Edits:
        """What is changed, see `ByEdits`."""
        draws = uniforms(seeds, self.name, np.diff(flat.turn_edges[flat.shape_edges])).tolist()
        return flat.edits_of(map(self._edit, flat.utterances, self.lexicon.tag_all(flat.utterances), draws))

    def _edit(self, words: Utterance, tags: Sequence[str], draw: float) -> tuple[int, int, Utterance] | None:
        for place, tag in enumerate(tags):
            opposites = self._opposites(words[place], tag)
            if opposites and not (words[place] in HAVE and self.rule == "paper" and _before_verb(tags, place)):
                return place, place + 1, (opposites[int(draw * len(opposites))],)
        return None

    def _opposites_of(self, word: str, tag: str) -> tuple[str, ...]:
        """What may stand in the place of a word, in a fixed order."""
        if word in BE:
            return ()
        if self.rule == "released":
            found: Sequence[str | None] = self.lexicon.antonyms(word, _RELEASED.get(tag[:2]))
        elif tag[:2] in _PAPER and word not in DO:
            bases = self.lexicon.antonyms(word, _PAPER[tag[:2]])
            found = bases if tag in _BASE_FORMS else [self.lexicon.inflect(base, tag) for base in bases]
        else:
            found = ()
        entering = (other for other in found if other is not None and other != word and self.may_enter((other,)))
        return tuple(dict.fromkeys(entering))


def _before_verb(tags: Sequence[str], place: int) -> bool:
    """Whether a word's next one is a verb, without what stands between an auxiliary and its verb."""
    return next((tag for tag in tags[place + 1 :] if tag not in _BETWEEN), "").startswith("VB")


def build(settings: PerturbSettings, resources: Resources) -> Antonym:
    """The strategy as the settings say."""
    return Antonym(resources.lexicon, resources.may_enter, settings.rule)
