"""Replies as sequences of actions: the words that a generator chose, and where it had no choice.

`</s>` is an action like any word. A reply that reaches the limit of words is ended by the limit: `</s>` stands behind it too,
because the discriminator reads whole replies with it, but the generator did not choose it, and it earns nothing.

Shapes: B replies, T words of the longest, `</s>` counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from parley.envs.corpora.pairs.vocabulary import EOS_ID, PAD_ID
from parley.policies.core.fitting.predictor import real_positions
from parley.policies.generation.discriminator.batches import Ids


class ReplyActions(NamedTuple):
    """Replies side by side."""

    words_BT: Tensor
    """int64, `</s>` behind each reply and padding behind that."""
    lengths_B: Tensor
    """Words of each, `</s>` counted, int64."""
    is_cut_B: Tensor
    """Whether the limit ended the reply."""

    @property
    def num_actions_B(self) -> Tensor:
        """Words that the generator chose, at least 1."""
        return self.lengths_B - self.is_cut_B.long()

    @property
    def real_BT(self) -> Tensor:
        """True at words that the generator chose."""
        return real_positions(self.num_actions_B, self.words_BT.shape[1])

    def at_end(self, values_BT: Tensor) -> Tensor:
        """The values (B,) at each reply's last action."""
        return values_BT.gather(1, (self.num_actions_B - 1).unsqueeze(1)).squeeze(1)

    def to(self, device: torch.device) -> ReplyActions:
        """The same on a device."""
        return ReplyActions(*(part.to(device) for part in self))


def reply_actions(replies: Sequence[Ids], max_words: int) -> ReplyActions:
    """Replies that a generator said.

    Args:
        replies: words of each, without `</s>`.
        max_words: the limit, at least 1; a reply of so many words is one that it ended, a longer one is cut.
    """
    rows = [torch.tensor([*map(int, reply[:max_words]), EOS_ID]) for reply in replies]
    is_cut_B = torch.tensor([len(reply) >= max_words for reply in replies])
    words_BT = pad_sequence(rows, batch_first=True, padding_value=PAD_ID)
    return ReplyActions(words_BT, torch.tensor([len(row) for row in rows]), is_cut_B)
