"""Universal triggers: `parley search universal` (Wallace et al. 2019; Zou et al. 2023, section 3).

The job searches for one input that makes a model say the target of each of many (prompt, target) pairs. A share of the prompts
is held out: no search sees them. The found inputs, random inputs of the same length and no input at all are typed behind all
prompts, and stand in one table.

An item of a worker is an input: one that is searched for behind all searched prompts at once, a random one, or none. It is then
typed behind every prompt, the held-out ones too, and the model's reply is judged. Rows are those of
`parley.engine.triggers.verbs.config.UNIVERSAL`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from parley.engine.core.ray.record import Counts, Rows
from parley.engine.core.runs.documents import SUMMARY
from parley.engine.core.runs.parts import ok_row
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.statistics import finished
from parley.engine.core.tables.table import EstimateTable
from parley.engine.core.verbs.export import FlatRows, each_of
from parley.engine.core.verbs.job import ATTACK, TABLE_FILE, Job, Reporter, Result, Summary
from parley.engine.core.verbs.sharded import RESUME_SAFE, Sharded, Tally, run_items
from parley.engine.core.verbs.transcripts import TranscriptRule
from parley.engine.triggers.methods import settings
from parley.engine.triggers.methods.composition import AttackComposition
from parley.engine.triggers.methods.settings import SearchSettings
from parley.engine.triggers.metrics.hits import successful_reply, unread_failure
from parley.engine.triggers.metrics.text import ShownInput, shown_inputs
from parley.engine.triggers.metrics.universal import (
    EMPTY,
    FOUND,
    RANDOM,
    VERIFIED,
    best_found,
    describe_universal,
    universal_metrics,
    universal_table,
)
from parley.engine.triggers.success import TOKENS
from parley.engine.triggers.targets import Target, TargetList, has_prompts, target_seed
from parley.engine.triggers.verbs.config import UNIVERSAL, TriggerConfig, is_hugging_face, model_labels, universal_transcript
from parley.engine.triggers.verbs.models import (
    FILE,
    HuggingFaceFolder,
    Models,
    models_of,
    open_targets,
    open_together,
    save_targets,
)
from parley.engine.triggers.verbs.search import AT_HAND, AT_MOST, composer, composition, require_searchable
from parley.engine.triggers.verbs.turns import SearchTurns, verifier
from parley.envs.core.config import NumItemsOrAll, ShareBelowOne
from parley.envs.core.errors import ConfigError, DataError
from parley.envs.core.seeds import derive_seed, stream
from parley.policies.chat.model import ANSWERS_FOLDER, MODERATED

if TYPE_CHECKING:
    from parley.engine.triggers.searches.batch import Outcome, Task
    from parley.engine.triggers.searches.side_by_side import BatchedSearch
    from parley.policies.hugging_face.victims import HuggingFaceCausal


@dataclass(frozen=True)
class UniversalInput:
    """An input that is tried behind all prompts.

    Args:
        key: names it.
        kind: found, random or empty.
    """

    key: str
    kind: str


def universal_inputs(num_searches: int, num_random: int) -> dict[str, UniversalInput]:
    """Return the items of a run, by key: the searches, the random inputs, and the empty one."""
    names = [*((FOUND, number) for number in range(num_searches)), *((RANDOM, number) for number in range(num_random))]
    items = [UniversalInput(f"{kind}-{number:04d}", kind) for kind, number in names]
    return {item.key: item for item in [*items, UniversalInput(EMPTY, EMPTY)]}


@dataclass(frozen=True)
class UniversalSearchTask(Sharded[UniversalInput]):
    """A search for one input of many pairs.

    Args:
        config: the search.
        models: what is searched.
        searched: the pairs that searches see.
        held_out: those that none sees.
        labels: what the models are called.
        answers: folder in which answers of a chat model that judges are kept.
    """

    unit = "inputs"
    event = "searched"
    is_uneven = True

    config: TriggerConfig
    models: Models
    searched: tuple[Target, ...]
    held_out: tuple[Target, ...]
    labels: tuple[str, ...]
    answers: str

    def seed(self, key: str) -> int:
        return target_seed(self.config.seed, key)

    def effort(self, item: UniversalInput) -> float:
        """Return the readings of a prompt by a model that an input takes: its search, then the replies behind all prompts."""
        success = self.config.success
        longest = max(len(pair.words) for pair in (*self.searched, *self.held_out))
        reply_tokens = success.tokens or (longest + 1 if success.by in ("target", "exact", "prefix") else TOKENS)
        replies = len(self.labels) * (len(self.searched) + len(self.held_out)) * (1 + success.samples)
        return self.search_effort(item) + replies * reply_tokens

    def search_effort(self, item: UniversalInput) -> float:
        """Return the most readings of a prompt by a model in the search for an input; 0 for inputs that are not searched for.

        A candidate is read behind each searched prompt, a word of a reply counts as one reading.
        """
        from parley.engine.triggers.catalogue import make_method

        if item.kind != FOUND:
            return 0.0
        method = make_method(self.config.method, self.config.search)
        per_visit = method.candidates * method.cost if "candidates" in method.uses else 1
        most = self.config.search.max_sweeps * self.config.hugging_face.length * per_visit
        candidates = min(most, self.config.search.max_candidates or most)
        return float(candidates * len(self.labels) * len(self.searched))

    def worker(self) -> UniversalWorker:
        return UniversalWorker(self)

    def shared(self) -> UniversalSearchTask:
        return replace(self, models=self.models.shared())

    def shard_size(self, num_items: int, num_workers: int) -> int:
        return 1

    def room(self, shard_size: int) -> int:
        return -(-(self.config.engine.batch_size + AT_HAND) // shard_size)

    def digest(self, rows: Rows) -> Counts:
        ended = finished(rows)
        searched = [row for row in ended if row["kind"] == FOUND]
        num_successes = sum(bool(pair[VERIFIED]) for row in searched for pair in row["pairs"])
        tried = sum(row["candidates"] for row in searched)
        return Counter({self.unit: len(ended), "searches": len(searched), "candidates": tried, "successes": num_successes})

    def describe(self, tally: Tally) -> str:
        pace = tally.session["candidates"] / tally.seconds if tally.seconds else 0.0
        early = f", {AT_MOST}" if self.config.search.stop_on_hit and not tally.session["searches"] else ""
        return f"{pace:,.2g} candidates/s, pairs with a success: {tally.total['successes']}{early}"


@dataclass(frozen=True)
class _ModelPair:
    """A pair behind one model.

    Args:
        label: the model's.
        pair: request and target.
        searched: whether searches see it.
        victim: the model behind the request.
    """

    label: str
    pair: Target
    searched: bool
    victim: HuggingFaceCausal

    @property
    def target(self) -> str:
        """Return the text that the model is to say."""
        return " ".join(self.pair.words)


def _with_words_of_the_first(models: Sequence[HuggingFaceCausal]) -> list[HuggingFaceCausal]:
    """Return the models; those with other tokens than the first get inputs as texts."""
    from parley.policies.hugging_face.models import HuggingFaceByText

    words = models[0].tokenizer.get_vocab()
    return [model if model.tokenizer.get_vocab() == words else HuggingFaceByText(model, models[0]) for model in models]


class UniversalWorker(SearchTurns[UniversalInput]):
    """A worker that holds the models behind every prompt.

    Args:
        search_task: the search.
    """

    def __init__(self, search_task: UniversalSearchTask) -> None:
        from parley.engine.triggers.hits import HitType
        from parley.engine.triggers.searches.batch import UniversalVictim

        self._searching = search_task
        # Code that needs one model gets the first.
        config, models = replace(search_task.config, model=search_task.config.model.split(",")[0].strip()), search_task.models
        self.config, self.thresholds, self.wanted = config, models.thresholds, HitType.parse(config.hit)
        folders = cast("list[HuggingFaceFolder]", [models.victim, *models.other_models])
        causal = _with_words_of_the_first([cast("HuggingFaceCausal", folder.load(config.device)) for folder in folders])
        self.pairs = [
            _ModelPair(label, pair, pair in search_task.searched, model.behind(str(pair.prompt)))
            for label, model in zip(search_task.labels, causal, strict=True)
            for pair in (*search_task.searched, *search_task.held_out)
        ]

        def victim(pairs: Sequence[_ModelPair]) -> UniversalVictim:
            return UniversalVictim([item.victim for item in pairs], [item.victim.target(item.target) for item in pairs])

        compose = composer(config, models, causal[0])
        self.victim = victim([item for item in self.pairs if item.searched])
        self.search = compose(self.victim)
        # Measures behind all prompts what was searched for behind some of them.
        self._everywhere = compose(victim(self.pairs)).method.scorer
        self._verifier = verifier(config, causal[0], search_task.answers)
        self.drop()

    def searches(self) -> BatchedSearch:
        return self.search.method.side_by_side(self.search.finder)

    def tasks(self, item: UniversalInput) -> list[Task]:
        from parley.engine.triggers.searches.batch import tasks_of

        if item.kind != FOUND:
            return []
        return list(tasks_of({item.key: self.victim.target_ids}, 1, self.config.seed))

    def search_effort(self, item: UniversalInput) -> float:
        return self._searching.search_effort(item)

    def row(self, item: UniversalInput, outcomes: Sequence[Outcome]) -> dict[str, Any]:
        words = self._words(item, outcomes)
        first = self.pairs[0].victim
        outcome = outcomes[0] if outcomes else None
        return ok_row(item.key, target_seed(self.config.seed, item.key)) | {
            "kind": item.kind,
            "trigger": None if words is None else first.text(words),
            "typed": None if words is None else first.slot_texts(words),
            "trigger_ids": None if words is None else list(words),
            "loss": outcome and outcome.loss,
            "loss_by_sweep": outcome and list(outcome.loss_by_sweep),
            "visits": outcome and outcome.visits,
            "candidates": outcome and outcome.candidates,
            "refused": outcome and outcome.refused,
            "stopped": outcome and outcome.stopped,
            "pairs": self._pairs(item, words),
        }

    def _words(self, item: UniversalInput, outcomes: Sequence[Outcome]) -> tuple[int, ...] | None:
        """Return the ids of an input; None for the empty one."""
        from parley.engine.triggers.searches.attack import allowed_inputs

        if item.kind == FOUND:
            return outcomes[0].words
        if item.kind == EMPTY:
            return None
        draw = allowed_inputs(self.victim, from_start=False)
        return tuple(draw([derive_seed(self.config.seed, "random input", item.key)])[0].tolist())

    def _pairs(self, item: UniversalInput, words: tuple[int, ...] | None) -> list[dict[str, Any]]:
        """Return the results of an input behind every prompt."""
        import torch

        from parley.policies.hugging_face.judges import reply_nats

        measured: Sequence[Any] = [None] * len(self.pairs)
        if words is not None:
            ids_1N = torch.tensor([words], device=self.victim.searchable_V.device)
            (incumbent,) = self._everywhere.measure([self.victim.target_ids], ids_1N)
            measured = incumbent.cache
        rows = []
        for entry, at in zip(self.pairs, measured, strict=True):
            pair, victim, target = entry.pair, entry.victim, entry.target
            seed = derive_seed(target_seed(self.config.seed, item.key), "pair", pair.key)
            assert self._verifier is not None, "only Hugging Face models have prompts"
            if words is None:
                read = victim.read_text("")
                assert read, "prompts that are too long are skipped"
                columns = {"retokenised": True} | self._verifier.asked(victim, read, target, pair.prompt, seed)
                nats, hit = reply_nats(victim, "", target), None
            else:
                columns = self._verifier.verify(victim, words, target, pair.prompt, seed)
                nats = [-entry for entry in at.reading.word_log_probability]
                hit = self.wanted.is_hit(at.reading, self.thresholds)
            about = {"model": entry.label, "key": pair.key, "prompt": pair.prompt, "target": target, "searched": entry.searched}
            judged = {name: value for name, value in columns.items() if name != "typed"}
            rows.append(about | {"nats": float(np.mean(nats)), "hit": hit} | judged)
        return rows


BEST = "best"
"""Entry of the summary: the input that is kept, as it is typed into each slot."""


@dataclass(frozen=True, kw_only=True)
class UniversalConfig(TriggerConfig):
    """The model, and the pairs whose targets it is to say behind one input."""

    model: str = ""
    """Causal model that is searched: hf:FOLDER or gguf:FILE; or several, separated by commas. The words are the first one's
    tokens; models with others read them as text."""
    targets: str = ""
    """A file of (prompt, target) pairs: CSV or JSONL, as of parley search."""
    hit: str = "o-greedy"
    """Wanted hits, as of parley search; a search ends where it is one behind every searched prompt."""
    limit: NumItemsOrAll = 40
    """Number of pairs at most, the seed's choice; 0 for all. Each input is read behind the searched ones."""
    held_out: ShareBelowOne = 0.5
    """Share of the prompts that no search sees."""
    num_random: NumItemsOrAll = 5
    """Random inputs of the same length, tried behind all prompts beside what is found."""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the models, one by one."""
        return tuple(name.strip() for name in self.model.split(",") if name.strip())


@dataclass(frozen=True)
class UniversalSearchPlan:
    """A checked configuration with its models and pairs.

    Args:
        config: the settings.
        models: what is searched.
        targets: all pairs.
        searched: those that searches see.
        held_out: the others.
    """

    config: UniversalConfig
    models: Models
    targets: TargetList
    searched: tuple[Target, ...]
    held_out: tuple[Target, ...]


def split_by_prompt(pairs: Sequence[Target], held_out: float, seed: int) -> tuple[tuple[Target, ...], tuple[Target, ...]]:
    """Split pairs into searched and held-out ones; those of one prompt are all in one of the two.

    Args:
        pairs: in any order.
        held_out: share of the prompts; 0 holds out none, anything else at least one and not all.
        seed: master seed.

    Raises:
        DataError: some are to be held out, and there is one prompt alone.
    """
    prompts = sorted({str(pair.prompt) for pair in pairs})
    if held_out and len(prompts) < 2:
        fix = "add pairs of other prompts, or --held-out 0"
        raise DataError("prompts cannot be held out where there is one alone", got=prompts[0][:80], fix=fix)
    num = min(max(1, round(held_out * len(prompts))), len(prompts) - 1) if held_out else 0
    unseen = {prompts[index] for index in stream(seed, "held-out prompts").permutation(len(prompts))[:num]}
    return tuple(pair for pair in pairs if pair.prompt not in unseen), tuple(pair for pair in pairs if pair.prompt in unseen)


def gcg() -> UniversalConfig:
    """GCG in nanoGCG's sizes, one search (Zou et al. 2023)."""
    return UniversalConfig(method="gcg", search=settings.gcg())


