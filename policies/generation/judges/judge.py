"""The protocol of judges, which are fitted on pairs of two sides and then tell the side of others, and simple judges.

A new judge is made for every fold, fitted once, and asked about pairs of sources that it has not seen. Its scores are above 0
for the first side, below for the second, and exactly 0 if it cannot say; log-odds if it has them. A judge of your own is
`path/file.py:Name` and is called without arguments.

    Judge           the protocol
    Parsing         a judge that asks a chat model
    Featured        a judge that can name the words it uses
    judges          the registry; `asked.judge_maker` makes judges by name

`Remembered` computes numbers of pairs once, however many folds need them.

Control judges know no language: any judge must beat them before its AdverSuc means anything. Each uses one property of a
pair, by log-odds of its frequency on either side in the fit, with one pair added to each side. Length is one because it alone
tells the machine replies of the published sample in four of five pairs.

A Hugging Face classifier is a judge that is not fitted: it was trained elsewhere, such as to tell people's replies from
machines' or from random ones. The pairs of a fit set the threshold with the fewest errors, and whether the first side is
above or below it.

`LinearJudge` is a linear support vector machine on unigrams: the first judge of Li et al. 2017 (table 2, "SVM+Unigram"). A
pair is the set of its words, those of all turns before the reply and of the reply, together as in the paper or apart; its
vector has length 1. Words that the fit lacks are ignored. The margin is exactly 0 for a pair without a known word, because
there is no free term: equal sides make no verdict. Source: Joachims 1999, "Making large-scale SVM learning practical"; here
liblinear's dual solver, by scikit-learn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, runtime_checkable

import numpy as np

from parley.envs.core.errors import JudgeError
from parley.envs.core.registry import Registry
from parley.envs.core.storage.copies import fetched_model
from parley.envs.core.storage.uris import HUGGING_FACE
from parley.envs.corpora.pairs.compiled import RepliedPair
from parley.policies.chat.addresses import GGUF, OPENAI
from parley.policies.chat.settings import DEFAULT, ChatModelSettings
from parley.policies.ranking.ranker import Ranker, scores_of

Numbers = Callable[[Sequence[RepliedPair]], np.ndarray]
"""A function from N pairs to a number of each, (N,)."""


class Remembered:
    """Numbers of pairs that are computed once.

    Args:
        numbers: function that computes them; the number of a pair does not depend on the others.
    """

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers
        self._scores: dict[RepliedPair, float] = {}

    def __call__(self, pairs: Sequence[RepliedPair]) -> np.ndarray:
        """Return the number of each pair, (N,)."""
        unknown = [pair for pair in dict.fromkeys(pairs) if pair not in self._scores]
        if unknown:
            self._scores.update(zip(unknown, self._numbers(unknown).tolist(), strict=True))
        return np.array([self._scores[pair] for pair in pairs])


def ranked(ranker: Ranker, pairs: Sequence[RepliedPair]) -> np.ndarray:
    """Return a ranker's score of each reply in its context, (N,).

    Raises:
        RankerError: it raised, or gave no finite number.
    """
    return np.concatenate(scores_of(ranker, [(pair.context, [pair.reply]) for pair in pairs]))


@runtime_checkable
class Judge(Protocol):
    """A model that tells two sides apart; its score of a pair does not depend on other pairs."""

    def fit(self, pairs: Sequence[RepliedPair], labels: np.ndarray, seed: int) -> None:
        """Fit the judge; called once.

        Args:
            pairs: N of them.
            labels: (N,) whether each is of the first side; both sides are there.
            seed: of all that is drawn.
        """

    def score(self, pairs: Sequence[RepliedPair]) -> np.ndarray | list[float]:
        """Return one finite number for each pair, above 0 for the first side."""


@runtime_checkable
class Featured(Protocol):
    """A judge that can name the words it uses."""

    def features(self, num: int) -> list[tuple[str, float]]:
        """Return words with their weights: the `num` most positive ones and the `num` most negative ones."""


@runtime_checkable
class Parsing(Protocol):
    """A judge that reads answers, some of which may say nothing."""

    def num_unparsable(self, pairs: Sequence[RepliedPair]) -> int:
        """Return the number of pairs whose answer it could not read."""


@runtime_checkable
class Answering(Protocol):
    """A judge that asks a chat model, some answers of which may be no reply."""

    def no_replies(self, pairs: Sequence[RepliedPair]) -> Mapping[str, int]:
        """Return the number of pairs without a reply, by `AnswerKind.column`."""


@dataclass(frozen=True)
class JudgeSettings:
    """Settings that judges are made with.

    Args:
        forward: a response model, whose log p(reply | source) the judge svm-neural reads; empty for none.
        backward: one that was fitted to say the source, for log p(source | reply); empty for none.
        separate: whether unigrams of source and reply are features of their own.
        embedding: width of a network's word vectors.
        hidden: width of its states.
        device: torch device.
        chat: settings of loading or asking a chat model.
        answers: folder of a run in which a chat model's answers are kept; empty keeps none.
    """

    forward: str = ""
    backward: str = ""
    separate: bool = False
    embedding: int = 100
    hidden: int = 128
    device: str = "cpu"
    chat: ChatModelSettings = DEFAULT
    answers: str = ""


judges = Registry("judge", "parley.judges")
"""Functions of `JudgeSettings`; each loads the shared part of its judges, and returns a maker of one for a fold."""
judges.register(
    "svm-unigram", "linear SVM on unigrams of source and reply", "parley.policies.generation.judges.judge:svm_unigram"
)
judges.register(
    "concatenated", "network: vectors of utterances side by side", "parley.policies.generation.judges.neural:concatenated"
)
judges.register(
    "hierarchical", "network: an LSTM over vectors of utterances", "parley.policies.generation.judges.neural:hierarchical"
)
judges.register(
    "svm-neural", "SVM on unigrams, network and --forward, --backward", "parley.policies.generation.judges.neural:svm_neural"
)

CONTROLS = {
    "constant": "says nothing: ERE .25, AdverSuc .5",
    "length": "words of the reply, counted",
    "first-word": "first word of the reply",
    "copy": "share of the reply's words that stand in the source",
    "reply-only": "linear SVM on unigrams of the reply",
}
"""Judges beside all others, with the property that each uses."""
for _name, _summary in CONTROLS.items():
    judges.register(_name, _summary, f"parley.policies.generation.judges.judge:{_name.replace('-', '_')}")

JUDGE_KINDS = {
    f"{HUGGING_FACE}FOLDER": "a classifier of Hugging Face, which is not fitted: its threshold is; or a chat model",
    f"{GGUF}FILE": "a chat model that says who wrote a reply",
    f"{OPENAI}URL#MODEL": "one behind a server",
    "path/file.py:Name": "a class of your own, or a chat model of your own",
}
"""Forms of names that are not registered, with their meanings."""


def scores_by(judge: Judge, pairs: Sequence[RepliedPair]) -> np.ndarray:
    """Return the scores of pairs, (N,) float64.

    Raises:
        JudgeError: the judge did not give one finite number for each pair.
    """
    scores = np.asarray(judge.score(pairs), dtype=np.float64)
    if scores.shape != (len(pairs),) or not np.isfinite(scores).all():
        got = f"shape {scores.shape} for {len(pairs)} pairs" if scores.shape != (len(pairs),) else "a number that is not finite"
        fix = "return one finite number for each pair, above 0 for the first side"
        raise JudgeError("the judge does not give one score for each pair", where=type(judge).__name__, got=got, fix=fix)
    return scores


_TENTHS = 10


class PropertyJudge(Judge):
    """A judge by one property of a pair."""

    def __init__(self, key: Callable[[RepliedPair], Hashable]) -> None:
        self._key = key
        self._log_odds: dict[Hashable, float] = {}

    def fit(self, pairs: Sequence[RepliedPair], labels: np.ndarray, seed: int) -> None:
        keys, sides = list(map(self._key, pairs)), labels.tolist()
        first = Counter(key for key, label in zip(keys, sides, strict=True) if label)
        second = Counter(key for key, label in zip(keys, sides, strict=True) if not label)
        # Exactly 0 where the counts are equal.
        self._log_odds = {key: float(np.log((first[key] + 1) / (second[key] + 1))) for key in dict.fromkeys(keys)}

    def score(self, pairs: Sequence[RepliedPair]) -> list[float]:
        return [self._log_odds.get(self._key(pair), 0.0) for pair in pairs]


def constant(settings: JudgeSettings) -> Callable[[], Judge]:
    """Return a maker of judges that find all pairs alike."""
    return partial(PropertyJudge, lambda pair: None)


def length(settings: JudgeSettings) -> Callable[[], Judge]:
    """Return a maker of judges by the number of words of the reply."""
    return partial(PropertyJudge, lambda pair: len(pair.reply))


def first_word(settings: JudgeSettings) -> Callable[[], Judge]:
    """Return a maker of judges by the first word of the reply."""
    return partial(PropertyJudge, lambda pair: pair.reply[0])


def copy(settings: JudgeSettings) -> Callable[[], Judge]:
    """Return a maker of judges by the share of the reply's words that are in the source, in tenths."""
    return partial(PropertyJudge, _copied)


