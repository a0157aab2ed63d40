"""Adversarial training: `parley minmax` (Cheng et al. 2019, section 6).

A campaign (`campaign.py`) ends after its rounds, or when exploitability has stopped falling. Then all targets meet all known
adversaries. The result is the target that loses least to the best of them and still plays well with an ordinary partner. Start
and result are measured by the best adversary of each, in dialogues that chose neither it nor a round. So is a control, the
start trained as long in ordinary play alone, which shows how much of the gain the adversaries caused.

The paper gives no schedule, rates or stopping rule: `cheng2019` holds what it gives (the latest adversary, trained on, and
reward -(S_adv - S_ori)); `population` and `psro` add later methods of the field.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from parley.engine.core.runs.documents import SUMMARY
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.known import EXPLOITABILITY, KNOWN, KnownAdversaries, Round, best_index, gained_by_training
from parley.engine.core.stats.statistics import Estimate, Metric, count, mean, paired_difference
from parley.engine.core.tables.table import EstimateTable
from parley.engine.core.verbs import sharded
from parley.engine.core.verbs.campaign import ROUNDS_MADE, rounds_of, tables_of_rounds
from parley.engine.core.verbs.job import Reporter, Silent, Summary, command_line
from parley.engine.core.verbs.repeated import RepeatedJob
from parley.engine.core.verbs.sharded import session
from parley.engine.negotiation.attacks.opponents import OpponentConfig
from parley.engine.negotiation.metrics.campaign import (
    AFTER,
    BEFORE,
    ROUND_METRICS,
    WATCH,
    PayoffGains,
    payoff_estimates,
    rounds_table,
)
from parley.engine.negotiation.metrics.dialogues import NEITHER
from parley.engine.negotiation.verbs import exploitability, training
from parley.engine.negotiation.verbs import training as reinforce
from parley.engine.negotiation.verbs.agents import (
    is_weightless,
    require_learner,
    require_negotiator,
    require_one_game,
    require_partner,
    shared_vocabulary,
)
from parley.engine.negotiation.verbs.campaign import CONTROL, FINAL, Campaign, MinMaxConfig
from parley.engine.negotiation.verbs.exploitability import BEST, MORE, NUM_IDLE, NUM_KNOWN, NUM_TRAINED, SCRIPTED
from parley.engine.negotiation.verbs.exploitability import LEGEND as LEARNED
from parley.engine.negotiation.verbs.negotiator import PUBLISHED, require_words
from parley.engine.negotiation.verbs.population import EVALUATE_POPULATION, PopulationConfig, labels, played_in
from parley.envs.core.config import from_dict
from parley.envs.core.errors import CheckpointError, ConfigError
from parley.envs.core.storage.copies import CHECKPOINT
from parley.envs.core.storage.uris import display_path

ROUNDS_PLAYED, ALL_PLAYED = "crossplay-rounds", "crossplay"
"""Stages: the targets and adversaries of the rounds; those of result and control too."""


@dataclass(frozen=True)
class ChosenRound:
    """The round that is the result.

    Args:
        number: the number of the round.
        loss: gain of the best known adversary from its target, in the dialogues that chose the round.
    """

    number: int
    loss: float


def choose_round(campaign: Campaign, last: int, playing: Sequence[Round]) -> ChosenRound:
    """Return the round whose target loses least to the best adversary of all rounds.

    Args:
        campaign: a campaign whose rounds are finished.
        last: number of the last round.
        playing: the rounds that may be the result.
    """
    targets = [campaign.target(number) for number in range(last + 1)]
    played = campaign.cross_play(ROUNDS_PLAYED, targets, _with_untrained(campaign, campaign.trained_against(last)), [])
    losses = played.payoffs_TA.max(axis=1)
    number = min((candidate.number for candidate in playing), key=lambda number: losses[number])
    return ChosenRound(number, float(losses[number]))


@dataclass(frozen=True)
class CrossPlay:
    """The result of a campaign against all known adversaries.

    Args:
        gains: gains of the best adversary, by the ending of the target's metrics and the dialogue's key.
        adversaries: all adversaries, and the targets by their stage.
        result: the label of the result.
    """

    gains: Mapping[str, Mapping[str, float]]
    adversaries: KnownAdversaries
    result: str


def measure_all(campaign: Campaign, path: Path, last: int, measured: Mapping[str, tuple[str, str]]) -> CrossPlay:
    """Play all targets against all adversaries, and each measured target's best adversary in other dialogues.

    Args:
        campaign: a campaign with a result and, if requested, a control.
        path: its folder.
        last: number of the last round.
        measured: prefix of the stage and name of each measured target, by the ending of its metrics.
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
    trained = {name: _gains_and_start(played, name, target, campaign.start) for name, target in met.items() if target}
    titles = dict(zip([*targets, *adversaries], labels([*targets, *adversaries], path), strict=True))
    met_by_targets = KnownAdversaries(
        targets=[titles[name] for name in by_target],
        adversaries=[titles[name] for name in adversaries],
        gains_TA=[estimates[targets.index(name)] for name in by_target],
        best=[best[targets.index(name)] for name in by_target],
        measured=[mean(list(gains.values())) for gains in by_target.values()],
        learned={titles[name]: gained_by_training(gains, first) for name, (gains, first) in trained.items()},
        gained={titles[name]: mean(gains) for name, (gains, _) in trained.items()},
    )
    return CrossPlay({ending: by_target[target] for ending, (_, target) in measured.items()}, met_by_targets, titles[result])


