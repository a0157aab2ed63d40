"""A sequence-to-sequence model that is asked in words: `policies/core/responder.py` has the protocol.

A context is read as it was in training: the model's number of newest turns, words outside its vocabulary as `<unk>`, cut to
its length. A reply is the model's words as they are, `<unk>` among them, parted into utterances at `<eou>`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from torch import nn

from parley.envs.core.errors import CheckpointError
from parley.envs.corpora.pairs.compiled import PairSplit, Ragged
from parley.envs.corpora.pairs.turns import Turn, Turns, context_words, turn_words
from parley.policies.core.decoders import EVERYWHERE, RULES, DecoderSettings
from parley.policies.core.responder import NetworkResponder
from parley.policies.seq2seq.batches import PairExamples
from parley.policies.seq2seq.checkpoints import SEQ2SEQ, load_seq2seq
from parley.policies.seq2seq.model import Seq2Seq
from parley.policies.seq2seq.replying import ReplyDecoder


class Seq2SeqResponder(NetworkResponder[Seq2Seq]):
    """A sequence-to-sequence model as a responder."""

    stored_as = SEQ2SEQ
    decoders = (*RULES, *EVERYWHERE)

    def __init__(self, model: Seq2Seq) -> None:
        super().__init__(model)
        self._decoders: dict[DecoderSettings, ReplyDecoder] = {}

    @property
    def embedding(self) -> nn.Embedding:
        """Of sources; replies have their own."""
        return self.model.source_embedding

    def decode(self, contexts: Sequence[Turns], decoder: DecoderSettings, seeds: Sequence[int]) -> list[list[int]]:
        if decoder not in self._decoders:
            self._decoders[decoder] = ReplyDecoder(self.model, decoder)
        return self._decoders[decoder](self._sources(contexts), seeds)

    def examples(self, contexts: Sequence[Turns], replies: Sequence[Turn]) -> PairExamples:
        """What `Fit` and `evaluate` work on: replies to be predicted from contexts, in the given order."""
        rows = [*self._sources(contexts), *(self.model.vocabulary.encode(turn_words(reply)) for reply in replies)]
        offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
        utterances = Ragged(np.concatenate(rows).astype(np.int32), offsets)
        pairs = np.arange(len(rows)).reshape(2, -1).T
        return PairExamples(PairSplit(utterances, pairs), self.model.sizes)

    def _sources(self, contexts: Sequence[Turns]) -> list[np.ndarray]:
        return [self.model.vocabulary.encode(context_words(turns[-self.turns :])) for turns in contexts]


def load_responder(folder: Path) -> Seq2SeqResponder:
    """The model of a run or checkpoint folder.

    Raises:
        CheckpointError: as `load_seq2seq`, or it predicts contexts.
    """
    model = load_seq2seq(folder)
    if model.sizes.backward:
        fix = "name it as the backward model of a decoder: --decoder mmi:backward=RUN"
        raise CheckpointError("a backward model predicts contexts and does not answer them", where=folder, fix=fix)
    return Seq2SeqResponder(model)
