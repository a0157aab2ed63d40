"""How often words occur in contexts, which IIW weighs by (`insertion.py`)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

from parley.envs.ranking.groups import Context


@dataclass(frozen=True)
class TermCounts:
    """Counts of words in contexts.

    Args:
        term: how often each word occurs (TF).
        documents: how many contexts hold it (DF).
        num_contexts: how many there are (M).
    """

    term: Counter[str]
    documents: Counter[str]
    num_contexts: int

    @classmethod
    def of(cls, contexts: Iterable[Context]) -> TermCounts:
        """The counts of some contexts."""
        term, documents, num = Counter[str](), Counter[str](), 0
        for context in contexts:
            words = list(chain.from_iterable(context))
            term.update(words)
            documents.update(set(words))
            num += 1
        return cls(term, documents, num)

    def idf(self, word: str) -> float:
        """Equation (4); a word that no context holds counts as one that one holds."""
        return math.log(max(self.num_contexts, 1) / max(self.documents[word], 1))
