"""Tables 2, 6 and 7 of Cheng et al. 2019 from one command: `parley reproduce cheng2019`.

The steps are a recipe, `recipes/cheng2019.yaml`: a supervised agent, an RL agent, an adversary of each, all attacks on both,
the reactive attack by turns, adversarial training by rounds beside a control, and all attacks on the two results.

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
from parley.engine.core.verbs.job import TABLE_FILE, Reporter, Result, Summary, write_tables
from parley.engine.core.verbs.recipe_job import PlannedRecipe, RecipeJob, StagesConfig
from parley.engine.core.verbs.repeated import nth_name, nth_seed
from parley.engine.negotiation.attacks.settings import ReinforceConfig, SearchConfig
from parley.engine.negotiation.metrics.reproduction import (
    HARDENED,
    KNOWN,
    LEGEND,
    PARTS,
    PLAIN,
    RL,
    TURN,
    Reproduction,
)
from parley.engine.negotiation.verbs import minmax, negotiator
from parley.engine.negotiation.verbs import training as reinforce
from parley.engine.negotiation.verbs.negotiator import PUBLISHED
from parley.engine.negotiation.verbs.whitebox import TransferSettings
from parley.envs.core.config import NonNegativeInt, NumItems, NumSeeds, check, from_dict, to_dict
from parley.envs.core.errors import ConfigError, RunError
from parley.envs.core.storage.uris import display_path
from parley.policies.negotiator.settings import NegotiatorFitConfig

FIGURES = "figures.json"
"""The page's figures, in the run's folder."""
CAMPAIGN = "minmax"
"""The step of adversarial training; plain-PART and table-PART measure a part."""

_EPOCH_S, _LEARNED_S, _PLAYED_S = 64.0, 0.008, 0.02
"""Seconds of an idle core at the published sizes: an epoch, a dialogue of a training, a dialogue of a match."""
_ATTACKED_S = {"table": 4.5, "turns": 0.5}
"""Seconds of all rows of a table together, for a dialogue each (docs/results/cheng2019-tables.md, its column of seconds)."""


@dataclass(frozen=True, kw_only=True)
class ReproductionConfig(StagesConfig):
    """Settings of the reproduction: the number of trainings and their sizes."""

    seeds: NumSeeds = 3
    """Trainings from the corpus to the tables; with a larger number a finished run adds the missing ones."""
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
    """Return the minutes of a core that steps take at the published sizes, by the settings of the recipe."""
    learned, played = config.attack.dialogues * _LEARNED_S, config.dialogues * _PLAYED_S
    phases = (2 * config.rounds - 1 + config.rounds) * config.phase * _LEARNED_S
    # Fresh adversaries measure the start, every round, the chosen round once more, and the control.
    measured = (config.rounds + 3) * (learned + 2 * played) + 2 * config.rounds * played
    seconds = {
        "fit": config.fit.max_epochs * _EPOCH_S,
        "goal": config.goal.dialogues * _LEARNED_S,
        "attack": learned,
        "rounds": phases + measured,
        "match": played,
        **{name: config.dialogues * per_dialogue for name, per_dialogue in _ATTACKED_S.items()},
    }
    return {f"{name}_minutes": duration / 60 for name, duration in seconds.items()}


class ReproduceCheng2019(RecipeJob[ReproductionConfig]):
    """`parley reproduce cheng2019`."""

    legend = LEGEND
    files = (TABLE_FILE, FIGURES, SUMMARY)
    resume_safe = ("seeds", "workers", "out", "data_root", "dry_run")
    repeatable = ()

    def __init__(self) -> None:
        super().__init__("reproduce cheng2019", "negotiation/cheng2019")
        self.config, self.presets = ReproductionConfig, {"small": small, "paper": paper, "demo": demo}

    def settings(self, config: ReproductionConfig) -> dict[str, Any]:
        """Return the settings of the recipe."""
        computed = {
            "seeds": [nth_seed(config.seed, number) for number in range(1, config.seeds + 1)],
            "budget": config.attack.dialogues,
            "least_advantage": min(config.transfer.min_advantage, 1),
            "about": _about(config),
        }
        return to_dict(config) | computed | _minutes(config)

    def metrics_of(self, config: ReproductionConfig) -> list[str]:
        return list(LEGEND)

    def prepare(self, config: ReproductionConfig, path: Path, reporter: Reporter) -> PlannedRecipe:
        """Check that the corpus can be read and the page can be written."""
        folder = Path(config.out).parent
        if config.out and not folder.is_dir():
            raise ConfigError("the page cannot be written", where="--out", got=f"no folder {folder}", fix=f"mkdir -p {folder}")
        return super().prepare(config, path, reporter)

    def measure(self, run: RunFolder, result: PlannedRecipe) -> Summary:
        """Return the figures over trainings, those of each training, and the reasons of failed steps."""
        summary, results = super().measure(run, result), _results(result.config, run.path)
        by_training = {f"{row}.advantage": results.by_training(row)["advantage"] for row in results.rows}
        return replace(summary, metrics=results.metrics(), extra={**summary.extra, TRAININGS: by_training})

    def conclude(self, run: RunFolder, config: ReproductionConfig, summary: Summary) -> None:
        super().conclude(run, config, summary)
        self._write(run.path, config, summary)

    def write(self, run: RunFolder, prepared: PlannedRecipe) -> None:
        self._write(run.path, prepared.config, self.measure(run, prepared))

    def tables(self, run: RunFolder) -> dict[str, EstimateTable]:
        return self.results(run).tables()

    def present(self, result: Result, run: RunFolder) -> Result:
        """Add as much of the tables as a screen holds."""
        return replace(super().present(result, run), tables=self.results(run).tables(brief=True))

    def results(self, run: RunFolder) -> Reproduction:
        """Return the results of a run's finished steps."""
        return _results(from_dict(ReproductionConfig, run.config), run.path)

    def next_commands(self, config: ReproductionConfig, path: Path) -> tuple[str, ...]:
        return (*super().next_commands(config, path), shlex.join(["parley", "play", display_path(path / RL)]))

    def _write(self, path: Path, config: ReproductionConfig, summary: Summary) -> None:
        """Write page and figures from the finished steps."""
        results = _results(config, path)
        about = {"title": summary.title, "description": summary.description, "command": self.command(config, path)}
        pages = [path / TABLE_FILE, *([Path(config.out)] if config.out else [])]
        for page in pages:
            write_tables(page, results.tables(), about)
            figures = path / FIGURES if page.parent == path else page.with_suffix(".json")
            try:
                write_document(figures, {**about, **results.as_json()})
            except OSError as error:
                fix = "free some space, then the same command writes it"
                raise RunError("the figures cannot be written", where=figures, got=error.strerror, fix=fix) from None


