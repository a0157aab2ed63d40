"""Decoding and storage of VHRED, its responder, and the use of its latent variable, which is at the prior's mean.

Source: Niu & Bansal 2018 decode greedily, Serban et al. 2017 by beam search. A reply depends on its own context alone:
nothing is drawn, and padding is masked.

A VHRED is stored in a folder (`policies/core/checkpoint.py`) of kind `vhred`, or in a run folder that has one. `VhredResponder`
is the `TrainableResponder` of `policies/core/responder.py`. `divergences` measures how much the latent variable is used;
`policies/core/fitting/batches.py` measures predictions.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn

from parley.envs.corpora.pairs.turns import Turn, Turns
from parley.envs.corpora.pairs.vocabulary import PairVocabulary
from parley.policies.core.checkpoint import ModelFormat
from parley.policies.core.decoding import beam_search, in_blocks, likeliest, word_by_word
from parley.policies.core.fitting.batches import in_order
from parley.policies.core.responder import GREEDY, DecoderSettings, NetworkResponder
from parley.policies.vhred.model import VHRED, Context, DialogueExamples, VhredMemory, context_ids, side_by_side
from parley.policies.vhred.settings import VhredSizes

FORMAT = ModelFormat("vhred", PairVocabulary, VhredSizes, VHRED)
save_model, load_model = FORMAT.save, FORMAT.load


_ROWS = 256


@torch.no_grad()
def divergences(model: VHRED, examples: DialogueExamples) -> np.ndarray:
    """Return KL(posterior || prior) of each reply (n,) in nats, shortest replies first, without dropout."""
    was_training = model.training
    model.eval()
    device = model.output.weight.device
    batches = [model.divergences(batch.to(device)).double().cpu().numpy() for batch in in_order(examples, _ROWS)]
    model.train(was_training)
    return np.concatenate(batches)


def greedy(model: VHRED, contexts: Sequence[Context]) -> list[list[int]]:
    """Return the reply to each context by the likeliest word at every step.

    Args:
        model: in evaluation mode.
        contexts: word ids of turns, as `context_ids` makes them.

    Returns:
        Word ids of the replies without `</s>`, which ends them; at most `max_reply` - 1 words.
    """

    def decode(rows: slice) -> list[list[int]]:
        return word_by_word(model, _read(model, contexts[rows]), model.sizes.max_reply, likeliest)

    return in_blocks(len(contexts), decode)


def beam(model: VHRED, contexts: Sequence[Context], width: int, length_penalty: float = 1.0) -> list[list[int]]:
    """Return the best reply of a beam to each context (`policies/core/decoding.py`).

    Args:
        model: in evaluation mode.
        contexts: as in `greedy`.
        width: hypotheses kept for each; 1 is greedy.
        length_penalty: exponent of the number of words, by which log-probabilities are divided.

    Returns:
        As `greedy`.
    """

    def decode(rows: slice) -> list[list[int]]:
        block = contexts[rows]
        return beam_search(model, _read(model, block), len(block), width, model.sizes.max_reply, length_penalty)

    return in_blocks(len(contexts), decode, width)


def _read(model: VHRED, contexts: Sequence[Context]) -> VhredMemory:
    return model.listen(side_by_side(contexts).to(model.output.weight.device))


class VhredResponder(NetworkResponder[VHRED]):
    """A VHRED as a responder; words that it does not know are `<unk>`, which it may say."""

    stored_as = FORMAT

    @property
    def embedding(self) -> nn.Embedding:
        return self.model.embedding

    def decode(self, contexts: Sequence[Turns], decoder: DecoderSettings, seeds: Sequence[int]) -> list[list[int]]:
        ids = [context_ids(context, self.model.vocabulary, self.model.sizes) for context in contexts]
        return greedy(self.model, ids) if decoder == GREEDY else beam(self.model, ids, decoder.beam, decoder.length)

    def examples(self, contexts: Sequence[Turns], replies: Sequence[Turn]) -> DialogueExamples:
        """Return examples for `Fit` and `evaluate`: replies to be predicted from contexts, in the given order."""
        return DialogueExamples(contexts, replies, self.model.vocabulary, self.model.sizes)


def load_vhred(folder: Path) -> VhredResponder:
    """Return the VHRED of a run or checkpoint folder, on the CPU.

    Raises:
        CheckpointError: nothing is there, it is damaged or of another kind, or a weight is not a finite number.
    """
    return VhredResponder(load_model(folder))
