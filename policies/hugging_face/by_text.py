"""A causal model beside one with other tokens: it is given as text what is searched in the tokens of the other one.

As in the released code of Zou et al. 2023, where models have different tokenizers: a candidate is a string to each of them.

    R inputs, N searched positions of the other model
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

from parley.policies.hugging_face.victims import HuggingFaceCausal


class HuggingFaceByText(HuggingFaceCausal):
    """A model whose inputs are told in the tokens of another one, and read as their text is typed into its own prompt.

    Args:
        own: the model.
        other: whose tokens the searched words are; behind the same request.
    """

    def __init__(self, own: HuggingFaceCausal, other: HuggingFaceCausal) -> None:
        vars(self).update(vars(own))
        self._other, self.searchable_V = other, other.searchable_V.to(own.searchable_V.device)

    def behind(self, prompt: str) -> Self:
        """Both models with another request in their prompts."""
        found = super().behind(prompt)
        found._other = self._other.behind(prompt)
        return found

    def slot_texts(self, ids: Sequence[int]) -> list[str]:
        """What to type into each slot: what is typed to the other model."""
        return self._other.slot_texts(ids)

    def allows(self, words_RN: Tensor) -> Tensor:
        """All inputs (R,): what may be typed at all, the other model's rules say, and whatever is typed is read as it is."""
        return torch.ones(len(words_RN), dtype=torch.bool, device=words_RN.device)

    def reads(self, words_RN: Tensor) -> list[list[int]]:
        """The tokens of the whole prompt with each input typed into it; not all have as many."""
        return self._typed(words_RN.tolist())

    def _read(self, ids: Sequence[int]) -> list[int]:
        return self.typed(ids)
