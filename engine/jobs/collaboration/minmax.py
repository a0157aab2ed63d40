"""Hardening of bots that look for friends by rounds: `parley minmax friends`.

A round trains the bot further on chats that are heard as they are, or through one of the liars so far; then a fresh liar
against the bot as it is, whose harm is what is left to do, and which joins the liars of the next round. Rounds end when that
harm has stopped falling, and the bot of the best round is the result (`checkpoint`).

Start and result are measured once more, by fresh liars on scenarios that chose no round. Two controls, the start trained as
long without lies and on random ones, say how much of the gain is owed to liars that learn.

Not here: which runs a campaign is made of (`campaign.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from engine.jobs.checkpoints import require_checkpoint
from engine.jobs.collaboration.agents import MAKER
from engine.jobs.collaboration.campaign import FriendsCampaign, HardenFriendsConfig, hardening_fit
from engine.jobs.collaboration.config import CollaborationConfig
from engine.jobs.collaboration.liar import MEASURED, RATE
from engine.jobs.command import command_line
from engine.jobs.composite import run_stages
from engine.jobs.job import Job, Reporter, Result, Steps, Summary
from engine.jobs.rounds import ROUND, StopRule, make_rounds, rounds_of
from engine.jobs.sharded import session
from engine.jobs.tables import TABLE_FILE
from engine.metrics.collaboration.hardening import (
    CAMPAIGN,
    ENDINGS,
    GAINS,
    NOTE,
    NOTE_OUTCOME,
    RESULT,
    ROUND_METRICS,
    harmed,
)
from engine.metrics.collaboration.lying import HARM
from engine.metrics.rounds import Round, best_round, outcome_table, rounds_table
from engine.metrics.statistics import Estimate, paired_difference
from engine.metrics.tables import TextTable
from engine.store.layout import SUMMARY
from engine.store.run_folder import RunFolder
from envs.storage.copies import CHECKPOINT
from envs.storage.places import display_path
from policies.choosing_settings import ChoiceLearning
from policies.dynonet.settings import dynonet_demo, dynonet_small

OUTCOME, ROUNDS = "Before and after", "Rounds"
"""Headings of the tables."""
_LEAST_RATE = 1e-3


def small() -> HardenFriendsConfig:
    """A small DynoNet on the built-in chats, three rounds at most, on a laptop."""
    return HardenFriendsConfig(sizes=dynonet_small())


def demo() -> HardenFriendsConfig:
    """To see how it goes, its figures mean little: a DynoNet of 200 built-in chats, one round, in a few minutes."""
    return HardenFriendsConfig(
        rounds=1,
        limit=200,
        scenarios=60,
        max_events=24,
        sizes=dynonet_small(),
        learning=ChoiceLearning(updates=6, examples_per_update=32, learning_rate=0.05),
        fit=dynonet_demo(),
        hardening=replace(hardening_fit(), max_epochs=1),
    )


class MinMaxFriends(Job[HardenFriendsConfig, HardenFriendsConfig, Summary]):
    """`parley minmax friends`."""

    words = ("minmax", "friends")
    run_name = "minmax-friends"
    config = HardenFriendsConfig
    presets = {"small": small, "demo": demo}
    legend = CAMPAIGN
    files = (CHECKPOINT, TABLE_FILE, SUMMARY)
    resume_safe = ("data_root",)
    steps = Steps(ROUND, "rounds", lambda config: config["rounds"] if isinstance(config.get("rounds"), int) else None)

    def prepare(self, config: HardenFriendsConfig, path: Path, reporter: Reporter) -> HardenFriendsConfig:
        """Finds out whether the start is there and the first stage can be done."""
        if config.model:
            require_checkpoint(config.model, "--model", MAKER)
        campaign = FriendsCampaign(config, path)
        job, settings = next(iter((campaign.begin() or campaign.round(0)).values()))
        job.prepare(settings, path, reporter)
        return config

    def work(self, run: RunFolder, prepared: HardenFriendsConfig, reporter: Reporter) -> Summary:
        """Makes what is left of the rounds, stores the best one's bot, and compares it with start and controls."""
        config, path = prepared, run.path
        campaign = FriendsCampaign(config, path)

        def measured(number: int) -> Mapping[str, Estimate]:
            run_stages(campaign.round(number), path, reporter)
            found = RunFolder.load(path / campaign.liar(number)).metrics()
            return {name: found[name] for name in ROUND_METRICS}

        def show(rounds: Sequence[Round]) -> None:
            for one in rounds:
                figures = (f"{metric.title} {one.metrics[name].value:.2f}" for name, metric in ROUND_METRICS.items())
                reporter.say(f"round {one.number}: {', '.join(figures)}")

        rule = StopRule(config.rounds, config.patience, config.least_gain, harmed, "the harm of a fresh liar has not fallen")
        with session(1, ""):
            run_stages(campaign.begin(), path, reporter)
            rounds = make_rounds(run, rule, measured, show, reporter)
            best = best_round(rounds, harmed).number
            if not best:
                reporter.say("no round was harmed less than the start, which is the result")
            run_stages(campaign.last(best, _rate(path / campaign.liar(0))), path, reporter)
        _store(run, campaign, best)
        return Summary(
            f"{config.model or 'a DynoNet'} hardened against liars",
            f"Rounds: {len(rounds) - 1}. The bot of round {best} is the result. At most {config.game.lies} lies a chat of "
            f"{config.max_events} events, seed {config.seed}.",
            _outcome(campaign, best),
        )

    def models(self, config: HardenFriendsConfig) -> Mapping[str, str]:
        return {"model": config.model}

    def tables(self, run: RunFolder) -> dict[str, TextTable]:
        """Start, controls and result side by side, and the rounds so far."""
        metrics, rounds = run.metrics(), rounds_of(run)
        gains = f"{ROUND_METRICS[HARM].title}: harm of this, less after", GAINS
        outcome = outcome_table(metrics, ROUND_METRICS, ENDINGS, gains, NOTE_OUTCOME, "bot") if metrics else None
        found = {} if outcome is None else {OUTCOME: outcome}
        return found | ({ROUNDS: rounds_table(rounds, ROUND_METRICS, NOTE)} if rounds else {})

    def present(self, result: Result, run: RunFolder) -> Result:
        """With the tables in the place of the metrics."""
        return replace(result, tables=self.tables(run))

    def next_commands(self, config: HardenFriendsConfig, path: Path) -> tuple[str, ...]:
        """The page, and the bot before and after under what Niu & Bansal did."""
        start = FriendsCampaign(config, path).model(0)
        asked = CollaborationConfig(model=start, trained=display_path(path), controls=False, data_root=config.data_root)
        heard = command_line(("evaluate", "collaboration"), {"": CollaborationConfig}, asked, run=None)
        return (*super().next_commands(config, path), heard)


