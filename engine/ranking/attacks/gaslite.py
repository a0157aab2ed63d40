"""GASLITE: words of an encoder's whole vocabulary behind a reply, found by its gradient; and its two controls.

Source: Ben-Tov & Sharif 2024, "GASLITEing the Retrieval" (arXiv 2412.20953), and the sizes of its released code.

    x <- L random words behind the reply
    repeat until the budget is spent:
        S_LV <- mean of the slopes at x and at G - 1 texts that are x with one random word at one random place
        for each of P random places of x, one after the other:
            list <- the C words of highest S at that place with which the text is still read as one token for each word
            x <- the best of x and of x with a word of the list there, by exact scores

The slopes are taken once for all places of a step; averaged, they say more about texts that are some words away. As elsewhere
they are no queries and are counted beside them, one for each of the G texts; each text of a list is a query.

    Gaslite       as above
    RandomSteps   the same steps from the best text so far, lists drawn at random: what is above it is owed to the gradient
    RandomWords   L fresh random words for each query: what RandomSteps is above it is owed to going on from the best text

# Paper: a passage is found for many queries of users, by the mean of their vectors. Ours: for one context, which is what a
#   reply is scored in; the search ends as soon as the reply is where the goal wants it.
# Released code: L = 100, G = 50, P = 20, C = 128, some 2,500 texts a step. Ours: 10, 10, 5, 10 unless `settings.GasliteSizes`
#   says otherwise, 50 texts a step, for budgets of some hundred queries.
# Released code: x begins as text that a language model wrote. Ours: as random words, so that no second model is needed.
# Released code: half of a list is drawn from the words that follow those of highest slope. Ours: the highest alone.
# Released code: the slopes of a text have length 1 at each place before they are averaged, and places of a step come from left
#   to right. Ours: slopes as they are, in which steep texts weigh more, and places in the order in which they are drawn.
# Released code: 30 steps. Ours: until the budget is spent, or nothing new is left.
# Paper: any token may enter that survives in its text. Ours: tokens that are words by themselves (no pieces of words, no
#   special tokens), for rows, marks and other rankers know replies as words; the whole text is checked, too.
# Released code: a list loses what does not survive. Ours: words that follow take their places, as far as `_LOOKED` lists go.

    L words appended (`Case.edits`), V words of the vocabulary
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

import numpy as np

from parley.engine.ranking.attacks.case import Case
from parley.engine.ranking.attacks.drafts import NEW, Change, Draft
from parley.engine.ranking.attacks.goals import falling
from parley.engine.ranking.attacks.methods import DRAWS, PATIENCE, Asked, Steps
from parley.engine.ranking.attacks.model_access import VOCABULARY, Need
from parley.envs.corpora.pairs.turns import Utterance

_LOOKED = 8
"""Lists' worth of words that are looked at to fill one."""


@dataclass(frozen=True)
class RandomWords:
    """As many random words of the encoder's vocabulary at the same place, all drawn anew each time: the control of both."""

    needs: ClassVar[Need] = VOCABULARY
    appends: ClassVar[bool] = True

    def steps(self, case: Case) -> Steps:
        """See `AttackMethod`."""
        seen, idle = set[Utterance](), 0
        while idle < PATIENCE:
            drafts = [draft for draft in _drawn(case) if draft.words not in seen]
            seen.update(draft.words for draft in drafts)
            idle = 0 if drafts else idle + 1
            yield Asked(drafts)


@dataclass(frozen=True)
class RandomSteps:
    """Appended words, changed one by one for the best of some random ones: `Gaslite` without its gradient, the control.

    Args:
        num_positions: places of a step whose words may change.
        num_candidates: words that are tried at each.
    """

    needs: ClassVar[Need] = VOCABULARY
    appends: ClassVar[bool] = True

    num_positions: int = 5
    num_candidates: int = 10

    def steps(self, case: Case) -> Steps:
        """See `AttackMethod`; it ends before the budget where nothing new is left to ask about."""
        start = next((draft for _ in range(PATIENCE) for draft in _drawn(case)), None)
        if start is None:
            return
        (margin,) = yield Asked([start])
        trigger, seen, idle = _behind(case, start), {start.words}, 0
        while idle < PATIENCE:
            gains_LV, num_seen = self.gains(case, trigger), len(seen)
            places = case.rng.choice(len(trigger), size=min(self.num_positions, len(trigger)), replace=False)
            for place in places.tolist():
                drafts = self._listed(case, trigger, place, gains_LV[place])
                if drafts:
                    margins = yield Asked(drafts)
                    seen.update(draft.words for draft in drafts)
                    best = falling(margins, case.tolerance)[0]
                    if margins[best] > margin + case.tolerance:
                        trigger, margin = _behind(case, drafts[best]), margins[best]
            idle = 0 if len(seen) > num_seen else idle + 1

    def gains(self, case: Case, trigger: Utterance) -> np.ndarray:
        """Which words at each place are tried (L, V): those of the highest numbers, which say nothing here."""
        return case.rng.random((len(trigger), len(case.inside.vocabulary)))

    def _listed(self, case: Case, trigger: Utterance, place: int, gains_V: np.ndarray) -> list[Draft]:
        """Replies with another word at a place of what stands behind them, those of highest gain."""
        vocabulary = case.inside.vocabulary
        order = np.argsort(-gains_V, kind="stable")[: _LOOKED * self.num_candidates].tolist()
        texts = ((*trigger[:place], vocabulary[number], *trigger[place + 1 :]) for number in order)
        read = (words for words in texts if words != trigger and case.inside.reads(case.original.words, words))
        return case.allowed([_appended(case, words) for words in islice(read, self.num_candidates)])


@dataclass(frozen=True)
class Gaslite(RandomSteps):
    """Appended words, changed one by one for those that averaged slopes promise most.

    Args:
        num_positions: places of a step whose words may change.
        num_candidates: words that are tried at each.
        num_gradients: texts that slopes are averaged over in a step.
    """

    num_gradients: int = 10

    def gains(self, case: Case, trigger: Utterance) -> np.ndarray:
        """How much closer each word at each place comes to the goal, to first order, mean over the texts of a step (L, V)."""
        reply, vocabulary = case.original.words, case.inside.vocabulary
        total_LV = np.zeros((len(trigger), len(vocabulary)))
        for number in range(self.num_gradients):
            words = list(trigger)
            if number:
                words[int(case.rng.integers(len(words)))] = vocabulary[int(case.rng.integers(len(vocabulary)))]
            total_LV += case.inside.slopes((*reply, *words), vocabulary)[len(reply) :]
        return total_LV / self.num_gradients


def _drawn(case: Case) -> list[Draft]:
    """Random drafts that the ranker reads as they are meant, all allowed."""
    vocabulary = case.inside.vocabulary
    drawn = case.rng.integers(len(vocabulary), size=(DRAWS, case.edits)).tolist()
    texts = [tuple(vocabulary[number] for number in numbers) for numbers in drawn]
    return case.allowed([_appended(case, words) for words in texts if case.inside.reads(case.original.words, words)])


def _appended(case: Case, words: Utterance) -> Draft:
    # No move edits these words, so that their tags play no part.
    end, size = len(case.original.words), len(words)
    return case.original.after(Change("appended", end, end, words, ("",) * size, (NEW,) * size))


def _behind(case: Case, draft: Draft) -> Utterance:
    return draft.words[len(case.original.words) :]
