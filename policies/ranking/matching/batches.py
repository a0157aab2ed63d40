"""Batches of matching models: distinct turns and replies of some contexts, each read once, and the pairs that meet.

A turn that several contexts share, and a reply that is in several groups, is one text. The encodings of all words of all
texts follow each other in a flat memory. A network gathers from it rows of like size side by side; positions of a row behind
its text point to the zero row at the memory's end, so that padding is exactly zero wherever it is gathered. With
padding="released", every text has `words` positions and every context `turns` turns, and all positions count.

GRUs read texts that follow each other in a flat tensor, without padding, and equal beginnings once. With gradients, the first
words of all texts are read side by side, then the second words, and so on. Without them, each distinct beginning is read once:
the replies of a search differ in a few words, so a GRU's state before the first difference is the same for all. Nothing is kept
between calls.

Shapes: W positions of all texts, T texts, C contexts, K turns, P pairs of context and reply, R rows, N positions of a row, S
different words, L letters. Of GRUs: R texts, X positions of all of them, B distinct beginnings of all lengths, S steps of
texts side by side, H state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.corpora.pairs.vocabulary import PAD_ID, UNK, PairVocabulary
from parley.envs.ranking.groups import Context
from parley.policies.core.gru import GRU, recur_packed
from parley.policies.core.layers import Weight, dense, tanh_
from parley.policies.ranking.matching.settings import MatcherSizes, MrfnSizes

_TOGETHER = 16
"""Number of texts side by side, or a multiple of it: making a kernel for another number takes longer than running it."""


class StartedSteps(NamedTuple):
    """Beginnings in the order of their lengths."""

    counts: list[int]
    """Number of beginnings of each length."""
    places_B: Tensor
    """A position that shows each beginning."""
    parents_B: Tensor
    """Index of the beginning that is one word shorter; 0 for those of one word."""
    which_X: Tensor
    """The beginning of each text up to each position."""


class PackedSteps(NamedTuple):
    """Positions of texts side by side, step by step."""

    counts: list[int]
    """Texts of each step, the longest first, with unused positions."""
    places_S: Tensor
    """The position that is read."""
    which_X: Tensor
    """The step and row that read each position."""


class Sequences:
    """Texts that follow each other.

    Args:
        sizes_R: their places, one or more.
        device: device of the tensors.
        codes_X: numbers of the places, equal where the same is read in texts that may begin alike; None: nothing is alike.
    """

    def __init__(self, sizes_R: np.ndarray, device: torch.device, codes_X: np.ndarray | None = None) -> None:
        self._sizes_R, self._device, self._codes_X = sizes_R, device, codes_X
        self._ends_R = sizes_R.cumsum()
        self._starts_R = self._ends_R - sizes_R

    def states(self, gru: GRU, inputs_XD: Tensor, ahead: int = 0) -> Tensor:
        """Return the states of a GRU (X, H) after every position, from zero before each text.

        Args:
            gru: with its weights.
            inputs_XD: its inputs.
            ahead: number of later positions that the input at one depends on.
        """
        states_SH, which_X = self._read(gru, inputs_XD, ahead)
        return F.embedding(which_X, states_SH)

    def last_states(self, gru: GRU, inputs_XD: Tensor, ahead: int = 0) -> Tensor:
        """Return the states (R, H) after the last position of each text, see `states`."""
        states_SH, which_X = self._read(gru, inputs_XD, ahead)
        return F.embedding(which_X[torch.from_numpy(self._ends_R - 1).to(self._device)], states_SH)

    def _read(self, gru: GRU, inputs_XD: Tensor, ahead: int) -> tuple[Tensor, Tensor]:
        if self._codes_X is not None and not torch.is_grad_enabled():
            begun = self.begun(ahead)
            return begun_states(gru, inputs_XD, begun), begun.which_X
        packed = self.packed
        inputs_SD = F.embedding(packed.places_S, inputs_XD)
        if gru.training and inputs_SD.is_cuda:
            # cuDNN starts a few kernels where a loop starts a dozen a step; it differentiates in training alone.
            return gru(PackedSequence(inputs_SD, torch.tensor(packed.counts)))[0].data, packed.which_X
        gates_S3H = dense(inputs_SD, gru.weight_ih_l0, gru.bias_ih_l0)
        start = inputs_XD.new_zeros(packed.counts[0], gru.hidden_size)
        return recur_packed(gates_S3H, gru.weight_hh_l0, gru.bias_hh_l0, start, packed.counts), packed.which_X

    @cached_property
    def packed(self) -> PackedSteps:
        """All positions, side by side."""
        order_R = np.argsort(-self._sizes_R, kind="stable")
        # Number of texts with a position at each step.
        there_N = len(order_R) - np.searchsorted(self._sizes_R[order_R[::-1]], np.arange(self._sizes_R.max()), side="right")
        counts_N = -(-there_N // _TOGETHER) * _TOGETHER
        begins_N = counts_N.cumsum() - counts_N
        rank_R = np.empty_like(order_R)
        rank_R[order_R] = np.arange(len(order_R))
        columns_X = np.arange(self._ends_R[-1]) - np.repeat(self._starts_R, self._sizes_R)
        which_X = begins_N[columns_X] + np.repeat(rank_R, self._sizes_R)
        places_S = np.zeros(counts_N.sum(), dtype=np.int64)
        places_S[which_X] = np.arange(len(which_X))
        return PackedSteps(counts_N.tolist(), *(torch.from_numpy(indices).to(self._device) for indices in (places_S, which_X)))

    def begun(self, ahead: int) -> StartedSteps:
        """Return distinct beginnings of equal positions that `ahead` equal positions, or the end of the text, follow."""
        order_R, differs_RN, real_RN = self._in_order
        size = real_RN.shape[1]
        differs_RN = differs_RN[:, np.minimum(np.arange(size) + ahead, size - 1)]
        new_RN = differs_RN & real_RN
        counts_N = new_RN.sum(0)
        number_RN = new_RN.cumsum(0) - 1 + counts_N.cumsum() - counts_N
        columns_B, rows_B = new_RN.T.nonzero()
        parents_B = np.where(columns_B > 0, number_RN[rows_B, columns_B - 1], 0)
        places_B = self._starts_R[order_R[rows_B]] + columns_B
        which_X = np.empty(self._ends_R[-1], dtype=np.int64)
        which_X[(self._starts_R[order_R, None] + np.arange(size))[real_RN]] = number_RN[real_RN]
        made = (torch.from_numpy(indices).to(self._device) for indices in (places_B, parents_B, which_X))
        return StartedSteps(counts_N.tolist(), *made)

    @cached_property
    def _in_order(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Texts in alphabetical order (R,), where each differs from the last one (R, N), and where it is (R, N)."""
        assert self._codes_X is not None, "codes of equal words are needed"
        columns_N = np.arange(self._sizes_R.max())
        codes_RN = np.full((len(self._sizes_R), len(columns_N)), -1)
        codes_RN[columns_N < self._sizes_R[:, None]] = self._codes_X
        order_R = np.lexsort(codes_RN.T[::-1])
        codes_RN = codes_RN[order_R]
        # In this order a row begins like the last one, or like none before.
        differs_RN = np.ones(codes_RN.shape, dtype=bool)
        np.logical_or.accumulate(codes_RN[1:] != codes_RN[:-1], axis=1, out=differs_RN[1:])
        return order_R, differs_RN, codes_RN >= 0


