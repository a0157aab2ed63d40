"""What the target chooses after many candidates, most of them decided only as well as it takes to tell the best.

A search wants the candidates with the lowest keys of each dialogue, and these exactly; of the others it wants to know that
they are not among them. Where it pays, all are decided in bfloat16 first. That gives every candidate a range in which its key
lies; who may be among the best is decided again in float32. So the choices of a search are those of float32 as far as ranges
hold, which `policies/negotiator/screening.py` speaks of; a network that is seen to leave them is decided in float32 alone.

Shapes: n dialogues, r candidates, M selections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from parley.engine.negotiation.attacks.candidates import RESOLUTION, first_of_groups
from parley.engine.negotiation.attacks.objective import Values, bounds, losses
from parley.engine.negotiation.attacks.settings import SearchConfig
from parley.policies.negotiator.prefix import Endings, Prefixes
from parley.policies.negotiator.screening import MARGIN, Screening
from parley.policies.negotiator.speaker import selection_scores

BLOCK = 8192
"""Dialogues evaluated in one go; bounds memory."""
Choices = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Loss, adversary's points, target's points (r,), each a mean over replies."""


@dataclass(frozen=True)
class Queries:
    """Candidates whose choices are wanted.

    Args:
        dialogues: the dialogue (r,) that each belongs to.
        endings: how each goes on, every reply a row (r * replies).
        penalty: added to the loss of each (r,).
        replies: replies a candidate.
    """

    dialogues: np.ndarray
    endings: Endings
    penalty: np.ndarray
    replies: int = 1

    def __len__(self) -> int:
        return len(self.dialogues)

    def parts(self, rows: np.ndarray) -> Iterator[Queries]:
        """Some of the candidates, as many at a time as go together."""
        size = max(1, BLOCK // self.replies)
        for i in range(0, len(rows), size):
            chosen = rows[i : i + size]
            lines = (chosen[:, None] * self.replies + np.arange(self.replies)).ravel()
            yield Queries(self.dialogues[chosen], self.endings[lines], self.penalty[chosen], self.replies)


class Chooser:
    """The target's decision network before the candidates of n dialogues.

    Args:
        screening: whether they are decided roughly first.
        prefixes: the dialogues that candidates continue, read by the target.
        contexts: the target's context of each dialogue (n, 6).
        values: what its selections earn in each dialogue.
        config: which loss.
    """

    def __init__(
        self, screening: Screening, prefixes: Prefixes, contexts: np.ndarray, values: Values, config: SearchConfig
    ) -> None:
        self._screening, self._prefixes, self._contexts = screening, prefixes, contexts
        self._values, self._config = values, config

    def choices(self, queries: Queries, most: int, below: np.ndarray | None) -> Choices:
        """The choices of candidates, exact for the `most` of each dialogue with the lowest keys.

        Args:
            queries: the candidates.
            most: how many of each dialogue.
            below: codes (n,) from which on candidates do not matter, infinite where all do; such are never told as better.
                Without them only which one is best is told, with figures that are rough where they leave no doubt.
        """
        if not self._screening.pays(len(queries) * queries.replies):
            return self._decided(queries)
        least, largest, low, high, *likely = self._screened(queries)
        lowest, highest = codes_of(least, high), codes_of(largest, low)
        found = (largest, likely[0], likely[1])
        decided = np.zeros(len(queries), dtype=bool)
        if below is None:
            best = _best(queries.dialogues, highest, 1)
            rivals = _may_enter(queries.dialogues, lowest, highest, best)
            rivals[best] = False
            matters = np.isin(queries.dialogues, queries.dialogues[rivals])
        else:
            # A loss can be infinite too: where nothing the target may choose pays the adversary more.
            matters = (lowest < below[queries.dialogues]) | np.isinf(below[queries.dialogues])
        # The likeliest best first: what they come to says who of the others may still be better, and whether ranges hold.
        rows = _best(queries.dialogues, lowest + highest, most)
        rows = rows if below is not None else rows[matters[rows]]
        while rows.size:
            exact = self._decided(queries, rows)
            codes = codes_of(exact[0], exact[1] - exact[2])
            if ((codes < lowest[rows]) | (codes > highest[rows])).any():
                self._screening.note(len(queries), len(queries), moved_too_far=True)
                return self._decided(queries)
            for column, values in zip(found, exact, strict=True):
                column[rows] = values
            lowest[rows] = highest[rows] = codes
            decided[rows] = True
            best = _best(queries.dialogues, highest, most)
            wanted = _may_enter(queries.dialogues, lowest, highest, best) & (lowest != highest)
            wanted[best] = True
            rows = np.flatnonzero(wanted & matters & ~decided)
        self._screening.note(len(queries), int(decided.sum()), moved_too_far=False)
        return found

    def _decided(self, queries: Queries, rows: np.ndarray | None = None) -> Choices:
        """By float32; of some candidates, or of all."""
        loss, adversary, target = _means(queries, np.arange(len(queries)) if rows is None else rows, self._decide)
        return loss, adversary, target

    def _screened(self, queries: Queries) -> list[np.ndarray]:
        """By bfloat16: least and largest loss, least and largest advantage, adversary's and target's likely points."""
        return _means(queries, np.arange(len(queries)), self._screen)

    def _decide(self, part: Queries) -> tuple[np.ndarray, ...]:
        scores_rM, values = self._scores(part, torch.float32)
        loss = losses(scores_rM, values, self._config.loss, self._config.kappa).cpu().numpy().astype(np.float64)
        return loss + np.repeat(part.penalty, part.replies), *_points(scores_rM, values)

    def _screen(self, part: Queries) -> tuple[np.ndarray, ...]:
        scores_rM, values = self._scores(part, torch.bfloat16)
        worst = scores_rM.masked_fill(scores_rM == -torch.inf, torch.inf).amin(1)
        doubt = MARGIN * (scores_rM.amax(1) - worst)
        limits = bounds(scores_rM, values, self._config.loss, self._config.kappa, doubt)
        least, largest, low, high = (limit.cpu().numpy().astype(np.float64) for limit in limits)
        penalty = np.repeat(part.penalty, part.replies)
        return least + penalty, largest + penalty, low, high, *_points(scores_rM, values)

    def _scores(self, part: Queries, dtype: torch.dtype) -> tuple[Tensor, Values]:
        """Scores (r * replies, M) of the selections after each reply, and what they earn."""
        dialogues = np.repeat(part.dialogues, part.replies)
        if part.replies == 1:
            logits = self._prefixes.decide(part.endings, dtype)
        else:
            # A target that knows what it wants often answers the same.
            distinct, which = part.endings.distinct()
            logits = self._prefixes.decide(part.endings[distinct], dtype)[torch.from_numpy(which)]
        return selection_scores(logits, self._contexts[dialogues], self._prefixes.domain), self._values.rows(dialogues)


def _means(queries: Queries, rows: np.ndarray, network: Callable[[Queries], tuple[np.ndarray, ...]]) -> list[np.ndarray]:
    """What a network says of some candidates, on average over their replies."""
    parts = [[figures.reshape(-1, queries.replies).mean(1) for figures in network(part)] for part in queries.parts(rows)]
    return [np.concatenate(column) for column in zip(*parts, strict=True)]


def _points(scores_rM: Tensor, values: Values) -> tuple[np.ndarray, np.ndarray]:
    row, chosen = np.arange(len(scores_rM)), scores_rM.argmax(1).cpu().numpy()
    return values.adversary[row, chosen], values.target[row, chosen]


def codes_of(loss: np.ndarray, advantage: np.ndarray) -> np.ndarray:
    """Keys as single numbers that compare alike."""
    return np.round(loss / RESOLUTION) * 100.0 - advantage


def _may_enter(dialogues: np.ndarray, lowest: np.ndarray, highest: np.ndarray, best: np.ndarray) -> np.ndarray:
    """Whether each row (r,) may turn out better than the last of the best of its dialogue.

    Of equal ones the first counts, so that a row after it must be better, not as good: where losses are at their floor, and
    advantages whole points, most of what is doubtful is at best as good.
    """
    limit = np.full(int(dialogues.max()) + 1, -np.inf)
    np.maximum.at(limit, dialogues[best], highest[best])
    last = np.full(len(limit), -1)
    at_limit = best[highest[best] == limit[dialogues[best]]]
    np.maximum.at(last, dialogues[at_limit], at_limit)
    before = np.arange(len(dialogues)) < last[dialogues]
    return (lowest < limit[dialogues]) | (before & (lowest == limit[dialogues]))


def _best(dialogues: np.ndarray, codes: np.ndarray, most: int) -> np.ndarray:
    """The rows with the lowest codes of each dialogue, the first of equal ones."""
    return first_of_groups(np.lexsort((codes, dialogues)), dialogues, most)
