"""Trigger search: `parley search` (He & Glass 2018, arXiv 1809.04113).

The job searches for inputs that make a model say the sentences of a list. A shard is a few targets with all of their restarts;
a worker writes one row for each (`parley.engine.triggers.verbs.config.TRIGGERS`), which depends on nothing but the
configuration.

A worker (`SearchWorker`) searches for the targets of several shards side by side, so that its batch is full while any target
waits anywhere. A shard is one target, unless there are very many; if targets have to be searched for together from first to
last (continuous inputs, batches that stop as one) it is a batch of them, and a worker holds one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from parley.engine.core.ray.record import Counts, Rows
from parley.engine.core.ray.worker import IndexedItems
from parley.engine.core.runs.documents import SUMMARY
from parley.engine.core.runs.parts import ok_row
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.statistics import NO_REPLY, NOTHING, Estimate, count, finished
from parley.engine.core.tables.table import EstimateTable
from parley.engine.core.verbs.job import ATTACK, Job, Reporter, Result, Summary
from parley.engine.core.verbs.sharded import RESUME_SAFE, Sharded, Tally, ended_sessions, run_items, spread
from parley.engine.core.verbs.transcripts import TranscriptRule
from parley.engine.triggers.catalogue import make_method
from parley.engine.triggers.methods import settings
from parley.engine.triggers.methods.composition import AttackComposition, settings_told, shown_access
from parley.engine.triggers.methods.settings import L1_WEIGHT_MALICIOUS, SearchSettings
from parley.engine.triggers.metrics.hits import (
    COST_METRICS,
    HIT_RATE,
    JUDGE_ANSWERS,
    JUDGE_NO_REPLY,
    JUDGE_UNPARSABLE,
    LEAST_LOSS,
    NEARNESS,
    PARTS_OF_BUDGET,
    PROJECTED,
    REFUSED,
    SAMPLED,
    SECONDS,
    TARGET_ITEMS,
    TOKENS,
    VERIFIED,
    WITHIN,
    describe,
    is_hit,
    kinds,
    search_metrics,
    unread_failure,
)
from parley.engine.triggers.metrics.text import ShownInput, shown_inputs
from parley.engine.triggers.targets import Target, TargetList, target_seed
from parley.engine.triggers.verbs.config import (
    MAL,
    NORMAL,
    OWN,
    TRIGGERS,
    ObjectiveSettings,
    TriggerConfig,
    TriggerEngineSettings,
    is_hugging_face,
    trigger_transcripts,
)
from parley.engine.triggers.verbs.models import (
    FILE,
    HuggingFaceFolder,
    Models,
    choose_targets,
    input_model,
    models_of,
    num_targets,
    open_models,
    open_targets,
    require_list,
    save_targets,
)
from parley.engine.triggers.verbs.turns import UNVERIFIED, SearchTurns, verifier
from parley.envs.core.errors import ConfigError
from parley.policies.chat.model import ANSWERS_FOLDER, MODERATED

if TYPE_CHECKING:
    from parley.engine.triggers.hits import HitType, Reading, Thresholds
    from parley.engine.triggers.methods.objective import TriggerObjective
    from parley.engine.triggers.scorers.scorer import TextVictim, Victim
    from parley.engine.triggers.searches.attack import TriggerSearch
    from parley.engine.triggers.searches.batch import Outcome, Task
    from parley.engine.triggers.searches.side_by_side import BatchedSearch
    from parley.policies.hugging_face.victims import HuggingFaceCausal, HuggingFaceVictim


_K = (1, 2)
MOST_PARTS = 10_000
"""Parts of a run, each with one target if there are no more targets."""
AT_HAND = 4
"""Targets that a worker holds for places that are not free yet."""
AT_MOST = "the time left is the longest: a success ends a search"
"""Note on the time left while no search has ended."""
HITS = "hits."
"""Prefix of counts by type of hit."""


def method_settings(config: TriggerConfig) -> SearchSettings:
    """Return the settings of the method; continuous inputs of malicious targets have a smaller l1 weight, as in the paper."""
    relaxation = config.search.relaxation
    if config.targets == MAL and relaxation.l1_weight is None:
        relaxation = replace(relaxation, l1_weight=L1_WEIGHT_MALICIOUS)
    return replace(config.search, relaxation=relaxation)


def budget_of_target(config: TriggerConfig) -> dict[str, float]:
    """Return what all restarts of a target may cost together, by part of the budget that is limited."""
    return {part: config.search.restarts * most for part, most in vars(config.limits).items() if most}


def read_types(hit_type: HitType, *, sampled: bool, judged: bool) -> list[HitType]:
    """Return the types of hit that are read off each input: the published ones, and the wanted one.

    Args:
        hit_type: the type that ends a search.
        sampled: True if the log probability of a usual word of a reply is known.
        judged: True if a language model judges inputs.
    """
    from parley.engine.triggers.hits import HitType

    prefixes = ("o", "io") if judged else ("o",)
    names = ["o-greedy"]
    if sampled:
        names += [f"{prefix}-sample-{statistic}-k{k}" for prefix in prefixes for statistic in ("min", "avg") for k in _K]
    return [HitType.parse(name) for name in dict.fromkeys([*names, hit_type.name])]


def objective_of(config: TriggerConfig, thresholds: Thresholds) -> TriggerObjective:
    """Return the objective, by the wanted type of hit and the settings.

    Raises:
        ConfigError: there is no threshold that the type of hit needs.
    """
    from parley.engine.triggers.hits import HitType

    settings, hit_type = config.objective, HitType.parse(config.hit)
    objective = hit_type.objective(thresholds, lm_weight=settings.lm_weight, satisfied_weight=settings.satisfied_weight)
    return replace(objective, mellowmax=settings.mellowmax)


def composition(config: TriggerConfig, thresholds: Thresholds) -> AttackComposition:
    """Return the attack as a composition.

    Raises:
        ConfigError: the method reads more than the model shows, or a threshold is missing that the type of hit needs.
    """
    method, judged = make_method(config.method, method_settings(config)), f", inputs judged by {config.lm}" if config.lm else ""
    inputs, typed = settings_told(config.engine, "unknown"), "as claimed: what is typed are the model's own words"
    if config.is_hugging_face:
        inputs, typed = settings_told(config.hugging_face, "length", "end"), settings_told(config.success, "by")
    return AttackComposition(
        victim=config.model,
        shows=shown_access(config.model),
        method=repr(method) + f", budget {config.budget}" * bool(config.budget),
        reads=method.access,
        objective=f"{objective_of(config, thresholds)!r}, until {config.hit}{judged}",
        prompts=f"{config.targets}: {inputs}",
        success=typed,
    )


def composer(config: TriggerConfig, models: Models, victim: TextVictim) -> Callable[[Victim], TriggerSearch]:
    """Return a function that composes the search with the model behind a prompt.

    Args:
        config: the search.
        models: what is searched.
        victim: the model as it was loaded.
    """
    from parley.engine.triggers.hits import HitType
    from parley.engine.triggers.searches.attack import TriggerSearch

    judge = input_model(config, cast("HuggingFaceCausal", victim)) if config.is_hugging_face else None
    return lambda prompted: TriggerSearch(
        prompted,
        make_method(config.method, method_settings(config)),
        input_model=judge,
        hit=HitType.parse(config.hit),
        thresholds=models.thresholds,
        objective=objective_of(config, models.thresholds),
        batch_size=config.engine.batch_size,
        budget=config.limits,
    )


@dataclass(frozen=True)
class SearchTask(Sharded[Target]):
    """A search for targets.

    Args:
        config: the search.
        models: what is searched.
        answers: folder in which answers of a chat model that judges are kept.
    """

    unit = "targets"
    event = "searched"

    config: TriggerConfig
    models: Models
    answers: str = field(default="", kw_only=True)

    def seed(self, key: str) -> int:
        return target_seed(self.config.seed, key)

    def worker(self) -> SearchWorker:
        return SearchWorker(self.config, self.models, self.answers)

    def shared(self) -> SearchTask:
        return replace(self, models=self.models.shared())

    @property
    def takes_any(self) -> bool:
        """Return True if targets may join a search and leave it at any moment."""
        return make_method(self.config.method, method_settings(self.config)).takes_any

    def shard_size(self, num_items: int, num_workers: int) -> int:
        if self.takes_any:
            return -(-num_items // MOST_PARTS)
        most = self.config.engine.batch_size
        # What stops as one is part of what is searched for, and does not depend on the number of workers.
        return most if self.config.search.stop_on_batch_mean else spread(num_items, num_workers, most)

    def room(self, shard_size: int) -> int:
        if not self.takes_any:
            return 1
        return -(-(self.config.engine.batch_size + AT_HAND) // shard_size) + (shard_size > 1)

    def digest(self, rows: Rows) -> Counts:
        ended = finished(rows)
        counts = Counter(f"{HITS}{kind}" for row in ended for kind in kinds([row]) if is_hit(row, kind))
        candidates = sum(restart["candidates"] for row in ended for restart in row["restarts"])
        counts.update(targets=len(ended), candidates=candidates, hits=counts[HITS + self.config.hit])
        return counts

    def describe(self, tally: Tally) -> str:
        pace = tally.session["candidates"] / tally.seconds if tally.seconds else 0.0
        counts = {HITS + self.config.hit: 0} | tally.total
        hits = (f"{name.removeprefix(HITS)} {number}" for name, number in counts.items() if name.startswith(HITS))
        early = f", {AT_MOST}" if self.config.search.stop_on_hit and not tally.session[self.unit] else ""
        return f"{pace:,.0f} candidates/s, hits: {', '.join(hits)}{early}"


class SearchWorker(SearchTurns[Target]):
    """A worker that holds the models, and searches for the targets of several shards at a time."""

    def __init__(self, config: TriggerConfig, models: Models, answers: str = "") -> None:
        from parley.engine.triggers.hits import HitType

        self.config, self.thresholds = config, models.thresholds
        hit_type = HitType.parse(config.hit)
        sampled, judged = models.thresholds.t_out is not None, bool(config.lm)
        self.types = read_types(hit_type, sampled=sampled, judged=judged)
        self.victim = models.load(config.device, unknown=config.engine.unknown)
        # Not by the file of targets, which need not lie on a worker's machine.
        self._has_prompts = isinstance(models.victim, HuggingFaceFolder) and models.victim.has_prompts
        self._composed = composer(config, models, self.victim)
        self._verifier = verifier(config, self.victim, answers)
        self.drop()

    @cached_property
    def search(self) -> TriggerSearch:
        """Return the search of targets without prompts."""
        return self._composed(self.victim)

    def drop(self) -> None:
        self._by_prompt: dict[str, BatchedSearch] = {}
        self._targets: dict[str, Target] = {}
        super().drop()

    def searches(self) -> BatchedSearch:
        from parley.engine.triggers.searches.side_by_side import ByPrompt

        if self._has_prompts:
            return ByPrompt(self._searches_of, self.config.engine.batch_size)
        return self.search.method.side_by_side(self.search.finder)

    def tasks(self, item: Target) -> list[Task]:
        from parley.engine.triggers.searches.batch import tasks_of

        self._targets[item.key] = item
        ids = self.victim.target(" ".join(item.words))
        return list(tasks_of({item.key: ids}, self.config.search.restarts, self.config.seed))

    def _victim_for(self, target: Target) -> TextVictim:
        return self.victim if target.prompt is None else cast("HuggingFaceCausal", self.victim).behind(target.prompt)

    def _searches_of(self, key: str) -> BatchedSearch:
        """Return the searches behind the prompt of a target."""
        target = self._targets[key]
        assert target.prompt is not None, "the target has no prompt"
        self._by_prompt = {prompt: searches for prompt, searches in self._by_prompt.items() if searches.keys}
        if target.prompt not in self._by_prompt:
            search = self._composed(self._victim_for(target))
            self._by_prompt[target.prompt] = search.method.side_by_side(search.finder)
        return self._by_prompt[target.prompt]

    def row(self, item: Target, outcomes: Sequence[Outcome]) -> dict[str, Any]:
        from parley.engine.triggers.searches.attack import best_restart

        victim = self._victim_for(item)
        entries = {outcome.task.restart: self._entry(outcome, victim) for outcome in outcomes}
        best = best_restart(outcomes)
        self._targets.pop(item.key, None)
        entry, reading = entries[best.task.restart], best.reading
        return ok_row(item.key, target_seed(self.config.seed, item.key)) | {
            "target": " ".join(item.words),
            "trigger": entry["words"],
            "restart": entry["restart"],
            "loss": entry["loss"],
            "target_words": self.victim.words(best.task.target.tolist()),
            "word_log_probability": list(reading.word_log_probability),
            "likeliest": list(reading.likeliest),
            "input_log_probability": reading.input_log_probability,
            "prompt": item.prompt,
            "trigger_ids": entry["ids"],
            **self._verified(item, victim, best),
            "hits": entry["hits"],
            "restarts": list(entries.values()),
        }

    def _verified(self, target: Target, victim: TextVictim, best: Outcome) -> dict[str, Any]:
        """Return the columns of the model's reply to the typed input that is kept."""
        if self._verifier is None or best.words is None:
            return UNVERIFIED
        seed = target_seed(self.config.seed, target.key)
        return self._verifier.verify(cast("HuggingFaceVictim", victim), best.words, " ".join(target.words), target.prompt, seed)

    def _entry(self, outcome: Outcome, victim: TextVictim) -> dict[str, Any]:
        """Return a restart's entry of the column `restarts`."""
        return {
            "restart": outcome.task.restart,
            "words": None if outcome.words is None else victim.text(outcome.words),
            "loss": outcome.loss,
            "loss_by_sweep": list(outcome.loss_by_sweep),
            "sweeps": outcome.sweeps,
            "visits": outcome.visits,
            "accepted": outcome.accepted,
            "candidates": outcome.candidates,
            "stopped": outcome.stopped,
            "refused": outcome.refused,
            "tokens": outcome.tokens,
            # Rows are the same on any machine, unless seconds are part of the budget.
            "seconds": outcome.seconds if self.config.limits.seconds else None,
            "ids": None if outcome.words is None else list(outcome.words),
            "hits": self._hits(outcome.reading) + self._hits(outcome.projected, PROJECTED),
            **outcome.nearness,
        }

    def _hits(self, reading: Reading | None, prefix: str = "") -> list[dict[str, Any]]:
        """Return whether a reading is a hit, by type; nothing for no reading."""
        if reading is None:
            return []
        return [{"type": prefix + kind.name, "hit": kind.is_hit(reading, self.thresholds)} for kind in self.types]


