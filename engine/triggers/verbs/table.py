"""Every list of targets on one model or several: `parley search table` (He & Glass 2018, tables 3 and 11, and 1 by relaxation).

Each list of a model is a search of its own below the table's folder, and resumes by itself; the table is made of their
summaries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from parley.engine.core.runs.documents import SUMMARY
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.statistics import Estimate
from parley.engine.core.tables.table import EstimateTable
from parley.engine.core.verbs import sharded
from parley.engine.core.verbs.checkpoints import require_checkpoint, require_word_model
from parley.engine.core.verbs.composite import Composite, Stage, run_stages
from parley.engine.core.verbs.job import TABLE_FILE, Reporter, Result, Summary
from parley.engine.core.verbs.sharded import session
from parley.engine.triggers.methods import settings
from parley.engine.triggers.methods.settings import SearchSettings
from parley.engine.triggers.metrics.hits import (
    LISTS,
    MAL,
    MAL_IO,
    NORMAL,
    RANDOM,
    SearchedModel,
    describe,
    published_rates,
    search_table,
    unread_failure,
)
from parley.engine.triggers.verbs.config import MAL as MAL_TARGETS
from parley.engine.triggers.verbs.config import NORMAL as NORMAL_TARGETS
from parley.engine.triggers.verbs.config import NORMAL_SAMPLED, OWN, SearchingConfig, TriggerConfig, is_hugging_face, most_of
from parley.engine.triggers.verbs.config import RANDOM as RANDOM_TARGETS
from parley.engine.triggers.verbs.search import SEARCH, require_searchable
from parley.envs.core.config import NumItemsOrAll, shared
from parley.envs.core.errors import ConfigError
from parley.envs.core.registry import nearest
from parley.envs.core.storage.copies import CHECKPOINT
from parley.envs.core.storage.uris import display_path, local_copy
from parley.policies.chat.model import MODERATED

GREEDY, SAMPLED, SAMPLED_IO = "o-greedy", "o-sample-min-k1", "io-sample-min-k1"
"""The wanted type of hit of each list; the paper reads the other types off the same inputs."""
RELAXATION = "relaxation"
"""The method whose table is laid out as the paper's table 1."""
ATTENTIONS = "attentions"
"""Entry of the summary that holds the kind of attention of each model."""


@dataclass(frozen=True, kw_only=True)
class SearchTableConfig(SearchingConfig):
    """The models, and the lists of sentences that they are to say."""

    model: str = "runs/seq2seq"
    """Run or checkpoint folders of the searched models, or hf:FOLDER or gguf:FILE, separated by commas."""
    method: str = "gibbs-enum"
    """Methods of search as of parley search, separated by commas; each has a line (search.max_candidates: at one cost)."""
    lm: str = ""
    """Judge of inputs, as of parley search (own: each Hugging Face model its own); without one mal-io is left out."""
    lists: str = ",".join(LISTS)
    """Lists to search for, separated by commas; those measured in the same folder before stay in the table."""
    limit: NumItemsOrAll = 100
    """Number of targets of each list at most; 0 for all."""
    normal: Literal["greedy", "sampled"] = "greedy"
    """Replies of the models as targets: the likeliest ones, or drawn ones for models whose likeliest are few and general."""
    published: Literal["ubuntu", "switchboard", "opensubtitles", "none"] = "none"
    """Figures to show beside the measured ones: He & Glass 2018 on that corpus, or none."""

    @property
    def methods(self) -> tuple[str, ...]:
        return tuple(_names(self.method))

    @property
    def relaxed(self) -> str | None:
        """Return the kind of continuous input, with which the table is the paper's table 1; None for words."""
        return self.search.relaxation.mode if self.method == RELAXATION else None

    def __post_init__(self) -> None:
        super().__post_init__()
        if RELAXATION in self.methods and len(self.methods) > 1:
            fix = f"--method {RELAXATION} alone"
            raise ConfigError("continuous inputs have a table of their own", where="--method", got=self.method, fix=fix)
        for name in _names(self.lists):
            if name not in LISTS:
                raise ConfigError(f"no list is called {name!r}{nearest(name, LISTS)}", fix=f"lists: {','.join(LISTS)}")