def begun_states(gru: GRU, inputs_XD: Tensor, steps: StartedSteps) -> Tensor:
    """Return the states of a GRU (B, H) after each beginning, from zero. Not differentiable.

    Args:
        gru: with its weights.
        inputs_XD: equal where beginnings are.
        steps: the beginnings.
    """
    size = gru.hidden_size
    gates_B3H = dense(inputs_XD[steps.places_B], gru.weight_ih_l0, gru.bias_ih_l0)
    weight = Weight(gru.weight_hh_l0)
    states_BH = inputs_XD.new_empty(len(gates_B3H), size)
    end = 0
    for step, count in enumerate(steps.counts):
        start, end = end, end + count
        gates = gates_B3H[start:end]
        before = states_BH[steps.parents_B[start:end]] if step else states_BH.new_zeros(count, size)
        product = weight(before).add_(gru.bias_hh_l0)
        reset_update = gates[:, : 2 * size].add_(product[:, : 2 * size]).sigmoid_()
        candidate = tanh_(gates[:, 2 * size :].addcmul_(reset_update[:, :size], product[:, 2 * size :]))
        torch.lerp(candidate, before, reset_update[:, size:], out=states_BH[start:end])
    return states_BH


_WASTE = 1.3
"""Ratio of padded to real cells above which a bucket is cut, unless it holds few rows."""