@dataclass(frozen=True)
class SearchPlan:
    """A checked configuration with its models and targets.

    Args:
        config: the settings.
        models: the searched models.
        targets: the sentences that they are to say.
    """

    config: TriggerConfig
    models: Models
    targets: TargetList


def candidates_per_s(run: RunFolder) -> Estimate:
    """Return the candidates that all workers together try in a second of their work, over all finished sessions."""
    sessions = ended_sessions(run, SearchTask.event, "targets", "candidates")
    seconds = sum(event["busy_s"] / event["workers"] for event in sessions)
    tried = sum(event["candidates"] for event in sessions)
    return count(tried / seconds, sum(event["targets"] for event in sessions)) if sessions else NOTHING


def require_searchable(config: TriggerConfig) -> None:
    """Raise ConfigError if the configuration alone shows that a search cannot work.

    Raises:
        ConfigError: parts do not go together, one is missing, or no list, method or type of hit is called so.
    """
    from parley.engine.triggers.hits import HitType, Thresholds

    hit_type, method = HitType.parse(config.hit), make_method(config.method, method_settings(config))
    if method.continues and not config.is_hugging_face:
        what, fix = f"{config.method} lets the model write inputs, which Parley's own networks do not", "--model hf:FOLDER"
        raise ConfigError(what, where="--model", got=config.model, fix=fix)
    if config.is_hugging_face:
        method.require_length(config.hugging_face.length)
    if not method.searches_words and (config.lm or hit_type.limits_input):
        what = "a continuous input has no words that a language model could judge"
        got = f"--hit {config.hit}, --lm {config.lm!r}"
        raise ConfigError(what, got=got, fix="leave out --lm and take --hit o-greedy, or another method")
    if config.lm and (config.lm == OWN or is_hugging_face(config.lm)) != config.is_hugging_face:
        fix = f"--lm {OWN}, or another Hugging Face model with the same tokenizer"
        what = "no language model of ours has the tokens of a Hugging Face model"
        if not config.is_hugging_face:
            what, fix = "no Hugging Face model has the words of a model of ours", "--lm RUN of parley train lm"
        raise ConfigError(what, where="--lm", got=config.lm, fix=fix)
    # What is measured on a corpus, or stands in a checkpoint, is not known yet, but will be.
    later = None if config.is_hugging_face and not config.corpus else 0.0
    t_out, t_in = (later if value is None else value for value in (config.objective.t_out, config.objective.t_in))
    # Says so when a threshold is missing, or the model shows too little.
    composition(config, Thresholds(t_out=t_out, t_in=t_in if config.lm else None))
    if config.objective.lm_weight is not None and not config.lm:
        fix = "name a language model with --lm, or leave it out"
        raise ConfigError("no model judges inputs", where="objective.lm_weight", got=config.objective.lm_weight, fix=fix)
    if config.objective.mellowmax and not config.is_hugging_face:
        fix = "leave it out, or name a model hf:FOLDER or gguf:FILE"
        raise ConfigError("Parley's own networks are searched by means over words", where="objective.mellowmax", fix=fix)
    require_list(config)
    config.require_device()


