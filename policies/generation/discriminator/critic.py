"""Critics: what reward is expected in a context, before a word is said there or after some (Li et al. 2017, footnote 3).

Departures:
  * # Released: one linear layer on the last state of the generator's encoder, zero at first. Ours: the paper's network of its
    own, and the released one as `LinearCritic`.

Shapes: as in `reader.py`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from parley.envs.corpora.pairs.vocabulary import PairVocabulary
from parley.policies.core.fitting.predictor import draw_weights
from parley.policies.generation.discriminator.batches import ContextBatch
from parley.policies.generation.discriminator.reader import ContextMemory, DialogueReader
from parley.policies.generation.discriminator.settings import DiscriminatorSizes


class Critic(nn.Module):
    """Reads dialogues as a discriminator does, with weights of its own.

    Args:
        vocabulary: the words that it knows.
        sizes: widths of its layers.
    """

    def __init__(self, vocabulary: PairVocabulary, sizes: DiscriminatorSizes) -> None:
        super().__init__()
        self.vocabulary, self.sizes = vocabulary, sizes
        self.reader = DialogueReader(len(vocabulary), sizes)
        self.output = nn.Linear(self.reader.width, 1)

    def initialise(self, generator: torch.Generator) -> None:
        """Draws initial weights as those of a discriminator."""
        draw_weights(self, self.output.in_features, generator)

    def prefixes(self, contexts: ContextBatch, words_BT: Tensor, lengths_B: Tensor) -> Tensor:
        """The reward that is expected after no word of a reply, after one, and so on.

        Args:
            contexts: one for each reply.
            words_BT: int64, padded on the right.
            lengths_B: words of each reply that count, at least one, int64.

        Returns:
            (B, T + 1): at t after t words; at 0 it depends on the context alone; 0 behind the reply.
        """
        memory = self.reader.read(contexts)
        places, states_NH = self.reader.states(words_BT, lengths_B)
        rows_B = torch.arange(len(words_BT), device=words_BT.device)
        before = self._values(memory, self.reader.begin(memory).hidden_RH)
        after = self._values(memory.of(places.rows_N), states_NH)
        at = torch.cat([rows_B, places.rows_N]), torch.cat([torch.zeros_like(rows_B), places.steps_N + 1])
        return before.new_zeros(len(words_BT), words_BT.shape[1] + 1).index_put(at, torch.cat([before, after]))

    def forward(self, contexts: ContextBatch) -> Tensor:
        """The reward that is expected in contexts (B,)."""
        memory = self.reader.read(contexts)
        return self._values(memory, self.reader.begin(memory).hidden_RH)

    def _values(self, memory: ContextMemory, hidden_RH: Tensor) -> Tensor:
        values_R: Tensor = self.output(self.reader.joined(memory, hidden_RH)).squeeze(1)
        return values_R


class LinearCritic(nn.Module):
    """One layer on what the generator's encoder knows; no gradient reaches that.

    Args:
        hidden: state of the encoder.
    """

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.output = nn.Linear(hidden, 1)
        nn.init.zeros_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def forward(self, last_BH: Tensor) -> Tensor:
        """The reward that is expected in contexts (B, 1), from the encoder's last states."""
        values_B1: Tensor = self.output(last_BH.detach())
        return values_B1
