"""Tables 2, 6 and 7 of Cheng et al. 2019 from one command: `parley reproduce cheng2019`.

Each training goes from the corpus to the tables: a supervised agent, an RL agent, an adversary of each, all attacks on both,
the reactive attack by turns, adversarial training by rounds beside a control, and all attacks on the two results. Each step is
a run of its own verb below the run's folder (negotiator, rl, ...; those of a second training are negotiator-2, rl-2, ...). It
resumes by itself and is skipped once it is finished. Steps that do not need each other run side by side. After every step the
page is written again with the finished steps.

  # Paper: one training. Ours: several, because RL agents of two seeds differ by more than their dialogues do.
  # Paper: attacks the target after adversarial training, of which it gives no schedule. Ours: the target of the last round,
  # whichever round a campaign would choose; it is attacked by the adversary that it learned from, and by a fresh one.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from parley.engine.core.runs.documents import SUMMARY, write_document
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.known import Round
from parley.engine.core.stats.statistics import Estimate
from parley.engine.core.stats.trainings import TRAININGS
from parley.engine.core.tables.table import EstimateTable
from parley.engine.core.verbs.campaign import rounds_of
from parley.engine.core.verbs.composite import Composite, Stage, run_stages
from parley.engine.core.verbs.job import TABLE_FILE, Reporter, Result, Silent, Summary, write_tables
from parley.engine.core.verbs.repeated import nth_name, nth_seed
from parley.engine.negotiation.attacks.settings import ReinforceConfig, SearchConfig
from parley.engine.negotiation.metrics.reproduction import (
    CONTROL,
    HARDENED,
    KNOWN,
    LEGEND,
    PARTS,
    PLAIN,
    RL,
    SV,
    TURN,
    Reproduction,
)
from parley.engine.negotiation.verbs import minmax, negotiator, table
from parley.engine.negotiation.verbs import table_stages as table_config
from parley.engine.negotiation.verbs import training as reinforce
from parley.engine.negotiation.verbs.campaign import Campaign, MinMaxConfig
from parley.engine.negotiation.verbs.match import SELFPLAY, MatchConfig
from parley.engine.negotiation.verbs.minmax import best_trained
from parley.engine.negotiation.verbs.negotiator import PUBLISHED
from parley.engine.negotiation.verbs.whitebox import TransferSettings
from parley.envs.core.config import Configuration, NonNegativeInt, NumItems, NumSeeds, check, from_dict
from parley.envs.core.errors import ConfigError, RunError
from parley.envs.core.storage.uris import display_path
from parley.policies.negotiator.settings import NegotiatorFitConfig

FIGURES = "figures.json"
"""The page's figures, in the run's folder."""
NEGOTIATOR, CAMPAIGN = "negotiator", "minmax"
ADVERSARY, ADVERSARY_RL = "adversary", "adversary-rl"
"""Names of steps and of their folders, beside `rl`; table-PART and plain-PART measure a part."""
NEEDS: Mapping[str, tuple[str, ...]] = {
    NEGOTIATOR: (),
    RL: (NEGOTIATOR,),
    ADVERSARY: (NEGOTIATOR,),
    ADVERSARY_RL: (RL,),
    f"plain-{SV}": (RL,),
    f"plain-{RL}": (RL,),
    f"table-{SV}": (ADVERSARY,),
    f"table-{RL}": (ADVERSARY_RL,),
    CAMPAIGN: (ADVERSARY_RL,),
    f"table-{TURN}": (RL,),
    f"plain-{HARDENED}": (CAMPAIGN,),
    f"plain-{CONTROL}": (CAMPAIGN,),
    f"table-{HARDENED}": (CAMPAIGN,),
    f"table-{CONTROL}": (CAMPAIGN,),
}
"""The steps of a training in their order, and the steps that each needs."""

_EPOCH_S, _LEARNED_S, _PLAYED_S = 64.0, 0.008, 0.02
"""Seconds of an idle core at the published sizes: an epoch, a dialogue of a training, a dialogue of a match."""
_ATTACKED_S = {SV: 4.0, RL: 4.5, TURN: 0.5, HARDENED: 4.5, CONTROL: 4.5}
"""Seconds of all rows of a table together, for a dialogue each (docs/results/cheng2019-tables.md, its column of seconds)."""


@dataclass(frozen=True, kw_only=True)
class ReproductionConfig(Configuration):
    """Settings of the reproduction: the number of trainings and their sizes."""

    seeds: NumSeeds = 3
    """Trainings from the corpus to the tables; with a larger number a finished run adds the missing ones."""
    workers: NonNegativeInt = 0
    """Ray actors that run steps side by side, as many as there is room for; below 2 this process runs all."""
    out: str = ""
    """Markdown page to write beside the run's own table.md, and its figures as JSON beside it; rewritten after every step."""
    dialogues: NumItems = 500
    """Dialogues of every measurement."""
    rounds: NumItems = 6
    """Rounds of adversarial training; all are made."""
    phase: NumItems = 12_800
    """Dialogues that each side learns from in a round; the control plays as many as the target in all of them."""
    seed: NonNegativeInt = 1
    """Master seed of the first training, and of all scenarios that are measured on."""
    corpus: str = PUBLISHED
    """Registered corpus (parley data list) or path/file.py:NAME."""
    data_root: Path | None = None
    """Where corpora lie; PARLEY_DATA or the user cache folder when not given."""
    perplexity_limit: float = 1.5
    """Perplexity, as a multiple of that at its start, from which a phase of a round is done again at half the rate; 0: none."""
    fit: NegotiatorFitConfig = field(default_factory=lambda: negotiator.fast().fit)
    """The supervised agent's recipe."""
    goal: ReinforceConfig = field(default_factory=lambda: reinforce.lewis2017().reinforce)
    """The RL agent's learning rule."""
    attack: ReinforceConfig = field(default_factory=lambda: reinforce.cheng2019().reinforce)
    """The adversaries' learning rule; its dialogues are those of every adversary that is trained afresh."""
    defence: ReinforceConfig = field(default_factory=lambda: reinforce.hardened().reinforce)
    """The target's learning rule in adversarial training; its dialogues are `phase`."""
    search: SearchConfig = field(default_factory=SearchConfig)
    """How white-box attacks search words."""
    transfer: TransferSettings = field(default_factory=TransferSettings)
    """Sentences of the transfer attack; on a hardened target, sentences that won by one point suffice."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "perplexity_limit", self.perplexity_limit == 0 or self.perplexity_limit > 1, "0, or above 1")
        check(self, "out", not self.out or Path(self.out).suffix == ".md", "a file that ends in .md")


def small() -> ReproductionConfig:
    """Use smaller trainings of the published networks: three of them in about two and a half hours of two idle cores."""
    base = paper()
    return replace(
        base,
        dialogues=200,
        rounds=3,
        phase=6_400,
        fit=replace(base.fit, max_epochs=8, patience=7),
        goal=replace(base.goal, dialogues=32_000),
        attack=replace(base.attack, dialogues=19_200),
    )


def paper() -> ReproductionConfig:
    """Use the budgets of docs/results/cheng2019.md: about seven hours of two idle cores (Cheng et al. 2019)."""
    return ReproductionConfig(attack=replace(reinforce.cheng2019().reinforce, dialogues=38_400))


def demo() -> ReproductionConfig:
    """Train small agents on the embedded corpus once, in some minutes: an example of the page, no published figures."""
    rule = replace(reinforce.demo().reinforce, dialogues=1_280)
    return ReproductionConfig(
        seeds=1,
        corpus="embedded",
        dialogues=100,
        rounds=1,
        phase=1_280,
        perplexity_limit=2.0,
        fit=negotiator.demo().fit,
        goal=replace(rule, reward="points", complementary=False),
        attack=rule,
        defence=replace(minmax.demo().defence, dialogues=1_280),
    )


def _minutes(config: ReproductionConfig) -> dict[str, float]:
    """Return the minutes of a core that each step of a training takes at the published sizes, by its name."""
    learned, played = config.attack.dialogues * _LEARNED_S, config.dialogues * _PLAYED_S
    phases = (2 * config.rounds - 1 + config.rounds) * config.phase * _LEARNED_S
    # Fresh adversaries measure the start, every round, the chosen round once more, and the control.
    measured = (config.rounds + 3) * (learned + 2 * played) + 2 * config.rounds * played
    seconds = {
        NEGOTIATOR: config.fit.max_epochs * _EPOCH_S,
        RL: config.goal.dialogues * _LEARNED_S,
        ADVERSARY: learned,
        ADVERSARY_RL: learned,
        CAMPAIGN: phases + measured,
        **{f"plain-{part}": played for part in PARTS},
        **{f"table-{part}": config.dialogues * per_dialogue for part, per_dialogue in _ATTACKED_S.items()},
    }
    return {name: seconds[name] / 60 for name in NEEDS}


def plan(config: ReproductionConfig) -> str:
    """Return the planned work and its approximate time in one line."""
    minutes = _minutes(config)
    steps = ", ".join(f"{name} {duration:.0f}" for name, duration in minutes.items() if duration >= 1)
    total = sum(minutes.values()) * config.seeds / 60
    at_once = min(max(1, config.workers), config.seeds * 2)
    return (
        f"plan: {config.seeds} x {len(NEEDS)} steps; of each training, in minutes of a core, about, at the published sizes: "
        f"{steps}; in all {total:.1f} hours of a core, {total / at_once:.1f} with {at_once} at a time"
    )


class ReproduceCheng2019(Composite[ReproductionConfig, ReproductionConfig, ReproductionConfig]):
    """`parley reproduce cheng2019`."""

    words = ("reproduce", "cheng2019")
    run_name = "reproduce-cheng2019"
    config = ReproductionConfig
    presets = {"small": small, "paper": paper, "demo": demo}
    legend = LEGEND
    files = (TABLE_FILE, FIGURES, SUMMARY)
    resume_safe = ("seeds", "workers", "out", "data_root")

    def stages(self, config: ReproductionConfig, path: Path) -> dict[str, Stage]:
        """Return the steps of all trainings; the hardened target is named once adversarial training is finished."""
        trainings = [_steps(config, path, number) for number in range(1, config.seeds + 1)]
        # Grouped by step, so that the first tables are finished early.
        return {nth_name(name, number): steps[name] for name in NEEDS for number, steps in enumerate(trainings, start=1)}

    def finished(self, config: ReproductionConfig, path: Path, weights: Mapping[str, str]) -> bool:
        """Return False: more trainings may be requested, and each step knows if it is finished."""
        return False

    def prepare(self, config: ReproductionConfig, path: Path, reporter: Reporter) -> ReproductionConfig:
        """Check that the corpus can be read and the page can be written."""
        folder = Path(config.out).parent
        if config.out and not folder.is_dir():
            raise ConfigError("the page cannot be written", where="--out", got=f"no folder {folder}", fix=f"mkdir -p {folder}")
        job, settings = self.stages(config, path)[NEGOTIATOR]
        job.prepare(settings, path, reporter)
        return config

    def work(self, run: RunFolder, prepared: ReproductionConfig, reporter: Reporter) -> ReproductionConfig:
        """Run the remaining steps, and write the page after each."""
        config, path = prepared, run.path
        reporter.say(plan(config))
        needs = {
            nth_name(name, number): [nth_name(step, number) for step in required]
            for name, required in NEEDS.items()
            for number in range(1, config.seeds + 1)
        }
        run_stages(
            lambda: self.stages(config, path),
            path,
            reporter,
            needs=needs,
            most=config.workers,
            after=lambda: self._write(path, config),
        )
        return config

    def measure(self, run: RunFolder, config: ReproductionConfig) -> Summary:
        """Return the figures over trainings, and those of each training."""
        results = _results(config, run.path)
        by_training = {f"{row}.advantage": results.by_training(row)["advantage"] for row in results.rows}
        return Summary(_TITLE, _description(config, run.path), results.metrics(), {TRAININGS: by_training})

    def conclude(self, run: RunFolder, config: ReproductionConfig, summary: Summary) -> None:
        super().conclude(run, config, summary)
        self._write(run.path, config)

    def tables(self, run: RunFolder) -> dict[str, EstimateTable]:
        return self.results(run).tables()

    def present(self, result: Result, run: RunFolder) -> Result:
        """Add as much of the tables as a screen holds."""
        return replace(result, tables=self.results(run).tables(brief=True))

    def results(self, run: RunFolder) -> Reproduction:
        """Return the results of a run's finished steps."""
        return _results(from_dict(ReproductionConfig, run.config), run.path)

    def next_commands(self, config: ReproductionConfig, path: Path) -> tuple[str, ...]:
        return (*super().next_commands(config, path), shlex.join(["parley", "play", display_path(path / RL)]))

    def _write(self, path: Path, config: ReproductionConfig) -> None:
        """Write page and figures from the finished steps."""
        results = _results(config, path)
        about = {"title": _TITLE, "description": _description(config, path), "command": self.command(config, path)}
        pages = [path / TABLE_FILE, *([Path(config.out)] if config.out else [])]
        for page in pages:
            write_tables(page, results.tables(), about)
            figures = path / FIGURES if page.parent == path else page.with_suffix(".json")
            try:
                write_document(figures, {**about, **results.as_json()})
            except OSError as error:
                fix = "free some space, then the same command writes it"
                raise RunError("the figures cannot be written", where=figures, got=error.strerror, fix=fix) from None


