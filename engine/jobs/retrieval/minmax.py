"""Hardening of rankers by rounds: `parley minmax ranking`.

A round trains the ranker on what all policies so far find against the rankers that they learned to mislead, then a fresh
editing policy against the ranker as it is. What is left to find is measured in two ways: by that policy, and by a greedy
search, both with as many edits of the same kind and as many queries. The fresh policy is an adversary of the next round.

Rounds are measured on the validation split. They end when R@1 under attack has stopped rising there, and the ranker of the
best round is the result (`checkpoint`). It is measured once more on the test split, as the start is, by a policy that chose no
round. A control, the start trained as long on replies as they are, says how much of the gain is owed to adversaries.

Not here: which runs a campaign is made of (`campaign.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from engine.jobs.checkpoints import require_checkpoint
from engine.jobs.command import command_line
from engine.jobs.composite import run_stages
from engine.jobs.job import Job, Reporter, Result, Steps, Summary
from engine.jobs.retrieval.asked import label_of
from engine.jobs.retrieval.campaign import CONTROL, RESULT, SEARCH_METHOD, START, HardenRankingConfig, RankingCampaign
from engine.jobs.retrieval.config import RankingConfig
from engine.jobs.rounds import ROUND, StopRule, make_rounds, rounds_of
from engine.jobs.sharded import session
from engine.jobs.tables import TABLE_FILE
from engine.metrics.retrieval.campaign import (
    AS_CONTROL,
    BEFORE_HARDENING,
    CAMPAIGN,
    FIRST,
    GAIN,
    GAIN_BEYOND_CONTROL,
    HELD,
    MEASURED,
    POLICY,
    POLICY_AFTER,
    POLICY_BEFORE,
    ROUND_METRICS,
    SEARCH,
    UnderAttack,
    lost,
    outcome_table,
    rounds_table,
)
from engine.metrics.retrieval.searched import SUCCESS
from engine.metrics.rounds import Round, best_round
from engine.metrics.statistics import Estimate
from engine.metrics.tables import TextTable
from engine.store.layout import SUMMARY
from engine.store.run_folder import RunFolder
from envs.candidates.edit_game import EditRules
from envs.storage.copies import CHECKPOINT
from envs.storage.places import display_path
from policies.choosing_settings import ChoiceLearning
from policies.matching.settings import MatcherFitConfig, SmnSizes

OUTCOME, ROUNDS = "Before and after", "Rounds"
"""Headings of the tables."""


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
    from policies.matching.settings import small_fit, smn_small

    fit = small_fit()
    hardening = replace(fit, max_epochs=2)
    return HardenRankingConfig(
        corpus="ubuntu_dialogues", limit=300, adversary_share=0.15, smn=smn_small(), fit=fit, hardening=hardening
    )


class MinMaxRanking(Job[HardenRankingConfig, HardenRankingConfig, Summary]):
    """`parley minmax ranking`."""

    words = ("minmax", "ranking")
    run_name = "minmax-ranking"
    config = HardenRankingConfig
    presets = {"helpdesk": helpdesk, "li2019": li2019}
    legend = CAMPAIGN
    files = (CHECKPOINT, TABLE_FILE, SUMMARY)
    resume_safe = ("data_root",)
    steps = Steps(ROUND, "rounds", lambda config: config["rounds"] if isinstance(config.get("rounds"), int) else None)

    def prepare(self, config: HardenRankingConfig, path: Path, reporter: Reporter) -> HardenRankingConfig:
        """Finds out whether the start is there and the first stage can be done."""
        if config.model:
            require_checkpoint(config.model, "--model", "parley train matcher")
        campaign = RankingCampaign(config, path)
        job, settings = next(iter((campaign.begin() or campaign.round(0)).values()))
        job.prepare(settings, path, reporter)
        return config

    def work(self, run: RunFolder, prepared: HardenRankingConfig, reporter: Reporter) -> Summary:
        """Makes what is left of the rounds, stores the best one's ranker, and compares it with start and control."""
        config, path = prepared, run.path
        campaign = RankingCampaign(config, path)

        def measured(number: int) -> dict[str, Estimate]:
            run_stages(campaign.round(number), path, reporter)
            return _of_round(campaign, number)

        def show(rounds: Sequence[Round]) -> None:
            for one in rounds:
                figures = ", ".join(f"{ROUND_METRICS[name].title} {one.metrics[name].value:.2f}" for name in MEASURED)
                reporter.say(f"round {one.number}, validation split: {figures}")

        rule = StopRule(config.rounds, config.patience, config.least_gain, lost, "R@1 under attack has not risen")
        with session(1, ""):
            run_stages(campaign.begin(), path, reporter)
            rounds = make_rounds(run, rule, measured, show, reporter)
            best = best_round(rounds, lost).number
            if not best:
                reporter.say("no round held more under attack than the start, which is the result")
            run_stages(campaign.last(best), path, reporter)
        _store(run, campaign, best)
        metrics = _outcome(campaign, best)
        words = f"{config.game.edits} word{'s' * (config.game.edits > 1)}"
        return Summary(
            f"{config.model or 'an SMN'} on {config.corpus} hardened",
            f"Rounds: {len(rounds) - 1}. The ranker of round {best} is the result, by the validation split; figures are of the "
            f"test split. At most {words} replaced, {config.budget:,} queries, seed {config.seed}.",
            metrics,
        )

    def models(self, config: HardenRankingConfig) -> Mapping[str, str]:
        return {"model": config.model}

    def tables(self, run: RunFolder) -> dict[str, TextTable]:
        """Start, result and control side by side, and the rounds so far."""
        metrics, rounds = run.metrics(), rounds_of(run)
        outcome = {OUTCOME: outcome_table(metrics)} if metrics else {}
        return outcome | ({ROUNDS: rounds_table(rounds)} if rounds else {})

    def present(self, result: Result, run: RunFolder) -> Result:
        """With the tables in the place of the metrics."""
        return replace(result, tables=self.tables(run))

    def next_commands(self, config: HardenRankingConfig, path: Path) -> tuple[str, ...]:
        """The page, and the ranker before and after under all rules."""
        names = f"{RankingCampaign(config, path).ranker(0)},{display_path(path)}"
        asked = RankingConfig(model=names, corpus=config.corpus, candidates=config.candidates, data_root=config.data_root)
        evaluated = command_line(("evaluate", "ranking"), {"": RankingConfig}, asked, run=None)
        return (*super().next_commands(config, path), evaluated)


