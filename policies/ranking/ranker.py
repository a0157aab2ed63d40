"""The protocol of rankers, which score each candidate reply of a context, and rankers that know no language.

Evaluation, attacks and training against them know rankers by this protocol alone. `policies/ranking/rankers.py` loads them by
name; a user's own is `path/file.py:Name` and needs `score` only.

Trivial rankers are baselines that a model must beat: longest and shortest because length alone tells many corpora's
positives; overlap because accuracy follows it (Li et al. 2019, equation 1); a ranker without its context because wrong
candidates may betray themselves.

Cosines of weighted word counts, fitted on training contexts, measure how far a candidate uses the context's rare words:

    TF-IDF   weight = count x idf,  idf = log((1 + N) / (1 + n)) + 1
    BM25     weight = idf x count (k + 1) / (count + k (1 - b + b length / average)),  idf = log(1 + (N - n + 0.5) / (n + 0.5))
             (Robertson & Zaragoza 2009, "The probabilistic relevance framework", section 3.4)

N counts the distinct turns of the training contexts, n those that hold the word; k and b are those by which wrong replies are
found (`envs/ranking/groups.py`). The plain sum of BM25 weights grows with a candidate's length, the cosine does not.
"""

from __future__ import annotations

import bisect
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple, Protocol, Self, runtime_checkable

import numpy as np

from parley.envs.core.errors import DataError, RankerError, RefusedModelError
from parley.envs.core.registry import is_terminated
from parley.envs.corpora.lines import TextNumbers
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.ranking.groups import LENGTH_SHARE, SATURATION, Context

Scores = list[float] | np.ndarray
"""One finite number for each candidate; higher is better."""
Pair = tuple[Context, Sequence[Utterance]]
"""A context and the candidates to score in it."""


class UnscoredError(RankerError):
    """An error for candidates of a context without a score, each for its own reason; others, asked alone, may have one."""


class Ranker(Protocol):
    """A model that scores candidates; a score does not depend on other candidates, their order, or earlier calls.

    One whose scores are probabilities may say so by `gives_probabilities = True`, see `compared_outcomes`. One that costs
    nothing but time may say so by `is_free = True`: attacks then have drafts scored that they may not need.
    """

    def score(self, context: Context, candidates: Sequence[Utterance]) -> Scores:
        """Return the scores of the candidates of one context.

        Args:
            context: turns, oldest first, each its words; a model reads as many of the newest as it was made for.
            candidates: replies, each its words; any of them may be empty.
        """


@runtime_checkable
class BatchRanker(Ranker, Protocol):
    """A ranker that is faster with many contexts side by side; subclasses need `score_all` alone."""

    def score(self, context: Context, candidates: Sequence[Utterance]) -> Scores:
        (scores,) = self.score_all([(context, candidates)])
        if isinstance(scores, RankerError):
            raise scores
        return scores

    def score_all(self, pairs: Sequence[Pair]) -> Sequence[Scores | RankerError]:
        """Return the scores of each pair's candidates, as `score` does; or the reason why a pair has none."""


class Unread(NamedTuple):
    """The numbers of turns and candidates that a ranker does not read whole."""

    turns: int = 0
    """Not read, or not whole; the oldest ones are left out first."""
    replies: int = 0

    def __str__(self) -> str:
        return f"{self.turns} turns and {self.replies} replies"


class LimitedRanker(BatchRanker):
    """A ranker that reads texts up to a limit; a class of a user's own may inherit from it."""

    @abstractmethod
    def unread(self, context: Context, candidates: Sequence[Utterance]) -> Unread:
        """Count the turns and replies that it left out of a scored context and its candidates."""


@runtime_checkable
class SlopedRanker(Ranker, Protocol):
    """A ranker with first-order effects of words on a score, for white-box attacks."""

    def slopes(self, context: Context, reply: Utterance, words: Sequence[str]) -> np.ndarray:
        """Return how much the score of a reply rises if one of its words becomes another.

        Args:
            context: as in `score`.
            reply: T words.
            words: W others.

        Returns:
            (T, W): the product of the score's gradient by the embedding of the word at a place, and the difference of the
            two embeddings.
        """


