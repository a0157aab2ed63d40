"""All targets against all adversaries: `parley evaluate population`.

The payoff matrix (`payoffs.py`) is solved for mixtures of agents (`engine/negotiation/attacks/populations.py`), and how
exploitable a mixture is, an adversary says that is trained against it. Cells of an earlier matrix need not be played again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from parley.engine.core.runs.layout import CONFIG, SUMMARY
from parley.engine.core.runs.manifest import changed_weights, name_now
from parley.engine.core.runs.remote_sync import fetched_run
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.runs.schemas import OK
from parley.engine.core.stats.exploitability import EXPLOITABILITY, MEAN_FRESH, best_index
from parley.engine.core.stats.repeats import crossed_mean
from parley.engine.core.stats.statistics import Estimate, mean
from parley.engine.core.stats.tables import TextTable
from parley.engine.core.verbs.job import Job, Reporter, Summary
from parley.engine.core.verbs.sharded import RESUME_SAFE, work_off
from parley.engine.core.verbs.tables import TABLE_FILE
from parley.engine.core.verbs.weights import weights_digests
from parley.engine.negotiation.attacks.opponents import OpponentConfig
from parley.engine.negotiation.metrics.population import (
    LEGEND,
    Played,
    elo,
    matrix_table,
    payoff_estimates,
    ratings_table,
)
from parley.engine.negotiation.verbs import reinforce
from parley.engine.negotiation.verbs.agents import require_negotiator, split_names, words_of
from parley.engine.negotiation.verbs.language import require_words
from parley.engine.negotiation.verbs.payoffs import PAYOFFS, Population, PopulationConfig, fresh_start, members
from parley.envs.core.config import to_dict
from parley.envs.core.errors import ConfigError, RunError
from parley.envs.core.seeds import derive_seed
from parley.envs.core.storage.uris import display_path
from parley.envs.negotiation.agents import HUMAN, make_agent
from parley.policies.chat.answers import ANSWERS_FOLDER

FRESH = "fresh"
"""What the folders of fresh adversaries and of their dialogues begin with."""
PAYOFF, RATINGS, AGENTS, SHARES, SEVERAL = "payoffs", "ratings", "agents", "shares", "nash_is_one_of_several"
"""Entries of the summary: estimates of the matrix, targets first; by role Elo ratings, names, and mixtures by meta-strategy;
whether there are more equilibria than that of the mixtures."""
ONE_OF_SEVERAL = "The equilibrium (nash) is one of several; it is the one that spreads most evenly."
ROLES = ("targets", "adversaries")


@dataclass(frozen=True)
class FoundPopulation:
    """What a run has found.

    Args:
        population: who played.
        played: the matrix.
        trained: what fresh adversaries gain, by the metric's name.
    """

    population: Population
    played: Played
    trained: Mapping[str, Estimate]


def matrix() -> PopulationConfig:
    """The payoff matrix of all pairs, its mixtures and ratings."""
    return PopulationConfig()


def best_response() -> PopulationConfig:
    """The matrix, and what an adversary gains that is trained against the equilibrium mixture (Lanctot et al. 2017)."""
    return PopulationConfig(num_fresh=1)


def demo() -> PopulationConfig:
    """The campaign of parley demo, with one fresh adversary."""
    rule = reinforce.demo().reinforce
    return PopulationConfig(campaign="runs/demo/minmax", num_fresh=1, corpus="embedded", dialogues=200, reinforce=rule)


class EvaluatePopulation(Job[PopulationConfig, Population, FoundPopulation]):
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
        """Who plays; a run that was begun keeps to those that there were then."""
        targets, adversaries = _begun(path) or members(config)
        names = dict.fromkeys((*targets, *adversaries))
        words = words_of(names)
        for name in names:
            # Before anything is played, so that a misspelt one is an error and no rows.
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

    def work(self, run: RunFolder, prepared: Population, reporter: Reporter) -> FoundPopulation:
        """Plays what is left of the matrix, then trains the fresh adversaries and plays them."""
        if _begun(run.path) is None:
            run.event(AGENTS, targets=prepared.targets, adversaries=prepared.adversaries)
        known = _known(prepared)
        title = f"{len(prepared.targets)} targets against {len(prepared.adversaries)} adversaries"
        playing = replace(prepared, answers=run.path / ANSWERS_FOLDER)
        work_off(run, playing, playing.items(known), prepared.config, reporter, title)
        rows = [*known, *rows_now(run)]
        played = Played.of(rows, prepared.targets, prepared.adversaries)
        if not len(played.gains_GTA):
            ended = {(row["target"], row["adversary"]) for row in rows if row["status"] == OK}
            pairs = [f"{who} against {met}" for met in played.targets for who in played.adversaries if (met, who) not in ended]
            raise RunError(
                "no dialogue came to its end in every pair",
                where=display_path(run.path),
                got=f"none of {', '.join(pairs)}" if pairs else "some of each pair, none of all",
                fix="the rows say why; the same command plays them again, one without who failed plays the others",
            )
        return FoundPopulation(prepared, played, self._trained(run.path, prepared, played, reporter))

    def _trained(self, path: Path, population: Population, played: Played, reporter: Reporter) -> dict[str, Estimate]:
        """What fresh adversaries gain from the mixture that they are trained against; nothing without any."""
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
                corpus=config.corpus,
                data_root=config.data_root,
                seed=derive_seed(config.seed, FRESH, number),
                env_runners=config.workers,
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
        # The best of the matrix may gain more than who was trained against the mixture.
        candidates = [*names, strongest]
        choosing_GA = self._gained(path / f"{FRESH}-payoffs", population, candidates, shares_T, reporter)
        best = candidates[best_index(choosing_GA)]
        measuring_G1 = self._gained(path / f"{FRESH}-best", population, [best], shares_T, reporter)
        return {EXPLOITABILITY: mean(measuring_G1[:, 0]), MEAN_FRESH: crossed_mean(choosing_GA[:, : len(names)].T)}

    def _gained(
        self, path: Path, population: Population, adversaries: Sequence[str], shares_T: np.ndarray, reporter: Reporter
    ) -> np.ndarray:
        """Return what adversaries gain from a mixture of the targets, (G, A), in dialogues that chose nothing."""
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
        played = Played.of(rows_now(RunFolder.load(result.run)), targets, adversaries)
        return played.from_mixture(shares_T)

    def measure(self, run: RunFolder, found: FoundPopulation) -> Summary:
        """Mixtures, ratings and payoffs stand beside the metrics."""
        played, config = found.played, found.population.config
        ratings = dict(zip(ROLES, elo(played.gains_GTA), strict=True))
        mixtures = played.mixtures()
        shares = {meta: {role: getattr(mixture, role).tolist() for role in ROLES} for meta, mixture in mixtures.items()}
        several = f" {ONE_OF_SEVERAL}" if mixtures["nash"].is_one_of_several else ""
        ruled = "the target alone chooses" if config.complementary else "both choose"
        return Summary(
            f"{len(played.targets)} targets against {len(played.adversaries)} adversaries",
            f"{config.dialogues:,} dialogues a pair on the same {config.scenarios} scenarios, seed {config.seed}; "
            f"{ruled}.{several}",
            {**played.metrics(), **found.trained},
            {
                AGENTS: {role: self._labels(getattr(played, role), config.campaign) for role in ROLES},
                SHARES: shares,
                SEVERAL: bool(several),
                RATINGS: {role: [estimate.to_json() for estimate in ratings[role]] for role in ROLES},
                PAYOFF: [[estimate.to_json() for estimate in line] for line in payoff_estimates(played)],
            },
        )

    def _labels(self, names: Sequence[str], campaign: str) -> list[str]:
        return labels(names, fetched_run(campaign)) if campaign else list(names)

    def models(self, config: PopulationConfig) -> dict[str, str]:
        return {name: name for side in members(config) for name in side}

    def num_rows(self, config: PopulationConfig, path: Path) -> int:
        """Those of the pairs that were not known."""
        targets, adversaries = _begun(path) or ((), ())
        population = Population(config, targets, adversaries)
        return len(population.items(_known(population))) if targets else -1

    def tables(self, run: RunFolder) -> dict[str, TextTable]:
        return shown_tables(run.summary() or {})


def shown_tables(summary: Mapping[str, Any]) -> dict[str, TextTable]:
    """The tables of a finished run, by heading."""
    names, shares = summary[AGENTS], summary[SHARES]
    note = f" {ONE_OF_SEVERAL}" * summary.get(SEVERAL, False)
    sides = {
        f"{role.capitalize()}, rated": ratings_table(
            one, names[role], estimates_of(summary[RATINGS][role]), {meta: shares[meta][role] for meta in shares}, note
        )
        for role, one in zip(ROLES, ("target", "adversary"), strict=True)
    }
    cells_TA = [estimates_of(line) for line in summary[PAYOFF]]
    return {"Payoffs": matrix_table(names["targets"], names["adversaries"], cells_TA), **sides}


def estimates_of(parts: Sequence[Mapping[str, Any]]) -> list[Estimate]:
    """Estimates as a summary keeps them."""
    return [Estimate.from_json(one) for one in parts]


def by_weights(shares: Sequence[float], drawing: OpponentConfig) -> OpponentConfig:
    """Opponents drawn as often as a mixture plays them, otherwise as `drawing` says."""
    return replace(drawing, sampling="weighted", weights=tuple(round(share, 6) for share in shares))


def labels(names: Sequence[str], folder: Path) -> list[str]:
    """Return what agents are called in tables: those of a campaign by their stage.

    Args:
        names: of the agents.
        folder: of the campaign.
    """
    return [name.removeprefix(f"{display_path(folder)}/") for name in names]


def played_in(path: Path) -> Played:
    """Return the dialogues of a finished matrix, known ones too, agents in the order in which its settings name them."""
    run = RunFolder.load(path)
    targets, adversaries = (split_names(run.config[role]) for role in ROLES)
    known = [RunFolder.load(fetched_run(name)) for name in split_names(run.config["known"])]
    return Played.of([row for one in (run, *known) for row in rows_now(one)], targets, adversaries)


def rows_now(run: RunFolder) -> list[dict[str, Any]]:
    """Return the rows of a matrix; agents that were moved along with it by their names of now."""
    rows = run.read_rows().to_pylist()
    names = {name: name_now(run.path, name) for name in {row[role] for row in rows for role in ("target", "adversary")}}
    return [row | {role: names[row[role]] for role in ("target", "adversary")} for row in rows]


def _begun(path: Path) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """The targets and adversaries that a run began with; None where there is no run."""
    if not (path / CONFIG).is_file():
        return None
    run = RunFolder.load(path)
    begun = [event for event in run.events({AGENTS: dict.fromkeys(ROLES, list)}) if event["kind"] == AGENTS]
    if not begun:
        return None
    targets, adversaries = (tuple(name_now(path, name) for name in begun[0][role]) for role in ROLES)
    return targets, adversaries


def _known(population: Population) -> list[dict[str, Any]]:
    """The dialogues of earlier runs in which pairs of a population played.

    Raises:
        RunError: one is no such run, or its dialogues or weights were others.
    """
    config, found = population.config, []
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
        found += played
    return found


EVALUATE_POPULATION = EvaluatePopulation()
