"""Sources of candidates: files of rows, or a corpus of pairs; `corpora.py` registers them.

A corpus of your own is a file or folder of rows, or an object: write `CORPUS = FileCandidates(name="mine", ...)` into a file
and name it `path/file.py:CORPUS`, or let an installed package offer it under the entry point group `parley.candidates`.

Rows are lines "label TAB turn TAB ... TAB turn TAB response" (Ubuntu V1, Douban, E-commerce, a user's own files), or records of
CSV, TSV, JSON, JSON Lines and Parquet with a column of labels (`envs/corpora/own_files.py`). A label is 1 or 0. Neighbouring
rows with one context are a group, of any size and with any number of right replies. These corpora have blanks between words;
jieba cuts Chinese without blanks if most of a file is written so. Each repaired line is reported (`CandidateText.mended`):

- an empty turn is left out;
- a negative with the words of a positive of its group is left out, because its labels contradict each other; so is the group if
  fewer than two replies remain, as in training files of one right and one wrong reply;
- Chinese without blanks in a file of words is not cut: each run of characters is one word.

From pairs, a context is a chain of turns (`envs/corpora/pairs/contexts.py`) and its right reply the next utterance; wrong
replies are drawn later. Pairs that connect through the first source of each reply are one dialogue; a single exchange is a
dialogue.

`SplitGroups` keeps each distinct utterance once, so ten rows of one context cost as much memory as one.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby, pairwise
from pathlib import Path
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np

from parley.envs.core.errors import DataError
from parley.envs.corpora.files import CorpusFolder
from parley.envs.corpora.lines import (
    SPLITS,
    FileLine,
    ReadText,
    TextNumbers,
    WantingSource,
    WordList,
    broken_rule,
    fingerprint,
    located,
    require_utf8,
    stream_lines,
)
from parley.envs.corpora.own_files import OwnFile
from parley.envs.corpora.pairs.compiled import PairSplit, Ragged
from parley.envs.corpora.pairs.contexts import NOBODY, chains_in_parts
from parley.envs.corpora.pairs.tokens import PairSource, PairText, SplitText, comes_in_words, cut, split_of, tokenise
from parley.envs.corpora.pairs.vocabulary import EOU
from parley.envs.ranking.groups import KINDS, CandidateKind, CandidateSplit

MAX_WORDS = 10_000
"""Most words of a turn or reply; a longer line is an error."""
LONG_WORDS, LONG_TURNS = 1_000, 50
"""Longer utterances and contexts are reported and read in part, because they may be errors of the file."""
_NAMED = 5
_PAIRS = 8192
"""Pairs whose contexts are lists at a time."""


class Candidate(NamedTuple):
    """A candidate reply."""

    utterance: int
    """Its index in the split."""
    label: bool
    """Whether it is right."""
    kind: CandidateKind
    attackable: bool = True
    """Whether an attack may change it."""


class ListedReply(NamedTuple):
    """A reply as listed in a file."""

    line: int
    """Line of the file, counted from 1."""
    words: Sequence[str]
    label: bool
    """Whether it is right."""
    kind: CandidateKind


class SplitGroups:
    """One split while it is read: N distinct utterances, T turns, C candidates, G groups."""

    def __init__(self) -> None:
        self.utterances = SplitText()
        self.is_drawn = False
        """Whether wrong replies have to be drawn, because the corpus has only right ones."""
        self._texts = TextNumbers()
        self._contexts, self._context_ends = array("i"), array("q", [0])
        self._candidates, self._candidate_ends = array("i"), array("q", [0])
        self._labels, self._kinds, self._attackable = array("b"), array("b"), array("b")
        self._numbers, self._dialogues = array("q"), array("q")

    def add(self, words: Sequence[str]) -> int:
        """Add an utterance of at least one word, and return its index; equal words have one index."""
        index = self._texts.number(" ".join(words))
        return index if index < self.utterances.num_utterances else self.utterances.add(words)

    def group(
        self, context: Sequence[int], candidates: Iterable[Candidate], number: int | None = None, dialogue: int | None = None
    ) -> None:
        """Add a group.

        Args:
            context: indices of its turns, oldest first; at least one.
            candidates: at least two; only the right ones if wrong ones are drawn later.
            number: number of the group in the split, ascending; its position by default.
            dialogue: the context's dialogue, from which no wrong reply is drawn; its own by default.
        """
        assert context, "a context has a turn"
        position = len(self)
        self._contexts.extend(context)
        self._context_ends.append(len(self._contexts))
        for candidate in candidates:
            self._candidates.append(candidate.utterance)
            self._labels.append(candidate.label)
            self._kinds.append(KINDS.index(candidate.kind))
            self._attackable.append(candidate.attackable)
        self._candidate_ends.append(len(self._candidates))
        self._numbers.append(position if number is None else number)
        self._dialogues.append(position if dialogue is None else dialogue)

    def __len__(self) -> int:
        """Return the number of groups, G."""
        return len(self._numbers)

    def num_longer(self, turns: int) -> int:
        """Return the number of groups whose contexts have more turns."""
        return int((np.diff(self._context_ends) > turns).sum())

    def rows(self) -> list[tuple[int, ...]]:
        """Return the utterances of each context and of a right reply, one row for each right reply."""
        edges = zip(pairwise(self._context_ends), pairwise(self._candidate_ends), strict=True)
        rights = ((*context, range(*places)) for context, places in edges)
        return [(*self._contexts[a:b], self._candidates[i]) for a, b, places in rights for i in places if self._labels[i]]

    def split(self, name: str, vocabulary: WordList) -> CandidateSplit:
        """Return the split as arrays, most of which are views of its own; nothing can be added behind.

        Args:
            name: "train", "val" or "test".
            vocabulary: holds every word.
        """
        return CandidateSplit(
            name=name,
            vocabulary=vocabulary,
            utterances=Ragged(self.utterances.encode(vocabulary), self.utterances.offsets),
            contexts=Ragged(np.asarray(self._contexts), np.asarray(self._context_ends)),
            candidates=Ragged(np.asarray(self._candidates), np.asarray(self._candidate_ends)),
            labels=np.asarray(self._labels).view(bool),
            kinds=np.asarray(self._kinds).view(np.uint8),
            attackable=np.asarray(self._attackable).view(bool),
            numbers=np.asarray(self._numbers),
            dialogues=np.asarray(self._dialogues),
            is_cut=np.zeros(len(self), dtype=bool),
        )


@dataclass(frozen=True, kw_only=True)
class CandidateText(ReadText):
    """The result of reading a corpus of candidates: its groups, errors and repairs."""

    splits: dict[str, SplitGroups] = field(default_factory=lambda: {split: SplitGroups() for split in SPLITS})
    """The groups of "train", "val" and "test"."""
    broken: list[DataError] = field(default_factory=list)
    mended: list[DataError] = field(default_factory=list)
    """One error per repaired line, such as a positive that is also listed as a negative."""
    long: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    """Lines of unusually long text, ascending, by file and message."""

    def listed(
        self, name: str, path: Path, line: int, context: Sequence[Sequence[str]], replies: Sequence[ListedReply]
    ) -> None:
        """Add a group from a file, or record its errors.

        Args:
            name: of the split.
            path: of the file.
            line: line of the context.
            context: words of each turn, oldest first; a turn without a word is left out.
            replies: a wrong one with the words of a right one is left out, because its labels contradict each other; so is the
                context if fewer than two replies remain.
        """
        context_text = " / ".join(" ".join(turn) for turn in context)
        self._limit(
            [("turn", line, turn) for turn in context] + [("reply", reply.line, reply.words) for reply in replies], path
        )
        if not any(context):
            self.broken_line("no turn of the context has a word", path, line, context_text)
            return
        if len(context) > LONG_TURNS:
            what = f"contexts of more than {LONG_TURNS} turns, of which the newest are kept (candidates.turns)"
            self._long_line(what, path, line)
        if not all(context):
            self.mended_line("a turn without a word is left out", path, line, context_text)
        rights = {tuple(reply.words) for reply in replies if reply.label}
        split, candidates, contradicting = self.splits[name], list[Candidate](), 0
        for reply in replies:
            words = " ".join(reply.words)
            if not words:
                self.broken_line("a reply has no word", path, reply.line, context_text)
            elif not reply.label and tuple(reply.words) in rights:
                self.mended_line("a wrong reply with the words of a right one is left out", path, reply.line, words)
                contradicting += 1
            else:
                candidates.append(Candidate(split.add(reply.words), reply.label, reply.kind))
        if len(candidates) < 2 <= len(candidates) + contradicting:
            self.mended_line("a context that has one reply left is left out", path, line, context_text)
            return
        if len(candidates) < 2:
            self.broken_line(
                "a context has two replies or more to choose from, and this one has fewer", path, line, context_text
            )
            return
        split.group([split.add(turn) for turn in context if turn], candidates)

    def broken_line(self, what: str, path: Path, line: int, got: str) -> None:
        """Record the error of an unreadable line."""
        self.broken.append(located(broken_rule(what, got), str(path), line, "mend the line, or leave it out"))

    def mended_line(self, what: str, path: Path, line: int, got: str) -> None:
        """Record the repair of a line."""
        self.mended.append(DataError(what, where=FileLine(str(path), line), got=broken_rule(what, got).got))

    def _limit(self, utterances: Sequence[tuple[str, int, Sequence[str]]], path: Path) -> None:
        for name, line, words in utterances:
            if len(words) > MAX_WORDS:
                what = f"a {name} has {len(words):,} words, and {MAX_WORDS:,} are the most of an utterance"
                self.broken_line(what, path, line, " ".join(words[:MAX_WORDS]))
            elif len(words) > LONG_WORDS:
                plural = {"turn": "turns", "reply": "replies"}[name]
                self._long_line(f"{plural} of more than {LONG_WORDS:,} words, of which networks read a part", path, line)

    def _long_line(self, what: str, path: Path, line: int) -> None:
        lines = self.long.setdefault((str(path), what), [])
        if line not in lines[-1:]:
            lines.append(line)

    def long_told(self) -> tuple[str, ...]:
        """Return a sentence for each file and kind of unusually long text, with the first line numbers."""
        sentences = []
        for (file, what), lines in sorted(self.long.items()):
            named = ", ".join(map(str, lines[:_NAMED])) + f" and {len(lines) - _NAMED:,} more" * (len(lines) > _NAMED)
            sentences.append(f"{file}: {what}: line{'s' * (len(lines) > 1)} {named}")
        return tuple(sentences)


def groups_of_pairs(pairs: PairText, turns: int) -> CandidateText:
    """Return one group per pair, with only its right reply.

    Args:
        pairs: the corpus of pairs; its errors are errors here.
        turns: the most turns of a context.
    """
    text = CandidateText(broken=pairs.broken)
    for name, split in pairs.splits.items():
        _group(split, text.splits[name], turns)
    return text


def _group(pairs: SplitText, split: SplitGroups, turns: int) -> None:
    split.is_drawn = True
    indices = array("i", (split.add([word for word in words if word != EOU]) for words in pairs.utterances()))
    graph = PairSplit(Ragged(np.zeros(0, dtype=np.int32), pairs.offsets), pairs.pairs, pairs.links)
    roots = _roots(graph)
    chains = chain.from_iterable(part.tolist() for part in chains_in_parts(graph, turns, _PAIRS))
    for number, (reply, turns_back) in enumerate(zip(graph.pairs[:, 1], chains, strict=True)):
        context = [indices[turn] for turn in reversed(turns_back) if turn != NOBODY]
        split.group(context, [Candidate(indices[reply], True, CandidateKind.POSITIVE)], number, int(roots[reply]))


def _roots(graph: PairSplit) -> np.ndarray:
    """Return the first utterance of the dialogue of each utterance (N,) int64."""
    parents = np.arange(len(graph.utterances))
    # The first of several sources of a reply counts, as in a chain.
    parents[graph.pairs[::-1, 1]] = graph.pairs[::-1, 0]
    # Each round doubles the distance to the root, so a loop in a user's corpus ends too.
    for _ in range(len(parents).bit_length()):
        parents = parents[parents]
    return parents


@runtime_checkable
class CandidateSource(WantingSource, Protocol):
    """A corpus of candidates in the registry."""

    def read_groups(self, root: Path, turns: int) -> CandidateText:
        """Return the groups with at least the last `turns` turns, and errors of lines and missing files."""


@dataclass(frozen=True, kw_only=True)
class FileCandidates(CorpusFolder):
    """A corpus of candidates in the files of one folder."""

    reader: Callable[[Path], CandidateText]
    """Reads the folder."""

    READER_VERSION: ClassVar[int] = 1
    OWN: ClassVar[str] = (
        "name a file of rows label<TAB>turn<TAB>...<TAB>response that is there, or a folder of such files: train, val and test"
    )

    def read_groups(self, root: Path, turns: int) -> CandidateText:
        """Read the files, or return only errors if some are missing."""
        missing = self.missing_files(root)
        return CandidateText(broken=missing) if missing else self.reader(self.folder(root))


@dataclass(frozen=True, kw_only=True)
class PairCandidates:
    """The replies of a corpus of pairs, with wrong ones that are drawn later."""

    pairs: PairSource
    """The pairs, with name, files and licence."""

    READER_VERSION: ClassVar[int] = 1
    """Grows when the construction of groups changes."""

    @property
    def name(self) -> str:
        """That of the pairs."""
        return self.pairs.name

    @property
    def summary(self) -> str:
        """The summary of the pairs, with a note on drawn replies."""
        return f"{self.pairs.summary}; wrong replies are drawn"

    @property
    def licence(self) -> str:
        """That of the pairs."""
        return self.pairs.licence

    def folder(self, root: Path) -> Path | None:
        """Return the folder of the pairs."""
        return self.pairs.folder(root)

    def missing(self, root: Path) -> tuple[str, ...]:
        """Return the missing files of the pairs."""
        return self.pairs.missing(root)

    def require_files(self, root: Path) -> None:
        """Raise if files of the pairs are missing."""
        self.pairs.require_files(root)

    def fingerprint(self, root: Path) -> str:
        """Return a digest of this version and of the pairs."""
        return fingerprint("pairs", self.READER_VERSION, self.pairs.fingerprint(root))

    def read_groups(self, root: Path, turns: int) -> CandidateText:
        """Read the pairs and build their contexts."""
        return groups_of_pairs(self.pairs.read(root), turns)


_LABELS = {"0": False, "1": True}


class Row(NamedTuple):
    """One row of a file."""

    line: int
    """Line number, from 1."""
    label: bool
    context: tuple[str, ...]
    """Turns, oldest first, as they are written."""
    response: str


def parse_row(line: str, number: int) -> Row:
    """Parse one line.

    Args:
        line: of the file.
        number: its number, counted from 1.

    Raises:
        DataError: the line is not UTF-8, has fewer than three fields, or its label is not 0 or 1.
    """
    require_utf8(line)
    fields = line.split("\t")
    if len(fields) < 3:
        raise broken_rule("a row is a label, a turn or more, and a response, with tabs between", line)
    label, *context, response = fields
    if label not in _LABELS:
        raise broken_rule("a label is 0 or 1", line)
    return Row(number, _LABELS[label], tuple(context), response)


def read_rows(files: Mapping[str | None, Path | OwnFile]) -> CandidateText:
    """Read one file per split, or one for all.

    Args:
        files: by split; the groups of a file under None are split by the hash of the context and the file's shares.

    Raises:
        ConfigError: a file is Chinese without blanks, and jieba is not installed.
    """
    text = CandidateText()
    for only, file in files.items():
        _Reader(file if isinstance(file, OwnFile) else OwnFile(file), text, only).read()
    return text


_APART = "\N{IDEOGRAPHIC FULL STOP}"


class _Reader:
    """The reader of one file of rows."""

    def __init__(self, file: OwnFile, text: CandidateText, only: str | None) -> None:
        self._file, self._path, self._text, self._only = file, file.path, text, only
        self._words: Callable[[str], list[str]] = tokenise

    def read(self) -> None:
        in_words = Counter(map(comes_in_words, self._texts()))
        if in_words.keys() == {None}:
            # Each text is too short to decide; all of them together may suffice.
            in_words = Counter([comes_in_words(_APART.join(self._texts()))])
        if in_words[False] > in_words[True]:
            self._words = cut
        for _, members in groupby(self._rows(self._text), key=lambda row: row.context):
            self._group(list(members))

    def _texts(self) -> Iterator[str]:
        return (text for row in self._rows(CandidateText()) for text in (*row.context, row.response))

    def _rows(self, text: CandidateText) -> Iterator[Row]:
        """Yield the rows of the file, which is never all in memory; `text` receives the errors."""
        if self._file.kind is not None:
            for exchange in filter(None, self._file.exchanges(text.broken)):
                yield from (Row(exchange.line, bool(exchange.label), exchange.context, reply) for reply in exchange.replies)
            return
        for number, line in enumerate(stream_lines(self._path), 1):
            try:
                yield parse_row(line, number)
            except DataError as error:
                text.broken_line(error.what, self._path, number, line)

    def _group(self, rows: list[Row]) -> None:
        first = rows[0]
        context = [self._words_of(turn, first.line) for turn in first.context]
        kinds = {True: CandidateKind.POSITIVE, False: CandidateKind.NEGATIVE}
        replies = [ListedReply(row.line, self._words_of(row.response, row.line), row.label, kinds[row.label]) for row in rows]
        name = self._only or split_of("\t".join(first.context), self._file.shares)
        self._text.listed(name, self._path, first.line, context, replies)

    def _words_of(self, text: str, line: int) -> list[str]:
        if self._words is tokenise and comes_in_words(text) is False:
            what = "Chinese without blanks, in a file that comes in words, is read as it stands"
            self._text.mended_line(what, self._path, line, text)
        elif self._words is cut and comes_in_words(text):
            what = "Chinese in words, in a file that comes without blanks, may be cut further"
            self._text.mended_line(what, self._path, line, text)
        return self._words(text)
