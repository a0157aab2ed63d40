"""A worker of an evaluation of rankers: shards of contexts in, rows of `parley.engine.ranking.verbs.prepared.RANKING` out.

A candidate's score does not depend on the other candidates. So a ranker scores each context once, as it is and as a strategy
changed it, with the candidates and all texts that rules made of them. A shard of contexts is one batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from parley.engine.core.ray.record import Counts, Rows
from parley.engine.core.ray.worker import Shard
from parley.engine.core.runs.parts import OK, error_row, ok_row
from parley.engine.core.verbs.sharded import Sharded, Tally
from parley.engine.perturb.replies.shapes import Attacked, Rule, words_changed
from parley.engine.ranking.metrics.erasure import read_words
from parley.engine.ranking.metrics.ranking import CLEAN, CONTEXT
from parley.engine.ranking.verbs.config import (
    Contexts,
    RankedGroup,
    RankersConfig,
    RankerSpec,
    RankingConfig,
    built_rules,
    group_seed,
    loaded,
    opened,
    rule_resources,
    rule_seed,
)
from parley.envs.core.errors import RankerError
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.ranking.groups import CandidateGroup, Context
from parley.policies.ranking.ranker import Pair, Ranker, outcomes_of, unread_of

FAILED, SHORTENED = "failed.", "shortened."
"""Prefixes of counts by ranker: contexts without its scores, and those that it did not read whole."""

Attacks = Mapping[str, Attacked]
"""The attacked group of each rule."""


@dataclass(frozen=True)
class RankerQueries(Sharded[RankedGroup]):
    """A sharded task of rankers on contexts.

    Args:
        config: with an absolute data root.
        rankers: their specs.
        answers: folder in which answers of chat models are kept.
    """

    unit = "contexts"
    purpose = "ranking"
    batch = 64

    config: RankersConfig
    rankers: Sequence[RankerSpec]
    answers: str = field(default="", kw_only=True)

    def loaded(self, contexts: Iterable[Context]) -> dict[str, Ranker]:
        """Load the rankers by their labels.

        Args:
            contexts: of the training split, for those that are fitted.
        """
        chat, answers = self.config.chat.on(self.config.device), Path(self.answers) if self.answers else None
        return loaded(self.rankers, contexts, chat, answers)


@dataclass(frozen=True)
class RankingTask(RankerQueries):
    """A sharded ranking of candidates, unchanged and under rules."""

    event = "ranked"

    config: RankingConfig

    def worker(self) -> RankingWorker:
        return RankingWorker(self)

    def digest(self, rows: Rows) -> Counts:
        done = [row for row in rows if row["status"] == OK]
        lost = {(row["item_key"], entry["model"]) for row in done for entry in row["ranked"] if entry["error"]}
        return Counter(f"{FAILED}{model}" for _, model in lost) + shortened(rows, "ranked") + Counter({self.unit: len(done)})

    def describe(self, tally: Tally) -> str:
        counted = {"no scores": FAILED, "contexts not read whole": SHORTENED}
        return "; ".join(filter(None, (counts_of(tally, begins, what) for what, begins in counted.items())))


class RankingWorker:
    """A worker that holds rules and rankers.

    Args:
        ranking: the task.
    """

    def __init__(self, ranking: RankingTask) -> None:
        self.config = ranking.config
        corpus = opened(self.config)
        self.rules: list[Rule] = built_rules(self.config, rule_resources(self.config, corpus))
        self.rankers = ranking.loaded(Contexts(corpus.splits["train"]))
        self.named = [spec.label for spec in ranking.rankers if not spec.is_control]

    def run(self, shard: Shard[RankedGroup]) -> list[dict[str, Any]]:
        """Rank the contexts of a shard under all rules; one row per context."""
        groups, seed = [item.group for item in shard.items], self.config.seed
        made = {
            rule.name: rule.apply(groups, [rule_seed(seed, rule.name, group.key) for group in groups]) for rule in self.rules
        }
        attacks = [dict(zip(made, attacked, strict=True)) for attacked in zip(*made.values(), strict=True)] or [
            {} for _ in groups
        ]
        views = [
            {CLEAN: group} | {rule: attacked.group for rule, attacked in by_rule.items()}
            for group, by_rule in zip(groups, attacks, strict=True)
        ]
        ranked: list[list[dict[str, Any]]] = [[] for _ in groups]
        for label, ranker in self.rankers.items():
            for entries, outcomes in zip(ranked, _scores(ranker, views), strict=True):
                entries += [{"model": label, "rule": rule, **_outcome_columns(outcome)} for rule, outcome in outcomes.items()]
            for entries, view in zip(ranked, views, strict=True):
                for entry, group in zip(entries[-len(view) :], view.values(), strict=True):
                    entry |= unread_columns(ranker, group)
        readings = self._read([item.group for item in shard.items if item.is_read])
        return [
            self._row(item, of_rules, scored, readings.get(item.group.key, []))
            for item, of_rules, scored in zip(shard.items, attacks, ranked, strict=True)
        ]

    def _read(self, groups: Sequence[CandidateGroup]) -> dict[str, list[dict[str, Any]]]:
        """Measure the importance of the words of right replies to the named rankers, by key of the context."""
        readings: dict[str, list[dict[str, Any]]] = {group.key: [] for group in groups}
        for label in self.named:
            for group, readings_by_index in zip(
                groups, read_words(partial(_scores_or_none, self.rankers[label]), groups), strict=True
            ):
                readings[group.key] += [
                    {
                        "model": label,
                        "place": index,
                        "words": list(reading.importance),
                        "importance": list(reading.importance.values()),
                        "kept": list(reading.kept),
                    }
                    for index, reading in readings_by_index.items()
                ]
        return readings

    def _row(
        self, item: RankedGroup, attacks: Attacks, ranked: list[dict[str, Any]], readings: list[dict[str, Any]]
    ) -> dict[str, Any]:
        group, seed = item.group, group_seed(self.config.seed, item.group.key)
        errors = [entry["error"] for entry in ranked if entry["model"] in self.named]
        if all(errors):
            return error_row(group.key, seed, errors[0])
        return (
            ok_row(group.key, seed)
            | context_columns(item)
            | {
                "attacks": [_attack(rule, group.context, attacks[rule.name]) for rule in self.rules],
                "ranked": ranked,
                "readings": readings,
            }
        )


def _scores(ranker: Ranker, views: Sequence[Mapping[str, CandidateGroup]]) -> list[dict[str, np.ndarray | RankerError]]:
    """Score each group's candidates by rule; each text is scored once in its context."""
    # By index of the view and context, the texts that are scored in it.
    texts_of: dict[tuple[int, Context], tuple[Utterance, ...]] = {}
    for index, view in enumerate(views):
        for context in dict.fromkeys(group.context for group in view.values()):
            texts = chain.from_iterable(group.candidates for group in view.values() if group.context == context)
            texts_of[index, context] = tuple(dict.fromkeys(texts))
    pairs = [(context, texts) for (_, context), texts in texts_of.items()]
    outcome_of = dict(zip(texts_of, outcomes_of(ranker, pairs), strict=True))
    scores: list[dict[str, np.ndarray | RankerError]] = []
    for index, view in enumerate(views):
        of_view: dict[str, np.ndarray | RankerError] = {}
        for rule, group in view.items():
            outcome = outcome_of[index, group.context]
            if isinstance(outcome, RankerError):
                # The texts of one rule may be the cause.
                (of_view[rule],) = outcomes_of(ranker, [(group.context, group.candidates)])
            else:
                score_by_text = dict(zip(texts_of[index, group.context], outcome.tolist(), strict=True))
                of_view[rule] = np.array([score_by_text[words] for words in group.candidates])
        scores.append(of_view)
    return scores


