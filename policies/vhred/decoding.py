"""What VHRED says: greedy replies and beam search, with the latent variable at the prior's mean.

Source: Niu & Bansal 2018 decode greedily, Serban et al. 2017 by beam search.

A reply depends on its own context alone: nothing is drawn, and what stands beside a context in a batch is masked.

Shapes: B contexts, V words.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from envs.pairs.vocabulary import BOS_ID, EOS_ID
from policies.beam import beam_search
from policies.vhred.batches import Context, side_by_side
from policies.vhred.model import VHRED

_ROWS = 256


@torch.no_grad()
def greedy(model: VHRED, contexts: Sequence[Context]) -> list[list[int]]:
    """The likeliest word at every step, for each context.

    Args:
        model: in evaluation mode.
        contexts: word ids of turns, as `context_ids` makes them.

    Returns:
        Word ids of the replies without `</s>`, which ends them; at most `max_reply` - 1 words.
    """
    replies: list[list[int]] = []
    device, longest = model.output.weight.device, model.sizes.max_reply
    for start in range(0, len(contexts), _ROWS):
        memory = model.listen(side_by_side(contexts[start : start + _ROWS]).to(device))
        state = model.begin(memory)
        words_B = torch.full((len(memory.gates_B4H),), BOS_ID, device=device)
        over_B = torch.zeros_like(words_B, dtype=torch.bool)
        said: list[Tensor] = []
        while len(said) < longest - 1 and not bool(over_B.all()):
            logits_BV, state = model.step(memory, words_B, state)
            words_B = logits_BV.argmax(1)
            said.append(words_B)
            over_B |= words_B == EOS_ID
        replies += [_before_end(words) for words in torch.stack(said, dim=1).tolist()]
    return replies


@torch.no_grad()
def beam(model: VHRED, contexts: Sequence[Context], width: int) -> list[list[int]]:
    """The best reply that a beam finds to each context (`policies/beam.py`).

    Args:
        model: in evaluation mode.
        contexts: as in `greedy`.
        width: hypotheses kept for each; 1 is greedy.

    Returns:
        As `greedy`.
    """
    replies: list[list[int]] = []
    rows = max(_ROWS // width, 1)
    for start in range(0, len(contexts), rows):
        block = contexts[start : start + rows]
        memory = model.listen(side_by_side(block).to(model.output.weight.device))
        replies += beam_search(model, memory, len(block), width, model.sizes.max_reply)
    return replies


def _before_end(words: list[int]) -> list[int]:
    return words[: words.index(EOS_ID)] if EOS_ID in words else words
