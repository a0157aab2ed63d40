"""A worker of an audit: shards of examples in, rows of `parley.engine.perturb.verbs.rows.AUDIT` out; what judges edits.

Beside the strategies stands a control (`CONTROL`): in each utterance that was
touched, as many words as one of them changed, drawn, become random words of the corpus.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from parley.engine.core.ray.record import Counts, Rows
from parley.engine.core.ray.sharding import Shard
from parley.engine.core.runs.schemas import OK, ok_row
from parley.engine.core.verbs.checkpoints import require_checkpoint
from parley.engine.core.verbs.sharded import Sharded, Tally, spread
from parley.engine.perturb.catalogue import build
from parley.engine.perturb.metrics.audit import CONTROL
from parley.engine.perturb.resources import Resources
from parley.engine.perturb.strategies.changes import ChangeKind, Span, num_changed, spans
from parley.engine.perturb.strategies.signals import signals
from parley.engine.perturb.verbs.config import AuditConfig
from parley.engine.perturb.verbs.examples import perturbed_contexts
from parley.engine.perturb.verbs.models import admitted, usual_words
from parley.envs.core.errors import CheckpointError
from parley.envs.core.seeds import derive_seed, stream
from parley.envs.core.storage.copies import fetched_model
from parley.envs.corpora.pairs.compiled import load_pairs
from parley.envs.corpora.pairs.contexts import said
from parley.envs.corpora.pairs.turns import Example, Turns, Utterance, format_turns
from parley.envs.corpora.pairs.vocabulary import PairVocabulary
from parley.envs.corpora.pairs.written import detokenise

if TYPE_CHECKING:
    from parley.engine.perturb.strategy import Strategy
    from parley.policies.hugging_face.entailment import Entailment

MOST_EXAMPLES = 256
"""Examples of a shard."""


class LikelihoodModel(Protocol):
    """What judges how usual an utterance is: trigrams of the corpus, or a language model that was fitted to it."""

    def log_probabilities(self, utterances: Sequence[Utterance]) -> list[np.ndarray]:
        """Of each utterance's words and its end, natural logarithms (words + 1,) float64."""


class TouchedUtterance(NamedTuple):
    """An utterance that a strategy changed; `place` counts the utterances of the context from 0."""

    strategy: str
    place: int
    before: Utterance
    after: Utterance


def likelihood_model(config: AuditConfig, shared: Resources) -> LikelihoodModel:
    """What judges edits.

    Args:
        config: the audit, with its data root found.
        shared: what strategies share, trigrams of the corpus among it.

    Raises:
        CheckpointError: there is no language model of that name, or it reads several turns.
        DataError: the corpus cannot be read.
    """
    if config.lm:
        return language_model(config.lm, config.corpus, config.device, config.engine.batch_size)
    if shared.trigrams is not None and config.perturb.corpus in ("", config.corpus):
        return shared.trigrams
    from parley.engine.perturb.lexicon.ngrams import NGrams

    return NGrams(said(load_pairs(config.corpus, config.data_root, every_word=True), "train"))


def language_model(name: str, corpus: str, device: str, batch_size: int) -> LikelihoodModel:
    """A run of parley train lm that says how usual utterances are; `corpus` is the one that a better one would be fitted to.

    Raises:
        CheckpointError: there is no such model, or it reads several turns.
    """
    from parley.policies.seq2seq.checkpoints import load_language_model
    from parley.policies.seq2seq.scoring import WordScores

    model = load_language_model(require_checkpoint(name, "--lm", "parley train lm")).eval().to(device)
    if model.sizes.turns > 1:
        fix = f"parley train lm --corpus {corpus} makes one of single utterances"
        raise CheckpointError("--lm judges utterances, and this one reads several turns", where=name, fix=fix)
    return WordScores(model, batch_size)


def entailment_model(config: AuditConfig) -> Entailment | None:
    """What tells whether utterances follow from each other; None where nothing is named.

    Raises:
        ConfigError: transformers is not installed.
        CheckpointError: there is no such model.
    """
    if not config.entailment:
        return None
    from parley.policies.hugging_face.entailment import load_entailment

    return load_entailment(fetched_model(config.entailment_folder), config.device, config.engine.batch_size)


def audit_resources(config: AuditConfig, vocabulary: PairVocabulary) -> Resources:
    """What the strategies of an audit share.

    Args:
        config: the audit, with its data root found.
        vocabulary: of the corpus, most frequent words first.
    """
    words, own = None, vocabulary
    if config.model:
        folder = require_checkpoint(config.model, "--model", "parley train seq2seq")
        own = PairVocabulary.load(folder / "vocabulary.json")
        words = admitted(own)
    return Resources(config.perturb, words, usual_words(own, vocabulary), config.data_root, config.device, config.corpus)


@dataclass(frozen=True)
class Auditing(Sharded[Example]):
    """Strategies whose edits are judged.

    Args:
        config: the audit, with its data root found.
    """

    unit = "examples"
    event = "audited"

    config: AuditConfig

    def seed(self, key: str) -> int:
        return audit_seed(self.config.seed, key)

    def worker(self, on_step: Callable[[Counts], None] | None = None) -> AuditWorker:
        return AuditWorker(self.config)

    def shard_size(self, num_items: int, num_workers: int) -> int:
        return spread(num_items, num_workers, MOST_EXAMPLES)

    def digest(self, rows: Rows) -> Counts:
        """Utterances, and those that each strategy touched."""
        done = [row for row in rows if row["status"] == OK]
        counts = Counter(each["strategy"] for row in done for each in row["touched"] if each["strategy"] != CONTROL)
        return counts + Counter({_UTTERANCES: sum(row["num_utterances"] for row in done)})

    def describe(self, tally: Tally) -> str:
        """Such as "touched utterances: random-swap 41 %, antonym 12 %"."""
        total = tally.total[_UTTERANCES]
        shares = (f"{name} {100 * times / total:.0f} %" for name, times in tally.total.items() if name != _UTTERANCES)
        return f"touched utterances: {', '.join(shares)}" if total else ""


