"""All targets against all adversaries: `parley evaluate population`.

A campaign retains every target and every adversary that it trained. Each pair plays the same dialogues under the rule of the
attacks: the target alone chooses. A row is a dialogue of a pair; a shard holds dialogues of few pairs. Pairs of an earlier
matrix need not play again.

The payoff matrix is solved for mixtures of agents (`engine/negotiation/attacks/opponents.py`). An adversary that is trained
against a mixture measures how exploitable it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from parley.engine.core.ray.record import Counts, Rows
from parley.engine.core.ray.worker import Shard
from parley.engine.core.runs.documents import CONFIG, SUMMARY, changed_weights, name_now
from parley.engine.core.runs.parts import OK, row_schema
from parley.engine.core.runs.remote_sync import fetched_run
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.known import EXPLOITABILITY, MEAN_FRESH, best_index
from parley.engine.core.stats.statistics import Estimate, mean
from parley.engine.core.stats.trainings import crossed_mean
from parley.engine.core.tables.table import EstimateTable
from parley.engine.core.verbs.checkpoints import weights_digests
from parley.engine.core.verbs.job import TABLE_FILE, Job, Reporter, Summary
from parley.engine.core.verbs.repeated import TRAINING
from parley.engine.core.verbs.sharded import RESUME_SAFE, Sharded, ShardedConfig, run_items, spread
from parley.engine.negotiation.attacks.opponents import OpponentConfig
from parley.engine.negotiation.attacks.settings import DefenceConfig, ReinforceConfig
from parley.engine.negotiation.metrics.campaign import LEGEND, PayoffGains, elo, matrix_table, payoff_estimates, ratings_table
from parley.engine.negotiation.verbs import training as reinforce
from parley.engine.negotiation.verbs.agents import judge_of, require_negotiator, split_names, start_of, words_of
from parley.engine.negotiation.verbs.defended import defend
from parley.engine.negotiation.verbs.match import (
    DIALOGUES,
    RANDOM,
    MatchConfig,
    MatchWorker,
    Roster,
    dialogue_seed,
    game_of,
    match_scenarios,
)
from parley.engine.negotiation.verbs.negotiator import PUBLISHED, require_words
from parley.envs.core.config import NonNegativeFloat, NonNegativeInt, NumItems, to_dict
from parley.envs.core.errors import ConfigError, RunError
from parley.envs.core.play import HUMAN
from parley.envs.core.seeds import derive_seed
from parley.envs.core.storage.uris import display_path
from parley.envs.negotiation.agents import make_agent
from parley.envs.negotiation.domain import Scenario, Vocabulary
from parley.envs.negotiation.game import Agent, require_game
from parley.policies.chat.addresses import is_chat_address
from parley.policies.chat.model import ANSWERS_FOLDER
from parley.policies.chat.settings import ChatSeat

_PAIR = {"target": str, "adversary": str, "number": int}
PAYOFFS = row_schema(_PAIR, DIALOGUES)
"""A dialogue of a payoff matrix with its pair and its number, which decides its scenario and its draws in all pairs."""
_MOST_SIDE_BY_SIDE = 250
_CAMPAIGN, _CONTROL = "minmax", "control-"


@dataclass(frozen=True, kw_only=True)
class PopulationConfig(ShardedConfig):
    """Settings of a payoff matrix: its agents and their dialogues."""

    campaign: str = ""
    """Run of parley minmax, finished or not: every target and every adversary that it has trained."""
    targets: str = ""
    """Targets, oldest first, between commas: runs, registered names, or path/file.py:Name; beside those of the campaign."""
    adversaries: str = ""
    """Adversaries likewise; without any, nor a campaign, the targets play each other, each on both sides."""
    known: str = ""
    """Earlier runs of this verb, between commas, whose pairs are not played again."""
    meta: Literal["uniform", "prioritised", "nash"] = "nash"
    """Mixture of the targets against which fresh adversaries are trained."""
    num_fresh: NonNegativeInt = 0
    """Fresh adversaries that are trained against the mixture and then play it, each from a seed of its own; 0 for none."""
    speaker: str = ""
    """Start of fresh adversaries and reference of the KL guard; when empty as in the campaign, or the oldest target's own."""
    corpus: str = PUBLISHED
    """Corpus that the targets were fitted to, if adversaries are trained."""
    dialogues: NumItems = 500
    """Dialogues of each pair, the same for all."""
    scenarios: str = RANDOM
    """"random" for random legal scenarios, a corpus name for its self-play scenarios in a drawn order, or a file."""
    temperature: NonNegativeFloat = 0.5
    """Of the models' word distributions; 0 takes the likeliest word."""
    complementary: bool = True
    """The target alone chooses and the adversary is given the complement (the attacks' rule)."""
    defence: DefenceConfig = field(default_factory=DefenceConfig)
    """Defence of every target."""
    judge: str = ""
    """Judge of its filter; when empty each target, before any reinforcement."""
    chat: ChatSeat = field(default_factory=ChatSeat)
    """Settings of chat models."""
    learner_gpus: NonNegativeFloat = 0.0
    """GPUs, or a fraction of one, that a fresh adversary's learner computes with."""
    runner_gpus: NonNegativeFloat = 0.0
    """GPUs, or a fraction of one, that each worker plays on while a fresh adversary learns."""
    reinforce: ReinforceConfig = field(default_factory=lambda: reinforce.cheng2019().reinforce)
    """The learning rule of fresh adversaries."""