_TITLE = "Cheng et al. 2019, measured beside published"


def _steps(config: ReproductionConfig, path: Path, number: int) -> dict[str, Stage]:
    """Return the steps of a training by their names in the first training."""
    at = {name: path / nth_name(name, number) for name in NEEDS}
    supervised, goal, of_sv, of_rl = (display_path(at[name]) for name in (NEGOTIATOR, RL, ADVERSARY, ADVERSARY_RL))
    where: dict[str, Any] = {"data_root": config.data_root}
    learned = {**where, "corpus": config.corpus, "seed": nth_seed(config.seed, number)}
    played = {**where, "dialogues": config.dialogues, "seed": config.seed, "judge": supervised}
    hardened, control = _after_training(at[CAMPAIGN], config)

    def trained(rule: ReinforceConfig, target: str) -> reinforce.TrainReinforceConfig:
        return reinforce.TrainReinforceConfig(target=target, reinforce=rule, **learned)

    def plain(target: str) -> Stage:
        return SELFPLAY, MatchConfig(adversary=goal, target=target, **played)

    def attacked(preset: table_config.TableConfig, target: str, speaker: str, adversary: str) -> Stage:
        # Against a target that yields little, hardly any dialogue is won by more.
        least = min(config.transfer.min_advantage, 1) if preset.baseline else config.transfer.min_advantage
        how: dict[str, Any] = {"target": target, "speaker": speaker, "adversary": adversary, "corpus": config.corpus}
        how |= {"search": config.search, "transfer": replace(config.transfer, min_advantage=least), "baseline": ""}
        return table.ATTACK_TABLE, replace(preset, **how, **played)

    campaign = MinMaxConfig(
        target=goal,
        adversary=of_rl,
        partner=supervised,
        judge=supervised,
        rounds=config.rounds,
        patience=config.rounds,
        control=True,
        budget=config.attack.dialogues,
        dialogues=config.dialogues,
        perplexity_limit=config.perplexity_limit,
        attack=replace(config.attack, dialogues=config.phase),
        defence=replace(config.defence, dialogues=config.phase),
        **learned,
    )
    return {
        NEGOTIATOR: (negotiator.TRAIN_NEGOTIATOR, negotiator.TrainNegotiatorConfig(fit=config.fit, **learned)),
        RL: (reinforce.TRAIN_RL, trained(config.goal, supervised)),
        ADVERSARY: (reinforce.TRAIN_ADVERSARY, trained(config.attack, supervised)),
        ADVERSARY_RL: (reinforce.TRAIN_ADVERSARY, trained(config.attack, goal)),
        CAMPAIGN: (minmax.MINMAX, campaign),
        f"plain-{SV}": plain(supervised),
        f"plain-{RL}": plain(goal),
        f"plain-{HARDENED}": plain(hardened[0]),
        f"plain-{CONTROL}": plain(control[0]),
        f"table-{SV}": attacked(table_config.on_supervised(), supervised, supervised, of_sv),
        f"table-{RL}": attacked(table_config.on_rl(), goal, goal, of_rl),
        f"table-{TURN}": attacked(table.at_fixed_turns(), goal, goal, ""),
        f"table-{HARDENED}": attacked(table_config.on_hardened(), hardened[0], goal, hardened[1]),
        f"table-{CONTROL}": attacked(replace(table_config.on_hardened(), published="none"), control[0], goal, control[1]),
    }