def _lines(config: SearchTableConfig) -> dict[str, tuple[str, str]]:
    """Return model and method of each line of the table, by its label, which is the model's if there is one method."""
    lines = {}
    for label, model in model_labels(config.model).items():
        for method in config.methods:
            suffix = f"-{method.rpartition(':')[2]}" if len(config.methods) > 1 else ""
            lines[label + suffix] = (model, method)
    return lines


def model_labels(models: str) -> dict[str, str]:
    """Return the folders of the models of a list by label: the folder's name, numbered if two are equal."""
    folders = [local_copy(model.partition(":")[2] if is_hugging_face(model) else model) for model in _names(models)]
    names = [(folder.parent if folder.name == CHECKPOINT else folder).resolve().name.replace(".", "-") for folder in folders]
    seen: Counter[str] = Counter()
    labels = {}
    for name, folder, model in zip(names, folders, _names(models), strict=True):
        seen[name] += 1
        kind = model.partition(":")[0] + ":" if is_hugging_face(model) else ""
        labels[f"{name}-{seen[name]}" if names.count(name) > 1 else name] = kind + display_path(folder)
    return labels


def _unjudged(config: SearchTableConfig) -> str:
    """Return the reason why no inputs are judged; empty if they are."""
    if config.relaxed is not None:
        return "a continuous input has no words that a language model could judge"
    return "" if config.lm else "it needs a language model (--lm)"


def _attention(model: str) -> str:
    """Return the kind of attention of one of Parley's networks; empty for others, whose figures are not published."""
    if is_hugging_face(model):
        return ""
    from parley.policies.seq2seq.scoring import load_seq2seq

    return load_seq2seq(require_checkpoint(model, "--model", "parley train seq2seq")).sizes.attention


def _stage(label: str, listed: str) -> str:
    return f"{label}-{listed}"


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def he2018() -> SearchTableConfig:
    """Search lists of 100 words, up to 50 sweeps, 10 restarts, until a hit (He & Glass 2018)."""
    return SearchTableConfig(search=settings.he2018())


def quick() -> SearchTableConfig:
    """Take a first look: 2 restarts of up to 10 sweeps."""
    return SearchTableConfig(search=SearchSettings(restarts=2, max_sweeps=10))


def demo() -> SearchTableConfig:
    """Take a minute, on the models of parley train seq2seq demo and parley train lm demo: 10 targets a list."""
    search = SearchSettings(candidates=20, restarts=2, max_sweeps=5)
    return SearchTableConfig(lm="runs/lm", limit=10, search=search)


