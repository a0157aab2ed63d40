"""Hardening of a Hugging Face model against triggers by rounds: `parley minmax triggers`.

A search finds triggers of the model as it is; the model is trained not to follow them; a search of the trained model, the same
command, finds the remaining ones. A round learns from the triggers of the searches so far (`meta`), and begins with the model
that the first began with. The control is that model trained as long on clean contexts alone, searched in the same way.

The result is the round for whose model its own search found fewest targets, of those that do not answer clean contexts as
triggers are to be answered (`plain_loss`). It stays in the folder of its stage, because whole models are large.

In the end the inputs of all searches are typed to all models, those of the other models and of the control too: the share of
targets that any of them reaches is the model's figure. One search may find less than is known.

The frame of a campaign is in `engine/core/verbs/campaign.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from parley.engine.core.runs.documents import SUMMARY
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.known import KNOWN, SOLVED, KnownAdversaries, Loss, Round
from parley.engine.core.stats.statistics import NOTHING, Estimate, count
from parley.engine.core.tables.table import EstimateTable
from parley.engine.core.verbs import sharded
from parley.engine.core.verbs.campaign import OUTCOME, CampaignAdapter, CampaignConfig, CampaignJob, rounds_of
from parley.engine.core.verbs.composite import Stage, run_stages
from parley.engine.core.verbs.job import TABLE_FILE, Reporter, Result, flat
from parley.engine.core.verbs.sharded import ShardedConfig, session
from parley.engine.triggers.methods import settings
from parley.engine.triggers.methods.settings import SearchSettings, SearchSizes
from parley.engine.triggers.metrics.hits import HIT_RATE
from parley.engine.triggers.metrics.transfer import (
    ADAPTIVE,
    CLEAN_REFUSED,
    CONTROL,
    START,
    TRIGGERS,
    KnownInputs,
    hardening_figures,
    hardening_legend,
    hardening_table,
    round_name,
)
from parley.engine.triggers.success import SuccessRule, SuccessSettings
from parley.engine.triggers.verbs.config import MAL, HuggingFaceSettings, PromptSettings, TriggerConfig, most_of
from parley.engine.triggers.verbs.hardened import TRAIN_HARDENED
from parley.engine.triggers.verbs.lessons import HardeningSettings, LessonSettings, TrainHardenedConfig, hardening_recipe
from parley.engine.triggers.verbs.search import SEARCH
from parley.engine.triggers.verbs.transfer import SEARCH_TRANSFER, TriggerTransferConfig
from parley.envs.core.config import (
    Configuration,
    NonNegativeFloat,
    NumItems,
    NumItemsOrAll,
    PositiveFloat,
    PositiveInt,
    constants_of,
    shared,
    to_dict,
)
from parley.envs.core.errors import ConfigError
from parley.envs.core.storage.uris import HUGGING_FACE, display_path
from parley.policies.chat.model import MODERATED
from parley.policies.chat.settings import ChatAsking, PrecisionSettings

_SEARCHED, _TRAINED, _PAYOFFS = "search-", "hardened-", "payoffs-"
"""Prefixes of the folders of searches, of trainings, and of all inputs typed to all models before a round; the name of the
model follows."""


@dataclass(frozen=True, kw_only=True)
class RecipeSettings(Configuration):
    """The length of the training of a round."""

    learning_rate: PositiveFloat = hardening_recipe().learning_rate
    """Learning rate of Adam."""
    max_epochs: NumItems = hardening_recipe().max_epochs
    """Epochs at most; the best by held-out lessons is kept."""


@dataclass(frozen=True, kw_only=True)
class CampaignLessons(LessonSettings):
    """The lessons of a round, and its training."""

    fit: RecipeSettings = field(default_factory=RecipeSettings)
    """The recipe: small batches of Adam."""


@dataclass(frozen=True, kw_only=True)
class HardenTriggersConfig(CampaignConfig, ShardedConfig):
    """The model to search for triggers and to harden against them, and the number of rounds."""

    added: ClassVar[Mapping[str, Any]] = {
        "meta": "uniform",
        "patience": 1000,
        "least_gain": 0.0,
        "plain_loss": 1.0,
        "control": True,
    }

    model: str = ""
    """Causal model to begin with: hf:FOLDER or gguf:FILE."""
    rounds: NumItems = 1
    """Trainings at most, each followed by a search."""
    plain_loss: NonNegativeFloat = 0.2
    """Share of clean contexts that the result may answer as triggers are to be answered, more than the start."""
    targets: str = MAL
    """normal (the model's greedy replies), normal-sampled, mal, random, a file of sentences, or of pairs (CSV, JSONL)."""
    hit: str = "o-greedy"
    """Wanted hits, as of parley search."""
    method: str = "gibbs-enum"
    """Search, as of parley search."""
    limit: NumItemsOrAll = 500
    """Number of targets at most; 0 for all."""
    lm: str = ""
    """Judge of inputs: hf:FOLDER, or own, the searched model."""
    corpus: str = ""
    """Corpus whose test sources the normal targets answer, and whose test pairs set thresholds."""
    threads: PositiveInt = 1
    """CPU threads that trainings compute with."""
    search: SearchSizes = field(default_factory=SearchSizes)
    """Length and width of a search."""
    hugging_face: PromptSettings = field(default_factory=PromptSettings)
    """Prompts and precision of the model."""
    success: SuccessRule = field(default_factory=SuccessRule)
    """When the reply to what was typed is a success."""
    hardening: CampaignLessons = field(default_factory=CampaignLessons)
    """The training of the model."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.meta in SOLVED and not self.are_inputs_typed:
            fix = "meta=latest or uniform, or a template without {}"
            what = "a mixture by payoffs needs inputs that can be typed to every model"
            raise ConfigError(what, where="--meta", got=self.meta, fix=fix)

    def searched(self, model: str) -> TriggerConfig:
        """Return the search of a model."""
        names = ("targets", "hit", "method", "limit", "lm", "corpus")
        return TriggerConfig(
            model=model,
            search=SearchSettings(**shared(self.search, SearchSizes)),
            hugging_face=HuggingFaceSettings(**shared(self.hugging_face, PromptSettings)),
            success=SuccessSettings(**shared(self.success, SuccessRule)),
            chat=ChatAsking(date=self.hugging_face.date),
            **{name: getattr(self, name) for name in names},
            **shared(self, ShardedConfig),
        )

    def trained(
        self, model: str, searches: str, weights: tuple[float, ...] = (), *, control: bool = False
    ) -> TrainHardenedConfig:
        """Return the training of a round, or of the control.

        Args:
            model: the model that it begins with.
            searches: the searches whose triggers it learns from, separated by commas.
            weights: of the searches; empty if all are alike.
            control: learn from clean contexts alone.
        """
        where: dict[str, Any] = {"seed": self.seed, "threads": self.threads, "device": self.device, "data_root": self.data_root}
        return TrainHardenedConfig(
            model=model,
            searches=searches,
            weights=weights,
            control=control,
            date=self.hugging_face.date,
            fit=replace(hardening_recipe(), **shared(self.hardening.fit, RecipeSettings)),
            **shared(self.hardening, LessonSettings),
            **where,
        )

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
            success=SuccessSettings(**shared(self.success, SuccessRule)),
            chat=ChatAsking(**shared(self.hugging_face, PrecisionSettings)),
            **shared(self, ShardedConfig),
        )


def _constants() -> dict[str, Any]:
    """Return the settings of searches and trainings that are none of a campaign, with their defaults.

    They tune other methods than those that campaigns use (pez, relaxation, beams, momentum), ask servers that nobody hardens
    (chat), or change strategies of perturbation and adapters, for which no campaign ever had another value.
    """
    earlier = flat(to_dict(TriggerConfig()) | {"hardening": to_dict(HardeningSettings())})
    earlier |= constants_of(TriggerConfig) | constants_of(HardeningSettings, "hardening.")
    kept = flat(to_dict(HardenTriggersConfig()))
    return {key: value for key, value in earlier.items() if key not in kept}


HardenTriggersConfig.constants = _constants()


class TriggersCampaign(CampaignAdapter[HardenTriggersConfig]):
    """Models learn from the triggers of searches before; a search of each model measures it."""

    def begin(self) -> dict[str, Stage]:
        return {}

    def round(self, number: int, shares: Sequence[float]) -> dict[str, Stage]:
        config = self.config
        if not number:
            return {f"{_SEARCHED}{START}": (SEARCH, config.searched(config.model))}
        kept = {self._search(index): share for index, share in enumerate(shares) if share > 0}
        weights = tuple(kept.values()) if len(set(kept.values())) > 1 else ()
        return self._trained_and_searched(round_name(number), list(kept), weights)

    def _trained_and_searched(
        self, name: str, searches: Sequence[str], weights: tuple[float, ...] = (), *, control: bool = False
    ) -> dict[str, Stage]:
        config, trained = self.config, f"{_TRAINED}{name}"
        learned = config.trained(config.model, ",".join(map(self.place, searches)), weights, control=control)
        searched = config.searched(f"{HUGGING_FACE}{self.place(trained)}")
        return {trained: (TRAIN_HARDENED, learned), f"{_SEARCHED}{name}": (SEARCH, searched)}

    def payoffs(self, number: int, run: RunFolder, reporter: Reporter) -> np.ndarray:
        """Return whether the model of each round says a target after what the search of each round found for it."""
        names = [START, *map(round_name, range(1, number))]
        stage = f"{_PAYOFFS}{round_name(number)}"
        searches = [f"{_SEARCHED}{name}" for name in names]
        run_stages({stage: (SEARCH_TRANSFER, self.config.typed(searches, self.path))}, self.path, reporter)
        return self._typed(stage, names).reached_MAT[:, :number].transpose(2, 0, 1).astype(float)

    def measured(self, number: int) -> dict[str, Estimate]:
        metrics = RunFolder.load(self.path / self._search(number)).metrics()
        # The start answers no clean context by what it has not learned.
        trained: Mapping[str, Estimate] = {CLEAN_REFUSED: count(0.0, 1)}
        if number:
            trained = RunFolder.load(self.path / f"{_TRAINED}{round_name(number)}").metrics()
        figures = {ADAPTIVE: metrics.get(f"{HIT_RATE}{self.config.hit}", NOTHING)}
        return figures | {name: trained[name] for name in TRIGGERS.of_round if name in trained}

    def choose(self, playing: Sequence[Round], last: int, loss: Loss, run: RunFolder, reporter: Reporter) -> int:
        # A search that finds as much as one of the start may still miss what the start says.
        return super().choose([round_ for round_ in playing if round_.number] or playing, last, loss, run, reporter)

    def last(self, best: int) -> dict[str, Stage]:
        config, made = self.config, self._made
        searches = [self._search(number) for number in range(made + 1)]
        # As long as the last round.
        stages = self._trained_and_searched(CONTROL, searches[:-1], control=True) if config.control else {}
        if config.are_inputs_typed:
            typed = [*searches, *([f"{_SEARCHED}{CONTROL}"] if config.control else [])]
            stages[KNOWN] = SEARCH_TRANSFER, config.typed(typed, self.path)
        return stages

    def outcome(self, best: int) -> dict[str, Estimate]:
        searched = {name: RunFolder.load(self.path / f"{_SEARCHED}{name}").metrics() for name in self._names}
        trained = {name: RunFolder.load(self.path / f"{_TRAINED}{name}").metrics() for name in self._names[1:]}
        figures = hardening_figures(searched, trained, self.config.hit)
        return figures | (self._typed(KNOWN, self._names).figures() if self.config.are_inputs_typed else {})

    def known(self, best: int) -> KnownAdversaries | None:
        return self._typed(KNOWN, self._names).adversaries() if self.config.are_inputs_typed else None

    def store(self, best: int, folder: Path) -> None:
        """Leave the model in the folder of its stage."""

    @property
    def _made(self) -> int:
        return len(rounds_of(RunFolder.load(self.path))) - 1

    @property
    def _names(self) -> list[str]:
        return [START, *map(round_name, range(1, self._made + 1)), *([CONTROL] if self.config.control else [])]

    def _search(self, number: int) -> str:
        return f"{_SEARCHED}{round_name(number) if number else START}"

    def _typed(self, stage: str, names: Sequence[str]) -> KnownInputs:
        transfer = self.config.typed([f"{_SEARCHED}{name}" for name in names], self.path)
        models, searches = (dict(zip(of, names, strict=True)) for of in (transfer.model_names, transfer.run_names))
        return KnownInputs.of(RunFolder.load(self.path / stage).rows(), models, searches)


def gcg() -> HardenTriggersConfig:
    """Search in nanoGCG's sizes (Zou et al. 2023), with low-rank adapters (Hu et al. 2021)."""
    return HardenTriggersConfig(method="gcg", limit=100, search=SearchSizes(**shared(settings.gcg(), SearchSizes)))


def quick() -> HardenTriggersConfig:
    """Take a first look: gibbs-enum, 20 targets, one restart of up to 5 sweeps over 20 candidates."""
    return HardenTriggersConfig(limit=20, search=SearchSizes(candidates=20, restarts=1, max_sweeps=5))


def demo() -> HardenTriggersConfig:
    """Take minutes with a model of some 100 million weights: 6 targets, learn from every input; the figures mean little."""
    hardening = CampaignLessons(found="all", limit=12, max_tokens=12, fit=RecipeSettings(max_epochs=1))
    search = SearchSizes(candidates=8, restarts=1, max_sweeps=1)
    return HardenTriggersConfig(limit=6, search=search, hardening=hardening)


class MinMaxTriggers(CampaignJob[HardenTriggersConfig]):
    """`parley minmax triggers`."""

    words = ("minmax", "triggers")
    run_name = "minmax-triggers"
    config = HardenTriggersConfig
    presets = {"gcg": gcg, "quick": quick, "demo": demo}
    campaign, measures = TriggersCampaign, TRIGGERS
    files = (TABLE_FILE, SUMMARY)
    resume_safe = sharded.RESUME_SAFE
    outcomes = MODERATED
    unhelped = "no round may be the result, which is the start"

    def prepare(self, config: HardenTriggersConfig, path: Path, reporter: Reporter) -> HardenTriggersConfig:
        config.trained(config.model, "").require_weights()
        job, first = next(iter(TriggersCampaign(config, path).round(0, ()).values()))
        job.prepare(first, path / f"{_SEARCHED}{START}", reporter)
        return config

    def session(self, config: HardenTriggersConfig) -> AbstractContextManager[Any]:
        return session(config.workers, config.address) if config.workers else nullcontext()

    def heading(self, config: HardenTriggersConfig) -> str:
        return f"{config.model} hardened against triggers"

    def description(self, config: HardenTriggersConfig, best: int) -> str:
        result = f"The model of round {best} is the result" if best else "The start is the result"
        return f"{result}. {config.method}, {config.hit}, targets: {most_of(config.limit)}; seed {config.seed}."

    def models(self, config: HardenTriggersConfig) -> Mapping[str, str]:
        return {"model": config.trained(config.model, "").place}

    def metrics_of(self, config: HardenTriggersConfig) -> None:
        return None

    def tables(self, run: RunFolder) -> dict[str, EstimateTable]:
        tables = super().tables(run)
        return {name: hardening_table(run.metrics()) if name == OUTCOME else table for name, table in tables.items()}

    def present(self, result: Result, run: RunFolder) -> Result:
        legend = {name: hardening_legend(name, str(run.config["hit"])) for name in result.metrics}
        return replace(super().present(result, run), legend=legend)


MINMAX_TRIGGERS = MinMaxTriggers()
