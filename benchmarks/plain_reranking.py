"""The plain way to a step of Reranking-RL, as the code released with Niu & Bansal 2018 has it: everything is scored apart.

Contexts are read once to sample, once to make the sample more likely, and once more for each rotation of the batch; every row
goes on to the longest length. Torch's own layers read the weights of our model. Random numbers are ours.

Shapes: B contexts, T words of a reply, K rotations.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from parley.envs.corpora.pairs.vocabulary import BOS_ID, EOS_ID
from parley.policies.core.fitting.batches import real_positions
from parley.policies.seq2seq.model import Exchanges, Memory, Seq2Seq


def plain_reward_loss(model: Seq2Seq, batch: Exchanges, draws_BT: Tensor, rows_KB: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sum over replies of R x NLL(G | S), R the mean of -log P(G | S_R) over rotations, and the words (B, T).

    Args:
        model: of torch's own layers, in evaluation mode.
        batch: the contexts.
        draws_BT: uniform numbers that decide the words.
        rows_KB: the other contexts of each reply.
    """
    words_BT = plain_sample(model, batch, draws_BT)
    with torch.no_grad():
        nlls = [plain_nll(model, batch.source_BN[rows_B], batch.lengths_B[rows_B], words_BT) for rows_B in rows_KB]
    rewards_B = torch.stack(nlls).mean(0)
    return (rewards_B * plain_nll(model, batch.source_BN, batch.lengths_B, words_BT)).sum(), words_BT


@torch.no_grad()
def plain_sample(model: Seq2Seq, batch: Exchanges, draws_BT: Tensor) -> Tensor:
    """Draw words (B, T) to the longest length, past the ends of replies."""
    memory = _read(model, batch.source_BN, batch.lengths_B)
    state, words_B = model.begin(memory), torch.full_like(batch.lengths_B, BOS_ID)
    words: list[Tensor] = []
    for draws_B in draws_BT.t():
        logits_BV, state = model.step(memory, words_B, state)
        passed_BV = logits_BV.softmax(1).cumsum(1, dtype=torch.float64)
        words_B = torch.searchsorted(passed_BV, draws_B.unsqueeze(1) * passed_BV[:, -1:], right=True).squeeze(1)
        words.append(words_B)
    return torch.stack(words, dim=1)


def plain_nll(model: Seq2Seq, source_BN: Tensor, lengths_B: Tensor, words_BT: Tensor) -> Tensor:
    """Return the nats of replies (B,) up to the first `</s>`, after reading their contexts."""
    memory = _read(model, source_BN, lengths_B)
    state, words_B = model.begin(memory), torch.full_like(lengths_B, BOS_ID)
    going_B, nats = torch.ones_like(words_B, dtype=torch.bool), []
    for next_B in words_BT.t():
        logits_BV, state = model.step(memory, words_B, state)
        nats.append(F.cross_entropy(logits_BV, next_B, reduction="none") * going_B)
        going_B, words_B = going_B & (next_B != EOS_ID), next_B
    return torch.stack(nats).sum(0)


def _read(model: Seq2Seq, source_BN: Tensor, lengths_B: Tensor) -> Memory:
    states_BNH, _ = nn.LSTM.forward(model.encoder, model.source_embedding(source_BN))
    mask_BN = real_positions(lengths_B, source_BN.shape[1])
    return model.remember(states_BNH * mask_BN.unsqueeze(2), mask_BN)


def ended(words_BT: Tensor) -> Sequence[list[int]]:
    """Return the words of each reply before `</s>`."""
    return [words[: words.index(EOS_ID)] if EOS_ID in words else words for words in words_BT.tolist()]
