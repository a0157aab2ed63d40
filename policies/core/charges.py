"""What replies are kept from saying while they are decoded: words that are forbidden, words that were said before.

Source: Li et al. 2017 (arXiv 1701.06547, section 3.3) penalise "word types (stop words excluded) that have already been
generated"; the amount is not said, so it is an option.

Shapes: R rows, V words of the vocabulary, T words said so far.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from parley.envs.core.errors import ConfigError
from parley.envs.corpora.pairs.stop_words import is_content
from parley.envs.corpora.pairs.vocabulary import END, EOS, MARKS, PairVocabulary
from parley.policies.core.decoding import Charge


def charges_on_words(vocabulary: PairVocabulary, forbid: Sequence[str], repeat: float) -> list[Charge[Any]]:
    """What keeps replies from forbidden words and from content words that they hold already.

    Args:
        vocabulary: of the model.
        forbid: words that are never said.
        repeat: nats that a content word costs which was said before; 0 for none.

    Raises:
        ConfigError: the end of a reply is forbidden.
    """
    found: list[Charge[Any]] = []
    if EOS in forbid:
        raise ConfigError("the end of a reply cannot be forbidden", where="forbid", got=EOS, fix="forbid other words")
    if forbid:
        found.append(Forbidden(vocabulary, forbid) if vocabulary.merges is None else Spelt(vocabulary, torch.inf, forbid))
    if repeat:
        found.append(Repetition(vocabulary, repeat) if vocabulary.merges is None else Spelt(vocabulary, repeat))
    return found


class NoState(NamedTuple):
    """Of a charge that does not depend on what was said."""


class Forbidden(Charge[NoState]):
    """Words that are never said.

    Args:
        vocabulary: of the model.
        words: what is forbidden; those that the model does not know it cannot say anyway.
    """

    def __init__(self, vocabulary: PairVocabulary, words: Sequence[str]) -> None:
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


class Spelt(Charge[SaidBefore]):
    """What a model of pieces is charged for a word: the piece that would end it, whatever pieces it began with.

    A word that breaks off where a reply ends is not charged.

    Args:
        vocabulary: of pieces.
        amount: nats.
        words: that cost it; content words that the reply holds already when not given.
    """

    def __init__(self, vocabulary: PairVocabulary, amount: float, words: Sequence[str] | None = None) -> None:
        self._vocabulary, self._amount, self._words = vocabulary, amount, words

    def begin(self, num_rows: int, device: torch.device) -> SaidBefore:
        return SaidBefore(torch.zeros((num_rows, 0), dtype=torch.int64, device=device))

    def step(self, place: int, scores_RV: Tensor, words_R: Tensor, state: SaidBefore) -> tuple[Tensor, SaidBefore]:
        said_RT = torch.cat([state.words_RT, words_R.unsqueeze(1)], dim=1)
        amounts_RV = torch.zeros_like(scores_RV)
        for row, ids in enumerate(said_RT.tolist()):
            amounts_RV[row, self._endings(ids)] = self._amount
        return scores_RV - amounts_RV, SaidBefore(said_RT)

    def _endings(self, ids: Sequence[int]) -> list[int]:
        said, begun = self._vocabulary.parted(ids)
        charged = filter(is_content, said) if self._words is None else self._words
        index = self._vocabulary.index
        begins = (word for word in charged if word in MARKS or word.startswith(begun))
        ends = (word if word in MARKS else word[len(begun) :] + END for word in begins)
        return [index[end] for end in ends if end in index]
