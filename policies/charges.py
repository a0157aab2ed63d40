"""What replies are kept from saying while they are decoded: words that are forbidden, words that were said before.

Source: Li et al. 2017 (arXiv 1701.06547, section 3.3) penalise "word types (stop words excluded) that have already been
generated"; the amount is not said, so it is an option.

Shapes: R rows, V words of the vocabulary, T words said so far.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from envs.core.errors import ConfigError
from envs.pairs.stop_words import is_content
from envs.pairs.vocabulary import EOS, PairVocabulary
from policies.decoding import Charge


class NoState(NamedTuple):
    """Of a charge that does not depend on what was said."""


class Forbidden(Charge[NoState]):
    """Words that are never said.

    Args:
        vocabulary: of the model.
        words: what is forbidden; those that the model does not know it cannot say anyway.

    Raises:
        ConfigError: the end of a reply is among them.
    """

    def __init__(self, vocabulary: PairVocabulary, words: Sequence[str]) -> None:
        if EOS in words:
            raise ConfigError("the end of a reply cannot be forbidden", where="forbid", got=EOS, fix="forbid other words")
        self._ids = [vocabulary.index[word] for word in words if word in vocabulary.index]

    def begin(self, num_rows: int, device: torch.device) -> NoState:
        return NoState()

    def step(self, place: int, scores_RV: Tensor, words_R: Tensor, state: NoState) -> tuple[Tensor, NoState]:
        return scores_RV.index_fill(1, torch.tensor(self._ids, dtype=torch.int64, device=scores_RV.device), -torch.inf), state


class SaidBefore(NamedTuple):
    """What replies hold so far."""

    words_RT: Tensor


class Repetition(Charge[SaidBefore]):
    """Content words that a reply holds already cost more, once however often they were said.

    Args:
        vocabulary: of the model.
        amount: nats that each costs, above 0.
    """

    def __init__(self, vocabulary: PairVocabulary, amount: float) -> None:
        self._amounts_V = torch.tensor([amount if is_content(word) else 0.0 for word in vocabulary.words])

    def begin(self, num_rows: int, device: torch.device) -> SaidBefore:
        return SaidBefore(torch.zeros((num_rows, 0), dtype=torch.int64, device=device))

    def step(self, place: int, scores_RV: Tensor, words_R: Tensor, state: SaidBefore) -> tuple[Tensor, SaidBefore]:
        said_RT = torch.cat([state.words_RT, words_R.unsqueeze(1)], dim=1)
        charged_RT = scores_RV.gather(1, said_RT) - self._amounts_V.to(scores_RV)[said_RT]
        return scores_RV.scatter(1, said_RT, charged_RT), SaidBefore(said_RT)
