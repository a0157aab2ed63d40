"""A worker of an evaluation under perturbations: shards of examples in, rows of `engine.jobs.perturb.rows.ROBUSTNESS` out.

A model is asked each context once: where a strategy could do nothing, the reply is the one to the clean context.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from engine.jobs.perturb.config import RobustnessConfig
from engine.jobs.perturb.models import NUM_COMMON, AskedModels
from engine.jobs.perturb.scores import Activities, bleu, likeness
from engine.metrics.perturb.robustness import BASE
from engine.perturb.catalogue import build
from engine.perturb.changes import num_changed, spans
from engine.perturb.resources import Resources
from engine.runtime.sharding import Shard
from engine.store.schemas import OK, SCHEMA_VERSION
from envs.core.seeds import derive_seed
from envs.pairs.turns import Example, Turn, Turns, context_words, format_turns

if TYPE_CHECKING:
    from engine.perturb.strategy import Strategy
    from policies.responder import Responder, TrainableResponder

CLEAN = ""
"""What rows call the context as it was recorded."""


def example_seed(seed: int, key: str) -> int:
    """The seed of an example, by the master seed and its key."""
    return derive_seed(seed, "robustness", key)


def perturbation_seed(seed: int, strategy: str, key: str) -> int:
    """The seed of what a strategy does to an example, by the master seed, the strategy's name and the example's key."""
    return derive_seed(seed, "perturb", strategy, key)


def device_of(config: RobustnessConfig) -> str:
    """The torch device that a worker computes on."""
    return "cuda" if config.gpus_per_worker > 0 else "cpu"


def resources(config: RobustnessConfig, models: AskedModels, common: Sequence[str]) -> Resources:
    """What the strategies of an evaluation share.

    Args:
        config: the evaluation, with its data root found.
        models: whose words may enter.
        common: words, most frequent first.
    """
    return Resources(config.perturb, models.words, tuple(common[:NUM_COMMON]), config.data_root, device_of(config))


@dataclass(frozen=True)
class Answers:
    """How the base replied to perturbed contexts.

    Args:
        asked: how often, by strategy.
        otherwise: how often it replied otherwise than to the clean context, by strategy.
    """

    asked: Counter[str]
    otherwise: Counter[str]


def answers(rows: Iterable[Mapping[str, Any]]) -> Answers:
    """How the base replied in some rows."""
    replies = [reply for row in rows if row["status"] == OK for reply in row["replies"] if reply["model"] == BASE]
    perturbed = [reply for reply in replies if reply["strategy"]]
    asked = Counter(reply["strategy"] for reply in perturbed)
    return Answers(asked, Counter(reply["strategy"] for reply in perturbed if not reply["same"]))


class RobustnessWorker:
    """Holds strategies and models, and asks.

    Args:
        config: the evaluation, with its data root found.
        models: who is asked.
        common: words that random inputs are drawn from, most frequent first.
        scored: whether activities and entities are scored, for which the data root must hold their tables.
    """

    def __init__(self, config: RobustnessConfig, models: AskedModels, common: Sequence[str], scored: bool) -> None:
        from policies.responders import load_responder

        self.config = config
        shared = resources(config, models, common)
        self.strategies: list[Strategy] = build(config.strategy_names, config.perturb, shared)
        self.activities = Activities.open(shared) if scored else None
        self.models = [(model, load_responder(model.name)) for model in models.models]
        if models.vocabulary is not None:
            # Checkpoints are models of Parley's own; where one of a user's own computes is its author's choice.
            for _, responder in self.models:
                cast("TrainableResponder", responder).model.to(device_of(config))

    def run(self, shard: Shard[Example]) -> list[dict[str, Any]]:
        """One row per example."""
        clean = [example.context for example in shard.items]
        perturbed = {each.name: self._perturbed(each, shard.keys, clean) for each in self.strategies}
        replies: list[list[dict[str, Any]]] = [[] for _ in shard.items]
        for model, responder in self.models:
            met = {name: made for name, made in perturbed.items() if model.label == BASE or name in model.against}
            said = self._answers(responder, [clean, *met.values()])
            for strategy, contexts in {CLEAN: clean, **met}.items():
                found = self._replies(responder, strategy, shard.items, contexts, said)
                for entries, reply in zip(replies, found, strict=True):
                    entries.append({"model": model.label, "strategy": strategy, **reply})
        return [
            {
                "item_key": example.key,
                "status": OK,
                "error": None,
                "seed": example_seed(self.config.seed, example.key),
                "schema_version": SCHEMA_VERSION,
                "context": format_turns(example.context),
                "truth": format_turns((example.reply,)),
                "perturbations": [_perturbation(name, clean[place], made[place]) for name, made in perturbed.items()],
                "replies": replies[place],
            }
            for place, example in enumerate(shard.items)
        ]

    def _perturbed(self, strategy: Strategy, keys: Sequence[str], contexts: Sequence[Turns]) -> list[Turns]:
        return strategy.perturb(contexts, [perturbation_seed(self.config.seed, strategy.name, key) for key in keys])

    def _answers(self, responder: Responder, asked: Iterable[Sequence[Turns]]) -> Mapping[Turns, Turn]:
        """The replies to all contexts that differ, those of a length side by side."""
        contexts = sorted({turns for each in asked for turns in each}, key=lambda turns: (len(context_words(turns)), turns))
        said: dict[Turns, Turn] = {}
        for start in range(0, len(contexts), self.config.engine.batch_size):
            batch = contexts[start : start + self.config.engine.batch_size]
            said |= zip(batch, responder.respond(batch, beam=self.config.beam), strict=True)
        return said

    def _replies(
        self,
        responder: Responder,
        strategy: str,
        items: Sequence[Example],
        contexts: Sequence[Turns],
        said: Mapping[Turns, Turn],
    ) -> Iterator[dict[str, Any]]:
        """The entries of the column `replies` for one model and one strategy, without their names."""
        now, before = [said[turns] for turns in contexts], [said[example.context] for example in items]
        if strategy == CLEAN:
            of_contexts: list[float | None] = [None] * len(items)
            of_replies = of_contexts
        else:
            of_contexts = likeness(responder, [example.context for example in items], contexts)
            of_replies = likeness(responder, [(reply,) for reply in before], [(reply,) for reply in now])
        for place, example in enumerate(items):
            activity, entity = self.activities.f1(now[place], example.reply) if self.activities else (None, None)
            yield {
                "reply": format_turns((now[place],)),
                "activity_f1": activity,
                "entity_f1": entity,
                "context_similarity": of_contexts[place],
                "reply_similarity": of_replies[place],
                "bleu": None if strategy == CLEAN else bleu(before[place], now[place]),
                "same": None if strategy == CLEAN else now[place] == before[place],
            }


def _perturbation(strategy: str, before: Turns, after: Turns) -> dict[str, Any]:
    return {
        "strategy": strategy,
        "text": format_turns(after),
        "changed": after != before,
        "num_changed": num_changed(spans(before, after)),
    }