def gibbs() -> UniversalConfig:
    """gibbs-enum, position by position: lists of 100, at most 10 sweeps, 2 searches (He & Glass 2018)."""
    return UniversalConfig(search=SearchSettings(restarts=2, max_sweeps=10))


def quick() -> UniversalConfig:
    """Take a first look: 8 pairs, one search of 64 steps of 32 swaps."""
    search = replace(settings.gcg(), candidates=32, max_candidates=64 * 32)
    return UniversalConfig(method="gcg", limit=8, search=search)


class SearchUniversal(Job[UniversalConfig, UniversalSearchPlan, UniversalSearchPlan]):
    """`parley search universal`."""

    words = ("search", "universal")
    run_name = "search-universal"
    config = UniversalConfig
    presets = {"gcg": gcg, "gibbs": gibbs, "quick": quick}
    schema = UNIVERSAL
    files = (TABLE_FILE, SUMMARY, FILE, "rows")
    resume_safe = RESUME_SAFE
    outcomes = MODERATED

    def transcripts(self, run: RunFolder) -> TranscriptRule:
        return universal_transcript

    def prepare(self, config: UniversalConfig, path: Path, reporter: Reporter) -> UniversalSearchPlan:
        _require_pairs(config)
        require_searchable(config)
        models = open_together(config, config.names)
        targets = open_targets(config, models, path)
        _require_room(models, targets)
        searched, held_out = split_by_prompt(targets.targets, config.held_out, config.seed)
        return UniversalSearchPlan(config, models, targets, searched, held_out)

    def work(self, run: RunFolder, prepared: UniversalSearchPlan, reporter: Reporter) -> UniversalSearchPlan:
        config = prepared.config
        save_targets(prepared.targets, run.path)
        reporter.say(str(_composition(prepared)))
        labels = tuple(model_labels(config.model))
        answers = str((run.path / ANSWERS_FOLDER).absolute())
        search_task = UniversalSearchTask(config, prepared.models, prepared.searched, prepared.held_out, labels, answers)
        items = universal_inputs(config.search.restarts, config.num_random)
        title = f"searching for one input behind {len(prepared.searched):,} prompts, {len(prepared.held_out):,} held out"
        run_items(run, search_task, items, config, reporter, title)
        return prepared

    def measure(self, run: RunFolder, plan: UniversalSearchPlan) -> Summary:
        config, rows = plan.config, run.rows()
        best = best_found(rows)
        return Summary(
            f"universal trigger for {plan.targets.name} on {config.model}",
            f"{len(plan.searched):,} searched pairs, {len(plan.held_out):,} behind held-out prompts, {config.method}, "
            f"searches: {config.search.restarts}, seed {config.seed}.",
            universal_metrics(rows, len(plan.targets.skipped)),
            {
                ATTACK: _composition(plan).parts,
                BEST: best and best["typed"],
                "thresholds": plan.models.limits,
                "skipped": [skipped._asdict() for skipped in plan.targets.skipped],
            },
        )

    def models(self, config: UniversalConfig) -> Mapping[str, str]:
        other_models = {f"model {number}": name.partition(":")[2] for number, name in enumerate(config.names[1:], start=2)}
        return models_of(replace(config, model=next(iter(config.names), ""))) | other_models

    def num_rows(self, config: UniversalConfig, path: Path) -> int:
        return len(universal_inputs(config.search.restarts, config.num_random))

    def num_items(self, config: UniversalConfig) -> int:
        _require_pairs(config)
        require_searchable(config)
        return self.num_rows(config, Path())

    def metrics_of(self, config: UniversalConfig) -> None:
        return None

    def flat(self, run: RunFolder) -> FlatRows:
        return each_of(UNIVERSAL, "pairs", {"kind": "reply_kind"})

    def tables(self, run: RunFolder) -> dict[str, EstimateTable]:
        metrics = run.metrics()
        if not metrics:
            return {}
        clause = successful_reply(run.config["success"], end=run.config["hugging_face"]["end"])
        best = best_found(run.rows())
        shown = shown_inputs(ShownInput.of(pair, best["typed"]) for pair in best["pairs"]) if best else {}
        return {"": universal_table(metrics, clause), **shown}

    def present(self, result: Result, run: RunFolder) -> Result:
        legend = {name: describe_universal(name) for name in result.metrics}
        return replace(result, legend=legend, tables=self.tables(run), failure=result.failure or unread_failure(result.metrics))


