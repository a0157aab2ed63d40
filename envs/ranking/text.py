"""What a reader of candidates hands over: the groups of each split, what was broken and what was mended.

Utterances are kept once each, as numbers of words, so that ten rows of one context cost what one does.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from parley.envs.core.errors import DataError
from parley.envs.corpora.lines import FileLine, ReadText, broken_rule, located
from parley.envs.corpora.pairs.compiled import Ragged
from parley.envs.corpora.pairs.text import SplitText
from parley.envs.corpora.sources import SPLITS
from parley.envs.corpora.words import WordList
from parley.envs.ranking.groups import CandidateKind
from parley.envs.ranking.split import KINDS, CandidateSplit

MAX_WORDS = 10_000
"""Words of a turn or a reply; a line with more of them is not one utterance."""
LONG_WORDS, LONG_TURNS = 1_000, 50
"""Of an utterance, and of a context: what has more is allowed, told of, and read in part; it may be a mistake of the file."""
_NAMED = 5


class Candidate(NamedTuple):
    """A reply to choose or not."""

    utterance: int
    """Its index in the split."""
    label: bool
    """Whether it is right."""
    kind: CandidateKind
    attackable: bool = True
    """Whether an attack may change it."""


class ListedReply(NamedTuple):
    """A reply as a file lists it."""

    line: int
    """Of the file, counted from 1."""
    words: Sequence[str]
    label: bool
    """Whether it is right."""
    kind: CandidateKind


class SplitGroups:
    """One split while it is read: N distinct utterances, T turns of all contexts, C candidates of all groups, G groups."""

    def __init__(self) -> None:
        self.utterances = SplitText()
        self.is_drawn = False
        """Whether wrong replies are to be drawn, because the corpus lists right ones alone."""
        self._indices: dict[str, int] = {}
        self._contexts, self._context_ends = array("i"), array("q", [0])
        self._candidates, self._candidate_ends = array("i"), array("q", [0])
        self._labels, self._kinds, self._attackable = array("b"), array("b"), array("b")
        self._numbers, self._dialogues = array("q"), array("q")

    def add(self, words: Sequence[str]) -> int:
        """Takes an utterance of at least one word; returns its index, the same for the same words."""
        said = " ".join(words)
        found = self._indices.get(said)
        if found is None:
            found = self._indices[said] = self.utterances.add(words)
        return found

    def group(
        self, context: Sequence[int], candidates: Iterable[Candidate], number: int | None = None, dialogue: int | None = None
    ) -> None:
        """Takes a group.

        Args:
            context: indices of its turns, oldest first; at least one.
            candidates: at least two; where wrong ones are drawn, the right ones.
            number: names the group within the split; ascending. Where it stands by default.
            dialogue: the dialogue that the context is of, from which no wrong reply is drawn; one of its own by default.
        """
        assert context, "a context has a turn"
        place = len(self)
        self._contexts.extend(context)
        self._context_ends.append(len(self._contexts))
        for each in candidates:
            self._candidates.append(each.utterance)
            self._labels.append(each.label)
            self._kinds.append(KINDS.index(each.kind))
            self._attackable.append(each.attackable)
        self._candidate_ends.append(len(self._candidates))
        self._numbers.append(place if number is None else number)
        self._dialogues.append(place if dialogue is None else dialogue)

    def __len__(self) -> int:
        """G."""
        return len(self._numbers)

    def num_longer(self, turns: int) -> int:
        """Groups whose contexts have more turns."""
        return int((np.diff(self._context_ends) > turns).sum())

    def split(self, name: str, vocabulary: WordList) -> CandidateSplit:
        """What was read, as arrays.

        Args:
            name: "train", "val" or "test".
            vocabulary: holds every word.
        """
        return CandidateSplit(
            name=name,
            vocabulary=vocabulary,
            utterances=Ragged(self.utterances.encode(vocabulary), self.utterances.offsets),
            contexts=Ragged(np.array(self._contexts, dtype=np.int32), np.array(self._context_ends, dtype=np.int64)),
            candidates=Ragged(np.array(self._candidates, dtype=np.int32), np.array(self._candidate_ends, dtype=np.int64)),
            labels=np.array(self._labels, dtype=bool),
            kinds=np.array(self._kinds, dtype=np.uint8),
            attackable=np.array(self._attackable, dtype=bool),
            numbers=np.array(self._numbers, dtype=np.int64),
            dialogues=np.array(self._dialogues, dtype=np.int64),
            is_cut=np.zeros(len(self), dtype=bool),
        )


@dataclass(frozen=True, kw_only=True)
class CandidateText(ReadText):
    """A corpus of candidates read: its good groups, what is wrong with others, what was mended."""

    splits: dict[str, SplitGroups] = field(default_factory=lambda: {split: SplitGroups() for split in SPLITS})
    """What was read of "train", "val" and "test"."""
    broken: list[DataError] = field(default_factory=list)
    mended: list[DataError] = field(default_factory=list)
    """One error per line that is read otherwise than it stands, such as a positive that is listed again as a negative."""
    long: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    """Lines of what is unusually long, ascending, by file and by what is said of it."""

    def listed(
        self, name: str, path: Path, line: int, context: Sequence[Sequence[str]], replies: Sequence[ListedReply]
    ) -> None:
        """Takes a group as a file lists it, or says what is wrong with it.

        Args:
            name: of the split.
            path: of the file.
            line: where the context stands.
            context: words of each turn, oldest first; a turn without one is left out.
            replies: a wrong one with the words of a right one is left out, for its two labels contradict each other; the
                context too, where this leaves fewer than two.
        """
        said = " / ".join(" ".join(turn) for turn in context)
        self._limit([("turn", line, turn) for turn in context] + [("reply", each.line, each.words) for each in replies], path)
        if not any(context):
            self.broken_line("no turn of the context has a word", path, line, said)
            return
        if len(context) > LONG_TURNS:
            what = f"contexts of more than {LONG_TURNS} turns, of which the newest are kept (candidates.turns)"
            self._long_line(what, path, line)
        if not all(context):
            self.mended_line("a turn without a word is left out", path, line, said)
        rights = {tuple(reply.words) for reply in replies if reply.label}
        split, candidates, contradicting = self.splits[name], list[Candidate](), 0
        for reply in replies:
            words = " ".join(reply.words)
            if not words:
                self.broken_line("a reply has no word", path, reply.line, said)
            elif not reply.label and tuple(reply.words) in rights:
                self.mended_line("a wrong reply with the words of a right one is left out", path, reply.line, words)
                contradicting += 1
            else:
                candidates.append(Candidate(split.add(reply.words), reply.label, reply.kind))
        if len(candidates) < 2 <= len(candidates) + contradicting:
            self.mended_line("a context that has one reply left is left out", path, line, said)
            return
        if len(candidates) < 2:
            self.broken_line("a context has two replies or more to choose from, and this one has fewer", path, line, said)
            return
        split.group([split.add(turn) for turn in context if turn], candidates)

    def broken_line(self, what: str, path: Path, line: int, got: str) -> None:
        """Notes what makes a line unreadable."""
        self.broken.append(located(broken_rule(what, got), str(path), line, "mend the line, or leave it out"))

    def mended_line(self, what: str, path: Path, line: int, got: str) -> None:
        """Notes what of a line is read otherwise than it stands."""
        self.mended.append(DataError(what, where=FileLine(str(path), line), got=broken_rule(what, got).got))

    def _limit(self, said: Sequence[tuple[str, int, Sequence[str]]], path: Path) -> None:
        for name, line, words in said:
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
        """What is unusually long, in a sentence for each file and kind, with the numbers of the first lines."""
        told = []
        for (file, what), lines in sorted(self.long.items()):
            named = ", ".join(map(str, lines[:_NAMED])) + f" and {len(lines) - _NAMED:,} more" * (len(lines) > _NAMED)
            told.append(f"{file}: {what}: line{'s' * (len(lines) > 1)} {named}")
        return tuple(told)
