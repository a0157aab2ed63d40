"""Hardening of a Hugging Face model against triggers by rounds: `parley minmax triggers`.

A search finds triggers of the model as it is; the model is trained not to follow them; a search of the trained model, the same
command, finds the remaining ones. A round learns from the triggers of all searches so far, and begins with the model that the
first began with. The control is that model trained as long on clean contexts alone, searched in the same way.

In the end the inputs of all searches are typed to all models, those of the other models and of the control too: the share of
targets that any of them reaches is the model's figure. One search may find less than is known.

Each search and each training is a run of its own below the run's folder, and resumes by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from parley.engine.core.runs.documents import SUMMARY
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.known import KNOWN, KNOWN_TABLE, known_of
from parley.engine.core.tables.table import EstimateTable
from parley.engine.core.verbs import sharded
from parley.engine.core.verbs.composite import Composite, Stage, run_stages
from parley.engine.core.verbs.hardening import OUTCOME
from parley.engine.core.verbs.job import TABLE_FILE, Reporter, Result, Summary
from parley.engine.core.verbs.sharded import ShardedConfig, session
from parley.engine.triggers.methods import settings
from parley.engine.triggers.methods.settings import SearchSettings
from parley.engine.triggers.metrics.transfer import (
    CONTROL,
    INPUTS,
    START,
    KnownInputs,
    hardening_figures,
    hardening_legend,
    hardening_table,
    round_name,
)
from parley.engine.triggers.verbs.config import TriggerConfig, most_of
from parley.engine.triggers.verbs.hardened import TRAIN_HARDENED
from parley.engine.triggers.verbs.lessons import HardeningSettings, TrainHardenedConfig, hardening_recipe
from parley.engine.triggers.verbs.search import SEARCH
from parley.engine.triggers.verbs.transfer import SEARCH_TRANSFER, TriggerTransferConfig
from parley.envs.core.config import PositiveInt, shared
from parley.envs.core.storage.uris import HUGGING_FACE, display_path
from parley.policies.chat.model import MODERATED
from parley.policies.chat.settings import WeightSettings

_SEARCHED, _TRAINED = "search-", "hardened-"
"""Prefixes of the folders of searches and of trainings; the name of the model follows."""


@dataclass(frozen=True, kw_only=True)
class HardenTriggersConfig(TriggerConfig):
    """The model to search for triggers and to harden against them, and the number of rounds."""

    model: str = ""
    """Causal model to begin with: hf:FOLDER or gguf:FILE."""
    hit: str = "o-greedy"
    """Wanted hits, as of parley search."""
    rounds: PositiveInt = 1
    """Trainings, each followed by a search."""
    threads: PositiveInt = 1
    """CPU threads that trainings compute with."""
    hardening: HardeningSettings = field(default_factory=HardeningSettings)
    """The training of the model."""

    def trained(self, model: str, searches: str, *, control: bool = False) -> TrainHardenedConfig:
        """Return the training of a round, or of the control.

        Args:
            model: the model that it begins with.
            searches: the searches whose triggers it learns from, separated by commas.
            control: learn from clean contexts alone.
        """
        settings_of = shared(self.hardening, HardeningSettings)
        where: dict[str, Any] = {"seed": self.seed, "threads": self.threads, "device": self.device, "data_root": self.data_root}
        return TrainHardenedConfig(model=model, searches=searches, control=control, **where, **settings_of)

    @property
    def are_inputs_typed(self) -> bool:
        """Return True if inputs can be typed to other models: not if the prompt with its slots is written out."""
        return "{}" not in (self.hugging_face.template or "")

    def typed(self, searches: Sequence[str], path: Path) -> TriggerTransferConfig:
        """Return how all known inputs are typed to all models.

        Args:
            searches: folders of the searches of all models, the start's first.
            path: the folder that they lie in.
        """
        trained = [f"{HUGGING_FACE}{display_path(path / search.replace(_SEARCHED, _TRAINED, 1))}" for search in searches[1:]]
        return TriggerTransferConfig(
            searches=",".join(display_path(path / search) for search in searches),
            model=",".join([self.model, *trained]),
            found="all",
            limit=0,
            success=self.success,
            chat=replace(self.chat, **shared(self.hugging_face, WeightSettings)),
            **shared(self, ShardedConfig),
        )


def gcg() -> HardenTriggersConfig:
    """Search in nanoGCG's sizes (Zou et al. 2023), with low-rank adapters (Hu et al. 2021)."""
    return HardenTriggersConfig(method="gcg", limit=100, search=settings.gcg())


def quick() -> HardenTriggersConfig:
    """Take a first look: gibbs-enum, 20 targets, one restart of up to 5 sweeps over 20 candidates."""
    return HardenTriggersConfig(limit=20, search=SearchSettings(candidates=20, restarts=1, max_sweeps=5))


