"""A trained discriminator as the judge of `parley/Reply-v1`: how likely it holds a reply for a person's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from parley.envs.corpora.pairs.turns import EOT, Example, Turn, turn_words
from parley.policies.generation.discriminator.batches import context_batch, reply_batch
from parley.policies.generation.discriminator.checkpoints import load_discriminator


class TrainedReplyJudge:
    """Judges replies as `parley minmax replies` rewards whole ones, by the probability Q+ that a person wrote them.

    Args:
        folder: a run or checkpoint of `parley train discriminator`.

    Raises:
        CheckpointError: it is damaged, or no discriminator.
    """

    def __init__(self, folder: str | Path) -> None:
        self.model = load_discriminator(Path(folder))
        self.vocabulary = self.model.vocabulary
        """The words that it knows; an environment that has the same loses none."""

    @torch.no_grad()
    def judge_replies(self, examples: Sequence[Example], replies: Sequence[Turn]) -> np.ndarray:
        """See `parley.envs.generation.judge.ReplyJudge`; the recorded replies are not looked at."""
        words, sizes = self.vocabulary, self.model.sizes
        memory = self.model.read(context_batch([self._source(example) for example in examples], words, sizes))
        words_RT, lengths_R = reply_batch([words.encode(turn_words(reply)) for reply in replies], sizes)
        log_odds_RT: Tensor = self.model.prefixes(memory, words_RT, lengths_R)
        human_R: np.ndarray = log_odds_RT.gather(1, (lengths_R - 1).unsqueeze(1)).squeeze(1).sigmoid().double().numpy()
        return human_R

    def _source(self, example: Example) -> np.ndarray:
        # Without the word that separates turns the model knows contexts of one.
        num = self.model.sizes.turns if EOT in self.vocabulary.index else 1
        turns = [turn_words(turn) for turn in example.context[-num:]]
        return self.vocabulary.encode([word for turn in turns for word in (*turn, EOT)][:-1])
