"""Campaigns: train an adversary against a target, train the target against adversaries, measure it, and begin anew.

A round trains the target against a mixture of all adversaries so far (`meta`: the newest, all alike, or a meta-strategy of
policy-space response oracles, `engine/core/stats/known.py`), then a fresh adversary against this target. Every adversary is
kept.

Every phase and every measurement is a run of its own below the campaign's folder. It resumes by itself, and a finished one is
skipped. A measured round is an event of the run, so an interrupted campaign continues with the next round.

Rounds end at the last one, or when the loss has stopped falling. The best round is the result (`checkpoint`), of those whose
target still plays without an attack and has its language (`LanguageWatch`). Start, controls and result meet the best of all
known adversaries on items that chose neither it nor a round. A control is the start, trained as long without the attack.

Each game derives a `CampaignAdapter`: how each side is trained and a pair is measured. Negotiators have the same rounds, watch
and mixtures; they are repeated from several seeds, restart what diverges, and train their control beside the rounds
(`parley.engine.negotiation`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from parley.engine.core.runs.documents import EVENTS, SUMMARY, read_summary, whole
from parley.engine.core.runs.run_folder import RunFolder, read_events
from parley.engine.core.stats.known import (
    KNOWN,
    KNOWN_TABLE,
    SOLVED,
    AdversaryWords,
    CampaignMetrics,
    KnownAdversaries,
    Loss,
    Meta,
    Round,
    best_round,
    has_stalled,
    known_of,
    mixture,
)
from parley.engine.core.stats.statistics import Estimate
from parley.engine.core.tables.table import EstimateTable
from parley.engine.core.verbs.checkpoints import require_checkpoint
from parley.engine.core.verbs.composite import Stage, run_stages, warnings_of_stages
from parley.engine.core.verbs.job import TABLE_FILE, UNCHANGED, Job, Reporter, Result, Steps, Summary, noted
from parley.engine.core.verbs.sharded import session
from parley.engine.core.verbs.trainings import Scalars
from parley.envs.core.config import Configuration, NonNegativeFloat, NumItems, PositiveInt
from parley.envs.core.storage.copies import CHECKPOINT
from parley.envs.core.storage.uris import display_path

ROUND, STOPPED, MIXTURE = "round", "stopped", "mixture"
"""Kinds of events: a round has been measured; the campaign ends before its last round; a mixture has been solved."""
ROUNDS_MADE = Steps(ROUND, "rounds", lambda config: config["rounds"] if isinstance(config.get("rounds"), int) else None)
"""The progress of a campaign in rounds."""


@dataclass(frozen=True)
class StopRule:
    """The rule for the end of a campaign.

    Args:
        rounds: the largest number of rounds.
        patience: rounds without gain after which the campaign ends.
        least_gain: the smallest fall of the loss that counts as gain.
        loss: loss of a round.
        told: reason for the end, in words before "by X in N rounds".
    """

    rounds: int
    patience: int
    least_gain: float
    loss: Loss
    told: str


def make_rounds(
    run: RunFolder,
    rule: StopRule,
    measured: Callable[[int], Mapping[str, Estimate]],
    show: Callable[[Sequence[Round]], None],
    reporter: Reporter,
) -> list[Round]:
    """Run the rounds that are left, and return all rounds; number 0 is the start.

    Args:
        run: the run that stores the rounds as events.
        rule: when to stop.
        measured: runs a round, and returns its figures.
        show: reports rounds; earlier rounds at once.
        reporter: receives messages.
    """
    rounds = rounds_of(run)
    if rounds:
        show(rounds)
    with Scalars(run.path, len(rounds) - 1) as scalars:
        while len(rounds) <= rule.rounds:
            if has_stalled(rounds, rule.loss, rule.patience, rule.least_gain):
                _record_stop(run, rule, len(rounds) - 1, reporter)
                break
            latest = Round(len(rounds), measured(len(rounds)))
            figures = {name: estimate.value for name, estimate in latest.metrics.items()}
            estimates = {name: estimate.to_json() for name, estimate in latest.metrics.items()}
            run.event(ROUND, number=latest.number, estimates=estimates, **figures)
            rounds.append(latest)
            show([latest])
            scalars.add(latest.number, figures)
    return rounds


def rounds_of(run: RunFolder) -> list[Round]:
    """Return the measured rounds of a campaign."""
    needs = {ROUND: {"number": int, "estimates": dict}}
    estimates_of = {event["number"]: event["estimates"] for event in run.events(needs) if event["kind"] == ROUND}
    with whole(run.path / EVENTS):
        return [
            Round(number, {name: Estimate.from_json(parts) for name, parts in estimates.items()})
            for number, estimates in sorted(estimates_of.items())
        ]


def _record_stop(run: RunFolder, rule: StopRule, number: int, reporter: Reporter) -> None:
    reason = f"{rule.told} by {rule.least_gain:g} in {rule.patience} round{'s' * (rule.patience > 1)}"
    reporter.say(f"stopped after round {number}: {reason}")
    if not any(event["kind"] == STOPPED for event in run.events({})):
        run.event(STOPPED, number=number, reason=reason)


def shares_of(campaign: CampaignAdapter[CampaignConfigT], number: int, run: RunFolder, reporter: Reporter) -> Sequence[float]:
    """Return the share of each earlier adversary in what the target of a round learns from, oldest first.

    Args:
        campaign: a campaign whose earlier rounds are finished.
        number: number of the round; the start learns from none.
        run: the campaign's run, which stores mixtures that were solved as events.
        reporter: receives messages.
    """
    if not number:
        return ()
    meta = campaign.config.meta
    payoffs_TA, is_solved = np.zeros((number, number)), meta in SOLVED and number > 1
    if is_solved:
        payoffs_TA = campaign.payoffs(number, run, reporter).mean(axis=0)
    # Gains are from 0 to 1, so that the mean gain is the share that an adversary wins.
    shares = [round(share, 6) for share in mixture(meta, payoffs_TA, payoffs_TA).adversaries.tolist()]
    if is_solved and record_mixture(run, number, meta, shares):
        reporter.say(f"round {number} learns from the adversaries of earlier rounds in shares of {shares} ({meta})")
    return shares


def record_mixture(run: RunFolder, number: int, meta: str, shares: Sequence[float]) -> bool:
    """Store the mixture that a round learns from, oldest adversary first; return False if it is stored already."""
    is_new = number not in {event["number"] for event in _mixtures(run)}
    if is_new:
        run.event(MIXTURE, number=number, meta=meta, shares=list(shares))
    return is_new


def mixtures_table(run: RunFolder) -> EstimateTable | None:
    """Return a table of the mixtures that a campaign has solved; None if there are none."""
    solved = {event["number"]: event for event in _mixtures(run)}
    if not solved:
        return None
    most = max(len(event["shares"]) for event in solved.values())
    columns = ("round", *(f"adversary {number}" for number in range(1, most + 1)))
    rows = [
        (str(number), *(f"{share:.3f}" for share in event["shares"]), *[""] * (most - len(event["shares"])))
        for number, event in sorted(solved.items())
    ]
    note = (
        "Share of each earlier adversary in what the target of the round learned from, by the payoffs of all pairs before it."
    )
    return EstimateTable(columns, tuple(rows), note)


def tables_of_rounds(run: RunFolder, layout: Callable[..., EstimateTable], *words: AdversaryWords) -> dict[str, EstimateTable]:
    """Return the tables of known adversaries, of the rounds so far, and of their mixtures."""
    adversaries, rounds, mixtures = known_of(run.summary(), *words), rounds_of(run), mixtures_table(run)
    tables = {} if adversaries is None else {KNOWN_TABLE: adversaries.table()}
    tables |= {ROUNDS: layout(rounds)} if rounds else {}
    return tables | ({} if mixtures is None else {MIXTURES: mixtures})


def _mixtures(run: RunFolder) -> list[dict[str, Any]]:
    return [event for event in run.events({MIXTURE: {"number": int, "shares": list}}) if event["kind"] == MIXTURE]


START, CONTROL, RESULT = "start", "control", "result"
"""Names of models: before any hardening; trained as long on data without attacks; of the best round, also the entry of the
summary that names it."""
OUTCOME, ROUNDS, MIXTURES = "Before and after", "Rounds", "Mixtures"
"""Headings of the tables."""
WATCHED = "it plays too badly without an attack, or it repeats itself and has lost its language"
"""The reason for which a round may not be the result."""


@dataclass(frozen=True, kw_only=True)
class CampaignConfig(Configuration):
    """Settings of any campaign; each game gives the defaults."""

    added: ClassVar[Mapping[str, Any]] = {"meta": "uniform", "plain_loss": 1.0}

    model: str = ""
    """The target at the start, a run or checkpoint; when empty, one is trained first where the game can."""
    rounds: NumItems = 3
    """Rounds at most: the target learns from the adversaries so far, then a fresh one learns to mislead it."""
    meta: Meta = "uniform"
    """Adversaries of earlier rounds that the target learns from: latest, uniform (all alike), or a mixture by the payoffs of
    all pairs so far (PSRO): prioritised, those that gain more, or nash, the equilibrium."""
    patience: PositiveInt = 2
    """Rounds without gain after which the campaign stops."""
    least_gain: NonNegativeFloat = 0.01
    """Least fall of a round's loss that counts as gain."""
    plain_loss: NonNegativeFloat = 0.1
    """How much worse than the start the result may be without an attack, in the measure of the game."""
    control: bool = True
    """Also train the start as long without the attack, and measure it as the result: what training alone explains."""


