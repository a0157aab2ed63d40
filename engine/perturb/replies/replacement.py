"""RSW: words of the right reply by synonyms (Replace Words by Synonyms).

Source: Li et al. 2019, section 3.2: WordNet from NLTK, neither stop words nor named entities; the reply stays right.

  * # Paper: silent on how many words are replaced. Ours: all that have a synonym; as an option a share of them.
  * # Paper: silent on the sense, because the meaning "is invariant". Ours: of the word's first sense, those words for which it
    is the main sense too, so that the reply stays right; as options all words of that sense, or of any sense.
  * # Paper: silent on which synonym, and on inflection. Ours: the first in WordNet, in the form of the word; as options one at
    random, the base form.
  * # Paper: silent on words of several parts of speech, though "the syntax is invariant". Ours: only those enter that the
    tagger, asked for them alone, takes for the word's ("well" is no "good", an "installation" no "installing").
  * # Paper: silent on rare words. Ours: where a corpus is at hand, only words that it says a few times.
  * # Paper: silent on what is a named entity. Ours: what is tagged as a name, what WordNet calls an instance, and the names of
    programs and files; what belongs to a command stays too.
  * # Paper: silent on compounds. Ours: single words alone enter, and none that makes a wrong one of "a" or "an" before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress

import numpy as np

from engine.perturb.draws import uniforms
from engine.perturb.flat import Edits, FlatContexts
from engine.perturb.replies.language import ReplyLanguage
from engine.perturb.replies.resources import RuleResources
from engine.perturb.replies.rule import OnReplies
from engine.perturb.replies.settings import ReplySettings
from envs.candidates.groups import CandidateGroup
from envs.pairs.turns import Utterance

_REPLACED = ("noun", "verb", "adjective", "adverb")


class Synonymous(OnReplies):
    """RSW.

    Args:
        settings: what the paper leaves open.
        language: tags words and knows synonyms.
    """

    name = "rsw"
    attacks = "positives"
    keeps_labels = True

    def __init__(self, settings: ReplySettings, language: ReplyLanguage) -> None:
        self._settings, self._language = settings, language

    def edits(self, groups: Sequence[CandidateGroup], flat: FlatContexts, seeds: Sequence[int]) -> Edits:
        """What is changed, see `OnReplies`."""
        tags = [tag for of_reply in self._language.tag_all(flat.utterances) for tag in of_reply]
        stays = self._language.stays(flat)
        begins = np.zeros(len(flat.words) + 1, dtype=bool)
        begins[flat.edges] = True
        may_go = [place for place in np.flatnonzero(~stays).tolist() if self._may_go(flat.words[place], tags[place])]
        asked = list(dict.fromkeys((flat.words[place], tags[place]) for place in may_go))
        known = dict(zip(asked, self._language.synonyms(asked, self._settings.sense, self._settings.form), strict=True))
        places: list[int] = []
        choices: list[Utterance] = []
        for place in may_go:
            word, before = flat.words[place], "" if begins[place] else flat.words[place - 1]
            found = tuple(other for other in known[word, tags[place]] if self._language.fits(before, word, other))
            if found:
                places.append(place)
                choices.append(found)
        where = np.array(places, dtype=np.int64)
        counts = flat.num_in_contexts(where)
        chosen = uniforms(seeds, f"{self.name} words", counts) < self._settings.synonym_rate
        if self._settings.synonym == "first":
            others = [found[:1] for found in choices]
        else:
            shares = uniforms(seeds, f"{self.name} synonyms", counts).tolist()
            others = [(found[int(share * len(found))],) for found, share in zip(choices, shares, strict=True)]
        return Edits.of_words(where[chosen], list(compress(others, chosen.tolist())))

    def _may_go(self, word: str, tag: str) -> bool:
        return self._language.is_content(word) and self._language.class_of(tag) in _REPLACED


def build(resources: RuleResources) -> Synonymous:
    """RSW as the settings say."""
    return Synonymous(resources.settings, resources.language)