@runtime_checkable
class VocabularyRanker(SlopedRanker, Protocol):
    """A ranker with a list of the words that it reads as one token each, for attacks that append any of them."""

    def vocabulary(self) -> Sequence[str]:
        """Return V words that are read as one token each, in a fixed order; the same object at every call."""

    def reads(self, reply: Utterance, words: Utterance) -> bool:
        """Return whether a reply with vocabulary words behind it keeps its tokens, with one for each word, none cut."""


def unread_of(ranker: Ranker, context: Context, candidates: Sequence[Utterance]) -> Unread:
    """Count the turns and replies that a ranker left out of scored texts; zero if it does not count them."""
    return ranker.unread(context, candidates) if isinstance(ranker, LimitedRanker) else Unread()


def first_read(context: Context, fits: Callable[[Context], bool]) -> int:
    """Return the index of the oldest turn that is read: that of the newest turn if no more fit.

    Args:
        context: a turn or more.
        fits: whether so many of the newest turns do; never fewer of them where more do.
    """
    if len(context) < 2 or fits(context):
        return 0
    return bisect.bisect_left(range(len(context) - 1), True, lo=1, key=lambda start: fits(context[start:]))


def require_words(utterances: Iterable[object], where: str) -> None:
    """Raise a DataError if an utterance is a text, whose letters would be taken for words."""
    for utterance in utterances:
        if isinstance(utterance, str):
            fix = 'give each utterance as its words, ("how", "are", "you"), and a context as a tuple of utterances'
            raise DataError("an utterance is a tuple of words", where=where, got=repr(utterance), fix=fix)


def scores_of(ranker: Ranker, pairs: Sequence[Pair]) -> list[np.ndarray]:
    """Return the scores of many pairs, batched if the ranker can.

    Returns:
        Of each pair the scores of its candidates (C,) float64.

    Raises:
        RankerError: the ranker raised, or did not give one finite number for each candidate.
        DataError: an utterance is a text, not its words.
    """
    for context, candidates in pairs[:1]:
        require_words((*context, *candidates), "scores_of")
    return _all_scored(outcomes_of(ranker, pairs))


def outcomes_of(ranker: Ranker, pairs: Sequence[Pair]) -> list[np.ndarray | RankerError]:
    """Return the scores of many pairs; a pair that fails costs no other pair its scores.

    Returns:
        Of each pair the scores of its candidates (C,) float64, or why there are none.

    Raises:
        RefusedModelError: a server takes no such key or has no such model, which would cost every pair its scores.
    """
    if not pairs:
        return []
    if isinstance(ranker, BatchRanker):
        outcomes = _batched(ranker, pairs)
        # A failed batch does not tell which pair is the cause.
        failed = all(isinstance(outcome, RankerError) for outcome in outcomes)
        return [_batched(ranker, [pair])[0] for pair in pairs] if len(pairs) > 1 and failed else outcomes
    return [_single(ranker, pair) for pair in pairs]


def compared_outcomes(ranker: Ranker, pairs: Sequence[Pair]) -> list[np.ndarray | RankerError]:
    """Return `outcomes_of`, with log-odds instead of probabilities, which hardly move near 0 and 1.

    Args:
        ranker: any; one with `gives_probabilities = True` has its scores spread so.
        pairs: contexts with their candidates.
    """
    outcomes = outcomes_of(ranker, pairs)
    if not getattr(ranker, "gives_probabilities", False):
        return outcomes
    return [scores if isinstance(scores, RankerError) else _log_odds(scores) for scores in outcomes]


def compared_scores(ranker: Ranker, pairs: Sequence[Pair]) -> list[np.ndarray]:
    """Return `compared_outcomes`, but a pair without scores is an error; errors as of `scores_of`."""
    return _all_scored(compared_outcomes(ranker, pairs))


def _all_scored(outcomes: Sequence[np.ndarray | RankerError]) -> list[np.ndarray]:
    all_scores = []
    for outcome in outcomes:
        if isinstance(outcome, RankerError):
            raise outcome
        all_scores.append(outcome)
    return all_scores


