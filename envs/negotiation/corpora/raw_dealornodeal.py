"""Conversion of the raw Deal or No Deal release (`data.txt`) into the training split's published format.

The release holds every view of every dialogue in one file; val.txt and test.txt are some of them in the format of
`dealornodeal.py`, and train.txt is the rest. A raw line, its parts separated by single spaces:

    c0 v0 c1 v1 c2 v2 TURNS CHOICE <eos> reward=R FLAG c0 v0 c1 v1 c2 v2

CHOICE is the own three items, `no agreement` or `disconnect`; FLAG is `agree` or `disagree`; the last six numbers are the
partner's context. The outcome follows from CHOICE and FLAG as `_output` says; that rule gives every published line of
val.txt and test.txt.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from parley.envs.core.errors import DataError, ParleyError
from parley.envs.corpora.lines import located
from parley.envs.negotiation.corpora.dealornodeal import DialogueRecord, Turn, format_line, parse_context, parse_turns
from parley.envs.negotiation.dealornodeal.domain import DIVISION
from parley.envs.negotiation.dealornodeal.rules import (
    DISAGREE_ID,
    DISCONNECT_ID,
    ITEM_TOKEN_INDEX,
    MAX_COUNT,
    NO_AGREEMENT_ID,
    NUM_ITEMS,
)
from parley.envs.negotiation.scenario import Scenario
from parley.envs.negotiation.vocabulary import EOS, SELECTION

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
    """The training split: the raw lines converted, less those that stand in the other splits.

    Args:
        raw_lines: the lines of data.txt.
        held_out: the lines of val.txt and test.txt.
        source: the raw file, for messages.

    Returns:
        Lines of the published format, in the raw file's order.

    Raises:
        DataError: a raw line is broken (file and line number), or a held-out line is not among the converted ones.
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
        own, partner = " ".join(words[:_CONTEXT_WIDTH]), " ".join(words[-_CONTEXT_WIDTH:])
        scenario = Scenario.from_contexts(parse_context(own, DIVISION), parse_context(partner, DIVISION))
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
        # A side whose partner's view was not kept counts as disagreement in the published splits, whatever its flag.
        return ((DISCONNECT_ID if has_partner else DISAGREE_ID),) * 6
    if len(raw.choice) != NUM_ITEMS or not all(word in ITEM_TOKEN_INDEX for word in raw.choice):
        raise DataError("the choice is three item tokens, `no agreement` or `disconnect`", got=" ".join(raw.choice))
    own = tuple(ITEM_TOKEN_INDEX[word] for word in raw.choice)
    rest = tuple(
        (MAX_COUNT + 1) * item + count - (token - (MAX_COUNT + 1) * item)
        for item, (count, token) in enumerate(zip(raw.view[0].counts, own, strict=True))
    )
    return own + rest
