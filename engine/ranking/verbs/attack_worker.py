"""A worker of attacks on rankers: shards of contexts in, rows of `parley.engine.ranking.verbs.rows.SEARCHES` out.

Each method and rule attacks each ranker in all contexts of a shard side by side. What it found on one ranker is then shown to
the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from parley.engine.core.ray.record import Counts, Rows
from parley.engine.core.ray.sharding import Shard
from parley.engine.core.runs.schemas import OK, error_row, ok_row
from parley.engine.core.verbs.sharded import Tally, spread
from parley.engine.perturb.replies.language import ReplyLanguage
from parley.engine.perturb.replies.rule import Rule
from parley.engine.ranking.attacks.attack import RankAttack
from parley.engine.ranking.attacks.catalogue import compose_attack, need_of
from parley.engine.ranking.attacks.goals import RankGoal
from parley.engine.ranking.attacks.methods import FixedRule
from parley.engine.ranking.attacks.outcomes import AttackOutcome, transferred
from parley.engine.ranking.attacks.settings import POLICY, AttackDetails, GoalKind
from parley.engine.ranking.verbs.asked import label_of
from parley.engine.ranking.verbs.config import RankingAttackConfig
from parley.engine.ranking.verbs.groups import (
    Contexts,
    RankedGroup,
    built_rules,
    group_seed,
    opened,
    rule_resources,
    utterances_of,
)
from parley.engine.ranking.verbs.worker import (
    SHORTENED,
    AskingRankers,
    context_columns,
    counts_of,
    reason_of,
    shortened,
    unread_columns,
)
from parley.envs.core.errors import RankerError
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.ranking.groups import CandidateGroup
from parley.envs.ranking.split import CandidateSplit
from parley.policies.ranking.ranker import Ranker

SUCCEEDED = "succeeded."
"""Begins what is counted by method: attacks that reached the goal."""
_CONTEXTS = 16
"""Of a shard at most: each asks about dozens of drafts at a time, which fill a batch."""
_WIDTH = 100
"""Of the word vectors that `min_cosine` is measured by."""


@dataclass(frozen=True)
class RankingAttacks(AskingRankers):
    """Rankers that are attacked."""

    event = "attacked"

    config: RankingAttackConfig

    def shard_size(self, num_items: int, num_workers: int) -> int:
        return spread(num_items, num_workers, _CONTEXTS)

    def worker(self) -> RankAttackWorker:
        return RankAttackWorker(self)

    def digest(self, rows: Rows) -> Counts:
        """Contexts, and by method the attacks that reached the goal, all rankers together."""
        done = [row for row in rows if row["status"] == OK]
        reached = [each["method"] for row in done for each in row["searches"] if each["status"] == "success"]
        return (
            Counter(f"{SUCCEEDED}{method}" for method in reached) + shortened(rows, "before") + Counter({self.unit: len(done)})
        )

    def describe(self, tally: Tally) -> str:
        """Such as "successes: greedy 12, random 3; contexts not read whole: smn 7"."""
        counted = {"successes": SUCCEEDED, "contexts not read whole": SHORTENED}
        return "; ".join(filter(None, (counts_of(tally, begins, what) for what, begins in counted.items())))


class RankAttackWorker:
    """Holds rankers and what attacks on them lean on, and attacks.

    Args:
        attacks: who is attacked how.
    """

    def __init__(self, attacks: RankingAttacks) -> None:
        self.config = attacks.config
        corpus = opened(self.config)
        resources = rule_resources(self.config, corpus)
        rules = [rule for rule in built_rules(self.config, resources) if suits(rule, self.config.goal)]
        self.rankers = attacks.loaded(Contexts(corpus.splits["train"]))
        self.goal = goal_of(self.config)
        judges = judges_of(self.config.attack, corpus.splits["train"], self.config.seed, known_words=self.config.known_words)
        self.attacks = {
            label: composed(ranker, resources.language, self.config, rules, judges) for label, ranker in self.rankers.items()
        }

    def run(self, shard: Shard[RankedGroup]) -> list[dict[str, Any]]:
        """One row per context."""
        groups = [item.group for item in shard.items]
        seeds = [group_seed(self.config.seed, group.key) for group in groups]
        before: list[list[dict[str, Any]]] = [[] for _ in groups]
        searches: list[list[dict[str, Any]]] = [[] for _ in groups]
        for label, attacks in self.attacks.items():
            for number, (method, attack) in enumerate(attacks.items()):
                outcomes = attack.run(groups, seeds)
                if not number:
                    for scores, outcome, group in zip(before, outcomes, groups, strict=True):
                        left_out = unread_columns(self.rankers[label], group)
                        scores.append({"model": label, "scores": list(outcome.scores), **left_out})
                shown = self._shown(label, outcomes, groups)
                for of_context, outcome, transfers in zip(searches, outcomes, shown, strict=True):
                    of_context.append({"model": label, "method": method, **_told(outcome), "transfers": transfers})
        return [self._row(*each) for each in zip(shard.items, seeds, before, searches, strict=True)]

    def _shown(
        self, attacked: str, outcomes: Sequence[AttackOutcome], groups: Sequence[CandidateGroup]
    ) -> list[list[dict[str, Any]]]:
        """What the other rankers make of the edited replies, by context."""
        told = {
            label: transferred(outcomes, groups, self.goal, ranker)
            for label, ranker in self.rankers.items()
            if label != attacked
        }
        return [[{"model": label, **_reached(found[number])} for label, found in told.items()] for number in range(len(groups))]

    def _row(
        self, item: RankedGroup, seed: int, before: list[dict[str, Any]], searches: list[dict[str, Any]]
    ) -> dict[str, Any]:
        if all(each["status"] == "error" for each in searches):
            return error_row(item.group.key, seed, searches[0]["reason"])
        return ok_row(item.group.key, seed) | context_columns(item) | {"before": before, "searches": searches}


def goal_of(config: RankingAttackConfig) -> RankGoal:
    """What the attacks want."""
    return RankGoal(config.goal, config.attack.rank, config.attack.target)


def suits(rule: Rule, goal: GoalKind) -> bool:
    """Whether a rule edits replies of the goal's kind, and leaves wrong ones wrong and right ones right."""
    return rule.keeps_labels and rule.attacks == {"promote": "negatives", "demote": "positives"}[goal]


