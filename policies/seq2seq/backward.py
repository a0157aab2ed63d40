"""How likely a source is behind a reply: p(s|t) of a model that `parley train seq2seq --backward` fitted.

Source: Li et al. 2016a (arXiv 1510.03055, section 4.2), whose re-ranking asks which reply tells most about its source.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from parley.envs.core.errors import CheckpointError
from parley.envs.corpora.pairs.compiled import PairSplit, Ragged
from parley.policies.core.fitting.evaluation import example_nll
from parley.policies.seq2seq.batches import PairExamples
from parley.policies.seq2seq.checkpoints import load_seq2seq
from parley.policies.seq2seq.model import Seq2Seq

_ROWS = 256


class BackwardModel:
    """A model that predicts contexts from replies.

    Args:
        model: in evaluation mode, its sizes `backward`.
    """

    def __init__(self, model: Seq2Seq) -> None:
        assert model.sizes.backward, "it predicts replies"
        self.model = model

    @torch.no_grad()
    def nats_per_word(self, contexts: Sequence[Sequence[str]], replies: Sequence[Sequence[str]]) -> np.ndarray:
        """Mean log-probability (n,) float64 of a word of each context behind its reply, `</s>` counted.

        Args:
            contexts: words, `<eot>` between turns; cut as in training.
            replies: words.
        """
        rows = [self.model.vocabulary.encode(words) for words in (*contexts, *replies)]
        offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
        values = np.concatenate(rows).astype(np.int32) if rows else np.zeros(0, dtype=np.int32)
        examples = PairExamples(PairSplit(Ragged(values, offsets), np.arange(len(rows)).reshape(2, -1).T), self.model.sizes)
        found, device = np.zeros(len(contexts)), self.model.output.weight.device
        for start in range(0, len(contexts), _ROWS):
            block = np.arange(start, min(start + _ROWS, len(contexts)))
            nll_B, num_words_B = example_nll(self.model, examples.batch(block).to(device))
            found[block] = (-nll_B / num_words_B).cpu().numpy()
        return found


def load_backward(folder: Path) -> BackwardModel:
    """The backward model of a run or checkpoint folder, on the CPU.

    Raises:
        CheckpointError: as `load_seq2seq`, or the model predicts replies.
    """
    model = load_seq2seq(folder)
    if not model.sizes.backward:
        fix = "name a run of parley train seq2seq --backward"
        raise CheckpointError("this is no backward model", where=folder, got="a model of replies to contexts", fix=fix)
    return BackwardModel(model)