def _scores_or_none(ranker: Ranker, pairs: Sequence[Pair]) -> list[np.ndarray | None]:
    return [None if isinstance(outcome, RankerError) else outcome for outcome in outcomes_of(ranker, pairs)]


def _outcome_columns(outcome: np.ndarray | RankerError) -> dict[str, Any]:
    if isinstance(outcome, RankerError):
        return {"scores": None, "error": reason_of(outcome)}
    return {"scores": outcome.tolist(), "error": None}


def _attack(rule: Rule, context: Context, attacked: Attacked) -> dict[str, Any]:
    changed = [
        {"place": index, "text": " ".join(attacked.group.candidates[index]), "num_changed": num}
        for index, num in enumerate(attacked.changed)
        if num
    ]
    if attacked.group.context != context:
        lines, num = "\n".join(_lines(attacked.group.context)), words_changed(context, attacked.group.context)
        changed.append({"place": CONTEXT, "text": lines, "num_changed": num})
    return {"rule": rule.name, "keeps_labels": rule.keeps_labels, "changed": changed}


def reason_of(error: RankerError) -> str:
    """Return the reason of missing scores in one line, for tables and pages."""
    return " ".join(f"{error.what}: {error.got}".split())


def unread_columns(ranker: Ranker, group: CandidateGroup) -> dict[str, int]:
    """Count the turns and replies that a ranker left out, as columns of a row."""
    unread = unread_of(ranker, group.context, group.candidates)
    return {"turns_unread": unread.turns, "replies_unread": unread.replies}


def shortened(rows: Rows, column: str) -> Counter[str]:
    """Count by ranker the contexts that it did not read whole, from the entries of a column."""
    entries = {
        (row["item_key"], entry["model"])
        for row in rows
        if row["status"] == OK
        for entry in row[column]
        if entry["turns_unread"]
    }
    return Counter(f"{SHORTENED}{model}" for _, model in entries)


def counts_of(tally: Tally, begins: str, what: str) -> str:
    """Describe one kind of count, such as "no scores: Mine 3, Yours and 2 more 5 each"; empty for none."""
    alike: dict[int, list[str]] = {}
    for name, num in sorted(tally.total.items()):
        if name.startswith(begins):
            alike.setdefault(num, []).append(name.removeprefix(begins))
    counts = [
        f"{names[0]} and {len(names) - 1} more {num:,} each" if names[1:] else f"{names[0]} {num:,}"
        for num, names in alike.items()
    ]
    return f"{what}: {', '.join(counts)}" if counts else ""


def context_columns(item: RankedGroup) -> dict[str, Any]:
    """Return a context and its candidates as columns of a row, words between blanks."""
    group = item.group
    return {
        "dialogue": item.dialogue,
        "context": _lines(group.context),
        "is_cut": item.is_cut,
        "candidates": _lines(group.candidates),
        "labels": list(group.labels),
        "kinds": [kind.value for kind in group.kinds],
    }


def _lines(utterances: Sequence[Utterance]) -> list[str]:
    return [" ".join(words) for words in utterances]
