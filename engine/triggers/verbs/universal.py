"""Universal triggers: `parley search universal` (Wallace et al. 2019; Zou et al. 2023, section 3).

One input is searched for that makes a model say the target of each of many (prompt, target) pairs. A share of the prompts is
held out: no search sees them. What was found, random inputs of the same length and no input at all are typed behind all
prompts, and stand in one table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from parley.engine.core.runs.layout import SUMMARY
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.answers import is_no_reply
from parley.engine.core.stats.tables import TextTable
from parley.engine.core.verbs.export import FlatRows, each_of
from parley.engine.core.verbs.job import ATTACK, Job, Reporter, Result, Summary
from parley.engine.core.verbs.sharded import RESUME_SAFE, work_off
from parley.engine.core.verbs.tables import TABLE_FILE
from parley.engine.triggers.methods import settings
from parley.engine.triggers.methods.composition import AttackComposition
from parley.engine.triggers.methods.settings import SearchSettings
from parley.engine.triggers.metrics.hits import unread_failure
from parley.engine.triggers.metrics.shown import ShownInput, shown_inputs
from parley.engine.triggers.metrics.successes import successful_reply
from parley.engine.triggers.metrics.universal import best_found, describe_universal, universal_metrics, universal_table
from parley.engine.triggers.target_pairs import has_prompts
from parley.engine.triggers.targets import Target, TargetList
from parley.engine.triggers.verbs.config import TriggerConfig, is_hugging_face
from parley.engine.triggers.verbs.models import Models, models_of, open_together
from parley.engine.triggers.verbs.rows import UNIVERSAL
from parley.engine.triggers.verbs.search import require_searchable
from parley.engine.triggers.verbs.table import model_labels
from parley.engine.triggers.verbs.targets import FILE, open_targets, save_targets
from parley.engine.triggers.verbs.universal_worker import SearchingUniversal, universal_inputs
from parley.engine.triggers.verbs.worker import composition
from parley.envs.core.errors import ConfigError, DataError
from parley.envs.core.ranges import NumItemsOrAll, ShareBelowOne
from parley.envs.core.seeds import stream
from parley.policies.chat.answers import ANSWERS_FOLDER
from parley.policies.chat.model import MODERATED

if TYPE_CHECKING:
    from parley.policies.hugging_face.victims import HuggingFaceCausal

BEST = "best"
"""Entry of the summary: the input that is kept, as it is typed into each slot."""


@dataclass(frozen=True, kw_only=True)
class UniversalConfig(TriggerConfig):
    """Which model is to say the targets of many pairs behind one input."""

    model: str = ""
    """Causal model that is searched: hf:FOLDER or gguf:FILE; or several, separated by commas. The words are the first one's
    tokens; models with others read them as text."""
    targets: str = ""
    """A file of (prompt, target) pairs: CSV or JSONL, as of parley search."""
    hit: str = "o-greedy"
    """Wanted hits, as of parley search; a search ends where it is one behind every searched prompt."""
    limit: NumItemsOrAll = 40
    """At most so many pairs, the seed's choice; 0 for all. Half of them are read for each input that is tried."""
    held_out: ShareBelowOne = 0.5
    """Share of the prompts that no search sees."""
    num_random: NumItemsOrAll = 5
    """Random inputs of the same length, tried behind all prompts beside what is found."""

    @property
    def names(self) -> tuple[str, ...]:
        """The models, one by one."""
        return tuple(name.strip() for name in self.model.split(",") if name.strip())


@dataclass(frozen=True)
class WantedUniversal:
    """What is searched for, found and checked.

    Args:
        config: what was asked for.
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


def split_by_prompt(pairs: tuple[Target, ...], held_out: float, seed: int) -> tuple[tuple[Target, ...], tuple[Target, ...]]:
    """Pairs to search for, and held-out ones; those of one prompt are all in one of the two.

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
    unseen = {prompts[place] for place in stream(seed, "held-out prompts").permutation(len(prompts))[:num]}
    return tuple(pair for pair in pairs if pair.prompt not in unseen), tuple(pair for pair in pairs if pair.prompt in unseen)


def gcg() -> UniversalConfig:
    """GCG in nanoGCG's sizes, one search (Zou et al. 2023)."""
    return UniversalConfig(method="gcg", search=settings.gcg())


def gibbs() -> UniversalConfig:
    """gibbs-enum, position by position: lists of 100, at most 10 sweeps, 2 searches (He & Glass 2018)."""
    return UniversalConfig(search=SearchSettings(restarts=2, max_sweeps=10))


def quick() -> UniversalConfig:
    """A first look: 8 pairs, one search of 64 steps of 32 swaps."""
    search = replace(settings.gcg(), candidates=32, max_candidates=64 * 32)
    return UniversalConfig(method="gcg", limit=8, search=search)


