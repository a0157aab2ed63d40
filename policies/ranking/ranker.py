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
"""

from __future__ import annotations

import bisect
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from parley.envs.core.errors import RankerError, RefusedModelError
from parley.envs.core.own_code import is_terminated
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.ranking.groups import Context

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
