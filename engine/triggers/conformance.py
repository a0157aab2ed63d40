"""What models under search promise (`scorer.Victim`)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from engine.triggers.scorer import Victim
from envs.core.conformance import Kind, expect

_ROWS, _REPLY = 3, 4
_TOLERANCE = 1e-4


def _make(named: Any) -> Victim:
    victim: Victim = named() if isinstance(named, type) or (callable(named) and not hasattr(named, "reply_logits")) else named
    return victim


def _inputs(victim: Victim) -> tuple[Tensor, Tensor]:
    """Some inputs as embeddings (B, N, E), and replies (B, T) int64."""
    generator = torch.Generator().manual_seed(1)
    words_S = victim.searchable_V.nonzero()[:, 0].cpu()
    drawn_BN = words_S[torch.randint(len(words_S), (_ROWS, victim.input_length), generator=generator)]
    replies_BT = words_S[torch.randint(len(words_S), (_ROWS, _REPLY), generator=generator)]
    device = victim.embedding_VE.device
    return victim.embedding_VE[drawn_BN.to(device)].detach(), replies_BT.to(device)


def _has_words_to_search(victim: Victim) -> None:
    """Has embeddings (V, E), says which words may be searched (V) and how many an input holds."""
    shape = tuple(victim.embedding_VE.shape)
    expect(len(shape) == 2 and victim.embedding_VE.is_floating_point(), "embedding_VE of floats (V, E)", shape)
    allowed = victim.searchable_V
    right = allowed.dtype == torch.bool and tuple(allowed.shape) == shape[:1]
    expect(right, f"searchable_V of bools ({shape[0]},)", f"{allowed.dtype} {tuple(allowed.shape)}")
    expect(bool(allowed.any()), "a word that may be searched", "none")
    expect(victim.input_length >= 1, "input_length of at least 1", victim.input_length)


def _gives_logits(victim: Victim) -> None:
    """Gives finite logits (B, T, V) of each word of the replies."""
    embedded_BNE, replies_BT = _inputs(victim)
    logits_BTV = victim.reply_logits(embedded_BNE, replies_BT)
    wanted = (_ROWS, _REPLY, len(victim.embedding_VE))
    expect(tuple(logits_BTV.shape) == wanted, f"a tensor {wanted}", tuple(logits_BTV.shape))
    expect(bool(logits_BTV.isfinite().all()), "finite numbers", "NaN or infinity")


def _looks_at_earlier_words_alone(victim: Victim) -> None:
    """Predicts a word of a reply from the words before it alone."""
    embedded_BNE, replies_BT = _inputs(victim)
    others_BT = replies_BT.clone()
    others_BT[:, -1] = replies_BT.roll(1, 0)[:, -1]
    logits, others = victim.reply_logits(embedded_BNE, replies_BT), victim.reply_logits(embedded_BNE, others_BT)
    difference = float((logits - others).abs().max())
    expect(difference <= _TOLERANCE, "the same logits when the last word is another", f"a difference of {difference:.2g}")


def _is_the_same_alone(victim: Victim) -> None:
    """Gives an input the same logits whatever else is in the batch."""
    embedded_BNE, replies_BT = _inputs(victim)
    together = victim.reply_logits(embedded_BNE, replies_BT)
    alone = torch.cat([victim.reply_logits(embedded_BNE[row : row + 1], replies_BT[row : row + 1]) for row in range(_ROWS)])
    difference = float((together - alone).abs().max())
    expect(difference <= _TOLERANCE, "the same logits alone", f"a difference of {difference:.2g}")


def _can_be_differentiated(victim: Victim) -> None:
    """Lets gradients flow back into the embeddings."""
    embedded_BNE, replies_BT = _inputs(victim)
    embedded_BNE.requires_grad_()
    logits_BTV = victim.reply_logits(embedded_BNE, replies_BT)
    expect(logits_BTV.requires_grad, "logits with a gradient", "logits cut off from the embeddings")
    (slope_BNE,) = torch.autograd.grad(logits_BTV.logsumexp(-1).sum(), embedded_BNE)
    expect(bool(slope_BNE.isfinite().all()) and bool(slope_BNE.any()), "a finite gradient that is not 0", "0, NaN or infinity")


VICTIM = Kind(
    "model under trigger search",
    "engine.triggers.scorer.Victim",
    ("reply_logits", "searchable_V", "embedding_VE", "input_length"),
    _make,
    (_has_words_to_search, _gives_logits, _looks_at_earlier_words_alone, _is_the_same_alone, _can_be_differentiated),
)
