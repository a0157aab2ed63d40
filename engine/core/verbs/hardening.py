"""Jobs that harden a model by rounds: attack it, train against the results, measure it; compare with controls at the end.

Every phase and every measurement is a run of its own below the campaign's folder. It resumes by itself, and a finished one is
skipped. A measured round is an event of the run, so an interrupted campaign continues with the next round.

Rounds end at the last one, or when the loss has stopped falling. The model of the best round is the result (`checkpoint`).
Start, controls and result are measured once more, by attacks and on examples that chose no round.

Each system derives a `HardeningCampaign`, which names its stages and their figures. Not here: hardening of negotiators, which
is repeated from several seeds and trains its control beside the rounds (`parley.engine.negotiation`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from parley.engine.core.runs.documents import EVENTS, SUMMARY, whole
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.known import (
    KNOWN,
    KNOWN_TABLE,
    HardeningMetrics,
    KnownAdversaries,
    Loss,
    Round,
    best_round,
    has_stalled,
    known_of,
)
from parley.engine.core.stats.statistics import Estimate
from parley.engine.core.tables.table import EstimateTable
from parley.engine.core.verbs.checkpoints import require_checkpoint
from parley.engine.core.verbs.composite import Stage, run_stages
from parley.engine.core.verbs.job import TABLE_FILE, Job, Reporter, Result, Steps, Summary, noted
from parley.engine.core.verbs.sharded import session
from parley.engine.core.verbs.trainings import Scalars
from parley.envs.core.config import Configuration
from parley.envs.core.storage.copies import CHECKPOINT
from parley.envs.core.storage.uris import display_path

ROUND, STOPPED = "round", "stopped"
"""Kinds of events: a round has been measured; the campaign ends before its last round."""
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


START, CONTROL, RESULT = "start", "control", "result"
"""Names of models: before any hardening; trained as long on data without attacks; of the best round."""
OUTCOME, ROUNDS = "Before and after", "Rounds"
"""Headings of the tables."""


class HardeningConfig(Configuration):
    """Settings of any hardening; each system gives the defaults."""

    model: str
    """The model at the start; when empty, one is trained first."""
    rounds: int
    patience: int
    least_gain: float
    """Most rounds; how many may pass without gain; the smallest fall of the loss that counts as gain."""


HardeningConfigT = TypeVar("HardeningConfigT", bound=HardeningConfig)


@dataclass(frozen=True)
class HardeningCampaign(ABC, Generic[HardeningConfigT]):
    """The stages of a hardening, their folders and their figures.

    Args:
        config: the configuration.
        path: the campaign's folder.
    """

    config: HardeningConfigT
    path: Path
    what: ClassVar[str] = "model"
    """The name of the stages that train the model."""

    @abstractmethod
    def begin(self) -> dict[str, Stage]:
        """Return the training of the start; empty if the configuration names a model."""

    @abstractmethod
    def round(self, number: int) -> dict[str, Stage]:
        """Return the stages of a round: the training of the model, except for the start, then its measurements."""

    @abstractmethod
    def measured(self, number: int) -> Mapping[str, Estimate]:
        """Return the figures of the model after a round whose stages are done."""

    @abstractmethod
    def last(self, best: int) -> dict[str, Stage]:
        """Return the stages that measure start, controls and result; controls are trained as long as the result.

        Args:
            best: number of the round that is the result; 0 is the start, whose figures are the result's.
        """

    def choose(self, rounds: Sequence[Round], loss: Loss, run: RunFolder, reporter: Reporter) -> int:
        """Return the number of the round that is the result: the round with the smallest loss, the earliest of equals.

        Args:
            rounds: all rounds.
            loss: loss of a round.
            run: the campaign's run, which stores events.
            reporter: receives messages.
        """
        return best_round(rounds, loss).number

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
    def known(self, best: int) -> KnownAdversaries:
        """Return the gains of all known adversaries from start, controls and result."""

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


class HardeningJob(Job[HardeningConfigT, HardeningConfigT, Summary]):
    """A job that hardens a model by rounds.

    Attributes:
        campaign: class of the campaign.
        measures: metrics of the models and the loss that chooses the best round.
        maker: the command that makes such models.
        measured_on: data of the rounds, if the result is measured on other data.
        unhelped: message if the start is the result.
    """

    campaign: type[HardeningCampaign[Any]]
    measures: HardeningMetrics
    maker: str
    measured_on: str = ""
    unhelped: str
    files = (CHECKPOINT, TABLE_FILE, SUMMARY)
    resume_safe = ("data_root",)
    steps = ROUNDS_MADE

    @abstractmethod
    def heading(self, config: HardeningConfigT) -> str:
        """Return the title of the result."""

    @abstractmethod
    def description(self, config: HardeningConfigT, best: int) -> str:
        """Return a description of the result and its measurement; `best` is its round."""

    def prepare(self, config: HardeningConfigT, path: Path, reporter: Reporter) -> HardeningConfigT:
        """Check that the start exists and the first stage can run."""
        if config.model:
            require_checkpoint(config.model, "--model", self.maker)
        campaign = self.campaign(config, path)
        job, settings = next(iter((campaign.begin() or campaign.round(0)).values()))
        job.prepare(settings, path, reporter)
        return config

    def work(self, run: RunFolder, prepared: HardeningConfigT, reporter: Reporter) -> Summary:
        """Run the rounds that are left, store the best model, and compare it with start and controls."""
        config, path, measures = prepared, run.path, self.measures
        campaign = self.campaign(config, path)

        def measured(number: int) -> Mapping[str, Estimate]:
            run_stages(campaign.round(number), path, reporter)
            return campaign.measured(number)

        def show(rounds: Sequence[Round]) -> None:
            for latest in rounds:
                figures = (
                    f"{metric.title} {latest.metrics[name].value:.2f}"
                    for name, metric in measures.at_end.items()
                    if name in latest.metrics
                )
                where = f"round {latest.number}, {self.measured_on}" if self.measured_on else f"round {latest.number}"
                reporter.say(f"{where}: {', '.join(figures)}")

        rule = StopRule(config.rounds, config.patience, config.least_gain, measures.loss, measures.stalled)
        with session(1, ""):
            run_stages(campaign.begin(), path, reporter)
            rounds = make_rounds(run, rule, measured, show, reporter)
            best = campaign.choose(rounds, measures.loss, run, reporter)
            if not best:
                reporter.say(self.unhelped)
            run_stages(campaign.last(best), path, reporter)
            campaign.meet_known(best, run, reporter)
        campaign.store(best, path / CHECKPOINT)
        figures = campaign.outcome(best)
        description = f"Rounds: {len(rounds) - 1}. {self.description(config, best)}"
        metrics = {name: figures[name] for name in self.legend if name in figures}
        known = campaign.known(best)
        for sentence in known.sentences():
            reporter.say(sentence)
        return Summary(self.heading(config), description, metrics, {**campaign.extra(best), KNOWN: known.to_json()})

    def models(self, config: HardeningConfigT) -> Mapping[str, str]:
        return {"model": config.model}

    def tables(self, run: RunFolder) -> dict[str, EstimateTable]:
        """Return tables of start, controls and result, of the gains of known adversaries, and of the rounds so far."""
        metrics, rounds, known = run.metrics(), rounds_of(run), known_of(run.summary(), self.measures.known)
        outcome = {OUTCOME: self.measures.outcome_table(metrics)} if metrics else {}
        outcome |= {} if known is None else {KNOWN_TABLE: known.table()}
        return outcome | ({ROUNDS: self.measures.rounds_table(rounds)} if rounds else {})

    def present(self, result: Result, run: RunFolder) -> Result:
        """Return the result with the tables instead of the metrics."""
        return replace(result, tables=noted(self.tables(run), self.note(run)))
