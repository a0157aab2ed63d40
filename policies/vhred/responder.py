"""VHRED asked in words: the `TrainableResponder` of `policies/core/responder.py`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import nn

from parley.envs.corpora.pairs.turns import Turn, Turns
from parley.policies.core.decoders import GREEDY, DecoderSettings
from parley.policies.core.responder import NetworkResponder
from parley.policies.vhred.batches import DialogueExamples, context_ids
from parley.policies.vhred.checkpoints import FORMAT, load_model
from parley.policies.vhred.decoding import beam, greedy
from parley.policies.vhred.model import VHRED


class VhredResponder(NetworkResponder[VHRED]):
    """A VHRED that reads and says words; those that it does not know are `<unk>`, which it may say."""

    stored_as = FORMAT

    @property
    def embedding(self) -> nn.Embedding:
        """Of contexts and of replies."""
        return self.model.embedding

    def decode(self, contexts: Sequence[Turns], decoder: DecoderSettings, seeds: Sequence[int]) -> list[list[int]]:
        ids = [context_ids(context, self.model.vocabulary, self.model.sizes) for context in contexts]
        return greedy(self.model, ids) if decoder == GREEDY else beam(self.model, ids, decoder.beam, decoder.length)

    def examples(self, contexts: Sequence[Turns], replies: Sequence[Turn]) -> DialogueExamples:
        """What `Fit` and `evaluate` work on: replies to be predicted from contexts, in the given order."""
        return DialogueExamples(contexts, replies, self.model.vocabulary, self.model.sizes)


def load_vhred(folder: Path) -> VhredResponder:
    """The VHRED of a run or checkpoint folder, on the CPU.

    Raises:
        CheckpointError: nothing is there, it is damaged or of another kind, or a weight is not a finite number.
    """
    return VhredResponder(load_model(folder))