class PairedDialogue(NamedTuple):
    """One dialogue of the matrix."""

    target: str
    adversary: str
    number: int
    scenario: Scenario


@dataclass(frozen=True)
class Population(Sharded[PairedDialogue]):
    """Targets and adversaries by name, each made once in each worker.

    Args:
        config: the settings of their dialogues.
        targets: oldest first.
        adversaries: oldest first.
        answers: folder of the run that stores chat models' answers; None stores none.
    """

    unit = "dialogues"
    event = "played"

    config: PopulationConfig
    targets: tuple[str, ...]
    adversaries: tuple[str, ...]
    answers: Path | None = None

    def seed(self, key: str) -> int:
        return dialogue_seed(self.config.seed, key.rpartition("-")[2])

    def worker(self) -> PopulationWorker:
        return PopulationWorker(self)

    def checkpoints(self) -> tuple[str, ...]:
        return tuple(spec for spec in dict.fromkeys((*self.targets, *self.adversaries)) if not is_chat_address(spec))

    def shard_size(self, num_items: int, num_workers: int) -> int:
        return spread(num_items, num_workers, _MOST_SIDE_BY_SIDE)

    def digest(self, rows: Rows) -> Counts:
        return Counter(dialogues=sum(row["status"] == OK for row in rows))

    def match(self, adversary: str = "", target: str = "") -> MatchConfig:
        """Return the match of a pair."""
        names = ("dialogues", "scenarios", "seed", "temperature", "complementary", "data_root", "defence")
        return MatchConfig(adversary=adversary, target=target, **{name: getattr(self.config, name) for name in names})

    def words(self) -> Vocabulary:
        """Return the vocabulary of agents without one of their own."""
        return words_of((*self.targets, *self.adversaries), game_of(self.config.scenarios))

    def items(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, PairedDialogue]:
        """Return the dialogues of the pairs that have no rows yet, by key; keys of a pair stand together.

        Raises:
            ConfigError: an agent plays another game than that of the scenarios.
        """
        game = self.words().game
        scenarios = match_scenarios(self.match(), game)
        for spec in (*self.targets, *self.adversaries):
            require_game(words_of([spec], game).game, list(scenarios.values()), where=spec)
        played = {(row["target"], row["adversary"]) for row in rows}
        return {
            f"{t:03d}-{a:03d}-{key}": PairedDialogue(target, adversary, number, scenario)
            for t, target in enumerate(self.targets)
            for a, adversary in enumerate(self.adversaries)
            if (target, adversary) not in played
            for number, (key, scenario) in enumerate(scenarios.items())
        }


@dataclass(frozen=True)
class _PairRoster(Roster):
    """A match of two agents that exist already.

    Args:
        pair: the adversary and the target.
    """

    pair: tuple[Agent, Agent]

    def agents(self, device: str = "cpu") -> tuple[Agent, Agent]:
        return self.pair


