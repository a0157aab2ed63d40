"""What an edited reply must keep to; checked before it is asked about, so that a draft that is not allowed costs no query.

A constraint of your own needs `allows`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from parley.engine.ranking.attacks.drafts import Draft
from parley.envs.corpora.pairs.turns import Utterance

if TYPE_CHECKING:
    from parley.engine.perturb.lexicon.ngrams import NGrams
    from parley.engine.perturb.replies.language import ReplyLanguage
    from parley.engine.ranking.attacks.case import Case

Vectors = Callable[[Sequence[Utterance]], np.ndarray]
"""Vectors of texts (texts, E)."""


class Constraint(Protocol):
    """A rule that drafts keep to or break."""

    def allows(self, case: Case, drafts: Sequence[Draft]) -> Sequence[bool]:
        """Whether each draft keeps to it.

        Args:
            case: the example; `case.original` is the reply before any edit.
            drafts: at least one.
        """


@dataclass(frozen=True)
class AtMostWords:
    """Few words are changed.

    Args:
        edits: how many at most.
    """

    edits: int

    def allows(self, case: Case, drafts: Sequence[Draft]) -> list[bool]:
        """See `Constraint`."""
        return [draft.cost <= self.edits for draft in drafts]


@dataclass(frozen=True)
class NoOtherCandidate:
    """The edited reply is neither the original nor another candidate of the group."""

    def allows(self, case: Case, drafts: Sequence[Draft]) -> list[bool]:
        """See `Constraint`."""
        return [draft.words not in case.group.candidates for draft in drafts]


@dataclass(frozen=True)
class KnownWords:
    """Words that enter are known.

    Args:
        known: such as the vocabulary of a model or a corpus.
    """

    known: Container[str] = field(repr=False)

    def allows(self, case: Case, drafts: Sequence[Draft]) -> list[bool]:
        """See `Constraint`; words that are as they were need not be known."""
        return [
            all(word in self.known for word, edited in zip(draft.words, draft.edited, strict=True) if edited)
            for draft in drafts
        ]


@dataclass(frozen=True)
class KeptTags:
    """Tagged again, every word has the tag that it had, or that the word had which it replaces."""

    language: ReplyLanguage = field(repr=False)

    def allows(self, case: Case, drafts: Sequence[Draft]) -> list[bool]:
        """See `Constraint`."""
        return self.language.are_tags([draft.words for draft in drafts], [draft.tags for draft in drafts])


@dataclass(frozen=True)
class Fluent:
    """The reply reads hardly worse than it did: its perplexity is at most a multiple of what it was.

    Args:
        ngrams: the trigrams that judge; of a training split.
        ratio: the largest multiple.
    """

    ngrams: NGrams = field(repr=False)
    ratio: float

    def allows(self, case: Case, drafts: Sequence[Draft]) -> list[bool]:
        """See `Constraint`."""
        before, *after = map(np.mean, self.ngrams.log_probabilities([case.original.words, *(draft.words for draft in drafts)]))
        return [bool(np.exp(before - each) <= self.ratio) for each in after]


@dataclass(frozen=True)
class CloseInMeaning:
    """The reply's vector points where the original's does.

    Args:
        vectors: of texts.
        cosine: the least of the two.
    """

    vectors: Vectors = field(repr=False)
    cosine: float

    def allows(self, case: Case, drafts: Sequence[Draft]) -> list[bool]:
        """See `Constraint`; a text whose vector is zero is close to none."""
        texts_NE = np.asarray(self.vectors([case.original.words, *(draft.words for draft in drafts)]), dtype=np.float64)
        norms_N = np.linalg.norm(texts_NE, axis=1)
        products = texts_NE[1:] @ texts_NE[0]
        return [
            bool(norm > 0 and product >= self.cosine * norm * norms_N[0])
            for product, norm in zip(products, norms_N[1:], strict=True)
        ]


class MeanVectors:
    """Vectors of texts as the means of their words'.

    Args:
        vectors: of words (E,); others count as zero.
        size: E.
    """

    def __init__(self, vectors: Mapping[str, np.ndarray], size: int) -> None:
        self._vectors, self._none = vectors, np.zeros(size)

    def __call__(self, texts: Sequence[Utterance]) -> np.ndarray:
        """Means (texts, E)."""
        return np.stack(
            [np.mean([self._vectors.get(word, self._none) for word in text] or [self._none], axis=0) for text in texts]
        )