CampaignConfigT = TypeVar("CampaignConfigT", bound=CampaignConfig)


@dataclass(frozen=True)
class CampaignAdapter(ABC, Generic[CampaignConfigT]):
    """The stages of a hardening, their folders and their figures.

    Args:
        config: the configuration.
        path: the campaign's folder.
    """

    config: CampaignConfigT
    path: Path
    what: ClassVar[str] = "model"
    """The name of the stages that train the model."""

    @abstractmethod
    def begin(self) -> dict[str, Stage]:
        """Return the training of the start; empty if the configuration names a model."""

    @abstractmethod
    def round(self, number: int, shares: Sequence[float]) -> dict[str, Stage]:
        """Return the stages of a round: the training of the model, except for the start, then its measurements.

        Args:
            number: number of the round; 0 for the start.
            shares: share of the adversary of each round before, oldest first, in what the model learns from.
        """

    @abstractmethod
    def payoffs(self, number: int, run: RunFolder, reporter: Reporter) -> np.ndarray:
        """Return the gains (G, T, A) of the adversaries of the rounds before from their targets, oldest first.

        Args:
            number: number of the round, above 0.
            run: the campaign's run, which stores events.
            reporter: receives messages.
        """

    @abstractmethod
    def measured(self, number: int) -> Mapping[str, Estimate]:
        """Return the figures of the model after a round whose stages are done."""

    @abstractmethod
    def last(self, best: int) -> dict[str, Stage]:
        """Return the stages that measure start, controls and result; controls are trained as long as the result.

        Args:
            best: number of the round that is the result; 0 is the start, whose figures are the result's.
        """

    def choose(self, playing: Sequence[Round], last: int, loss: Loss, run: RunFolder, reporter: Reporter) -> int:
        """Return the number of the round that is the result: the round with the smallest loss, the earliest of equals.

        Args:
            playing: the rounds that may be the result.
            last: number of the last round.
            loss: loss of a round.
            run: the campaign's run, which stores events.
            reporter: receives messages.
        """
        return best_round(playing, loss).number

    def meet_known(self, best: int, run: RunFolder, reporter: Reporter) -> None:
        """Let start, controls and result play all known adversaries, if no stage of `last` does.

        Args:
            best: number of the round that is the result.
            run: the campaign's run, which stores events.
            reporter: receives messages.
        """

    @abstractmethod
    def outcome(self, best: int) -> Mapping[str, Estimate]:
        """Return the figures of a campaign whose last stages are done."""

    @abstractmethod
    def known(self, best: int) -> KnownAdversaries | None:
        """Return the gains of all known adversaries from start, controls and result; None if they cannot meet."""

    def extra(self, best: int) -> Mapping[str, Any]:
        """Return further entries of the summary, once the last stages are done."""
        return {}

    @abstractmethod
    def store(self, best: int, folder: Path) -> None:
        """Store the model of the best round as the campaign's own checkpoint."""

    def place(self, stage: str) -> str:
        """Return the folder of a stage."""
        return display_path(self.path / stage)

    def trained(self, number: int) -> str:
        """Return the name of the stage that trains the model of a round."""
        return f"{number:02d}-{self.what}"

    def model(self, number: int) -> str:
        """Return the name of the model after a round."""
        return self.place(self.trained(number)) if number else self.config.model or self.place(START)