def _outcome(campaign: FriendsCampaign, best: int) -> dict[str, Estimate]:
    """Start, controls and result, and by how much less the result is harmed, scenario by scenario."""
    runs = {ending: RunFolder.load(path) for ending, path in campaign.measured(best).items()}
    found = {f"{name}{ending}": run.metrics()[name] for ending, run in runs.items() for name in ROUND_METRICS}
    harms = {ending: _harms(run) for ending, run in runs.items()}
    for told, gain in GAINS.items():
        if ENDINGS[told] in harms:
            found[gain] = paired_difference(harms[ENDINGS[told]], harms[RESULT])
    return {name: found[name] for name in CAMPAIGN if name in found}


def _rate(liar: Path) -> float:
    """How often a liar lies while it may; of one that never does the least that may be asked for."""
    return max(float((RunFolder.load(liar).summary() or {})[RATE]), _LEAST_RATE)


def _harms(run: RunFolder) -> list[float]:
    """The harm of each chat of a liar."""
    (event,) = [event for event in run.events({MEASURED: {HARM: list}}) if event["kind"] == MEASURED]
    return [float(harm) for harm in event[HARM]]


def _store(run: RunFolder, campaign: FriendsCampaign, best: int) -> None:
    """The bot of the best round as the campaign's own checkpoint."""
    from policies.dynonet.checkpoints import DYNONET

    folder = require_checkpoint(campaign.model(best), "--model", MAKER)
    about = {**DYNONET.provenance(folder), "base": campaign.model(0), "round": best}
    DYNONET.save(DYNONET.load(folder), run.path / CHECKPOINT, about)


MINMAX_FRIENDS = MinMaxFriends()
