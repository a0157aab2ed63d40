"""What judges of replies promise (`judge.ReplyJudge`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from parley.envs.core.conformance import Kind, expect, same_alone
from parley.envs.corpora.pairs.turns import Example, Turn

_EXAMPLES = (
    Example("a", ((("my", "printer", "is", "broken", "."),), (("which", "printer", "?"),)), (("the", "one", "upstairs", "."),)),
    Example("b", ((("hello",),),), (("hi", "there", "!"), ("what", "can", "i", "do", "?"))),
    Example("c", ((("it", "works"), ("thanks",)),), (("welcome",),)),
)
_SAID: tuple[Turn, ...] = ((("i", "do", "n't", "know", "."),), (("<unk>",), ("ok",)), (("welcome",),))


def _made(named: Any) -> Any:
    return named() if callable(named) else named


def _judged(judge: Any, rows: slice = slice(None)) -> list[float]:
    return [float(value) for value in np.asarray(judge.judge_replies(_EXAMPLES[rows], _SAID[rows]))]


def _says_a_number_of_each(judge: Any) -> None:
    """Says a number from 0 to 1 of each reply, with several utterances and unknown words too."""
    found = np.asarray(judge.judge_replies(_EXAMPLES, _SAID))
    expect(found.shape == (len(_SAID),), f"{len(_SAID)} numbers", f"shape {found.shape}")
    expect(bool(((found >= 0) & (found <= 1)).all()), "numbers from 0 to 1", found.tolist())


def _says_the_same_again(judge: Any) -> None:
    """Says the same when it is asked again."""
    same_alone(_judged(judge), _judged(judge), "what is said of a reply")


def _is_the_same_alone(judge: Any) -> None:
    """Says the same of a reply whether others are judged beside it or not."""
    alone = [_judged(judge, slice(row, row + 1))[0] for row in range(len(_SAID))]
    close = [np.isclose(together, single, rtol=0, atol=1e-5) for together, single in zip(_judged(judge), alone, strict=True)]
    expect(all(close), "what is said of a reply does not depend on what else is asked", f"{_judged(judge)} and, alone, {alone}")


REPLY_JUDGE = Kind(
    "judge of replies",
    "parley.envs.generation.judge.ReplyJudge",
    ("judge_replies",),
    _made,
    (_says_a_number_of_each, _says_the_same_again, _is_the_same_alone),
)