class CampaignJob(Job[CampaignConfigT, CampaignConfigT, Summary]):
    """A job that hardens a model by rounds.

    Attributes:
        campaign: class of the campaign.
        measures: metrics of the models and the loss that chooses the best round.
        maker: the command that makes such models.
        measured_on: data of the rounds, if the result is measured on other data.
        unhelped: message if the start is the result.
    """

    campaign: type[CampaignAdapter[Any]]
    measures: CampaignMetrics
    maker: str
    measured_on: str = ""
    unhelped: str
    files: tuple[str, ...] = (CHECKPOINT, TABLE_FILE, SUMMARY)
    resume_safe: tuple[str, ...] = ("data_root",)
    steps = ROUNDS_MADE

    @abstractmethod
    def heading(self, config: CampaignConfigT) -> str:
        """Return the title of the result."""

    @abstractmethod
    def description(self, config: CampaignConfigT, best: int) -> str:
        """Return a description of the result and its measurement; `best` is its round."""

    def require_models(self, config: CampaignConfigT) -> None:
        """Check the models that the configuration names.

        Raises:
            CheckpointError: one is no checkpoint of this campaign's kind.
        """
        if config.model:
            require_checkpoint(config.model, "--model", self.maker)

    def prepare(self, config: CampaignConfigT, path: Path, reporter: Reporter) -> CampaignConfigT:
        self.require_models(config)
        campaign = self.campaign(config, path)
        job, settings = next(iter((campaign.begin() or campaign.round(0, ())).values()))
        job.prepare(settings, path, reporter)
        return config

    def work(self, run: RunFolder, prepared: CampaignConfigT, reporter: Reporter) -> Summary:
        config, path, measures = prepared, run.path, self.measures
        campaign = self.campaign(config, path)

        def measured(number: int) -> Mapping[str, Estimate]:
            run_stages(campaign.round(number, shares_of(campaign, number, run, reporter)), path, reporter)
            return campaign.measured(number)

        def show(rounds: Sequence[Round]) -> None:
            for latest in rounds:
                figures = (
                    f"{metric.title} {latest.metrics[name].value:.2f}"
                    for name, metric in (measures.at_end or measures.of_round).items()
                    if name in latest.metrics
                )
                where = f"round {latest.number}, {self.measured_on}" if self.measured_on else f"round {latest.number}"
                reporter.say(f"{where}: {', '.join(figures)}")

        rule = StopRule(config.rounds, config.patience, config.least_gain, measures.loss, measures.stalled)
        with self.session(config):
            run_stages(campaign.begin(), path, reporter)
            rounds = make_rounds(run, rule, measured, show, reporter)
            playing = measures.watch.still_playing(rounds, config.plain_loss)
            best = campaign.choose(playing, len(rounds) - 1, measures.loss, run, reporter)
            if not best:
                reporter.say(self.unhelped)
            run_stages(campaign.last(best), path, reporter)
            campaign.meet_known(best, run, reporter)
        campaign.store(best, path / CHECKPOINT)
        figures = campaign.outcome(best)
        left_out = ", ".join(str(round_.number) for round_ in rounds if round_ not in playing)
        warning = f" The {measures.what} of round {left_out} may not be it: {WATCHED}." if left_out else ""
        adversaries = campaign.known(best)
        known = {} if adversaries is None else {KNOWN: adversaries.to_json()}
        logs = sorted(path.glob(f"*/{EVENTS}"))
        kept = " and ".join(log.parent.name for log in logs if UNCHANGED in {event["kind"] for event in read_events(log)})
        unchanged = f"No epoch of {kept} was better than the model that it began with, which is kept." if kept else ""
        for sentence in filter(None, (unchanged, *(() if adversaries is None else adversaries.sentences()))):
            reporter.say(sentence)
        description = f"Rounds: {len(rounds) - 1}. {self.description(config, best)}{warning} {unchanged}".rstrip()
        # A legend that depends on the rounds is made when the result is shown.
        metrics = {name: figures[name] for name in self.legend if name in figures} if self.legend else figures
        extra = {RESULT: f"round-{best}" if best else START, **campaign.extra(best), **known, UNCHANGED: unchanged}
        return Summary(self.heading(config), description, metrics, extra)

    def models(self, config: CampaignConfigT) -> Mapping[str, str]:
        return {"model": config.model}

    def hardened(self, path: Path) -> str:
        """Return the name of the result of a finished campaign; nothing where that is the start."""
        return "" if (read_summary(path) or {}).get(RESULT) == START else display_path(path)

    def session(self, config: CampaignConfigT) -> AbstractContextManager[Any]:
        """Return the session of Ray in which all stages run."""
        return session(1, "")

    def tables(self, run: RunFolder) -> dict[str, EstimateTable]:
        outcome = {OUTCOME: self.measures.outcome_table(metrics)} if (metrics := run.metrics()) else {}
        return outcome | tables_of_rounds(run, self.measures.rounds_table, self.measures.known)

    def result(self, config: CampaignConfigT, path: Path) -> Result:
        result = super().result(config, path)
        return replace(result, warnings=[*result.warnings, *warnings_of_stages(path, result.chat_usage)])

    def present(self, result: Result, run: RunFolder) -> Result:
        return replace(result, tables=noted(self.tables(run), self.note(run)))
