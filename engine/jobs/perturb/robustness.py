"""Evaluation under perturbations: `parley evaluate robustness` (Niu & Bansal 2018, arXiv 1809.02079, tables 2 and 4).

A response model answers the contexts of a dialogue corpus as they were recorded and as every strategy edits them; models that
were trained against strategies answer the clean contexts and those of their strategies. A shard is a few examples with all of
their replies; what a worker makes of them is one row each (`robustness_worker.py`), and depends on nothing but the
configuration.
"""

from __future__ import annotations

import shlex
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from engine.jobs.command import command_line
from engine.jobs.device import require_device, threads
from engine.jobs.job import Job, Reporter, Result, Silent
from engine.jobs.perturb.config import RobustnessConfig
from engine.jobs.perturb.models import AskedModels, models_of, open_models, plain_words
from engine.jobs.perturb.rows import ROBUSTNESS
from engine.jobs.perturb.scores import Activities
from engine.jobs.perturb.worker import Answers, RobustnessWorker, answers, example_seed, perturbation_seed, resources
from engine.jobs.sharded import RESUME_SAFE, session
from engine.jobs.tables import TABLE_FILE
from engine.metrics.perturb.robustness import (
    ACTIVITY,
    BASE,
    CHANGE_RATE,
    TOUCHED_CHANGE_RATE,
    base_metrics,
    describe,
    robustness_metrics,
)
from engine.metrics.perturb.table import table_2, table_4
from engine.metrics.statistics import Estimate, Metric
from engine.metrics.tables import TextTable
from engine.perturb import catalogue
from engine.perturb.resources import Resources
from engine.perturb.settings import PerturbSettings
from engine.perturb.strategy import Expectation
from engine.runtime.pool import Progress
from engine.runtime.record import Rows, record_shards
from engine.runtime.sharding import make_shards
from engine.store.documents import write_whole
from engine.store.layout import SUMMARY
from engine.store.run_folder import RunFolder
from engine.store.schemas import OK
from engine.store.summary import reading_summary
from envs.core.errors import ConfigError, DataError, RunError
from envs.core.seeds import stream
from envs.data.root import data_root, root_words
from envs.pairs.compiled import load_pairs
from envs.pairs.contexts import examples
from envs.pairs.corpora import pair_corpora
from envs.pairs.turns import Example
from envs.storage.places import display_path

FILES = (TABLE_FILE, SUMMARY, "rows")
EVALUATED = "evaluated"
"""Kind of the event that says how many examples a session evaluated, and how long it took."""
NUM_EXAMPLES, STRATEGIES, UNSCORED = "examples", "strategies", "unscored"
"""Entries of the summary: how many examples there are, what a good model does by strategy, and why activities and entities were
not scored; empty if they were."""
SUPPORT = ("ubuntu_dialogues", "ubuntu_irc")
"""Corpora of ours about what the tables of activities know; a corpus of a user's own is taken to be."""
SCREENFUL = 24
"""More metrics than these are shown as a table."""


@dataclass(frozen=True)
class Evaluation:
    """What is to be done, found and checked.

    Args:
        config: what was asked for, its data root found.
        models: who is asked.
        corpus: whose dialogues they continue.
        examples: in the order of the corpus.
        common: words, most frequent first.
        strategies: what a good model does with their contexts, by name.
        activities: what scores activities and entities; None when nothing can.
        unscored: why not.
    """

    config: RobustnessConfig
    models: AskedModels
    corpus: str
    examples: Sequence[Example]
    common: Sequence[str]
    strategies: Mapping[str, str]
    activities: Activities | None
    unscored: str


