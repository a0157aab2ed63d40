"""How well a negotiator predicts recorded dialogues: perplexities by two stated formulas, and its choices.

Reference formula (released code, batches of 16 dialogues sorted by length and padded to the longest of each):
    exp( sum over batches (targets incl. padding * mean cross-entropy incl. padding) / sum of dialogue lengths )
    so padding counts above the line and not below, and the never-predicted first token counts below.
Per-token formula: exp(mean cross-entropy over predicted tokens, padding left out).
Reference selection perplexity: exp(mean over batches of the weighted mean cross-entropy of the six heads).
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from parley.policies.negotiator.batches import by_length, make_batch
from parley.policies.negotiator.model import UNREWARDED, Negotiator, selection_loss, word_nll

if TYPE_CHECKING:
    from parley.envs.negotiation.corpora.compiled import Split

REFERENCE_BATCH = 16
_GROUPS_PER_PASS = 16


@dataclass(frozen=True)
class NegotiatorFitness:
    """Figures of one model on one split."""

    perplexity_reference: float
    """Word perplexity by the released formula."""
    perplexity: float
    """Word perplexity per predicted token, padding left out."""
    selection_perplexity: float
    """Selection perplexity by the released formula."""
    selection_accuracy: float
    """Share of dialogues that end in an allocation or a refusal to agree whose six heads are all right."""

    @property
    def selection_loss(self) -> float:
        """The published criterion for the best model, in nats."""
        return math.log(self.selection_perplexity)


@torch.no_grad()
def evaluate(model: Negotiator, dialogues: Split) -> NegotiatorFitness:
    """Scores a model on a split; dropout is off while it runs."""
    was_training = model.training
    model.eval()
    device = next(model.parameters()).device
    groups = by_length(dialogues, REFERENCE_BATCH)
    with_padding = words = predicted = 0.0
    selection_losses: list[float] = []
    right = decided = 0
    for start in range(0, len(groups), _GROUPS_PER_PASS):
        members = groups[start : start + _GROUPS_PER_PASS]
        batch = make_batch(dialogues, np.concatenate(members)).to(device)
        logits_BTV, choice_B6K = model(batch.contexts_B6, batch.tokens_BT, batch.lengths_B)
        nll_BT = word_nll(logits_BTV, batch.tokens_BT)
        positions = torch.arange(1, batch.tokens_BT.shape[1], device=device)
        sizes = [len(member) for member in members]
        longest = torch.repeat_interleave(
            torch.stack([part.max() for part in batch.lengths_B.split(sizes)]), torch.tensor(sizes, device=device)
        )
        with_padding += float((nll_BT * (positions < longest.unsqueeze(1))).sum())
        words += float((nll_BT * (positions < batch.lengths_B.unsqueeze(1))).sum())
        predicted += float((batch.lengths_B - 1).sum())
        for choice, output in zip(choice_B6K.split(sizes), batch.outputs_B6.split(sizes), strict=True):
            selection_losses.append(float(selection_loss(choice, output)))
        unrewarded = torch.tensor(UNREWARDED, device=device) + len(model.domain.tokens)
        choosable = ~torch.isin(batch.outputs_B6[:, 0], unrewarded)
        right += int(((choice_B6K.argmax(-1) == batch.outputs_B6).all(1) & choosable).sum())
        decided += int(choosable.sum())
    model.train(was_training)
    return NegotiatorFitness(
        perplexity_reference=_perplexity(with_padding / float(dialogues.lengths.sum())),
        perplexity=_perplexity(words / predicted),
        selection_perplexity=_perplexity(sum(selection_losses) / len(selection_losses)),
        selection_accuracy=right / max(decided, 1),
    )


def _perplexity(nats: float) -> float:
    """exp(nats), infinite where no float holds it: a model that has diverged has more than 709 nats."""
    return math.exp(nats) if not nats > math.log(sys.float_info.max) else math.inf