def best_trained(campaign: Campaign, path: Path, target: str) -> str:
    """Return the adversary that gains most from a target, of those that a finished campaign trained or was given.

    Args:
        campaign: a finished one.
        path: its folder.
        target: one of its targets.
    """
    played = played_in(path / ALL_PLAYED)
    trained = [index for index, name in enumerate(played.adversaries) if name not in (campaign.start, *SCRIPTED)]
    # The folder may have been named from another place.
    targets = [Path(name).absolute() for name in played.targets]
    gains_GA = played.gains_GTA[:, targets.index(Path(target).absolute())][:, trained]
    return played.adversaries[trained[best_index(gains_GA)]]


def _with_untrained(campaign: Campaign, met: Mapping[str, str]) -> list[str]:
    """Return the names of all adversaries: those that were trained or given, their start, and the scripted ones."""
    return list(dict.fromkeys([*met, campaign.start, *SCRIPTED]))


def _gains_and_start(played: PayoffGains, name: str, target: str, start: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the gains of an adversary and of its start from the target that it was trained against, by dialogue."""
    gains_GA: np.ndarray = played.gains_GTA[:, list(played.targets).index(target)]
    gains, first = (gains_GA[:, list(played.adversaries).index(adversary)] for adversary in (name, start))
    return gains, first


FINAL_STAGES = {
    f"00-{exploitability.BEST}": "best known adversary, before",
    "00-plain": "plain play, before",
    f"{FINAL}-{exploitability.BEST}": "best known adversary, after",
    f"{FINAL}-plain": "plain play, after",
    f"{CONTROL}-{exploitability.BEST}": "best known adversary, control",
    f"{CONTROL}-plain": "plain play, control",
}
"""Titles of the matches that measure the start, the result and the control."""
BEFORE_TRAINING, AS_CONTROL = "_before", "_control"
"""Endings of metrics: of the target before any training, and of the one trained as long in ordinary play alone."""
TARGETS = {BEFORE_TRAINING: ", before", AS_CONTROL: ", after plain play alone", "": ""}
"""Endings of titles of the compared targets, by the ending of their metrics."""
DROP, DROP_BEYOND_CONTROL = "exploitability_drop", "exploitability_drop_beyond_control"

_COMPARED = {name: metric for name, metric in ROUND_METRICS.items() if name not in (BEFORE, AFTER)}
_PAIRS = {
    name + ending: metric._replace(title=metric.title + suffix)
    for name, metric in _COMPARED.items()
    for ending, suffix in TARGETS.items()
}
LEGEND = _PAIRS | {
    **{MORE + ending: LEARNED[MORE]._replace(title=LEARNED[MORE].title + suffix) for ending, suffix in TARGETS.items()},
    DROP: Metric(
        "exploitability lost",
        "higher: target",
        "what the best known adversary gains before, less what the best gains after, in the same dialogues",
        main=True,
    ),
    DROP_BEYOND_CONTROL: Metric(
        "  more than by plain play alone", "higher: target", "the control's less the result's in the same dialogues, mean"
    ),
    NUM_KNOWN: Metric("known adversaries", NEITHER, "of all rounds, of start, result and control, and scripted ones", "count"),
    NUM_IDLE: Metric("  that learned nothing", NEITHER, LEARNED[NUM_IDLE].definition, "count"),
    NUM_TRAINED: Metric("fresh adversaries", NEITHER, "trained against the start, and as many against the result", "count"),
}
CHOSEN = "chosen"
"""Entry of the summary: the round that is the result, and the best known adversary's gain in the dialogues that chose it."""


def _session_cpus(config: MinMaxConfig) -> int:
    """Return the CPUs of a session on this machine: as many for each training, and as many again for the control."""
    alone = config.num_learning_cpus
    return max(alone, config.workers, config.trainers * alone) + config.control * alone


def _outcome(
    campaign: Campaign, config: MinMaxConfig, rounds: Sequence[Round], best: Round, wait: Callable[[], None], path: Path
) -> tuple[dict[str, Estimate], CrossPlay]:
    """Measure start, result and control, each by the best of all known adversaries and in the same dialogues.

    Args:
        campaign: a campaign whose rounds are finished.
        config: its settings.
        rounds: all rounds.
        best: the round that is the result.
        wait: returns when the background stages of the control are done.
        path: the campaign's folder.
    """
    measured = {BEFORE_TRAINING: campaign.measure_again(rounds[0]), "": campaign.measure_again(best)}
    names = {BEFORE_TRAINING: ("00-", config.target), "": (f"{FINAL}-" if best.number else "00-", campaign.target(best.number))}
    if config.control:
        wait()
        measured[AS_CONTROL] = campaign.control()
        names[AS_CONTROL] = (f"{CONTROL}-", campaign.control_target())
    played = measure_all(campaign, path, len(rounds) - 1, names)
    metrics = {name + ending: estimate for ending, of_target in measured.items() for name, estimate in of_target.items()}
    metrics |= {EXPLOITABILITY + ending: mean(list(gains.values())) for ending, gains in played.gains.items()}
    metrics[DROP] = _lost(played.gains[BEFORE_TRAINING], played.gains[""])
    if config.control:
        metrics[DROP_BEYOND_CONTROL] = _lost(played.gains[AS_CONTROL], played.gains[""])
    adversaries = played.adversaries
    nums = {NUM_KNOWN: len(adversaries.adversaries), NUM_IDLE: len(adversaries.idle), NUM_TRAINED: config.num_final_adversaries}
    metrics |= {name: count(num, metrics[EXPLOITABILITY].n) for name, num in nums.items()}
    return {name: metrics[name] for name in LEGEND if name in metrics}, played


def _lost(before: Mapping[str, float], after: Mapping[str, float]) -> Estimate:
    keys = sorted(before.keys() & after.keys())
    return paired_difference([before[key] for key in keys], [after[key] for key in keys])


def _store(campaign: Campaign, config: MinMaxConfig, path: Path, best: Round) -> None:
    """Store the result as the campaign's own checkpoint."""
    from parley.policies.negotiator.speaker import load_model, provenance, save_model

    folder = require_negotiator(campaign.target(best.number), "--target")
    origin = {**provenance(folder), "campaign_from": config.target, "round": best.number}
    save_model(load_model(folder), path / CHECKPOINT, origin)


def _made(run: RunFolder) -> Campaign:
    """Return a finished campaign."""
    config = from_dict(MinMaxConfig, run.config)
    if config.seeds > 1:
        fix = "give the stage seeds: [...] in the place of the setting"
        raise ConfigError("several campaigns have several last targets", where=run.path, got=f"seeds={config.seeds}", fix=fix)
    return Campaign(config, run, Silent())


def latest() -> MinMaxConfig:
    """Train on the latest adversary from round to round; reward -(S_adv - S_ori) (Cheng et al. 2019, section 6)."""
    return MinMaxConfig()


def population() -> MinMaxConfig:
    """Use fresh best responses, those that win drawn more often, and plain play (Lanctot et al. 2017, Vinyals et al. 2019)."""
    return MinMaxConfig(adversaries="fresh", opponents=OpponentConfig(sampling="prioritised", partner_share=0.25))


def psro() -> MinMaxConfig:
    """Use policy-space response oracles: each side learns against the other's equilibrium mixture (Lanctot et al. 2017)."""
    return MinMaxConfig(adversaries="mixture", opponents=OpponentConfig(partner_share=0.25))


def demo() -> MinMaxConfig:
    """Make two rounds with the small agents that parley demo trains."""
    rule = reinforce.demo().reinforce
    return MinMaxConfig(
        target="runs/demo/target",
        adversary="runs/demo/adversary",
        rounds=2,
        # The equilibrium mixture: adversaries drawn alike hardly teach the play of the best; one training in four reaches it.
        adversaries="mixture",
        num_adversaries=2,
        num_final_adversaries=3,
        control=True,
        budget=rule.dialogues,
        dialogues=500,
        choosing=150,
        corpus="embedded",
        # With less plain play some trainings refuse every deal (0.3), or half of them (0.4).
        opponents=OpponentConfig(partner_share=0.6),
        attack=rule,
        # At half the rate more, or without the KL guard, trainings lose their language; with a larger penalty they give in.
        perplexity_limit=2.0,
        defence=replace(rule, dialogues=5_760, supervised_weight=1.0, kl_weight=0.1, stalling_penalty=2.0),
    )


def plan(config: MinMaxConfig) -> str:
    """Return the maximal work of a campaign in one line: the dialogues of each phase, and their settings."""
    phases = [
        *([f"{config.attack.dialogues:,} for the adversary (attack.dialogues)"] if config.adversaries != "fresh" else []),
        *([f"{config.dialogues:,} for each new pair of the payoff matrix"] if config.adversaries == "mixture" else []),
        f"{config.defence.dialogues:,} for the target (defence.dialogues)",
        f"{config.num_adversaries:,} x {config.budget:,} for fresh adversaries (--num-adversaries, --budget)",
        f"{3 + config.num_adversaries:,} x {config.dialogues:,} to measure (--dialogues)",
    ]
    rounds = f"{config.rounds:,} round{'s' * (config.rounds > 1)}"
    plain = config.rounds * config.defence.dialogues
    measured = f"{config.num_final_adversaries:,} x {config.budget:,} for adversaries of the start, as many of the result"
    control = f", {plain:,} of plain play for the control (--control) and as many for its adversaries" if config.control else ""
    return (
        f"plan: the start is measured, then {rounds} at most; dialogues of a round: {', '.join(phases)}; "
        f"once: {measured} (--num-final-adversaries){control}; {config.choosing:,} of each target with each known adversary "
        "(--choosing)"
    )


class MinMax(RepeatedJob[MinMaxConfig, MinMaxConfig, Summary]):
    """`parley minmax`."""

    words = ("minmax",)
    run_name = "minmax"
    config = MinMaxConfig
    presets = {"cheng2019": latest, "population": population, "psro": psro, "demo": demo}
    legend = LEGEND
    files = (CHECKPOINT, SUMMARY)
    resume_safe = (*training.RESUME_SAFE, *sharded.RESUME_SAFE, "retries")
    steps = ROUNDS_MADE
    # Of a finished campaign, whichever round is its result: the target of the last round, the adversary that it learned from,
    # the control, and of both targets the adversary that gains most.
    offers = {
        "last_target": lambda run: _made(run).last_target,
        "last_adversary": lambda run: best_trained(_made(run), run.path, _made(run).last_target),
        "round_adversary": lambda run: _made(run).adversaries(len(rounds_of(run)) - 1)[0],
        "control_target": lambda run: _made(run).control_target(),
        "control_adversary": lambda run: best_trained(_made(run), run.path, _made(run).control_target()),
    }

    def prepare(self, config: MinMaxConfig, path: Path, reporter: Reporter) -> MinMaxConfig:
        if is_weightless(config.target):
            measured = shlex.join(["parley", "evaluate", "exploitability", "--target", config.target, "--speaker", "RUN"])
            what, fix = "a target without weights cannot be hardened", f"{measured} measures how exploitable it is"
            raise CheckpointError(what, where=config.target, fix=fix)
        config.require_device()
        words = require_learner(config.target, "--target", config.judge)
        for option in ("adversary", "partner"):
            if spec := getattr(config, option):
                require_partner(spec, f"--{option}")
        if config.speaker:
            require_negotiator(config.speaker, "--speaker")
            shared_vocabulary({"--target": config.target, "--speaker": config.speaker})
        names = ("target", "adversary", "partner", "speaker", "judge")
        require_one_game({f"--{name}": getattr(config, name) for name in names})
        require_words(config.corpus, config.data_root, words)
        return config

    def work(self, run: RunFolder, prepared: MinMaxConfig, reporter: Reporter) -> Summary:
        campaign = Campaign(prepared, run, reporter)
        reporter.say(plan(prepared))
        with session(_session_cpus(prepared), prepared.address), campaign.background_stages() as background:
            rounds = campaign.rounds()
            chosen = choose_round(campaign, len(rounds) - 1, WATCH.still_playing(rounds, prepared.plain_loss))
            best = rounds[chosen.number]
            if best.number == 0:
                reporter.say(
                    "no round made the target less exploitable and left its plain play and language: the result is the start"
                )
            wait = partial(background.wait, reporter, "the control")
            metrics, played = _outcome(campaign, prepared, rounds, best, wait, run.path)
            for line in played.adversaries.sentences():
                reporter.say(line)
            _store(campaign, prepared, run.path, best)
        lost = ", ".join(str(measured.number) for measured in rounds[1:] if WATCH.has_lost_language(measured.metrics))
        warning = f" The target of round {lost} may not be it: it repeats itself and has lost its language." if lost else ""
        return Summary(
            f"{prepared.target} hardened",
            f"Rounds of adversarial training: {len(rounds) - 1}. The target of round {best.number} is the result; the best of "
            f"{len(played.adversaries.adversaries)} known adversaries, {played.adversaries.best_of(played.result)}, "
            f"measures it in {prepared.dialogues:,} dialogues that chose neither, seed {prepared.seed}.{warning}",
            metrics,
            {CHOSEN: asdict(chosen), KNOWN: played.adversaries.to_json()},
        )

    def loss(self, run: RunFolder) -> float:
        """Return the exploitability by which the campaign chose its result, not the final measurement."""
        return float((run.summary() or {})[CHOSEN]["loss"])

    def more(self, run: RunFolder) -> dict[str, EstimateTable]:
        """Return the gain of each known adversary, the rounds and the mixtures."""
        return tables_of_rounds(run, rounds_table)

    def keep(self, best: Path, run: RunFolder) -> None:
        training.keep_learner(best, run.path)

    def next_commands(self, config: MinMaxConfig, path: Path) -> tuple[str, ...]:
        from parley.engine.negotiation.verbs.table import TableConfig, on_supervised

        folder, rule = display_path(path), replace(config.attack, dialogues=config.budget)
        same: dict[str, Any] = {"corpus": config.corpus, "data_root": config.data_root, "reinforce": rule}
        published: Any = "hardened" if config.corpus == PUBLISHED else "none"
        attacked = TableConfig(target=folder, judge=config.judge, published=published, **same)
        table = command_line(("attack", "table"), {"": on_supervised}, attacked, None)
        mixed = PopulationConfig(campaign=folder, num_fresh=1, **same)
        matrix = command_line(EVALUATE_POPULATION.words, EVALUATE_POPULATION.presets, mixed, None, EVALUATE_POPULATION.argument)
        play = shlex.join(["parley", "play", folder])
        return (*super().next_commands(config, path), play, table, *[matrix] * (config.adversaries == "mixture"))


MINMAX = MinMax()