def run(config: RobustnessConfig, path: Path, reporter: Reporter) -> Result:
    """Asks what is left of the examples and summarises the run."""
    job = replace(EVALUATE_ROBUSTNESS, num_rows=lambda _: _num_examples(path))
    if earlier := job.finished(config, path, reporter):
        return _presented(earlier)
    evaluation = _prepare(config, reporter)
    with RunFolder.open(
        path, config, job=job.name, schema=ROBUSTNESS, resume_safe=job.resume_safe, weights=job.weights(config)
    ) as folder:
        _evaluate(folder, evaluation, reporter)
        reporter.say("computing metrics, their intervals and significances")
        rows = folder.read_rows().to_pylist()
        about = {
            "title": f"robustness of {config.model} on {evaluation.corpus}",
            "description": f"{len(evaluation.examples):,} {config.split} examples, {len(evaluation.strategies)} strategies, "
            f"{'greedy replies' if config.beam == 1 else f'beam {config.beam}'}, seed {config.seed}.",
            "command": command_line(EVALUATE_ROBUSTNESS, config, path),
            NUM_EXAMPLES: len(evaluation.examples),
            STRATEGIES: evaluation.strategies,
            UNSCORED: evaluation.unscored,
        }
        folder.write_summary({**robustness_metrics(rows), **_references(evaluation, rows)}, about)
        _write_tables(path / TABLE_FILE, tables_of(folder), about)
    return _presented(job.result(config, path))


def tables_of(run: RunFolder) -> dict[str, TextTable]:
    """The tables of a run by their headings, that of F1 only where it was scored; none before it has written its summary."""
    metrics = {name: Estimate.from_json(parts) for name, parts in (run.summary() or {}).get("metrics", {}).items()}
    published = None if run.config["published"] == "none" else run.config["published"]
    scored = {"Activity and entity F1": table_2(metrics, published)} if f"{ACTIVITY}.{BASE}.clean" in metrics else {}
    return {**scored, "Change and similarity": table_4(metrics, published)} if metrics else {}


def _prepare(config: RobustnessConfig, reporter: Reporter) -> Evaluation:
    """Finds out before a run is made whether everything is there and works."""
    if config.gpus_per_worker > 0 and not config.workers:
        require_device("cuda", "--gpus-per-worker")
    for name in config.left_out:
        reporter.say(f"{name} is left out: it needs a paraphraser (--set perturb.paraphraser=RUN of parley train paraphraser)")
    found = replace(config, data_root=data_root(config.data_root))
    models = open_models(found)
    name = config.corpus or models.corpus
    if not name:
        what = "the model does not say which corpus it was fitted to, so it has no dialogues to continue"
        raise ConfigError(what, where=config.model, fix="name one with --corpus")
    chosen, common = _examples(found, name, models, reporter)
    shared = resources(found, models, common)
    strategies = catalogue.build(config.strategy_names, config.perturb, shared)
    names = [strategy.name for strategy in strategies]
    if len(set(names)) < len(names):
        raise ConfigError("two strategies bear the same name", got=", ".join(names), fix="rename yours, or name one of them")
    expected = {strategy.name: strategy.expectation.value for strategy in strategies}
    for strategy in strategies:
        # Lexicons and networks open when they are first asked.
        strategy.perturb([chosen[0].context], [perturbation_seed(config.seed, strategy.name, chosen[0].key)])
    activities, unscored = _activities(name, shared)
    if unscored:
        reporter.say(f"activities and entities are not scored: {unscored}")
    _tell_of_models(models, names, reporter)
    if config.perturb.lexicon == "built-in":
        from engine.perturb.built_in import ANNOUNCEMENT

        reporter.say(ANNOUNCEMENT)
    return Evaluation(found, models, name, chosen, common, expected, activities, unscored)


