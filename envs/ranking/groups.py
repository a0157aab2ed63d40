"""Groups of candidates: a context, replies to choose from, and labels; splits of them, and the draw of wrong replies.

A turn of a context is its words, without utterance marks. A ranker sees only context and candidates. All settings of
`CandidateOptions` are part of a compiled corpus' key.

If a corpus has only right replies, wrong ones are right replies of other dialogues of the same split. A wrong reply never has
the words of a right reply of its group, or of a group with the same context. The draws of a group depend on the seed and its
key. Hard ones are the nearest by BM25 (Robertson & Zaragoza 2009, "The probabilistic relevance framework", section 3.4):

    score = sum over the distinct words of the context of  idf(word) count (k + 1) / (count + k (1 - b + b length / average))
    idf   = log(1 + (M - df + 0.5) / (df + 0.5)),  k = 1.2, b = 0.75

M, df and the average length come from the training split's replies for every split, so no test text is counted.

Shapes: G groups, T turns of all contexts, C candidates of all groups, N distinct utterances.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import ClassVar, Literal, overload

import numpy as np

from parley.envs.core.config import AtLeastTwo, Configuration, NonNegativeInt, PositiveInt, check
from parley.envs.core.errors import ConfigError, DataError
from parley.envs.core.seeds import stream
from parley.envs.corpora.lines import TextNumbers, WordList
from parley.envs.corpora.pairs.compiled import Ragged
from parley.envs.corpora.pairs.turns import Utterance


@dataclass(frozen=True, kw_only=True)
class CandidateOptions(Configuration):
    """Options of contexts, and of wrong replies that are drawn if a corpus lists none."""

    topic: ClassVar[str] = "evaluate ranking"

    negatives: Literal["random", "hard", "half"] = "random"
    """Wrong replies, from other dialogues of the split: random, hard (nearest to the context by BM25), or half of each."""
    size: AtLeastTwo = 10
    """Candidates per group in validation and test, with the right ones."""
    train_size: AtLeastTwo = 2
    """Candidates per group in training, with the right ones."""
    turns: PositiveInt = 10
    """The most turns of a context; the last ones are kept."""
    min_turns: PositiveInt = 1
    """The fewest turns of a context."""
    seed: NonNegativeInt = 0
    """Seed of the wrong replies and of the order of candidates."""
    file_order: bool = False
    """Keep the candidates in file order (drawn ones after the right ones), instead of shuffling them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "negatives", self.negatives in ("random", "hard", "half"), "random, hard or half")
        check(self, "min_turns", self.min_turns <= self.turns, f"at most turns, {self.turns}")


Context = tuple[Utterance, ...]
"""Turns, oldest first."""


class CandidateKind(StrEnum):
    """The source of a candidate."""

    POSITIVE = "positive"
    """A recorded reply, or one that a person wrote as an answer."""
    RANDOM = "random"
    """A wrong reply drawn at random."""
    HARD = "hard"
    """A wrong reply that shares words with the context or the positive."""
    ADVERSARIAL = "adversarial"
    """A wrong reply that a person wrote to mislead."""
    NEGATIVE = "negative"
    """A wrong reply of a published list."""


@dataclass(frozen=True)
class CandidateGroup:
    """One context and its candidates.

    Args:
        key: unique in its corpus, such as "test-0000123"; sorts in the order of the corpus.
        context: the turns before, oldest first; at least one; some may have no word.
        candidates: the replies, at least two; in a corpus each has a word, an edit may leave none.
        labels: whether each is a right reply.
        kinds: the source of each.
        attackable: whether an attack may change it.
    """

    key: str
    context: Context
    candidates: tuple[Utterance, ...]
    labels: tuple[bool, ...]
    kinds: tuple[CandidateKind, ...]
    attackable: tuple[bool, ...]

    def __post_init__(self) -> None:
        size = len(self.candidates)
        assert size > 1, f"{self.key}: one candidate leaves nothing to choose"
        assert len(self.labels) == len(self.kinds) == len(self.attackable) == size, f"{self.key}: one entry for each candidate"
        assert self.context, f"{self.key}: a context has a turn"


def order_of(key: str, size: int, seed: int) -> tuple[int, ...]:
    """Return the random order of a group's candidates, from its key and the seed.

    Published files list the positive first, so a ranker that breaks ties by position would look perfect.

    Returns:
        The index of the candidate at each position.
    """
    return tuple(stream(seed, "order of candidates", key).permutation(size).tolist())


SATURATION, LENGTH_SHARE = 1.2, 0.75
"""k and b of BM25."""