_UTTERANCES = ".utterances"
"""What is counted beside strategies; the dot keeps it apart from their names."""


def audit_seed(seed: int, key: str) -> int:
    """The seed of an example, by the master seed and its key."""
    return derive_seed(seed, "audit", key)


class AuditWorker:
    """Holds strategies and what judges them.

    Args:
        config: the audit, with its data root found.
    """

    def __init__(self, config: AuditConfig) -> None:
        vocabulary = load_pairs(config.corpus, config.data_root).vocabulary
        shared = audit_resources(config, vocabulary)
        self.seed, self.lexicon, self.known = config.seed, shared.lexicon, frozenset(vocabulary.words)
        self.common = usual_words(vocabulary, vocabulary)
        self.strategies: list[Strategy] = build(config.strategy_names, config.perturb, shared)
        self.likelihood, self.entailment = likelihood_model(config, shared), entailment_model(config)

    def run(self, shard: Shard[Example]) -> list[dict[str, Any]]:
        """One row per example."""
        touched: list[list[TouchedUtterance]] = [[] for _ in shard.items]
        for strategy in self.strategies:
            for found, example, after in zip(touched, shard.items, perturbed_contexts(strategy, shard, self.seed), strict=True):
                found += touched_utterances(strategy.name, example.context, after)
        for found, key in zip(touched, shard.keys, strict=True):
            found += self._random_words(key, found)
        judged = iter(self._judged([each for found in touched for each in found]))
        return [self._row(example, [next(judged) for _ in found]) for example, found in zip(shard.items, touched, strict=True)]

    def _row(self, example: Example, touched: list[dict[str, Any]]) -> dict[str, Any]:
        lengths = [len(words) for turn in example.context for words in turn if words]
        return ok_row(example.key, audit_seed(self.seed, example.key)) | {
            "context": format_turns(example.context),
            "num_utterances": len(lengths),
            "num_words": sum(lengths),
            "touched": touched,
        }

    def _random_words(self, key: str, touched: Sequence[TouchedUtterance]) -> Iterator[TouchedUtterance]:
        """The control: random words in the utterances that strategies touched."""
        rng = stream(self.seed, "audit control", key)
        for place in sorted({each.place for each in touched}):
            there = [each for each in touched if each.place == place]
            like = there[int(rng.integers(len(there)))]
            words = list(like.before)
            number = min(len(words), num_changed(_spans(like)))
            for chosen in sorted(rng.permutation(len(words))[:number].tolist()):
                drawn = int(rng.integers(len(self.common)))
                # A word is not replaced by itself.
                words[chosen] = self.common[drawn - (self.common[drawn] == words[chosen])]
            if number:
                yield TouchedUtterance(CONTROL, place, like.before, tuple(words))

    def _judged(self, touched: Sequence[TouchedUtterance]) -> Iterator[dict[str, Any]]:
        """The entries of the column `touched`."""
        utterances = sorted({words for each in touched for words in (each.before, each.after)})
        tags = dict(zip(utterances, self.lexicon.tag_all(utterances), strict=True))
        scores = self.likelihood.log_probabilities(utterances)
        nats = {words: -float(found.sum()) for words, found in zip(utterances, scores, strict=True)}
        signs = {words: signals(words, tags[words], self.known) for words in utterances}
        for each, kept in zip(touched, self._kept(touched), strict=True):
            found = _spans(each)
            replaced, retagged = _retagged(found, tags[each.before], tags[each.after])
            yield {
                "strategy": each.strategy,
                "place": each.place,
                "before": " ".join(each.before),
                "after": " ".join(each.after),
                "num_changed": num_changed(found),
                "nats_before": nats[each.before],
                "nats_after": nats[each.after],
                "num_replaced": replaced,
                "num_retagged": retagged,
                "signals_before": signs[each.before],
                "signals_after": signs[each.after],
                "kept": kept,
            }

    def _kept(self, touched: Sequence[TouchedUtterance]) -> Sequence[bool | None]:
        """Whether each utterance follows from the other one, both as people write them."""
        if self.entailment is None or not touched:
            return [None] * len(touched)
        before, after = ([detokenise(getattr(each, side)) for each in touched] for side in ("before", "after"))
        both = zip(self.entailment.follows(before, after), self.entailment.follows(after, before), strict=True)
        return [there and back for there, back in both]


def touched_utterances(strategy: str, before: Turns, after: Turns) -> Iterator[TouchedUtterance]:
    """The utterances that differ between a context and what a strategy made of it."""
    pairs = zip(chain.from_iterable(before), chain.from_iterable(after), strict=True)
    return (TouchedUtterance(strategy, place, old, new) for place, (old, new) in enumerate(pairs) if old != new)


def _spans(touched: TouchedUtterance) -> list[Span]:
    return spans(((touched.before,),), ((touched.after,),))


def _retagged(found: Sequence[Span], before: Sequence[str], after: Sequence[str]) -> tuple[int, int]:
    """Words that were replaced one by one, and those of them whose tag is another."""
    replaced = changed = old = new = 0
    for span in found:
        if span.kind is ChangeKind.REPLACED and len(span.before) == len(span.after):
            replaced += len(span.before)
            sides = zip(before[old : old + len(span.before)], after[new : new + len(span.after)], strict=True)
            changed += sum(tag != other for tag, other in sides)
        old, new = old + len(span.before), new + len(span.after)
    return replaced, changed
