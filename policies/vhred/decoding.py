"""What VHRED says: greedy replies and beam search, with the latent variable at the prior's mean.

Source: Niu & Bansal 2018 decode greedily, Serban et al. 2017 by beam search.

A reply depends on its own context alone: nothing is drawn, and what stands beside a context in a batch is masked.
"""

from __future__ import annotations

from collections.abc import Sequence

from parley.policies.core.decoding import beam_search, in_blocks, likeliest, word_by_word
from parley.policies.vhred.batches import Context, side_by_side
from parley.policies.vhred.model import VHRED, VhredMemory


def greedy(model: VHRED, contexts: Sequence[Context]) -> list[list[int]]:
    """The likeliest word at every step, for each context.

    Args:
        model: in evaluation mode.
        contexts: word ids of turns, as `context_ids` makes them.

    Returns:
        Word ids of the replies without `</s>`, which ends them; at most `max_reply` - 1 words.
    """

    def decode(rows: slice) -> list[list[int]]:
        return word_by_word(model, _read(model, contexts[rows]), model.sizes.max_reply, likeliest)

    return in_blocks(len(contexts), decode)


def beam(model: VHRED, contexts: Sequence[Context], width: int, length_penalty: float = 1.0) -> list[list[int]]:
    """The best reply that a beam finds to each context (`policies/core/decoding.py`).

    Args:
        model: in evaluation mode.
        contexts: as in `greedy`.
        width: hypotheses kept for each; 1 is greedy.
        length_penalty: exponent of the number of words, by which log-probabilities are divided.

    Returns:
        As `greedy`.
    """

    def decode(rows: slice) -> list[list[int]]:
        block = contexts[rows]
        return beam_search(model, _read(model, block), len(block), width, model.sizes.max_reply, length_penalty)

    return in_blocks(len(contexts), decode, width)


def _read(model: VHRED, contexts: Sequence[Context]) -> VhredMemory:
    return model.listen(side_by_side(contexts).to(model.output.weight.device))