class Rows(NamedTuple):
    """Texts side by side."""

    places_RN: Tensor
    """Position of each word in the memory; its end where there is none."""
    read_RN: Tensor
    """True at words."""
    real_RN: Tensor
    """True at positions that count: words, and with padding="released" all."""


class Padded:
    """Texts in buckets, side by side in each; for layers that read whole texts, such as attention.

    Args:
        block: that holds them.
        texts_Q: indices of the texts.
        chosen: of these, those of each bucket, all of them once.
    """

    def __init__(self, block: Block, texts_Q: np.ndarray, chosen: Sequence[np.ndarray]) -> None:
        self.rows = [block.rows(texts_Q[bucket]) for bucket in chosen]
        """Those of each bucket."""
        self._shapes = [bucket.places_RN.shape for bucket in self.rows]
        sizes_Q = block.rooms_T[texts_Q]
        firsts_Q, starts_Q, begin = np.empty_like(sizes_Q), sizes_Q.cumsum() - sizes_Q, 0
        for bucket, (rows, columns) in zip(chosen, self._shapes, strict=True):
            firsts_Q[bucket] = begin + np.arange(rows) * columns
            begin += rows * columns
        columns_X = np.arange(sizes_Q.sum()) - np.repeat(starts_Q, sizes_Q)
        cells_X = np.repeat(firsts_Q, sizes_Q) + columns_X
        self.numbers_X = np.repeat(block.starts_T[texts_Q], sizes_Q) + columns_X
        """Where in the memory each place of the texts stands, one text behind the other."""
        self.places_X = block.tensor(self.numbers_X)
        """The same on the block's device."""
        self._cells_X = block.tensor(cells_X)
        self._memory_Y = torch.cat([bucket.places_RN.flatten() for bucket in self.rows])

    def spread(self, memory_WD: Tensor) -> Iterator[Tensor]:
        """Return the rows (R, N, D) of each bucket, of a memory with a zero row at its end."""
        sizes = [rows * columns for rows, columns in self._shapes]
        # Each gather has gradients as large as its source; without gradients, a bucket is gathered when it is read.
        if torch.is_grad_enabled():
            whole: Iterable[Tensor] = at(memory_WD, self._memory_Y).split(sizes)
        else:
            whole = (at(memory_WD, places) for places in self._memory_Y.split(sizes))
        return (part.unflatten(0, shape) for part, shape in zip(whole, self._shapes, strict=True))

    def joined(self, parts: Sequence[Tensor]) -> Tensor:
        """Return the values (X, D) of rows (R, N, D) of the buckets, in the order of `places_X`."""
        return at(torch.cat([rows.flatten(0, 1) for rows in parts]), self._cells_X)


def at(flat_WD: Tensor, places: Tensor) -> Tensor:
    """Return the rows at some positions (..., D), gathered as embeddings, which torch does and differentiates fastest."""
    return F.embedding(places, flat_WD)


def with_zero(flat_WD: Tensor) -> Tensor:
    """Return the rows and a zero row behind them, which padding points to."""
    return F.pad(flat_WD, (0, 0, 0, 1))


