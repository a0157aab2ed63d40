"""Texts read for perturbation, and written again with edits: what no edit touches stays as it is, letter by letter.

A text is cut at its blanks; what a piece between two blanks reads as is remembered, because most pieces come again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain, groupby

import numpy as np

from engine.perturb.changes import ChangeKind, aligned
from engine.perturb.flat import Edits, FlatContexts, running
from engine.perturb.rewriting import Edit, WrittenText
from envs.core.errors import ConfigError
from envs.pairs.tokens import tokenise_where
from envs.pairs.turns import Turns, Utterance, parse_turns, tokens_where

_NUM_PIECES = 1 << 17
_LONGEST = 64
"""Letters of a piece that is remembered."""


class _Pieces(dict[str, Utterance]):
    """Pieces of texts between two blanks, and their tokens."""

    def __init__(self) -> None:
        self.with_marks: set[str] = set()
        """Those in which utterances or turns meet."""

    def __missing__(self, piece: str) -> Utterance:
        cut, has_marks = _cut(piece)
        tokens = tuple(token for token, _, _ in cut)
        if len(self) >= _NUM_PIECES:
            self.clear()
            self.with_marks.clear()
        if has_marks:
            self.with_marks.add(piece)
        elif len(piece) <= _LONGEST:
            self[piece] = tokens
        return tokens


_PIECES = _Pieces()


class Texts:
    """Texts and their tokens.

    Args:
        texts: each is a context; a line (`envs/pairs/turns.py`), whose turns and utterances may be told apart by marks.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts
        lists = [text.split(" ") for text in texts]
        self._pieces = list(chain.from_iterable(lists))
        self._piece_edges = _edges(lists)
        tokens = list(map(_PIECES.__getitem__, self._pieces))
        self._edges = _edges(tokens)
        words = tuple(chain.from_iterable(tokens))
        edges = self._edges[self._piece_edges]
        self._text_edges = edges
        one_each = np.arange(len(texts) + 1)
        turn_edges = shape_edges = one_each
        marks = _PIECES.with_marks
        if marks and not marks.isdisjoint(self._pieces):
            shapes = [
                ((hi - lo,),) if marks.isdisjoint(pieces) else tuple(tuple(map(len, turn)) for turn in parse_turns(text))
                for text, pieces, lo, hi in zip(texts, lists, edges[:-1].tolist(), edges[1:].tolist(), strict=True)
            ]
            turns = list(chain.from_iterable(shapes))
            shape_edges, turn_edges = _edges(shapes), _edges(turns)
            edges = running(np.array(list(chain.from_iterable(turns)), dtype=np.int64))
        self.flat = FlatContexts.laid(words, edges, turn_edges, shape_edges)

    def edits_to(self, perturbed: Sequence[Turns], name: str) -> Edits:
        """The edits that make of each context what a strategy made of it.

        Args:
            perturbed: one for each text.
            name: the strategy's.

        Raises:
            ConfigError: turns or utterances are not as many as before, or one without a word was filled.
        """
        starts: list[int] = []
        ends: list[int] = []
        others: list[Utterance] = []
        after = [utterance for turns in perturbed for turn in turns for utterance in turn]
        if [list(map(len, turns)) for turns in perturbed] != [list(map(len, turns)) for turns in self.flat.contexts]:
            raise ConfigError(f"{name} changes how many turns or utterances there are", fix="keep them, as Strategy says")
        for edge, old, new in zip(self.flat.edges.tolist(), self.flat.utterances, after, strict=False):
            if old == new:
                continue
            if not old:
                raise ConfigError(f"{name} fills an utterance that has no word", got=" ".join(new), fix="leave it empty")
            for kind, before, now in aligned(old, new):
                if kind is not ChangeKind.SAME:
                    # Words behind the last one come with it.
                    behind = before.start == before.stop == len(old)
                    starts.append(edge + before.start - behind)
                    ends.append(edge + before.stop)
                    others.append((*old[before.start - behind : before.start], *new[now]))
        return Edits(np.array(starts, dtype=np.int64), np.array(ends, dtype=np.int64), others)

    def rewritten(self, edits: Edits) -> list[str]:
        """The texts with edits."""
        result = list(self.texts)
        owners = (np.searchsorted(self._text_edges, edits.starts, side="right") - 1).tolist()
        each = zip(owners, edits.starts.tolist(), edits.ends.tolist(), edits.others, strict=True)
        for number, group in groupby(each, key=lambda edit: edit[0]):
            first = int(self._text_edges[number])
            result[number] = self._line(number).rewritten(
                [Edit(start - first, end - first, others) for _, start, end, others in group]
            )
        return result

    def _line(self, number: int) -> WrittenText:
        surfaces: list[str] = []
        gaps: list[str] = []
        gap = ""
        start, end = self._piece_edges[number : number + 2].tolist()
        for place, piece in enumerate(self._pieces[start:end]):
            first, *others = _written(piece)
            gap += " " * (place > 0) + first
            for surface, behind in zip(others[::2], others[1::2], strict=True):
                gaps.append(gap)
                surfaces.append(surface)
                gap = behind
        words = self.flat.words[self._text_edges[number] : self._text_edges[number + 1]]
        return WrittenText(words, surfaces, [*gaps, gap])


@lru_cache(_NUM_PIECES)
def _written(piece: str) -> tuple[str, ...]:
    """What stands before the first token of a piece, what that is written as, what stands behind it, and so on."""
    found, done = [], 0
    for _, start, end in _cut(piece)[0]:
        found += [piece[done:start], piece[start:end]]
        done = end
    return (*found, piece[done:])


def _cut(piece: str) -> tuple[list[tuple[str, int, int]], bool]:
    """The tokens of a piece and where they stand, and whether marks stand between them."""
    between_marks = tokens_where(piece)
    return (tokenise_where(piece), False) if between_marks is None else (between_marks, True)


def _edges(pieces: Sequence[Sequence[object]]) -> np.ndarray:
    return running(np.fromiter(map(len, pieces), dtype=np.int64, count=len(pieces)))
