"""Figures of publications that measured ones are shown beside; nothing is computed from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class PublishedAttack:
    """What a publication says of one attack; None where it is silent, or where we do not know.

    Args:
        advantage: adversary's points minus target's; two numbers are the range of several attacks, of which is not known which
            had which.
        points: the adversary's and the target's.
        par: share of dialogues with a positive advantage, ties counted.
    """

    advantage: float | tuple[float, float]
    points: tuple[float, float] | None = None
    par: float | None = None


ATTACKS: Mapping[str, Mapping[str, PublishedAttack]] = {
    "sv": {
        "rl": PublishedAttack(4.25),
        "transfer": PublishedAttack(-0.13),
        "reactive": PublishedAttack(5.40),
        "preemptive": PublishedAttack(2.81),
        "ra-pa-da": PublishedAttack(5.83),
        "ra-pa-ta": PublishedAttack(5.62),
    },
    "rl": {
        "rl": PublishedAttack(2.32),
        "transfer": PublishedAttack(-1.19),
        "reactive": PublishedAttack(4.95, points=(8.72, 3.77), par=0.9023),
        "preemptive": PublishedAttack(0.77, points=(6.78, 6.01), par=0.6923),
        "ra-pa-da": PublishedAttack(5.78, points=(8.73, 2.95), par=0.8693),
        "ra-pa-ta": PublishedAttack(5.70, points=(8.62, 2.92), par=0.8974),
    },
    "hardened": {
        "rl": PublishedAttack(-1.80),
        "transfer": PublishedAttack(-2.66),
        "reactive": PublishedAttack(4.52),
        "preemptive": PublishedAttack(-1.77),
        "ra-pa-da": PublishedAttack(3.98),
        "ra-pa-ta": PublishedAttack(3.93),
    },
    "turns": dict.fromkeys(("reactive-1", "reactive-2", "reactive-3", "reactive-4"), PublishedAttack((4.84, 5.52))),
}
"""Attacks in Cheng et al. 2019, by what was attacked and the attack: tables 2 (supervised or RL agent), 6 (after adversarial
training) and 7 (fixed turns; against which target is not known to us).

Their scenarios are not known, their rows carry no interval, and white-box rows follow the forced
protocol (`engine.metrics.negotiation.attack`). The rows without an attack are left out: both sides chose in them, so that
their points, agreement and PAR are figures of another game than that of a table's row "none", in which the target alone
chooses.
"""