def _of_round(campaign: RankingCampaign, number: int) -> dict[str, Estimate]:
    """What a ranker is measured by after a round."""
    editor, attack = campaign.editor(number), campaign.path / campaign.attack(number)
    found = _figures(campaign, attack, editor)
    if number:
        last, before = campaign.editor(number - 1), campaign.path / campaign.attack(number - 1)
        told = {POLICY_BEFORE: _success(campaign, before, last), POLICY_AFTER: _success(campaign, attack, last)}
        found = told | found
    return found


def _outcome(campaign: RankingCampaign, best: int) -> dict[str, Estimate]:
    """Start, result and control on the test split."""
    editors = {START: campaign.editor(0), RESULT: f"{RESULT}-editor", CONTROL: f"{CONTROL}-editor"}
    attacks = {name: campaign.path / f"{name}-attack" for name in editors}
    if not best:
        attacks[RESULT], editors[RESULT] = attacks[START], editors[START]
    endings = {START: BEFORE_HARDENING, RESULT: ""} | ({CONTROL: AS_CONTROL} if campaign.config.control else {})
    measured = {name: _figures(campaign, attacks[name], editors[name]) for name in endings}
    found = {f"{metric}{endings[name]}": each for name, of in measured.items() for metric, each in of.items()}
    result = _under_attack(attacks[RESULT], editors[RESULT])
    found[GAIN] = result.more_than(_under_attack(attacks[START], editors[START]))
    if campaign.config.control:
        found[GAIN_BEYOND_CONTROL] = result.more_than(_under_attack(attacks[CONTROL], editors[CONTROL]))
    return {name: found[name] for name in CAMPAIGN if name in found}


def _figures(campaign: RankingCampaign, attack: Path, editor: str) -> dict[str, Estimate]:
    """What a ranker is measured by, from an attack on it by the search and its fresh policy."""
    under = _under_attack(attack, editor)
    policy, search = _success(campaign, attack, editor), _success(campaign, attack, SEARCH_METHOD)
    return {POLICY: policy, SEARCH: search, HELD: under.held(), FIRST: under.first()}


def _success(campaign: RankingCampaign, attack: Path, method: str) -> Estimate:
    """The success of a method with all of its queries, in an attack on one ranker."""
    begins, ends = f"{SUCCESS}{campaign.config.budget}.", f".{label_of(method)}"
    metrics = RunFolder.load(attack).metrics()
    (found,) = [each for name, each in metrics.items() if name.startswith(begins) and name.endswith(ends)]
    return found


def _under_attack(attack: Path, editor: str) -> UnderAttack:
    return UnderAttack(RunFolder.load(attack).read_rows().to_pylist(), (SEARCH_METHOD, label_of(editor)))


def _store(run: RunFolder, campaign: RankingCampaign, best: int) -> None:
    """The ranker of the best round as the campaign's own checkpoint."""
    from policies.matching.checkpoints import format_of
    from policies.matching.ranker import load_matcher

    folder = require_checkpoint(campaign.ranker(best), "--model", "parley train matcher")
    model = load_matcher(folder).model
    form = format_of(model.sizes)
    origin = {"base": campaign.ranker(0), "round": best} if best else {"round": 0}
    form.save(model, run.path / CHECKPOINT, {**form.provenance(folder), **origin})


MINMAX_RANKING = MinMaxRanking()
