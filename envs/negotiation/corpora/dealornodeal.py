"""Reader of the Deal or No Deal corpus (Lewis et al. 2017): dialogues and self-play scenarios as published.

A dialogue line is one side's view, its parts separated by single spaces:

    <input> c0 v0 c1 v1 c2 v2 </input> <dialogue> TURNS </dialogue> <output> o0 .. o5 </output>
    <partner_input> c0 v0 c1 v1 c2 v2 </partner_input>

c and v are count and own value of each item. TURNS are `YOU:` or `THEM:`, words, `<eos>`, the speakers alternating; the
last turn is its speaker's `<selection>` alone. The output is the own three items, then the partner's three, or one of
`<disagree>`, `<no_agreement>` and `<disconnect>` six times. A self-play file holds pairs of lines of six numbers, the two
sides of one scenario. Every rule here holds for every published line; a line that breaks one is reported with file and
line number. The raw release, a different format, is read by `raw_dealornodeal.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from envs.core.errors import DataError, ParleyError
from envs.data.lines import broken_rule, located, require_utf8
from envs.negotiation.scenario import DISAGREE_ID, ITEM_TOKEN_INDEX, ITEM_TOKENS, TOTAL_VALUE, Scenario, Triple, selection_table
from envs.negotiation.vocabulary import EOS, SELECTION, SPECIALS, THEM, YOU

READER_VERSION = 1
"""Grows when the same file would be read differently; compiled corpora are keyed by it."""

CONTEXT_WORDS = {str(number): number for number in range(TOTAL_VALUE + 1)}
"""The published context dictionary: counts and values share the numbers 0 to 10."""

_SECTIONS = ("input", "dialogue", "output", "partner_input")
_RESERVED = frozenset((*SPECIALS, YOU, THEM, *(f"<{tag}>" for tag in _SECTIONS), *(f"</{tag}>" for tag in _SECTIONS)))


class Turn(NamedTuple):
    """One turn of a dialogue; the speaker marker and the closing `<eos>` are left out."""

    is_you: bool
    """Whether the side whose view this is speaks."""
    words: tuple[str, ...]
    """Plain words; exactly (`<selection>`,) in the last turn."""


@dataclass(frozen=True)
class DialogueRecord:
    """One side's view of one dialogue.

    Args:
        scenario: side 0 is the side whose view this is.
        turns: alternating, the last one `<selection>` alone.
        output: six item token ids, own three items then the partner's, or one refusal six times.
        line: where it was read, counted from 1; 0 for a record that was not read. Records are equal without it.

    Raises:
        DataError: a rule of the format is broken.
    """

    scenario: Scenario
    turns: tuple[Turn, ...]
    output: tuple[int, ...]
    line: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        if not self.turns or self.turns[-1].words != (SELECTION,):
            raise broken_rule(f"the last turn is {SELECTION} alone", self.turns[-1].words if self.turns else "no turn")
        for turn in self.turns[:-1]:
            if not _RESERVED.isdisjoint(turn.words):
                raise broken_rule(
                    f"a turn is {YOU} or {THEM}, plain words and {EOS}",
                    f"{next(word for word in turn.words if word in _RESERVED)} within a turn",
                )
            if tuple(" ".join(turn.words).split()) != turn.words:
                raise broken_rule("words hold no white space and are separated by one space", " ".join(turn.words))
        for before, after in zip(self.turns, self.turns[1:], strict=False):
            if before.is_you == after.is_you:
                raise broken_rule("the speakers alternate", f"two turns of {_marker(after)} in a row")
        if self.output not in _legal_outputs(self.scenario.counts):
            shown = " ".join(ITEM_TOKENS[i] if 0 <= i < len(ITEM_TOKENS) else str(i) for i in self.output)
            raise broken_rule(
                "the output is the own items and the partner's rest, or one refusal six times",
                f"{shown} of {self.scenario.counts}",
            )

    @property
    def tokens(self) -> list[str]:
        """The whole dialogue as the models read it: markers, words, `<eos>` and the final `<selection>`."""
        tokens: list[str] = []
        for turn in self.turns[:-1]:
            tokens += (_marker(turn), *turn.words, EOS)
        return [*tokens, _marker(self.turns[-1]), SELECTION]


def parse_line(text: str, source: str = "line", line: int = 1) -> DialogueRecord:
    """Reads one dialogue line.

    Args:
        text: the line without its line end.
        source: the file it stands in, for messages.
        line: its number, counted from 1.

    Raises:
        DataError: the line breaks a rule; the message names file, line, rule and what was found.
    """
    try:
        bodies = _sections(text)
        scenario = Scenario.from_contexts(parse_context(bodies[0]), parse_context(bodies[3]))
        return DialogueRecord(scenario, parse_turns(bodies[1]), _parse_output(bodies[2]), line)
    except ParleyError as error:
        raise located(error, source, line) from None


def format_line(record: DialogueRecord) -> str:
    """The record as a line of the published format, without a line end; `parse_line` gives it back."""
    own, partner = (" ".join(map(str, record.scenario.context(side))) for side in (0, 1))
    output = " ".join(ITEM_TOKENS[i] for i in record.output)
    bodies = (own, " ".join(record.tokens), output, partner)
    return " ".join(f"<{tag}> {body} </{tag}>" for tag, body in zip(_SECTIONS, bodies, strict=True))


def parse_lines(lines: Iterable[str], source: str) -> tuple[list[DialogueRecord], list[DataError]]:
    """Reads dialogue lines, going on after a broken one.

    Args:
        lines: without line ends.
        source: the file they stand in, for messages.

    Returns:
        The records of the good lines and one error per broken line, both in file order.
    """
    records: list[DialogueRecord] = []
    broken: list[DataError] = []
    for line, text in enumerate(lines, 1):
        try:
            records.append(parse_line(text, source, line))
        except DataError as error:
            broken.append(error)
    return records, broken


def parse_scenarios(lines: Sequence[str], source: str) -> tuple[list[Scenario], list[DataError]]:
    """Reads self-play lines, pairs of six numbers, going on after a broken pair.

    Returns:
        One scenario per good pair (side 0 is its first line) and one error per broken pair, both in file order.
    """
    scenarios: list[Scenario] = []
    broken: list[DataError] = []
    for first in range(0, len(lines), 2):
        line = first + 1
        try:
            sides = [parse_context(lines[first])]
            if first + 1 == len(lines):
                raise broken_rule("every scenario is a pair of lines", "an odd number of lines")
            line += 1
            sides.append(parse_context(lines[first + 1]))
            scenarios.append(Scenario.from_contexts(*sides))
        except ParleyError as error:
            broken.append(located(error, source, line))
    return scenarios, broken


def parse_context(text: str) -> tuple[int, ...]:
    """The six numbers that a side sees.

    Raises:
        DataError: not six numbers from 0 to 10, separated by single spaces.
    """
    words = text.split(" ")
    if len(words) != 6 or not all(word in CONTEXT_WORDS for word in words):
        raise broken_rule(f"a context is six numbers 0..{TOTAL_VALUE}", text)
    return tuple(CONTEXT_WORDS[word] for word in words)


def parse_turns(text: str) -> tuple[Turn, ...]:
    """The turns of a dialogue, from markers to the final `<selection>`.

    Raises:
        DataError: a turn does not start with a marker, or has no end.
    """
    words = text.split(" ")
    turns: list[Turn] = []
    start = 0
    while start < len(words):
        if words[start] not in (YOU, THEM):
            raise broken_rule(f"every turn starts with {YOU} or {THEM}", " ".join(words[start:]))
        try:
            end = words.index(EOS, start + 1)
        except ValueError:
            end = len(words)
            if words[start + 1 :] != [SELECTION]:
                raise broken_rule(
                    f"every turn ends with {EOS}, and the last is {SELECTION} alone", " ".join(words[start:])
                ) from None
        turns.append(Turn(words[start] == YOU, tuple(words[start + 1 : end])))
        start = end + 1
    return tuple(turns)


def _marker(turn: Turn) -> str:
    return YOU if turn.is_you else THEM


def _sections(text: str) -> list[str]:
    require_utf8(text)
    bodies = []
    rest = text
    for position, tag in enumerate(_SECTIONS):
        opening, closing = f"<{tag}> ", f" </{tag}>" + (" " if position + 1 < len(_SECTIONS) else "")
        if not rest.startswith(opening):
            raise broken_rule(f"<{tag}> opens section {position + 1} of {len(_SECTIONS)}", rest)
        body, found, rest = rest.removeprefix(opening).partition(closing)
        if not found:
            raise broken_rule(f"</{tag}> closes section {position + 1} of {len(_SECTIONS)}", body)
        bodies.append(body)
    if rest:
        raise broken_rule(f"the line ends with </{_SECTIONS[-1]}>", rest)
    return bodies


def _parse_output(text: str) -> tuple[int, ...]:
    words = text.split(" ")
    if len(words) != 6 or not all(word in ITEM_TOKEN_INDEX for word in words):
        raise broken_rule(f"the output is six of the {len(ITEM_TOKENS)} item tokens", text)
    return tuple(ITEM_TOKEN_INDEX[word] for word in words)


@cache
def _legal_outputs(counts: Triple) -> frozenset[tuple[int, ...]]:
    choices = map(tuple, selection_table(counts).tolist())
    return frozenset((*choices, (DISAGREE_ID,) * 6))
