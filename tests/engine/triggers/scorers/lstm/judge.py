"""Our language model as the plain scorer asks for one: what the fast scorer's own reading is checked against."""

from __future__ import annotations

import torch
from torch import Tensor

from parley.envs.corpora.pairs.vocabulary import BOS_ID, EOS_ID
from parley.policies.seq2seq.model import LanguageModel


class LmInputModel:
    """A language model that judges sources: R(x) of He & Glass (2018, equation 4)."""

    end_id = EOS_ID

    def __init__(self, lm: LanguageModel) -> None:
        self.lm = lm.eval()

    @property
    def embedding_VE(self) -> Tensor:
        return self.lm.embedding.weight.detach()

    def word_logits(self, embedded_BNE: Tensor) -> Tensor:
        begin_BNE = self.embedding_VE[BOS_ID].expand(len(embedded_BNE), 1, -1)
        return self.lm.from_embedded(torch.cat([begin_BNE, embedded_BNE], dim=1))
