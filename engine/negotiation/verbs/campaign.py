"""The rounds of adversarial training: settings, phases, measurements, and the restart of a phase that diverges.

A round trains an adversary against the target, then the target against all adversaries so far. Then it measures three figures:
the adversary's gain before and after, the target's plain play with an ordinary partner, and the target's exploitability: the
gain of the best known adversary, fresh ones among them that are trained against the frozen target. In policy-space response
oracles (PSRO, Lanctot et al. 2017) each side learns against the other's mixture, which follows from the payoffs of all agents
before the round. The payoffs are a stage of the round; pairs of earlier rounds are not played again. After the last round all
targets meet all adversaries (`minmax.py`).

  # Paper: an oracle starts afresh. Ours: adversaries do; a target starts from the last one, so that it keeps its language.

Each phase and each measurement is a run of its own below the campaign's folder and resumes by itself. A killed campaign loses
the updates since the last saved state and nothing else. A phase that diverges starts again at half the rate.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from parley.engine.core.runs.documents import SUMMARY, whole
from parley.engine.core.runs.remote_sync import fetched_run
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.known import EXPLOITABILITY, MEAN_FRESH, Meta, Round
from parley.engine.core.stats.statistics import NOTHING, Estimate
from parley.engine.core.verbs.campaign import StopRule, make_rounds, record_mixture, rounds_of
from parley.engine.core.verbs.composite import BackgroundStages, Stage, one_after_another, run_stages
from parley.engine.core.verbs.job import Reporter, Result
from parley.engine.core.verbs.repeated import RepeatedConfig, nth_name
from parley.engine.core.verbs.stage_progress import share_of
from parley.engine.negotiation.attacks.opponents import OpponentConfig
from parley.engine.negotiation.attacks.settings import ReinforceConfig
from parley.engine.negotiation.metrics.campaign import (
    AFTER,
    BEFORE,
    PERPLEXITY,
    PLAIN_AGREEMENT,
    PLAIN_SCORE,
    REPEATS,
    REPETITION,
    PayoffGains,
    exploitability_of,
    rounds_table,
)
from parley.engine.negotiation.verbs import exploitability
from parley.engine.negotiation.verbs import training as reinforce
from parley.engine.negotiation.verbs.agents import is_weightless, judge_of
from parley.engine.negotiation.verbs.exploitability import EVALUATE_EXPLOITABILITY, ExploitabilityConfig, MeasuringConfig
from parley.engine.negotiation.verbs.match import SELFPLAY, MatchConfig
from parley.engine.negotiation.verbs.negotiator import validation_perplexity
from parley.engine.negotiation.verbs.population import EVALUATE_POPULATION, SHARES, PopulationConfig, by_weights, played_in
from parley.engine.negotiation.verbs.whitebox import ATTACK_RL, AttackConfig
from parley.envs.core.config import NonNegativeFloat, NonNegativeInt, NumItems, PositiveInt, check
from parley.envs.core.seeds import derive_seed
from parley.envs.core.storage.uris import display_path


@dataclass(frozen=True, kw_only=True)
class MinMaxConfig(MeasuringConfig, RepeatedConfig):
    """Settings of adversarial training: the agents, the length and the measurements."""

    target: str = "runs/rl"
    """The target at the start: run or checkpoint folder."""
    adversary: str = ""
    """Adversary that the target meets from the first round on: trained against it already, or any agent's name."""
    speaker: str = ""
    """Where adversaries start, and what their KL guard compares with: the target's start when empty."""
    partner: str = ""
    """Ordinary partner of plain play, such as the supervised agent or scripted; the target's start when empty."""
    judge: str = ""
    """Checkpoint whose perplexity measures fluency; when empty, the target as it was before any reinforcement."""
    rounds: NumItems = 6
    """Rounds at most."""
    adversaries: Literal["continued", "fresh", "mixture"] = "continued"
    """The last one trained on (paper), best responses that measured the round before, or one to the targets' mixture (PSRO)."""
    meta: Meta = "nash"
    """For mixture: targets and adversaries so far that each side learns from: latest, uniform (all alike), or by their payoffs
    prioritised or nash; replaces opponents.sampling."""
    patience: PositiveInt = 3
    """Rounds without gain after which the campaign stops."""
    least_gain: NonNegativeFloat = 0.1
    """Points by which exploitability must fall to count as gain."""
    plain_loss: NonNegativeFloat = 0.5
    """Points of plain score that the result may have lost against the start."""
    num_adversaries: NumItems = 1
    """Fresh adversaries, from seeds of their own, that measure the target of a round."""
    num_final_adversaries: NumItems = 1
    """Fresh adversaries that are trained against the start, and as many against the result and the control, at last."""
    control: bool = False
    """Also train the start as long in ordinary play alone, and measure it as the result: what training alone explains."""
    budget: NumItems = 12_800
    """Dialogues that each of them learns from; a round's own phases have attack.dialogues and defence.dialogues."""
    dialogues: NumItems = 1000
    """Dialogues of each measurement."""
    choosing: NumItems = 200
    """Dialogues of each pair, at most as many as measure, in which known adversaries play a target; they choose the best."""
    perplexity_limit: float = 1.5
    """Perplexity, as a multiple of that at the start of a phase, from which the phase counts as diverged; 0 for no limit."""
    retries: NonNegativeInt = 3
    """Times that a phase is done again, each time at half the rate, before the campaign gives up."""
    trainers: NonNegativeInt = 0
    """Ray actors that train: campaigns if there are several --seeds, else fresh adversaries, and the control beside the rounds;
    0 trains in this process."""
    opponents: OpponentConfig = field(default_factory=OpponentConfig)
    """Opponents of the target."""
    attack: ReinforceConfig = field(default_factory=lambda: replace(reinforce.cheng2019().reinforce, dialogues=12_800))
    """The adversary's learning rule; its dialogues are the length of a phase."""
    defence: ReinforceConfig = field(default_factory=lambda: reinforce.hardened().reinforce)
    """The target's learning rule; its dialogues are the length of a phase."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "perplexity_limit", self.perplexity_limit == 0 or self.perplexity_limit > 1, "0, or above 1")


@dataclass(frozen=True)
class AgentMixture:
    """The agents of a campaign, oldest first, and their shares in a mixture, by "targets" and "adversaries"."""

    targets: Sequence[str]
    adversaries: Sequence[str]
    shares: Mapping[str, Sequence[float]]

    def for_adversary(self) -> dict[str, Any]:
        """Return the targets as settings of an adversary's training."""
        return {"target": ",".join(self.targets), "opponents": by_weights(self.shares["targets"], OpponentConfig())}

    def for_target(self, drawing: OpponentConfig) -> dict[str, Any]:
        """Return the opponents of a target, with ordinary play as `drawing` says."""
        return {"adversaries": ",".join(self.adversaries), "opponents": by_weights(self.shares["adversaries"], drawing)}


