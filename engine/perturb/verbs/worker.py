"""A worker of an evaluation under perturbations: shards of examples in, rows of `engine.perturb.verbs.rows.ROBUSTNESS` out.

A model is asked each context once: where a strategy could do nothing, the reply is the one to the clean context.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from parley.engine.core.ray.record import Counts, Rows
from parley.engine.core.ray.sharding import Shard
from parley.engine.core.runs.answers import answer_columns
from parley.engine.core.runs.schemas import OK, ok_row
from parley.engine.core.stats.answers import NO_REPLY, is_no_reply
from parley.engine.core.verbs.isolate_failures import rows_apart
from parley.engine.core.verbs.sharded import Sharded, Tally, spread
from parley.engine.perturb.catalogue import build
from parley.engine.perturb.metrics.robustness import BASE
from parley.engine.perturb.resources import Resources
from parley.engine.perturb.strategies.changes import num_changed, spans
from parley.engine.perturb.verbs.config import RobustnessConfig
from parley.engine.perturb.verbs.examples import perturbed_contexts
from parley.engine.perturb.verbs.models import AskedModels
from parley.engine.perturb.verbs.scores import Activities, bleu, likeness
from parley.envs.core.seeds import derive_seed
from parley.envs.corpora.pairs.turns import Example, Turns, context_words, format_turns
from parley.policies.core.responder import replies_of

if TYPE_CHECKING:
    from parley.engine.perturb.strategy import Strategy
    from parley.policies.core.responder import ModelReply, Responder, TrainableResponder

CLEAN = ""
"""What rows call the context as it was recorded."""
ASKED, OTHERWISE = "asked.", "otherwise."
"""Beginnings of what is counted by strategy."""


def example_seed(seed: int, key: str) -> int:
    """The seed of an example, by the master seed and its key."""
    return derive_seed(seed, "robustness", key)


def resources(config: RobustnessConfig, models: AskedModels, common: Sequence[str]) -> Resources:
    """What the strategies of an evaluation share.

    Args:
        config: the evaluation, with its data root found.
        models: whose words may enter.
        common: words, most frequent first.
    """
    corpus = config.corpus or models.corpus
    return Resources(config.perturb, models.words, tuple(common), config.data_root, config.device, corpus)


@dataclass(frozen=True)
class Asking(Sharded[Example]):
    """Models that are asked clean and perturbed contexts.

    Args:
        config: the evaluation, with its data root found.
        models: who is asked.
        common: words that random inputs are drawn from, most frequent first.
        answers: folder in which a chat model's answers are kept.
        scored: whether activities and entities are scored, for which the data root must hold their tables.
    """

    unit = "examples"
    event = "evaluated"

    config: RobustnessConfig
    models: AskedModels
    common: Sequence[str]
    scored: bool
    answers: str = field(default="", kw_only=True)

    def seed(self, key: str) -> int:
        return example_seed(self.config.seed, key)

    def worker(self) -> RobustnessWorker:
        return RobustnessWorker(self)

    def shard_size(self, num_items: int, num_workers: int) -> int:
        return spread(num_items, num_workers, self.config.engine.batch_size)

    def digest(self, rows: Rows) -> Counts:
        """Count examples, answers without a reply, and by strategy how often the base was asked, and replied otherwise."""
        done = [row for row in rows if row["status"] == OK]
        perturbed = [reply for row in done for reply in row["replies"] if reply["model"] == BASE and reply["strategy"]]
        counts = Counter(f"{ASKED}{reply['strategy']}" for reply in perturbed)
        counts.update(f"{OTHERWISE}{reply['strategy']}" for reply in perturbed if reply["same"] is False)
        without = sum(is_no_reply(reply) for row in done for reply in row["replies"])
        return counts + Counter({self.unit: len(done), NO_REPLY: without})

    def describe(self, tally: Tally) -> str:
        """Such as "other replies: random-swap 41 %, antonym 12 %"."""
        asked = {name.removeprefix(ASKED): times for name, times in tally.total.items() if name.startswith(ASKED)}
        shares = (f"{name} {100 * tally.total[OTHERWISE + name] / times:.0f} %" for name, times in asked.items())
        without = f"no reply: {tally.total[NO_REPLY]:,}" if tally.total[NO_REPLY] else ""
        return ", ".join(filter(None, (f"other replies: {', '.join(shares)}" if asked else "", without)))


class RobustnessWorker:
    """Holds strategies and models, and asks.

    Args:
        asking: who is asked what.
    """

    def __init__(self, asking: Asking) -> None:
        from parley.policies.core.responders import load_responder

        self.decoder = asking.models.decoder
        self.config = config = asking.config
        models, shared = asking.models, resources(config, asking.models, asking.common)
        self.strategies: list[Strategy] = build(config.strategy_names, config.perturb, shared)
        self.activities = Activities.open(shared) if asking.scored else None
        chat, answers = config.chat.on(config.device), Path(asking.answers) if asking.answers else None
        self.models = [
            (model, load_responder(model.name, chat, answers=answers, max_tokens=config.chat.max_tokens))
            for model in models.models
        ]
        if config.is_ours:
            # Others are loaded where they compute, or that is their author's choice.
            for _, responder in self.models:
                cast("TrainableResponder", responder).model.to(config.device)

    def run(self, shard: Shard[Example]) -> list[dict[str, Any]]:
        """One row per example."""
        return rows_apart(self._asked, shard, partial(example_seed, self.config.seed))

    def _asked(self, shard: Shard[Example]) -> list[dict[str, Any]]:
        clean = [example.context for example in shard.items]
        perturbed = {each.name: perturbed_contexts(each, shard, self.config.seed) for each in self.strategies}
        replies: list[list[dict[str, Any]]] = [[] for _ in shard.items]
        for model, responder in self.models:
            met = {name: made for name, made in perturbed.items() if model.meets(name)}
            said = self._answers(responder, [clean, *met.values()])
            for strategy, contexts in {CLEAN: clean, **met}.items():
                found = self._replies(responder, strategy, shard.items, contexts, said)
                for entries, reply in zip(replies, found, strict=True):
                    entries.append({"model": model.label, "strategy": strategy, **reply})
        return [
            ok_row(example.key, example_seed(self.config.seed, example.key))
            | {
                "context": format_turns(example.context),
                "truth": format_turns((example.reply,)),
                "perturbations": [_perturbation(name, clean[place], made[place]) for name, made in perturbed.items()],
                "replies": replies[place],
            }
            for place, example in enumerate(shard.items)
        ]

    def _answers(self, responder: Responder, context_lists: Iterable[Sequence[Turns]]) -> Mapping[Turns, ModelReply]:
        """The replies to all contexts that differ, those of a length side by side."""
        contexts = sorted(
            {turns for context_list in context_lists for turns in context_list},
            key=lambda turns: (len(context_words(turns)), turns),
        )
        replies: dict[Turns, ModelReply] = {}
        for start in range(0, len(contexts), self.config.engine.batch_size):
            batch = contexts[start : start + self.config.engine.batch_size]
            # A context is asked about once, whichever examples it belongs to, so its text names its seed.
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
        for place, example in enumerate(items):
            reply, clean = now[place], before[place]
            activity, entity = (
                self.activities.f1(reply.turn, example.reply) if self.activities and reply.is_reply else (None, None)
            )
            is_pair = strategy != CLEAN and reply.is_reply and clean.is_reply
            yield {
                "reply": format_turns((reply.turn,)),
                **answer_columns(reply.answer),
                "activity_f1": activity,
                "entity_f1": entity,
                "context_similarity": of_contexts[place],
                "reply_similarity": of_replies[place] if is_pair else None,
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
