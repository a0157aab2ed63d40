"""Contexts of several turns from the pairs of a corpus, as ids for training and as text for evaluation.

If pairs form chains (dialogues cut into pairs), the context of a reply is its source, the source of that, and so on. An
utterance of the corpus is a turn here. If an utterance replies to several, its first pair counts. `PairSplit.links` has turns
of contexts that are no pairs. In a corpus of single exchanges, or after a pair that the corpus lacks, a context has one turn.

Shapes: P pairs, N utterances, K turns of context, M turns of all contexts, W words of all contexts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import overload

import numpy as np

from parley.envs.corpora.pairs.compiled import PairCorpus, PairSplit, Ragged
from parley.envs.corpora.pairs.turns import EOT, Example, Turn, Utterance, turn_of
from parley.envs.corpora.pairs.vocabulary import EOU_ID, PairVocabulary

OWN_TURNS = 2
"""Turns of context of a model that does not say how many it reads: those of Niu & Bansal 2018."""

NOBODY = -1
"""Index of a turn that does not exist."""


def with_eot(vocabulary: PairVocabulary) -> PairVocabulary:
    """Return a vocabulary with `<eot>` added at the end, for models that read several turns.

    A vocabulary of pieces already has that word.
    """
    return vocabulary if vocabulary.merges is not None else PairVocabulary((*vocabulary.words, EOT))


def chains(split: PairSplit, turns: int) -> np.ndarray:
    """Return the utterances that each reply follows.

    Args:
        split: of a corpus of pairs.
        turns: the most turns of a context, K, at least 1.

    Returns:
        Utterances (P, K) int64, the pair's source first; `NOBODY` after the end of the chain.
    """
    (chains_PK,) = chains_in_parts(split, turns, max(1, len(split)))
    return chains_PK


def chains_in_parts(split: PairSplit, turns: int, size: int) -> Iterator[np.ndarray]:
    """Yield the rows of `chains` for at most `size` pairs at a time; once at least."""
    assert turns >= 1, "a reply follows something"
    sources_P, replies_P = split.pairs[:, 0], split.pairs[:, 1]
    # The extra last element, index -1, keeps NOBODY as its own parent.
    parents = np.full(len(split.utterances) + 1, NOBODY, dtype=np.int64)
    parents[split.links[:, 1]] = split.links[:, 0]
    # Of several assignments to one index, the last one holds.
    parents[replies_P[::-1]] = sources_P[::-1]
    for start in range(0, max(1, len(split)), size):
        ancestors_KP = [sources_P[start : start + size]]
        while len(ancestors_KP) < turns:
            ancestors_KP.append(parents[ancestors_KP[-1]])
        yield np.stack(ancestors_KP, axis=1)


def afterwards(split: PairSplit) -> np.ndarray:
    """Return the utterance after the reply of each pair (P,) int64, the first of several; `NOBODY` if none."""
    # As in `chains`: the first pair counts, and the element of NOBODY stays.
    children = np.full(len(split.utterances) + 1, NOBODY, dtype=np.int64)
    for links in (split.links[::-1], split.pairs[::-1]):
        children[links[:, 0]] = links[:, 1]
    return children[split.pairs[:, 1]]


def dialogues(split: PairSplit) -> np.ndarray:
    """Return the dialogue of each pair (P,) int64: all pairs that are linked, directly or not, have one number."""
    return utterance_dialogues(split)[split.pairs[:, 0]] if split.units is None else split.units


def utterance_dialogues(split: PairSplit) -> np.ndarray:
    """Return the dialogue of each utterance (N,) int64, by the numbers of `dialogues`."""
    edges, size = np.concatenate([split.pairs, split.links]), len(split.utterances)
    roots_N = np.arange(size)
    while True:
        # The least number that either end knows goes to both, and to the utterances that they took their own from.
        least_E = roots_N[edges].min(axis=1)
        before_N = roots_N.copy()
        for side in (0, 1):
            np.minimum.at(roots_N, before_N[edges[:, side]], least_E)
            np.minimum.at(roots_N, edges[:, side], least_E)
        roots_N = roots_N[roots_N]
        if np.array_equal(roots_N, before_N):
            return roots_N


def contexts(split: PairSplit, turns: int, eot_id: int) -> Ragged:
    """Return the context of each reply, in the order of the pairs, oldest turn first.

    Args:
        split: of a corpus of pairs.
        turns: the most turns of a context, at least 1; the last ones are taken.
        eot_id: id between turns.
    """
    utterances, chosen_PK = split.utterances, chains(split, turns)[:, ::-1]
    exists_PK = chosen_PK != NOBODY
    turns_M, is_last_M = chosen_PK[exists_PK], np.nonzero(exists_PK)[1] == turns - 1
    lengths_M = utterances.lengths[turns_M]
    # Each turn takes its words and a mark after them, except the last turn of a context.
    taken_M = lengths_M + ~is_last_M
    ends_M = np.cumsum(taken_M)
    offsets_W = np.arange(taken_M.sum()) - np.repeat(ends_M - taken_M, taken_M)
    is_mark_W = offsets_W == np.repeat(lengths_M, taken_M)
    read_W = np.minimum(np.repeat(utterances.offsets[turns_M], taken_M) + offsets_W, len(utterances.values) - 1)
    contexts_W = np.where(is_mark_W, eot_id, utterances.values[read_W]).astype(np.int32)
    return Ragged(contexts_W, np.concatenate([[0], ends_M[is_last_M]]))


def windows(split: PairSplit, turns: int, eot_id: int) -> PairSplit:
    """Return the pairs with their contexts as sources; arguments as of `contexts`.

    Returns:
        The contexts of all pairs, then the utterances of `split`; pairs keep their order.
    """
    utterances, before = split.utterances, contexts(split, turns, eot_id)
    offsets = np.concatenate([before.offsets, len(before.values) + utterances.offsets[1:]])
    pairs = np.stack([np.arange(len(split)), len(split) + split.pairs[:, 1]], axis=1)
    return PairSplit(Ragged(np.concatenate([before.values, utterances.values]), offsets), pairs, units=dialogues(split))


def with_replies(split: PairSplit, least: int, most: int | None = None) -> PairSplit:
    """Return the pairs whose replies have `least` to `most` words; make contexts first, as pairs link them.

    Args:
        split: of a corpus of pairs, or from `windows`.
        least: fewest words of a reply, without `<eou>`.
        most: most words of a reply; None for no limit.
    """
    return only(split, _fits(split, least, most))


def only(split: PairSplit, chosen_P: np.ndarray) -> PairSplit:
    """Return the chosen pairs of a split; each keeps its dialogue."""
    return replace(split, pairs=split.pairs[chosen_P], units=dialogues(split)[chosen_P])


def in_train(corpus: PairCorpus, split: str, turns: int) -> np.ndarray:
    """Return whether the context of each pair (P,) occurs in the training split; False for that split itself.

    Args:
        corpus: opened with every word; otherwise contexts that differ in rare words are equal.
        split: "train", "val" or "test".
        turns: the most turns of a context, at least 1.
    """
    if split == "train":
        return np.zeros(len(corpus.splits[split]), dtype=bool)
    train_contexts, queries = (
        _row_bytes(contexts(corpus.splits[name], turns, len(corpus.vocabulary))) for name in ("train", split)
    )
    seen = frozenset(train_contexts)
    return np.fromiter((context in seen for context in queries), dtype=bool)


def left_out(num_seen: int, num_pairs: int, split: str) -> str:
    """Return the sentence about pairs left out because their contexts are in the training split; empty for none."""
    what = f"{num_seen:,} of {num_pairs:,} {split} pairs"
    return f"{what} are left out, for their contexts stand in the training split." if num_seen else ""


def examples(
    corpus: PairCorpus,
    split: str,
    turns: int,
    min_turns: int = 1,
    min_reply: int = 0,
    max_reply: int | None = None,
    *,
    unseen: bool = False,
) -> Sequence[Example]:
    """Return the replies of a split with their contexts, as text.

    Args:
        corpus: opened with every word; otherwise rare words are `<unk>`.
        split: "train", "val" or "test".
        turns: the most turns of a context; the last ones are taken.
        min_turns: fewest turns before a reply.
        min_reply: fewest words of a reply.
        max_reply: most words of a reply; None for no limit.
        unseen: leave out contexts that occur in the training split.

    Returns:
        One example per pair, in the order of the corpus, built on access; its key has the pair's number in the whole split.
    """
    pairs = corpus.splits[split]
    chains_PK = chains(pairs, turns)
    kept = ((chains_PK != NOBODY).sum(1) >= min_turns) & _fits(pairs, min_reply, max_reply)
    rows = np.flatnonzero(kept & ~in_train(corpus, split, turns) if unseen else kept)
    return _Examples(corpus, split, chains_PK, rows)


def _row_bytes(rows: Ragged) -> Iterator[bytes]:
    offsets = rows.offsets.tolist()
    return (rows.values[start:end].tobytes() for start, end in pairwise(offsets))


def _fits(split: PairSplit, least: int, most: int | None) -> np.ndarray:
    words_before = np.concatenate([[0], np.cumsum(split.utterances.values != EOU_ID)])[split.utterances.offsets]
    lengths_P = np.diff(words_before)[split.pairs[:, 1]]
    fits: np.ndarray = (lengths_P >= least) & (lengths_P <= (lengths_P if most is None else most))
    return fits


def said(corpus: PairCorpus, split: str) -> Iterator[Utterance]:
    """Yield the utterances of a split as text, in the order of the corpus.

    Args:
        corpus: opened with every word.
        split: "train", "val" or "test".
    """
    turns = corpus.splits[split].utterances
    for row in range(len(turns)):
        yield from turn_of(corpus.vocabulary.decode(turns[row]))


class _Examples(Sequence[Example]):
    def __init__(self, corpus: PairCorpus, split: str, chains_PK: np.ndarray, rows: np.ndarray) -> None:
        self._corpus, self._name, self._split = corpus, split, corpus.splits[split]
        self._chains, self._rows, self._after = chains_PK, rows, afterwards(self._split)
        self._dialogues = dialogues(self._split)

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Example: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Example]: ...
    def __getitem__(self, index: int | slice) -> Example | Sequence[Example]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        row = int(self._rows[index])
        context = tuple(self._turn(turn) for turn in self._chains[row, ::-1] if turn != NOBODY)
        after = None if (turn := self._after[row]) == NOBODY else self._turn(turn)
        reply, dialogue = self._turn(self._split.pairs[row, 1]), int(self._dialogues[row])
        return Example(f"{self._name}-{row:06d}", context, reply, after, dialogue)

    def _turn(self, utterance: int) -> Turn:
        return turn_of(self._corpus.vocabulary.decode(self._split.utterances[utterance]))