def he2018() -> TriggerConfig:
    """gibbs-enum as published: lists of 100 words, up to 50 sweeps, 10 restarts, until a hit (He & Glass 2018)."""
    return TriggerConfig(search=settings.he2018())


def released() -> TriggerConfig:
    """Search as the released code: 5 restarts of 5 sweeps, a hundredth of satisfied terms, batches of 100."""
    engine = TriggerEngineSettings(batch_size=100, unknown=True)
    return TriggerConfig(search=settings.released(), objective=ObjectiveSettings(satisfied_weight=0.01), engine=engine)


def quick() -> TriggerConfig:
    """Take a first look: 100 targets, 2 restarts of up to 10 sweeps."""
    return TriggerConfig(limit=100, search=SearchSettings(restarts=2, max_sweeps=10))


def demo() -> TriggerConfig:
    """Take seconds, on the model of parley train seq2seq demo: 20 of its replies as targets, 2 restarts of up to 5 sweeps."""
    search = SearchSettings(candidates=20, restarts=2, max_sweeps=5)
    return TriggerConfig(targets=NORMAL, limit=20, hit="o-greedy", search=search)


def gcg() -> TriggerConfig:
    """GCG in nanoGCG's sizes: 512 swaps a step from lists of 256, one start, some 250 steps (Zou et al. 2023)."""
    return TriggerConfig(method="gcg", limit=100, search=settings.gcg())


