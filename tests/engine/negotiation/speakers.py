"""Random networks that lean towards some words, so that dialogues go where a test wants them."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from parley.envs.negotiation.domain import Vocabulary
from parley.policies.negotiator.model import Negotiator
from parley.policies.negotiator.settings import NegotiatorSizes


def leaning(
    vocabulary: Vocabulary, sizes: NegotiatorSizes, seed: int, wishes: Mapping[int, float], spread: float = 1.0
) -> Negotiator:
    """A random network whose logits are higher for some words, whatever was said before.

    Args:
        vocabulary: its words.
        sizes: its sizes.
        seed: of its weights.
        wishes: what is added to the logits, nearly, by word; 0 for the others.
        spread: range of the weights; the larger, the more depends on what was said.
    """
    model = Negotiator(vocabulary, sizes)
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.data.uniform_(-spread, spread, generator=generator)
    # The output embedding is the input embedding: with a decoder bias of ones, a row's sum is what the logit has of its own.
    model.decoder.bias.data.fill_(1.0)
    rows = model.word_embedding.weight.data
    wanted = torch.tensor([wishes.get(i, 0.0) for i in range(len(vocabulary))])
    rows += ((wanted - rows.sum(1)) / rows.shape[1]).unsqueeze(1)
    return model.eval()
