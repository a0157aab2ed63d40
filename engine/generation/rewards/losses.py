"""Losses of the generator: policy gradients, and teacher forcing (Li et al. 2017, equations 2 and 3, and section 3.2).

A loss is a sum over words of (weight) x (nats of the word), divided by a constant, the mean number of words of a batch, as in
supervised training (`policies/core/fitting/fit.py`). So a human reply that weighs 1 is a step of maximum likelihood.

Shapes: B replies, T words.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from parley.engine.generation.rewards.replies import ReplyActions
from parley.engine.generation.rewards.settings import RewardSettings
from parley.envs.corpora.pairs.vocabulary import BOS_ID, PAD_ID
from parley.policies.generation.discriminator.batches import Ids
from parley.policies.seq2seq.batches import Exchanges, Sentences, framed_source
from parley.policies.seq2seq.model import Seq2Seq


def action_batch(generator: Seq2Seq, sources: Sequence[Ids], replies: ReplyActions) -> Exchanges:
    """What the generator reads to say how likely it chose the words of replies.

    Args:
        generator: for its device and lengths.
        sources: words of each context, without marks around them.
        replies: to them.
    """
    device = generator.output.weight.device
    rows = [torch.tensor(framed_source(source, generator.sizes)) for source in sources]
    words_BT = replies.words_BT.masked_fill(~replies.real_BT, PAD_ID).to(device)
    return Exchanges(
        source_BN=pad_sequence(rows, batch_first=True, padding_value=PAD_ID).to(device),
        lengths_B=torch.tensor([len(row) for row in rows], device=device),
        reply=Sentences(torch.cat([torch.full_like(words_BT[:, :1], BOS_ID), words_BT], dim=1)),
    )


def action_nll(generator: Seq2Seq, batch: Exchanges) -> Tensor:
    """Negative log-likelihoods (B, T) of the words in nats, 0 where there is none; gradients flow back."""
    nll_M, real_BT = generator.nll(batch), batch.real_BT
    return nll_M.new_zeros(real_BT.shape).masked_scatter(real_BT, nll_M)


def policy_loss(settings: RewardSettings, nll_BT: Tensor, advantages_BT: Tensor, weights_B: Tensor, num_words: float) -> Tensor:
    """What a policy-gradient step brings down.

    Args:
        settings: how often rewards are divided by the size of the batch.
        nll_BT: of the words that the generator chose.
        advantages_BT: rewards less baselines; no gradient flows through them.
        weights_B: of the replies, 1 on average.
        num_words: words of a batch on average.
    """
    loss = (nll_BT * advantages_BT.detach() * weights_B.unsqueeze(1)).sum() / num_words
    return loss / len(nll_BT) if settings.divide == "twice" else loss


def forcing_loss(nll_BT: Tensor, weights_B: Tensor, num_words: float) -> Tensor:
    """What a step of teacher forcing brings down; the arguments are those of `policy_loss`, for human replies."""
    return (nll_BT * weights_B.unsqueeze(1)).sum() / num_words


def forcing_rewards(settings: RewardSettings, scores_B: Tensor, baselines_B: Tensor) -> Tensor:
    """What human replies weigh in teacher forcing (B,).

    Args:
        settings: "mle": all weigh 1; "rewarded": by the probability that a person wrote them, where it exceeds the baseline.
        scores_B: these probabilities.
        baselines_B: what the generator's replies earn in the same contexts.
    """
    assert settings.teacher_forcing != "none", "nobody is forced"
    if settings.teacher_forcing == "mle":
        return torch.ones_like(scores_B)
    return torch.where(scores_B > baselines_B, scores_B, 0.0)
