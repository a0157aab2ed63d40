"""How likely a language model finds each word of utterances.

Shapes: N utterances, B of them side by side, T their words and their end, V words of the vocabulary, H hidden units.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from envs.pairs.vocabulary import BOS_ID, EOS_ID, PAD_ID
from policies.seq2seq.model import LanguageModel


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
        for rows, lengths, words_BT1 in self._batches(utterances):
            logits_BTV = self._model(words_BT1[:, :-1])
            chosen_BT = logits_BTV.log_softmax(-1).gather(-1, words_BT1[:, 1:, None])[..., 0]
            for row, length, scores_T in zip(rows, lengths, chosen_BT.cpu(), strict=True):
                found[row] = scores_T[: length + 1].numpy().astype(np.float64)
        return found

    @torch.inference_mode()
    def vectors(self, utterances: Sequence[Sequence[str]]) -> np.ndarray:
        """The state behind the last word of each utterance (N, H) float32, N at least 1."""
        found = np.empty((len(utterances), self._model.sizes.hidden), dtype=np.float32)
        for rows, lengths, words_BT1 in self._batches(utterances):
            states_BTH = self._model.states(self._model.embedding(words_BT1[:, :-1]))
            found[rows] = states_BTH[torch.arange(len(rows)), torch.tensor(lengths)].cpu().numpy()
        return found

    def _batches(self, utterances: Sequence[Sequence[str]]) -> Iterator[tuple[list[int], list[int], torch.Tensor]]:
        """Places of utterances of like length, their lengths, and their words between `<s>` and `</s>`, padded."""
        order = sorted(range(len(utterances)), key=lambda row: len(utterances[row]))
        for start in range(0, len(order), self._batch_size):
            rows = order[start : start + self._batch_size]
            words = [self._ids(utterances[row]) for row in rows]
            yield rows, [len(utterances[row]) for row in rows], pad_sequence(words, batch_first=True, padding_value=PAD_ID)

    def _ids(self, words: Sequence[str]) -> torch.Tensor:
        ids = self._model.vocabulary.encode(list(words))
        return torch.tensor([BOS_ID, *ids.tolist(), EOS_ID], device=self._model.embedding.weight.device)
