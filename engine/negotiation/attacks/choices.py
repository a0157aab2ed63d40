"""The target's choices after many candidates, the loss of an attack over them, and its gradient.

Loss (Cheng et al. 2019, eq. 5-7): the target alone chooses, so each legal selection fixes both sides' points. O' are the
selections that pay the adversary more. With kappa 0 the hinge loss is at its floor exactly when the target would choose from
O', with kappa > 0 below zero.
  * # Paper: the lead of o', the original decision, over O'. Ours: that of the likeliest choice outside O', which o' may not be.
  * # Paper: kappa has no figure. Ours: 0, the target's choice alone counts; larger values ask for a margin.
  * # Paper: among candidates whose loss is at the floor nothing is preferred. Ours: the one that pays more.
  * # Released: 5 * gap - advantage of the best favourable selection; it can be negative while the choice is unfavourable.
    Ours: the option "released", with that property.

Gradient: HotFlip (Ebrahimi et al. 2018), over the embeddings of the target's own words. It only proposes candidates.

Screening: a search needs exact scores of the best candidates of each dialogue alone. Where it pays, `Chooser` decides all in
bfloat16 first, which gives each candidate a range for its key, and decides possible winners again in float32. If a result
leaves its range (`policies/negotiator/inference.py`), float32 decides all of them.

Shapes: n dialogues, r candidates, M selections (padded; 38 in Deal or No Deal), T tokens, V words, E embedding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from parley.engine.negotiation.attacks.candidates import RESOLUTION, first_of_groups
from parley.engine.negotiation.attacks.settings import SearchConfig
from parley.envs.negotiation.domain import SELECTION_ID, Domain
from parley.policies.negotiator.inference import MARGIN, Endings, Prefixes, Screening
from parley.policies.negotiator.model import Negotiator
from parley.policies.negotiator.speaker import selection_scores


def word_changes(
    model: Negotiator,
    contexts_n6: np.ndarray,
    tokens_nT: np.ndarray,
    lengths_n: np.ndarray,
    loss_of: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """Return the first-order change of a loss for every word at every position.

    Args:
        model: the target, in evaluation mode.
        contexts_n6: count and own value of each item in turn.
        tokens_nT: whole dialogues in its view, padded.
        lengths_n: number of tokens of each dialogue.
        loss_of: a differentiable loss (n,) of the word logits (n, T - 1, V) and the item logits (n, 6, 18); must depend on
            the latter.

    Returns:
        (n, T, V), 0 for the present words.
    """
    embedded: list[Tensor] = []
    hook = model.word_embedding.register_forward_hook(lambda module, inputs, output: embedded.append(output))
    device = model.word_embedding.weight.device
    tokens = torch.from_numpy(tokens_nT).to(device)
    try:
        with torch.enable_grad():
            words, items = model(torch.from_numpy(contexts_n6).to(device), tokens, torch.from_numpy(lengths_n).to(device))
            gradients = torch.autograd.grad(loss_of(words, items).sum(), embedded)
    finally:
        hook.remove()
    # The model embeds a dialogue once for each of its networks, time first.
    gradient_nTE = torch.stack(gradients).sum(0).transpose(0, 1)
    with torch.no_grad():
        values_nTV = gradient_nTE @ model.word_embedding.weight.t()
        return values_nTV - values_nTV.gather(2, tokens.unsqueeze(2))


Loss = Literal["hinge", "released", "outcome"]
RELEASED_WEIGHT = 5.0
"""Weight of the gap in the released loss."""


@dataclass(frozen=True)
class Values:
    """The points of every legal selection of the target in n dialogues.

    Args:
        adversary: the adversary's points (n, M) int64; 0 for refusals and past the legal ones.
        target: the target's points (n, M) int64.
        legal: mask of the legal selections (n, M).
    """

    adversary: np.ndarray
    target: np.ndarray
    legal: np.ndarray

    @classmethod
    def of(cls, contexts_2n6: np.ndarray, domain: Domain) -> Values:
        """Return the values from the contexts of the adversary (index 0) and the target (index 1)."""
        counts, values = contexts_2n6[0][:, 0::2], contexts_2n6[:, :, 1::2]
        target_items, other = domain.shares(counts)
        target, adversary = (target_items * values[1][:, None]).sum(2), (other * values[0][:, None]).sum(2)
        return cls(adversary, target, domain.legal_selections(counts)[1])

    def rows(self, index: np.ndarray) -> Values:
        """Return the values of some dialogues; an index may repeat."""
        return Values(self.adversary[index], self.target[index], self.legal[index])

    @property
    def advantage(self) -> np.ndarray:
        """Return the adversary's points less the target's (n, M)."""
        return self.adversary - self.target


def losses(scores_rM: Tensor, values: Values, loss: Loss, kappa: float = 0.0) -> Tensor:
    """Return the loss of r candidates from the target's scores of its selections.

    Args:
        scores_rM: sum of the six head logits of each selection, minus infinity past the legal ones.
        values: the points in each candidate's dialogue.
        loss: "hinge" (eq. 6), "released", or "outcome": the adversary's advantage alone, negative, which needs no scores
            but their largest.
        kappa: margin of the hinge, in logits.

    Returns:
        (r,) float32; lower is better for the adversary.
    """
    device = scores_rM.device
    advantage = torch.from_numpy(values.advantage).to(device)
    if loss == "outcome":
        return -advantage.gather(1, scores_rM.argmax(1, keepdim=True)).squeeze(1).to(scores_rM.dtype)
    favourable = advantage > 0
    inside = scores_rM.masked_fill(~favourable, -torch.inf)
    best, where = inside.max(1)
    if loss == "hinge":
        outside = scores_rM.masked_fill(favourable, -torch.inf).amax(1)
        return (outside - best).clamp_min(-kappa)
    gained = advantage.gather(1, where.unsqueeze(1)).squeeze(1)
    return RELEASED_WEIGHT * (scores_rM.amax(1) - best) - gained


def bounds(
    scores_rM: Tensor, values: Values, loss: Loss, kappa: float, doubt_r: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the bounds of the loss and the advantage when scores are only approximate.

    Args:
        scores_rM: as in `losses`, each pair's difference off by no more than the doubt.
        values: as in `losses`.
        loss: as in `losses`.
        kappa: as in `losses`.
        doubt_r: largest error of a difference (r,).

    Returns:
        Least loss, largest loss, least advantage, largest advantage, each (r,).
    """
    advantage = torch.from_numpy(values.advantage).to(scores_rM.device, scores_rM.dtype)
    top, doubt = scores_rM.amax(1), doubt_r.unsqueeze(1)

    def among(near_rM: Tensor) -> tuple[Tensor, Tensor]:
        least = advantage.masked_fill(~near_rM, torch.inf).amin(1)
        return least, advantage.masked_fill(~near_rM, -torch.inf).amax(1)

    low, high = among(scores_rM >= top.unsqueeze(1) - doubt)
    if loss == "outcome":
        return -high, -low, low, high
    favourable = advantage > 0
    inside = scores_rM.masked_fill(~favourable, -torch.inf)
    best = inside.amax(1)
    if loss == "hinge":
        gap = scores_rM.masked_fill(favourable, -torch.inf).amax(1) - best
        return (gap - doubt_r).clamp_min(-kappa), (gap + doubt_r).clamp_min(-kappa), low, high
    least, most = among(inside >= best.unsqueeze(1) - doubt)
    gap = RELEASED_WEIGHT * (top - best)
    slack = RELEASED_WEIGHT * doubt_r
    return (gap - slack).clamp_min(0) - most, gap + slack - least, low, high


