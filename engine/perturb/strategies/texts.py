"""Texts read for perturbation, and written again with edits: what no edit touches stays as it is, letter by letter.

A text is cut at its blanks; what a piece between two blanks reads as is remembered, because most pieces come again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, chain, groupby, pairwise
from operator import itemgetter

import numpy as np

from parley.engine.perturb.strategies.changes import ChangeKind, aligned
from parley.engine.perturb.strategies.flat import Edits, FlatContexts
from parley.engine.perturb.strategies.rewriting import Edit, WrittenText
from parley.envs.core.errors import ConfigError
from parley.envs.corpora.pairs.tokens import tokenise_where
from parley.envs.corpora.pairs.turns import Turns, Utterance, parse_turns, tokens_where
from parley.envs.corpora.pairs.written import detokenise, reads

_NUM_PIECES = 1 << 17
_GONE = " "
"""Stands for a piece that is left out; no piece is a blank."""
_FEW = 100
"""Edges that are looked through without numpy."""
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
        texts: each is a context; a line (`envs/corpora/pairs/turns.py`), whose turns and utterances may be told apart by marks.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts
        lists = [text.split(" ") for text in texts]
        self._pieces = list(chain.from_iterable(lists))
        self._piece_edges = _edges(lists)
        tokens = list(map(_PIECES.__getitem__, self._pieces))
        self._edges = _edges(tokens)
        self._text_edges = [self._edges[edge] for edge in self._piece_edges]
        edges = np.array(self._text_edges)
        turn_edges = shape_edges = np.arange(len(edges))
        marks = _PIECES.with_marks
        if marks and not marks.isdisjoint(self._pieces):
            shapes = [
                ((end - start,),) if marks.isdisjoint(pieces) else tuple(tuple(map(len, turn)) for turn in parse_turns(text))
                for text, pieces, (start, end) in zip(texts, lists, pairwise(self._text_edges), strict=True)
            ]
            turns = list(chain.from_iterable(shapes))
            shape_edges, turn_edges = np.array(_edges(shapes)), np.array(_edges(turns))
            edges = np.array([0, *accumulate(chain.from_iterable(turns))])
        self.flat = FlatContexts.laid(tuple(chain.from_iterable(tokens)), edges, turn_edges, shape_edges)

    def edits_to(self, perturbed: Sequence[Turns], name: str) -> Edits:
        """The edits that make of each context what a strategy made of it.

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
        if not len(edits.starts):
            return result
        starts, ends = edits.starts.tolist(), edits.ends.tolist()
        owners, cut = _places(self._text_edges, edits.starts), _places(self._edges, edits.starts)
        pieces = [*self._pieces]
        # Those of several tokens, as tokens.
        several: dict[int, list[str]] = {}
        not_plain = {
            owner
            for owner, start, end, others, piece in zip(owners, starts, ends, edits.others, cut, strict=True)
            if not self._written(pieces, several, piece, start, end, others)
        }
        for piece, tokens in several.items():
            whole = "".join(tokens)
            pieces[piece] = whole if reads(whole) == tokens else " ".join(tokens)
        bounds = self._piece_edges
        for number in dict.fromkeys(owners):
            if number not in not_plain:
                left = pieces[bounds[number] : bounds[number + 1]]
                result[number] = " ".join(left if _GONE not in left else [piece for piece in left if piece != _GONE])
        if not_plain:
            each = (edit for edit in zip(owners, starts, ends, edits.others, strict=True) if edit[0] in not_plain)
            for number, group in groupby(each, key=itemgetter(0)):
                first = self._text_edges[number]
                result[number] = self.text(number).rewritten(
                    [Edit(start - first, end - first, others) for _, start, end, others in group]
                )
        return result

    def _written(
        self, pieces: list[str], several: dict[int, list[str]], piece: int, start: int, end: int, others: Utterance
    ) -> bool:
        """Writes an edit into pieces where that is plain: small letters, and nothing but blanks around what changes.

        Returns:
            False: it is not plain; `WrittenText` does the same for all.
        """
        words, edges = self.flat.words, self._edges
        if end - start == len(others):
            for place, other in enumerate(others, start):
                while edges[piece + 1] <= place:
                    piece += 1
                if pieces[piece] == words[place]:
                    pieces[piece] = other
                elif piece in several:
                    several[piece][place - edges[piece]] = other
                else:
                    first, last = edges[piece], edges[piece + 1]
                    tokens = list(words[first:last])
                    if "".join(tokens) != pieces[piece]:
                        return False
                    tokens[place - first] = other
                    several[piece] = tokens
            return True
        if end - start == 1 and pieces[piece] == words[start]:
            pieces[piece] = _joined(others) if others else _GONE
            return True
        if start == end and pieces[piece] == words[start] and words[start].isalnum():
            pieces[piece] = _joined((*others, words[start]))
            return True
        if not others and piece not in several and "".join(words[start:end]) == pieces[piece]:
            pieces[piece] = _GONE
            return True
        return False

    def text(self, number: int) -> WrittenText:
        """One of the texts, as tokens and as what is written."""
        surfaces: list[str] = []
        gaps: list[str] = []
        gap = ""
        start, end = self._piece_edges[number : number + 2]
        for place, piece in enumerate(self._pieces[start:end]):
            first, *others = _parts(piece)
            gap += " " * (place > 0) + first
            for surface, behind in zip(others[::2], others[1::2], strict=True):
                gaps.append(gap)
                surfaces.append(surface)
                gap = behind
        words = self.flat.words[self._text_edges[number] : self._text_edges[number + 1]]
        return WrittenText(words, surfaces, [*gaps, gap])


_joined = lru_cache(_NUM_PIECES)(detokenise)


@lru_cache(_NUM_PIECES)
def _parts(piece: str) -> tuple[str, ...]:
    """What stands before the first token of a piece, what that is written as, what stands behind it, and so on."""
    found, done = [], 0
    for _, start, end in _cut(piece)[0]:
        found += [piece[done:start], piece[start:end]]
        done = end
    return (*found, piece[done:])


def _cut(piece: str) -> tuple[list[tuple[str, int, int]], bool]:
    """The tokens of a piece and where they stand, and whether marks stand between them."""
    if piece.isascii() and piece.isalpha():
        # As most are, and the tokeniser reads them as one word.
        return [(piece.lower(), 0, len(piece))], False
    between_marks = tokens_where(piece)
    return (tokenise_where(piece), False) if between_marks is None else (between_marks, True)


def _edges(pieces: Sequence[Sequence[object]]) -> list[int]:
    return [0, *accumulate(map(len, pieces))]


def _places(edges: Sequence[int], starts: np.ndarray) -> list[int]:
    """Between which edges starts lie; without numpy where they are few."""
    if len(edges) < _FEW:
        return [bisect_right(edges, start) - 1 for start in starts.tolist()]
    found: list[int] = (np.searchsorted(edges, starts, side="right") - 1).tolist()
    return found