def _after_training(path: Path, config: ReproductionConfig) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return the target of the last round and its best adversary, and the same of the control.

    All are empty before adversarial training is finished.
    """
    if not (path / SUMMARY).exists():
        return ("", ""), ("", "")
    run = RunFolder.load(path)
    campaign = Campaign(from_dict(MinMaxConfig, run.config), run, Silent())
    hardened, control = campaign.target(config.rounds), campaign.control_target()
    return (hardened, best_trained(campaign, path, hardened)), (control, best_trained(campaign, path, control))


def _results(config: ReproductionConfig, path: Path) -> Reproduction:
    """Return the results of the finished steps."""
    rows: dict[str, dict[int, Mapping[str, Estimate]]] = {}
    rounds: dict[int, list[Round]] = {}
    for number in range(1, config.seeds + 1):
        at = {name: path / nth_name(name, number) for name in NEEDS}
        matches = {f"{part}.{PLAIN}": at[f"plain-{part}"] for part in PARTS if part != TURN}
        if (at[CAMPAIGN] / SUMMARY).exists():
            matches[f"{HARDENED}.{KNOWN}"] = at[CAMPAIGN] / f"{config.rounds:02d}-after"
            rounds[number] = rounds_of(RunFolder.load(at[CAMPAIGN]))
        for row, match in matches.items():
            if (match / SUMMARY).exists():
                rows.setdefault(row, {})[number] = RunFolder.load(match).metrics()
        for part in PARTS:
            if not (at[f"table-{part}"] / SUMMARY).exists():
                continue
            for name, estimate in RunFolder.load(at[f"table-{part}"]).metrics().items():
                row, _, metric = name.partition(".")
                trainings = rows.setdefault(f"{part}.{row}", {})
                trainings[number] = {**trainings.get(number, {}), metric: estimate}
    return Reproduction(rows, rounds)


def _description(config: ReproductionConfig, path: Path) -> str:
    """Return the description of the page: corpus, trainings, budgets and progress."""
    done = sum((path / nth_name(name, number) / SUMMARY).exists() for name in NEEDS for number in range(1, config.seeds + 1))
    total = config.seeds * len(NEEDS)
    unfinished = "" if done == total else f" Not finished: {done} of {total} steps are."
    rounds = f"{config.rounds} round{'s' * (config.rounds > 1)}"
    other = (
        ""
        if config.corpus == PUBLISHED
        else " Not the published corpus: where figures agree with published ones, nothing is reproduced."
    )
    trained = "1 training" if config.seeds == 1 else f"{config.seeds} trainings, each from a seed of its own,"
    return (
        f"Corpus {config.corpus}; {trained} from the corpus to the tables, seed {config.seed}. A training: a supervised agent "
        f"({config.fit.max_epochs} epochs at most), an RL agent ({config.goal.dialogues:,} dialogues), adversaries "
        f"({config.attack.dialogues:,} dialogues each), adversarial training in {rounds} of {config.phase:,} "
        f"dialogues a side. {config.dialogues:,} dialogues a row, the same random scenarios for all; brackets are 95 % "
        f"intervals over {'dialogues alone' if config.seeds == 1 else 'trainings and dialogues together'}.{other}{unfinished}"
    )


REPRODUCE_CHENG2019 = ReproduceCheng2019()