def _copied(pair: RepliedPair) -> int:
    source_words = set(pair.context[-1])
    return _TENTHS * sum(word in source_words for word in pair.reply) // len(pair.reply)


class ThresholdJudge(Judge):
    """A threshold on numbers that are not fitted.

    Args:
        numbers: of pairs.
    """

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers
        self._threshold, self._sign = 0.0, 1.0

    def fit(self, pairs: Sequence[RepliedPair], labels: np.ndarray, seed: int) -> None:
        self._threshold, self._sign = best_threshold(self._numbers(pairs), labels)

    def score(self, pairs: Sequence[RepliedPair]) -> np.ndarray:
        return self._sign * (self._numbers(pairs) - self._threshold)


def best_threshold(scores: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """Return the threshold with the fewest errors, half-way between two scores, and its sign (1: first side above).

    Args:
        scores: (N,) numbers.
        labels: (N,) whether each is of the first side.
    """
    order = np.argsort(scores, kind="stable")
    ranked, sides = scores[order], labels[order]
    # Pairs of the first side below each position; a threshold at position i leaves i pairs below.
    firsts = np.concatenate([[0], np.cumsum(sides)])
    positions = np.arange(len(sides) + 1)
    errors = firsts + (len(sides) - positions) - (firsts[-1] - firsts)
    between = np.concatenate([[True], ranked[1:] > ranked[:-1], [True]])
    above, below = (np.where(between, counts, len(sides) + 1) for counts in (errors, len(sides) - errors))
    sign, counts = (1.0, above) if above.min() <= below.min() else (-1.0, below)
    best = int(counts.argmin())
    ends = np.concatenate([[ranked[0] - 1], ranked, [ranked[-1] + 1]])
    return float(ends[best] + ends[best + 1]) / 2, sign


def classifier(name: str, device: str) -> Callable[[], Judge]:
    """Return a maker of judges that share the model of a folder and its earlier scores.

    Args:
        name: a folder as `save_pretrained` wrote it, or its URI; raises as `load_hugging_face_ranker`.
        device: torch device.
    """
    from parley.policies.ranking.encoders import load_hugging_face_ranker

    return partial(ThresholdJudge, Remembered(partial(ranked, load_hugging_face_ranker(fetched_model(name), device))))


OF_SOURCE = "s:"
"""Mark before words of the source if they are features of their own."""
_C = 1.0
_MAX_ITERATIONS = 2000


class LinearJudge(Judge):
    """A linear SVM on unigrams, and on further features if given.

    Args:
        words: of a pair.
        numbers: further features (N, F) of N pairs; none when not given.
    """

    def __init__(
        self,
        words: Callable[[RepliedPair], Iterator[str]],
        numbers: Callable[[Sequence[RepliedPair]], np.ndarray] | None = None,
    ) -> None:
        self._words, self._numbers = words, numbers
        self._ids: dict[str, int] = {}
        self._svm: Any = None

    def fit(self, pairs: Sequence[RepliedPair], labels: np.ndarray, seed: int) -> None:
        from sklearn.svm import LinearSVC

        for pair in pairs:
            for word in self._words(pair):
                self._ids.setdefault(word, len(self._ids))
        self._svm = LinearSVC(C=_C, fit_intercept=False, dual=True, max_iter=_MAX_ITERATIONS, random_state=seed % 2**32)
        self._svm.fit(self._features(pairs), labels)

    def score(self, pairs: Sequence[RepliedPair]) -> np.ndarray:
        return np.asarray(self._svm.decision_function(self._features(pairs)))

    def features(self, num: int) -> list[tuple[str, float]]:
        """Return words with their weights, as `Featured`."""
        words = list(self._ids)
        weights = self._svm.coef_[0][: len(words)]
        order = np.argsort(weights, kind="stable")
        return [(words[index], float(weights[index])) for index in dict.fromkeys([*order[:num], *order[-num:]])]

    def _features(self, pairs: Sequence[RepliedPair]) -> Any:
        """Return the features (N, V + F), sparse."""
        from scipy.sparse import csr_matrix, hstack

        word_ids = [sorted({self._ids[word] for word in self._words(pair) if word in self._ids}) for pair in pairs]
        sizes = np.array([len(ids) for ids in word_ids])
        ends = np.concatenate([[0], np.cumsum(sizes)])
        values = np.repeat(1 / np.sqrt(np.maximum(sizes, 1)), sizes)
        columns = np.fromiter((word_id for ids in word_ids for word_id in ids), dtype=np.int32, count=int(ends[-1]))
        unigrams = csr_matrix((values, columns, ends), shape=(len(pairs), len(self._ids)))
        return unigrams if self._numbers is None else hstack([unigrams, csr_matrix(self._numbers(pairs))], format="csr")


def svm_unigram(settings: JudgeSettings) -> Callable[[], Judge]:
    """Return a maker of judges on the words of source and reply."""
    return partial(LinearJudge, apart if settings.separate else together)


def reply_only(settings: JudgeSettings) -> Callable[[], Judge]:
    """Return a maker of judges on the words of the reply alone."""
    return partial(LinearJudge, lambda pair: iter(pair.reply))


def together(pair: RepliedPair) -> Iterator[str]:
    """Return all words of a pair."""
    for turn in (*pair.context, pair.reply):
        yield from turn


def apart(pair: RepliedPair) -> Iterator[str]:
    """Return the words of the reply, and marked those of the turns before."""
    for turn in pair.context:
        yield from (f"{OF_SOURCE}{word}" for word in turn)
    yield from pair.reply
