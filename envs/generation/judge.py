"""Who says how human a reply is: what `parley/Reply-v1` rewards, and a stand-in where nobody is handed in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from parley.envs.corpora.pairs.turns import Example, Turn, turn_words


class ReplyJudge(Protocol):
    """Judges replies."""

    def judge_replies(self, examples: Sequence[Example], replies: Sequence[Turn]) -> np.ndarray:
        """How human each reply is (B,), from 0 to 1; what is said of one does not depend on the others.

        Args:
            examples: contexts, and the replies that were recorded, with which a judge may compare.
            replies: one for each, of at least one word.
        """


class RecordedOverlap:
    """The F1 of a reply's words and those of the recorded one, counted as often as they stand.

    A stand-in that needs no model, so that the environment can be tried out: it knows one right answer and nothing of people.
    """

    def judge_replies(self, examples: Sequence[Example], replies: Sequence[Turn]) -> np.ndarray:
        """See `ReplyJudge`."""
        pairs = zip(examples, replies, strict=True)
        return np.array([_f1(turn_words(example.reply), turn_words(said)) for example, said in pairs])


def _f1(recorded: Sequence[str], said: Sequence[str]) -> float:
    shared = (Counter(recorded) & Counter(said)).total()
    return 2 * shared / (len(recorded) + len(said))