def _results(config: ReproductionConfig, path: Path) -> Reproduction:
    """Return the results of the finished steps."""
    rows: dict[str, dict[int, Mapping[str, Estimate]]] = {}
    rounds: dict[int, list[Round]] = {}
    for number in range(1, config.seeds + 1):
        matches = {f"{part}.{PLAIN}": path / nth_name(f"plain-{part}", number) for part in PARTS if part != TURN}
        campaign = path / nth_name(CAMPAIGN, number)
        if (campaign / SUMMARY).exists():
            matches[f"{HARDENED}.{KNOWN}"] = campaign / f"{config.rounds:02d}-after"
            rounds[number] = rounds_of(RunFolder.load(campaign))
        for row, match in matches.items():
            if (match / SUMMARY).exists():
                rows.setdefault(row, {})[number] = RunFolder.load(match).metrics()
        for part in PARTS:
            table = path / nth_name(f"table-{part}", number)
            for name, estimate in RunFolder.load(table).metrics().items() if (table / SUMMARY).exists() else ():
                row, _, metric = name.partition(".")
                trainings = rows.setdefault(f"{part}.{row}", {})
                trainings[number] = {**trainings.get(number, {}), metric: estimate}
    return Reproduction(rows, rounds)


def _about(config: ReproductionConfig) -> str:
    """Return the description of the page: corpus, trainings and budgets."""
    rounds = f"{config.rounds} round{'s' * (config.rounds > 1)}"
    other = " Not the published corpus: where figures agree with published ones, nothing is reproduced."
    trained = "1 training" if config.seeds == 1 else f"{config.seeds} trainings, each from a seed of its own,"
    return (
        f"Corpus {config.corpus}; {trained} from the corpus to the tables, seed {config.seed}. A training: a supervised agent "
        f"({config.fit.max_epochs} epochs at most), an RL agent ({config.goal.dialogues:,} dialogues), adversaries "
        f"({config.attack.dialogues:,} dialogues each), adversarial training in {rounds} of {config.phase:,} "
        f"dialogues a side. {config.dialogues:,} dialogues a row, the same random scenarios for all; brackets are 95 % "
        f"intervals over {'dialogues alone' if config.seeds == 1 else 'trainings and dialogues together'}."
        f"{other * (config.corpus != PUBLISHED)}"
    )


REPRODUCE_CHENG2019 = ReproduceCheng2019()
