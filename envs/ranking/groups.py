"""The one record of ranking: a dialogue's context, replies to choose from, and which of them are right.

A context's turn is its words; utterance marks inside a turn are dropped. Whoever ranks sees context and candidates only.

How groups of candidates are made of what a corpus holds; every setting is part of a compiled corpus' key.

The replies nearest to a context by BM25 (Robertson & Zaragoza 2009, "The probabilistic relevance framework", section 3.4).

    score = sum over the distinct words of the context of  idf(word) count (k + 1) / (count + k (1 - b + b length / average))
    idf   = log(1 + (M - df + 0.5) / (df + 0.5)),  k = 1.2, b = 0.75

M, df and the average length are those of the training split's replies, whichever split is searched: no test text is counted.

One split of a compiled corpus of candidates: arrays that any number of processes read, and groups made of them when asked.

Shapes: G groups, T turns of all contexts, C candidates of all groups, N distinct utterances.

Wrong replies for contexts of which only the right ones are known: right replies of other dialogues of the same split.

A wrong reply is never equal in words to a right one: neither to one of its group, nor to one of any group of the split with
the same context. It is of another dialogue than the context. What is drawn for a group follows from the seed and its key.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal, overload

import numpy as np

from parley.envs.core.config import AtLeastTwo, Configuration, NonNegativeInt, PositiveInt, check
from parley.envs.core.errors import DataError
from parley.envs.core.seeds import stream
from parley.envs.corpora.lines import WordList
from parley.envs.corpora.pairs.compiled import Ragged
from parley.envs.corpora.pairs.turns import Utterance


@dataclass(frozen=True, kw_only=True)
class CandidateOptions(Configuration):
    """Contexts, and the wrong replies that are drawn where a corpus lists none."""

    negatives: Literal["random", "hard", "half"] = "random"
    """Wrong replies: right ones of other dialogues of the split, drawn at random, the nearest to the context by BM25, or
    half and half."""
    size: AtLeastTwo = 10
    """Candidates of a group of validation and test, the right ones included."""
    train_size: AtLeastTwo = 2
    """The same of a group of training."""
    turns: PositiveInt = 10
    """The most turns of a context; those nearest to the reply are kept."""
    min_turns: PositiveInt = 1
    """Replies that follow fewer turns are left out."""
    seed: NonNegativeInt = 0
    """Names what is drawn, and the order of candidates."""
    file_order: bool = False
    """Candidates stay in the order of the files, right ones first where they are drawn, instead of being shuffled."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "negatives", self.negatives in ("random", "hard", "half"), "random, hard or half")
        check(self, "min_turns", self.min_turns <= self.turns, f"at most turns, {self.turns}")


Context = tuple[Utterance, ...]
"""Turns, oldest first."""


class CandidateKind(StrEnum):
    """Where a candidate comes from."""

    POSITIVE = "positive"
    """What was said, or what a person wrote as an answer."""
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
        context: the turns before, oldest first; at least one, of which some may have no word.
        candidates: the replies, at least two; a corpus gives each a word or more, an edit may leave none.
        labels: whether each is a right reply.
        kinds: where each comes from.
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
    """Return the order in which the candidates of a group are shown, which its key and the seed name.

    Published files list the positive first, and a ranker that gives ties to the first looks perfect there.

    Returns:
        What stands at each place.
    """
    return tuple(stream(seed, "order of candidates", key).permutation(size).tolist())


SATURATION, LENGTH_SHARE = 1.2, 0.75
"""k and b."""


class ReplyStatistics:
    """What is counted in the replies of the training split, each distinct one once.

    Args:
        replies: word ids.
        num_words: of the corpus.
    """

    def __init__(self, replies: Ragged, num_words: int) -> None:
        words, _, _ = _counted(replies)
        holding = np.bincount(words, minlength=num_words)
        self.idf = np.log(1 + (len(replies) - holding + 0.5) / (holding + 0.5)).astype(np.float32)
        """Of each word of the corpus (V,) float32."""
        self.average = float(replies.lengths.mean()) if len(replies) else 1.0
        """Words of a reply."""


