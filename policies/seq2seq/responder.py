"""A sequence-to-sequence model that is asked in words: `policies/responder.py` has the protocol.

A context is read as it was in training: the model's number of newest turns, words outside its vocabulary as `<unk>`, cut to
its length. A reply is the model's words as they are, `<unk>` among them, parted into utterances at `<eou>`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from envs.pairs.compiled import PairSplit, Ragged
from envs.pairs.turns import Turn, Turns, context_words, turn_of, turn_words
from envs.pairs.vocabulary import SPECIALS
from policies.seq2seq.batches import PairExamples
from policies.seq2seq.beam import beam as beam_search
from policies.seq2seq.checkpoints import load_seq2seq, save_model
from policies.seq2seq.decoding import greedy
from policies.seq2seq.model import Seq2Seq


class Seq2SeqResponder:
    """A sequence-to-sequence model as a responder.

    Args:
        model: in evaluation mode.
    """

    def __init__(self, model: Seq2Seq) -> None:
        self.model = model

    @property
    def turns(self) -> int:
        """Turns of context that it reads."""
        return self.model.sizes.turns

    def respond(self, contexts: Sequence[Turns], *, beam: int = 1) -> list[Turn]:
        """Replies; what is said to one context does not depend on the others.

        Args:
            contexts: turns, oldest first.
            beam: hypotheses kept; 1 is greedy.
        """
        sources = self._sources(contexts)
        replies = greedy(self.model, sources) if beam == 1 else beam_search(self.model, sources, beam)
        return [turn_of(self.model.vocabulary.decode(reply)) for reply in replies]

    def vectors(self, words: Sequence[str]) -> np.ndarray:
        """The embeddings with which it reads words (n, E) float32; specials and words that it does not know have no row."""
        ids = self.model.vocabulary.encode(words)
        table: np.ndarray = self.model.source_embedding.weight.detach().cpu().numpy()
        return table[ids[ids >= len(SPECIALS)]]

    def examples(self, contexts: Sequence[Turns], replies: Sequence[Turn]) -> PairExamples:
        """What `Fit` and `evaluate` work on: replies to be predicted from contexts, in the given order."""
        rows = [*self._sources(contexts), *(self.model.vocabulary.encode(turn_words(reply)) for reply in replies)]
        offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
        utterances = Ragged(np.concatenate(rows).astype(np.int32), offsets)
        pairs = np.arange(len(rows)).reshape(2, -1).T
        return PairExamples(PairSplit(utterances, pairs), self.model.sizes)

    def save(self, folder: Path, provenance: dict[str, Any]) -> None:
        """Stores the model as a checkpoint of its kind."""
        save_model(self.model, folder, provenance)

    def _sources(self, contexts: Sequence[Turns]) -> list[np.ndarray]:
        return [self.model.vocabulary.encode(context_words(turns[-self.turns :])) for turns in contexts]


def load_responder(folder: Path) -> Seq2SeqResponder:
    """The model of a run or checkpoint folder; raises as `load_seq2seq` does."""
    return Seq2SeqResponder(load_seq2seq(folder))