def _log_odds(probabilities: np.ndarray) -> np.ndarray:
    """Return log-odds, finite ones of 0 and 1 too."""
    kept = np.clip(probabilities, np.finfo(np.float64).tiny, 1 - np.finfo(np.float64).epsneg)
    return np.asarray(np.log(kept) - np.log1p(-kept))


def _batched(ranker: BatchRanker, pairs: Sequence[Pair]) -> list[np.ndarray | RankerError]:
    try:
        results = list(ranker.score_all(pairs))
    except RefusedModelError:
        raise
    except (Exception, SystemExit) as error:
        return [_died(ranker, error)] * len(pairs)
    if len(results) != len(pairs):
        return [_wrong(ranker, "answers another number of contexts", f"{len(results)} for {len(pairs)}")] * len(pairs)
    return [
        scores if isinstance(scores, RankerError) else _checked(ranker, scores, candidates)
        for scores, (_, candidates) in zip(results, pairs, strict=True)
    ]


def _single(ranker: Ranker, pair: Pair) -> np.ndarray | RankerError:
    context, candidates = pair
    try:
        raw_scores = ranker.score(context, candidates)
    except RefusedModelError:
        raise
    except (Exception, SystemExit) as error:
        return _died(ranker, error)
    return _checked(ranker, raw_scores, candidates)


def _checked(ranker: Ranker, scores: object, candidates: Sequence[Utterance]) -> np.ndarray | RankerError:
    """Return the scores as an array, or the error in them."""
    # A tuple is how a function returns several things: scores and something else.
    if isinstance(scores, tuple | str | bytes | dict | set):
        return _wrong(ranker, "returns no list of scores", f"a {type(scores).__name__}: {repr(scores)[:80]}")
    try:
        array = np.asarray(scores, dtype=np.float64)
    except Exception as error:
        return _wrong(ranker, "returns scores that are no numbers", f"{type(error).__name__}: {error}"[:200])
    if array.shape != (len(candidates),):
        got = f"shape {array.shape} for {len(candidates)} candidates"
        return _wrong(ranker, "does not return one score for each candidate", got)
    if not np.isfinite(array).all():
        index = int(np.flatnonzero(~np.isfinite(array))[0])
        got = f"{array[index]} for candidate {index + 1}: {' '.join(candidates[index])[:80]!r}"
        return _wrong(ranker, "gives a score that is not finite", got)
    return array


def _wrong(ranker: Ranker, what: str, got: str) -> RankerError:
    fix = "return a list or an array with one finite number for each candidate, higher for better ones"
    return RankerError(f"the ranker {what}", where=type(ranker).__name__, got=got, fix=fix)


def _died(ranker: Ranker, error: BaseException) -> RankerError:
    if isinstance(error, RankerError):
        return error
    if is_terminated(error):
        raise error
    died = RankerError("the ranker raised an error", where=type(ranker).__name__, got=f"{type(error).__name__}: {error}")
    died.__cause__ = error
    return died


NO_CONTEXT: Context = ((),)
"""A context of one turn without a word."""


def overlap(context: Context, reply: Utterance) -> float:
    """Return the shared distinct words as a share of the fewer distinct words; 0 if a text has none."""
    context_words, replied = set().union(*context), set(reply)
    return len(context_words & replied) / max(min(len(context_words), len(replied)), 1)


class Constant:
    """A ranker that finds all candidates alike."""

    is_free = True

    def score(self, context: Context, candidates: Sequence[Utterance]) -> list[float]:
        """Return zeros."""
        return [0.0] * len(candidates)


class Longest:
    """A ranker that prefers candidates of many words."""

    is_free = True

    def score(self, context: Context, candidates: Sequence[Utterance]) -> list[float]:
        """Return the numbers of words."""
        return [float(len(reply)) for reply in candidates]


class Shortest:
    """A ranker that prefers candidates of few words."""

    is_free = True

    def score(self, context: Context, candidates: Sequence[Utterance]) -> list[float]:
        """Return the numbers of words, negative."""
        return [-float(len(reply)) for reply in candidates]


