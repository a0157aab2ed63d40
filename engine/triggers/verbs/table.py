"""Every list of targets on one model or several: `parley search table` (He & Glass 2018, tables 3 and 11, and 1 by relaxation).

Each list of a model is a search of its own below the run's folder. `recipes/search_table.yaml` says what the tables show; this
module says what is searched.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from parley.engine.core.runs.documents import SUMMARY
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.checkpoints import checkpoint_folder, require_word_model
from parley.engine.core.verbs.job import Reporter, Result
from parley.engine.core.verbs.recipe_job import PlannedRecipe, SettingsRecipe
from parley.engine.core.verbs.sharded import RESUME_SAFE
from parley.engine.triggers.methods import settings
from parley.engine.triggers.methods.settings import SearchSettings
from parley.engine.triggers.metrics.hits import LISTS, MAL, MAL_IO, NORMAL, PROJECTED, RANDOM, published_rates, unread_failure
from parley.engine.triggers.verbs.config import MAL as MAL_TARGETS
from parley.engine.triggers.verbs.config import NORMAL as NORMAL_TARGETS
from parley.engine.triggers.verbs.config import (
    NORMAL_SAMPLED,
    OWN,
    SearchingConfig,
    is_hugging_face,
    model_labels,
    most_of,
    names_of,
)
from parley.engine.triggers.verbs.config import RANDOM as RANDOM_TARGETS
from parley.engine.triggers.verbs.search import SEARCH, require_searchable
from parley.envs.core.config import NumItemsOrAll
from parley.envs.core.errors import ConfigError
from parley.envs.core.registry import nearest
from parley.policies.chat.model import MODERATED

GREEDY, SAMPLED, SAMPLED_IO = "o-greedy", "o-sample-min-k1", "io-sample-min-k1"
"""The wanted type of hit of each list; the paper reads the other types off the same inputs."""
RELAXATION = "relaxation"
"""The method whose published figures are those of the paper's table 1."""
_SAMPLED = (f"{side}-sample-{statistic}-{k}" for side in ("o", "io") for statistic in ("min", "avg") for k in ("k1", "k2"))
_KINDS = tuple(prefix + kind for kind in (GREEDY, *_SAMPLED) for prefix in ("", PROJECTED))
"""Types of hit that a search may read off its inputs."""


@dataclass(frozen=True, kw_only=True)
class SearchTableConfig(SearchingConfig):
    """The models, and the lists of sentences that they are to say."""

    model: str = "runs/seq2seq"
    """Run or checkpoint folders of the searched models, or hf:FOLDER or gguf:FILE, separated by commas."""
    method: str = "gibbs-enum"
    """Methods of search as of parley search, separated by commas; each has tables (search.max_candidates: at one cost)."""
    lm: str = ""
    """Judge of inputs, as of parley search (own: each Hugging Face model its own); without one mal-io is left out."""
    lists: str = ",".join(LISTS)
    """Lists to search for, separated by commas; those measured in the same folder before stay in the tables."""
    limit: NumItemsOrAll = 100
    """Number of targets of each list at most; 0 for all."""
    normal: Literal["greedy", "sampled"] = "greedy"
    """Replies of the models as targets: the likeliest ones, or drawn ones for models whose likeliest are few and general."""
    published: Literal["ubuntu", "switchboard", "opensubtitles", "none"] = "none"
    """Figures to show beside the measured ones: He & Glass 2018 on that corpus, or none."""

    @property
    def methods(self) -> tuple[str, ...]:
        return tuple(names_of(self.method))

    @property
    def relaxed(self) -> str:
        """Return the kind of continuous input; empty for words."""
        return self.search.relaxation.mode if self.method == RELAXATION else ""

    @property
    def unjudged(self) -> str:
        """Return the reason why no inputs are judged; empty if they are."""
        if self.relaxed:
            return "a continuous input has no words that a language model could judge"
        return "" if self.lm else "it needs a language model (--lm)"

    def __post_init__(self) -> None:
        super().__post_init__()
        if RELAXATION in self.methods and len(self.methods) > 1:
            fix = f"--method {RELAXATION} alone"
            raise ConfigError("continuous inputs have a table of their own", where="--method", got=self.method, fix=fix)
        for name in names_of(self.lists):
            if name not in LISTS:
                raise ConfigError(f"no list is called {name!r}{nearest(name, LISTS)}", fix=f"lists: {','.join(LISTS)}")


