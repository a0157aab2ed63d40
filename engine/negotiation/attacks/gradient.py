"""Which replacements a gradient promises most of: the first-order change of the loss for every word at every position.

Source: HotFlip (Ebrahimi et al. 2018), over the embeddings of the target's own words. It proposes; the search still asks
the target about each candidate.

Shapes: n dialogues, T tokens, V words, E embedding.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from parley.policies.negotiator.model import Negotiator


def word_changes(
    model: Negotiator,
    contexts_n6: np.ndarray,
    tokens_nT: np.ndarray,
    lengths_n: np.ndarray,
    loss_of: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """First-order change of a loss if a word stood at a place.

    Args:
        model: the target, in evaluation mode.
        contexts_n6: count and own value of each item in turn.
        tokens_nT: whole dialogues in its view, padded.
        lengths_n: how many tokens count.
        loss_of: a differentiable loss (n,) of the word logits (n, T - 1, V) and the item logits (n, 6, 18); must depend on
            the latter.

    Returns:
        (n, T, V), 0 for the words that stand there.
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
