"""Evaluation under perturbations: `parley evaluate robustness` (Niu & Bansal 2018, arXiv 1809.02079, tables 2, 4 and 9).

A response model answers the contexts of a dialogue corpus as they were recorded and as every strategy edits them; models that
were trained against strategies answer the clean contexts and those of their strategies; a model beside it answers the same
contexts, such as one that reads pieces of words. A Hugging Face bi-encoder answers with the best of all replies of the corpus,
a classifier with a label (`policies/ranking/answering.py`). A shard is a few examples with all of their replies; what a worker
makes of them is one row each, and depends on nothing but the configuration.

Rows are those of `engine.perturb.verbs.config.ROBUSTNESS`. A model answers each context once: where a strategy changed
nothing, the reply is the one to the clean context.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from parley.engine.core.ray.record import Counts, Rows
from parley.engine.core.ray.worker import Shard
from parley.engine.core.runs.parts import OK, answer_columns, ok_row
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.statistics import NO_REPLY, Estimate, Metric, is_no_reply
from parley.engine.core.tables.table import EstimateTable
from parley.engine.core.verbs.export import FlatRows
from parley.engine.core.verbs.job import Reporter, Result, Summary
from parley.engine.core.verbs.sharded import ItemsJob, Prepared, Sharded, Tally, rows_apart, spread
from parley.engine.perturb.catalogue import Resources, build
from parley.engine.perturb.metrics.table import (
    ACTIVITY,
    BASE,
    CHANGE_RATE,
    CONTEXT_ITEMS,
    TOUCHED_CHANGE_RATE,
    ModelSize,
    base_metrics,
    describe,
    robustness_metrics,
    table_2,
    table_4,
    table_9,
    unknown_shares,
)
from parley.engine.perturb.strategies.texts import num_changed, spans
from parley.engine.perturb.strategy import Expectation, PerturbSettings
from parley.engine.perturb.verbs.config import REPLIES, ROBUSTNESS, Activities, RobustnessConfig, bleu, likeness
from parley.engine.perturb.verbs.models import (
    ModelSpecs,
    build_and_run_once,
    chosen_examples,
    models_of,
    open_models,
    perturbed_contexts,
    recorded_replies,
    report_left_out,
)
from parley.envs.core.errors import ConfigError, DataError
from parley.envs.core.seeds import derive_seed
from parley.envs.corpora.arrow import data_root, root_words
from parley.envs.corpora.pairs.corpora import pair_corpora
from parley.envs.corpora.pairs.turns import Example, Turns, context_words, format_turns
from parley.policies.core.responder import replies_of

if TYPE_CHECKING:
    from parley.engine.perturb.strategy import Strategy
    from parley.policies.core.responder import ModelReply, Responder, TrainableResponder


CLEAN = ""
"""The strategy of the recorded context in rows."""
ASKED, OTHERWISE = "asked.", "otherwise."
"""Prefixes of the counts by strategy."""


def resources(config: RobustnessConfig, models: ModelSpecs, common: Sequence[str]) -> Resources:
    """Return the resources that the strategies of an evaluation share.

    Args:
        config: the evaluation, with its data root found.
        models: whose words may enter.
        common: words, most frequent first.
    """
    corpus = config.corpus or models.corpus
    return Resources(config.perturb, models.words, tuple(common), config.data_root, config.device, corpus)


@dataclass(frozen=True)
class QueryTask(Sharded[Example]):
    """Queries of models, with clean and perturbed contexts.

    Args:
        config: the evaluation, with its data root found.
        models: that reply.
        common: words that random inputs are drawn from, most frequent first.
        answers: folder in which a chat model's answers are kept.
        scored: whether activities and entities are scored, for which the data root must hold their tables.
    """

    unit = "examples"
    event = "evaluated"
    purpose = "robustness"

    config: RobustnessConfig
    models: ModelSpecs
    common: Sequence[str]
    scored: bool
    answers: str = field(default="", kw_only=True)

    def worker(self) -> RobustnessWorker:
        return RobustnessWorker(self)

    def shard_size(self, num_items: int, num_workers: int) -> int:
        return spread(num_items, num_workers, self.config.engine.batch_size)

    def digest(self, rows: Rows) -> Counts:
        done = [row for row in rows if row["status"] == OK]
        perturbed = [reply for row in done for reply in row["replies"] if reply["model"] == BASE and reply["strategy"]]
        counts = Counter(f"{ASKED}{reply['strategy']}" for reply in perturbed)
        counts.update(f"{OTHERWISE}{reply['strategy']}" for reply in perturbed if reply["same"] is False)
        without = sum(is_no_reply(reply) for row in done for reply in row["replies"])
        return counts + Counter({self.unit: len(done), NO_REPLY: without})

    def describe(self, tally: Tally) -> str:
        counts = {name.removeprefix(ASKED): times for name, times in tally.total.items() if name.startswith(ASKED)}
        shares = (f"{name} {100 * tally.total[OTHERWISE + name] / times:.0f} %" for name, times in counts.items())
        without = f"no reply: {tally.total[NO_REPLY]:,}" if tally.total[NO_REPLY] else ""
        return ", ".join(filter(None, (f"other replies: {', '.join(shares)}" if counts else "", without)))


class RobustnessWorker:
    """Holds strategies and models, and asks.

    Args:
        task: the models and their settings.
    """

    def __init__(self, asking: QueryTask) -> None:
        from parley.policies.core.responders import load_responder

        self.asking, self.decoder = asking, asking.models.decoder
        self.config = config = asking.config
        models, shared = asking.models, resources(config, asking.models, asking.common)
        self.strategies: list[Strategy] = build(config.strategy_names, config.perturb, shared)
        self.activities = Activities.open(shared) if asking.scored else None
        chat, answers = config.chat.on(config.device), Path(asking.answers) if asking.answers else None
        replies = recorded_replies(config) if models.is_encoder else ()
        self.models = [
            (model, load_responder(model.name, chat, answers=answers, max_tokens=config.chat.max_tokens, replies=replies))
            for model in models.models
        ]
        if config.is_ours:
            # Others are loaded where they compute, or that is their author's choice.
            for _, responder in self.models:
                cast("TrainableResponder", responder).model.to(config.device)

    def run(self, shard: Shard[Example]) -> list[dict[str, Any]]:
        """Return one row per example."""
        return rows_apart(self._rows, shard, self.asking.seed)

    def _rows(self, shard: Shard[Example]) -> list[dict[str, Any]]:
        clean = [example.context for example in shard.items]
        perturbed = {by_name.name: perturbed_contexts(by_name, shard, self.config.seed) for by_name in self.strategies}
        replies: list[list[dict[str, Any]]] = [[] for _ in shard.items]
        for model, responder in self.models:
            met = {name: made for name, made in perturbed.items() if model.meets(name)}
            answers = self._answers(responder, [clean, *met.values()])
            for strategy, contexts in {CLEAN: clean, **met}.items():
                entries_of = self._replies(responder, strategy, shard.items, contexts, answers)
                for entries, reply in zip(replies, entries_of, strict=True):
                    entries.append({"model": model.label, "strategy": strategy, **reply})
        return [
            ok_row(example.key, self.asking.seed(example.key))
            | {
                "context": format_turns(example.context),
                "truth": format_turns((example.reply,)),
                "perturbations": [_perturbation(name, clean[index], made[index]) for name, made in perturbed.items()],
                "replies": replies[index],
            }
            for index, example in enumerate(shard.items)
        ]

    def _answers(self, responder: Responder, context_lists: Iterable[Sequence[Turns]]) -> Mapping[Turns, ModelReply]:
        """Return the replies to all distinct contexts, batched by length."""
        contexts = sorted(
            {turns for context_list in context_lists for turns in context_list},
            key=lambda turns: (len(context_words(turns)), turns),
        )
        replies: dict[Turns, ModelReply] = {}
        for start in range(0, len(contexts), self.config.engine.batch_size):
            batch = contexts[start : start + self.config.engine.batch_size]
            # A context is answered once for all its examples, so its text decides its seed.
            seeds = [derive_seed(self.config.seed, "reply", format_turns(turns)) for turns in batch if self.decoder.draws]
            replies |= zip(batch, replies_of(responder, batch, self.decoder, seeds), strict=True)
        return replies

    def _replies(
        self,
        responder: Responder,
        strategy: str,
        items: Sequence[Example],
        contexts: Sequence[Turns],
        replies: Mapping[Turns, ModelReply],
    ) -> Iterator[dict[str, Any]]:
        """Yield the entries of the column `replies` for one model and one strategy, without their names.

        An answer that is no reply has no F1, and nothing is compared with it.
        """
        now, before = [replies[turns] for turns in contexts], [replies[example.context] for example in items]
        if strategy == CLEAN:
            of_contexts: list[float | None] = [None] * len(items)
            of_replies = of_contexts
        else:
            of_contexts = likeness(responder, [example.context for example in items], contexts)
            of_replies = likeness(responder, [(reply.turn,) for reply in before], [(reply.turn,) for reply in now])
        for index, example in enumerate(items):
            reply, clean = now[index], before[index]
            activity, entity = (
                self.activities.f1(reply.turn, example.reply) if self.activities and reply.is_reply else (None, None)
            )
            is_pair = strategy != CLEAN and reply.is_reply and clean.is_reply
            yield {
                "reply": format_turns((reply.turn,)),
                **answer_columns(reply.answer),
                "activity_f1": activity,
                "entity_f1": entity,
                "context_similarity": of_contexts[index],
                "reply_similarity": of_replies[index] if is_pair else None,
                "bleu": bleu(clean.turn, reply.turn) if is_pair else None,
                "same": reply.turn == clean.turn if is_pair else None,
            }


def _perturbation(strategy: str, before: Turns, after: Turns) -> dict[str, Any]:
    return {
        "strategy": strategy,
        "text": format_turns(after),
        "changed": after != before,
        "num_changed": num_changed(spans(before, after)),
    }


NUM_EXAMPLES, STRATEGIES, UNSCORED, SIZES = "examples", "strategies", "unscored", "sizes"
"""Entries of the summary: how many examples there are, what a good model does by strategy, why activities and entities were not
scored, empty if they were, and sizes of two models that are compared."""
SUPPORT = ("ubuntu_dialogues", "ubuntu_irc")
"""Corpora of ours about what the tables of activities know; a corpus of a user's own is taken to be."""
SCREENFUL = 24
"""More metrics than these are shown as a table."""


