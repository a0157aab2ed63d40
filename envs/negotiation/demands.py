"""The last demand of a side in a dialogue of Deal or No Deal, parsed from its words as by the scripted bargainers.

The parser is approximate (`scripted/listening.py`), so a demand may be missed or misread.
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
    """A side's demand.

    Args:
        share: its items.
        turn: index of the utterance in which it last made the demand or accepted it, from 0.
    """

    share: Triple
    turn: int


def last_demand(turns: Sequence[tuple[bool, str]], counts: Triple) -> Demand | None:
    """Return a side's last proposal, or the partner's proposal that it has accepted since.

    Args:
        turns: the dialogue so far: True for a turn of this side, and its words.
        counts: number of each item in the scenario.

    Returns:
        The demand; None if the side has neither proposed nor accepted anything.
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
