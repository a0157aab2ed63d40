"""The end of a campaign: every target meets every adversary that is known, which chooses the result and measures it.

Known are the adversaries of all rounds, of the start, of the control and of the result, one that was given, the agent that they
started from, and the scripted ones. A target that fresh adversaries learned nothing from may lose to one that was trained
against another target, so the best of all counts (`engine/core/stats/exploitability.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from parley.engine.core.stats.exploitability import best_index, gained_by_training
from parley.engine.core.stats.known import KnownAdversaries
from parley.engine.core.stats.rounds import Round
from parley.engine.core.stats.statistics import mean
from parley.engine.negotiation.metrics.population import Played, payoff_estimates
from parley.engine.negotiation.verbs.campaign import Campaign
from parley.engine.negotiation.verbs.exploitability import BEST, SCRIPTED
from parley.engine.negotiation.verbs.population import labels, played_in

ROUNDS_PLAYED, ALL_PLAYED = "crossplay-rounds", "crossplay"
"""Stages: the targets and adversaries of the rounds; those of result and control too."""


@dataclass(frozen=True)
class ChosenRound:
    """The round that is the result.

    Args:
        number: of the round.
        loss: what the best known adversary gains from its target, in the dialogues that chose it.
    """

    number: int
    loss: float


def choose_round(campaign: Campaign, last: int, playing: Sequence[Round]) -> ChosenRound:
    """Return the round whose target loses least to the best adversary of all rounds.

    Args:
        campaign: whose rounds are made.
        last: number of the last round.
        playing: the rounds that may be the result.
    """
    targets = [campaign.target(number) for number in range(last + 1)]
    played = campaign.cross_play(ROUNDS_PLAYED, targets, _with_untrained(campaign, campaign.trained_against(last)), [])
    losses = played.payoffs_TA.max(axis=1)
    number = min((one.number for one in playing), key=lambda number: losses[number])
    return ChosenRound(number, float(losses[number]))


@dataclass(frozen=True)
class CrossPlayed:
    """What a campaign came to against all known adversaries.

    Args:
        gains: of the best adversary, by the ending of the target's metrics and the dialogue's key.
        known: all adversaries, and the targets by their stage.
        result: what the result is called among those.
    """

    gains: Mapping[str, Mapping[str, float]]
    known: KnownAdversaries
    result: str


def measure_all(campaign: Campaign, path: Path, last: int, measured: Mapping[str, tuple[str, str]]) -> CrossPlayed:
    """Play all targets against all adversaries, and each measured target's best adversary in other dialogues.

    Args:
        campaign: whose result and control are there.
        path: its folder.
        last: number of the last round.
        measured: the targets that are measured, by the ending of their metrics: the stage's prefix and the name.
    """
    result = measured[""][1]
    met = campaign.trained_against(last) | campaign.trained_last(result)
    names = [target for _, target in measured.values()]
    targets = list(dict.fromkeys([*names, *(campaign.target(number) for number in range(last + 1))]))
    adversaries = _with_untrained(campaign, met)
    played = campaign.cross_play(ALL_PLAYED, targets, adversaries, [ROUNDS_PLAYED])
    best = [best_index(played.gains_GTA[:, index]) for index in range(len(targets))]
    by_target: dict[str, Mapping[str, float]] = {}
    for prefix, target in measured.values():
        # The start may be the result.
        if target not in by_target:
            by_target[target] = campaign.gains_of(f"{prefix}{BEST}", target, adversaries[best[targets.index(target)]])
    estimates = payoff_estimates(played)
    trained = {name: _own_and_start(played, name, target, campaign.start) for name, target in met.items() if target}
    shown = dict(zip([*targets, *adversaries], labels([*targets, *adversaries], path), strict=True))
    known = KnownAdversaries(
        targets=[shown[name] for name in by_target],
        adversaries=[shown[name] for name in adversaries],
        gains_TA=[estimates[targets.index(name)] for name in by_target],
        best=[best[targets.index(name)] for name in by_target],
        measured=[mean(list(gains.values())) for gains in by_target.values()],
        learned={shown[name]: gained_by_training(own, first) for name, (own, first) in trained.items()},
        gained={shown[name]: mean(own) for name, (own, _) in trained.items()},
    )
    return CrossPlayed({ending: by_target[target] for ending, (_, target) in measured.items()}, known, shown[result])


def best_trained(campaign: Campaign, path: Path, target: str) -> str:
    """Return the adversary that gains most from a target, of those that a finished campaign trained or was given.

    Args:
        campaign: a finished one.
        path: its folder.
        target: one of its targets.
    """
    played = played_in(path / ALL_PLAYED)
    trained = [index for index, name in enumerate(played.adversaries) if name not in (campaign.start, *SCRIPTED)]
    gains_GA = played.gains_GTA[:, list(played.targets).index(target)][:, trained]
    return played.adversaries[trained[best_index(gains_GA)]]


def _with_untrained(campaign: Campaign, met: Mapping[str, str]) -> list[str]:
    """Return the names of all adversaries: those that were trained or given, their start, and the scripted ones."""
    return list(dict.fromkeys([*met, campaign.start, *SCRIPTED]))


def _own_and_start(played: Played, name: str, target: str, start: str) -> tuple[np.ndarray, np.ndarray]:
    """Return what an adversary and its start gain from the target that it was trained against, by dialogue."""
    gains_GA: np.ndarray = played.gains_GTA[:, list(played.targets).index(target)]
    own, first = (gains_GA[:, list(played.adversaries).index(adversary)] for adversary in (name, start))
    return own, first
