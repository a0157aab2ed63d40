"""Evaluation under perturbations: `parley evaluate robustness` (Niu & Bansal 2018, arXiv 1809.02079, tables 2, 4 and 9).

A response model answers the contexts of a dialogue corpus as they were recorded and as every strategy edits them; models that
were trained against strategies answer the clean contexts and those of their strategies; one that stands beside answers the very
same contexts, such as one that reads pieces of words. A shard is a few examples with all of
their replies; what a worker makes of them is one row each (`robustness_worker.py`), and depends on nothing but the
configuration.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from parley.engine.core.ray.record import Rows
from parley.engine.core.runs.layout import SUMMARY
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.runs.schemas import OK
from parley.engine.core.stats.statistics import Estimate, Metric
from parley.engine.core.stats.tables import TextTable
from parley.engine.core.verbs.export import FlatRows
from parley.engine.core.verbs.job import Job, Reporter, Result, Silent, Summary
from parley.engine.core.verbs.sharded import RESUME_SAFE, work_off
from parley.engine.core.verbs.tables import TABLE_FILE
from parley.engine.perturb.metrics.robustness import (
    ACTIVITY,
    BASE,
    CHANGE_RATE,
    TOUCHED_CHANGE_RATE,
    base_metrics,
    describe,
    robustness_metrics,
    unknown_shares,
)
from parley.engine.perturb.metrics.table import table_2, table_4
from parley.engine.perturb.metrics.table_9 import ModelSize, table_9
from parley.engine.perturb.resources import Resources
from parley.engine.perturb.settings import PerturbSettings
from parley.engine.perturb.strategy import Expectation
from parley.engine.perturb.verbs.config import RobustnessConfig
from parley.engine.perturb.verbs.examples import chosen_examples, tell_of_left_out, tried
from parley.engine.perturb.verbs.models import AskedModels, models_of, open_models
from parley.engine.perturb.verbs.rows import REPLIES, ROBUSTNESS
from parley.engine.perturb.verbs.scores import Activities
from parley.engine.perturb.verbs.worker import Asking, resources
from parley.envs.core.errors import ConfigError, DataError
from parley.envs.corpora.pairs.corpora import pair_corpora
from parley.envs.corpora.pairs.turns import Example
from parley.envs.corpora.root import data_root, root_words
from parley.policies.chat.answers import ANSWERS_FOLDER

NUM_EXAMPLES, STRATEGIES, UNSCORED, SIZES = "examples", "strategies", "unscored", "sizes"
"""Entries of the summary: how many examples there are, what a good model does by strategy, why activities and entities were not
scored, empty if they were, and sizes of two models that are compared."""
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


def _prepare(config: RobustnessConfig, reporter: Reporter) -> Evaluation:
    """Finds out before a run is made whether everything is there and works."""
    config.require_device()
    tell_of_left_out(config, reporter)
    found = replace(config, data_root=data_root(config.data_root))
    models = open_models(found)
    name = config.corpus or models.corpus
    if not name:
        what = "the model does not say which corpus it was fitted to, so it has no dialogues to continue"
        raise ConfigError(what, where=config.model, fix="name one with --corpus")
    chosen, corpus = chosen_examples(found, name, config.contexts.turns or models.turns, reporter)
    common = models.common(corpus.vocabulary)
    shared = resources(found, models, common)
    strategies = tried(found, shared, chosen[0])
    names = [strategy.name for strategy in strategies]
    expected = {strategy.name: strategy.expectation.value for strategy in strategies}
    activities, unscored = _activities(name, shared)
    if unscored:
        reporter.say(f"activities and entities are not scored: {unscored}")
    _tell_of_models(models, names, reporter)
    return Evaluation(found, models, name, chosen, common, expected, activities, unscored)


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
        met = [name for name in strategies if model.meets(name)]
        reporter.say(f"{model.label}: {model.name} meets {', '.join(met) or 'clean contexts alone'}")


def _references(evaluation: Evaluation, rows: Rows) -> dict[str, Estimate]:
    """What constant replies, and the true ones themselves, score on the examples that were answered."""
    if evaluation.activities is None:
        return {}
    answered = {row["item_key"] for row in rows if row["status"] == OK}
    return evaluation.activities.references([each.reply for each in evaluation.examples if each.key in answered])


def _unknown(evaluation: Evaluation, rows: Rows) -> dict[str, Estimate]:
    """Where another model stands beside one that reads words: how often that one meets unknown ones."""
    words = evaluation.models.words
    if not evaluation.models.sizes or not isinstance(words, frozenset):
        return {}
    return unknown_shares(rows, words)


def describe_for(name: str, expected: Mapping[str, str]) -> Metric:
    """What a metric means, which way a change of replies is better said by its strategy.

    Args:
        name: of the metric.
        expected: what a good model does, by strategy.
    """
    metric, ends = describe(name), [each for each in expected if name.endswith(f".{each}")]
    if name.startswith((CHANGE_RATE, TOUCHED_CHANGE_RATE)) and ends:
        wanted = expected[max(ends, key=len)]
        return metric._replace(direction=f"{'higher' if wanted == Expectation.SHOULD_CHANGE else 'lower'}: better")
    return metric


def niu2018() -> RobustnessConfig:
    """Every example of the split under the seven strategies by the paper's rules (Niu & Bansal 2018)."""
    return RobustnessConfig()


