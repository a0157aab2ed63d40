"""What ranks: any model that gives a score to each candidate reply of a context, asked in words.

Evaluation, attacks and training against them know rankers by this protocol alone. `policies/ranking/rankers.py` finds them by
name; a user's own is named as `path/file.py:Name` and needs `score` only.

    Ranker               the protocol
    BatchRanker          what a ranker offers that reads many contexts side by side
    SlopedRanker         what one offers that can be attacked by its gradient
    VocabularyRanker     what one offers beside that if all of its vocabulary can be searched
    LimitedRanker        one that reads no more than so much, and tells what it leaves out
    outcomes_of          scores of many pairs, and of each that could not be scored the reason
    scores_of            the same, where a pair without scores is an error
    compared_outcomes    the first, on a scale on which differences mean as much anywhere
    compared_scores      the second on that scale

Rankers that know no language: what a model must beat before its figures say anything.

Longest and shortest are here because length alone tells many corpora's positives; overlap because accuracy follows it (Li et
al. 2019, equation 1); a ranker without its context because wrong candidates may betray themselves.

Cosines of weighted word counts, fitted on training contexts: how far a candidate uses the context's rare words.

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
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.ranking.groups import LENGTH_SHARE, SATURATION, Context

Scores = list[float] | np.ndarray
"""One finite number for each candidate; higher is better."""
Pair = tuple[Context, Sequence[Utterance]]
"""A context and the candidates to score in it."""


class UnscoredError(RankerError):
    """Some candidates of a context have no score, for each reason of its own; others, asked alone, may have theirs."""


class Ranker(Protocol):
    """Scores candidates; what it gives to one does not depend on the others, on their order, or on earlier calls.

    One whose scores are probabilities may say so by `gives_probabilities = True`, see `compared_outcomes`.
    """

    def score(self, context: Context, candidates: Sequence[Utterance]) -> Scores:
        """Scores the candidates of one context.

        Args:
            context: turns, oldest first, each its words; a model reads as many of the newest as it was made for.
            candidates: replies, each its words; any of them may be empty.
        """


@runtime_checkable
class BatchRanker(Ranker, Protocol):
    """A ranker that is faster when it reads many contexts side by side; those that inherit from it need `score_all` alone."""

    def score(self, context: Context, candidates: Sequence[Utterance]) -> Scores:
        """As one of many."""
        (scores,) = self.score_all([(context, candidates)])
        if isinstance(scores, RankerError):
            raise scores
        return scores

    def score_all(self, pairs: Sequence[Pair]) -> Sequence[Scores | RankerError]:
        """Scores of each pair's candidates, as `score` gives them; or why there are none of that pair."""


class Unread(NamedTuple):
    """What a ranker leaves out of a context and its candidates.

    Args:
        turns: that are not read, or not whole; the oldest ones are left out first.
        replies: candidates that are not read whole.
    """

    turns: int = 0
    replies: int = 0

    def __str__(self) -> str:
        return f"{self.turns} turns and {self.replies} replies"


class LimitedRanker(BatchRanker):
    """A ranker that reads no more than so much of a text; a class of a user's own may inherit from it."""

    @abstractmethod
    def unread(self, context: Context, candidates: Sequence[Utterance]) -> Unread:
        """What it left out of a context and of candidates, which it has scored."""


