"""Every list of targets on one model or several: `parley search table` (He & Glass 2018, tables 3 and 11, and 1 by relaxation).

Each list of a model is a search of its own below the table's folder, and resumes by itself; the table is what their summaries
say.
"""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from engine.jobs import sharded
from engine.jobs.checkpoints import require_checkpoint
from engine.jobs.command import command_line
from engine.jobs.job import Job, Reporter, Result
from engine.jobs.sharded import ShardedConfig, session
from engine.jobs.tables import TABLE_FILE, write_table
from engine.jobs.triggers.config import MAL as MAL_TARGETS
from engine.jobs.triggers.config import NORMAL as NORMAL_TARGETS
from engine.jobs.triggers.config import (
    NORMAL_SAMPLED,
    ObjectiveSettings,
    TriggerConfig,
    TriggerEngineSettings,
    require_method,
)
from engine.jobs.triggers.config import RANDOM as RANDOM_TARGETS
from engine.jobs.triggers.search import SEARCH
from engine.metrics.statistics import Estimate
from engine.metrics.tables import TextTable
from engine.metrics.triggers.hits import describe
from engine.metrics.triggers.published import MAL, MAL_IO, NORMAL, RANDOM
from engine.metrics.triggers.table import LISTS, SearchedModel, figures_of, search_table
from engine.store.layout import SUMMARY
from engine.store.run_folder import RunFolder
from engine.store.summary import reading_summary
from engine.triggers import settings
from engine.triggers.settings import SearchSettings
from envs.core.config import check_count
from envs.core.errors import ConfigError
from envs.core.registry import nearest
from envs.storage.copies import CHECKPOINT
from envs.storage.places import display_path, local_copy

GREEDY, SAMPLED, SAMPLED_IO = "o-greedy", "o-sample-min-k1", "io-sample-min-k1"
"""What the lists are searched for; the paper reads the other types off the same inputs."""
RELAXATION = "relaxation"
"""The method whose table is laid out as the paper's table 1."""
ATTENTIONS = "attentions"
"""Entry of the summary that holds the kind of attention of each model."""


@dataclass(frozen=True, kw_only=True)
class SearchTableConfig(ShardedConfig):
    """Which models are to say what."""

    model: str = "runs/seq2seq"
    """Run or checkpoint folders of the searched models, separated by commas."""
    lm: str = ""
    """The same of the language model that judges inputs; without one the list mal-io is left out."""
    method: str = "gibbs-enum"
    """gibbs-enum, random, hotflip, gcg, beam, path/file.py:Class, or relaxation (mal and random as o-greedy hits)."""
    lists: str = ",".join(LISTS)
    """Lists to search for, separated by commas; those measured in the same folder before stay in the table."""
    num_targets: int = 100
    """At most so many targets of each list; 0 for all."""
    normal: Literal["greedy", "sampled"] = "greedy"
    """What the models' own replies are: the likeliest ones, or drawn ones for models whose likeliest are few and general."""
    published: Literal["ubuntu", "switchboard", "opensubtitles", "none"] = "none"
    """Figures to show beside the measured ones: He & Glass 2018 on that corpus, or none."""
    corpus: str = ""
    """Corpus whose test sources the normal targets answer; the one that the model was fitted to when empty."""
    search: SearchSettings = field(default_factory=SearchSettings)
    """How long a search goes on, and how much it tries."""
    objective: ObjectiveSettings = field(default_factory=ObjectiveSettings)
    """What is minimised."""
    engine: TriggerEngineSettings = field(default_factory=TriggerEngineSettings)
    """How the work is done."""

    @property
    def relaxed(self) -> str | None:
        """What is optimised where inputs are continuous: then the table is the paper's table 1."""
        return self.search.relaxation.mode if self.method == RELAXATION else None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self, "num_targets", least=0)
        require_method(self.method)
        for name in _names(self.lists):
            if name not in LISTS:
                raise ConfigError(f"no list is called {name!r}{nearest(name, LISTS)}", fix=f"lists: {','.join(LISTS)}")


RESUME_SAFE = (*sharded.RESUME_SAFE, "lists")


def stages(config: SearchTableConfig) -> dict[str, TriggerConfig]:
    """The configuration of each search by the name of its folder, in the order in which they are done."""
    # Paper, table 1: whether greedy decoding of a continuous input says the target.
    sampled = SAMPLED if config.relaxed is None else GREEDY
    wanted: dict[str, dict[str, Any]] = {
        NORMAL: {"targets": NORMAL_TARGETS, "hit": GREEDY}
        if config.normal == "greedy"
        else {"targets": NORMAL_SAMPLED, "hit": SAMPLED},
        MAL: {"targets": MAL_TARGETS, "hit": sampled},
        MAL_IO: {"targets": MAL_TARGETS, "hit": SAMPLED_IO},
        RANDOM: {"targets": RANDOM_TARGETS, "hit": sampled},
    }
    names = [name for name in SearchTableConfig.__dataclass_fields__ if name in TriggerConfig.__dataclass_fields__]
    shared: dict[str, Any] = {name: getattr(config, name) for name in names if name not in ("model", "lm")}
    lists = [name for name in LISTS if name in _names(config.lists) and not (name == MAL_IO and _unjudged(config))]
    return {
        _stage(label, listed): TriggerConfig(model=model, lm="" if config.relaxed else config.lm, **wanted[listed], **shared)
        for label, model in model_labels(config.model).items()
        for listed in lists
    }