def solve_mixture(
    targets: Sequence[str],
    adversaries: Sequence[str],
    config: MinMaxConfig,
    seed: int,
    path: Path,
    earlier: Sequence[Path],
    reporter: Reporter,
) -> AgentMixture:
    """Play the missing payoffs of a campaign's agents and return their mixture.

    Args:
        targets: oldest first.
        adversaries: oldest first.
        config: the settings of the campaign.
        seed: the seed of the dialogues, the same for all rounds.
        path: the folder of the payoffs.
        earlier: the payoffs of earlier rounds.
        reporter: reports progress.
    """
    settings = PopulationConfig(
        targets=",".join(targets),
        adversaries=",".join(adversaries),
        known=",".join(map(display_path, earlier)),
        dialogues=config.dialogues,
        seed=seed,
        **config.playing(),
    )
    result = EVALUATE_POPULATION.run(settings, path, reporter)
    summary = RunFolder.load(result.run).summary() or {}
    newest = {"targets": np.eye(len(targets))[-1].tolist(), "adversaries": np.eye(len(adversaries))[-1].tolist()}
    return AgentMixture(targets, adversaries, newest if config.meta == "latest" else summary[SHARES][config.meta])


PAYOFFS = "payoffs"
"""The stage of a round that plays all targets and adversaries before it."""
ROLLED_BACK = "rolled_back"
"""Kind of the event of a phase that diverged and starts again."""
FINAL, CONTROL = "final", "control"
"""Stages of the last measurement of the result, and of the control: the start after as many updates of ordinary play alone."""
_EACH_ROUND = {
    "adversary": "the adversary",
    "target": "the target",
    EXPLOITABILITY: "fresh adversaries against the frozen target",
}
_ONCE = {
    f"{FINAL}-{EXPLOITABILITY}": "fresh adversaries once more, from seeds that chose no round",
    f"{CONTROL}-target": "the control, in ordinary play alone",
    f"{CONTROL}-{EXPLOITABILITY}": "fresh adversaries against the control",
}
_TRAINED = _EACH_ROUND | _ONCE
"""The agents that a phase trains, by its role."""
_WIDTHS = (5, 20, 20, 20, 25, 20, 15, 10, 7, 10)