@runtime_checkable
class SlopedRanker(Ranker, Protocol):
    """A ranker that says, to first order, what words would do to a score: what a white-box attack goes by."""

    def slopes(self, context: Context, reply: Utterance, words: Sequence[str]) -> np.ndarray:
        """How much the score of a reply rises if one of its words becomes another.

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
    """A ranker that says which words it reads as one token each: what an attack searches that appends any of them."""

    def vocabulary(self) -> Sequence[str]:
        """V words that are read as one token each, in a fixed order; the same object at every call."""

    def reads(self, reply: Utterance, words: Utterance) -> bool:
        """Whether a reply with words of the vocabulary behind it is read as its own tokens and one for each word, none cut."""


def unread_of(ranker: Ranker, context: Context, candidates: Sequence[Utterance]) -> Unread:
    """What a ranker left out of what it has scored; nothing where it does not say."""
    return ranker.unread(context, candidates) if isinstance(ranker, LimitedRanker) else Unread()


def first_read(context: Context, fits: Callable[[Context], bool]) -> int:
    """The place of the oldest turn that is read: that of the newest turn where no more fit.

    Args:
        context: a turn or more.
        fits: whether so many of the newest turns do; never fewer of them where more do.
    """
    if len(context) < 2 or fits(context):
        return 0
    return bisect.bisect_left(range(len(context) - 1), True, lo=1, key=lambda start: fits(context[start:]))


def scores_of(ranker: Ranker, pairs: Sequence[Pair]) -> list[np.ndarray]:
    """Scores of many pairs, batched where the ranker can.

    Returns:
        Of each pair the scores of its candidates (C,) float64.

    Raises:
        RankerError: the ranker raised, or did not give one finite number for each candidate.
    """
    return _all_scored(outcomes_of(ranker, pairs))


def outcomes_of(ranker: Ranker, pairs: Sequence[Pair]) -> list[np.ndarray | RankerError]:
    """Scores of many pairs; a pair that could not be scored costs no other pair its scores.

    Returns:
        Of each pair the scores of its candidates (C,) float64, or why there are none.

    Raises:
        RefusedModelError: a server takes no such key or has no such model, which would cost every pair its scores.
    """
    if not pairs:
        return []
    if isinstance(ranker, BatchRanker):
        found = _batched(ranker, pairs)
        # A batch that cannot be read does not say which pair is to blame.
        return [_batched(ranker, [pair])[0] for pair in pairs] if len(pairs) > 1 and _all_failed(found) else found
    return [_single(ranker, pair) for pair in pairs]


def compared_outcomes(ranker: Ranker, pairs: Sequence[Pair]) -> list[np.ndarray | RankerError]:
    """As `outcomes_of`, with log-odds in the place of probabilities, which hardly move near 0 and 1; other scores as they are.

    Args:
        ranker: any; one with `gives_probabilities = True` has its scores spread so.
        pairs: contexts with their candidates.
    """
    found = outcomes_of(ranker, pairs)
    if not getattr(ranker, "gives_probabilities", False):
        return found
    return [scores if isinstance(scores, RankerError) else _log_odds(scores) for scores in found]


def compared_scores(ranker: Ranker, pairs: Sequence[Pair]) -> list[np.ndarray]:
    """As `compared_outcomes`, where a pair without scores is an error; errors as those of `scores_of`."""
    return _all_scored(compared_outcomes(ranker, pairs))


def _all_scored(outcomes: Sequence[np.ndarray | RankerError]) -> list[np.ndarray]:
    found = []
    for outcome in outcomes:
        if isinstance(outcome, RankerError):
            raise outcome
        found.append(outcome)
    return found


def _log_odds(probabilities: np.ndarray) -> np.ndarray:
    """Finite ones, of 0 and 1 too."""
    kept = np.clip(probabilities, np.finfo(np.float64).tiny, 1 - np.finfo(np.float64).epsneg)
    return np.asarray(np.log(kept) - np.log1p(-kept))


def _batched(ranker: BatchRanker, pairs: Sequence[Pair]) -> list[np.ndarray | RankerError]:
    try:
        found = list(ranker.score_all(pairs))
    except RefusedModelError:
        raise
    except (Exception, SystemExit) as error:
        return [_died(ranker, error)] * len(pairs)
    if len(found) != len(pairs):
        return [_wrong(ranker, "answers another number of contexts", f"{len(found)} for {len(pairs)}")] * len(pairs)
    return [
        scores if isinstance(scores, RankerError) else _checked(ranker, scores, candidates)
        for scores, (_, candidates) in zip(found, pairs, strict=True)
    ]


def _single(ranker: Ranker, pair: Pair) -> np.ndarray | RankerError:
    context, candidates = pair
    try:
        found = ranker.score(context, candidates)
    except RefusedModelError:
        raise
    except (Exception, SystemExit) as error:
        return _died(ranker, error)
    return _checked(ranker, found, candidates)


def _all_failed(outcomes: Sequence[np.ndarray | RankerError]) -> bool:
    return all(isinstance(outcome, RankerError) for outcome in outcomes)


def _checked(ranker: Ranker, scores: object, candidates: Sequence[Utterance]) -> np.ndarray | RankerError:
    """The scores as an array, or what is wrong with them."""
    # A tuple is how a function returns several things: scores and something else.
    if isinstance(scores, tuple | str | bytes | dict | set):
        return _wrong(ranker, "returns no list of scores", f"a {type(scores).__name__}: {repr(scores)[:80]}")
    try:
        found = np.asarray(scores, dtype=np.float64)
    except Exception as error:
        return _wrong(ranker, "returns scores that are no numbers", f"{type(error).__name__}: {error}"[:200])
    if found.shape != (len(candidates),):
        got = f"shape {found.shape} for {len(candidates)} candidates"
        return _wrong(ranker, "does not return one score for each candidate", got)
    if not np.isfinite(found).all():
        place = int(np.flatnonzero(~np.isfinite(found))[0])
        got = f"{found[place]} for candidate {place + 1}: {' '.join(candidates[place])[:80]!r}"
        return _wrong(ranker, "gives a score that is not finite", got)
    return found


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
"""One turn without a word."""


def overlap(context: Context, reply: Utterance) -> float:
    """Distinct words that both hold, as a share of the fewer distinct words of the two; 0 where one has none."""
    said, replied = set().union(*context), set(reply)
    return len(said & replied) / max(min(len(said), len(replied)), 1)


class Constant:
    """Finds all candidates alike."""

    def score(self, context: Context, candidates: Sequence[Utterance]) -> list[float]:
        """Zeros."""
        return [0.0] * len(candidates)


class Longest:
    """Prefers candidates of many words."""

    def score(self, context: Context, candidates: Sequence[Utterance]) -> list[float]:
        """Numbers of words."""
        return [float(len(reply)) for reply in candidates]


class Shortest:
    """Prefers candidates of few words."""

    def score(self, context: Context, candidates: Sequence[Utterance]) -> list[float]:
        """Numbers of words, negative."""
        return [-float(len(reply)) for reply in candidates]


class WordOverlap:
    """Prefers candidates whose words the context holds."""

    def score(self, context: Context, candidates: Sequence[Utterance]) -> list[float]:
        """Overlaps, from 0 to 1."""
        return [overlap(context, reply) for reply in candidates]


class ResponseOnly(LimitedRanker):
    """A ranker that is shown candidates and no context.

    Args:
        ranker: the one that is asked.
    """

    def __init__(self, ranker: Ranker) -> None:
        self.ranker = ranker
        self.gives_probabilities = bool(getattr(ranker, "gives_probabilities", False))

    def score_all(self, pairs: Sequence[Pair]) -> list[np.ndarray | RankerError]:
        """What the ranker says of candidates behind one turn without a word."""
        return outcomes_of(self.ranker, [(NO_CONTEXT, candidates) for _, candidates in pairs])

    def unread(self, context: Context, candidates: Sequence[Utterance]) -> Unread:
        """Of the candidates alone."""
        return Unread(replies=unread_of(self.ranker, NO_CONTEXT, candidates).replies)


class TermCosine(ABC):
    """The cosine of a context's and a candidate's weighted counts.

    Args:
        turns_with: of each word, the number of turns that hold it.
        num_turns: in all.
        average_length: words of a turn.
    """

    def __init__(self, turns_with: Mapping[str, int], num_turns: int, average_length: float) -> None:
        self._turns_with, self._num_turns, self._average = turns_with, num_turns, average_length

    @classmethod
    def fit(cls, contexts: Iterable[Context]) -> Self:
        """Counts the words of contexts, each distinct turn once.

        Args:
            contexts: of a training split.

        Raises:
            DataError: they hold no word.
        """
        turns = {turn for context in contexts for turn in context if turn}
        if not turns:
            fix = "give the contexts of a training split"
            raise DataError("there are no words to fit a ranker on", where=cls.__name__, got="no turn that has a word", fix=fix)
        turns_with = Counter(chain.from_iterable(map(set, turns)))
        return cls(turns_with, len(turns), sum(map(len, turns)) / len(turns))

    def score(self, context: Context, candidates: Sequence[Utterance]) -> list[float]:
        """Cosines, from 0 to 1; 0 for a candidate, or behind a context, without a word."""
        said = self._weights(tuple(chain.from_iterable(context)))
        return [_cosine(said, self._weights(reply)) for reply in candidates]

    def _weights(self, words: Utterance) -> dict[str, float]:
        return {word: self._weight(count, len(words), self._turns_with.get(word, 0)) for word, count in Counter(words).items()}

    @abstractmethod
    def _weight(self, count: int, length: int, turns_with: int) -> float:
        """Of a word in a text."""


class TfIdf(TermCosine):
    """Counts, weighed by how rare words are."""

    def _weight(self, count: int, length: int, turns_with: int) -> float:
        return count * (math.log((1 + self._num_turns) / (1 + turns_with)) + 1)


class Bm25(TermCosine):
    """The weights of BM25, under which repeating a word pays less and less."""

    def _weight(self, count: int, length: int, turns_with: int) -> float:
        rarity = math.log(1 + (self._num_turns - turns_with + 0.5) / (turns_with + 0.5))
        damping = SATURATION * (1 - LENGTH_SHARE + LENGTH_SHARE * length / self._average)
        return rarity * count * (SATURATION + 1) / (count + damping)


def _cosine(said: Mapping[str, float], replied: Mapping[str, float]) -> float:
    """Sums that do not depend on the order of words, so that shuffled candidates tie."""
    product = math.fsum(weight * said[word] for word, weight in replied.items() if word in said)
    norms = math.fsum(weight * weight for weight in said.values()) * math.fsum(weight * weight for weight in replied.values())
    return product / math.sqrt(norms) if norms else 0.0
