"""What judges: anything that is fitted on pairs of two sides and then says of others which side they are of.

A judge is made afresh for every fold, fitted once, and asked about pairs of sources that it has not seen. Its scores are above
0 for the first side, below for the second, and exactly 0 where it cannot say; log-odds where it has them. A judge of your own
is named as `path/file.py:Name` and is called without arguments.

    Judge           the protocol
    Parsing         what a judge offers that asks a chat model
    Featured        what a judge offers that can say which words it goes by
    judges          the registry; `makers.py` finds what makes a judge of a name

Numbers that a model gives to pairs whoever judges: worked out once, however many folds ask for them.

Judges that know no language: what a judge must beat before its AdverSuc says anything.

Each looks at one property of a pair and goes by how often either side had it in the fit: log-odds with one pair added to each
side. Length is here because it alone tells the machine replies of the published sample in four of five pairs.

A classifier of Hugging Face as a judge: it is not fitted, but from which score on a pair is of the first side is.

Such classifiers were trained elsewhere, such as to tell people's replies from machines' or from random ones. What they say of
the pairs of a fit gives the threshold, and whether the first side is above or below it, that err least there.

A linear support vector machine on unigrams: the first judge of Li et al. 2017 (table 2, "SVM+Unigram").

A pair is the set of its words, those of all turns before the reply and of the reply together as in the paper, or apart; its
vector has length 1. Words of the fit are known, others are not looked at. The margin is exactly 0 for a pair without a known
word alone, because there is no free term: equal sides make no verdict.

Source: Joachims 1999, "Making large-scale SVM learning practical"; here liblinear's dual solver, by scikit-learn.
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
"""Of N pairs a number each, (N,)."""


class Remembered:
    """Numbers that are kept.

    Args:
        numbers: what works them out; what it gives to a pair does not depend on the others.
    """

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers
        self._known: dict[RepliedPair, float] = {}

    def __call__(self, pairs: Sequence[RepliedPair]) -> np.ndarray:
        """(N,)."""
        unknown = [pair for pair in dict.fromkeys(pairs) if pair not in self._known]
        if unknown:
            self._known.update(zip(unknown, self._numbers(unknown).tolist(), strict=True))
        return np.array([self._known[pair] for pair in pairs])


def ranked(ranker: Ranker, pairs: Sequence[RepliedPair]) -> np.ndarray:
    """What a ranker says of each reply in its context, (N,).

    Raises:
        RankerError: it raised, or gave no finite number.
    """
    return np.concatenate(scores_of(ranker, [(pair.context, [pair.reply]) for pair in pairs]))


@runtime_checkable
class Judge(Protocol):
    """Tells two sides apart; what it says of a pair does not depend on what else it is asked."""

    def fit(self, pairs: Sequence[RepliedPair], labels: np.ndarray, seed: int) -> None:
        """Learns; called once.

        Args:
            pairs: N of them.
            labels: (N,) whether each is of the first side; both sides are there.
            seed: of all that is drawn.
        """

    def score(self, pairs: Sequence[RepliedPair]) -> np.ndarray | list[float]:
        """One finite number for each pair, above 0 for the first side."""


@runtime_checkable
class Featured(Protocol):
    """A judge that can say what it goes by."""

    def features(self, num: int) -> list[tuple[str, float]]:
        """Words with their weights: the `num` most positive ones and the `num` most negative ones."""


@runtime_checkable
class Parsing(Protocol):
    """A judge that reads answers, some of which may say nothing."""

    def num_unparsable(self, pairs: Sequence[RepliedPair]) -> int:
        """Of how many pairs it could not read the answer."""


@runtime_checkable
class Answering(Protocol):
    """A judge that asks a chat model, some answers of which may be no reply."""

    def no_replies(self, pairs: Sequence[RepliedPair]) -> Mapping[str, int]:
        """Of how many pairs it had no reply, by `AnswerKind.column`."""


@dataclass(frozen=True)
class JudgeSettings:
    """What judges are made with.

    Args:
        forward: a response model, whose log p(reply | source) the judge svm-neural reads; empty for none.
        backward: one that was fitted to say the source, for log p(source | reply); empty for none.
        separate: whether unigrams of source and reply are features of their own.
        embedding: width of a network's word vectors.
        hidden: width of its states.
        device: torch device.
        chat: how a chat model is loaded or asked.
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
"""Functions of `JudgeSettings`; each loads what judges of its kind share, and returns what makes one for a fold."""
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
"""Judges that stand beside all others, with what they go by."""
for _name, _summary in CONTROLS.items():
    judges.register(_name, _summary, f"parley.policies.generation.judges.judge:{_name.replace('-', '_')}")

JUDGE_KINDS = {
    f"{HUGGING_FACE}FOLDER": "a classifier of Hugging Face, which is not fitted: its threshold is; or a chat model",
    f"{GGUF}FILE": "a chat model that is asked who wrote a reply",
    f"{OPENAI}URL#MODEL": "one behind a server",
    "path/file.py:Name": "a class of your own, or a chat model of your own",
}
"""Names that are not registered, by their form, with what they stand for."""