def _examples(
    config: RobustnessConfig, name: str, models: AskedModels, reporter: Reporter
) -> tuple[list[Example], tuple[str, ...]]:
    """The examples, and the words that random inputs are drawn from.

    Raises:
        DataError: the corpus cannot be read, or has no example.
    """
    corpus = load_pairs(name, config.data_root, every_word=True)
    turns = config.contexts.turns or models.turns
    found = examples(corpus, config.split, turns, config.contexts.min_turns)
    if not len(found):
        raise DataError(
            f"the {config.split} split has no example with a context of {config.contexts.min_turns} turns or more",
            where=name,
            got=f"{len(corpus.splits[config.split]):,} pairs",
            fix="name another --split or --corpus, or lower contexts.min_turns",
        )
    places: Sequence[int] = range(len(found))
    if config.limit and len(found) > config.limit:
        places = sorted(stream(config.seed, "examples", name).permutation(len(found))[: config.limit].tolist())
    chosen = [found[place] for place in places]
    if turns > 1 and all(len(example.context) == 1 for example in chosen):
        reporter.say(f"the dialogues of {name} have one turn of context; {turns} could be read")
    return chosen, plain_words(models.vocabulary or corpus.vocabulary)


def _activities(corpus: str, shared: Resources) -> tuple[Activities | None, str]:
    """What scores activities and entities, or why nothing does."""
    if corpus in pair_corpora and corpus not in SUPPORT:
        return None, f"they are those of technical support for Ubuntu, and {corpus} is about something else"
    try:
        return Activities.open(shared), ""
    except DataError as error:
        return None, f"{error.what} ({error.where}); {error.fix}"


def _tell_of_models(models: AskedModels, strategies: Sequence[str], reporter: Reporter) -> None:
    for model in models.models[1:]:
        met = [name for name in strategies if name in model.against]
        reporter.say(f"{model.label}: {model.name} meets {', '.join(met) or 'clean contexts alone'}")


class _Account:
    """How often the base has answered otherwise so far, in words for a reporter."""

    def __init__(self, rows: Rows) -> None:
        self._asked: Counter[str] = Counter()
        self._otherwise: Counter[str] = Counter()
        self.add(answers(rows))

    def add(self, found: Answers) -> None:
        """Notes the answers of a shard."""
        self._asked.update(found.asked)
        self._otherwise.update(found.otherwise)

    def told(self) -> str:
        """Such as "other replies: random-swap 41 %, antonym 12 %"."""
        shares = (f"{name} {100 * self._otherwise[name] / asked:.0f} %" for name, asked in self._asked.items())
        return f"other replies: {', '.join(shares)}" if self._asked else ""


def _evaluate(run: RunFolder, evaluation: Evaluation, reporter: Reporter) -> None:
    """Asks what the run does not hold yet.

    Raises:
        ClusterError: Ray cannot be reached or lacks room for the workers.
        RunError: the disk refuses.
    """
    config = evaluation.config
    shards = make_shards({example.key: example for example in evaluation.examples}, config.engine.examples_per_shard)
    reporter.stage("asking the models" if config.trained else "asking the model", len(evaluation.examples), "examples")
    before, began = run.num_done, time.monotonic()
    account = _Account(run.read_rows().to_pylist())

    def on_progress(progress: Progress) -> None:
        workers = f"{progress.num_workers} of {config.workers} workers" if config.workers else ""
        failed = f"{progress.num_failed} failed" if progress.num_failed else ""
        reporter.advance(before + progress.num_done, "; ".join(filter(None, (account.told(), workers, failed))))

    record = partial(
        record_shards,
        run,
        RobustnessWorker,
        (config, evaluation.models, evaluation.common, evaluation.activities is not None),
        shards,
        seed_of=partial(example_seed, config.seed),
        num_workers=config.workers,
        num_gpus_per_worker=config.gpus_per_worker,
        digest=answers,
        on_digest=account.add,
        on_progress=on_progress,
    )
    # As in an actor: sums may differ in the last digit with the number of threads.
    with threads(1) if config.workers == 0 else session(config.workers, config.address):
        final = record()
    run.event(EVALUATED, seconds=time.monotonic() - began, examples=final.num_done, workers=max(config.workers, 1))


