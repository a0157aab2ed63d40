"""Figures of publications that measured ones are shown beside; nothing is computed from them."""

from __future__ import annotations

from collections.abc import Mapping

ADVANTAGE: Mapping[str, Mapping[str, float]] = {
    "sv": {
        "rl": 4.25,
        "transfer": -0.13,
        "reactive": 5.40,
        "preemptive": 2.81,
        "ra-pa-da": 5.83,
        "ra-pa-ta": 5.62,
    },
    "rl": {
        "rl": 2.32,
        "transfer": -1.19,
        "reactive": 4.95,
        "preemptive": 0.77,
        "ra-pa-da": 5.78,
        "ra-pa-ta": 5.70,
    },
    "hardened": {
        "rl": -1.80,
        "transfer": -2.66,
        "reactive": 4.52,
        "preemptive": -1.77,
        "ra-pa-da": 3.98,
        "ra-pa-ta": 3.93,
    },
}
"""Adversary's points minus target's in Cheng et al. 2019, by the target and the attack: tables 2 (supervised or RL agent) and 6
(after adversarial training).

Their scenarios are not known, their rows carry no interval, and white-box rows follow the forced protocol
(`engine.metrics.attack`). The rows without an attack are left out: both sides chose in them."""
