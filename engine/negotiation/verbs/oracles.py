"""Policy-space response oracles (PSRO, Lanctot et al. 2017) in a campaign: what each side of a round learns against.

The payoffs of all targets and adversaries before a round are a stage of it; pairs of earlier rounds are not played again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.job import Reporter
from parley.engine.negotiation.attacks.opponents import OpponentConfig
from parley.engine.negotiation.verbs.payoffs import PopulationConfig
from parley.engine.negotiation.verbs.population import EVALUATE_POPULATION, SHARES, by_weights
from parley.envs.core.storage.uris import display_path

if TYPE_CHECKING:
    from parley.engine.negotiation.verbs.campaign_config import MinMaxConfig


@dataclass(frozen=True)
class Mixed:
    """Agents of a campaign, oldest first, and how often a mixture plays each, by "targets" and "adversaries"."""

    targets: Sequence[str]
    adversaries: Sequence[str]
    shares: Mapping[str, Sequence[float]]

    def for_adversary(self) -> dict[str, Any]:
        """What an adversary learns against, as settings of its training."""
        return {"target": ",".join(self.targets), "opponents": by_weights(self.shares["targets"], OpponentConfig())}

    def for_target(self, drawing: OpponentConfig) -> dict[str, Any]:
        """What a target learns against, ordinary play included as `drawing` says."""
        return {"adversaries": ",".join(self.adversaries), "opponents": by_weights(self.shares["adversaries"], drawing)}


def mixed(
    targets: Sequence[str],
    adversaries: Sequence[str],
    config: MinMaxConfig,
    seed: int,
    path: Path,
    known: Sequence[Path],
    reporter: Reporter,
) -> Mixed:
    """The mixture of a campaign's agents, from payoffs that are played where they are not there yet.

    Args:
        targets: oldest first.
        adversaries: oldest first.
        config: of the campaign.
        seed: of the dialogues, the same for all rounds.
        path: the stage of the payoffs.
        known: those of earlier rounds.
        reporter: who looks on.
    """
    settings = PopulationConfig(
        targets=",".join(targets),
        adversaries=",".join(adversaries),
        known=",".join(map(display_path, known)),
        dialogues=config.dialogues,
        seed=seed,
        **config.playing(),
    )
    result = EVALUATE_POPULATION.run(settings, path, reporter)
    found = RunFolder.load(result.run).summary() or {}
    return Mixed(targets, adversaries, found[SHARES][config.meta])
