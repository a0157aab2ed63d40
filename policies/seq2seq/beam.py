"""Beam search for sequence-to-sequence models: sources in blocks through `policies/beam.py`, which has the algorithm."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from policies.beam import beam_search
from policies.seq2seq.decoding import Ids, read
from policies.seq2seq.model import Seq2Seq

_ROWS = 256
"""Hypotheses decoded at once."""


@torch.no_grad()
def beam(model: Seq2Seq, sources: Sequence[Ids], width: int, length_penalty: float = 1.0) -> list[list[int]]:
    """The best reply found to each source.

    Args:
        model: in evaluation mode.
        sources: word ids without specials; cut to the model's length.
        width: hypotheses kept for each source, at least 1, which is greedy decoding.
        length_penalty: exponent of the number of words, `</s>` counted, by which log-probabilities are divided; 0 for none.

    Returns:
        Word ids of the replies without `</s>`; at most `max_reply` - 1 words.
    """
    at_once, longest = max(1, _ROWS // width), model.sizes.max_reply
    blocks = [sources[start : start + at_once] for start in range(0, len(sources), at_once)]
    return [
        reply
        for block in blocks
        for reply in beam_search(model, read(model, block), len(block), width, longest, length_penalty)
    ]