def method_label(method: str) -> str:
    """What rows and tables call a method: its name, that of a class of a user's own, or that of a policy's run."""
    named = method.rpartition(":")[2]
    return label_of(named) if method.startswith(POLICY) else named


def composed(
    ranker: Ranker, language: ReplyLanguage, config: RankingAttackConfig, rules: Sequence[Rule], judges: Mapping[str, Any]
) -> dict[str, RankAttack]:
    """The attacks on a ranker, by method and rule; without methods that need what it does not give.

    Args:
        ranker: any.
        language: of its replies.
        config: what was asked for.
        rules: that suit the goal.
        judges: what limits are judged by, as `compose_attack` takes it.
    """
    found = {
        method_label(method): compose_attack(ranker, language, config.settings(method), **judges)
        for method in config.method_names
        if (need := need_of(method)) is None or need.is_met(ranker)
    }
    goal = goal_of(config)
    return found | {
        rule.name: RankAttack(ranker, language, goal=goal, method=FixedRule(rule), edits=config.edits, budget=1)
        for rule in rules
    }


def judges_of(details: AttackDetails, train: CandidateSplit, seed: int, *, known_words: bool) -> dict[str, Any]:
    """What edits are judged by, of the training split, as `compose_attack` takes it; read where a setting asks for it.

    Args:
        details: with the limits.
        train: the split.
        seed: of word vectors.
        known_words: whether words that enter stand in the split.
    """
    if not known_words and details.max_perplexity_ratio is None and details.min_cosine is None:
        return {}
    said = utterances_of(train)
    found: dict[str, Any] = {}
    if known_words:
        found["known"] = frozenset().union(*said)
    if details.max_perplexity_ratio is not None:
        from parley.engine.perturb.lexicon.ngrams import NGrams

        found["ngrams"] = NGrams(said)
    if details.min_cosine is not None:
        found["vectors"] = _vectors(said, seed)
    return found


def _vectors(said: Sequence[Utterance], seed: int) -> Any:
    """Vectors of texts: the means of word vectors by skip-gram."""
    from parley.engine.ranking.attacks.constraints import MeanVectors
    from parley.envs.corpora.pairs.vocabulary import PairVocabulary
    from parley.policies.ranking.matching.vectors import skip_gram

    vocabulary = PairVocabulary.build(said, None)
    vectors = skip_gram(said, vocabulary, _WIDTH, seed)
    return MeanVectors(dict(zip(vocabulary.words, vectors, strict=True)), _WIDTH)


def _told(outcome: AttackOutcome) -> dict[str, Any]:
    """An outcome as rows hold it."""
    before, after = outcome.ranks() or (None, None)
    return {
        "status": outcome.status,
        "reason": " ".join(outcome.reason.split()),
        "place": outcome.place,
        "text": " ".join(outcome.words) if outcome.was_tried else None,
        "edited": list(outcome.edited),
        "num_changed": outcome.cost,
        "moves": list(outcome.moves),
        "score_before": outcome.scores[outcome.place] if outcome.was_tried and outcome.place is not None else None,
        "score": outcome.score,
        "rank_before": before,
        "rank_after": after,
        "queries": outcome.queries,
        "num_slopes": outcome.num_slopes,
        "num_unscored": outcome.num_unscored,
        "trace": [point._asdict() for point in outcome.trace],
    }


def _reached(found: bool | RankerError | None) -> dict[str, Any]:
    if isinstance(found, RankerError):
        return {"reached": None, "error": reason_of(found)}
    return {"reached": found, "error": None}