class ReplyIndex:
    """Replies that can be searched.

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
        # Entries are in the order of words: those of word w stand from the w-th place to the next.
        self._starts = np.searchsorted(words, np.arange(len(statistics.idf) + 1))

    def scores(self, words: np.ndarray) -> np.ndarray:
        """Return the score of every reply (R,) float64.

        Args:
            words: ids of a context's words (n,), repeated ones count once.
        """
        spans = [slice(self._starts[word], self._starts[word + 1]) for word in np.unique(words)]
        if not spans:
            return np.zeros(self._num_replies)
        rows = np.concatenate([self._rows[span] for span in spans])
        return np.bincount(rows, np.concatenate([self._weights[span] for span in spans]), self._num_replies)

    def nearest(self, words: np.ndarray, eligible: np.ndarray, num: int) -> np.ndarray:
        """Return the eligible replies that score highest.

        Args:
            words: as for `scores`.
            eligible: which may be found (R,) bool.
            num: how many are wanted.

        Returns:
            Their rows, best first, ties by row; at most `num`, for what shares no word with the context is not near.
        """
        scores = np.where(eligible, self.scores(words), 0.0)
        num = min(num, int((scores > 0).sum()))
        if not num:
            return np.zeros(0, dtype=np.int64)
        least = np.partition(scores, len(scores) - num)[len(scores) - num]
        found = np.flatnonzero(scores >= least)
        return found[np.argsort(-scores[found], kind="stable")][:num]


def _counted(replies: Ragged) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Words, rows and counts of all (word, row) that occur, in the order of words and then rows."""
    rows = np.repeat(np.arange(len(replies)), replies.lengths)
    entries, counts = np.unique(replies.values.astype(np.int64) * max(len(replies), 1) + rows, return_counts=True)
    words, rows = np.divmod(entries, max(len(replies), 1))
    return words, rows, counts


KINDS = tuple(CandidateKind)
"""What the places in `CandidateSplit.kinds` stand for."""


