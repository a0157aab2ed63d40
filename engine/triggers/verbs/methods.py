"""Methods of trigger search on one model, under one budget, in one table: `parley search methods`.

Each method is a search of its own below the table's folder, and resumes by itself. Methods that read losses go from tokens to
tokens (`parley search`), those that read replies alone from words to words (`parley search text`): they take models behind a
server too. Methods declare the access that they need and models the access that they give (`Access`), so that a pair which
cannot work is refused before anything is loaded. Lines of one method may differ by settings
(`parley.engine.triggers.catalogue`).
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast

from parley.engine.core.runs.documents import SUMMARY
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.statistics import Estimate
from parley.engine.core.tables.table import EstimateTable
from parley.engine.core.verbs.composite import Composite, Stage, run_stages
from parley.engine.core.verbs.job import TABLE_FILE, Reporter, Result, Summary
from parley.engine.core.verbs.sharded import RESUME_SAFE, ShardedConfig, session
from parley.engine.triggers.catalogue import ATTACKER, EVOLUTION, PRS, QCG, TEXT_METHODS, MethodLine, read_lines
from parley.engine.triggers.methods.composition import shown_access
from parley.engine.triggers.methods.evolution import EvolutionSettings
from parley.engine.triggers.methods.prs import PrsSettings
from parley.engine.triggers.methods.qcg import QcgSettings
from parley.engine.triggers.methods.settings import RelaxationSettings, SearchSettings
from parley.engine.triggers.methods.writing import WritingSettings
from parley.engine.triggers.metrics.hits import successful_reply, unread_failure
from parley.engine.triggers.metrics.text import (
    BETWEEN,
    NO_INPUT,
    describe_method,
    loss_figures,
    methods_table,
    random_line,
    reply_figures,
)
from parley.engine.triggers.success import FitnessSettings
from parley.engine.triggers.verbs.config import (
    HuggingFaceSettings,
    SearchingConfig,
    TextSearchConfig,
    TriggerConfig,
    is_hugging_face,
)
from parley.engine.triggers.verbs.search import SEARCH, require_searchable
from parley.engine.triggers.verbs.text_search import SEARCH_TEXT
from parley.envs.core.config import NumItems, assign, shared
from parley.envs.core.errors import ConfigError
from parley.policies.chat.model import MODERATED, Access

READS = "reads"
"""Entry of the summary: the access to the model that each line needs."""


@dataclass(frozen=True, kw_only=True)
class MethodsConfig(SearchingConfig):
    """The methods to compare, the model, and the sentences that it is to say."""

    model: str = ""
    """hf:FOLDER or gguf:FILE; of openai:URL#MODEL and path/file.py:Name replies alone are seen."""
    targets: str = ""
    """A file of (prompt, target) pairs (CSV, JSONL), or of sentences, one a line."""
    method: str = f"gcg,gibbs-enum,random,{EVOLUTION}"
    """Methods, separated by commas: those of parley search, its recipes mac and he2018, evolution, prs, qcg (--proxy), and
    attacker (a model that writes, --attacker); NAME[search.KEY=VALUE] is a line with a setting of its own."""
    budget: NumItems = 200
    """Inputs that each method may try for a target."""
    hit: str = "o-greedy"
    """Type of hit that ends a search by losses, as of parley search."""
    proxy: str = ""
    """qcg: the chat model with scores that orders inputs, hf:FOLDER or gguf:FILE."""
    attacker: str = ""
    """The chat model that writes inputs and reads their replies, by its address."""
    words: str = ""
    """evolution: a file of words; those of the targets, their prompts and the list mal when empty."""
    search: SearchSettings = field(default_factory=lambda: SearchSettings(restarts=1))
    """Settings of methods that read losses; each has one start and the whole budget."""
    hugging_face: HuggingFaceSettings = field(default_factory=lambda: HuggingFaceSettings(end=False))
    """Loading and prompts of the model; replies have to begin with their targets, or to be them if end is true."""
    evolution: EvolutionSettings = field(default_factory=EvolutionSettings)
    """Settings of evolution, and of inputs of all methods by replies; their replies are the budget."""
    prs: PrsSettings = field(default_factory=PrsSettings)
    """Settings of prs."""
    qcg: QcgSettings = field(default_factory=QcgSettings)
    """Settings of qcg."""
    fitness: FitnessSettings = field(default_factory=FitnessSettings)
    """The fitness of an input, for the methods that read replies alone."""
    writing: WritingSettings = field(default_factory=WritingSettings)
    """Settings of the attacker."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for method, option in {ATTACKER: "attacker", QCG: "proxy"}.items():
            if (method in (line.method for line in self.lines)) != bool(address := getattr(self, option)):
                fix = f"name both {method} in --method and --{option} ADDRESS, or neither"
                raise ConfigError(
                    f"{method} needs a model of its own, and no other method", got=f"--{option} {address!r}", fix=fix
                )
        relaxation, usual = self.search.relaxation, RelaxationSettings()
        limits = (self.search.restarts, self.search.max_candidates, self.evolution.max_queries)
        if (*limits, relaxation.rounds, relaxation.steps) != (1, 0, EvolutionSettings().max_queries, usual.rounds, usual.steps):
            got = f"restarts {limits[0]}, max_candidates {limits[1]}, max_queries {limits[2]}"
            got += f", {relaxation.rounds} rounds of {relaxation.steps} steps"
            raise ConfigError("methods have one start and the budget", where="--set", got=got, fix="--budget N")
        for line in self.lines:
            if line.settings:
                self.of(line)

    @property
    def lines(self) -> tuple[MethodLine, ...]:
        """Return the lines of the table."""
        return read_lines(self.method)

    @property
    def methods(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(line.method for line in self.lines if line.method not in TEXT_METHODS))

    def of(self, line: MethodLine) -> MethodsConfig:
        """Return the same for one line alone, with its settings."""
        models: dict[str, Any] = {
            "attacker": self.attacker if line.method == ATTACKER else "",
            "proxy": self.proxy if line.method == QCG else "",
        }
        alone = replace(self, method=line.method, **models)
        return assign(alone, line.settings, f"--method {line.label}:")


def _access(method: str) -> Access:
    from parley.engine.triggers.catalogue import make_method

    if method in TEXT_METHODS:
        return Access.FIRST_TOKENS if method in (PRS, QCG) else Access.TEXT
    return make_method(method).access


def _require_fit(config: MethodsConfig) -> None:
    """Raise ConfigError if the model shows too little, inputs are not typed, or a method ignores a setting."""
    from parley.engine.triggers.catalogue import make_method

    if not config.model:
        raise ConfigError("no model is named", where="--model", fix="--model hf:FOLDER, gguf:FILE, openai:URL#MODEL")
    if not config.targets:
        raise ConfigError("no list of targets is named", where="--targets", fix="--targets FILE.csv, .jsonl or .txt")
    by_logprobs = any(line.method in (PRS, QCG) for line in config.lines) and config.chat.logprobs == "no"
    shown = shown_access(config.model, replace(config.chat, logprobs="first") if by_logprobs else config.chat)
    if unseen := [name for name in dict.fromkeys(line.method for line in config.lines) if _access(name) > shown]:
        named = ", ".join(f"{name} ({_access(name).name.lower()})" for name in unseen)
        what = f"methods read more than the model shows, which is {shown.name.lower()}: {named}"
        raise ConfigError(what, where="--model", got=config.model, fix=f"--method {EVOLUTION}, or {ATTACKER} with --attacker")
    if config.methods and not is_hugging_face(config.model):
        fix = "hf:FOLDER or gguf:FILE; parley search compare compares methods on Parley's own networks"
        raise ConfigError("methods are compared by the replies of chat models", where="--model", got=config.model, fix=fix)
    for line in config.lines:
        method = None if line.method in TEXT_METHODS else make_method(line.method, config.of(line).search)
        if method and not method.finds_words:
            fix = "--set search.relaxation.mode=one-hot; parley search table --method relaxation shows free embeddings, too"
            raise ConfigError("free embeddings are no words that could be typed", where="--method", got=line.label, fix=fix)
        uses = method.uses if method else ()
        for key in (setting.partition("=")[0] for setting in line.settings if setting.startswith("search.")):
            if key.split(".")[1] not in uses:
                fix = f"{line.method} reads {', '.join(f'search.{name}' for name in uses)}"
                raise ConfigError(f"{line.method} does not read {key}", where="--method", got=line.label, fix=fix)


def pairs() -> MethodsConfig:
    """200 inputs for each target, by gcg, gibbs-enum, random tokens and evolution."""
    return MethodsConfig(limit=20)


def quick() -> MethodsConfig:
    """Take a first look: 5 targets, 40 inputs for each."""
    evolution = EvolutionSettings(population=8)
    return MethodsConfig(limit=5, budget=40, search=SearchSettings(restarts=1, candidates=16), evolution=evolution)


class SearchMethods(Composite[MethodsConfig, MethodsConfig, MethodsConfig]):
    """`parley search methods`."""

    words = ("search", "methods")
    run_name = "search-methods"
    config = MethodsConfig
    presets = {"pairs": pairs, "quick": quick}
    files = (TABLE_FILE, SUMMARY)
    resume_safe = RESUME_SAFE
    outcomes = MODERATED

    def stages(self, config: MethodsConfig, path: Path) -> dict[str, Stage]:
        return {line.folder: self._stage(config.of(line)) for line in config.lines}

    def _stage(self, config: MethodsConfig) -> Stage:
        """Return the search of one line."""
        if config.method in TEXT_METHODS:
            settings = config.hugging_face
            return SEARCH_TEXT, TextSearchConfig(
                **shared(config, ShardedConfig),
                **{
                    name: getattr(config, name)
                    for name in (
                        "model",
                        "targets",
                        "limit",
                        "words",
                        "writing",
                        "fitness",
                        "success",
                        "chat",
                        "prs",
                        "qcg",
                        "proxy",
                    )
                },
                method=cast(Literal["prs", "qcg", "evolution"], config.method if config.method in (PRS, QCG) else EVOLUTION),
                target_file=settings.target_file,
                template=settings.template or "",
                end=settings.end,
                forbidden=settings.forbidden,
                alphabet=settings.alphabet,
                start="" if config.method == ATTACKER else settings.start,
                attacker=config.attacker,
                search=replace(config.evolution, max_queries=config.budget),
            )
        # A step of the relaxation reads one input, forward and backward.
        relaxation = replace(config.search.relaxation, rounds=1, steps=config.budget)
        search = replace(config.search, max_candidates=config.budget, relaxation=relaxation)
        values = shared(config, SearchingConfig) | {"search": search}
        return SEARCH, TriggerConfig(model=config.model, targets=config.targets, hit=config.hit, **values)

    def prepare(self, config: MethodsConfig, path: Path, reporter: Reporter) -> MethodsConfig:
        _require_fit(config)
        for job, stage in self.stages(config, path).values():
            if job is SEARCH:
                require_searchable(stage)
        return config

    def work(self, run: RunFolder, prepared: MethodsConfig, reporter: Reporter) -> MethodsConfig:
        """Do the rest of the searches, in one session."""
        with session(prepared.workers, prepared.address) if prepared.workers else nullcontext():
            run_stages(self.stages(prepared, run.path), run.path, reporter)
        return prepared

    def measure(self, run: RunFolder, config: MethodsConfig) -> Summary:
        """Return the figures of every method by "METHOD | FIGURE"; no input, which is the same for all, once."""
        lines: dict[str, dict[str, Estimate]] = {}
        reads: dict[str, str] = {}
        for line in config.lines:
            label, of_search = line.label, RunFolder.load(run.path / line.folder).metrics()
            reads[label] = _access(line.method).name.lower()
            if line.method in TEXT_METHODS:
                lines |= reply_figures(of_search, label, config.success.samples)
                reads |= dict.fromkeys((random_line(label), NO_INPUT), Access.TEXT.name.lower())
            else:
                lines[label] = loss_figures(of_search, config.hit)
        # Below all methods.
        ordered = sorted(lines, key=lambda line: line == NO_INPUT)
        return Summary(
            f"methods of trigger search on {config.model}",
            f"{config.budget:,} inputs for each target of {config.targets}, {config.method}, seed {config.seed}.",
            {f"{line}{BETWEEN}{name}": estimate for line in ordered for name, estimate in lines[line].items()},
            {READS: reads},
        )

    def tables(self, run: RunFolder) -> dict[str, EstimateTable]:
        metrics = run.metrics()
        if not metrics:
            return {}
        clause = successful_reply(run.config["success"], end=run.config["hugging_face"]["end"])
        return {"": methods_table(metrics, (run.summary() or {})[READS], clause)}

    def present(self, result: Result, run: RunFolder) -> Result:
        legend = {name: describe_method(name) for name in result.metrics}
        return replace(result, tables=self.tables(run), legend=legend, failure=result.failure or unread_failure(result.metrics))


SEARCH_METHODS = SearchMethods()