class ReplyStatistics:
    """Word statistics of the distinct replies of the training split.

    Args:
        replies: word ids.
        num_words: number of words of the corpus.
    """

    def __init__(self, replies: Ragged, num_words: int) -> None:
        holding = np.zeros(num_words, dtype=np.int64)
        for start in range(0, len(replies), _REPLIES):
            words, _, _ = _counted(replies.part(start, start + _REPLIES))
            holding += np.bincount(words, minlength=num_words)
        self.idf = np.log(1 + (len(replies) - holding + 0.5) / (holding + 0.5)).astype(np.float32)
        """idf of each word of the corpus (V,) float32."""
        self.average = float(replies.lengths.mean()) if len(replies) else 1.0
        """Average number of words of a reply."""


class ReplyIndex:
    """An index of replies for BM25 search.

    Args:
        replies: word ids, R rows.
        statistics: of the training split.
    """

    def __init__(self, replies: Ragged, statistics: ReplyStatistics) -> None:
        words, rows, counts = _counted(replies)
        damping = SATURATION * (1 - LENGTH_SHARE + LENGTH_SHARE * replies.lengths / statistics.average)
        weights = statistics.idf[words] * counts * (SATURATION + 1) / (counts + damping[rows])
        self._num_replies = len(replies)
        self._rows, self._weights = rows, weights
        # Entries are sorted by word: those of word w begin at the w-th start.
        self._starts = np.searchsorted(words, np.arange(len(statistics.idf) + 1))

    def scores(self, words: np.ndarray) -> np.ndarray:
        """Return the score of every reply (R,) float64.

        Args:
            words: ids of a context's words (n,); repeated words count once.
        """
        spans = [slice(self._starts[word], self._starts[word + 1]) for word in np.unique(words)]
        if not spans:
            return np.zeros(self._num_replies)
        rows = np.concatenate([self._rows[span] for span in spans])
        return np.bincount(rows, np.concatenate([self._weights[span] for span in spans]), self._num_replies)

    def nearest(self, words: np.ndarray, eligible: np.ndarray, num: int) -> np.ndarray:
        """Return the eligible replies with the highest scores.

        Args:
            words: as for `scores`.
            eligible: mask of replies to search (R,) bool.
            num: most replies.

        Returns:
            Their rows, best first, ties by row; fewer than `num` if fewer share a word with the context.
        """
        scores = np.where(eligible, self.scores(words), 0.0)
        num = min(num, int((scores > 0).sum()))
        if not num:
            return np.zeros(0, dtype=np.int64)
        least = np.partition(scores, len(scores) - num)[len(scores) - num]
        hits = np.flatnonzero(scores >= least)
        return hits[np.argsort(-scores[hits], kind="stable")][:num]