class WordOverlap:
    """A ranker that prefers candidates whose words the context holds."""

    is_free = True

    def score(self, context: Context, candidates: Sequence[Utterance]) -> list[float]:
        """Return the overlaps, from 0 to 1."""
        return [overlap(context, reply) for reply in candidates]


class ResponseOnly(LimitedRanker):
    """A ranker that reads candidates without their context.

    Args:
        ranker: the one that is asked.
    """

    def __init__(self, ranker: Ranker) -> None:
        self.ranker = ranker
        self.gives_probabilities = bool(getattr(ranker, "gives_probabilities", False))
        self.is_free = bool(getattr(ranker, "is_free", False))

    def score_all(self, pairs: Sequence[Pair]) -> list[np.ndarray | RankerError]:
        return outcomes_of(self.ranker, [(NO_CONTEXT, candidates) for _, candidates in pairs])

    def unread(self, context: Context, candidates: Sequence[Utterance]) -> Unread:
        return Unread(replies=unread_of(self.ranker, NO_CONTEXT, candidates).replies)


class TermCosine(ABC):
    """A ranker by the cosine of a context's and a candidate's weighted counts.

    Args:
        turns_with: of each word, the number of turns that hold it.
        num_turns: in all.
        average_length: words of a turn.
    """

    is_free = True

    def __init__(self, turns_with: Mapping[str, int], num_turns: int, average_length: float) -> None:
        self._turns_with, self._num_turns, self._average = turns_with, num_turns, average_length

    @classmethod
    def fit(cls, contexts: Iterable[Context]) -> Self:
        """Return a ranker with counts of the words of contexts, each distinct turn once.

        Args:
            contexts: of a training split.

        Raises:
            DataError: they hold no word.
        """
        turns_with, turns, num_words = Counter[str](), TextNumbers(), 0
        for turn in filter(None, chain.from_iterable(contexts)):
            require_words((turn,), cls.__name__)
            num_before = len(turns)
            if turns.number(" ".join(turn)) == num_before:
                turns_with.update(set(turn))
                num_words += len(turn)
        if not turns:
            fix = "give the contexts of a training split"
            raise DataError("there are no words to fit a ranker on", where=cls.__name__, got="no turn that has a word", fix=fix)
        return cls(turns_with, len(turns), num_words / len(turns))

    def score(self, context: Context, candidates: Sequence[Utterance]) -> list[float]:
        """Return cosines, from 0 to 1; 0 for a candidate, or behind a context, without a word."""
        context_weights = self._weights(tuple(chain.from_iterable(context)))
        return [_cosine(context_weights, self._weights(reply)) for reply in candidates]

    def _weights(self, words: Utterance) -> dict[str, float]:
        return {word: self._weight(count, len(words), self._turns_with.get(word, 0)) for word, count in Counter(words).items()}

    @abstractmethod
    def _weight(self, count: int, length: int, turns_with: int) -> float:
        """Return the weight of a word in a text."""


class TfIdf(TermCosine):
    """A term cosine with counts weighted by how rare words are."""

    def _weight(self, count: int, length: int, turns_with: int) -> float:
        return count * (math.log((1 + self._num_turns) / (1 + turns_with)) + 1)


class Bm25(TermCosine):
    """A term cosine with the weights of BM25, under which repeating a word pays less and less."""

    def _weight(self, count: int, length: int, turns_with: int) -> float:
        rarity = math.log(1 + (self._num_turns - turns_with + 0.5) / (turns_with + 0.5))
        damping = SATURATION * (1 - LENGTH_SHARE + LENGTH_SHARE * length / self._average)
        return rarity * count * (SATURATION + 1) / (count + damping)


def _cosine(context_weights: Mapping[str, float], reply_weights: Mapping[str, float]) -> float:
    """Return a cosine whose sums do not depend on the order of words, so that shuffled candidates tie."""
    product = math.fsum(weight * context_weights[word] for word, weight in reply_weights.items() if word in context_weights)
    norms = math.fsum(weight * weight for weight in context_weights.values()) * math.fsum(
        weight * weight for weight in reply_weights.values()
    )
    return product / math.sqrt(norms) if norms else 0.0
