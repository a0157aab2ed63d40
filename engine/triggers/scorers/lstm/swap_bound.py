"""Which swaps of a list may still be the best, and what the others cost at least.

Every other candidate than the best needs no more than a proof that it is worse. No term of the loss is negative, and each rises
with the nats of its word (`objective.py`), so that bounds of the first words are a bound of the loss: candidates are left out
between words.

The bound is a theorem about real numbers; `ROUNDING` is what float32 may add.

Shapes: B incumbents, G candidates each, n = B G, T words of a target with its end, c contenders, H hidden
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from parley.engine.triggers.methods.objective import TriggerObjective
from parley.engine.triggers.scorers.lstm.half_spaces import HalfSpaces
from parley.engine.triggers.scorers.lstm.input import Lookahead
from parley.engine.triggers.scorers.lstm.seq2seq import Replies
from parley.engine.triggers.scorers.scorer import Incumbent

ROUNDING = 1e-5
"""Nats by which a word's bound may be off in float32: ten times what is seen at the published sizes."""
LEFT = 0.75
"""Candidates are left out between words once no more than this share of them can win."""
TAKEN = 4
"""Contenders of a list measured together, after the first alone."""


class FeasibleSet(NamedTuple):
    """Candidates that may cost less than what is to be beaten."""

    rows_c: Tensor
    """Which they are."""
    least_c: Tensor
    """What they cost at least."""
    states_cTH: Tensor
    """Decoder states that predict the words of the target."""

    @classmethod
    def none(cls, rows_n: Tensor, least_n: Tensor, states: Tensor) -> FeasibleSet:
        """No candidate; of the kinds of the tensors given."""
        return cls(rows_n[:0], least_n[:0], states.new_zeros(0, 0, 0))


def feasible(
    replies: Replies, half_spaces: HalfSpaces, objective: TriggerObjective, rows_n: Tensor, least_n: Tensor, beat_n: Tensor
) -> FeasibleSet:
    """Decodes candidates as far as they may win.

    Args:
        replies: the candidates.
        half_spaces: the bound of their incumbents.
        objective: what is minimised.
        rows_n: what the candidates are called.
        least_n: what their inputs cost at least.
        beat_n: the loss that each must undercut.
    """
    batch, length = half_spaces.targets_BT.shape
    states_tnH: list[Tensor] = []
    for word in range(length):
        states_nH = replies.step()
        bound = half_spaces.bound(word, states_nH.unflatten(0, (batch, -1)), ROUNDING)
        nll_n, likeliest_n = bound.nll.flatten(), bound.likeliest.flatten()
        least_n = least_n + objective.weights(nll_n, likeliest_n) * nll_n / length
        states_tnH.append(states_nH.clone())
        # On a GPU the rows of many incumbents keep their order, and asking how many are left would wait for it.
        if batch > 1:
            continue
        left = torch.nonzero(least_n < beat_n)[:, 0]
        if len(left) <= LEFT * len(least_n):
            rows_n, least_n, beat_n = rows_n[left], least_n[left], beat_n[left]
            states_tnH = [states_nH[left] for states_nH in states_tnH]
            replies.keep(left)
        if not len(left):
            break
    left = torch.nonzero(least_n < beat_n)[:, 0]
    return FeasibleSet(rows_n[left], least_n[left], torch.stack(states_tnH, 1)[left])


@dataclass
class SwapBound:
    """Candidates of one incumbent that may be its best swap.

    Args:
        target_T: the incumbent's target.
        rows: which candidates they are, the most promising first.
        least: what each costs at least.
        states_cTH: decoder states that predict the words of the target.
        lookahead: the same under the language model, where the objective weighs it.
        loss: the best so far; at first what is to be beaten.
        choice: which candidate that is; -1 for none.
        measured: how many are measured.
    """

    target_T: Tensor
    rows: list[int]
    least: list[float]
    states_cTH: Tensor
    lookahead: Lookahead | None
    loss: float
    choice: int
    measured: int = 0

    @classmethod
    def of(
        cls, incumbent: Incumbent, found: FeasibleSet, first: int, lookahead: Lookahead | None, beat: float, stays: list[int]
    ) -> SwapBound:
        """The bound of an incumbent's swaps.

        Args:
            incumbent: where the swaps start from.
            found: its candidates that may win.
            first: the row of its first candidate; in `lookahead` and `found` the rows of a whole group are numbered.
            lookahead: candidates under the language model.
            beat: the loss that must be undercut.
            stays: candidates that are the incumbent itself.
        """
        order_c = found.least_c.argsort(stable=True)
        rows_c = found.rows_c[order_c]
        stay = stays and incumbent.loss < beat
        return cls(
            incumbent.target,
            (rows_c - first).tolist(),
            found.least_c[order_c].tolist(),
            found.states_cTH[order_c],
            None if lookahead is None else lookahead.of(rows_c),
            incumbent.loss if stay else beat,
            stays[0] if stay else -1,
        )

    def next(self) -> Tensor | None:
        """Those to be measured now; None when all others are proved worse."""
        last = self.measured + (TAKEN if self.measured else 1)
        places = [place for place in range(self.measured, min(last, len(self.rows))) if self.least[place] < self.loss]
        return torch.tensor(places, device=self.states_cTH.device) if places else None

    def settle(self, losses: list[float]) -> None:
        """Takes in what those cost."""
        for row, loss in zip(self.rows[self.measured :], losses, strict=False):
            if loss < self.loss or (loss == self.loss and row < self.choice):
                self.choice, self.loss = row, loss
        self.measured += len(losses)
