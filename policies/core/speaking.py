"""Replies that several contexts hear while they are said: how likely each reply is behind its own context, and behind others'.

Every listener reads the words that its speaker chooses, so that the likelihoods of a reply behind all of its contexts cost one
step of the decoder for each word, and no context is encoded twice. Speakers that have ended leave.

Works for every network of a `TrainableResponder`: it reads contexts by `hear`, and says replies by `begin` and `step`.

Shapes: C speakers, L listeners of each, the speaker's own context first, T places of a reply, R rows, V words.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from parley.envs.corpora.pairs.vocabulary import BOS_ID, EOS_ID, PAD_ID
from parley.policies.core.drawing import drawn

_LEFT = 0.8
"""Share of the speakers at work to which they have fallen when those that have ended leave."""
GREEDY_DRAW = -1.0
"""In the place of a uniform number: the likeliest word is said."""


class Spoken(NamedTuple):
    """Replies, and how likely they are."""

    words_CT: Tensor
    """The ids that were chosen, int64; `</s>` is one of them, unless the limit ended the reply. Padding behind."""
    lengths_C: Tensor
    """How many of them, int64, at least 1."""
    nats_LC: Tensor
    """Negative log-likelihoods of the replies behind each context, float64."""

    @property
    def real_CT(self) -> Tensor:
        """True where a word was chosen."""
        return torch.arange(self.words_CT.shape[1], device=self.words_CT.device) < self.lengths_C.unsqueeze(1)

    @property
    def words_in_CT(self) -> Tensor:
        """What a decoder reads to say them: `<s>`, and each word but the last."""
        return torch.cat([torch.full_like(self.words_CT[:, :1], BOS_ID), self.words_CT[:, :-1]], dim=1)

    def replies(self) -> list[list[int]]:
        """The ids of each reply without the end."""
        rows = zip(self.words_CT.tolist(), self.lengths_C.tolist(), strict=True)
        return [words[: length - 1] if words[length - 1] == EOS_ID else words[:length] for words, length in rows]


@torch.no_grad()
def say(model: Any, memory: tuple[Any, ...], rows_LC: Tensor, draws_CT: Tensor) -> Spoken:
    """Says a reply behind each of some contexts.

    Args:
        model: in evaluation mode.
        memory: contexts that it has heard.
        rows_LC: the contexts of each reply: that to which it is said, then those behind which it is measured as well.
        draws_CT: uniform numbers in [0, 1), float64, that decide the words; `GREEDY_DRAW` for the likeliest. A reply has as
            many words as there are numbers, at most.
    """
    (num_L, num_C), device = rows_LC.shape, rows_LC.device
    words_CT = torch.full(draws_CT.shape, PAD_ID, device=device)
    lengths_C = torch.zeros(num_C, dtype=torch.int64, device=device)
    nats_LC = torch.zeros((num_L, num_C), dtype=torch.float64, device=device)
    live = torch.arange(num_C, device=device)
    open_ = torch.ones(num_C, dtype=torch.bool, device=device)
    heard = chosen_rows(memory, rows_LC.flatten())
    state, said = model.begin(heard), torch.full((num_C,), BOS_ID, device=device)
    for place in range(draws_CT.shape[1]):
        logits_RV, state = model.step(heard, said.repeat(num_L), state)
        logits_LCV = logits_RV.unflatten(0, (num_L, -1))
        draws = draws_CT[live, place]
        said = torch.where(draws < 0, logits_LCV[0].argmax(1), drawn(logits_LCV[0], draws.clamp(min=0)))
        of_said = logits_LCV.gather(2, said.expand(num_L, -1).unsqueeze(2)).squeeze(2)
        nats_LC[:, live] += (logits_LCV.logsumexp(2) - of_said).double() * open_
        words_CT[live, place] = torch.where(open_, said, PAD_ID)
        lengths_C[live] += open_
        open_ &= said != EOS_ID
        num_open = int(open_.sum())
        if not num_open:
            break
        if num_open <= _LEFT * len(live):
            stay = open_.nonzero().squeeze(1)
            rows_R = (torch.arange(num_L, device=device).unsqueeze(1) * len(live) + stay).flatten()
            heard, state = chosen_rows(heard, rows_R), chosen_rows(state, rows_R)
            live, said, open_ = live[stay], said[stay], open_[stay]
    return Spoken(words_CT, lengths_C, nats_LC)


def chosen_rows(parts: Any, rows_R: Tensor) -> Any:
    """Some rows of a named tuple of tensors, or of None."""
    return type(parts)(*(None if part is None else part[rows_R] for part in parts))
