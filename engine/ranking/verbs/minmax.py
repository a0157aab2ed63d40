"""Hardening of rankers by rounds: `parley minmax ranking`.

A round trains the ranker on what all policies so far find against the rankers that they learned to mislead, then a fresh
editing policy against the ranker as it is. What is left to find is measured by that policy, by a greedy search and by random
edits, all with as many edits of the same kind and as many queries. The fresh policy is an adversary of the next round. R@1
under attack counts contexts that hold against the search, random edits and every policy that is known by then.

Rounds are measured on the validation split. They end when R@1 under attack has stopped rising there, and the ranker of the
best round is the result (`checkpoint`). It is measured once more on the test split, as the start is, by the policies of all
rounds and by fresh ones that chose no round. A control, the start trained as long on replies as they are, says how much of the
gain is owed to adversaries.

Not here: which runs a campaign is made of (`campaign.py`), and how it is made (`engine/core/verbs/hardening.py`).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.command import command_line
from parley.engine.core.verbs.hardening import HardeningJob
from parley.engine.ranking.metrics.campaign import CAMPAIGN, RANKERS
from parley.engine.ranking.verbs.campaign import HardenRankingConfig, RankingCampaign
from parley.engine.ranking.verbs.config import RankingConfig
from parley.engine.ranking.verbs.prepared import not_read_told
from parley.envs.core.storage.uris import display_path
from parley.envs.ranking.edit_game import EditRules
from parley.policies.core.choosing_settings import ChoiceLearning
from parley.policies.ranking.matching.settings import MatcherFitConfig, SmnSizes


def helpdesk() -> HardenRankingConfig:
    """A tiny SMN on the built-in help desk, one round, offline, in a few minutes."""
    fit = MatcherFitConfig(batch_size=64, max_epochs=4, patience=4, learning_rate=2e-3, fresh_negatives=True)
    return HardenRankingConfig(
        rounds=1,
        limit=150,
        adversary_share=0.1,
        game=EditRules(edits=2),
        learning=ChoiceLearning(updates=30),
        smn=SmnSizes(embed=48, turns=3, words=16, gru=32),
        fit=fit,
        hardening=replace(fit, max_epochs=2, learning_rate=1e-3),
    )


def li2019() -> HardenRankingConfig:
    """A small SMN on the dialogues of #ubuntu (corpus of Li et al. 2019), four rounds at most."""
    from parley.policies.ranking.matching.settings import small_fit, smn_small

    fit = small_fit()
    hardening = replace(fit, max_epochs=2)
    return HardenRankingConfig(
        corpus="ubuntu_dialogues", limit=300, adversary_share=0.15, smn=smn_small(), fit=fit, hardening=hardening
    )


class MinMaxRanking(HardeningJob[HardenRankingConfig]):
    """`parley minmax ranking`."""

    words = ("minmax", "ranking")
    run_name = "minmax-ranking"
    config = HardenRankingConfig
    presets = {"helpdesk": helpdesk, "li2019": li2019}
    campaign, maker = RankingCampaign, "parley train matcher"
    measures, legend = RANKERS, CAMPAIGN
    measured_on = "validation split"
    unhelped = "no round held more under attack than the start, which is the result"

    def heading(self, config: HardenRankingConfig) -> str:
        return f"{config.model or 'an SMN'} on {config.corpus} hardened"

    def description(self, config: HardenRankingConfig, best: int) -> str:
        words = f"{config.game.edits} word{'s' * (config.game.edits > 1)}"
        return (
            f"The ranker of round {best} is the result, by the validation split; figures are of the test split. At most "
            f"{words} replaced, {config.budget:,} queries, seed {config.seed}."
        )

    def note(self, run: RunFolder) -> str:
        return not_read_told(run.summary() or {})

    def next_commands(self, config: HardenRankingConfig, path: Path) -> tuple[str, ...]:
        """The page, and the ranker before and after under all rules."""
        names = f"{RankingCampaign(config, path).model(0)},{display_path(path)}"
        same = {name: getattr(config, name) for name in ("corpus", "lexicon", "candidates", "data_root")}
        asked = RankingConfig(model=names, **same)
        evaluated = command_line(("evaluate", "ranking"), {"": RankingConfig}, asked, run=None)
        return (*super().next_commands(config, path), evaluated)


MINMAX_RANKING = MinMaxRanking()