def _counted(replies: Ragged) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return words, rows and counts of all occurring (word, row), sorted by word and row."""
    rows = np.repeat(np.arange(len(replies)), replies.lengths)
    entries, counts = np.unique(replies.values.astype(np.int64) * max(len(replies), 1) + rows, return_counts=True)
    words, rows = np.divmod(entries, max(len(replies), 1))
    return words, rows, counts


KINDS = tuple(CandidateKind)
"""The kind of each number in `CandidateSplit.kinds`."""


@dataclass(frozen=True, eq=False)
class CandidateSplit(Sequence[CandidateGroup]):
    """Groups of one split, in the order of the corpus.

    Args:
        name: "train", "val" or "test".
        vocabulary: every word of the corpus.
        utterances: word ids of the distinct utterances; N rows.
        contexts: utterances of each group's turns, oldest first; G rows.
        candidates: utterances of each group's candidates; G rows, C in all.
        labels: whether each candidate is right (C,) bool.
        kinds: indices into `KINDS` (C,) uint8.
        attackable: whether an attack may change it (C,) bool.
        numbers: the numbers in the keys of groups (G,) int64, ascending.
        dialogues: the dialogue of each context (G,) int64.
        is_cut: whether the context lost earlier turns (G,) bool.
    """

    name: str
    vocabulary: WordList
    utterances: Ragged
    contexts: Ragged
    candidates: Ragged
    labels: np.ndarray
    kinds: np.ndarray
    attackable: np.ndarray
    numbers: np.ndarray
    dialogues: np.ndarray
    is_cut: np.ndarray

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, index: int) -> CandidateGroup: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[CandidateGroup]: ...
    def __getitem__(self, index: int | slice) -> CandidateGroup | Sequence[CandidateGroup]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        # Negative indices count from the end.
        row = range(len(self))[index]
        its = slice(int(self.candidates.offsets[row]), int(self.candidates.offsets[row + 1]))
        return CandidateGroup(
            self.key(row),
            tuple(self.utterance_of(turn) for turn in self.contexts[row]),
            tuple(self.utterance_of(reply) for reply in self.candidates[row]),
            tuple(self.labels[its].tolist()),
            tuple(KINDS[kind] for kind in self.kinds[its]),
            tuple(self.attackable[its].tolist()),
        )

    def key(self, row: int) -> str:
        """Return the key of a group, `row` from 0 to G - 1."""
        return f"{self.name}-{self.numbers[row]:07d}"

    def utterance_of(self, index: int) -> Utterance:
        """Return the words of an utterance, `index` from 0 to N - 1."""
        return tuple(self.vocabulary.decode(self.utterances[index].tolist()))

    def first(self, limit: int) -> CandidateSplit:
        """Return the first `limit` groups; all for 0."""
        return self.chosen(np.arange(limit)) if 0 < limit < len(self) else self

    def first_none(self) -> CandidateSplit:
        """Return the split without groups, with the same utterances."""
        return self.chosen(np.zeros(0, dtype=np.int64))

    def chosen(self, rows: np.ndarray) -> CandidateSplit:
        """Return some of the groups, with the same utterances.

        Args:
            rows: (n,) int, ascending.
        """
        if len(rows) == len(self):
            return self
        labels, kinds, attackable = (
            _rows(Ragged(marks, self.candidates.offsets), rows).values for marks in (self.labels, self.kinds, self.attackable)
        )
        return replace(
            self,
            contexts=_rows(self.contexts, rows),
            candidates=_rows(self.candidates, rows),
            labels=labels,
            kinds=kinds,
            attackable=attackable,
            numbers=self.numbers[rows],
            dialogues=self.dialogues[rows],
            is_cut=self.is_cut[rows],
        )

    def positives(self) -> np.ndarray:
        """Return the right candidates (n, 2) int64: group and utterance of each."""
        group_of_candidate = np.repeat(np.arange(len(self)), self.candidates.lengths)
        return np.stack([group_of_candidate[self.labels], self.candidates.values[self.labels]], axis=1)


def _rows(ragged: Ragged, rows: np.ndarray) -> Ragged:
    is_chosen = np.zeros(len(ragged), dtype=bool)
    is_chosen[rows] = True
    is_kept = np.repeat(is_chosen, ragged.lengths)
    return Ragged(ragged.values[is_kept], np.concatenate([[0], np.cumsum(ragged.lengths[rows])]))


_ROUNDS, _REPLIES = 8, 4096
"""Rounds of rejection sampling before the rest is enumerated, and replies whose words are counted at a time."""


class ReplyPool:
    """The right replies of a split, as a pool of wrong ones; frequent replies are drawn more often.

    Args:
        split: G groups of N distinct utterances.
    """

    def __init__(self, split: CandidateSplit) -> None:
        if not isinstance(split, CandidateSplit):
            raise ConfigError("split has the wrong type", where="ReplyPool", got=repr(split)[:80], fix="give a CandidateSplit")
        self._split = split
        groups, self._pool = split.positives().T
        self._dialogues = split.dialogues[groups]
        texts = TextNumbers()
        contexts = (texts.number(" ".join(map(str, split.contexts[row].tolist()))) for row in range(len(split)))
        self._contexts = np.fromiter(contexts, dtype=np.int32, count=len(split))
        order = np.argsort(self._contexts[groups], kind="stable")
        starts = np.searchsorted(self._contexts[groups[order]], np.arange(len(texts) + 1))
        # The right replies of each context.
        self._rights = Ragged(self._pool[order], starts)
        self.distinct, first_rows = np.unique(self._pool, return_index=True)
        """The distinct utterances of the replies (R,) int64, ascending."""
        self._first_dialogue = self._dialogues[first_rows]
        elsewhere = self._dialogues != self._first_dialogue[np.searchsorted(self.distinct, self._pool)]
        self._is_of_several = np.isin(self.distinct, self._pool[elsewhere])

    def fresh(self, groups: Sequence[int] | np.ndarray, seed: int) -> np.ndarray:
        """Draw one wrong reply for each of some groups.

        Args:
            groups: their rows (n,); a repeated row is drawn anew.
            seed: of the draws, such as those of an epoch.

        Returns:
            Utterances (n,) int64.

        Raises:
            DataError: there is no other reply.
        """
        num_draws, replies = Counter[int](), list[int]()
        for row in map(int, groups):
            again = [num_draws[row]] if num_draws[row] else []
            num_draws[row] += 1
            replies += self.random(row, 1, stream(seed, "wrong reply", self._split.key(row), *again))
        return np.array(replies, dtype=np.int64)

    def random(self, row: int, num: int, draws: np.random.Generator, taken: Collection[int] = ()) -> list[int]:
        """Draw different wrong replies for a group.

        Args:
            row: the group.
            num: number of replies.
            draws: the group's own generator.
            taken: utterances that it has already.

        Raises:
            DataError: there are fewer.
        """
        replies: list[int] = []
        refused = {*self._rights[self._contexts[row]].tolist(), *taken}
        for _ in range(_ROUNDS):
            if len(replies) == num or not len(self._pool):
                break
            for i in draws.integers(len(self._pool), size=2 * num).tolist():
                reply = int(self._pool[i])
                if len(replies) < num and reply not in refused and self._dialogues[i] != self._split.dialogues[row]:
                    replies.append(reply)
                    refused.add(reply)
        if len(replies) < num:
            remaining = self.distinct[self.eligible(row, refused)]
            if len(remaining) < num - len(replies):
                raise DataError(
                    f"the {self._split.name} split has too few replies to draw {num} wrong ones for a context",
                    where=self._split.key(row),
                    got=f"{len(replies) + len(remaining)} that other dialogues hold, and that differ from the right one",
                    fix="give it more dialogues, a larger share (FILE#shares=70:15:15) or smaller groups (candidates.size)",
                )
            replies += draws.permutation(remaining)[: num - len(replies)].tolist()
        return replies

    def eligible(self, row: int, taken: Collection[int] = ()) -> np.ndarray:
        """Return which distinct replies are wrong ones for a group (R,) bool.

        Args:
            row: the group.
            taken: utterances that it has already.
        """
        allowed = self._is_of_several | (self._first_dialogue != self._split.dialogues[row])
        allowed[np.searchsorted(self.distinct, self._rights[self._contexts[row]])] = False
        allowed[np.isin(self.distinct, [*taken])] = False
        return allowed


def reply_statistics(train: CandidateSplit) -> ReplyStatistics:
    """Return the BM25 statistics of the right replies of the training split."""
    return ReplyStatistics(_rows(train.utterances, np.unique(train.positives()[:, 1])), len(train.vocabulary))


def with_negatives(split: CandidateSplit, options: CandidateOptions, statistics: ReplyStatistics) -> CandidateSplit:
    """Return the groups with wrong replies after the right ones.

    Args:
        split: with right replies only.
        options: number and kind of wrong replies.
        statistics: of the training split, for BM25.

    Returns:
        Groups of `size` candidates (`train_size` in training), or of one more than the right ones if these are as many. With
        half hard ones and an odd number, the odd one is hard in half of the groups. If too few replies share a word with the
        context, random ones replace the missing hard ones.

    Raises:
        DataError: there are too few replies.
    """
    replies = ReplyPool(split)
    index = None
    if options.negatives != "random":
        index = ReplyIndex(_rows(split.utterances, replies.distinct), statistics)
    size = options.train_size if split.name == "train" else options.size
    values, lengths, labels, kinds, attackable = array("i"), array("i"), array("b"), array("b"), array("b")
    for row in range(len(split)):
        draws = stream(options.seed, "wrong replies", split.key(row))
        right_replies = split.candidates[row].tolist()
        its = slice(split.candidates.offsets[row], split.candidates.offsets[row + 1])
        num = max(size - len(right_replies), 1)
        near: list[int] = []
        if index is not None:
            wanted = num if options.negatives == "hard" else (num + int(draws.integers(2))) // 2
            context_words = np.concatenate([split.utterances[turn] for turn in split.contexts[row]])
            near = replies.distinct[index.nearest(context_words, replies.eligible(row), wanted)].tolist()
        random_replies = replies.random(row, num - len(near), draws, near)
        values.extend([*right_replies, *near, *random_replies])
        labels.extend([*split.labels[its].tolist(), *[False] * num])
        kinds.extend([*split.kinds[its].tolist(), *[_HARD] * len(near), *[_RANDOM] * len(random_replies)])
        attackable.extend([*split.attackable[its].tolist(), *[True] * num])
        lengths.append(len(right_replies) + num)
    return replace(
        split,
        candidates=Ragged(np.asarray(values), np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])),
        labels=np.asarray(labels).view(bool),
        kinds=np.asarray(kinds).view(np.uint8),
        attackable=np.asarray(attackable).view(bool),
    )


_HARD, _RANDOM = KINDS.index(CandidateKind.HARD), KINDS.index(CandidateKind.RANDOM)
