"""A few examples written for the tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from parley.envs.corpora.pairs.turns import Example, Turn, parse_turns, turn_words
from parley.envs.generation.game import ReplyRules


def example(key: str, context: str, reply: str) -> Example:
    """An example in one line each."""
    return Example(key, parse_turns(context), parse_turns(reply)[0])


EXAMPLES = (
    example("a", "hello <eot> my printer jams again <eot> which drawer ?", "the lower one <eou> it jams"),
    example("b", "my disk is full", "which disk is it ?"),
)
RULES = ReplyRules(turns=2, max_context=4, max_words=5)


class Asks:
    """Finds questions human, and remembers what it was asked about."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def __repr__(self) -> str:
        return "Asks()"

    def judge_replies(self, examples: Sequence[Example], replies: Sequence[Turn]) -> np.ndarray:
        self.asked += [(each.key, " ".join(turn_words(reply))) for each, reply in zip(examples, replies, strict=True)]
        return np.array([0.75 if reply[-1][-1:] == ("?",) else 0.25 for reply in replies])