def quick() -> RobustnessConfig:
    """A first look: 200 examples."""
    return RobustnessConfig(limit=200)


def demo() -> RobustnessConfig:
    """Seconds, on the model of parley train seq2seq demo: 200 examples, two strategies, the built-in lexicon."""
    return RobustnessConfig(strategies="random-swap,antonym", limit=200, perturb=PerturbSettings(lexicon="built-in"))


class EvaluateRobustness(Job[RobustnessConfig, Evaluation, Evaluation]):
    """`parley evaluate robustness`."""

    words = ("evaluate", "robustness")
    run_name = "robustness"
    config = RobustnessConfig
    presets = {"niu2018": niu2018, "quick": quick, "demo": demo}
    schema = ROBUSTNESS
    files = (TABLE_FILE, SUMMARY, "rows")
    num_rows_entry = NUM_EXAMPLES
    resume_safe = RESUME_SAFE

    def prepare(self, config: RobustnessConfig, path: Path, reporter: Reporter) -> Evaluation:
        """Models, examples and strategies, each strategy tried once."""
        return _prepare(config, reporter)

    def work(self, run: RunFolder, prepared: Evaluation, reporter: Reporter) -> Evaluation:
        config = prepared.config
        scored, answers = prepared.activities is not None, str(run.path / ANSWERS_FOLDER)
        asking = Asking(config, prepared.models, tuple(prepared.common), scored, answers=answers)
        items = {example.key: example for example in prepared.examples}
        work_off(run, asking, items, config, reporter, "asking the models" if config.trained else "asking the model")
        reporter.stage("computing metrics, their intervals and significances", 0, "")
        return prepared

    def measure(self, run: RunFolder, found: Evaluation) -> Summary:
        config, rows = found.config, run.read_rows().to_pylist()
        return Summary(
            f"robustness of {config.model} on {found.corpus}",
            f"{len(found.examples):,} {config.split} examples, {len(found.strategies)} strategies, "
            f"replies by {config.decoder}, seed {config.seed}.",
            {**robustness_metrics(rows), **_unknown(found, rows), **_references(found, rows)},
            {
                NUM_EXAMPLES: len(found.examples),
                STRATEGIES: found.strategies,
                UNSCORED: found.unscored,
                SIZES: {label: asdict(size) for label, size in found.models.sizes.items()},
            },
        )

    def models(self, config: RobustnessConfig) -> dict[str, str]:
        return models_of(config)

    def num_items(self, config: RobustnessConfig) -> int:
        return len(_prepare(config, Silent()).examples)

    def metrics_of(self, config: RobustnessConfig) -> list[str] | None:
        """Only a run can tell the names of strategies of a user's own, and what models were trained against."""
        if config.trained or config.beside or any(".py:" in name for name in config.strategy_names):
            return None
        return base_metrics(config.strategy_names)

    def flat(self, run: RunFolder) -> FlatRows:
        return REPLIES

    def next_commands(self, config: RobustnessConfig, path: Path) -> tuple[str, ...]:
        after = super().next_commands(config, path)
        if config.trained or not config.is_ours:
            return after
        train = ["parley", "train", "adversarial", "--model", config.model, *root_words(config.data_root)]
        return (*after, shlex.join(train))

    def tables(self, run: RunFolder) -> dict[str, TextTable]:
        """The tables of the paper, that of F1 only where it was scored."""
        metrics = run.metrics()
        published = None if run.config["published"] == "none" else run.config["published"]
        scored = {"Activity and entity F1": table_2(metrics, published)} if f"{ACTIVITY}.{BASE}.clean" in metrics else {}
        if not metrics:
            return {}
        sizes = {label: ModelSize(**size) for label, size in (run.summary() or {}).get(SIZES, {}).items()}
        both = {"Words and pieces of words": table_9(metrics, sizes, published=published == "niu2018")} if sizes else {}
        return {**both, **scored, "Change and similarity": table_4(metrics, published)}

    def note(self, run: RunFolder) -> str:
        unscored = (run.summary() or {})[UNSCORED]
        return f"Activities and entities are not scored: {unscored}." if unscored else ""

    def present(self, result: Result, run: RunFolder) -> Result:
        """With what the metrics mean, and the tables in their place where they are more than a screen holds."""
        expected = (run.summary() or {})[STRATEGIES]
        legend = {name: describe_for(name, expected) for name in result.metrics}
        return replace(result, legend=legend, tables=self.tables(run) if len(result.metrics) > SCREENFUL else {})


EVALUATE_ROBUSTNESS = EvaluateRobustness()