class SearchTable(Composite[SearchTableConfig, SearchTableConfig, SearchTableConfig]):
    """`parley search table`."""

    words = ("search", "table")
    run_name = "search-table"
    config = SearchTableConfig
    presets = {"he2018": he2018, "quick": quick, "demo": demo}
    files = (TABLE_FILE, SUMMARY)
    resume_safe = (*sharded.RESUME_SAFE, "lists")
    outcomes = MODERATED

    def stages(self, config: SearchTableConfig, path: Path) -> dict[str, Stage]:
        # Paper, table 1: whether greedy decoding of a continuous input gives the target.
        sampled = SAMPLED if config.relaxed is None else GREEDY
        changes_by_list: dict[str, dict[str, Any]] = {
            NORMAL: {"targets": NORMAL_TARGETS, "hit": GREEDY}
            if config.normal == "greedy"
            else {"targets": NORMAL_SAMPLED, "hit": SAMPLED},
            MAL: {"targets": MAL_TARGETS, "hit": sampled},
            MAL_IO: {"targets": MAL_TARGETS, "hit": SAMPLED_IO},
            RANDOM: {"targets": RANDOM_TARGETS, "hit": sampled},
        }
        settings = {name: value for name, value in shared(config, SearchingConfig).items() if name not in ("lm", "method")}
        lists = [name for name in LISTS if name in _names(config.lists) and not (name == MAL_IO and _unjudged(config))]
        return {
            _stage(label, listed): (
                SEARCH,
                TriggerConfig(
                    model=model, method=method, **changes_by_list[listed], **settings, lm="" if config.relaxed else config.lm
                ),
            )
            for label, (model, method) in _lines(config).items()
            for listed in lists
        }

    def finished(self, config: SearchTableConfig, path: Path, weights: Mapping[str, str]) -> bool:
        """Return False: lists of another `--lists` may have joined, and the stages know what is finished."""
        return False

    def prepare(self, config: SearchTableConfig, path: Path, reporter: Reporter) -> SearchTableConfig:
        for model in _names(config.model):
            if not is_hugging_face(model):
                require_word_model(model, "--model", "parley train seq2seq")
        why = _unjudged(config)
        if not why and config.lm != OWN and not is_hugging_face(config.lm):
            require_word_model(config.lm, "--lm", "parley train lm")
        for _, stage in self.stages(config, path).values():
            require_searchable(stage)
        if not self.stages(config, path):
            raise ConfigError(f"the list mal-io is left out: {why}", fix="name further --lists")
        if MAL_IO in _names(config.lists) and why:
            reporter.say(f"the list mal-io is left out: {why}")
        return config

    def work(self, run: RunFolder, prepared: SearchTableConfig, reporter: Reporter) -> SearchTableConfig:
        """Do the rest of the searches, in one session."""
        with session(prepared.workers, prepared.address) if prepared.workers else nullcontext():
            run_stages(self.stages(prepared, run.path), run.path, reporter)
        return prepared

    def measure(self, run: RunFolder, config: SearchTableConfig) -> Summary:
        """Return the metrics of every finished search, by "MODEL.LIST.METRIC"."""
        metrics: dict[str, Estimate] = {}
        lines = _lines(config)
        for label in lines:
            for listed in LISTS:
                folder = run.path / _stage(label, listed)
                if (folder / SUMMARY).is_file():
                    searched = RunFolder.load(folder).metrics()
                    metrics |= {f"{label}.{listed}.{name}": estimate for name, estimate in searched.items()}
        return Summary(
            f"trigger searches on {config.model}",
            f"Targets of a list: {most_of(config.limit)}; {config.method}, {config.search.restarts} restarts, "
            f"seed {config.seed}.",
            metrics,
            {ATTENTIONS: {label: _attention(model) for label, (model, _) in lines.items()}},
        )

    def tables(self, run: RunFolder) -> dict[str, EstimateTable]:
        attentions = (run.summary() or {}).get(ATTENTIONS, {})
        models: dict[str, dict[str, dict[str, Estimate]]] = {label: {} for label in attentions}
        for name, estimate in run.metrics().items():
            label, listed, metric = name.split(".", 2)
            models[label].setdefault(listed, {})[metric] = estimate
        # Older runs have it beside the other settings of the search.
        settings = run.config.get("relaxation") or run.config["search"].get("relaxation")
        relaxed = settings["mode"] if run.config.get("method") == RELAXATION else None
        searched = [
            SearchedModel(label, lists, published_rates(run.config["published"], attentions[label], relaxed))
            for label, lists in models.items()
        ]
        return {"": search_table(searched, GREEDY if run.config["normal"] == "greedy" else SAMPLED, relaxed)}

    def present(self, result: Result, run: RunFolder) -> Result:
        legend = {name: describe(name.split(".", 2)[2]) for name in result.metrics}
        return replace(result, tables=self.tables(run), legend=legend, failure=result.failure or unread_failure(result.metrics))


SEARCH_TABLE = SearchTable()
