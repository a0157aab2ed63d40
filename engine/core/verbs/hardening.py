"""Jobs that harden a model by rounds: an attack on it, training against what was found, a measurement; controls at the end.

Every phase and every measurement is a run of its own below the campaign's folder, resumes by itself, and is skipped once it is
finished. Rounds end when the loss has stopped falling, and the model of the best round is the result (`checkpoint`). Start,
controls and result are measured once more, by attacks and on examples that chose no round.

Each system says which runs its campaign is made of, and what these come to (`HardeningCampaign`). Not here: hardening of
negotiators, which is repeated from several seeds and trains its control beside the rounds (`negotiation/campaign.py`).

Campaigns of adversarial training: rounds are made until the last is done or none has helped for a while.

A round that is measured is an event of the run, so that a campaign that was interrupted goes on with the next one.
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
from parley.engine.core.stats.tables import TextTable
from parley.engine.core.verbs.checkpoints import require_checkpoint
from parley.engine.core.verbs.composite import Stage, run_stages
from parley.engine.core.verbs.job import TABLE_FILE, Job, Reporter, Result, Steps, Summary, noted
from parley.engine.core.verbs.sharded import session
from parley.engine.core.verbs.trainings import Scalars
from parley.envs.core.config import Configuration
from parley.envs.core.storage.copies import CHECKPOINT
from parley.envs.core.storage.uris import display_path

ROUND, STOPPED = "round", "stopped"
"""Kinds of events: a round is measured; the campaign ends before its last round."""
ROUNDS_MADE = Steps(ROUND, "rounds", lambda config: config["rounds"] if isinstance(config.get("rounds"), int) else None)
"""The progress of a campaign."""


@dataclass(frozen=True)
class StopRule:
    """When a campaign ends.

    Args:
        rounds: at most.
        patience: rounds without gain after which it ends.
        least_gain: by how much the loss must fall to count as gain.
        loss: of a round.
        told: why it ends, in words that "by X in N rounds" follow.
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
    """Makes what is left of the rounds; all of them, the start as number 0.

    Args:
        run: where they are noted.
        rule: when to stop.
        measured: makes a round, and says what it is measured by.
        show: tells of rounds, of those that were there already at once.
        reporter: who looks on.
    """
    rounds = rounds_of(run)
    if rounds:
        show(rounds)
    with Scalars(run.path, len(rounds) - 1) as scalars:
        while len(rounds) <= rule.rounds:
            if has_stalled(rounds, rule.loss, rule.patience, rule.least_gain):
                _stop(run, rule, len(rounds) - 1, reporter)
                break
            one = Round(len(rounds), measured(len(rounds)))
            figures = {name: estimate.value for name, estimate in one.metrics.items()}
            estimates = {name: estimate.to_json() for name, estimate in one.metrics.items()}
            run.event(ROUND, number=one.number, estimates=estimates, **figures)
            rounds.append(one)
            show([one])
            scalars.add(one.number, figures)
    return rounds


def rounds_of(run: RunFolder) -> list[Round]:
    """The rounds of a campaign that have been measured."""
    needs = {ROUND: {"number": int, "estimates": dict}}
    found = {event["number"]: event["estimates"] for event in run.events(needs) if event["kind"] == ROUND}
    with whole(run.path / EVENTS):
        return [
            Round(number, {name: Estimate.from_json(parts) for name, parts in estimates.items()})
            for number, estimates in sorted(found.items())
        ]


def _stop(run: RunFolder, rule: StopRule, number: int, reporter: Reporter) -> None:
    reason = f"{rule.told} by {rule.least_gain:g} in {rule.patience} round{'s' * (rule.patience > 1)}"
    reporter.say(f"stopped after round {number}: {reason}")
    if not any(event["kind"] == STOPPED for event in run.events({})):
        run.event(STOPPED, number=number, reason=reason)


START, CONTROL, RESULT = "start", "control", "result"
"""The model before any hardening; trained as long on what is not attacked; the model of the best round."""
OUTCOME, ROUNDS = "Before and after", "Rounds"
"""Headings of the tables."""


class HardeningConfig(Configuration):
    """What the settings of any hardening say; each gives its defaults."""

    model: str
    """The model at the start; when empty, one is trained first."""
    rounds: int
    patience: int
    least_gain: float
    """Rounds at most; how many may pass without gain; by how much the loss must fall to count as gain."""


HardeningConfigT = TypeVar("HardeningConfigT", bound=HardeningConfig)