PreparedRobustness = Prepared[QueryTask, Example]


def _activities(corpus: str, shared: Resources) -> tuple[Activities | None, str]:
    """Return the scorer of activities and entities, or the reason why there is none."""
    if corpus in pair_corpora and corpus not in SUPPORT:
        return None, f"they are those of technical support for Ubuntu, and {corpus} is about something else"
    try:
        return Activities.open(shared), ""
    except DataError as error:
        return None, f"{error.what} ({error.where}); {error.fix}"


def _report_models(models: ModelSpecs, strategies: Sequence[str], reporter: Reporter) -> None:
    for model in models.models[1:]:
        met = [name for name in strategies if model.meets(name)]
        reporter.say(f"{model.label}: {model.name} meets {', '.join(met) or 'clean contexts alone'}")


def _reference_scores(evaluation: PreparedRobustness, rows: Rows) -> dict[str, Estimate]:
    task = evaluation.task
    if not task.scored:
        return {}
    activities = Activities.open(resources(task.config, task.models, task.common))
    answered = {row["item_key"] for row in rows if row["status"] == OK}
    return activities.references([example for key, example in evaluation.items.items() if key in answered])


def describe_for(name: str, expected: Mapping[str, str]) -> Metric:
    """Return the title and definition of a metric; the strategy decides whether more changed replies are better.

    Args:
        name: of the metric.
        expected: what a good model does, by strategy.
    """
    metric, ends = describe(name), [strategy for strategy in expected if name.endswith(f".{strategy}")]
    if name.startswith((CHANGE_RATE, TOUCHED_CHANGE_RATE)) and ends:
        wanted = expected[max(ends, key=len)]
        return metric._replace(direction=f"{'higher' if wanted == Expectation.SHOULD_CHANGE else 'lower'}: better")
    return metric