def end_gaps(logits_rV: Tensor) -> Tensor:
    """Return the lead of the likeliest other word over `<selection>`; logits of unspeakable words are minus infinity.

    Returns:
        (r,) largest logit of another word less that of `<selection>`; at or below 0 the target would end the talk.
    """
    rivals = torch.maximum(logits_rV[:, :SELECTION_ID].amax(1), logits_rV[:, SELECTION_ID + 1 :].amax(1))
    return rivals - logits_rV[:, SELECTION_ID]


BLOCK = 8192
"""Dialogues evaluated in one go; bounds memory."""
Choices = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Loss, adversary's points, target's points (r,), each a mean over replies."""


@dataclass(frozen=True)
class Queries:
    """Candidates whose choices are requested.

    Args:
        dialogues: the dialogue (r,) of each candidate.
        endings: the ends of the dialogues, a row for each reply (r * replies).
        penalty: added to the loss of each (r,).
        replies: number of replies for each candidate.
    """

    dialogues: np.ndarray
    endings: Endings
    penalty: np.ndarray
    replies: int = 1

    def __len__(self) -> int:
        return len(self.dialogues)

    def parts(self, rows: np.ndarray) -> Iterator[Queries]:
        """Yield some of the candidates in blocks that fit into memory."""
        size = max(1, BLOCK // self.replies)
        for i in range(0, len(rows), size):
            chosen = rows[i : i + size]
            lines = (chosen[:, None] * self.replies + np.arange(self.replies)).ravel()
            yield Queries(self.dialogues[chosen], self.endings[lines], self.penalty[chosen], self.replies)


class Chooser:
    """The target's decision network for candidates in n dialogues.

    Args:
        screening: decides if candidates are first screened in bfloat16.
        prefixes: the dialogues that candidates continue, read by the target.
        contexts: the target's context of each dialogue (n, 6).
        values: the points of its selections in each dialogue.
        config: the loss and its settings.
    """

    def __init__(
        self, screening: Screening, prefixes: Prefixes, contexts: np.ndarray, values: Values, config: SearchConfig
    ) -> None:
        self._screening, self._prefixes, self._contexts = screening, prefixes, contexts
        self._values, self._config = values, config

    def choices(self, queries: Queries, most: int, below: np.ndarray | None) -> Choices:
        """Return the choices of candidates, exact for the `most` of each dialogue with the lowest keys.

        Args:
            queries: the candidates.
            most: number of exact candidates of each dialogue.
            below: codes (n,) from which candidates do not matter; infinite if all matter. Such candidates never look better.
                Without codes only the best one is certain; clear losers have rough figures.
        """
        if not self._screening.pays(len(queries) * queries.replies):
            return self._decided(queries)
        least, largest, low, high, *likely = self._screened(queries)
        lowest, highest = codes_of(least, high), codes_of(largest, low)
        choices = (largest, likely[0], likely[1])
        decided = np.zeros(len(queries), dtype=bool)
        if below is None:
            best = _best(queries.dialogues, highest, 1)
            rivals = _may_enter(queries.dialogues, lowest, highest, best)
            rivals[best] = False
            matters = np.isin(queries.dialogues, queries.dialogues[rivals])
        else:
            # A loss is infinite if no legal choice pays the adversary more.
            matters = (lowest < below[queries.dialogues]) | np.isinf(below[queries.dialogues])
        # The likeliest winners first: their exact codes show which others may still be better, and if the ranges hold.
        rows = _best(queries.dialogues, lowest + highest, most)
        rows = rows if below is not None else rows[matters[rows]]
        while rows.size:
            exact = self._decided(queries, rows)
            codes = codes_of(exact[0], exact[1] - exact[2])
            if ((codes < lowest[rows]) | (codes > highest[rows])).any():
                self._screening.note(len(queries), len(queries), moved_too_far=True)
                return self._decided(queries)
            for column, values in zip(choices, exact, strict=True):
                column[rows] = values
            lowest[rows] = highest[rows] = codes
            decided[rows] = True
            best = _best(queries.dialogues, highest, most)
            needed = _may_enter(queries.dialogues, lowest, highest, best) & (lowest != highest)
            needed[best] = True
            rows = np.flatnonzero(needed & matters & ~decided)
        self._screening.note(len(queries), int(decided.sum()), moved_too_far=False)
        return choices

    def _decided(self, queries: Queries, rows: np.ndarray | None = None) -> Choices:
        loss, adversary, target = _means(queries, np.arange(len(queries)) if rows is None else rows, self._decide)
        return loss, adversary, target

    def _screened(self, queries: Queries) -> list[np.ndarray]:
        """Screen in bfloat16: least and largest loss, least and largest advantage, likely points of adversary and target."""
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
        """Return the scores (r * replies, M) of the selections after each reply, and their values."""
        dialogues = np.repeat(part.dialogues, part.replies)
        if part.replies == 1:
            logits = self._prefixes.decide(part.endings, dtype)
        else:
            # A confident target often gives the same reply.
            distinct, which = part.endings.distinct()
            logits = self._prefixes.decide(part.endings[distinct], dtype)[torch.from_numpy(which)]
        return selection_scores(logits, self._contexts[dialogues], self._prefixes.domain), self._values.rows(dialogues)


def _means(queries: Queries, rows: np.ndarray, network: Callable[[Queries], tuple[np.ndarray, ...]]) -> list[np.ndarray]:
    parts = [[figures.reshape(-1, queries.replies).mean(1) for figures in network(part)] for part in queries.parts(rows)]
    return [np.concatenate(column) for column in zip(*parts, strict=True)]


def _points(scores_rM: Tensor, values: Values) -> tuple[np.ndarray, np.ndarray]:
    row, chosen = np.arange(len(scores_rM)), scores_rM.argmax(1).cpu().numpy()
    return values.adversary[row, chosen], values.target[row, chosen]


def codes_of(loss: np.ndarray, advantage: np.ndarray) -> np.ndarray:
    """Return keys as single numbers that compare alike."""
    return np.round(loss / RESOLUTION) * 100.0 - advantage


def _may_enter(dialogues: np.ndarray, lowest: np.ndarray, highest: np.ndarray, best: np.ndarray) -> np.ndarray:
    """Return a mask (r,) of the rows that may be better than the last of the best of their dialogue.

    The first of equal rows counts, so a later row must be better. Many doubtful rows can at best be equal, because losses
    have a floor and advantages are whole points.
    """
    limit = np.full(int(dialogues.max()) + 1, -np.inf)
    np.maximum.at(limit, dialogues[best], highest[best])
    last = np.full(len(limit), -1)
    at_limit = best[highest[best] == limit[dialogues[best]]]
    np.maximum.at(last, dialogues[at_limit], at_limit)
    before = np.arange(len(dialogues)) < last[dialogues]
    return (lowest < limit[dialogues]) | (before & (lowest == limit[dialogues]))


def _best(dialogues: np.ndarray, codes: np.ndarray, most: int) -> np.ndarray:
    return first_of_groups(np.lexsort((codes, dialogues)), dialogues, most)
