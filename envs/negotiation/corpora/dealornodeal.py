"""Readers of the published and the raw files of the Deal or No Deal corpus (Lewis et al. 2017).

A dialogue line is one side's view, its parts separated by single spaces:

    <input> c0 v0 c1 v1 c2 v2 </input> <dialogue> TURNS </dialogue> <output> o0 .. o5 </output>
    <partner_input> c0 v0 c1 v1 c2 v2 </partner_input>

c and v are count and own value of each item. TURNS are `YOU:` or `THEM:`, words, `<eos>`, the speakers alternating; the
last turn is its speaker's `<selection>` alone. The output is the own three items, then the partner's three, or one of
`<disagree>`, `<no_agreement>` and `<disconnect>` six times. A self-play file holds pairs of lines of six numbers, the two
sides of one scenario. Every published line keeps every rule here; a line that breaks one is reported with file and line
number. Corpora of other games have lines of the same form, with the game's own numbers and tokens of a selection.

`rebuild_train` converts the raw release (`data.txt`) into the training split in the published format. The raw file holds every
view of every dialogue; val.txt and test.txt have some of them in the published format, and train.txt has the rest. A raw line,
its parts separated by single spaces:

    c0 v0 c1 v1 c2 v2 TURNS CHOICE <eos> reward=R FLAG c0 v0 c1 v1 c2 v2

CHOICE is the own three items, `no agreement` or `disconnect`; FLAG is `agree` or `disagree`; the last six numbers are the
partner's context. `_output` gives the outcome from CHOICE and FLAG; its rule gives every published line of val.txt and
test.txt.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from parley.envs.core.errors import DataError, ParleyError
from parley.envs.corpora.lines import broken_rule, located, require_utf8
from parley.envs.negotiation.dealornodeal import DIVISION
from parley.envs.negotiation.dealornodeal_rules import (
    DISAGREE_ID,
    DISCONNECT_ID,
    ITEM_TOKEN_INDEX,
    MAX_COUNT,
    NO_AGREEMENT_ID,
    NUM_ITEMS,
)
from parley.envs.negotiation.domain import (
    DEAL_OR_NO_DEAL,
    DISAGREE,
    EOS,
    SELECTION,
    SPECIALS,
    THEM,
    YOU,
    Domain,
    Numbers,
    Scenario,
    domain_of,
)

READER_VERSION = 1
"""Grows when the reader changes; part of the key of compiled corpora."""

_SECTIONS = ("input", "dialogue", "output", "partner_input")
_RESERVED = frozenset((*SPECIALS, YOU, THEM, *(f"<{tag}>" for tag in _SECTIONS), *(f"</{tag}>" for tag in _SECTIONS)))


class Turn(NamedTuple):
    """One turn of a dialogue, without the speaker marker and the final `<eos>`."""

    is_you: bool
    """Whether the side of this view speaks."""
    words: tuple[str, ...]
    """Plain words; exactly (`<selection>`,) in the last turn."""


@dataclass(frozen=True)
class DialogueRecord:
    """One side's view of one dialogue.

    Args:
        scenario: side 0 is the side of this view.
        turns: alternating, the last one `<selection>` alone.
        output: token ids of the outcome (in Deal or No Deal own three items, then the partner's), or a refusal on each head.
        line: line number in the file, from 1; 0 for other records. Equality ignores it.

    Raises:
        DataError: a rule of the format is broken.
    """

    scenario: Scenario
    turns: tuple[Turn, ...]
    output: Numbers
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
        domain = self.scenario.domain
        if self.output not in _legal_outputs(domain, self.scenario.counts):
            output = " ".join(domain.tokens[i] if 0 <= i < len(domain.tokens) else str(i) for i in self.output)
            raise broken_rule(
                f"the output is a deal that can be chosen, or one refusal {domain.num_heads} times",
                f"{output} of {self.scenario.counts}",
            )

    @property
    def tokens(self) -> list[str]:
        """The dialogue as models read it: markers, words, `<eos>` and the final `<selection>`."""
        tokens: list[str] = []
        for turn in self.turns[:-1]:
            tokens += (_marker(turn), *turn.words, EOS)
        return [*tokens, _marker(self.turns[-1]), SELECTION]


def parse_line(text: str, source: str = "line", line: int = 1, game: str = DEAL_OR_NO_DEAL) -> DialogueRecord:
    """Parse one dialogue line.

    Args:
        text: the line without its line end.
        source: the file, for messages.
        line: its number, counted from 1.
        game: what is negotiated about.

    Raises:
        DataError: the line breaks a rule; the message names file, line, rule and value.
    """
    try:
        bodies = _sections(text)
        domain = domain_of(game)
        scenario = Scenario.from_contexts(parse_context(bodies[0], domain), parse_context(bodies[3], domain), game)
        return DialogueRecord(scenario, parse_turns(bodies[1]), _parse_output(bodies[2], domain), line)
    except ParleyError as error:
        raise located(error, source, line) from None


def format_line(record: DialogueRecord) -> str:
    """Return the record as a line of the published format, which `parse_line` reads back."""
    chooser, partner = (" ".join(map(str, record.scenario.context(side))) for side in (0, 1))
    output = " ".join(record.scenario.domain.tokens[i] for i in record.output)
    bodies = (chooser, " ".join(record.tokens), output, partner)
    return " ".join(f"<{tag}> {body} </{tag}>" for tag, body in zip(_SECTIONS, bodies, strict=True))


def parse_lines(lines: Iterable[str], source: str, game: str = DEAL_OR_NO_DEAL) -> tuple[list[DialogueRecord], list[DataError]]:
    """Parse dialogue lines, and continue after broken ones.

    Args:
        lines: without line ends.
        source: their file, for messages.
        game: what is negotiated about.

    Returns:
        The records of the good lines and one error per broken line, both in file order.
    """
    records: list[DialogueRecord] = []
    broken: list[DataError] = []
    for line, text in enumerate(lines, 1):
        try:
            records.append(parse_line(text, source, line, game))
        except DataError as error:
            broken.append(error)
    return records, broken


def parse_scenarios(lines: Sequence[str], source: str, game: str = DEAL_OR_NO_DEAL) -> tuple[list[Scenario], list[DataError]]:
    """Parse self-play lines, pairs of both sides' numbers, and continue after broken pairs.

    Returns:
        One scenario per good pair (side 0 is its first line) and one error per broken pair, both in file order.
    """
    scenarios: list[Scenario] = []
    broken: list[DataError] = []
    domain = domain_of(game)
    for first in range(0, len(lines), 2):
        line = first + 1
        try:
            first_context = parse_context(lines[first], domain)
            if first + 1 == len(lines):
                raise broken_rule("every scenario is a pair of lines", "an odd number of lines")
            line += 1
            scenarios.append(Scenario.from_contexts(first_context, parse_context(lines[first + 1], domain), game))
        except ParleyError as error:
            broken.append(located(error, source, line))
    return scenarios, broken


def parse_context(text: str, domain: Domain) -> Numbers:
    """Parse the numbers that a side sees: count and own value of each item.

    Raises:
        DataError: the text is not the required count of numbers in range, separated by single spaces.
    """
    words, number_of_word, width = text.split(" "), _context_words(domain.largest), 2 * len(domain.items)
    if len(words) != width or not all(word in number_of_word for word in words):
        raise broken_rule(f"a context is {width} numbers 0..{domain.largest}", text)
    return tuple(number_of_word[word] for word in words)


def parse_turns(text: str) -> tuple[Turn, ...]:
    """Parse the turns of a dialogue, from markers to the final `<selection>`.

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
        body, closing_tag, rest = rest.removeprefix(opening).partition(closing)
        if not closing_tag:
            raise broken_rule(f"</{tag}> closes section {position + 1} of {len(_SECTIONS)}", body)
        bodies.append(body)
    if rest:
        raise broken_rule(f"the line ends with </{_SECTIONS[-1]}>", rest)
    return bodies


def _parse_output(text: str, domain: Domain) -> Numbers:
    words, token_ids = text.split(" "), domain.token_index
    if len(words) != domain.num_heads or not all(word in token_ids for word in words):
        raise broken_rule(f"the output is {domain.num_heads} of the {len(token_ids)} item tokens", text)
    return tuple(token_ids[word] for word in words)


@cache
def _context_words(largest: int) -> dict[str, int]:
    return {str(number): number for number in range(largest + 1)}


@cache
def _legal_outputs(domain: Domain, counts: Numbers) -> frozenset[Numbers]:
    choices = map(tuple, domain.selections(counts).table.tolist())
    return frozenset((*choices, domain.refusal_tokens(DISAGREE)))


_CONTEXT_WIDTH = 2 * NUM_ITEMS
_AGREE, _DISAGREE = "agree", "disagree"
_NO_AGREEMENT, _DISCONNECT = ("no", "agreement"), ("disconnect",)


_View = tuple[Scenario, tuple[Turn, ...]]


@dataclass(frozen=True)
class _RawLine:
    view: _View
    choice: tuple[str, ...]
    agreed: bool

    @property
    def partner_view(self) -> _View:
        scenario, turns = self.view
        return scenario.swapped(), tuple(Turn(not turn.is_you, turn.words) for turn in turns)


def rebuild_train(raw_lines: Iterable[str], held_out: Collection[str], source: str) -> list[str]:
    """Return the training split: the converted raw lines without those of the other splits.

    Args:
        raw_lines: the lines of data.txt.
        held_out: the lines of val.txt and test.txt.
        source: the raw file, for messages.

    Returns:
        Lines of the published format, in the raw file's order.

    Raises:
        DataError: a raw line is broken (file and line number), or a held-out line is not in the raw release.
    """
    raw = [_parse(text, source, line) for line, text in enumerate(raw_lines, 1)]
    views = {entry.view for entry in raw}
    converted = [_convert(entry, views, source, line) for line, entry in enumerate(raw, 1)]
    excluded = set(held_out)
    absent = excluded - set(converted)
    if absent:
        raise DataError(
            f"{len(absent)} held-out lines do not occur in the raw release",
            where=source,
            got=min(absent)[:160],
            fix="take data.txt, val.txt and test.txt from the same release",
        )
    return [line for line in converted if line not in excluded]


def _parse(text: str, source: str, line: int) -> _RawLine:
    words = text.split(" ")
    try:
        if words.count(SELECTION) != 1:
            raise DataError(f"a raw line holds one {SELECTION}", got=text[:160])
        end = words.index(SELECTION) + 1
        choice, rest = _until_eos(words[end:-_CONTEXT_WIDTH])
        if not rest or rest[-1] not in (_AGREE, _DISAGREE) or not rest[0].startswith("reward="):
            raise DataError(f"reward=R and {_AGREE} or {_DISAGREE} follow the choice", got=" ".join(rest))
        chooser, partner = " ".join(words[:_CONTEXT_WIDTH]), " ".join(words[-_CONTEXT_WIDTH:])
        scenario = Scenario.from_contexts(parse_context(chooser, DIVISION), parse_context(partner, DIVISION))
        return _RawLine((scenario, parse_turns(" ".join(words[_CONTEXT_WIDTH:end]))), choice, rest[-1] == _AGREE)
    except ParleyError as error:
        raise located(error, source, line) from None


def _until_eos(words: list[str]) -> tuple[tuple[str, ...], list[str]]:
    if EOS not in words:
        raise DataError(f"the choice ends with {EOS}", got=" ".join(words))
    end = words.index(EOS)
    return tuple(words[:end]), words[end + 1 :]


def _convert(raw: _RawLine, views: Collection[_View], source: str, line: int) -> str:
    try:
        return format_line(DialogueRecord(*raw.view, _output(raw, has_partner=raw.partner_view in views)))
    except ParleyError as error:
        raise located(error, source, line) from None


def _output(raw: _RawLine, has_partner: bool) -> tuple[int, ...]:
    if not raw.agreed:
        return (DISAGREE_ID,) * 6
    if raw.choice == _NO_AGREEMENT:
        return (NO_AGREEMENT_ID,) * 6
    if raw.choice == _DISCONNECT:
        # In the published splits, a side without its partner's view counts as disagreement, whatever its flag.
        return ((DISCONNECT_ID if has_partner else DISAGREE_ID),) * 6
    if len(raw.choice) != NUM_ITEMS or not all(word in ITEM_TOKEN_INDEX for word in raw.choice):
        raise DataError("the choice is three item tokens, `no agreement` or `disconnect`", got=" ".join(raw.choice))
    chooser = tuple(ITEM_TOKEN_INDEX[word] for word in raw.choice)
    rest = tuple(
        (MAX_COUNT + 1) * item + count - (token - (MAX_COUNT + 1) * item)
        for item, (count, token) in enumerate(zip(raw.view[0].counts, chooser, strict=True))
    )
    return chooser + rest
