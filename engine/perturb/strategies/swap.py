"""Random Swap: neighbouring words change places.

Source: Niu & Bansal 2018, section 3.1.

- Paper: at most one swap for every four words of an utterance. Ours (rule "paper"): floor(n / `swap_every`) swaps, where n
  counts words and not punctuation marks, and marks stay where they are, because the paper speaks of words.
- Released: floor(m / 3) swaps in each stretch of m words between punctuation marks, where the first and the last token of an
  utterance count as marks and never move. The paper's own examples follow this rule, not its text. Ours (rule "released"): the
  same; an ellipsis is a mark as well, because our tokeniser writes it as one token.
- In both a contraction is one token. Our tokeniser cuts it ("does n't"); here it counts and moves as one word again. Under rule
  "paper" so do an auxiliary and its "not", and a "no" or "without" and its word, because "could resolve not" is read as the
  opposite of what was said; and smileys, commands and their flags stay (`commands.py`), because they are no sentence.

Under both a place is drawn uniformly from those that are left, its word changes places with the next one, and the places whose
words have now moved are left out; so a word moves at most once, and fewer swaps happen where no place is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from string import punctuation

import numpy as np

from parley.engine.perturb.catalogue import Resources
from parley.engine.perturb.strategies.commands import in_commands
from parley.engine.perturb.strategies.draws import uniforms
from parley.engine.perturb.strategies.texts import Edits, FlatContexts, running
from parley.engine.perturb.strategy import ByEdits, Expectation, PerturbSettings, Rule

SMILEYS = frozenset(eyes + nose + mouth for eyes in ":;" for nose in ("", "-") for mouth in "()dp")
"""Those that the tokeniser keeps whole."""
MARKS = frozenset(punctuation) | {"..."}
"""Tokens that are no words."""
AUXILIARIES = frozenset(
    {"am", "is", "are", "was", "were", "do", "does", "did", "has", "have", "had"}
    | {"can", "could", "will", "would", "should", "must", "might", "may"}
)
"""Words that a "not" behind them belongs to."""
_MARK, _SMILEY, _CLITIC, _NOT, _NO, _AUXILIARY = 1, 2, 3, 4, 5, 6
_KINDS = {
    **dict.fromkeys(AUXILIARIES, _AUXILIARY),
    **dict.fromkeys(("n't", "'s", "'m", "'d", "'re", "'ve", "'ll"), _CLITIC),
    **dict.fromkeys(MARKS, _MARK),
    **dict.fromkeys(SMILEYS, _SMILEY),
    "not": _NOT,
    "no": _NO,
    "without": _NO,
}
"""Words that are joined with others, or stay."""
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
        by_paper = self.rule == "paper"
        kinds = np.frombuffer(bytes(map(_KINDS.get, flat.words, repeat(0))), dtype=np.uint8)
        starts = np.flatnonzero(~_glued(kinds, flat, by_paper))
        utterance = np.searchsorted(flat.edges, starts, side="right") - 1
        is_mark = (kinds[starts] == _MARK) | ((kinds[starts] == _SMILEY) & by_paper)
        if by_paper:
            pool, stretch, limits = self._by_paper(is_mark, utterance, len(flat.utterances))
            # A "no" at the beginning is an answer.
            held = running(in_commands(flat) | ((kinds == _NO) & _opens(kinds, flat)))
            stays = np.diff(held[np.append(starts, len(kinds))]) > 0
            free = ~(stays[pool] | stays[pool + 1])
            pool, stretch = pool[free], stretch[free]
        else:
            pool, stretch, limits = self._by_release(is_mark, utterance)
        order = uniforms(seeds, self.name, flat.num_in_contexts(starts[pool]))
        chosen = np.sort(pool[_chosen(pool, stretch, order, limits)])
        starts = np.append(starts, len(kinds))
        return _exchanged(flat.words, zip(*(starts[chosen + i].tolist() for i in range(3)), strict=True))

    def _by_paper(
        self, is_mark: np.ndarray, utterance: np.ndarray, num_utterances: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the words that may swap with the next, the utterance of each, and the number of swaps per utterance."""
        counts = np.bincount(utterance[~is_mark], minlength=num_utterances)
        pool = np.flatnonzero(~is_mark[:-1] & ~is_mark[1:] & (utterance[:-1] == utterance[1:]))
        return pool, utterance[pool], counts // self.every

    def _by_release(self, is_mark: np.ndarray, utterance: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the same as `_by_paper`, for stretches between marks."""
        ends = np.flatnonzero(np.diff(utterance, append=-1))
        fixed = is_mark.copy()
        fixed[ends] = fixed[ends[:-1] + 1] = fixed[:1] = True
        stretch = np.cumsum(fixed)
        pool = np.flatnonzero(~(fixed[:-1] | fixed[1:]))
        counts = np.bincount(stretch[~fixed], minlength=len(fixed) + 1)
        return pool, stretch[pool], counts // RELEASED_EVERY


def build(settings: PerturbSettings, resources: Resources) -> RandomSwap:
    """Build the strategy from the settings."""
    return RandomSwap(settings.rule, settings.swap_every)


def _opens(kinds: np.ndarray, flat: FlatContexts) -> np.ndarray:
    """Mark the tokens at the beginning of an utterance or behind a mark (N,) bool."""
    opens = np.zeros(len(kinds) + 1, dtype=bool)
    opens[1:] = (kinds == _MARK) | (kinds == _SMILEY)
    opens[flat.edges] = True
    return opens[:-1]


def _glued(kinds: np.ndarray, flat: FlatContexts, by_paper: bool) -> np.ndarray:
    """Mark the tokens that are no words of their own, but the ends of the words before them (N,) bool."""
    glued = kinds == _CLITIC
    opens = _opens(kinds, flat)
    if by_paper:
        before = np.concatenate([[_MARK], kinds[:-1]])
        behind_verb = (kinds == _NOT) & ((before == _AUXILIARY) | (before == _CLITIC)) & ~opens
        leads = ((kinds == _NO) & ~opens) | ((kinds == _NOT) & ~behind_verb)
        glued |= behind_verb
        glued[1:] |= leads[:-1]
    return glued & ~opens & (kinds != _MARK) & (kinds != _SMILEY)


def _exchanged(words: Sequence[str], chosen: Iterable[tuple[int, ...]]) -> Edits:
    """Return the edits that swap words with the next ones.

    Args:
        words: the tokens of all utterances.
        chosen: where among them the first and the second word of each swap begin, and where the second ends; ascending.
    """
    edits: list[tuple[int, int, Sequence[str]]] = []
    for first, second, end in chosen:
        if end - first == 2:
            edits.append((first, end, (words[second], words[first])))
        else:
            # `WrittenText` joins the halves of a contraction.
            edits += [(first, first, tuple(words[second:end])), (second, end, ())]
    if not edits:
        return Edits(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), ())
    begins, ends, replacements = zip(*edits, strict=True)
    return Edits(np.array(begins, dtype=np.int64), np.array(ends, dtype=np.int64), replacements)


def _chosen(pool: np.ndarray, stretch: np.ndarray, order: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """Choose the words of the pool that swap: those that sequential draws would take, the first of each stretch.

    To draw uniformly from what is left is to walk through a random order and to take what has no taken neighbour. A place whose
    order is before that of both its neighbours is taken whatever happens elsewhere, so all such are taken at once.
    """
    taken = np.zeros(len(pool), dtype=bool)
    left, positions, key = np.arange(len(pool)), pool, order
    while len(left):
        adjacent = np.diff(positions) == 1
        right_first = adjacent & (key[1:] < key[:-1])
        beaten = np.zeros(len(left), dtype=bool)
        beaten[1:] = adjacent & ~right_first
        beaten[:-1] |= right_first
        taken[left[~beaten]] = True
        stays = beaten.copy()
        stays[1:] &= beaten[:-1] | ~adjacent
        stays[:-1] &= beaten[1:] | ~adjacent
        still = np.flatnonzero(stays)
        left, positions, key = left[still], positions[still], key[still]
    swaps = np.flatnonzero(taken)
    swaps = swaps[order[swaps].argsort()]
    # Stable, so that positions stay in order within their stretch; numpy sorts numbers of 16 bits by their digits.
    swaps = swaps[stretch[swaps].astype(np.min_scalar_type(len(limits))).argsort(kind="stable")]
    groups = stretch[swaps]
    rank = np.arange(len(swaps)) - np.searchsorted(groups, groups)
    return swaps[rank < limits[groups]]
