"""IIW: words of the context stand in the place of a wrong reply's words (Insert Important Words).

Source: Li et al. 2019, section 3.1, equations (4) and (5); section 4 for training.

    weight(w) = TF(w) log(M / DF(w))

TF counts a word in all contexts, DF the contexts that hold it, M all contexts. The three words of the context with the
highest weights replace three words of the same part of speech in each wrong reply, which stays wrong. In training, words of
the context are drawn at random, one for nine words of the context.

  * # Paper: silent on the contexts that are counted. Ours: those of the training split; as an option the evaluated ones.
  * # Paper: TF "in all contexts". Ours: the same; as an option in the context itself, as TF-IDF is mostly meant.
  * # Paper: silent on stop words and marks; its example inserts "browser", "use" and "stupid". Ours: only words that are
    neither enter and leave; as an option all.
  * # Paper: "the same part of speech". Ours: the same tag, so that number and tense stay; as an option the class of the tag.
    A word of the context may have several tags there; any of them counts.
  * # Paper: silent on words that find no place, and on replies with fewer than three. Ours: the next word by weight takes the
    place, as many as there are; as an option none.
  * # Paper: silent on which word leaves. Ours: the first of its tag behind which no "a" or "an" is wrong then; as an option one
    at random.
  * # Paper: silent on words that the reply has already, and on one word at two places. Ours: neither, for both bring nothing.
  * # Paper: silent on rounding in training. Ours: down, and one at least.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import NamedTuple

import numpy as np

from parley.engine.perturb.replies.language import ReplyLanguage
from parley.engine.perturb.replies.resources import RuleResources
from parley.engine.perturb.replies.rule import OnReplies
from parley.engine.perturb.replies.settings import ReplySettings
from parley.engine.perturb.replies.term_counts import TermCounts
from parley.engine.perturb.strategies.draws import uniforms
from parley.engine.perturb.strategies.flat import Edits, FlatContexts
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.ranking.groups import CandidateGroup, Context

Word = tuple[str, tuple[str, ...]]
"""A word of a context, and the tags that it has there."""
_ROUNDING = 1e-9


class _Slots(NamedTuple):
    """Where words of a reply may be replaced.

    Args:
        words: of the reply.
        present: the same, as a set.
        places: by tag, in the order in which they are taken.
    """

    words: Utterance
    present: frozenset[str]
    places: Mapping[str, Sequence[int]]


class ImportantWords(OnReplies):
    """IIW.

    Args:
        settings: what the paper leaves open.
        language: tags words.
        counts: of the contexts that weights come from; None in training, where words are drawn.
    """

    attacks = "negatives"
    keeps_labels = True

    def __init__(self, settings: ReplySettings, language: ReplyLanguage, counts: TermCounts | None) -> None:
        self.name = "iiw-training" if counts is None else "iiw"
        self._settings, self._language, self._counts = settings, language, counts
        self._weights: dict[str, float] = {}
        self._may_move: Callable[[str], bool] = language.is_content if settings.important == "content" else bool
        self._kind: Callable[[str], str] = str if settings.same_tag == "tag" else cache(self._class_of)

    def edits(self, groups: Sequence[CandidateGroup], flat: FlatContexts, seeds: Sequence[int]) -> Edits:
        """What is changed, see `OnReplies`."""
        tags = self._language.tag_all(flat.utterances)
        shares = None
        if self._settings.occurrence == "random":
            shares = uniforms(seeds, f"{self.name} places", flat.num_words)
        known: dict[Utterance, _Slots] = {}
        places: list[int] = []
        others: list[Utterance] = []
        edges, ends = flat.edges.tolist(), flat.shape_edges.tolist()
        for start, end, (most, ranked) in zip(ends, ends[1:], self._ranked(groups, seeds), strict=False):
            for row in range(start, end):
                words, edge = flat.utterances[row], edges[row]
                if shares is not None:
                    slots = self._slots(words, tags[row], shares[edge : edges[row + 1]])
                else:
                    if words not in known:
                        known[words] = self._slots(words, tags[row])
                    slots = known[words]
                found = self._placed(ranked, slots, most)
                places += [edge + place for place, _ in found]
                others += [(word,) for _, word in found]
        return Edits.of_words(np.array(places, dtype=np.int64), others)

    def _placed(self, ranked: Sequence[Word], slots: _Slots, most: int) -> list[tuple[int, str]]:
        """Which words stand where in a reply, by place."""
        found: dict[int, str] = {}
        of_reply, present = slots.places.keys(), slots.present
        for word, kinds in ranked:
            if word in present or of_reply.isdisjoint(kinds):
                continue
            free = [place for kind in kinds for place in slots.places.get(kind, ()) if place not in found]
            for place in free:
                if self._fits(slots.words, place, word):
                    found[place] = word
                    break
            if len(found) == most:
                break
        return sorted(found.items())

    def _fits(self, words: Utterance, place: int, word: str) -> bool:
        return self._language.fits(words[place - 1] if place else "", words[place], word)

    def _slots(self, words: Utterance, tags: Sequence[str], shares: np.ndarray | None = None) -> _Slots:
        order = range(len(words)) if shares is None else np.argsort(shares).tolist()
        places: dict[str, list[int]] = {}
        for place in order:
            if self._may_move(words[place]):
                places.setdefault(self._kind(tags[place]), []).append(place)
        return _Slots(words, frozenset(words), places)

    def _ranked(self, groups: Sequence[CandidateGroup], seeds: Sequence[int]) -> Iterator[tuple[int, list[Word]]]:
        """Of each context how many words enter at most, and the words, the first to enter first."""
        tags = iter(self._language.tag_all([turn for group in groups for turn in group.context]))
        contexts = [self._words(group.context, tags) for group in groups]
        if self._counts is None:
            drawn = uniforms(seeds, self.name, [len(words) for words in contexts])
            start = 0
            for group, words in zip(groups, contexts, strict=True):
                order = np.argsort(drawn[start : start + len(words)], kind="stable").tolist()
                start += len(words)
                length = sum(map(len, group.context))
                most = max(1, int(length * self._settings.context_share + _ROUNDING))
                yield most, self._first([words[place] for place in order], most)
            return
        most = self._settings.num_important
        for group, words in zip(groups, contexts, strict=True):
            weight = self._weight_in(group.context, self._counts)
            yield most, self._first(sorted(words, key=lambda word: -weight(word[0])), most)

    def _first(self, words: list[Word], most: int) -> list[Word]:
        return words[:most] if self._settings.unmatched == "skip" else words

    def _words(self, context: Context, tags: Iterator[Sequence[str]]) -> list[Word]:
        """The words of a context that may enter, in the order in which they first occur there, with their tags."""
        found: dict[str, dict[str, None]] = {}
        may_move, kind = self._may_move, self._kind
        for turn in context:
            for word, tag in zip(turn, next(tags), strict=True):
                if may_move(word):
                    found.setdefault(word, {})[kind(tag)] = None
        return [(word, tuple(kinds)) for word, kinds in found.items()]

    def _weight_in(self, context: Context, counts: TermCounts) -> Callable[[str], float]:
        """What gives a word of a context its weight, equation (5)."""
        if self._settings.frequency == "context":
            here = Counter(chain.from_iterable(context))
            return lambda word: here[word] * counts.idf(word)
        known = self._weights

        def weight(word: str) -> float:
            if word not in known:
                known[word] = counts.term[word] * counts.idf(word)
            return known[word]

        return weight

    def _class_of(self, tag: str) -> str:
        """What words of a class share; a name is a noun here."""
        found = self._language.class_of(tag)
        return tag if found == "other" else "noun" if found == "name" else found


def build(resources: RuleResources) -> ImportantWords:
    """IIW as the settings say.

    Raises:
        ConfigError: the contexts of the weights are not at hand.
    """
    return ImportantWords(resources.settings, resources.language, resources.counts)


def build_training(resources: RuleResources) -> ImportantWords:
    """IIW for training, with drawn words."""
    return ImportantWords(resources.settings, resources.language, None)