def _references(evaluation: Evaluation, rows: Rows) -> dict[str, Estimate]:
    """What constant replies, and the true ones themselves, score on the examples that were answered."""
    if evaluation.activities is None:
        return {}
    answered = {row["item_key"] for row in rows if row["status"] == OK}
    return evaluation.activities.references([each.reply for each in evaluation.examples if each.key in answered])


def _write_tables(path: Path, tables: Mapping[str, TextTable], about: Mapping[str, Any]) -> None:
    """Writes the tables as Markdown.

    Raises:
        RunError: the disk refuses.
    """
    title, description, command = (str(about[name]) for name in ("title", "description", "command"))
    parts = [f"# {title[:1].upper()}{title[1:]}\n\n{description}\n"]
    parts += [f"## {heading}\n\n{table.to_markdown()}" for heading, table in tables.items()]
    if about[UNSCORED]:
        parts.append(f"Activities and entities are not scored: {about[UNSCORED]}.\n")
    parts.append(f"```\n{command}\n```\n")
    try:
        write_whole(path, "\n".join(parts).encode())
    except OSError as error:
        fix = "free some space, then the same command writes it"
        raise RunError("the tables cannot be written", where=path, got=error.strerror, fix=fix) from None


def _metrics_of(config: RobustnessConfig) -> list[str] | None:
    """Only a run can tell the names of strategies of a user's own, and what models were trained against."""
    if config.trained or any(".py:" in name for name in config.strategy_names):
        return None
    return base_metrics(config.strategy_names)


def _num_items(config: RobustnessConfig) -> int:
    return len(_prepare(config, Silent()).examples)


def _num_examples(path: Path) -> int:
    """How many examples a run has; -1 when it does not say yet."""
    with reading_summary(path) as summary:
        return int(summary.get(NUM_EXAMPLES, -1))


def _presented(result: Result) -> Result:
    """With what the metrics mean, and the tables in their place where they are more than a screen holds."""
    run = RunFolder.load(result.run)
    with reading_summary(run.path) as summary:
        tables = tuple(tables_of(run).values())
        legend = {name: describe_for(name, summary[STRATEGIES]) for name in result.metrics}
    return replace(result, legend=legend, tables=tables if len(result.metrics) > SCREENFUL else ())


def describe_for(name: str, expected: Mapping[str, str]) -> Metric:
    """What a metric means, which way a change of replies is better said by its strategy.

    Args:
        name: of the metric.
        expected: what a good model does, by strategy.
    """
    metric, strategy = describe(name), name.rpartition(".")[2]
    if name.startswith((CHANGE_RATE, TOUCHED_CHANGE_RATE)) and strategy in expected:
        return metric._replace(direction=f"{'higher' if expected[strategy] == Expectation.SHOULD_CHANGE else 'lower'}: better")
    return metric


def _next_commands(config: RobustnessConfig, path: Path) -> tuple[str, ...]:
    report = shlex.join(["parley", "report", display_path(path)])
    if config.trained or ".py:" in config.model:
        return (report,)
    return (report, shlex.join(["parley", "train", "adversarial", "--model", config.model, *root_words(config.data_root)]))


def niu2018() -> RobustnessConfig:
    """Every example of the split under the seven strategies by the paper's rules (Niu & Bansal 2018)."""
    return RobustnessConfig()


def quick() -> RobustnessConfig:
    """A first look: 200 examples."""
    return RobustnessConfig(limit=200)


def demo() -> RobustnessConfig:
    """Seconds, on the model of parley train seq2seq demo: 200 examples, two strategies, the built-in lexicon."""
    return RobustnessConfig(strategies="random-swap,antonym", limit=200, perturb=PerturbSettings(lexicon="built-in"))


EVALUATE_ROBUSTNESS = Job(
    "evaluate-robustness",
    RobustnessConfig,
    {"niu2018": niu2018, "quick": quick, "demo": demo},
    run,
    {},
    FILES,
    _next_commands,
    RESUME_SAFE,
    models_of,
    metrics_of=_metrics_of,
    num_items=_num_items,
)
