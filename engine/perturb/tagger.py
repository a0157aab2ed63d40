"""NLTK's averaged perceptron tagger, evaluated in integers.

Source: NLTK's `averaged_perceptron_tagger_eng`, the tagger of Niu & Bansal's (2018) released code. The tags are those of
`nltk.pos_tag`, word for word; only the arithmetic differs:

  * weights are thousandths, so that integers hold them exactly; where two tags tie, NLTK's order of adding floats decides, and
    NLTK is asked itself;
  * what a word adds to the scores of its own tag and of its neighbours' is looked up once a word, and what two tags or a tag
    and a word add once a pair, not assembled from strings once a position;
  * utterances are tagged side by side, so that a position of all of them is one pass of numpy.

Not here: which data it needs and where they lie (`nltk_lexicon.py`).

Shapes: B utterances, L their padded length, F words known so far, T tags in falling order (so that the first of equal scores
is the one NLTK prefers), U tags and the two that stand before an utterance, W weights, J pairs of a tag and a word, R roles.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

_SCALE = 1000
"""The published weights are rounded to three decimals."""
_SIDE_BY_SIDE = 512
"""Utterances tagged at once: as many as keep what is read of the tables near the processor."""
_ROOM = 1 << 12
"""Words that the tables begin with room for."""
_UNKNOWN = -1
_ROLES = range(2, -3, -1)
"""Whose tag a word speaks for: that of the word two after it, ..., of itself, ..., of the word two before it."""


class Tagger:
    """The tags of `nltk.pos_tag`, sooner.

    Args:
        perceptron: an `nltk.tag.PerceptronTagger` with weights of at most three decimals.
    """

    def __init__(self, perceptron: Any) -> None:
        self._perceptron = perceptron
        self._tags: list[str] = sorted(perceptron.classes, reverse=True)
        self._place = {tag: place for place, tag in enumerate(self._tags)}
        weights: dict[str, dict[str, float]] = perceptron.model.weights
        ends = accumulate(map(len, weights.values()))
        self._spans = {feature: slice(end - len(weights[feature]), end) for feature, end in zip(weights, ends, strict=True)}
        self._places_W = np.array([self._place[tag] for said in weights.values() for tag in said])
        self._steps_W = np.rint(np.array([weight for said in weights.values() for weight in said.values()]) * _SCALE).astype(
            np.int32
        )
        self._zero_T = np.zeros(len(self._tags), dtype=np.int32)
        self._ids: dict[str, int] = {}
        self._roles_RFT = np.zeros((len(_ROLES), _ROOM, len(self._tags)), dtype=np.int32)
        self._certain_F = np.full(_ROOM, _UNKNOWN)
        # What comes before an utterance has tags of its own, behind the others.
        self._names = [*self._tags, *perceptron.START]
        num = len(self._names)
        self._before_UUT = np.zeros((num, num, len(self._tags)), dtype=np.int32)
        self._is_known_UU = np.zeros((num, num), dtype=bool)
        # Most pairs of a tag and a word say nothing, which is the first row.
        self._after_JT = np.zeros((_ROOM, len(self._tags)), dtype=np.int32)
        self._num_after = 1
        self._after_row_UF = np.full((num, _ROOM), _UNKNOWN)
        self._words: list[str] = []
        self._starts = [self._add(mark, mark) for mark in perceptron.START]
        self._ends = [self._add(mark, mark) for mark in perceptron.END]

    def tag(self, utterances: Sequence[Sequence[str]]) -> list[list[str]]:
        """Penn Treebank tags.

        Args:
            utterances: words; many at once are much sooner tagged than one by one.
        """
        order = sorted(range(len(utterances)), key=lambda row: -len(utterances[row]))
        found: list[list[str]] = [[]] * len(order)
        for start in range(0, len(order), _SIDE_BY_SIDE):
            rows = order[start : start + _SIDE_BY_SIDE]
            for row, tags in zip(rows, self._side_by_side([utterances[row] for row in rows]), strict=True):
                found[row] = tags
        return found

    def _side_by_side(self, utterances: Sequence[Sequence[str]]) -> list[list[str]]:
        """The tags of some utterances, the longest first: all first words, then all second ones."""
        lengths = np.array([len(words) for words in utterances])
        longest = int(lengths[0])
        ids_BL = np.zeros((len(utterances), longest + len(_ROLES) - 1), dtype=np.int64)
        for ids_L, words in zip(ids_BL, utterances, strict=True):
            ids_L[: len(words) + len(_ROLES) - 1] = [*self._starts, *map(self._id, words), *self._ends]
        tags_BL = np.empty_like(ids_BL)
        first = len(self._tags)
        tags_BL[:, 0], tags_BL[:, 1] = first + 1, first
        tied_B = np.zeros(len(utterances), dtype=bool)
        for place in range(longest):
            num = int(np.count_nonzero(lengths > place))
            certain_B = self._certain_F[ids_BL[:num, place + 2]]
            tags_BL[:num, place + 2] = certain_B
            rows = np.flatnonzero(certain_B == _UNKNOWN)
            if not len(rows):
                continue
            score_BT = self._roles_RFT[0].take(ids_BL[rows, place], axis=0)
            for role in range(1, len(_ROLES)):
                score_BT += self._roles_RFT[role].take(ids_BL[rows, place + role], axis=0)
            tag_1_B, tag_2_B = tags_BL[rows, place + 1], tags_BL[rows, place]
            score_BT += self._before(tag_1_B, tag_2_B)
            score_BT += self._after(tag_1_B, ids_BL[rows, place + 2])
            best_B = score_BT.argmax(axis=1)
            tags_BL[rows, place + 2] = best_B
            top_B = score_BT[np.arange(len(rows)), best_B]
            tied_B[rows] |= np.count_nonzero(score_BT == top_B[:, None], axis=1) > 1
        names = self._names
        return [
            [tag for _, tag in self._perceptron.tag(words)] if tied else [names[tag] for tag in tags[2 : 2 + len(words)]]
            for words, tied, tags in zip(utterances, tied_B.tolist(), tags_BL.tolist(), strict=True)
        ]

    def _id(self, word: str) -> int:
        row = self._ids.get(word)
        return self._add(word, self._perceptron.normalize(word)) if row is None else row

    def _add(self, word: str, normal: str) -> int:
        """The row of a word that is new; marks of the two ends share the table but are nobody's word."""
        row = len(self._ids)
        self._ids[word] = row
        self._words.append(normal)
        if row == self._roles_RFT.shape[1]:
            self._roles_RFT = np.concatenate([self._roles_RFT, np.zeros_like(self._roles_RFT)], axis=1)
            self._certain_F = np.concatenate([self._certain_F, np.full_like(self._certain_F, _UNKNOWN)])
            self._after_row_UF = np.concatenate([self._after_row_UF, np.full_like(self._after_row_UF, _UNKNOWN)], axis=1)
        if word in self._perceptron.tagdict:
            self._certain_F[row] = self._place[self._perceptron.tagdict[word]]
        features = {
            2: (f"i-2 word {normal}",),
            1: (f"i-1 word {normal}", f"i-1 suffix {normal[-3:]}"),
            0: ("bias", f"i suffix {word[-3:]}", f"i pref1 {word[:1]}", f"i word {normal}"),
            -1: (f"i+1 word {normal}", f"i+1 suffix {normal[-3:]}"),
            -2: (f"i+2 word {normal}",),
        }
        for number, role in enumerate(_ROLES):
            self._roles_RFT[number, row] = self._sum(*features[role])
        return row

    def _before(self, tag_1_B: np.ndarray, tag_2_B: np.ndarray) -> np.ndarray:
        """What the two tags before say (B, T)."""
        is_new_B = ~self._is_known_UU[tag_1_B, tag_2_B]
        for one, two in {*zip(tag_1_B[is_new_B].tolist(), tag_2_B[is_new_B].tolist(), strict=True)}:
            tag_1, tag_2 = self._names[one], self._names[two]
            self._before_UUT[one, two] = self._sum(f"i-1 tag {tag_1}", f"i-2 tag {tag_2}", f"i tag+i-2 tag {tag_1} {tag_2}")
            self._is_known_UU[one, two] = True
        return self._before_UUT[tag_1_B, tag_2_B]

    def _after(self, tag_1_B: np.ndarray, ids_B: np.ndarray) -> np.ndarray:
        """What the tag before and the word say together (B, T)."""
        rows_B = self._after_row_UF[tag_1_B, ids_B]
        is_new_B = rows_B == _UNKNOWN
        if is_new_B.any():
            for one, word in {*zip(tag_1_B[is_new_B].tolist(), ids_B[is_new_B].tolist(), strict=True)}:
                feature = f"i-1 tag+i word {self._names[one]} {self._words[word]}"
                self._after_row_UF[one, word] = self._add_after(feature) if feature in self._spans else 0
            rows_B = self._after_row_UF[tag_1_B, ids_B]
        return self._after_JT.take(rows_B, axis=0)

    def _add_after(self, feature: str) -> int:
        row = self._num_after
        if row == len(self._after_JT):
            self._after_JT = np.concatenate([self._after_JT, np.zeros_like(self._after_JT)])
        self._after_JT[row] = self._sum(feature)
        self._num_after += 1
        return row

    def _sum(self, *features: str) -> np.ndarray:
        total_T = self._zero_T.copy()
        for span in map(self._spans.get, features):
            if span is not None:
                total_T[self._places_W[span]] += self._steps_W[span]
        return total_T
