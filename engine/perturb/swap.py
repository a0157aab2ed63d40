"""Random Swap: neighbouring words change places.

Source: Niu & Bansal 2018, section 3.1.

- Paper: at most one swap for every four words of an utterance. Ours (rule "paper"): floor(n / `swap_every`) swaps, where n
  counts words and not punctuation marks, and marks stay where they are, because the paper speaks of words.
- Released: floor(m / 3) swaps in each stretch of m words between punctuation marks, where the first and the last token of an
  utterance count as marks and never move. The paper's own examples follow this rule, not its text. Ours (rule "released"): the
  same; an ellipsis is a mark as well, because our tokeniser writes it as one token.

Under both a place is drawn uniformly from those that are left, its word changes places with the next one, and the places whose
words have now moved are left out; so a word moves at most once, and fewer swaps happen where no place is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from string import punctuation

import numpy as np

from engine.perturb.draws import uniforms
from engine.perturb.flat import Edits, FlatContexts
from engine.perturb.resources import Resources
from engine.perturb.settings import PerturbSettings, Rule
from engine.perturb.strategy import ByEdits, Expectation

MARKS = frozenset(punctuation) | {"..."}
"""Tokens that are no words."""
RELEASED_EVERY = 3


class RandomSwap(ByEdits):
    """Neighbouring words change places.

    Args:
        rule: the paper's or the released one.
        every: of the paper's, one swap per so many words.
    """

    name = "random-swap"
    expectation = Expectation.SHOULD_NOT_CHANGE

    def __init__(self, rule: Rule = "paper", every: int = 4) -> None:
        self.rule, self.every = rule, every

    def edits(self, flat: FlatContexts, seeds: Sequence[int]) -> Edits:
        """What is changed, see `ByEdits`."""
        words = flat.words
        pool, stretch, limits = (self._by_paper if self.rule == "paper" else self._by_release)(flat)
        order = uniforms(seeds, self.name, flat.num_in_contexts(pool))
        places = np.sort(pool[_chosen(pool, stretch, order, limits)])
        return Edits(places, places + 2, [(words[place + 1], words[place]) for place in places.tolist()])

    def _by_paper(self, flat: FlatContexts) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Places that may swap with the next one, the utterance of each, and how many swaps each utterance gets."""
        is_word = ~flat.are_in(MARKS)
        utterance = np.repeat(np.arange(len(flat.utterances)), np.diff(flat.edges))
        counts = np.bincount(utterance[is_word], minlength=len(flat.utterances))
        pool = np.flatnonzero(is_word[:-1] & is_word[1:] & (utterance[:-1] == utterance[1:]))
        return pool, utterance[pool], counts // self.every

    def _by_release(self, flat: FlatContexts) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The same for the stretches between marks."""
        fixed = flat.are_in(MARKS)
        starts, ends = flat.edges[:-1], flat.edges[1:]
        has_words = starts < ends
        fixed[starts[has_words]] = fixed[ends[has_words] - 1] = True
        stretch = np.cumsum(fixed)
        pool = np.flatnonzero(~(fixed[:-1] | fixed[1:]))
        counts = np.bincount(stretch[~fixed], minlength=len(fixed) + 1)
        return pool, stretch[pool], counts // RELEASED_EVERY


def build(settings: PerturbSettings, resources: Resources) -> RandomSwap:
    """The strategy as the settings say."""
    return RandomSwap(settings.rule, settings.swap_every)


def _chosen(pool: np.ndarray, stretch: np.ndarray, order: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """Which places of the pool swap: those that drawing without neighbours would give, the first ones of every stretch.

    To draw uniformly from what is left is to walk through a random order and to take what has no taken neighbour. A place whose
    order is before that of both its neighbours is taken whatever happens elsewhere, so all such are taken at once.
    """
    taken = np.zeros(len(pool), dtype=bool)
    left, place, key = np.arange(len(pool)), pool, order
    while len(left):
        adjacent = np.diff(place) == 1
        right_first = adjacent & (key[1:] < key[:-1])
        beaten = np.zeros(len(left), dtype=bool)
        beaten[1:] = adjacent & ~right_first
        beaten[:-1] |= right_first
        taken[left[~beaten]] = True
        stays = beaten.copy()
        stays[1:] &= beaten[:-1] | ~adjacent
        stays[:-1] &= beaten[1:] | ~adjacent
        still = np.flatnonzero(stays)
        left, place, key = left[still], place[still], key[still]
    found = np.flatnonzero(taken)
    found = found[order[found].argsort()]
    # Stable, so that places stay in order within their stretch; numpy sorts numbers of 16 bits by their digits.
    found = found[stretch[found].astype(np.min_scalar_type(len(limits))).argsort(kind="stable")]
    groups = stretch[found]
    rank = np.arange(len(found)) - np.searchsorted(groups, groups)
    return found[rank < limits[groups]]
