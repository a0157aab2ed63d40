"""What a side last asked for in a dialogue of Deal or No Deal: read from its words, as the scripted bargainers hear them.

Words are understood roughly (`scripted/listening.py`), so a demand may be missed, or misread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from parley.envs.negotiation.dealornodeal_rules import Triple
from parley.envs.negotiation.domain import SPECIALS
from parley.envs.negotiation.scripted.bargainers import Talks
from parley.envs.negotiation.scripted.listening import understand


@dataclass(frozen=True)
class Demand:
    """What a side would have.

    Args:
        share: its items.
        turn: the utterance of the dialogue, from 0, in which it last said so or took what was offered.
    """

    share: Triple
    turn: int


def last_demand(turns: Sequence[tuple[bool, str]], counts: Triple) -> Demand | None:
    """Return the last proposal of one's own, or the other's that one has taken since.

    Args:
        turns: the dialogue so far: whether a turn is one's own, and its words.
        counts: number of each item in the scenario.

    Returns:
        None where one has neither proposed nor taken anything.
    """
    talks, demand = Talks(counts), None
    for turn, (mine, text) in enumerate(turns):
        meaning = understand([word for word in text.split() if word not in SPECIALS])
        talks.hear(mine, meaning)
        if not mine:
            continue
        if talks.is_news and talks.agreed is not None:
            demand = Demand(talks.agreed, turn)
        elif meaning.share(counts) is not None and talks.my_last is not None:
            demand = Demand(talks.my_last, turn)
    return demand
