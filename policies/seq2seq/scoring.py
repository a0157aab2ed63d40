"""How likely a language model finds each word of utterances.

Shapes: N utterances, B of them side by side, T their words and their end, V words of the vocabulary, H hidden units.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from parley.envs.corpora.pairs.vocabulary import BOS_ID, EOS_ID, PAD_ID
from parley.policies.seq2seq.model import LanguageModel


class WordScores:
    """Scores utterances with a language model, whole, however long they are.

    Args:
        model: in evaluation mode.
        batch_size: utterances that are scored side by side.
    """

    def __init__(self, model: LanguageModel, batch_size: int = 64) -> None:
        self._model, self._batch_size = model, batch_size

    @torch.inference_mode()
    def log_probabilities(self, utterances: Sequence[Sequence[str]]) -> list[np.ndarray]:
        """Of each utterance's words and its end, natural logarithms (words + 1,) float64."""
        found: list[np.ndarray] = [np.empty(0)] * len(utterances)
        for rows, starts, words_BT1 in self._batches(utterances):
            logits_BTV = self._model(words_BT1[:, :-1])
            chosen_BT = logits_BTV.log_softmax(-1).gather(-1, words_BT1[:, 1:, None])[..., 0]
            for row, begins, scores_T in zip(rows, starts, chosen_BT.cpu(), strict=True):
                # Behind the units of the words stands their end.
                found[row] = np.add.reduceat(scores_T[: begins[-1] + 1].numpy().astype(np.float64), begins)
        return found

    @torch.inference_mode()
    def vectors(self, utterances: Sequence[Sequence[str]]) -> np.ndarray:
        """The state behind the last word of each utterance (N, H) float32, N at least 1."""
        found = np.empty((len(utterances), self._model.sizes.hidden), dtype=np.float32)
        for rows, starts, words_BT1 in self._batches(utterances):
            states_BTH = self._model.states(self._model.embedding(words_BT1[:, :-1]))
            last = torch.tensor([int(begins[-1]) for begins in starts])
            found[rows] = states_BTH[torch.arange(len(rows)), last].cpu().numpy()
        return found

    def _batches(self, utterances: Sequence[Sequence[str]]) -> Iterator[tuple[list[int], list[np.ndarray], torch.Tensor]]:
        """Places of utterances of like length, where the units of their words begin and end, and these framed and padded."""
        order = sorted(range(len(utterances)), key=lambda row: len(utterances[row]))
        for start in range(0, len(order), self._batch_size):
            rows = order[start : start + self._batch_size]
            spelt = [self._model.vocabulary.spell(utterances[row]) for row in rows]
            units = [self._framed(ids) for ids, _ in spelt]
            yield rows, [starts for _, starts in spelt], pad_sequence(units, batch_first=True, padding_value=PAD_ID)

    def _framed(self, ids: np.ndarray) -> torch.Tensor:
        return torch.tensor([BOS_ID, *ids.tolist(), EOS_ID], device=self._model.embedding.weight.device)