def scores_by(judge: Judge, pairs: Sequence[RepliedPair]) -> np.ndarray:
    """The scores of pairs, (N,) float64.

    Raises:
        JudgeError: the judge did not give one finite number for each pair.
    """
    found = np.asarray(judge.score(pairs), dtype=np.float64)
    if found.shape != (len(pairs),) or not np.isfinite(found).all():
        got = f"shape {found.shape} for {len(pairs)} pairs" if found.shape != (len(pairs),) else "a number that is not finite"
        fix = "return one finite number for each pair, above 0 for the first side"
        raise JudgeError("the judge does not give one score for each pair", where=type(judge).__name__, got=got, fix=fix)
    return found


_TENTHS = 10


class PropertyJudge(Judge):
    """Goes by one property of a pair."""

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
    """All pairs alike."""
    return partial(PropertyJudge, lambda pair: None)


def length(settings: JudgeSettings) -> Callable[[], Judge]:
    """The number of words of the reply."""
    return partial(PropertyJudge, lambda pair: len(pair.reply))


def first_word(settings: JudgeSettings) -> Callable[[], Judge]:
    """The first word of the reply."""
    return partial(PropertyJudge, lambda pair: pair.reply[0])


def copy(settings: JudgeSettings) -> Callable[[], Judge]:
    """The share of the reply's words that stand in the source, in tenths."""
    return partial(PropertyJudge, _copied)


def _copied(pair: RepliedPair) -> int:
    said = set(pair.context[-1])
    return _TENTHS * sum(word in said for word in pair.reply) // len(pair.reply)


class ThresholdJudge(Judge):
    """A threshold of numbers that are not fitted.

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
    """The threshold that errs least, half-way between two scores, and 1 where the first side is above it, -1 where below.

    Args:
        scores: (N,) numbers.
        labels: (N,) whether each is of the first side.
    """
    order = np.argsort(scores, kind="stable")
    ranked, sides = scores[order], labels[order]
    # Of the first side below each place, of the second below it; a threshold at place i leaves i pairs below.
    firsts = np.concatenate([[0], np.cumsum(sides)])
    places = np.arange(len(sides) + 1)
    errors = firsts + (len(sides) - places) - (firsts[-1] - firsts)
    between = np.concatenate([[True], ranked[1:] > ranked[:-1], [True]])
    above, below = (np.where(between, each, len(sides) + 1) for each in (errors, len(sides) - errors))
    sign, counts = (1.0, above) if above.min() <= below.min() else (-1.0, below)
    place = int(counts.argmin())
    ends = np.concatenate([[ranked[0] - 1], ranked, [ranked[-1] + 1]])
    return float(ends[place] + ends[place + 1]) / 2, sign


def classifier(name: str, device: str) -> Callable[[], Judge]:
    """What makes judges of a folder, whose model they share, and what it said before.

    Args:
        name: a folder as `save_pretrained` wrote it, or its URI; nothing is downloaded from a hub.
        device: torch device.

    Raises:
        ConfigError: transformers is not installed.
        CheckpointError: the folder holds no classifier.
    """
    from parley.policies.ranking.encoders import load_hugging_face_ranker

    return partial(ThresholdJudge, Remembered(partial(ranked, load_hugging_face_ranker(fetched_model(name), device))))


OF_SOURCE = "s:"
"""Before words of the source where they are features of their own."""
_C = 1.0
_MAX_ITERATIONS = 2000


class LinearJudge(Judge):
    """A linear SVM.

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
        """As `Featured`."""
        words = list(self._ids)
        weights = self._svm.coef_[0][: len(words)]
        order = np.argsort(weights, kind="stable")
        return [(words[place], float(weights[place])) for place in dict.fromkeys([*order[:num], *order[-num:]])]

    def _features(self, pairs: Sequence[RepliedPair]) -> Any:
        """(N, V + F) sparse."""
        from scipy.sparse import csr_matrix, hstack

        known = [sorted({self._ids[word] for word in self._words(pair) if word in self._ids}) for pair in pairs]
        sizes = np.array([len(each) for each in known])
        ends = np.concatenate([[0], np.cumsum(sizes)])
        values = np.repeat(1 / np.sqrt(np.maximum(sizes, 1)), sizes)
        places = np.fromiter((place for each in known for place in each), dtype=np.int32, count=int(ends[-1]))
        unigrams = csr_matrix((values, places, ends), shape=(len(pairs), len(self._ids)))
        return unigrams if self._numbers is None else hstack([unigrams, csr_matrix(self._numbers(pairs))], format="csr")


def svm_unigram(settings: JudgeSettings) -> Callable[[], Judge]:
    """Source and reply."""
    return partial(LinearJudge, apart if settings.separate else together)


def reply_only(settings: JudgeSettings) -> Callable[[], Judge]:
    """The reply alone."""
    return partial(LinearJudge, lambda pair: iter(pair.reply))


def together(pair: RepliedPair) -> Iterator[str]:
    """All words."""
    for turn in (*pair.context, pair.reply):
        yield from turn


def apart(pair: RepliedPair) -> Iterator[str]:
    """Words of the reply, and marked those of the turns before."""
    for turn in pair.context:
        yield from (f"{OF_SOURCE}{word}" for word in turn)
    yield from pair.reply
