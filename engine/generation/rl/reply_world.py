"""What generator and discriminator learn on: the recorded pairs of a training split, and which of them an update takes."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from parley.engine.generation.rewards.weights import ResponseWeights
from parley.envs.core.seeds import stream
from parley.envs.corpora.pairs.compiled import PairSplit
from parley.envs.corpora.pairs.vocabulary import PairVocabulary


@dataclass
class ReplyWorld:
    """Recorded pairs.

    Args:
        pairs: of the training split, in the words of the generator.
        vocabulary: of the generator.
        max_words: words of a reply at most, `</s>` not counted.
        response_weights: of replies, by their tf-idf.
    """

    pairs: PairSplit
    vocabulary: PairVocabulary
    max_words: int
    response_weights: ResponseWeights
    _orders: dict[tuple[int, int], np.ndarray] = field(default_factory=dict)

    def pair(self, seed: int, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Words of context and recorded reply of an example: endless passes over all pairs, each in an order of its own.

        Args:
            seed: master seed.
            index: of the example, from 0.
        """
        turn, place = divmod(index, len(self.pairs))
        if (seed, turn) not in self._orders:
            self._orders = {(seed, turn): stream(seed, "order of pairs", turn).permutation(len(self.pairs))}
        source, reply = self.pairs.pairs[self._orders[seed, turn][place]].tolist()
        return self.pairs.utterances[source], self.pairs.utterances[reply]

    @property
    def mean_words(self) -> float:
        """Words of a recorded reply in the mean, `</s>` counted."""
        return float(self.pairs.utterances.lengths[self.pairs.pairs[:, 1]].mean()) + 1
