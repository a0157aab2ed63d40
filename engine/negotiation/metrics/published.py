"""Figures of publications that measured ones are shown beside; nothing is computed from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class PublishedAttack:
    """What a publication says of one attack.

    Args:
        points: the adversary's and the target's, 0 to 10.
        par: share of dialogues with a positive advantage, ties counted.
        agreement: share of dialogues that end in an agreement.
    """

    points: tuple[float, float]
    par: float
    agreement: float = 1.0

    @property
    def advantage(self) -> float:
        """The adversary's points minus the target's, to the two places that are printed."""
        adversary, target = self.points
        return round(adversary - target, 2)


ATTACKS: Mapping[str, Mapping[str, PublishedAttack]] = {
    "sv": {
        "none": PublishedAttack((7.23, 4.55), 0.7579, 0.8957),
        "rl": PublishedAttack((8.28, 4.03), 0.8445),
        "transfer": PublishedAttack((6.41, 6.54), 0.4443),
        "reactive": PublishedAttack((8.83, 3.43), 0.8700),
        "preemptive": PublishedAttack((7.76, 4.95), 0.7186),
        "ra-pa-da": PublishedAttack((8.79, 2.96), 0.8433),
        "ra-pa-ta": PublishedAttack((8.67, 3.05), 0.8312),
    },
    "rl": {
        "none": PublishedAttack((5.05, 5.00), 0.4470, 0.7636),
        "rl": PublishedAttack((7.11, 4.79), 0.6935),
        "transfer": PublishedAttack((5.65, 6.84), 0.3610),
        "reactive": PublishedAttack((8.72, 3.77), 0.9023),
        "preemptive": PublishedAttack((6.78, 6.01), 0.6923),
        "ra-pa-da": PublishedAttack((8.73, 2.95), 0.8693),
        "ra-pa-ta": PublishedAttack((8.62, 2.92), 0.8974),
    },
    "hardened": {
        "none": PublishedAttack((6.51, 6.64), 0.4867, 0.9175),
        "rl": PublishedAttack((5.71, 7.51), 0.6261),
        "transfer": PublishedAttack((4.93, 7.59), 0.2305),
        "reactive": PublishedAttack((8.83, 4.31), 0.8076),
        "preemptive": PublishedAttack((5.64, 7.41), 0.3439),
        "ra-pa-da": PublishedAttack((8.05, 4.07), 0.7396),
        "ra-pa-ta": PublishedAttack((8.06, 4.13), 0.7345),
    },
    "turns": {
        "reactive-1": PublishedAttack((8.84, 3.32), 0.9402),
        "reactive-2": PublishedAttack((8.72, 3.77), 0.9023),
        "reactive-3": PublishedAttack((8.81, 3.62), 0.9202),
        "reactive-4": PublishedAttack((8.71, 3.87), 0.9035),
    },
}
"""Attacks in Cheng et al. 2019, by what was attacked and the attack: tables 2 (supervised or RL agent), 6 (after adversarial
training) and 7 (fixed turns, against the RL agent).

Their 2,000 random scenarios are not known, their rows carry no interval, and white-box rows follow the forced protocol
(`parley.engine.negotiation.metrics.attack`). The text of section 7.3 gives 4.98 for the reactive attack on the RL agent, its
table 4.95. In the rows without an attack the RL agent speaks and both sides choose; in a table's row "none" the target alone
chooses.
"""