@dataclass(frozen=True)
class HardeningCampaign(ABC, Generic[HardeningConfigT]):
    """The stages of a hardening, where they lie, and what they come to.

    Args:
        config: what is asked for.
        path: the campaign's folder.
    """

    config: HardeningConfigT
    path: Path
    what: ClassVar[str] = "model"
    """What the stages that train the model are called."""

    @abstractmethod
    def begin(self) -> dict[str, Stage]:
        """The training of the start, where no model is named."""

    @abstractmethod
    def round(self, number: int) -> dict[str, Stage]:
        """A round: the training of the model, but for the start; then what measures it."""

    @abstractmethod
    def measured(self, number: int) -> Mapping[str, Estimate]:
        """What the model is measured by after a round, once its stages are done."""

    @abstractmethod
    def last(self, best: int) -> dict[str, Stage]:
        """What measures start, controls and result, the controls trained as long as the result.

        Args:
            best: the round that is the result; 0 for the start, whose figures are the result's.
        """

    def choose(self, rounds: Sequence[Round], loss: Loss, run: RunFolder, reporter: Reporter) -> int:
        """Return the number of the round that is the result: the one that loses least, the earliest of equals.

        Args:
            rounds: all of them.
            loss: of a round by itself.
            run: the campaign's, where events are noted.
            reporter: who looks on.
        """
        return best_round(rounds, loss).number

    def meet_known(self, best: int, run: RunFolder, reporter: Reporter) -> None:
        """Let start, controls and result meet all known adversaries, where that is no stage of `last`.

        Args:
            best: the round that is the result.
            run: the campaign's, where events are noted.
            reporter: who looks on.
        """

    @abstractmethod
    def outcome(self, best: int) -> Mapping[str, Estimate]:
        """What a campaign comes to, once its last stages are done."""

    @abstractmethod
    def known(self, best: int) -> KnownAdversaries:
        """Return what all known adversaries do to start, controls and result, once they have met."""

    def extra(self, best: int) -> Mapping[str, Any]:
        """Return entries of the summary beside figures and known adversaries, once its last stages are done."""
        return {}

    @abstractmethod
    def store(self, best: int, folder: Path) -> None:
        """The model of the best round as the campaign's own checkpoint."""

    def place(self, stage: str) -> str:
        """The folder of a stage."""
        return display_path(self.path / stage)

    def trained(self, number: int) -> str:
        """The stage that trains the model of a round."""
        return f"{number:02d}-{self.what}"

    def model(self, number: int) -> str:
        """The model after a round."""
        return self.place(self.trained(number)) if number else self.config.model or self.place(START)


class HardeningJob(Job[HardeningConfigT, HardeningConfigT, Summary]):
    """A job that hardens a model by rounds.

    Attributes:
        campaign: its stages.
        measures: by what models are measured, and which round is the best.
        maker: the command that makes such models.
        measured_on: what rounds are measured on, where that is not what the result is measured on.
        unhelped: what is said when the start is the result.
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
        """The title of the result."""

    @abstractmethod
    def description(self, config: HardeningConfigT, best: int) -> str:
        """What the result is and how it was measured, behind the number of rounds; `best` is its round."""

    def prepare(self, config: HardeningConfigT, path: Path, reporter: Reporter) -> HardeningConfigT:
        """Finds out whether the start is there and the first stage can be done."""
        if config.model:
            require_checkpoint(config.model, "--model", self.maker)
        campaign = self.campaign(config, path)
        job, settings = next(iter((campaign.begin() or campaign.round(0)).values()))
        job.prepare(settings, path, reporter)
        return config

    def work(self, run: RunFolder, prepared: HardeningConfigT, reporter: Reporter) -> Summary:
        """Makes what is left of the rounds, stores the best one's model, and compares it with start and controls."""
        config, path, measures = prepared, run.path, self.measures
        campaign = self.campaign(config, path)

        def measured(number: int) -> Mapping[str, Estimate]:
            run_stages(campaign.round(number), path, reporter)
            return campaign.measured(number)

        def show(rounds: Sequence[Round]) -> None:
            for one in rounds:
                figures = (
                    f"{metric.title} {one.metrics[name].value:.2f}"
                    for name, metric in measures.at_end.items()
                    if name in one.metrics
                )
                where = f"round {one.number}, {self.measured_on}" if self.measured_on else f"round {one.number}"
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
        found = campaign.outcome(best)
        description = f"Rounds: {len(rounds) - 1}. {self.description(config, best)}"
        metrics = {name: found[name] for name in self.legend if name in found}
        known = campaign.known(best)
        for sentence in known.sentences():
            reporter.say(sentence)
        return Summary(self.heading(config), description, metrics, {**campaign.extra(best), KNOWN: known.to_json()})

    def models(self, config: HardeningConfigT) -> Mapping[str, str]:
        return {"model": config.model}

    def tables(self, run: RunFolder) -> dict[str, TextTable]:
        """Return start, controls and result side by side, what known adversaries do to each, and the rounds so far."""
        metrics, rounds, known = run.metrics(), rounds_of(run), known_of(run.summary(), self.measures.known)
        outcome = {OUTCOME: self.measures.outcome_table(metrics)} if metrics else {}
        outcome |= {} if known is None else {KNOWN_TABLE: known.table()}
        return outcome | ({ROUNDS: self.measures.rounds_table(rounds)} if rounds else {})

    def present(self, result: Result, run: RunFolder) -> Result:
        """With the tables in the place of the metrics."""
        return replace(result, tables=noted(self.tables(run), self.note(run)))
