"""Texts as words and back, the edits of a strategy, and the alignment of words before and after.

A text without an edit stays as it is, letter by letter.

A text is cut at its blanks; the tokens of a piece between two blanks are cached, because most pieces come again.

A context keeps its utterances, so each is aligned with itself by difflib and boundaries never match words. Of very many words
only the middle is taken as changed, because difflib takes time that grows with the square of their number. Screens
and pages decide how to mark spans.

`FlatContexts` holds all words of many contexts as one tuple: strategies that need no model work on them in one pass.

Work that happens once an utterance or more often is done by itertools and numpy: most of a quick strategy's time is spent
reading words and building tuples.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import StrEnum
from functools import cached_property, lru_cache
from itertools import accumulate, chain, compress, groupby, pairwise, repeat
from operator import itemgetter
from typing import NamedTuple, TypeVar

import numpy as np

from parley.engine.perturb.strategies.rewriting import Edit, WrittenText
from parley.envs.core.errors import ConfigError
from parley.envs.corpora.pairs.tokens import tokenise_where
from parley.envs.corpora.pairs.turns import EOT, Turn, Turns, Utterance, detokenise, parse_turns, reads, tokens_where
from parley.envs.corpora.pairs.vocabulary import EOU


class ChangeKind(StrEnum):
    """The kind of a change."""

    SAME = "same"
    REPLACED = "replaced"
    INSERTED = "inserted"
    DELETED = "deleted"


_MOST_WORDS = 500
"""Of an utterance that difflib aligns."""
_KINDS = {"equal": ChangeKind.SAME, "replace": ChangeKind.REPLACED, "insert": ChangeKind.INSERTED, "delete": ChangeKind.DELETED}


@dataclass(frozen=True)
class Span:
    """Neighbouring words with the same fate.

    Args:
        kind: which.
        before: the words as they were; none when inserted.
        after: the words as they are; none when deleted.
    """

    kind: ChangeKind
    before: tuple[str, ...]
    after: tuple[str, ...]


def spans(before: Turns, after: Turns) -> list[Span]:
    """Align two contexts, boundaries included.

    Args:
        before: the context.
        after: what a strategy made of it; as many utterances in as many turns.
    """
    aligned_spans: list[Span] = []
    for number, (old, new) in enumerate(zip(before, after, strict=True)):
        if number:
            aligned_spans.append(_boundary(EOT))
        for row, (words, after_words) in enumerate(zip(old, new, strict=True)):
            if row:
                aligned_spans.append(_boundary(EOU))
            aligned_spans.extend(_aligned_spans(words, after_words))
    return aligned_spans


def spans_of_words(before: str, after: str) -> list[Span]:
    """Align the words of two texts of one utterance each."""
    return spans(((tuple(before.split()),),), ((tuple(after.split()),),))


def pieces(aligned_spans: Sequence[Span], *shown: str) -> list[tuple[str, str]]:
    """Return the texts of spans, each with the side that alone has it; the side is empty for words of both.

    Args:
        aligned_spans: the spans.
        shown: the sides to show, "before" and "after".
    """
    return [
        (" ".join(getattr(span, side)), "" if span.kind is ChangeKind.SAME else side)
        for span in aligned_spans
        for side in (shown[:1] if span.kind is ChangeKind.SAME else shown)
    ]


def num_changed(aligned_spans: Sequence[Span]) -> int:
    """Count the changed words: of a replacement, those of its longer side."""
    return sum(max(len(span.before), len(span.after)) for span in aligned_spans if span.kind is not ChangeKind.SAME)


def bracketed(aligned_spans: Sequence[Span]) -> tuple[str, str]:
    """Write both contexts as lines of text, changed words in [brackets]."""
    return _line(aligned_spans, "before"), _line(aligned_spans, "after")


def _line(aligned_spans: Sequence[Span], side: str) -> str:
    pieces = ((span, " ".join(getattr(span, side))) for span in aligned_spans)
    return " ".join(text if span.kind is ChangeKind.SAME else f"[{text}]" for span, text in pieces if text)


def _boundary(word: str) -> Span:
    return Span(ChangeKind.SAME, (word,), (word,))


def aligned(old: Utterance, new: Utterance) -> Iterator[tuple[ChangeKind, slice, slice]]:
    """Align the words of an utterance before and after, in order."""
    if max(len(old), len(new)) <= _MOST_WORDS:
        opcodes: Iterable[tuple[str, int, int, int, int]] = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    elif len(old) == len(new):
        runs = [[*run] for _, run in groupby(range(len(old)), key=lambda i: old[i] == new[i])]
        tags = ("equal" if old[run[0]] == new[run[0]] else "replace" for run in runs)
        opcodes = [(tag, run[0], run[-1] + 1, run[0], run[-1] + 1) for tag, run in zip(tags, runs, strict=True)]
    else:
        first = next((i for i, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1]), min(len(old), len(new)))
        ends = zip(reversed(old[first:]), reversed(new[first:]), strict=False)
        last = next((i for i, (word, other) in enumerate(ends) if word != other), min(len(old), len(new)) - first)
        i, j = len(old) - last, len(new) - last
        kind = "replace" if first < min(i, j) else "delete" if first < i else "insert"
        opcodes = [("equal", 0, first, 0, first), (kind, first, i, first, j), ("equal", i, len(old), j, len(new))]
    changes = ((_KINDS[tag], slice(i, i_end), slice(j, j_end)) for tag, i, i_end, j, j_end in opcodes)
    yield from ((kind, before, after) for kind, before, after in changes if old[before] or new[after])


def _aligned_spans(old: Utterance, new: Utterance) -> Iterator[Span]:
    if old == new:
        if old:
            yield Span(ChangeKind.SAME, old, new)
        return
    yield from (Span(kind, old[before], new[after]) for kind, before, after in aligned(old, new))


PieceT = TypeVar("PieceT")


class Edits(NamedTuple):
    """The edits of a strategy: replacements of words in `FlatContexts.words`."""

    starts: np.ndarray
    """The position of the first replaced word (M,) int64, ascending."""
    ends: np.ndarray
    """The position behind the last replaced word, in the same utterance, at most the next start (M,) int64; equal to the start:
    the replacement is inserted before that word."""
    replacements: Sequence[Utterance]
    """The new words (M); empty: the words are left out. As many words as before replace one another in order."""

    @classmethod
    def of_words(cls, positions: np.ndarray, replacements: Sequence[Utterance]) -> Edits:
        """Return edits of single words.

        Args:
            positions: of those words, ascending (M,) int64.
            replacements: of each word (M).
        """
        return cls(positions, positions + 1, replacements)


class FlatContexts:
    """Contexts laid end to end.

    Args:
        contexts: turns, oldest first.
    """

    def __init__(self, contexts: Sequence[Turns]) -> None:
        self.contexts = contexts

    @classmethod
    def laid(cls, words: Utterance, edges: np.ndarray, turn_edges: np.ndarray, shape_edges: np.ndarray) -> FlatContexts:
        """Return contexts of given `words`, `edges`, `turn_edges` and `shape_edges`."""
        flat = cls.__new__(cls)
        flat.__dict__.update(words=words, edges=edges, turn_edges=turn_edges, shape_edges=shape_edges)
        return flat

    @cached_property
    def contexts(self) -> Sequence[Turns]:
        """The contexts."""
        return self.cut(self.words)

    @cached_property
    def turns(self) -> Turns:
        """Return the turns of all contexts."""
        return tuple(chain.from_iterable(self.contexts))

    @cached_property
    def utterances(self) -> Turn:
        """Return the utterances of all turns."""
        return tuple(chain.from_iterable(self.turns))

    @cached_property
    def words(self) -> Utterance:
        """Return the words of all utterances (N)."""
        words: list[str] = []
        for utterance in self.utterances:
            words += utterance
        return tuple(words)

    @cached_property
    def edges(self) -> np.ndarray:
        """Return the offsets of utterances among the words, and the end of the last one (utterances + 1,) int64."""
        return _edges(self.utterances)

    @cached_property
    def context_edges(self) -> np.ndarray:
        """Return the offsets of contexts among the words, and the end of the last one (contexts + 1,) int64."""
        return self.edges[self.turn_edges[self.shape_edges]]

    @property
    def num_words(self) -> np.ndarray:
        """Return the number of words of each context (contexts,) int64."""
        return np.diff(self.context_edges)

    @cached_property
    def turn_edges(self) -> np.ndarray:
        """Return the offsets of turns among the utterances (turns + 1,)."""
        return _edges(self.turns)

    @cached_property
    def shape_edges(self) -> np.ndarray:
        """Return the offsets of contexts among the turns (contexts + 1,)."""
        return _edges(self.contexts)

    def num_in_contexts(self, positions: np.ndarray) -> np.ndarray:
        """Count how many of some words lie in each context.

        Args:
            positions: of those words, ascending.

        Returns:
            (contexts,) int64.
        """
        return np.diff(np.searchsorted(positions, self.context_edges))

    def are_in(self, listed: Container[str]) -> np.ndarray:
        """Mark the words that a list holds (N,) bool."""
        return np.frombuffer(bytearray(map(listed.__contains__, self.words)), dtype=bool)

    def numbered(self, numbers: Mapping[str, int]) -> np.ndarray:
        """Return the numbers of the words, 0 where they have none (N,) int64."""
        return np.fromiter(map(numbers.get, self.words, repeat(0)), dtype=np.int64, count=len(self.words))

    def ends_of(self, positions: np.ndarray) -> np.ndarray:
        """Return the ends of the utterances of some of the words.

        Args:
            positions: of those words (M,) int64.

        Returns:
            (M,) int64.
        """
        return self.edges[np.searchsorted(self.edges, positions, side="right")]

    def cut(self, words: Utterance, edges: np.ndarray | None = None) -> list[Turns]:
        """Cut words into contexts of the same shape.

        Args:
            words: of all utterances.
            edges: where utterances begin among them, as `edges`; as they did when not given.
        """
        return self.shaped(tuple(_cut(words, self.edges if edges is None else edges)))

    def edits_of(self, edits: Iterable[tuple[int, int, Utterance] | None]) -> Edits:
        """Make edits of the edit that a rule made in each utterance.

        Args:
            edits: for each of `utterances` the start, the end and the replacement in it; None: no edit.
        """
        edges = zip(self.edges[:-1].tolist(), edits, strict=True)
        moved = [(edge + edit[0], edge + edit[1], edit[2]) for edge, edit in edges if edit is not None]
        starts, ends, replacements = zip(*moved, strict=True) if moved else ((), (), ())
        return Edits(np.array(starts, dtype=np.int64), np.array(ends, dtype=np.int64), replacements)

    def replaced(self, edits: Edits) -> list[Turns]:
        """Return the contexts with these edits."""
        starts, ends, replacements = edits
        if not len(starts):
            return list(self.contexts)
        words = list(self.words)
        longer = np.fromiter(map(len, replacements), dtype=np.int64, count=len(replacements)) - (ends - starts)
        as_long = longer == 0
        in_place = zip(starts[as_long].tolist(), ends[as_long].tolist(), compress(replacements, as_long.tolist()), strict=True)
        for start, end, replacement in in_place:
            words[start:end] = replacement
        moving = np.flatnonzero(~as_long)
        starts, ends, longer = starts[moving], ends[moving], longer[moving]
        written: list[str] = []
        done = 0
        for start, end, i in zip(starts.tolist(), ends.tolist(), moving.tolist(), strict=True):
            written += words[done:start]
            written += replacements[i]
            done = end
        written += words[done:]
        return self.cut(tuple(written), self.edges + running(longer)[np.searchsorted(starts, self.edges)])

    def shaped(self, utterances: Turn) -> list[Turns]:
        """Shape utterances into contexts with as many in each turn.

        Args:
            utterances: as many as `utterances`.
        """
        return _cut(tuple(_cut(utterances, self.turn_edges)), self.shape_edges)


def running(counts: np.ndarray) -> np.ndarray:
    """Return the sums of the first 0, 1, 2, ..., all counts (counts + 1,) int64."""
    sums = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=sums[1:])
    return sums


def _edges(pieces: Sequence[Sized]) -> np.ndarray:
    return running(np.fromiter(map(len, pieces), dtype=np.int64, count=len(pieces)))


def _cut(pieces: tuple[PieceT, ...], edges: np.ndarray) -> list[tuple[PieceT, ...]]:
    """Cut pieces at edges."""
    counts = np.diff(edges)
    if len(counts) and counts[0] and (counts == counts[0]).all():
        # As most contexts are: as many turns each, of one utterance each.
        return list(zip(*[iter(pieces)] * int(counts[0]), strict=True))
    return [pieces[start:end] for start, end in pairwise(edges.tolist())]


_NUM_PIECES = 1 << 17
_GONE = " "
"""Stands for a piece that is left out; no piece is a blank."""
_LONGEST = 64
"""Letters of a piece that is remembered."""


class _Pieces(dict[str, Utterance]):
    """Pieces of texts between two blanks, and their tokens."""

    def __init__(self) -> None:
        self.with_marks: set[str] = set()
        """Pieces that hold a mark between utterances or turns."""

    def __missing__(self, piece: str) -> Utterance:
        cut, has_marks = _cut_texts(piece)
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
        texts: each is a context; a line (`envs/corpora/pairs/turns.py`), whose turns and utterances marks may separate.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts
        lists = [text.split(" ") for text in texts]
        self._pieces = list(chain.from_iterable(lists))
        self._piece_edges = _edges_texts(lists)
        tokens = list(map(_PIECES.__getitem__, self._pieces))
        self._edges = _edges_texts(tokens)
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
            shape_edges, turn_edges = np.array(_edges_texts(shapes)), np.array(_edges_texts(turns))
            edges = np.array([0, *accumulate(chain.from_iterable(turns))])
        self.flat = FlatContexts.laid(tuple(chain.from_iterable(tokens)), edges, turn_edges, shape_edges)

    def edits_to(self, perturbed: Sequence[Turns], name: str) -> Edits:
        """Return the edits between the contexts and what a strategy made of them.

        Raises:
            ConfigError: turns or utterances are not as many as before, or one without a word was filled.
        """
        starts: list[int] = []
        ends: list[int] = []
        replacements: list[Utterance] = []
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
                    replacements.append((*old[before.start - behind : before.start], *new[now]))
        return Edits(np.array(starts, dtype=np.int64), np.array(ends, dtype=np.int64), replacements)

    def rewritten(self, edits: Edits) -> list[str]:
        """Return the texts with these edits."""
        result = list(self.texts)
        if not len(edits.starts):
            return result
        starts, ends = edits.starts.tolist(), edits.ends.tolist()
        owners, cut = (
            (np.searchsorted(edges, edits.starts, side="right") - 1).tolist() for edges in (self._text_edges, self._edges)
        )
        pieces = [*self._pieces]
        # Those of several tokens, as tokens.
        several: dict[int, list[str]] = {}
        not_plain = {
            owner
            for owner, start, end, new, piece in zip(owners, starts, ends, edits.replacements, cut, strict=True)
            if not self._written(pieces, several, piece, start, end, new)
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
            rest = (edit for edit in zip(owners, starts, ends, edits.replacements, strict=True) if edit[0] in not_plain)
            for number, group in groupby(rest, key=itemgetter(0)):
                first = self._text_edges[number]
                result[number] = self.text(number).rewritten(
                    [Edit(start - first, end - first, new) for _, start, end, new in group]
                )
        return result

    def _written(
        self, pieces: list[str], several: dict[int, list[str]], piece: int, start: int, end: int, new: Utterance
    ) -> bool:
        """Write an edit into pieces if it is plain: small letters, with blanks around the change.

        Returns:
            False: it is not plain, and `WrittenText` must write it.
        """
        words, edges = self.flat.words, self._edges
        if end - start == len(new):
            for position, other in enumerate(new, start):
                while edges[piece + 1] <= position:
                    piece += 1
                if pieces[piece] == words[position]:
                    pieces[piece] = other
                elif piece in several:
                    several[piece][position - edges[piece]] = other
                else:
                    first, last = edges[piece], edges[piece + 1]
                    tokens = list(words[first:last])
                    if "".join(tokens) != pieces[piece]:
                        return False
                    tokens[position - first] = other
                    several[piece] = tokens
            return True
        if end - start == 1 and pieces[piece] == words[start]:
            pieces[piece] = _joined(new) if new else _GONE
            return True
        if start == end and pieces[piece] == words[start] and words[start].isalnum():
            pieces[piece] = _joined((*new, words[start]))
            return True
        if not new and piece not in several and "".join(words[start:end]) == pieces[piece]:
            pieces[piece] = _GONE
            return True
        return False

    def text(self, number: int) -> WrittenText:
        """Return one of the texts, as tokens with their spelling."""
        surfaces: list[str] = []
        gaps: list[str] = []
        gap = ""
        start, end = self._piece_edges[number : number + 2]
        for position, piece in enumerate(self._pieces[start:end]):
            first, *rest = _parts(piece)
            gap += " " * (position > 0) + first
            for surface, behind in zip(rest[::2], rest[1::2], strict=True):
                gaps.append(gap)
                surfaces.append(surface)
                gap = behind
        words = self.flat.words[self._text_edges[number] : self._text_edges[number + 1]]
        return WrittenText(words, surfaces, [*gaps, gap])


_joined = lru_cache(_NUM_PIECES)(detokenise)


@lru_cache(_NUM_PIECES)
def _parts(piece: str) -> tuple[str, ...]:
    parts, done = [], 0
    for _, start, end in _cut_texts(piece)[0]:
        parts += [piece[done:start], piece[start:end]]
        done = end
    return (*parts, piece[done:])


def _cut_texts(piece: str) -> tuple[list[tuple[str, int, int]], bool]:
    """Return the tokens of a piece with their offsets, and whether marks stand between them."""
    if piece.isascii() and piece.isalpha():
        # As most are, and the tokeniser reads them as one word.
        return [(piece.lower(), 0, len(piece))], False
    between_marks = tokens_where(piece)
    return (tokenise_where(piece), False) if between_marks is None else (between_marks, True)


def _edges_texts(pieces: Sequence[Sequence[object]]) -> list[int]:
    return [0, *accumulate(map(len, pieces))]