class PopulationWorker:
    """A worker that plays shards of the matrix."""

    def __init__(self, population: Population) -> None:
        self._population = population
        self._vocabulary = population.words()
        self._agents: dict[str, Agent] = {}
        self._targets: dict[str, Agent] = {}

    def run(self, shard: Shard[PairedDialogue]) -> list[dict[str, Any]]:
        """Return one row per dialogue, by `PAYOFFS`; dialogues of a pair are played side by side, as in their match."""
        rows = []
        for (target, adversary), group in groupby(zip(shard.keys, shard.items, strict=True), lambda item: item[1][:2]):
            keys, pairs = zip(*group, strict=True)
            match = self._population.match(adversary, target)
            worker = MatchWorker(_PairRoster(match, (self._agent(adversary), self._target(target))))
            numbers = tuple(key.rpartition("-")[2] for key in keys)
            played = worker.run(Shard(shard.name, numbers, tuple(pair.scenario for pair in pairs)))
            for key, pair, row in zip(keys, pairs, played, strict=True):
                rows.append(row | {"item_key": key, "target": target, "adversary": adversary, "number": pair.number})
        return rows

    def _agent(self, name: str) -> Agent:
        if name not in self._agents:
            config, answers = self._population.config, self._population.answers
            self._agents[name] = make_agent(
                name, self._vocabulary, config.temperature, config.device, seat=config.chat, answers=answers
            )
        return self._agents[name]

    def _target(self, name: str) -> Agent:
        if name not in self._targets:
            config = self._population.config
            judge = judge_of(config.judge, (name,))
            self._targets[name] = defend(self._agent(name), config.defence, judge, config.device, config.chat)
        return self._targets[name]


def fresh_start(config: PopulationConfig, targets: Sequence[str]) -> tuple[str, str]:
    """Return the start of fresh adversaries and the setting that names it; in a campaign all adversaries have one start.

    Args:
        config: the settings of the matrix.
        targets: oldest first.

    Raises:
        CheckpointError: none is named, and the oldest target has no weights to start from.
        RunError: the named run is no campaign.
    """
    if config.speaker or not config.campaign:
        start = start_of(config.speaker, targets[0], "--speaker")
        return start, "--speaker" if config.speaker else "--targets"
    campaign = _campaign(fetched_run(config.campaign), config.campaign).config
    return campaign["speaker"] or campaign["target"], "the campaign"


