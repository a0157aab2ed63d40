"""How far the target is from ending the talk after many candidates, most of them read only as well as it takes to tell.

The hard constraint asks of every candidate whether the target would end the talk, and how far it is from that only where no
candidate of a dialogue makes it. Where the processor multiplies bfloat16 fast, all are read in it first; those near the limit
are read again in float32, and so are those that may be nearest to the end in a dialogue without any that keeps the
constraint. So what a search drops and what it ranks first is what float32 says. A network that bfloat16 is seen to move
nearly as far as is allowed for is read in float32 alone.

Shapes: n dialogues, r candidates, H language state, V words.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from engine.negotiation.candidates import RESOLUTION
from engine.negotiation.choices import BLOCK, SCREENED
from engine.negotiation.objective import end_gaps
from envs.negotiation.vocabulary import SELECTION_ID
from policies.negotiator.prefix import Endings, Prefixes
from policies.negotiator.speaker import NegotiatorAgent

SLACK = 0.016
"""How far off bfloat16 may be in a gap near 0, as a share of the largest distance between `<selection>` and another word in
the output layer. Three times what was seen in the searches of `benchmarks/whitebox.py` ("farthest_gap") on two networks, one
of them reinforced."""
ROUNDED = 2**-6
"""The same for the share of a gap itself: figures and biases in bfloat16 are off by up to 2 ** -9 of their size each."""
TRUSTED = 0.5
"""Of what may be off, the share up to which the gaps that are read again may be seen to be off."""


class EndGaps:
    """Gaps of many endings in logits: that of the likeliest other word less that of `<selection>`, as the target's answer.

    Args:
        target: whose answer it is.
    """

    def __init__(self, target: NegotiatorAgent) -> None:
        self._target, self._temperature = target, target.temperature or 1.0
        selection = target.word_weight_HV[:, [SELECTION_ID]], target.word_bias_V[SELECTION_ID]
        weight_HV, bias_V = target.word_weight_HV - selection[0], target.word_bias_V - selection[1]
        bias_V[SELECTION_ID] = -torch.inf
        self._weight_HV, self._bias_V = weight_HV.bfloat16(), bias_V.bfloat16()
        speakable = torch.isfinite(bias_V)
        self._doubt = SLACK * float(weight_HV.norm(dim=0)[speakable].amax()) * self._temperature

    def logits(self, prefixes: Prefixes, endings: Endings) -> Tensor:
        """Logits (r, V) of the first word of the answer, over the temperature, unspeakable ones at minus infinity."""
        return torch.addmm(self._target.word_bias_V, prefixes.states(endings), self._target.word_weight_HV)

    def exact(self, prefixes: Prefixes, endings: Endings) -> np.ndarray:
        """The gaps (r,)."""
        parts = [end_gaps(self.logits(prefixes, endings[rows])) for rows in _blocks(len(endings))]
        return self._temperature * torch.cat(parts).cpu().numpy().astype(np.float64)

    def rough(self, prefixes: Prefixes, endings: Endings) -> tuple[np.ndarray, np.ndarray]:
        """The gaps (r,) from products in bfloat16, and how far off each may be."""
        parts = []
        for rows in _blocks(len(endings)):
            states_rH = prefixes.rough_states(endings[rows])
            parts.append(torch.addmm(self._bias_V, states_rH.bfloat16(), self._weight_HV).amax(1).float())
        gaps = self._temperature * torch.cat(parts).cpu().numpy().astype(np.float64)
        return gaps, self._doubt + ROUNDED * np.abs(gaps)

    def where_needed(self, prefixes: Prefixes, endings: Endings, dialogues: np.ndarray, limit: float) -> np.ndarray:
        """The gaps (r,), exact where they may decide: near the limit, and lowest of a dialogue where all lie above it.

        Args:
            prefixes: the dialogues that are continued.
            endings: how they go on, up to where the target answers.
            dialogues: the dialogue (r,) that each belongs to.
            limit: the largest gap that keeps the constraint.
        """
        if not self._target.tables.can_screen or len(endings) < SCREENED:
            return self.exact(prefixes, endings)
        gaps, doubt = self.rough(prefixes, endings)
        low, high = gaps - doubt, gaps + doubt
        lowest = np.full(int(dialogues.max()) + 1, np.inf)
        np.minimum.at(lowest, dialogues, high)
        lowest = lowest[dialogues]
        near = np.flatnonzero(np.where(lowest <= limit, (low <= limit) & (high > limit), low <= lowest + RESOLUTION))
        if near.size:
            exact = self.exact(prefixes, endings[near])
            if (np.abs(exact - gaps[near]) > TRUSTED * doubt[near]).any():
                return self.exact(prefixes, endings)
            gaps[near] = exact
        return gaps


def _blocks(count: int) -> list[np.ndarray]:
    return [np.arange(start, min(start + BLOCK, count)) for start in range(0, count, BLOCK)]