def mac() -> TriggerConfig:
    """GCG with momentum (MAC: Zhang & Wei 2024), else as gcg."""
    return TriggerConfig(method="gcg", limit=100, search=settings.mac())


def autoprompt() -> TriggerConfig:
    """AutoPrompt in its released sizes: lists of 10 at drawn positions, one start, some 100 steps (Shin et al. 2020)."""
    return TriggerConfig(method="autoprompt", limit=100, search=settings.autoprompt())


def arca() -> TriggerConfig:
    """ARCA in its released sizes: slopes at 32 random words, lists of 32, one start, 50 rounds (Jones et al. 2023)."""
    return TriggerConfig(method="arca", limit=100, search=settings.arca())


def pez() -> TriggerConfig:
    """PEZ in its released sizes: some 3000 steps on embeddings, each read at the nearest words (Wen et al. 2023)."""
    return TriggerConfig(method="pez", limit=100, search=settings.pez())


def beast() -> TriggerConfig:
    """BEAST in its released sizes: a causal Hugging Face model writes the inputs, 15 kept (Sadasivan et al. 2024)."""
    return TriggerConfig(method="beast", limit=100, search=settings.beast())


def compare() -> TriggerConfig:
    """Give every --method one cost: 30 targets, one start, 4,200 candidates for each."""
    return TriggerConfig(limit=30, search=settings.compare())