def _attention(model: str) -> str:
    """Return the kind of attention of one of Parley's networks; empty for others, whose figures are not published."""
    if is_hugging_face(model) or (folder := checkpoint_folder(model)) is None:
        return ""
    from parley.policies.seq2seq.scoring import load_seq2seq

    return load_seq2seq(folder).sizes.attention


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


class SearchRecipe(SettingsRecipe):
    """A verb whose stages are searches."""

    outcomes = MODERATED
    at_need = True

    def pooled(self, prepared: PlannedRecipe) -> Collection[str]:
        """Return all searches for words or tokens; a texts' search has threads that ask."""
        return [name for name, (job, _) in prepared.stages.items() if prepared.config.workers and job is SEARCH]

    def prepare(self, config: Any, path: Path, reporter: Reporter) -> PlannedRecipe:
        planned = self.planned(config, path)
        for job, search in planned.stages.values():
            if job is SEARCH:
                require_searchable(search)
        return planned

    def present(self, result: Result, run: RunFolder) -> Result:
        result = super().present(result, run)
        return replace(result, failure=result.failure or unread_failure(result.metrics))


class SearchTable(SearchRecipe):
    """`parley search table`."""

    resume_safe = (*RESUME_SAFE, "lists")

    def given(self, config: SearchTableConfig, path: Path | None) -> dict[str, Any]:
        """Return the searches of each model and method, and its published table."""
        # Paper, table 1: whether greedy decoding of a continuous input gives the target.
        sampled = GREEDY if config.relaxed else SAMPLED
        wanted = {
            NORMAL: (NORMAL_TARGETS, GREEDY) if config.normal == "greedy" else (NORMAL_SAMPLED, SAMPLED),
            MAL: (MAL_TARGETS, sampled),
            MAL_IO: (MAL_TARGETS, SAMPLED_IO),
            RANDOM: (RANDOM_TARGETS, sampled),
        }
        chosen, models = {*names_of(config.lists)} - ({MAL_IO} if config.unjudged else set()), list[dict[str, Any]]()
        for name, model in model_labels(config.model).items():
            attention = "" if config.published == "none" else _attention(model)
            rates = published_rates(config.published, attention, config.relaxed)
            for method in config.methods:
                label = name + (f"-{method.rpartition(':')[2]}" if len(config.methods) > 1 else "")
                searches = [
                    {"label": label, "list": listed, "model": model, "method": method, "targets": targets, "hit": hit}
                    for listed, (targets, hit) in wanted.items()
                    if listed in chosen or (path is not None and (path / f"{label}-{listed}" / SUMMARY).is_file())
                ]
                rows = [
                    {"list": listed, "kind": kind, "printed": {"least": printed[kind]} if kind in printed else {}}
                    for listed, printed in ((search["list"], rates.get(search["list"], {})) for search in searches)
                    for kind in _KINDS
                ]
                models.append({"label": label, "searches": searches, "rows": rows})
        if not any(model["searches"] for model in models):
            raise ConfigError(f"the list mal-io is left out: {config.unjudged}", fix="name further --lists")
        return {
            "model": config.model,
            "judge": "" if config.relaxed else config.lm,
            "about": f"Targets of a list: {most_of(config.limit)}; {config.method}, {config.search.restarts} restarts, "
            f"seed {config.seed}.",
            "models": models,
            "searches": [search for model in models for search in model["searches"]],
        }

    def prepare(self, config: SearchTableConfig, path: Path, reporter: Reporter) -> PlannedRecipe:
        for model in names_of(config.model):
            if not is_hugging_face(model):
                require_word_model(model, "--model", "parley train seq2seq")
        if not config.unjudged and config.lm != OWN and not is_hugging_face(config.lm):
            require_word_model(config.lm, "--lm", "parley train lm")
        if MAL_IO in names_of(config.lists) and config.unjudged:
            reporter.say(f"the list mal-io is left out: {config.unjudged}")
        return super().prepare(config, path, reporter)


SEARCH_TABLE = SearchTable(
    "search table", "triggers/search_table", SearchTableConfig, {"he2018": he2018, "quick": quick, "demo": demo}
)