@dataclass(frozen=True)
class Block:
    """Some contexts with their candidates.

    Args:
        words_W: vocabulary ids; from the vocabulary's size on they are unknown words that are told apart.
        spelt_W: index of the different word at each position.
        letters_SL: ids of its letters, 0 behind them; no columns where the model reads none.
        starts_T: start of each text.
        lengths_T: its words.
        rooms_T: its places.
        turns_CK: the texts of each context's turns, oldest first, -1 behind the newest.
        pairs_P2: context and text of the reply of each pair.
        device: device of the tensors.
    """

    words_W: np.ndarray
    spelt_W: np.ndarray
    letters_SL: np.ndarray
    starts_T: np.ndarray
    lengths_T: np.ndarray
    rooms_T: np.ndarray
    turns_CK: np.ndarray
    pairs_P2: np.ndarray
    device: torch.device

    def tensor(self, values: np.ndarray) -> Tensor:
        """Return the array on the block's device."""
        return torch.from_numpy(values).to(self.device)

    def rows(self, texts: np.ndarray) -> Rows:
        """Return texts side by side; those of -1 have no position.

        Args:
            texts: (...,) which; the result has one dimension more.
        """
        there = texts >= 0
        rooms, lengths = np.where(there, self.rooms_T[texts], 0), np.where(there, self.lengths_T[texts], 0)
        columns = np.arange(rooms.max(), dtype=np.int64)
        real = columns < rooms[..., None]
        places = np.where(real, self.starts_T[texts][..., None] + columns, len(self.words_W))
        return Rows(self.tensor(places), self.tensor(columns < lengths[..., None]), self.tensor(real))

    @cached_property
    def codes_W(self) -> np.ndarray:
        """Numbers that are equal where the model reads the same word."""
        return self.words_W * len(self.letters_SL) + self.spelt_W

    @cached_property
    def read_W(self) -> Tensor:
        """True at words."""
        columns_W = np.arange(len(self.words_W)) - np.repeat(self.starts_T, self.rooms_T)
        return self.tensor(columns_W < np.repeat(self.lengths_T, self.rooms_T))

    @cached_property
    def texts(self) -> Sequences:
        """All texts, in their order in the memory."""
        return Sequences(self.rooms_T, self.device, self.codes_W)

    def padded(self, most_cells: int) -> Padded:
        """Return all texts in buckets of like size, each of at most so many positions."""
        return Padded(self, np.arange(len(self.rooms_T)), list(buckets(self.rooms_T[:, None], most_cells)))

    @cached_property
    def matches(self) -> tuple[np.ndarray, np.ndarray]:
        """The different (turn, reply) (M, 2), and the index for each turn of each pair (P, K), M behind the newest."""
        turns_PK, num_texts = self.turns_CK[self.pairs_P2[:, 0]], len(self.rooms_T)
        codes_PK = turns_PK * num_texts + self.pairs_P2[:, 1:]
        codes_M, which = np.unique(codes_PK[turns_PK >= 0], return_inverse=True)
        sessions_PK = np.full(turns_PK.shape, len(codes_M), dtype=np.int64)
        sessions_PK[turns_PK >= 0] = which
        return np.stack([codes_M // num_texts, codes_M % num_texts], axis=1), sessions_PK

    @cached_property
    def sessions(self) -> tuple[Tensor, Sequences]:
        """The matches of each pair's turns, pair after pair, and these sequences."""
        met_M2, sessions_PK = self.matches
        is_turn_PK = sessions_PK < len(met_M2)
        return self.tensor(sessions_PK[is_turn_PK]), Sequences(is_turn_PK.sum(1), self.device)


def buckets(sizes_ND: np.ndarray, most_cells: int, few: int = 128) -> Iterator[np.ndarray]:
    """Yield groups of rows of like size, with little padding.

    Args:
        sizes_ND: the sizes of each row; a group is padded to the largest of each.
        most_cells: of a group, padding counted, unless it is one row.
        few: rows of which a group is not cut for its padding's sake.
    """
    pending = [np.arange(len(sizes_ND))]
    while pending:
        rows = pending.pop()
        part = sizes_ND[rows]
        largest = part.max(0)
        padded = len(rows) * int(largest.prod())
        wasteful = len(rows) > few and padded > _WASTE * part.prod(1).sum()
        if len(rows) > 1 and (padded > most_cells or wasteful):
            axis = int((largest / np.maximum(part.mean(0), 1e-9)).argmax())
            order, half = np.argsort(part[:, axis], kind="stable"), len(rows) // 2
            pending += [rows[order[half:]], rows[order[:half]]]
        else:
            yield rows


class Alphabet:
    """The letters that a model tells apart: those of most of its words; 0 is no letter, 1 any other.

    Args:
        vocabulary: the model's words.
        sizes: numbers of letters, in all and of a word.
    """

    def __init__(self, vocabulary: PairVocabulary, sizes: MrfnSizes) -> None:
        letters = "".join(vocabulary.words[len(vocabulary.SPECIALS) :])
        distinct, counts = np.unique(np.array(list(letters), dtype=str), return_counts=True)
        common = distinct[np.argsort(-counts, kind="stable")][: sizes.alphabet]
        self._ids = {letter: number for number, letter in enumerate(common.tolist(), start=2)}
        self._length = sizes.letters

    def spell(self, words: Sequence[str]) -> np.ndarray:
        """Return the ids of the letters of words (S, L)."""
        spelt = np.zeros((len(words), self._length), dtype=np.int64)
        for row, word in enumerate(words):
            ids = [self._ids.get(letter, 1) for letter in word[: self._length]]
            spelt[row, : len(ids)] = ids
        return spelt


class Reader:
    """A maker of blocks of contexts and candidates."""

    def __init__(self, vocabulary: PairVocabulary, sizes: MatcherSizes) -> None:
        self._vocabulary, self._sizes = vocabulary, sizes
        self._alphabet = Alphabet(vocabulary, sizes) if isinstance(sizes, MrfnSizes) else None

    def read(self, pairs: Sequence[tuple[Context, Sequence[Utterance]]], device: torch.device) -> Block:
        """Return the block of some contexts, each with its candidates, in their order.

        A turn or reply without a word is read as one `<unk>`, and a context without a turn as one such turn.
        """
        sizes, released = self._sizes, self._sizes.padding == "released"
        texts, contexts, met = _Texts(self._vocabulary, sizes.unknowns, self._alphabet is not None), [], []
        for number, (context, candidates) in enumerate(pairs):
            unknown_numbers: dict[str, int] = {}
            turns = [texts.add(self._cut(turn), unknown_numbers) for turn in context[-sizes.turns :] or ((),)]
            contexts.append(turns + [texts.padding] * (sizes.turns - len(turns)) if released else turns)
            # A reply's own unknown words stay its own, so that its neighbours do not matter.
            met += [(number, texts.add(self._cut(reply), dict(unknown_numbers))) for reply in candidates]
        turns_CK = np.full((len(contexts), max(map(len, contexts))), -1, dtype=np.int64)
        for row, turns in enumerate(contexts):
            turns_CK[row, : len(turns)] = turns
        lengths = np.array([len(ids) for ids in texts.ids], dtype=np.int64)
        rooms = np.full_like(lengths, sizes.words) if released else lengths
        ids = _concatenated(texts.ids, rooms)
        spelt = _concatenated(texts.spelt, rooms) if self._alphabet else np.zeros_like(ids)
        different = list(texts.different)
        letters = self._alphabet.spell(different) if self._alphabet else np.zeros((len(different), 0), dtype=np.int64)
        starts = np.cumsum(rooms) - rooms
        return Block(ids, spelt, letters, starts, lengths, rooms, turns_CK, np.array(met, dtype=np.int64), device)

    def _cut(self, words: Utterance) -> Utterance:
        return words[-self._sizes.words :] or (UNK,)


class _Texts:
    """The distinct texts of a block under construction.

    Args:
        vocabulary: known words.
        unknowns: number of unknown words of one example that are told apart.
        spells: whether it is noted which different word stands at each place.
    """

    def __init__(self, vocabulary: PairVocabulary, unknowns: int, spells: bool) -> None:
        self._vocabulary, self._unknowns, self._spells = vocabulary, unknowns, spells
        self._index: dict[tuple[object, ...], int] = {}
        self.ids: list[list[int]] = []
        self.spelt: list[list[int]] = []
        self.different: dict[str, int] = {"": 0}

    @property
    def padding(self) -> int:
        """The text of a turn that is not there: no words, though it has positions."""
        return self.add((), {})

    def add(self, words: Utterance, unknown_numbers: dict[str, int]) -> int:
        """Return the text's number.

        Args:
            words: of the text.
            unknown_numbers: numbers of the unknown words of its example; grows.
        """
        key: tuple[object, ...] = words
        if self._unknowns:
            ids = self._with_unknowns(words, unknown_numbers)
            key = (words, tuple(ids))
        if key not in self._index:
            index_of, unknown = self._vocabulary.index, self._vocabulary.UNKNOWN_ID
            self._index[key] = len(self.ids)
            self.ids.append(ids if self._unknowns else [index_of.get(word, unknown) for word in words])
            if self._spells:
                self.spelt.append([self.different.setdefault(word, len(self.different)) for word in words])
        return self._index[key]

    def _with_unknowns(self, words: Utterance, unknown_numbers: dict[str, int]) -> list[int]:
        index_of, num_known, ids = self._vocabulary.index, len(self._vocabulary), []
        for word in words:
            if (word_id := index_of.get(word, -1)) < 0:
                number = unknown_numbers.setdefault(word, len(unknown_numbers))
                word_id = num_known + number if number < self._unknowns else self._vocabulary.UNKNOWN_ID
            ids.append(word_id)
        return ids


def _concatenated(rows: Sequence[Sequence[int]], rooms: np.ndarray) -> np.ndarray:
    """Return rows one after another (W,), each in its room."""
    flat = np.full(int(rooms.sum()), PAD_ID, dtype=np.int64)
    for row, end, room in zip(rows, np.cumsum(rooms), rooms, strict=True):
        flat[end - room : end - room + len(row)] = row
    return flat