def members(config: PopulationConfig) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the targets and the adversaries of a configuration, oldest first, without duplicates.

    Raises:
        ConfigError: one side has no agents.
        RunError: the named run is no campaign.
    """
    targets, adversaries = list(_of_campaign(config.campaign)) if config.campaign else [[], []]
    targets += split_names(config.targets)
    adversaries += split_names(config.adversaries) or ([] if config.campaign else split_names(config.targets))
    for role, option, agents in (("a target", "targets", targets), ("an adversary", "adversaries", adversaries)):
        if not agents:
            fix = f"name a campaign, or agents with --{option}"
            raise ConfigError(f"a population needs {role} at least", where=config.campaign or None, fix=fix)
    return tuple(dict.fromkeys(targets)), tuple(dict.fromkeys(adversaries))


def _of_campaign(name: str) -> tuple[list[str], list[str]]:
    """Return the start of a campaign and its trained agents in the order of its stages, seed after seed.

    The control and its adversaries come before those of the rounds, so that the newest target is that of the last round.
    """
    path = fetched_run(name)
    run = _campaign(path, name)
    trained = {"train-target": [run.config["target"]], "train-adversary": list(filter(None, [run.config["adversary"]]))}
    # The campaigns of several seeds have folders of their own.
    seeds = run.config.get("seeds", 1)
    campaigns = [path] if seeds == 1 else [path / f"{TRAINING}-{number}" for number in range(1, seeds + 1)]
    for campaign in campaigns:
        made = sorted([*campaign.glob(f"*/{SUMMARY}"), *campaign.glob(f"*/*/{SUMMARY}")])
        for summary in sorted(made, key=lambda file: not file.relative_to(campaign).parts[0].startswith(_CONTROL)):
            trained.get(RunFolder.load(summary.parent).job, []).append(display_path(summary.parent))
    return trained["train-target"], trained["train-adversary"]


def _campaign(path: Path, name: str) -> RunFolder:
    run = RunFolder.load(path)
    if run.job != _CAMPAIGN:
        fix = "name agents with --targets and --adversaries"
        raise RunError("this is no campaign of adversarial training", where=name, got=f"a run of {run.job}", fix=fix)
    return run


FRESH = "fresh"
"""Prefix of the folders of fresh adversaries and of their dialogues."""
PAYOFF, RATINGS, AGENTS, SHARES, SEVERAL = "payoffs", "ratings", "agents", "shares", "nash_is_one_of_several"
"""Entries of the summary: estimates of the matrix (targets, adversaries); by role the Elo ratings, the names and the mixtures
by meta-strategy; whether there are several equilibria."""
ONE_OF_SEVERAL = "The equilibrium (nash) is one of several; it is the one that spreads most evenly."
ROLES = ("targets", "adversaries")


@dataclass(frozen=True)
class PopulationResult:
    """The result of a run.

    Args:
        population: the agents.
        played: the matrix.
        trained: gains of fresh adversaries, by the metric's name.
    """

    population: Population
    played: PayoffGains
    trained: Mapping[str, Estimate]


def matrix() -> PopulationConfig:
    """Measure the payoff matrix of all pairs, its mixtures and ratings."""
    return PopulationConfig()


def best_response() -> PopulationConfig:
    """Measure the matrix, and the gain of an adversary trained against the equilibrium mixture (Lanctot et al. 2017)."""
    return PopulationConfig(num_fresh=1)


def demo() -> PopulationConfig:
    """Measure the campaign of parley demo, with one fresh adversary."""
    rule = reinforce.demo().reinforce
    return PopulationConfig(campaign="runs/demo/minmax", num_fresh=1, corpus="embedded", dialogues=200, reinforce=rule)


class EvaluatePopulation(Job[PopulationConfig, Population, PopulationResult]):
    """`parley evaluate population`."""

    words = ("evaluate", "population")
    run_name = "population"
    config = PopulationConfig
    presets = {"matrix": matrix, "psro": best_response, "demo": demo}
    argument = "campaign"
    schema = PAYOFFS
    legend = LEGEND
    files = (TABLE_FILE, SUMMARY, "rows")
    resume_safe = RESUME_SAFE

    def prepare(self, config: PopulationConfig, path: Path, reporter: Reporter) -> Population:
        targets, adversaries = _first_agents(path) or members(config)
        names = dict.fromkeys((*targets, *adversaries))
        words = words_of(names)
        for name in names:
            # Before the first dialogue, so that a misspelt name is an error and no row.
            make_agent(name, words, config.temperature)
        if HUMAN in names:
            raise ConfigError("a person does not play whole matrices", got=HUMAN, fix="parley play lets you negotiate")
        if config.num_fresh:
            start, named_by = fresh_start(config, targets)
            require_negotiator(start, named_by)
            if config.reinforce.supervised_weight > 0:
                otherwise = "or set reinforce.supervised_weight=0"
                require_words(config.corpus, config.data_root, words_of([start]), otherwise)
        config.require_device()
        return Population(config, targets, adversaries)

    def work(self, run: RunFolder, prepared: Population, reporter: Reporter) -> PopulationResult:
        if _first_agents(run.path) is None:
            run.event(AGENTS, targets=prepared.targets, adversaries=prepared.adversaries)
        earlier = _earlier_rows(prepared)
        title = f"targets ({len(prepared.targets)}) against adversaries ({len(prepared.adversaries)})"
        playing = replace(prepared, answers=run.path / ANSWERS_FOLDER)
        run_items(run, playing, playing.items(earlier), prepared.config, reporter, title)
        rows = [*earlier, *rows_now(run)]
        played = PayoffGains.of(rows, prepared.targets, prepared.adversaries)
        if not len(played.gains_GTA):
            ended = {(row["target"], row["adversary"]) for row in rows if row["status"] == OK}
            pairs = [f"{who} against {met}" for met in played.targets for who in played.adversaries if (met, who) not in ended]
            raise RunError(
                "no dialogue came to its end in every pair",
                where=display_path(run.path),
                got=f"none of {', '.join(pairs)}" if pairs else "some of each pair, none of all",
                fix="the rows have the reasons; the same command plays them again, one without the failed agents the others",
            )
        return PopulationResult(prepared, played, self._trained(run.path, prepared, played, reporter))

    def _trained(self, path: Path, population: Population, played: PayoffGains, reporter: Reporter) -> dict[str, Estimate]:
        """Return the gains of fresh adversaries from their mixture; nothing without any."""
        config, targets = population.config, population.targets
        if not config.num_fresh:
            return {}
        shares_T, (start, _) = played.mixtures()[config.meta].targets, fresh_start(config, targets)
        names = []
        for number in range(1, config.num_fresh + 1):
            settings = reinforce.TrainReinforceConfig(
                target=",".join(targets),
                opponents=by_weights(shares_T.tolist(), OpponentConfig()),
                learner=start,
                seed=derive_seed(config.seed, FRESH, number),
                env_runners=config.workers,
                corpus=config.corpus,
                data_root=config.data_root,
                address=config.address,
                learner_gpus=config.learner_gpus,
                runner_gpus=config.runner_gpus,
                chat=config.chat,
                reinforce=config.reinforce,
            )
            folder = path / f"{FRESH}-{number}"
            reinforce.TRAIN_ADVERSARY.run(settings, folder, reporter)
            names.append(display_path(folder))
        strongest = population.adversaries[best_index(played.from_mixture(shares_T))]
        # The best adversary of the matrix may gain more than those that were trained against the mixture.
        candidates = [*names, strongest]
        choosing_GA = self._gained(path / f"{FRESH}-payoffs", population, candidates, shares_T, reporter)
        best = candidates[best_index(choosing_GA)]
        measuring_G1 = self._gained(path / f"{FRESH}-best", population, [best], shares_T, reporter)
        return {EXPLOITABILITY: mean(measuring_G1[:, 0]), MEAN_FRESH: crossed_mean(choosing_GA[:, : len(names)].T)}

    def _gained(
        self, path: Path, population: Population, adversaries: Sequence[str], shares_T: np.ndarray, reporter: Reporter
    ) -> np.ndarray:
        """Return the gains (G, A) of adversaries from a mixture of the targets, in dialogues that chose nothing."""
        config, targets = population.config, population.targets
        matrix = replace(
            config,
            campaign="",
            known="",
            num_fresh=0,
            targets=",".join(targets),
            adversaries=",".join(adversaries),
            seed=derive_seed(config.seed, path.name),
        )
        result = self.run(matrix, path, reporter)
        played = PayoffGains.of(rows_now(RunFolder.load(result.run)), targets, adversaries)
        return played.from_mixture(shares_T)

    def measure(self, run: RunFolder, result: PopulationResult) -> Summary:
        played, config = result.played, result.population.config
        ratings = dict(zip(ROLES, elo(played.gains_GTA), strict=True))
        mixtures = played.mixtures()
        shares = {meta: {role: getattr(mixture, role).tolist() for role in ROLES} for meta, mixture in mixtures.items()}
        folder = fetched_run(config.campaign) if config.campaign else None
        several = f" {ONE_OF_SEVERAL}" if mixtures["nash"].is_one_of_several else ""
        ruled = "the target alone chooses" if config.complementary else "both choose"
        return Summary(
            f"targets ({len(played.targets)}) against adversaries ({len(played.adversaries)})",
            f"{config.dialogues:,} dialogues a pair on the same {config.scenarios} scenarios, seed {config.seed}; "
            f"{ruled}.{several}",
            {**played.metrics(), **result.trained},
            {
                AGENTS: {role: labels(getattr(played, role), folder) for role in ROLES},
                SHARES: shares,
                SEVERAL: bool(several),
                RATINGS: {role: [estimate.to_json() for estimate in ratings[role]] for role in ROLES},
                PAYOFF: [[estimate.to_json() for estimate in line] for line in payoff_estimates(played)],
            },
        )

    def models(self, config: PopulationConfig) -> dict[str, str]:
        return {name: name for side in members(config) for name in side}

    def num_rows(self, config: PopulationConfig, path: Path) -> int:
        """Return the number of dialogues without rows of earlier runs."""
        targets, adversaries = _first_agents(path) or ((), ())
        population = Population(config, targets, adversaries)
        return len(population.items(_earlier_rows(population))) if targets else -1

    def tables(self, run: RunFolder) -> dict[str, EstimateTable]:
        return shown_tables(run.summary() or {})


def shown_tables(summary: Mapping[str, Any]) -> dict[str, EstimateTable]:
    """Return the tables of a finished run, by heading."""
    names, shares = summary[AGENTS], summary[SHARES]
    note = f" {ONE_OF_SEVERAL}" * summary.get(SEVERAL, False)
    sides = {
        f"{role.capitalize()}, rated": ratings_table(
            side, names[role], estimates_of(summary[RATINGS][role]), {meta: shares[meta][role] for meta in shares}, note
        )
        for role, side in zip(ROLES, ("target", "adversary"), strict=True)
    }
    cells_TA = [estimates_of(line) for line in summary[PAYOFF]]
    return {"Payoffs": matrix_table(names["targets"], names["adversaries"], cells_TA), **sides}


def estimates_of(parts: Sequence[Mapping[str, Any]]) -> list[Estimate]:
    """Return the estimates that a summary stores."""
    return [Estimate.from_json(part) for part in parts]


def by_weights(shares: Sequence[float], drawing: OpponentConfig) -> OpponentConfig:
    """Return opponents that are drawn as often as a mixture plays them, otherwise as `drawing` says."""
    return replace(drawing, sampling="weighted", weights=tuple(round(share, 6) for share in shares))


def labels(names: Sequence[str], folder: Path | None) -> list[str]:
    """Return the labels of agents in tables: for those of a campaign, the names of their stages.

    Args:
        names: names of the agents.
        folder: folder of the campaign; None for agents of no campaign.
    """
    return list(names) if folder is None else [name.removeprefix(f"{display_path(folder)}/") for name in names]


def played_in(path: Path) -> PayoffGains:
    """Return the dialogues of a finished matrix with those of earlier runs; agents in the order of its settings."""
    run = RunFolder.load(path)
    targets, adversaries = (split_names(run.config[role]) for role in ROLES)
    earlier = [RunFolder.load(fetched_run(name)) for name in split_names(run.config["known"])]
    return PayoffGains.of([row for source in (run, *earlier) for row in rows_now(source)], targets, adversaries)


def rows_now(run: RunFolder) -> list[dict[str, Any]]:
    """Return the rows of a matrix; agents that moved with its folder have their present names."""
    rows = run.rows()
    names = {name: name_now(run.path, name) for name in {row[role] for row in rows for role in ("target", "adversary")}}
    return [row | {role: names[row[role]] for role in ("target", "adversary")} for row in rows]


def _first_agents(path: Path) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Return the targets and adversaries that a run started with; None if there is no run."""
    if not (path / CONFIG).is_file():
        return None
    run = RunFolder.load(path)
    starts = [event for event in run.events({AGENTS: dict.fromkeys(ROLES, list)}) if event["kind"] == AGENTS]
    if not starts:
        return None
    targets, adversaries = (tuple(name_now(path, name) for name in starts[0][role]) for role in ROLES)
    return targets, adversaries


def _earlier_rows(population: Population) -> list[dict[str, Any]]:
    """Return the dialogues of earlier runs in which pairs of a population played."""
    config, rows = population.config, []
    pairs = {(target, adversary) for target in population.targets for adversary in population.adversaries}
    for name in split_names(config.known):
        run = RunFolder.load(fetched_run(name))
        alike, settings = ("dialogues", "scenarios", "seed", "temperature", "complementary", "defence"), to_dict(config)
        if run.job != EVALUATE_POPULATION.name or any(run.config.get(key) != settings[key] for key in alike):
            what = "--known needs a run of parley evaluate population with the same " + ", ".join(alike)
            raise RunError(what, where=name, got=f"a run of {run.job}", fix="name another, or leave it out")
        played = [row for row in rows_now(run) if (row["target"], row["adversary"]) in pairs]
        now = weights_digests({agent: agent for row in played for agent in (row["target"], row["adversary"])})
        if changed := changed_weights(run.weights, now):
            what = "--known holds dialogues of agents whose weights are others now"
            raise RunError(what, where=name, got=", ".join(changed), fix="leave it out, and all pairs are played again")
        rows += played
    return rows


EVALUATE_POPULATION = EvaluatePopulation()