def niu2018() -> RobustnessConfig:
    """Every example of the split under the seven strategies by the paper's rules (Niu & Bansal 2018)."""
    return RobustnessConfig()


def quick() -> RobustnessConfig:
    """Take a first look: 200 examples."""
    return RobustnessConfig(limit=200)


def demo() -> RobustnessConfig:
    """Seconds, on the model of parley train seq2seq demo: 200 examples, two strategies, the built-in lexicon."""
    return RobustnessConfig(strategies="random-swap,antonym", limit=200, perturb=PerturbSettings(lexicon="built-in"))


class EvaluateRobustness(ItemsJob[RobustnessConfig, QueryTask, Example]):
    """`parley evaluate robustness`."""

    words = ("evaluate", "robustness")
    run_name = "robustness"
    config = RobustnessConfig
    presets = {"niu2018": niu2018, "quick": quick, "demo": demo}
    schema = ROBUSTNESS
    item_metrics = CONTEXT_ITEMS
    num_rows_entry = NUM_EXAMPLES
    doing = "asking models"

    def prepare(self, config: RobustnessConfig, path: Path, reporter: Reporter) -> PreparedRobustness:
        config.require_device()
        report_left_out(config, reporter)
        located = replace(config, data_root=data_root(config.data_root))
        models = open_models(located)
        name = config.corpus or models.corpus
        if not name:
            what = "the model does not say which corpus it was fitted to, so it has no dialogues to continue"
            raise ConfigError(what, where=config.model, fix="name one with --corpus")
        chosen, corpus = chosen_examples(located, name, config.contexts.turns or models.turns, reporter)
        common = models.common(corpus.vocabulary)
        shared = resources(located, models, common)
        strategies = build_and_run_once(located, shared, chosen[0])
        activities, unscored = _activities(name, shared)
        if unscored:
            reporter.say(f"activities and entities are not scored: {unscored}")
        _report_models(models, [strategy.name for strategy in strategies], reporter)
        return Prepared(
            QueryTask(located, models, tuple(common), activities is not None),
            {example.key: example for example in chosen},
            {
                NUM_EXAMPLES: len(chosen),
                STRATEGIES: {strategy.name: strategy.expectation.value for strategy in strategies},
                UNSCORED: unscored,
                SIZES: {label: asdict(size) for label, size in models.sizes.items()},
            },
        )

    def measure(self, run: RunFolder, evaluation: PreparedRobustness) -> Summary:
        config, models, rows = evaluation.task.config, evaluation.task.models, run.rows()
        return Summary(
            f"robustness of {config.model} on {config.corpus or models.corpus}",
            f"{len(evaluation.items):,} {config.split} examples, {len(evaluation.facts[STRATEGIES])} strategies, "
            f"replies by {config.decoder}, seed {config.seed}.",
            {
                **robustness_metrics(rows, exact=models.is_encoder),
                **(unknown_shares(rows, models.words) if models.sizes and isinstance(models.words, frozenset) else {}),
                **_reference_scores(evaluation, rows),
            },
            evaluation.facts,
        )

    def models(self, config: RobustnessConfig) -> dict[str, str]:
        return models_of(config)

    def metrics_of(self, config: RobustnessConfig) -> list[str] | None:
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

    def tables(self, run: RunFolder) -> dict[str, EstimateTable]:
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
        expected = (run.summary() or {})[STRATEGIES]
        legend = {name: describe_for(name, expected) for name in result.metrics}
        return replace(result, legend=legend, tables=self.tables(run) if len(result.metrics) > SCREENFUL else {})


EVALUATE_ROBUSTNESS = EvaluateRobustness()