class SearchUniversal(Job[UniversalConfig, WantedUniversal, WantedUniversal]):
    """`parley search universal`."""

    words = ("search", "universal")
    run_name = "search-universal"
    config = UniversalConfig
    presets = {"gcg": gcg, "gibbs": gibbs, "quick": quick}
    schema = UNIVERSAL
    files = (TABLE_FILE, SUMMARY, FILE, "rows")
    resume_safe = RESUME_SAFE
    outcomes = MODERATED

    def prepare(self, config: UniversalConfig, path: Path, reporter: Reporter) -> WantedUniversal:
        """The model and the pairs, those that the run was started with where it has begun."""
        _require_pairs(config)
        require_searchable(config)
        models = open_together(config, config.names)
        targets = open_targets(config, models, path)
        _require_room(models, targets)
        searched, held_out = split_by_prompt(targets.targets, config.held_out, config.seed)
        return WantedUniversal(config, models, targets, searched, held_out)

    def work(self, run: RunFolder, prepared: WantedUniversal, reporter: Reporter) -> WantedUniversal:
        config = prepared.config
        save_targets(prepared.targets, run.path)
        reporter.say(str(_composition(prepared)))
        labels = tuple(model_labels(config.model))
        answers = str((run.path / ANSWERS_FOLDER).absolute())
        searching = SearchingUniversal(config, prepared.models, prepared.searched, prepared.held_out, labels, answers)
        items = universal_inputs(config.search.restarts, config.num_random)
        title = f"searching for one input behind {len(prepared.searched):,} prompts, {len(prepared.held_out):,} held out"
        work_off(run, searching, items, config, reporter, title)
        return prepared

    def measure(self, run: RunFolder, found: WantedUniversal) -> Summary:
        config, rows = found.config, run.read_rows().to_pylist()
        kept = best_found(rows)
        return Summary(
            f"universal trigger for {found.targets.name} on {config.model}",
            f"{len(found.searched):,} searched pairs, {len(found.held_out):,} behind held-out prompts, {config.method}, "
            f"searches: {config.search.restarts}, seed {config.seed}.",
            universal_metrics(rows, len(found.targets.skipped)),
            {
                ATTACK: _composition(found).parts,
                BEST: kept and kept["typed"],
                "thresholds": found.models.limits,
                "skipped": [each._asdict() for each in found.targets.skipped],
            },
        )

    def models(self, config: UniversalConfig) -> Mapping[str, str]:
        beside = {f"model {place}": name.partition(":")[2] for place, name in enumerate(config.names[1:], start=2)}
        return models_of(replace(config, model=next(iter(config.names), ""))) | beside

    def num_rows(self, config: UniversalConfig, path: Path) -> int:
        return len(universal_inputs(config.search.restarts, config.num_random))

    def num_items(self, config: UniversalConfig) -> int:
        _require_pairs(config)
        require_searchable(config)
        return self.num_rows(config, Path())

    def metrics_of(self, config: UniversalConfig) -> None:
        return None

    def flat(self, run: RunFolder) -> FlatRows:
        """One input behind the prompt of one pair per line."""
        return each_of(UNIVERSAL, "pairs", {"kind": "reply_kind"})

    def tables(self, run: RunFolder) -> dict[str, TextTable]:
        metrics = run.metrics()
        if not metrics:
            return {}
        clause = successful_reply(run.config["success"], end=run.config["hugging_face"]["end"])
        return {"": universal_table(metrics, clause), **shown_inputs(_shown(run))}

    def present(self, result: Result, run: RunFolder) -> Result:
        """With the table in the place of the metrics."""
        legend = {name: describe_universal(name) for name in result.metrics}
        return replace(result, legend=legend, tables=self.tables(run), failure=result.failure or unread_failure(result.metrics))


def _shown(run: RunFolder) -> Iterator[ShownInput]:
    """Yield what the kept input made each model reply behind each prompt."""
    kept = best_found([row for part in run.read_parts() for row in part.to_pylist()])
    if kept is None:
        return
    for pair in kept["pairs"]:
        kind = pair["kind"] if is_no_reply(pair) else ""
        yield ShownInput(bool(pair["verified"]), pair["prompt"], kept["typed"], pair["target"], pair["reply"], kind)


def _composition(wanted: WantedUniversal) -> AttackComposition:
    """The attack: as a search, with the mean over what searches see for its objective."""
    found = composition(wanted.config, wanted.models.thresholds)
    num, models = len(wanted.searched), f" on {len(wanted.config.names)} models" * (len(wanted.config.names) > 1)
    held_out = f", one input behind all; {len(wanted.held_out)} pairs held out"
    return replace(found, objective=f"mean of {num} pairs{models}: {found.objective}", prompts=found.prompts + held_out)


def _require_room(models: Models, targets: TargetList) -> None:
    """Raises DataError where a model beside the first cannot read a prompt."""
    for other in models.others:
        victim = cast("HuggingFaceCausal", other.load("cpu"))
        for pair in targets.targets:
            behind = victim.behind(str(pair.prompt))
            room = behind.longest_reply
            if behind.read_text("") is None or (room is not None and len(behind.target(" ".join(pair.words))) > room):
                fix = "leave the prompt out, or the model"
                raise DataError("a prompt is longer than the model reads", where=other.name, got=str(pair.prompt)[:80], fix=fix)


def _require_pairs(config: UniversalConfig) -> None:
    """Raises ConfigError where there are no prompts to search behind, before any model is loaded."""
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