class Search(Job[TriggerConfig, SearchPlan, SearchPlan]):
    """`parley search`."""

    words = ("search",)
    run_name = "search"
    config = TriggerConfig
    presets = {
        preset.__name__: preset for preset in (he2018, released, quick, demo, gcg, mac, autoprompt, arca, pez, beast, compare)
    }
    schema = TRIGGERS
    item_metrics = TARGET_ITEMS
    files = (SUMMARY, FILE, "rows")
    resume_safe = RESUME_SAFE
    outcomes = MODERATED

    def transcripts(self, run: RunFolder) -> TranscriptRule:
        return trigger_transcripts(run.job, run.config)

    def prepare(self, config: TriggerConfig, path: Path, reporter: Reporter) -> SearchPlan:
        require_searchable(config)
        models = open_models(config)
        return SearchPlan(config, models, open_targets(config, models, path))

    def work(self, run: RunFolder, prepared: SearchPlan, reporter: Reporter) -> SearchPlan:
        config, targets = prepared.config, prepared.targets
        save_targets(targets, run.path)
        reporter.say(str(composition(config, prepared.models.thresholds)))
        items = IndexedItems((target.key for target in targets.targets), targets.targets.__getitem__)
        search_task = SearchTask(config, prepared.models, answers=str((run.path / ANSWERS_FOLDER).absolute()))
        run_items(run, search_task, items, config, reporter, f"searching for {targets.name} targets")
        return prepared

    def measure(self, run: RunFolder, plan: SearchPlan) -> Summary:
        config, targets = plan.config, plan.targets
        rows = run.rows()
        return Summary(
            f"{config.hit} search for {targets.name} targets on {config.model}",
            f"{len(targets.targets):,} targets, {config.method}, {config.search.restarts} restarts, seed {config.seed}.",
            search_metrics(rows, candidates_per_s(run), len(targets.skipped), budget_of_target(config)),
            {
                ATTACK: composition(config, plan.models.thresholds).parts,
                "thresholds": plan.models.limits,
                "skipped": [skipped._asdict() for skipped in targets.skipped],
            },
        )

    def models(self, config: TriggerConfig) -> Mapping[str, str]:
        return models_of(config)

    def num_rows(self, config: TriggerConfig, path: Path) -> int:
        return num_targets(path)

    def num_items(self, config: TriggerConfig) -> int:
        require_searchable(config)
        return len(choose_targets(config, open_models(config)).targets)

    def metrics_of(self, config: TriggerConfig) -> list[str]:
        from parley.engine.triggers.hits import HitType

        sampled = not config.is_hugging_face or config.objective.t_out is not None or bool(config.corpus)
        kinds = [kind.name for kind in read_types(HitType.parse(config.hit), sampled=sampled, judged=bool(config.lm))]
        method, near = make_method(config.method, method_settings(config)), list[str]()
        if method.finds_words and not method.searches_words:
            kinds += [PROJECTED + kind for kind in kinds]
            near = [name for name in NEARNESS if not (name.startswith("state") and config.is_hugging_face)]
        typed = [VERIFIED, REFUSED, NO_REPLY] if config.is_hugging_face and method.finds_words else []
        typed += [SAMPLED] if typed and config.success.samples else []
        typed += [JUDGE_ANSWERS, JUDGE_UNPARSABLE, JUDGE_NO_REPLY] if typed and config.success.judge else []
        typed += [f"{WITHIN}{part}.{share}" for part in budget_of_target(config) for share in PARTS_OF_BUDGET] if typed else []
        spent = [TOKENS, SECONDS] if config.limits.seconds else [TOKENS]
        return [*(prefix + kind for prefix in (HIT_RATE, LEAST_LOSS) for kind in kinds), *typed, *COST_METRICS, *spent, *near]

    def more(self, run: RunFolder) -> dict[str, EstimateTable]:
        typed = (ShownInput.of(row, row["typed"], merit=-row["loss"]) for row in finished(run.rows()) if row["typed"])
        return shown_inputs(typed) if VERIFIED in run.metrics() else {}

    def present(self, result: Result, run: RunFolder) -> Result:
        legend = {name: describe(name) for name in result.metrics}
        return replace(result, legend=legend, failure=result.failure or unread_failure(result.metrics))


SEARCH = Search()
