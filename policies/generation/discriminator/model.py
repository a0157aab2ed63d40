"""The discriminator of Li et al. 2017 (arXiv 1701.06547), section 3.1: did a person or a machine write this reply?

A dialogue's vector (`reader.py`) is followed by a softmax over two classes; Q+ is the probability of the class "human". The
vector exists for a reply's beginnings too, so that one pass gives Q+ after each word. What it says of beginnings means
something if it was fitted to beginnings (`ReplyExamples(..., prefixes=True)`); its checkpoint says whether it was.

As a `Predictor` it predicts one of two words, so the fitting loop of all models fits it.

Shapes: as in `reader.py`.
"""

from __future__ import annotations

from torch import Tensor, nn

from parley.envs.corpora.pairs.vocabulary import PairVocabulary
from parley.policies.core.dropout import Dropout
from parley.policies.core.fitting.predictor import Predictor
from parley.policies.generation.discriminator.batches import ContextBatch, JudgedBatch
from parley.policies.generation.discriminator.reader import ContextMemory, DialogueReader, WordState
from parley.policies.generation.discriminator.settings import DiscriminatorSizes


class Discriminator(Predictor[JudgedBatch]):
    """One discriminator's parameters.

    Args:
        vocabulary: the words that it knows.
        sizes: widths of its layers.
    """

    def __init__(self, vocabulary: PairVocabulary, sizes: DiscriminatorSizes) -> None:
        super().__init__()
        self.vocabulary, self.sizes = vocabulary, sizes
        self.reader = DialogueReader(len(vocabulary), sizes)
        self.output = nn.Linear(self.reader.width, 2)
        self.dropout = Dropout(sizes.dropout)

    def read(self, contexts: ContextBatch) -> ContextMemory:
        """What is known of contexts; they are read once, however many replies follow."""
        return self.reader.read(contexts)

    def begin(self, memory: ContextMemory) -> WordState:
        """Replies without a word yet, one to each context."""
        return self.reader.begin(memory)

    def advance(self, words_R: Tensor, state: WordState) -> WordState:
        """Reads one more word (R,) of each reply; `</s>` is the last word of a whole one."""
        return self.reader.advance(words_R, state)

    def vectors(self, memory: ContextMemory, state: WordState) -> Tensor:
        """What the softmax reads (R, D); `memory` has a row for each reply."""
        return self.reader.joined(memory, state.hidden_RH)

    def human(self, memory: ContextMemory, state: WordState) -> Tensor:
        """Log-odds (R,) that a person wrote the replies as read so far; `memory` has a row for each reply."""
        return self._log_odds(self.vectors(memory, state))

    def prefixes(self, memory: ContextMemory, words_RT: Tensor, lengths_R: Tensor) -> Tensor:
        """Log-odds that a person wrote each beginning of replies, in one pass.

        Args:
            memory: of the contexts, a row for each reply.
            words_RT: int64, padded on the right.
            lengths_R: words of each reply that count, int64.

        Returns:
            (R, T): at t of the reply's first t + 1 words; 0 behind the reply.
        """
        places, states_NH = self.reader.states(words_RT, lengths_R)
        vectors_ND = self.reader.joined(memory.of(places.rows_N), states_NH)
        none_RT = vectors_ND.new_zeros(words_RT.shape)
        return none_RT.index_put((places.rows_N, places.steps_N), self._log_odds(vectors_ND))

    def reply_vectors(self, batch: JudgedBatch) -> Tensor:
        """What the softmax reads of the replies of a batch (R, D)."""
        memory = self.read(batch.contexts).of(batch.rows_R)
        places, states_NH = self.reader.states(batch.words_RT, batch.lengths_R)
        return self.reader.joined(memory, states_NH[places.last_B])

    def target_states(self, batch: JudgedBatch) -> Tensor:
        dropped_RD: Tensor = self.dropout(self.reply_vectors(batch))
        return dropped_RD

    def forward(self, batch: JudgedBatch) -> Tensor:
        """Log-odds (R,) that a person wrote the replies."""
        return self._log_odds(self.reply_vectors(batch))

    def _log_odds(self, vectors_RD: Tensor) -> Tensor:
        machine_R, human_R = self.output(self.dropout(vectors_RD)).unbind(1)
        return human_R - machine_R
