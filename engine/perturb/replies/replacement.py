"""RSW: words of the right reply by synonyms (Replace Words by Synonyms).

Source: Li et al. 2019, section 3.2: WordNet from NLTK, neither stop words nor named entities; the reply stays right.

Rule "paper" reads these words as they stand. Each word that is neither a stop word nor tagged as a name becomes a lemma of any
of its senses in WordNet, drawn uniformly, as WordNet has it. That may be nonsense ("i am gladiolus to help"), and the reply is
often right no more, though the paper says that its meaning is "invariant". Rule "careful" keeps the reply right:

  * of the word's first sense, those words for which it is the main sense too, the first of them, in the form of the word;
  * in its part of speech, and only words that the tagger, asked for them alone, takes for that ("well" is no "good");
  * where a corpus is at hand, only words that it says a few times;
  * neither instances of WordNet nor names of programs and files are replaced, nor what belongs to a command;
  * none makes a wrong one of "a" or "an" before it.

Each of these is a setting of its own, too (`ReplySettings`).

  * # Paper: silent on how many words are replaced. Ours: all that have a synonym; as an option a share of them.
  * # Paper: silent on which of several lemmas. Ours: uniformly one of all, without the word itself and its base form.
  * # Paper: silent on compounds. Ours: single words alone enter.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress

import numpy as np

from parley.engine.perturb.replies.language import ReplyLanguage
from parley.engine.perturb.replies.resources import RuleResources
from parley.engine.perturb.replies.rule import OnReplies
from parley.engine.perturb.replies.settings import ReplySettings
from parley.engine.perturb.strategies.draws import uniforms
from parley.engine.perturb.strategies.flat import Edits, FlatContexts
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.ranking.groups import CandidateGroup

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
        self._choice, self._rate, self._language = settings.synonym_choice, settings.synonym_rate, language

    def edits(self, groups: Sequence[CandidateGroup], flat: FlatContexts, seeds: Sequence[int]) -> Edits:
        """What is changed, see `OnReplies`."""
        choice = self._choice
        tags = [tag for of_reply in self._language.tag_all(flat.utterances) for tag in of_reply]
        stays = self._language.stays(flat) if choice.known_names else np.zeros(len(flat.words), dtype=bool)
        begins = np.zeros(len(flat.words) + 1, dtype=bool)
        begins[flat.edges] = True
        may_go = [place for place in np.flatnonzero(~stays).tolist() if self._may_go(flat.words[place], tags[place])]
        asked = list(dict.fromkeys((flat.words[place], tags[place]) for place in may_go))
        known = dict(zip(asked, self._language.synonyms(asked, choice), strict=True))
        places: list[int] = []
        choices: list[Utterance] = []
        for place in may_go:
            word, before = flat.words[place], "" if begins[place] else flat.words[place - 1]
            found = known[word, tags[place]]
            if choice.articles:
                found = tuple(other for other in found if self._language.fits(before, word, other))
            if found:
                places.append(place)
                choices.append(found)
        where = np.array(places, dtype=np.int64)
        counts = flat.num_in_contexts(where)
        chosen = uniforms(seeds, f"{self.name} words", counts) < self._rate
        if choice.synonym == "first":
            others = [found[:1] for found in choices]
        else:
            shares = uniforms(seeds, f"{self.name} synonyms", counts).tolist()
            others = [(found[int(share * len(found))],) for found, share in zip(choices, shares, strict=True)]
        return Edits.of_words(where[chosen], list(compress(others, chosen.tolist())))

    def _may_go(self, word: str, tag: str) -> bool:
        kind = self._language.class_of(tag)
        return self._language.is_content(word) and (kind in _REPLACED if self._choice.same_class else kind != "name")


def build(resources: RuleResources) -> Synonymous:
    """RSW as the settings say."""
    return Synonymous(resources.settings, resources.language)
