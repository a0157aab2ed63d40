"""A step of GCG as nanoGCG 0.3 takes it, rebuilt plainly: the reference of `chat_triggers.py`.

The prompt before the searched tokens is read once and its keys and values are laid out for every candidate; then all
candidates go through the model in one batch, from the first searched token to the last of the reply, with logits at every
position, of which those of the reply are copied out and compared with it. The gradient is that of a one-hot input.

    G candidates, N searched tokens, T tokens of the reply, V tokens of the vocabulary
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot


@contextmanager
def plain_layers(model: nn.Module) -> Iterator[None]:
    """Let the model's layers multiply as torch and peft do, which transformers leaves it to, within a block."""
    kinds = {module: type(module) for module in model.modules() if type(module).__module__.startswith("parley.")}
    for module, kind in kinds.items():
        module.__class__ = kind.__base__  # type: ignore[assignment]  # the class that it was read with
    try:
        yield
    finally:
        for module, kind in kinds.items():
            module.__class__ = kind


class PlainGcg:
    """One prompt and one target.

    Args:
        model: a causal Hugging Face model.
        before: the tokens before the searched ones.
        after: those between them and the reply.
        target_T: the reply.
    """

    def __init__(self, model: Any, before: Sequence[int], after: Sequence[int], target_T: Tensor) -> None:
        from transformers import DynamicCache

        self.model, self.target_T = model, target_T
        embed = model.get_input_embeddings()
        self.embedding_VE = embed.weight.detach()
        self.after_1LE = embed(target_T.new_tensor([[*after, *target_T.tolist()]])).detach()
        with torch.no_grad():
            read = model(input_ids=target_T.new_tensor([list(before)]), past_key_values=DynamicCache(), use_cache=True)
        self.prefix = [(layer.keys, layer.values) for layer in read.past_key_values.layers]

    def slopes(self, words_N: Tensor) -> Tensor:
        """Return the gradient (N, V) in the one-hot input."""
        picked_1NV = one_hot(words_N, len(self.embedding_VE)).float()[None].requires_grad_()
        with plain_layers(self.model):
            loss = self._losses(picked_1NV @ self.embedding_VE)
            (slope_1NV,) = torch.autograd.grad(loss.sum(), picked_1NV)
        return slope_1NV[0]

    @torch.no_grad()
    def losses(self, tried_GN: Tensor) -> Tensor:
        """Return the mean nats (G,) of a word of the reply after each candidate."""
        with plain_layers(self.model):
            return self._losses(self.embedding_VE[tried_GN])

    def _losses(self, embedded_GNE: Tensor) -> Tensor:
        from transformers import DynamicCache

        num, reply = len(embedded_GNE), len(self.target_T)
        past = DynamicCache()
        for i, (keys, values) in enumerate(self.prefix):
            past.update(keys.expand(num, -1, -1, -1), values.expand(num, -1, -1, -1), i)
        read_GLE = torch.cat([embedded_GNE, self.after_1LE.expand(num, -1, -1)], dim=1)
        logits_GLV = self.model(inputs_embeds=read_GLE, past_key_values=past, use_cache=True).logits
        said_GTV = logits_GLV[:, -reply - 1 : -1].contiguous()
        nats = cross_entropy(said_GTV.flatten(0, 1), self.target_T.repeat(num), reduction="none")
        return nats.view(num, reply).mean(1)