def run(config: SearchTableConfig, path: Path, reporter: Reporter) -> Result:
    """Does what is left of the searches and writes the table."""
    for model in _names(config.model):
        require_checkpoint(model, "--model", "parley train seq2seq")
    if not _unjudged(config):
        require_checkpoint(config.lm, "--lm", "parley train lm")
    planned = stages(config)
    if not planned:
        raise ConfigError(f"the list mal-io is left out: {_unjudged(config)}", fix="name further --lists")
    if MAL_IO in _names(config.lists) and (why := _unjudged(config)):
        reporter.say(f"the list mal-io is left out: {why}")
    with (
        RunFolder.open(path, config, job=SEARCH_TABLE.name, resume_safe=SEARCH_TABLE.resume_safe) as folder,
        session(config.workers, config.address),
    ):
        for number, (name, search) in enumerate(planned.items(), start=1):
            reporter.say(f"stage {number} of {len(planned)}: {name}")
            SEARCH.run(search, path / name, reporter)
        about = {
            "title": f"trigger searches on {config.model}",
            "description": f"At most {config.num_targets:,} targets a list, {config.method}, "
            f"{config.search.restarts} restarts, seed {config.seed}.",
            "command": command_line(SEARCH_TABLE, config, path),
        }
        measured = _measured(path, config)
        metrics = {
            f"{label}.{listed}.{name}": estimate
            for label, lists in measured.items()
            for listed, found in lists.items()
            for name, estimate in found.items()
        }
        attentions = {label: _attention(model) for label, model in model_labels(config.model).items()}
        folder.write_summary(metrics, about | {ATTENTIONS: attentions})
        table = table_of(folder)
        write_table(path / TABLE_FILE, table, about)
    result = SEARCH_TABLE.result(config, path)
    return replace(result, tables=(table,), legend={name: describe(name.split(".", 2)[2]) for name in result.metrics})


def table_of(run: RunFolder) -> TextTable:
    """The table of a run that has written its summary.

    Raises:
        RunError: the summary is damaged.
    """
    # Older runs have it beside the other settings of the search.
    settings = run.config.get("relaxation") or run.config["search"].get("relaxation")
    relaxed = settings["mode"] if run.config.get("method") == RELAXATION else None
    with reading_summary(run.path) as summary:
        models: dict[str, dict[str, dict[str, Estimate]]] = {label: {} for label in summary[ATTENTIONS]}
        for name, parts in summary["metrics"].items():
            label, listed, metric = name.split(".", 2)
            models[label].setdefault(listed, {})[metric] = Estimate.from_json(parts)
        searched = [
            SearchedModel(label, lists, figures_of(run.config["published"], summary[ATTENTIONS][label], relaxed))
            for label, lists in models.items()
        ]
        return search_table(searched, GREEDY if run.config["normal"] == "greedy" else SAMPLED, relaxed)


def model_labels(models: str) -> dict[str, str]:
    """What the models of a list are called, and where they lie: by their folders, numbered where two are called alike."""
    folders = [local_copy(model) for model in _names(models)]
    names = [(folder.parent if folder.name == CHECKPOINT else folder).resolve().name.replace(".", "-") for folder in folders]
    seen: Counter[str] = Counter()
    labels = {}
    for name, folder in zip(names, folders, strict=True):
        seen[name] += 1
        labels[f"{name}-{seen[name]}" if names.count(name) > 1 else name] = display_path(folder)
    return labels


def _unjudged(config: SearchTableConfig) -> str:
    """Why no inputs are judged; nothing where they are."""
    if config.relaxed is not None:
        return "a continuous input has no words that a language model could judge"
    return "" if config.lm else "it needs a language model (--lm)"


def _measured(path: Path, config: SearchTableConfig) -> dict[str, dict[str, dict[str, Estimate]]]:
    """The metrics of every search that is finished, by model and list."""
    found: dict[str, dict[str, dict[str, Estimate]]] = {}
    for label in model_labels(config.model):
        found[label] = {}
        for listed in LISTS:
            folder = path / _stage(label, listed)
            if (folder / SUMMARY).is_file():
                metrics = (RunFolder.load(folder).summary() or {})["metrics"]
                found[label][listed] = {name: Estimate.from_json(parts) for name, parts in metrics.items()}
    return found


def _attention(model: str) -> str:
    from policies.seq2seq.checkpoints import load_seq2seq

    return load_seq2seq(require_checkpoint(model, "--model", "parley train seq2seq")).sizes.attention


def _stage(label: str, listed: str) -> str:
    return f"{label}-{listed}"


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def _next_commands(config: SearchTableConfig, path: Path) -> tuple[str, ...]:
    return (shlex.join(["parley", "report", display_path(path)]),)


def he2018() -> SearchTableConfig:
    """Lists of 100 words, up to 50 sweeps, 10 restarts, until a hit (He & Glass 2018)."""
    return SearchTableConfig(search=settings.he2018())


def quick() -> SearchTableConfig:
    """A first look: 2 restarts of up to 10 sweeps."""
    return SearchTableConfig(search=SearchSettings(restarts=2, max_sweeps=10))


def demo() -> SearchTableConfig:
    """A minute, on the models of parley train seq2seq demo and parley train lm demo: 10 targets a list."""
    effort = SearchSettings(candidates=20, restarts=2, max_sweeps=5)
    return SearchTableConfig(lm="runs/lm", num_targets=10, search=effort)


SEARCH_TABLE = Job(
    "search-table",
    SearchTableConfig,
    {"he2018": he2018, "quick": quick, "demo": demo},
    run,
    {},
    (TABLE_FILE, SUMMARY),
    _next_commands,
    RESUME_SAFE,
)