class Campaign:
    """A campaign in its folder; it resumes at its first unfinished stage."""

    def __init__(self, config: MinMaxConfig, folder: RunFolder, reporter: Reporter) -> None:
        self._config, self._folder, self._reporter = config, folder, reporter
        self._path = folder.path
        self.start = self._speaker = config.speaker or config.target
        self._partner = config.partner or config.target
        self._judge = judge_of(config.judge, (config.target,))
        self._seed, self._last_seed = (derive_seed(config.seed, name) for name in ("measured", FINAL))

    def rounds(self) -> list[Round]:
        """Make the remaining rounds and return all of them; the start is number 0."""
        config, reason = self._config, "exploitability has not fallen"
        rule = StopRule(config.rounds, config.patience, config.least_gain, exploitability_of, reason)
        return make_rounds(self._folder, rule, self._make_round, self._show, self._reporter)

    def target(self, number: int) -> str:
        """Return the name of the target after a round."""
        return self._config.target if number == 0 else display_path(self._phase(number, "target"))

    @property
    def last_target(self) -> str:
        """The name of the target of the last round that was made."""
        return self.target(len(rounds_of(self._folder)) - 1)

    def adversaries(self, number: int) -> list[str]:
        """Return the adversaries that join in a round, none before round 1; the first measures the round before and after."""
        config = self._config
        there = [config.adversary] if number == 1 and config.adversary else []
        if config.adversaries == "fresh":
            return there + self._best_responses(number - 1)
        return there if there and config.adversaries == "continued" else [display_path(self._phase(number, "adversary"))]

    def trained_against(self, last: int) -> dict[str, str]:
        """Return the known adversaries after a round, oldest first, each with the target that it was trained against.

        The target is empty for a given adversary and for one that was trained against a mixture.
        """
        config, alone = self._config, self._config.adversaries != "mixture"
        adversaries = {config.adversary: ""} if config.adversary else {}
        for number in range(last + 1):
            for name in self.adversaries(number) if number else []:
                adversaries.setdefault(name, self.target(number - 1) if alone else "")
            adversaries |= dict.fromkeys(self._best_responses(number), self.target(number))
        return adversaries

    def trained_last(self, result: str) -> dict[str, str]:
        """Return the fresh adversaries of the result and of the control, each with its target."""
        control = {f"{CONTROL}-": self.control_target()} if self._config.control else {}
        targets = control | ({} if result == self._config.target else {f"{FINAL}-": result})
        count = self._config.num_final_adversaries
        return {
            name: target for prefix, target in targets.items() for name in self._fresh(0, f"{prefix}{EXPLOITABILITY}", count)
        }

    def control_target(self) -> str:
        """Return the name of the control."""
        return display_path(self._phase(0, f"{CONTROL}-target"))

    def _best_responses(self, number: int) -> list[str]:
        count = self._config.num_adversaries if number else self._config.num_final_adversaries
        return self._fresh(number, EXPLOITABILITY, count)

    def _fresh(self, number: int, role: str, count: int) -> list[str]:
        folder = self._phase(number, role)
        return [display_path(folder / nth_name(exploitability.ADVERSARY, k)) for k in range(1, count + 1)]

    def _mixture(self, number: int) -> AgentMixture:
        """Return the mixture of all agents before a round; each side learns against the other's part."""
        targets, adversaries = [self.target(k) for k in range(number)], list(self.trained_against(number - 1))
        earlier = [self._stage(k, PAYOFFS) for k in range(1, number)]
        mixed = solve_mixture(
            targets, adversaries, self._config, self._seed, self._stage(number, PAYOFFS), earlier, self._reporter
        )
        record_mixture(self._folder, number, self._config.meta, mixed.shares["adversaries"])
        return mixed

    def _stage(self, number: int, name: str) -> Path:
        return self._path / (name if name.partition("-")[0] in (FINAL, CONTROL) else f"{number:02d}-{name}")

    def _phase(self, number: int, role: str) -> Path:
        again = self._times_diverged(role, (number,))
        return self._stage(number, f"{role}-again-{again}" if again else role)

    def _train(self, number: int) -> None:
        if self.adversaries(number) == [display_path(self._phase(number, "adversary"))]:
            self._train_with_retries(number, "adversary", self._config.attack, self._adversary_phase)
        self._train_with_retries(number, "target", self._config.defence, self._target_phase)

    def _train_with_retries(
        self, number: int, role: str, rule: ReinforceConfig, phase: Callable[[int, ReinforceConfig], Stage]
    ) -> Result:
        """Train one side; after each divergence start the phase again at half the rate."""
        from parley.engine.core.rllib.reproducible import DivergenceError

        while True:
            slower = self._rule(role, rule, number)
            prefix = "" if role in _ONCE else f"round {number}: "
            self._reporter.say(f"{prefix}training {_TRAINED[role]}")
            job, settings = phase(number, slower)
            path = self._phase(number, role)
            try:
                return job.run(settings, path, self._reporter)
            except DivergenceError as error:
                if self._times_diverged(role, (number,)) >= self._config.retries:
                    fix = f"the same command with more --retries goes on at smaller rates; or {error.fix}"
                    where = f"{display_path(path)}, {error.where}"
                    raise DivergenceError(error.what, where=where, got=error.got, fix=fix) from error
                rate = slower.learning_rate / 2
                self._reporter.say(f"{prefix}{error.what} ({error.got}); back to its start at the rate {rate:g}")
                name = self._stage(number, role).name
                self._folder.event(ROLLED_BACK, number=number, phase=name, role=role, reason=str(error), learning_rate=rate)

    def _rule(self, role: str, rule: ReinforceConfig, number: int) -> ReinforceConfig:
        """Return the learning rule, at half the rate for each divergence of the role up to this round."""
        return replace(rule, learning_rate=rule.learning_rate / 2 ** self._times_diverged(role, range(number + 1)))

    def _times_diverged(self, role: str, rounds: Container[int]) -> int:
        events = self._folder.events({ROLLED_BACK: {"number": int, "role": str}})
        back = [event for event in events if event["kind"] == ROLLED_BACK]
        return sum(event["role"] == role and event["number"] in rounds for event in back)

    def _training_settings(self, number: int, rule: ReinforceConfig) -> dict[str, Any]:
        config = self._config
        return config.learning() | {
            # Every phase has dialogues of its own.
            "seed": derive_seed(config.seed, "round", number),
            "perplexity_limit": config.perplexity_limit,
            "reinforce": rule,
        }

    def _adversary_phase(self, number: int, rule: ReinforceConfig) -> Stage:
        last = self._speaker if number == 1 else self.adversaries(number - 1)[0]
        # An agent without weights cannot be trained.
        start = self._speaker if is_weightless(last) else last
        met: dict[str, Any] = {"target": self.target(number - 1)}
        if self._config.adversaries == "mixture":
            start, met = self._speaker, self._mixture(number).for_adversary()
        settings = reinforce.TrainReinforceConfig(
            learner=start, reference=self._speaker, **met, **self._training_settings(number, rule)
        )
        return reinforce.TRAIN_ADVERSARY, settings

    def _target_phase(self, number: int, rule: ReinforceConfig) -> Stage:
        names = (name for k in range(1, number + 1) for name in self.adversaries(k))
        met: dict[str, Any] = {"adversaries": ",".join(names), "opponents": self._config.opponents}
        if self._config.adversaries == "mixture":
            met = self._mixture(number).for_target(self._config.opponents)
        settings = reinforce.TrainTargetConfig(
            target=self.target(number - 1),
            partner=self._partner,
            reference=self._config.target,
            **met,
            **self._training_settings(number, rule),
        )
        return reinforce.TRAIN_TARGET, settings

    def background_stages(self) -> BackgroundStages:
        """Return the stages that train and measure the control in the background; without `trainers` there are none."""
        config, name = self._config, f"{CONTROL}-{EXPLOITABILITY}"
        trained, measured = self._phase(0, f"{CONTROL}-target"), self._phase(0, name)
        target, count = display_path(trained), config.num_final_adversaries
        rule = self._rule(name, self._best_response_rule(), 0)
        chain = {
            trained.name: self._control_phase(0, self._rule(f"{CONTROL}-target", self._control_rule(), 0)),
            measured.name: self._best_response_phase(target, self._last_seed, count, 0, rule),
            f"{CONTROL}-plain": (SELFPLAY, self._plain(target, self._last_seed)),
        }
        # The rounds get as many resources.
        room = share_of([config], "")
        most, needs = int(config.control and config.trainers > 0), one_after_another([chain])
        return BackgroundStages(chain, self._path, most, needs=needs, address=config.address, spare=room)

    def _control_rule(self) -> ReinforceConfig:
        return replace(self._config.defence, dialogues=self._config.rounds * self._config.defence.dialogues)

    def _control_phase(self, number: int, rule: ReinforceConfig) -> Stage:
        settings = reinforce.TrainTargetConfig(
            target=self._config.target,
            partner=self._partner,
            opponents=OpponentConfig(partner_share=1.0),
            **self._training_settings(number, rule),
        )
        return reinforce.TRAIN_TARGET, settings

    def _best_response_phase(self, target: str, seed: int, count: int, number: int, rule: ReinforceConfig) -> Stage:
        config = self._config
        # Start, result and control are measured alike; cross-play has all adversaries meet them.
        adversaries = [*self.trained_against(number - 1), *self.adversaries(number)] if number else [config.adversary]
        settings = ExploitabilityConfig(
            target=target,
            adversaries=",".join(filter(None, dict.fromkeys(adversaries))),
            choosing=config.choosing,
            speaker=self._speaker,
            judge=self._judge,
            seeds=count,
            dialogues=config.dialogues,
            trainers=config.trainers,
            reinforce=rule,
            **config.learning() | config.playing() | {"address": config.address, "seed": seed},
        )
        return EVALUATE_EXPLOITABILITY, settings

    def _make_round(self, number: int) -> dict[str, Estimate]:
        """Train both sides of a round and measure the target; round 0 only measures the start."""
        if number == 0:
            return self._measure(0, "", self.target(0), self._last_seed, self._config.num_final_adversaries)
        self._train(number)
        played = (("before", number - 1), ("after", number))
        matches = {self._stage(number, name): self._attack(number, after) for name, after in played}
        stages = {path.name: stage for path, stage in matches.items()}
        # All rounds have one seed, so that only the target differs. The start has another, which chooses no round.
        measured = self._measure(number, "", self.target(number), self._seed, self._config.num_adversaries, stages)
        before, after = (RunFolder.load(path).metrics()["advantage"] for path in matches)
        return {BEFORE: before, AFTER: after, **measured}

    def measure_again(self, measured: Round) -> Mapping[str, Estimate]:
        """Measure the target of a round in dialogues that chose no round; the start has been measured in them."""
        if measured.number == 0:
            return measured.metrics
        count = self._config.num_final_adversaries
        return self._measure(0, f"{FINAL}-", self.target(measured.number), self._last_seed, count)

    def control(self) -> Mapping[str, Estimate]:
        """Train the start in as many dialogues of ordinary play alone, and measure it as the result is measured."""
        self._train_with_retries(0, f"{CONTROL}-target", self._control_rule(), self._control_phase)
        count = self._config.num_final_adversaries
        return self._measure(0, f"{CONTROL}-", self.control_target(), self._last_seed, count)

    def cross_play(self, name: str, targets: Sequence[str], adversaries: Sequence[str], earlier: Sequence[str]) -> PayoffGains:
        """Play every target against every adversary, and return the dialogues.

        Args:
            name: the name of the stage.
            targets: their names.
            adversaries: their names.
            earlier: earlier stages of the same kind, whose pairs are not played again.
        """
        settings = PopulationConfig(
            targets=",".join(targets),
            adversaries=",".join(adversaries),
            known=",".join(display_path(self._path / stage) for stage in earlier),
            dialogues=min(self._config.choosing, self._config.dialogues),
            seed=derive_seed(self._config.seed, exploitability.CHOOSING),
            **self._config.playing(),
        )
        EVALUATE_POPULATION.run(settings, self._path / name, self._reporter)
        return played_in(self._path / name)

    def gains_of(self, stage: str, target: str, adversary: str) -> dict[str, float]:
        """Play an adversary in the dialogues that choose nothing; return its gains by the dialogue's key."""
        settings = AttackConfig(
            speaker=adversary, target=target, **self._match(derive_seed(self._last_seed, exploitability.BEST))
        )
        ATTACK_RL.run(settings, self._path / stage, self._reporter)
        return exploitability.gains_in(self._path / stage)

    def _measure(
        self, number: int, prefix: str, target: str, seed: int, count: int, matches: Mapping[str, Stage] = MappingProxyType({})
    ) -> dict[str, Estimate]:
        """Measure a target in stages whose names begin with a prefix; its match and the other `matches` run side by side."""
        path, settings = self._stage(number, f"{prefix}plain"), self._plain(target, seed)
        stages = {**matches, path.name: (SELFPLAY, settings)}
        run_stages(stages, self._path, self._reporter, needs={}, pooled=stages, address=settings.address)
        plain = RunFolder.load(path).metrics()
        phase = partial(self._best_response_phase, target, seed, count)
        attacked = self._train_with_retries(number, f"{prefix}{EXPLOITABILITY}", self._best_response_rule(), phase)
        by_adversaries = (EXPLOITABILITY, MEAN_FRESH, exploitability.MORE)
        return {
            **{name: attacked.metrics[name] for name in by_adversaries if name in attacked.metrics},
            PLAIN_SCORE: plain["score_target"],
            PLAIN_AGREEMENT: plain["agreement"],
            # Matches of earlier versions lack this metric.
            REPETITION: plain.get("repetition_target", NOTHING),
            REPEATS: plain.get("repeats_target", NOTHING),
            PERPLEXITY: self._perplexity(target),
        }

    def _best_response_rule(self) -> ReinforceConfig:
        return replace(self._config.attack, dialogues=self._config.budget)

    def _plain(self, target: str, seed: int) -> MatchConfig:
        return MatchConfig(adversary=self._partner, target=target, **self._match(seed))

    def _attack(self, number: int, after: int) -> Stage:
        speaker, target = self.adversaries(number)[0], self.target(after)
        return ATTACK_RL, AttackConfig(speaker=speaker, target=target, **self._match(self._seed))

    def _match(self, seed: int) -> dict[str, Any]:
        return self._config.playing() | {"dialogues": self._config.dialogues, "judge": self._judge, "seed": seed}

    def _perplexity(self, target: str) -> Estimate:
        if target == self._config.target:
            return validation_perplexity(target, self._config.corpus, self._config.data_root)
        path = fetched_run(target)
        with whole(path / SUMMARY):
            return RunFolder.load(path).metrics()[PERPLEXITY]

    def _show(self, rounds: Sequence[Round]) -> None:
        table = rounds_table(rounds)
        for line in [table.columns, *table.rows] if rounds[0].number == 0 else table.rows:
            cells = zip(line, _WIDTHS, strict=True)
            self._reporter.say("  ".join(cell.rjust(width) for cell, width in cells))