def demo() -> HardenTriggersConfig:
    """Take minutes with a model of some 100 million weights: 6 targets, learn from every input; the figures mean little."""
    hardening = HardeningSettings(found="all", limit=12, max_tokens=12, fit=replace(hardening_recipe(), max_epochs=1))
    search = SearchSettings(candidates=8, restarts=1, max_sweeps=1)
    return HardenTriggersConfig(limit=6, search=search, hardening=hardening)


class MinMaxTriggers(Composite[HardenTriggersConfig, HardenTriggersConfig, HardenTriggersConfig]):
    """`parley minmax triggers`."""

    words = ("minmax", "triggers")
    run_name = "minmax-triggers"
    config = HardenTriggersConfig
    presets = {"gcg": gcg, "quick": quick, "demo": demo}
    files = (TABLE_FILE, SUMMARY)
    resume_safe = sharded.RESUME_SAFE
    outcomes = MODERATED

    def stages(self, config: HardenTriggersConfig, path: Path) -> dict[str, Stage]:
        settings_of = shared(config, TriggerConfig)
        runs = [f"{_SEARCHED}{START}"]
        stages: dict[str, Stage] = {runs[0]: (SEARCH, TriggerConfig(**settings_of))}

        def add(name: str, searches: str, *, control: bool = False) -> None:
            trained = f"{_TRAINED}{name}"
            stages[trained] = (TRAIN_HARDENED, config.trained(config.model, searches, control=control))
            model = f"{HUGGING_FACE}{display_path(path / trained)}"
            stages[f"{_SEARCHED}{name}"] = (SEARCH, TriggerConfig(**settings_of | {"model": model}))

        searches = ""
        for number in range(1, config.rounds + 1):
            searches = ",".join(display_path(path / run) for run in runs)
            add(round_name(number), searches)
            runs.append(f"{_SEARCHED}{round_name(number)}")
        add(CONTROL, searches, control=True)
        if config.are_inputs_typed:
            stages[KNOWN] = SEARCH_TRANSFER, config.typed([*runs, f"{_SEARCHED}{CONTROL}"], path)
        return stages

    def prepare(self, config: HardenTriggersConfig, path: Path, reporter: Reporter) -> HardenTriggersConfig:
        """Check that the model can be hardened, and that the first search can be done."""
        job, first = next(iter(self.stages(config, path).values()))
        config.trained(config.model, "").require_weights()
        job.prepare(first, path / f"{_SEARCHED}{START}", reporter)
        return config

    def work(self, run: RunFolder, prepared: HardenTriggersConfig, reporter: Reporter) -> HardenTriggersConfig:
        """Do the rest of the searches and trainings, in one session."""
        with session(prepared.workers, prepared.address) if prepared.workers else nullcontext():
            run_stages(self.stages(prepared, run.path), run.path, reporter)
        return prepared

    def measure(self, run: RunFolder, config: HardenTriggersConfig) -> Summary:
        """Return the figures of all models, by "MODEL.FIGURE"."""
        metrics = {name: RunFolder.load(run.path / name).metrics() for name in self.stages(config, run.path)}
        searched, trained = (
            {name.removeprefix(kind): estimate for name, estimate in metrics.items() if name.startswith(kind)}
            for kind in (_SEARCHED, _TRAINED)
        )
        figures, extra = hardening_figures(searched, trained, config.hit), dict[str, Any]()
        if config.are_inputs_typed:
            known_inputs = self._known(run, config)
            figures, extra = figures | known_inputs.figures(), {KNOWN: known_inputs.adversaries().to_json()}
        return Summary(
            f"{config.model} hardened against triggers",
            f"Rounds: {config.rounds}, {config.method}, {config.hit}, targets: {most_of(config.limit)}; seed {config.seed}.",
            figures,
            extra,
        )

    def _known(self, run: RunFolder, config: HardenTriggersConfig) -> KnownInputs:
        names = [START, *map(round_name, range(1, config.rounds + 1)), CONTROL]
        transfer: TriggerTransferConfig = self.stages(config, run.path)[KNOWN][1]
        models, searches = (dict(zip(of, names, strict=True)) for of in (transfer.model_names, transfer.run_names))
        return KnownInputs.of(RunFolder.load(run.path / KNOWN).read_rows().to_pylist(), models, searches)

    def models(self, config: HardenTriggersConfig) -> Mapping[str, str]:
        return {"model": config.trained(config.model, "").place}

    def metrics_of(self, config: HardenTriggersConfig) -> None:
        return None

    def tables(self, run: RunFolder) -> dict[str, EstimateTable]:
        """Return the models beside each other, and what is known of each."""
        metrics, known_inputs = run.metrics(), known_of(run.summary(), INPUTS)
        tables = {OUTCOME: hardening_table(metrics)} if metrics else {}
        return tables if known_inputs is None else {**tables, KNOWN_TABLE: known_inputs.table()}

    def present(self, result: Result, run: RunFolder) -> Result:
        """Show the run with the table instead of the metrics."""
        legend = {name: hardening_legend(name, str(run.config["hit"])) for name in result.metrics}
        return replace(result, tables=self.tables(run), legend=legend)


MINMAX_TRIGGERS = MinMaxTriggers()