def _composition(plan: UniversalSearchPlan) -> AttackComposition:
    """Return the attack as a composition: as a search, with the mean over the searched pairs as its objective."""
    attack = composition(plan.config, plan.models.thresholds)
    num, models = len(plan.searched), f" on {len(plan.config.names)} models" * (len(plan.config.names) > 1)
    held_out = f", one input behind all; {len(plan.held_out)} pairs held out"
    return replace(attack, objective=f"mean of {num} pairs{models}: {attack.objective}", prompts=attack.prompts + held_out)


def _require_room(models: Models, targets: TargetList) -> None:
    """Raise DataError if a model beside the first cannot read a prompt."""
    for other in models.other_models:
        victim = cast("HuggingFaceCausal", other.load("cpu"))
        for pair in targets.targets:
            behind = victim.behind(str(pair.prompt))
            room = behind.longest_reply
            if behind.read_text("") is None or (room is not None and len(behind.target(" ".join(pair.words))) > room):
                fix = "leave the prompt out, or the model"
                raise DataError("a prompt is longer than the model reads", where=other.name, got=str(pair.prompt)[:80], fix=fix)


def _require_pairs(config: UniversalConfig) -> None:
    """Raise ConfigError if there are no prompts to search behind, before any model is loaded."""
    from parley.engine.triggers.catalogue import make_method

    if not has_prompts(config.targets):
        fix = "--targets FILE of CSV, TSV, JSON, JSON Lines or Parquet, with the columns prompt and target"
        raise ConfigError("one input for many prompts needs pairs", where="--targets", got=repr(config.targets), fix=fix)
    if not config.names or not all(map(is_hugging_face, config.names)):
        what, fix = "targets with prompts need a model that reads prompts", "--model hf:FOLDER or gguf:FILE"
        raise ConfigError(what, where="--model", got=repr(config.model), fix=fix)
    method, several = make_method(config.method), len(config.names) > 1
    if method.embeds and several:
        fix = "search one model, or name another --method"
        raise ConfigError("models do not share the embeddings that the method moves among", got=config.method, fix=fix)
    if config.corpus and several:
        fix = "leave out --corpus; --set objective.t_out=NATS for sampled hits"
        raise ConfigError("a corpus sets the thresholds of one model", where="--corpus", got=config.model, fix=fix)
    if not method.searches_words:
        fix = "name another --method"
        raise ConfigError("a continuous input has no words to type", where="--method", got=config.method, fix=fix)
    if config.search.stop_on_batch_mean:
        fix = "leave out search.stop_on_batch_mean"
        raise ConfigError("searches of one input do not stop as a batch", where="search.stop_on_batch_mean", fix=fix)


SEARCH_UNIVERSAL = SearchUniversal()
