"""Methods of trigger search on one model, under one budget, in one table: `parley search methods`.

Each method is a search of its own below the table's folder, and resumes by itself. Methods that read losses go from tokens to
tokens (`parley search`), those that read replies alone from words to words (`parley search text`): they take models behind a
server too. Methods declare the access that they need and models the access that they give (`Access`), so that a pair which
cannot work is refused before anything is loaded. Lines of one method may differ by settings
(`parley.engine.triggers.catalogue`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast

from parley.engine.core.stats.statistics import NO_REPLY
from parley.engine.core.verbs.composite import Stage
from parley.engine.core.verbs.job import Reporter, flat
from parley.engine.core.verbs.recipe_job import PlannedRecipe
from parley.engine.core.verbs.sharded import ShardedConfig
from parley.engine.triggers.budget import UNBOUNDED, Spending, read_budget
from parley.engine.triggers.catalogue import ATTACKER, EVOLUTION, PRS, QCG, TEXT_METHODS, MethodLine, read_lines
from parley.engine.triggers.methods.composition import shown_access
from parley.engine.triggers.methods.evolution import EvolutionSettings
from parley.engine.triggers.methods.prs import PrsSettings
from parley.engine.triggers.methods.qcg import QcgSettings
from parley.engine.triggers.methods.settings import RelaxationSettings, SearchSettings
from parley.engine.triggers.methods.writing import WritingSettings
from parley.engine.triggers.metrics.hits import JUDGE_METRICS, PARTS_OF_BUDGET, SAMPLED, TRIED, VERIFIED, successful_reply
from parley.engine.triggers.metrics.text import (
    EMPTY,
    EMPTY_NO_REPLY,
    FOUND_NO_REPLY,
    RANDOM,
    RANDOM_INPUTS,
    RANDOM_NO_REPLY,
    RANDOM_QUERIES,
)
from parley.engine.triggers.success import FitnessSettings
from parley.engine.triggers.verbs.config import (
    HuggingFaceSettings,
    SearchingConfig,
    TextSearchConfig,
    TriggerConfig,
    is_hugging_face,
)
from parley.engine.triggers.verbs.search import SEARCH
from parley.engine.triggers.verbs.table import SearchRecipe
from parley.engine.triggers.verbs.text_search import SEARCH_TEXT
from parley.envs.core.config import assign, shared, to_dict
from parley.envs.core.errors import ConfigError
from parley.policies.chat.model import Access

_TYPED = ("verified", "no_reply", "tried")
"""Columns of every line."""
_OF_TEXT = ("model", "targets", "limit", "words", "writing", "fitness", "success", "chat", "prs", "qcg", "proxy")
"""Settings that a search by replies alone takes as they are."""


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
    budget: str = "200"
    """What each method may spend on a target: a number of inputs, or parts with commas between them, of which the first that is
    used up ends its search: queries=N inputs, tokens=N, attacker_tokens=N, seconds=S, money=M (chat.prices)."""
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
        own = (self.search.restarts, self.search.max_candidates, self.evolution.max_queries)
        if (*own, relaxation.rounds, relaxation.steps) != (1, 0, EvolutionSettings().max_queries, usual.rounds, usual.steps):
            got = f"restarts {own[0]}, max_candidates {own[1]}, max_queries {own[2]}"
            got += f", {relaxation.rounds} rounds of {relaxation.steps} steps"
            raise ConfigError("methods have one start and the budget", where="--set", got=got, fix="--budget N")
        limits = self.limits
        if not str(replace(limits, attacker_tokens=0)):
            what = "methods without an attacker need a budget to end"
            raise ConfigError(what, where="--budget", got=repr(self.budget), fix="--budget 200, or seconds=30")
        if limits.money and self.methods:
            what, fix = (
                "weights of one's own have no price, so money limits no method that reads losses",
                "limit seconds or tokens",
            )
            raise ConfigError(what, where="--budget", got=f"{self.budget} for {', '.join(self.methods)}", fix=fix)
        for line in self.lines:
            if line.settings or len(self.lines) > 1:
                self.of(line)
            else:
                _search(self)

    @property
    def limits(self) -> Spending:
        """Return what each method may spend on a target."""
        return read_budget(self.budget, "--budget")

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
    """Let gcg, gibbs-enum, random tokens and evolution try 200 inputs for each target."""
    return MethodsConfig(limit=20)


def quick() -> MethodsConfig:
    """Take a first look: 5 targets, 40 inputs for each."""
    evolution = EvolutionSettings(population=8)
    return MethodsConfig(limit=5, budget="40", search=SearchSettings(restarts=1, candidates=16), evolution=evolution)


class SearchMethods(SearchRecipe):
    """`parley search methods`."""

    def shared(self, config: MethodsConfig) -> dict[str, Any]:
        return {}

    def given(self, config: MethodsConfig, path: Path | None) -> dict[str, Any]:
        """Return the search of each line, and the rows of the table; no input, which is the same for all, stands last."""
        searches, rows, controls = list[dict[str, Any]](), list[dict[str, Any]](), list[dict[str, Any]]()
        replies = [SAMPLED] if config.success.samples else []
        replies += JUDGE_METRICS if config.success.judge or config.fitness.judge else []
        limits, costs = {part: most for part, most in vars(config.limits).items() if most}, dict[str, list[str]]()
        for line in config.lines:
            job, search = _search(config.of(line))
            key = line.folder.replace(".", "-")
            searches.append({"folder": line.folder, "verb": " ".join(job.words), "settings": flat(to_dict(search))})
            label = f"{line.label} ({_access(line.method).name.lower()})"
            row: dict[str, Any] = {"key": key, "label": label, "stage": line.folder}
            of_attacker = ["attacker_tokens"] if line.method == ATTACKER else []
            columns = ["tokens", *(part for part in ("seconds", "money") if part in limits)]
            costs[key] = [part for part in limits if part != "attacker_tokens" or of_attacker]
            if line.method not in TEXT_METHODS:
                of = {"verified": VERIFIED, "no_reply": NO_REPLY, "tried": TRIED, "hit": config.hit, "inputs": ""}
                rows.append(row | {"of": of, "columns": [*_TYPED, *columns, "claimed", "loss", *replies]})
                continue
            of = {"verified": VERIFIED, "no_reply": FOUND_NO_REPLY, "tried": TRIED, "inputs": ""}
            rows.append(row | {"of": of, "columns": [*_TYPED, *columns, *of_attacker, *replies]})
            of = {"verified": RANDOM, "no_reply": RANDOM_NO_REPLY, "tried": RANDOM_QUERIES, "inputs": RANDOM_INPUTS}
            label = f"random words, {line.label} (text)"
            costs[f"random-{key}"] = [part for part in limits if part != "attacker_tokens"]
            rows.append(row | {"key": f"random-{key}", "label": label, "of": of, "columns": [*_TYPED, *columns]})
            of = {"verified": EMPTY, "no_reply": EMPTY_NO_REPLY}
            controls = [row | {"key": "no-input", "label": "no input (text)", "of": of, "columns": [*_TYPED[:2]]}]
        parts = ((most, "inputs" if part == "queries" else part) for part, most in vars(config.limits).items() if most)
        budget = " and ".join(f"{most:,} {part}" for most, part in parts)
        return {
            "model": config.model,
            "about": f"{budget} for each target of {config.targets}, {config.method}, seed {config.seed}.",
            "success": successful_reply(to_dict(config.success), end=config.hugging_face.end),
            "searches": searches,
            "rows": [*rows, *controls],
            "within": [
                {
                    "part": part,
                    "shown": f"{most / share:,.0f}" if most >= 1000 * share else f"{most / share:.3g}",
                    "share": str(share),
                }
                for part, most in limits.items()
                for share in PARTS_OF_BUDGET
            ],
            "spending": [
                row | {"columns": [f"{part}_{share}" for part in costs[row["key"]] for share in PARTS_OF_BUDGET]}
                for row in rows
            ],
        }

    def prepare(self, config: MethodsConfig, path: Path, reporter: Reporter) -> PlannedRecipe:
        _require_fit(config)
        return super().prepare(config, path, reporter)


def _search(config: MethodsConfig) -> Stage:
    """Return the search of one line."""
    if config.method in TEXT_METHODS:
        settings = config.hugging_face
        return SEARCH_TEXT, TextSearchConfig(
            **shared(config, ShardedConfig),
            **{name: getattr(config, name) for name in _OF_TEXT},
            method=cast(Literal["prs", "qcg", "evolution"], config.method if config.method in (PRS, QCG) else EVOLUTION),
            target_file=settings.target_file,
            template=settings.template or "",
            end=settings.end,
            forbidden=settings.forbidden,
            alphabet=settings.alphabet,
            start="" if config.method == ATTACKER else settings.start,
            attacker=config.attacker,
            search=replace(config.evolution, max_queries=config.limits.queries or UNBOUNDED),
            budget=str(
                replace(config.limits, queries=0, attacker_tokens=config.limits.attacker_tokens if config.attacker else 0)
            ),
        )
    # A step of the relaxation reads one input, forward and backward.
    limits = config.limits
    relaxation = replace(config.search.relaxation, rounds=1, steps=limits.queries or UNBOUNDED)
    search = replace(config.search, max_candidates=limits.queries, relaxation=relaxation)
    budget = Spending(tokens=limits.tokens, seconds=limits.seconds)
    values = shared(config, SearchingConfig) | {"search": search, "budget": str(budget)}
    return SEARCH, TriggerConfig(model=config.model, targets=config.targets, hit=config.hit, **values)


SEARCH_METHODS = SearchMethods("search methods", "triggers/search_methods", MethodsConfig, {"pairs": pairs, "quick": quick})
