"""Right replies that lose their shape: shuffled (SOW), with words repeated (RLW), without small words (RNPV).

Source: Li et al. 2019, sections 3.3 to 3.5. What comes out is a wrong reply.

    SOW        words in a random order
    RLW_L/2    half as many words as the reply has are drawn; each stands once more
    RLW_1      one word is drawn; it stands half as many times more as the reply has words
    RNPV       nouns, pronouns and verbs alone stay

  * # Paper: silent on marks. Ours: SOW moves them like words, as an option they keep their places; RLW neither repeats nor
    counts them; RNPV leaves them out.
  * # Paper: silent on orders that read as before. Ours: such an order is turned by one word; a reply of equal words stays.
  * # Paper: silent on where repeats stand. Ours: behind the word, as models stutter; as an option anywhere.
  * # Paper: silent on half of an odd number. Ours: rounded down, as an option up; a reply of one word stays.
  * # Paper: silent on modals, and on replies without a noun, pronoun or verb. Ours: modals are verbs, as an option not; such a
    reply stays, because an empty one would be no reply.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from parley.engine.perturb.replies.language import ReplyLanguage, is_word
from parley.engine.perturb.replies.resources import RuleResources
from parley.engine.perturb.replies.rule import OnReplies
from parley.engine.perturb.replies.settings import ReplySettings
from parley.engine.perturb.strategies.draws import uniforms
from parley.engine.perturb.strategies.flat import Edits, FlatContexts, running
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.ranking.groups import CandidateGroup

_KEPT = ("noun", "name", "pronoun", "verb")


class Shuffled(OnReplies):
    """SOW.

    Args:
        settings: what the paper leaves open.
    """

    name = "sow"
    attacks = "positives"
    keeps_labels = False

    def __init__(self, settings: ReplySettings) -> None:
        self._settings = settings

    def edits(self, groups: Sequence[CandidateGroup], flat: FlatContexts, seeds: Sequence[int]) -> Edits:
        """What is changed, see `OnReplies`."""
        moves = np.ones(len(flat.words), dtype=bool) if self._settings.shuffled == "all" else _are_words(flat)
        places = np.flatnonzero(moves)
        drawn = uniforms(seeds, self.name, flat.num_in_contexts(places))
        reply = _reply_of(flat, places)
        taken = places[np.lexsort((drawn, reply))]
        differs = _differs(flat.words, places, taken)
        edges = np.searchsorted(places, flat.edges)
        num_different = np.diff(running(differs)[edges])
        for row in np.flatnonzero((num_different == 0) & (np.diff(edges) > 1)).tolist():
            taken[edges[row] : edges[row + 1]] = np.roll(taken[edges[row] : edges[row + 1]], -1)
        chosen = _differs(flat.words, places, taken)
        return Edits.of_words(places[chosen], [(flat.words[place],) for place in taken[chosen].tolist()])


class Repeated(OnReplies):
    """RLW.

    Args:
        settings: what the paper leaves open.
        one: one word many times (RLW_1), not many words once (RLW_L/2).
    """

    attacks = "positives"
    keeps_labels = False

    def __init__(self, settings: ReplySettings, *, one: bool) -> None:
        self.name = "rlw-1" if one else "rlw-half"
        self._settings, self._one = settings, one

    def edits(self, groups: Sequence[CandidateGroup], flat: FlatContexts, seeds: Sequence[int]) -> Edits:
        """What is changed, see `OnReplies`."""
        places = np.flatnonzero(_are_words(flat))
        reply = _reply_of(flat, places)
        drawn = uniforms(seeds, self.name, flat.num_in_contexts(places))
        num_words = np.bincount(reply, minlength=len(flat.utterances))
        half = (num_words + (self._settings.rounding == "up")) // 2
        # A word alone has nothing to be half of.
        half[num_words < 2] = 0
        order = np.lexsort((drawn, reply))
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order)) - (np.cumsum(num_words) - num_words)[reply]
        chosen = rank < (np.minimum(half, 1) if self._one else half)[reply]
        copied = np.repeat(places[chosen], half[reply[chosen]] if self._one else 1)
        if self._settings.repeated == "behind":
            behind = copied
        else:
            # Behind any word or mark of the reply.
            shares = uniforms(seeds, f"{self.name} places", flat.num_in_contexts(copied))
            row = _reply_of(flat, copied)
            behind = flat.edges[row] + (shares * np.diff(flat.edges)[row]).astype(np.int64)
        return _inserted(flat.words, copied, behind)


class NounsPronounsVerbs(OnReplies):
    """RNPV.

    Args:
        settings: what the paper leaves open.
        language: tags words.
    """

    name = "rnpv"
    attacks = "positives"
    keeps_labels = False

    def __init__(self, settings: ReplySettings, language: ReplyLanguage) -> None:
        self._language = language
        self._kept = frozenset((*_KEPT, "modal") if settings.modals else _KEPT)

    def edits(self, groups: Sequence[CandidateGroup], flat: FlatContexts, seeds: Sequence[int]) -> Edits:
        """What is changed, see `OnReplies`; nothing is drawn."""
        tags = [tag for of_reply in self._language.tag_all(flat.utterances) for tag in of_reply]
        listed = {tag for tag in dict.fromkeys(tags) if self._language.class_of(tag) in self._kept}
        goes = ~(np.array([tag in listed for tag in tags], dtype=bool) & _are_words(flat))
        lengths = np.diff(flat.edges)
        goes &= np.repeat(np.diff(running(goes)[flat.edges]) < lengths, lengths)
        places = np.flatnonzero(goes)
        return Edits.of_words(places, [()] * len(places))


def _are_words(flat: FlatContexts) -> np.ndarray:
    """Which tokens are words (N,) bool."""
    return np.frombuffer(bytearray(map(is_word, flat.words)), dtype=bool)


def _reply_of(flat: FlatContexts, places: np.ndarray) -> np.ndarray:
    """The replies that some words stand in (M,) int64."""
    return np.searchsorted(flat.edges, places, side="right") - 1


def _differs(words: Utterance, places: np.ndarray, taken: np.ndarray) -> np.ndarray:
    """Where another word stands than before (M,) bool."""
    found = [words[place] != words[other] for place, other in zip(places.tolist(), taken.tolist(), strict=True)]
    return np.array(found, dtype=bool)


def _inserted(words: Utterance, copied: np.ndarray, behind: np.ndarray) -> Edits:
    """Edits that put copies of some words behind others."""
    others: dict[int, list[str]] = {}
    for place, where in sorted(zip(copied.tolist(), behind.tolist(), strict=True), key=lambda pair: pair[1]):
        others.setdefault(where, [words[where]]).append(words[place])
    starts = np.fromiter(others, dtype=np.int64, count=len(others))
    return Edits.of_words(starts, [tuple(words) for words in others.values()])


def build_sow(resources: RuleResources) -> Shuffled:
    """SOW as the settings say."""
    return Shuffled(resources.settings)


def build_rlw_half(resources: RuleResources) -> Repeated:
    """RLW_L/2 as the settings say."""
    return Repeated(resources.settings, one=False)


def build_rlw_1(resources: RuleResources) -> Repeated:
    """RLW_1 as the settings say."""
    return Repeated(resources.settings, one=True)


def build_rnpv(resources: RuleResources) -> NounsPronounsVerbs:
    """RNPV as the settings say."""
    return NounsPronounsVerbs(resources.settings, resources.language)
