"""VHRED asked in words: the `TrainableResponder` of `policies/responder.py`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from envs.pairs.turns import Turn, Turns, turn_of
from envs.pairs.vocabulary import SPECIALS
from policies.vhred.batches import DialogueExamples, context_ids
from policies.vhred.checkpoints import load_model, save_model
from policies.vhred.decoding import beam as search
from policies.vhred.decoding import greedy
from policies.vhred.model import VHRED


class VhredResponder:
    """A VHRED that reads and says words; those that it does not know are `<unk>`, which it may say.

    Args:
        model: in evaluation mode.
    """

    def __init__(self, model: VHRED) -> None:
        self.model = model

    @property
    def turns(self) -> int:
        """Turns of context that it reads."""
        return self.model.sizes.turns

    def respond(self, contexts: Sequence[Turns], *, beam: int = 1) -> list[Turn]:
        """Replies; what is said to one context does not depend on the others.

        Args:
            contexts: turns, oldest first; the newest are read.
            beam: hypotheses kept; 1 is greedy.
        """
        ids = [context_ids(context, self.model.vocabulary, self.model.sizes) for context in contexts]
        replies = greedy(self.model, ids) if beam == 1 else search(self.model, ids, beam)
        return [turn_of(self.model.vocabulary.decode(reply)) for reply in replies]

    def vectors(self, words: Sequence[str]) -> np.ndarray:
        """The model's own embeddings of words (n, E) float32; specials and words that it does not know have no row."""
        ids = self.model.vocabulary.encode(words)
        table: np.ndarray = self.model.embedding.weight.detach().cpu().numpy()
        return table[ids[ids >= len(SPECIALS)]]

    def examples(self, contexts: Sequence[Turns], replies: Sequence[Turn]) -> DialogueExamples:
        """What `Fit` and `evaluate` work on: replies to be predicted from contexts, in the given order."""
        return DialogueExamples(contexts, replies, self.model.vocabulary, self.model.sizes)

    def save(self, folder: Path, provenance: dict[str, Any]) -> None:
        """Stores the model as a checkpoint of its kind."""
        save_model(self.model, folder, provenance)


def load_vhred(folder: Path) -> VhredResponder:
    """The VHRED of a run or checkpoint folder, on the CPU.

    Raises:
        CheckpointError: nothing is there, it is damaged or of another kind, or a weight is not a finite number.
    """
    return VhredResponder(load_model(folder))