@dataclass(frozen=True, eq=False)
class CandidateSplit(Sequence[CandidateGroup]):
    """Groups of one split, in the order of the corpus.

    Args:
        name: "train", "val" or "test".
        vocabulary: every word of the corpus.
        utterances: word ids of every utterance; N rows, all different, so that equal indices are equal words.
        contexts: utterances of each group's turns, oldest first; G rows.
        candidates: utterances of each group's candidates; G rows, C in all.
        labels: whether each candidate is right (C,) bool.
        kinds: places in `KINDS` (C,) uint8.
        attackable: whether an attack may change it (C,) bool.
        numbers: what the keys of groups name them by (G,) int64, ascending.
        dialogues: the dialogue that each context is of (G,) int64.
        is_cut: whether more turns came before, which the options leave out (G,) bool.
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
            return [self[place] for place in range(*index.indices(len(self)))]
        # Negative numbers count from the end, as everywhere.
        row = range(len(self))[index]
        its = slice(int(self.candidates.offsets[row]), int(self.candidates.offsets[row + 1]))
        return CandidateGroup(
            self.key(row),
            tuple(self.said(turn) for turn in self.contexts[row]),
            tuple(self.said(reply) for reply in self.candidates[row]),
            tuple(self.labels[its].tolist()),
            tuple(KINDS[kind] for kind in self.kinds[its]),
            tuple(self.attackable[its].tolist()),
        )

    def key(self, row: int) -> str:
        """What names a group, `row` from 0 to G - 1."""
        return f"{self.name}-{self.numbers[row]:07d}"

    def said(self, utterance: int) -> Utterance:
        """Return the words of an utterance, from 0 to N - 1."""
        return tuple(self.vocabulary.decode(self.utterances[utterance].tolist()))

    def first(self, limit: int) -> CandidateSplit:
        """So many groups at the beginning; all where the limit is 0."""
        return self.chosen(np.arange(limit)) if 0 < limit < len(self) else self

    def first_none(self) -> CandidateSplit:
        """No group, of the same utterances."""
        return self.chosen(np.zeros(0, dtype=np.int64))

    def chosen(self, rows: np.ndarray) -> CandidateSplit:
        """Some of the groups, of the same utterances.

        Args:
            rows: (n,) int, ascending.
        """
        whose = np.repeat(np.arange(len(self)), self.candidates.lengths)
        kept = np.isin(whose, rows)
        return replace(
            self,
            contexts=_rows(self.contexts, rows),
            candidates=_rows(self.candidates, rows),
            labels=self.labels[kept],
            kinds=self.kinds[kept],
            attackable=self.attackable[kept],
            numbers=self.numbers[rows],
            dialogues=self.dialogues[rows],
            is_cut=self.is_cut[rows],
        )

    def positives(self) -> np.ndarray:
        """Return the right candidates (n, 2) int64: group and utterance of each."""
        whose = np.repeat(np.arange(len(self)), self.candidates.lengths)
        return np.stack([whose[self.labels], self.candidates.values[self.labels]], axis=1)


def _rows(ragged: Ragged, rows: np.ndarray) -> Ragged:
    kept = np.isin(np.repeat(np.arange(len(ragged)), ragged.lengths), rows)
    return Ragged(ragged.values[kept], np.concatenate([[0], np.cumsum(ragged.lengths[rows])]))


_ROUNDS = 8
"""Draws before it is counted what is left to draw."""


class ReplyPool:
    """The right replies of a split, to draw wrong ones from; a reply that was given often is drawn often.

    Args:
        split: G groups of N distinct utterances.
    """

    def __init__(self, split: CandidateSplit) -> None:
        self._split = split
        groups, self._pool = split.positives().T
        self._dialogues = split.dialogues[groups]
        rights: dict[bytes, set[int]] = defaultdict(set)
        contexts = [split.contexts[row].tobytes() for row in range(len(split))]
        for group, reply in zip(groups.tolist(), self._pool.tolist(), strict=True):
            rights[contexts[group]].add(reply)
        self._rights = [rights[context] for context in contexts]
        self.distinct, places = np.unique(self._pool, return_index=True)
        """Utterances of the replies without repetitions (R,) int64, ascending."""
        self._first_dialogue = self._dialogues[places]
        elsewhere = self._dialogues != self._first_dialogue[np.searchsorted(self.distinct, self._pool)]
        self._is_of_several = np.isin(self.distinct, self._pool[elsewhere])

    def fresh(self, groups: Sequence[int] | np.ndarray, seed: int) -> np.ndarray:
        """One wrong reply at random for each of some groups.

        Args:
            groups: their rows (n,); each time that one comes is a draw of its own.
            seed: names the draws, such as those of an epoch.

        Returns:
            Utterances (n,) int64.

        Raises:
            DataError: there is no other reply.
        """
        met, found = Counter[int](), list[int]()
        for row in map(int, groups):
            again = [met[row]] if met[row] else []
            met[row] += 1
            found += self.random(row, 1, stream(seed, "wrong reply", self._split.key(row), *again))
        return np.array(found, dtype=np.int64)

    def random(self, row: int, num: int, draws: np.random.Generator, taken: Collection[int] = ()) -> list[int]:
        """Different wrong replies for a group.

        Args:
            row: the group.
            num: how many.
            draws: of this group alone.
            taken: utterances that it has already.

        Raises:
            DataError: there are not so many.
        """
        found: list[int] = []
        refused = {*self._rights[row], *taken}
        for _ in range(_ROUNDS):
            if len(found) == num or not len(self._pool):
                break
            for place in draws.integers(len(self._pool), size=2 * num).tolist():
                reply = int(self._pool[place])
                if len(found) < num and reply not in refused and self._dialogues[place] != self._split.dialogues[row]:
                    found.append(reply)
                    refused.add(reply)
        if len(found) < num:
            left = self.distinct[self.eligible(row, refused)]
            if len(left) < num - len(found):
                raise DataError(
                    f"the {self._split.name} split has too few replies to draw {num} wrong ones for a context",
                    where=self._split.key(row),
                    got=f"{len(found) + len(left)} that other dialogues hold, and that differ from the right one",
                    fix="give it more dialogues, a larger share (FILE#shares=70:15:15) or smaller groups (candidates.size)",
                )
            found += draws.permutation(left)[: num - len(found)].tolist()
        return found

    def eligible(self, row: int, taken: Collection[int] = ()) -> np.ndarray:
        """Which of the distinct replies are wrong ones for a group (R,) bool.

        Args:
            row: the group.
            taken: utterances that it has already.
        """
        allowed = self._is_of_several | (self._first_dialogue != self._split.dialogues[row])
        allowed[np.searchsorted(self.distinct, [*self._rights[row]])] = False
        allowed[np.isin(self.distinct, [*taken])] = False
        return allowed


def reply_statistics(train: CandidateSplit) -> ReplyStatistics:
    """What BM25 counts in the right replies of the training split."""
    return ReplyStatistics(_chosen(train.utterances, np.unique(train.positives()[:, 1])), len(train.vocabulary))


def with_negatives(split: CandidateSplit, options: CandidateOptions, statistics: ReplyStatistics) -> CandidateSplit:
    """Return the groups with wrong replies behind the right ones.

    Args:
        split: of right replies alone.
        options: how many wrong replies, and which.
        statistics: of the training split, for BM25.

    Returns:
        Groups of `size` candidates (`train_size` in training), or one more than the right ones, where these are as many. Where
        half are near and they cannot be halved, the odd one is near in half of the groups. Where too few replies share a word
        with the context, random ones take the places of near ones.

    Raises:
        DataError: there are too few replies.
    """
    replies = ReplyPool(split)
    index = None
    if options.negatives != "random":
        index = ReplyIndex(_chosen(split.utterances, replies.distinct), statistics)
    size = options.train_size if split.name == "train" else options.size
    values, labels, kinds, attackable, lengths = [], [], [], [], []
    for row in range(len(split)):
        draws = stream(options.seed, "wrong replies", split.key(row))
        own = split.candidates[row].tolist()
        its = slice(split.candidates.offsets[row], split.candidates.offsets[row + 1])
        num = max(size - len(own), 1)
        near: list[int] = []
        if index is not None:
            wanted = num if options.negatives == "hard" else (num + int(draws.integers(2))) // 2
            said = np.concatenate([split.utterances[turn] for turn in split.contexts[row]])
            near = replies.distinct[index.nearest(said, replies.eligible(row), wanted)].tolist()
        others = replies.random(row, num - len(near), draws, near)
        values += [*own, *near, *others]
        labels += [*split.labels[its].tolist(), *[False] * num]
        kinds += [*split.kinds[its].tolist(), *[_HARD] * len(near), *[_RANDOM] * len(others)]
        attackable += [*split.attackable[its].tolist(), *[True] * num]
        lengths.append(len(own) + num)
    return replace(
        split,
        candidates=Ragged(np.array(values, dtype=np.int32), np.cumsum([0, *lengths])),
        labels=np.array(labels, dtype=bool),
        kinds=np.array(kinds, dtype=np.uint8),
        attackable=np.array(attackable, dtype=bool),
    )


def _chosen(utterances: Ragged, rows: np.ndarray) -> Ragged:
    found = [utterances[row] for row in rows.tolist()]
    values = np.concatenate(found) if found else np.zeros(0)
    return Ragged(values.astype(np.int32), np.cumsum([0, *map(len, found)]))


_HARD, _RANDOM = KINDS.index(CandidateKind.HARD), KINDS.index(CandidateKind.RANDOM)
