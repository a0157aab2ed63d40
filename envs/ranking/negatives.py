"""Wrong replies for contexts of which only the right ones are known: right replies of other dialogues of the same split.

A wrong reply is never equal in words to a right one: neither to one of its group, nor to one of any group of the split with
the same context. It is of another dialogue than the context. What is drawn for a group follows from the seed and its key.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from parley.envs.core.errors import DataError
from parley.envs.core.seeds import stream
from parley.envs.corpora.pairs.compiled import Ragged
from parley.envs.ranking.bm25 import ReplyIndex, ReplyStatistics
from parley.envs.ranking.groups import CandidateKind
from parley.envs.ranking.options import CandidateOptions
from parley.envs.ranking.split import KINDS, CandidateSplit

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
    """The groups with wrong replies behind the right ones.

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
