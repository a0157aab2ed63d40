"""The worker of attacks on rankers, and the attack search that matching models are trained against.

The worker takes shards of contexts and returns rows of `parley.engine.ranking.verbs.prepared.SEARCHES`. Each method and rule
attacks each ranker in all contexts of a shard side by side. The edited replies of one ranker are then scored by the others.

In a training, the search begins each epoch: in each context of a pool it promotes the wrong reply that the current model likes
best. The closest draft joins the context as one more wrong reply for that epoch, with or without success; all other replies
stay. A context with a wrong reply at the top is not searched.

The results of a search are a file of the run. A training that resumes within an epoch reads the file. A training that stopped
within a search repeats it with equal results, because the model, the context and the seed decide them.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from parley.engine.core.ray.record import Counts, Rows
from parley.engine.core.ray.worker import Shard
from parley.engine.core.runs.documents import write_whole
from parley.engine.core.runs.parts import OK, error_row, ok_row
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.statistics import Estimate, clustered_rate
from parley.engine.core.verbs.job import Reporter
from parley.engine.core.verbs.sharded import Tally
from parley.engine.perturb.replies.language import ReplyLanguage
from parley.engine.perturb.replies.shapes import Rule
from parley.engine.ranking.attacks.attack import FixedRule, RankAttack
from parley.engine.ranking.attacks.cases import AttackOutcome, transferred
from parley.engine.ranking.attacks.catalogue import compose_attack, need_of
from parley.engine.ranking.attacks.settings import POLICY, AttackDetails, GoalKind
from parley.engine.ranking.metrics.ranks import units_of
from parley.engine.ranking.verbs.config import (
    Contexts,
    RankedGroup,
    RankingAttackConfig,
    built_rules,
    group_seed,
    label_of,
    opened,
    rule_resources,
    utterances_of,
)
from parley.engine.ranking.verbs.prepared import drawn_rows
from parley.engine.ranking.verbs.worker import (
    SHORTENED,
    RankerQueries,
    context_columns,
    counts_of,
    reason_of,
    shortened,
    unread_columns,
)
from parley.envs.core.errors import RankerError, RunError
from parley.envs.core.seeds import derive_seed
from parley.envs.core.storage.uris import display_path
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.ranking.edit_game import RankGoal
from parley.envs.ranking.groups import CandidateGroup, CandidateKind, CandidateSplit
from parley.policies.ranking.ranker import Ranker

if TYPE_CHECKING:
    from parley.engine.ranking.attacks.settings import AttackSettings
    from parley.policies.ranking.matching.matcher import Matcher


SEARCHED = "search"
"""Kind of the event with the counts of a search."""
START, END = "at the start", "at the end"
"""The times of a search on a held-out split: before and after the training."""
_AT_ONCE = 256


class ReplyResult(NamedTuple):
    """The result of a search in one context.

    Args:
        key: of the context.
        words: the edited reply that came closest to the top; none where no edit came closer, or nothing was tried.
        is_tried: whether no wrong reply was at the top before any edit, and there was one to edit.
        is_promoted: whether it reached the top.
        queries: made.
    """

    key: str
    words: tuple[str, ...]
    is_tried: bool
    is_promoted: bool
    queries: int


class PoolSearch:
    """The searches of a training, with their result files.

    Args:
        attack: on the model that is trained.
        train: its contexts.
        size: how many contexts of a split are searched at most, the seed's choice.
        seed: master seed.
        run: keeps the results.
        reporter: shows progress.
    """

    def __init__(
        self, attack: RankAttack, train: CandidateSplit, size: int, seed: int, run: RunFolder, reporter: Reporter
    ) -> None:
        self._attack, self._size, self._seed, self._run, self._reporter = attack, size, seed, run, reporter
        self._pool = self.drawn(train)
        self._now: Mapping[str, ReplyResult] = {}

    @property
    def size(self) -> int:
        """Contexts of the pool."""
        return len(self._pool)

    def drawn(self, split: CandidateSplit) -> list[CandidateGroup]:
        """Draw the groups of a split to search."""
        return list(split.chosen(drawn_rows(split, self._size, self._seed)))

    def in_split(self, split: CandidateSplit, when: str) -> dict[str, ReplyResult]:
        """Search a split, as `results` does."""
        return self.results(f"{split.name} {when}", self.drawn(split))

    def begin(self, epoch: int, batches_done: int) -> None:
        """Search the pool for an epoch, or read the results if the epoch has begun before.

        Raises:
            RunError: batches of the epoch are done, and its search results are missing.
        """
        name = f"epoch {epoch}"
        if batches_done and not self._file(name).exists():
            what = "the replies from the search before this epoch are gone, and the model has changed since"
            raise RunError(what, where=self._file(name), fix="begin anew, in another --run folder")
        self._now = self.results(name, self._pool)

    def __call__(self, groups: Sequence[CandidateGroup]) -> list[CandidateGroup]:
        """Add the wrong replies of the epoch to groups."""
        return with_wrong_replies(groups, self._now)

    def results(self, name: str, groups: Sequence[CandidateGroup]) -> dict[str, ReplyResult]:
        """Search contexts at the current model, or read the stored results; by key of the context.

        Raises:
            RankerError: the model gives no scores.
            RunError: the disk refuses.
        """
        path = self._file(name)
        if path.exists():
            rows = [ReplyResult(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
            return {row.key: row._replace(words=tuple(row.words)) for row in rows}
        started, results = time.monotonic(), list[ReplyResult]()
        self._reporter.stage(f"search, {name}", len(groups), "contexts")
        for start in range(0, len(groups), _AT_ONCE):
            some = groups[start : start + _AT_ONCE]
            for outcome in self._attack.run(some, [derive_seed(self._seed, "search", name, group.key) for group in some]):
                if outcome.status == "error":
                    raise RankerError("the model gives no scores", where=outcome.key, got=outcome.reason)
                words = outcome.words if outcome.cost else ()
                promoted = outcome.status == "success"
                results.append(ReplyResult(outcome.key, words, outcome.was_tried, promoted, outcome.queries))
            self._reporter.advance(len(results))
        self._keep(path, results)
        self._report(name, results, time.monotonic() - started)
        return {reply.key: reply for reply in results}

    def _file(self, name: str) -> Path:
        return self._run.path / f"found-{name.replace(' ', '-')}.jsonl"

    def _keep(self, path: Path, results: Sequence[ReplyResult]) -> None:
        text = "".join(json.dumps(reply._asdict(), ensure_ascii=False) + "\n" for reply in results)
        try:
            write_whole(path, text.encode())
        except OSError as error:
            fix = f"make room or mend the disk, then parley resume {display_path(self._run.path)}"
            raise RunError("the found replies cannot be written", where=path, got=error.strerror, fix=fix) from None

    def _report(self, name: str, results: Sequence[ReplyResult], seconds: float) -> None:
        counts = {
            "contexts": len(results),
            "tried": sum(reply.is_tried for reply in results),
            "promoted": sum(reply.is_promoted for reply in results),
            "added": sum(bool(reply.words) for reply in results),
            "queries": sum(reply.queries for reply in results),
        }
        self._run.event(SEARCHED, name=name, **counts, seconds=seconds)
        how = f"{counts['queries'] / max(counts['tried'], 1):.0f} queries each, {seconds:.0f} s"
        what = f"wrong replies reach the top of {counts['tried']:,} contexts that had none there"
        self._reporter.say(f"search, {name}: {counts['promoted']:,} {what}, {how}")


def with_wrong_replies(groups: Sequence[CandidateGroup], results: Mapping[str, ReplyResult]) -> list[CandidateGroup]:
    """Add the wrong replies of a search behind the candidates of each group."""
    return [
        replace(
            group,
            candidates=(*group.candidates, results[group.key].words),
            labels=(*group.labels, False),
            kinds=(*group.kinds, CandidateKind.HARD),
            attackable=(*group.attackable, True),
        )
        if group.key in results and results[group.key].words
        else group
        for group in groups
    ]


def promoted(split: CandidateSplit, results: Mapping[str, ReplyResult]) -> Estimate:
    """Compute the share of tried contexts in which the search promotes a wrong reply."""
    rows = [row for row in range(len(split)) if (reply := results.get(split.key(row))) and reply.is_tried]
    return clustered_rate([results[split.key(row)].is_promoted for row in rows], units_of(split)[rows])


def composed_search(
    model: Matcher, language: ReplyLanguage, settings: AttackSettings, train: CandidateSplit, seed: int
) -> RankAttack:
    """Compose the search on a model and try it once; only words of the model enter.

    Args:
        model: that is trained.
        language: of the replies.
        settings: of the search.
        train: for the judges of limits and the trial.
        seed: master seed.

    Raises:
        ConfigError: no method is called so.
        DataError: a resource of the language is missing.
    """
    from parley.policies.ranking.matching.fit import MatcherRanker

    judges = judges_of(settings, train, seed, known_words=False)
    attack = compose_attack(MatcherRanker(model), language, settings, vocabulary=model.vocabulary.index, **judges)
    attack.run([train[0]], [0])
    return attack


SUCCEEDED = "succeeded."
"""Prefix of counts by method: attacks that reached the goal."""
_WIDTH = 100
"""Of the word vectors that `min_cosine` is measured by."""


@dataclass(frozen=True)
class RankingAttacks(RankerQueries):
    """A sharded attack on rankers."""

    event = "attacked"
    # Each asks about dozens of drafts at a time, which fill a batch.
    batch = 16

    config: RankingAttackConfig

    def worker(self) -> RankAttackWorker:
        return RankAttackWorker(self)

    def digest(self, rows: Rows) -> Counts:
        done = [row for row in rows if row["status"] == OK]
        reached = [search["method"] for row in done for search in row["searches"] if search["status"] == "success"]
        return (
            Counter(f"{SUCCEEDED}{method}" for method in reached) + shortened(rows, "before") + Counter({self.unit: len(done)})
        )

    def describe(self, tally: Tally) -> str:
        counted = {"successes": SUCCEEDED, "contexts not read whole": SHORTENED}
        return "; ".join(filter(None, (counts_of(tally, begins, what) for what, begins in counted.items())))


class RankAttackWorker:
    """A worker that holds rankers and the attacks on them.

    Args:
        attacks: the task.
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
        """Attack the contexts of a shard; one row per context."""
        groups = [item.group for item in shard.items]
        seeds = [group_seed(self.config.seed, group.key) for group in groups]
        before: list[list[dict[str, Any]]] = [[] for _ in groups]
        searches: list[list[dict[str, Any]]] = [[] for _ in groups]
        for label, attacks in self.attacks.items():
            known: list[np.ndarray | None] = []
            for number, (method, attack) in enumerate(attacks.items()):
                outcomes = attack.run(groups, seeds, known)
                if not number:
                    # The ranker is asked once for replies as they are, whatever the number of methods.
                    known = [np.array(outcome.scores) if outcome.scores else None for outcome in outcomes]
                    for scores, outcome, group in zip(before, outcomes, groups, strict=True):
                        left_out = unread_columns(self.rankers[label], group)
                        scores.append({"model": label, "scores": list(outcome.scores), **left_out})
                shown = self._shown(label, outcomes, groups)
                for of_context, outcome, transfers in zip(searches, outcomes, shown, strict=True):
                    of_context.append({"model": label, "method": method, **_outcome_columns(outcome), "transfers": transfers})
        rows = []
        for item, seed, scores, results in zip(shard.items, seeds, before, searches, strict=True):
            if all(result["status"] == "error" for result in results):
                rows.append(error_row(item.group.key, seed, results[0]["reason"]))
            else:
                rows.append(ok_row(item.group.key, seed) | context_columns(item) | {"before": scores, "searches": results})
        return rows

    def _shown(
        self, attacked: str, outcomes: Sequence[AttackOutcome], groups: Sequence[CandidateGroup]
    ) -> list[list[dict[str, Any]]]:
        """Test the edited replies on the other rankers, by context."""
        transfers = {
            label: transferred(outcomes, groups, self.goal, ranker)
            for label, ranker in self.rankers.items()
            if label != attacked
        }
        return [
            [{"model": label, **_reached(transfers_of_ranker[number])} for label, transfers_of_ranker in transfers.items()]
            for number in range(len(groups))
        ]


def goal_of(config: RankingAttackConfig) -> RankGoal:
    """Return the goal of the attacks."""
    return RankGoal(config.goal, config.attack.rank, config.attack.target)


def suits(rule: Rule, goal: GoalKind) -> bool:
    """Return True if a rule edits replies of the goal's kind and keeps their labels."""
    return rule.keeps_labels and rule.attacks == {"promote": "negatives", "demote": "positives"}[goal]


def method_label(method: str) -> str:
    """Return the name of a method in rows and tables: its name, its class, or the run of its policy."""
    named = method.rpartition(":")[2]
    return label_of(named) if method.startswith(POLICY) else named


def composed(
    ranker: Ranker, language: ReplyLanguage, config: RankingAttackConfig, rules: Sequence[Rule], judges: Mapping[str, Any]
) -> dict[str, RankAttack]:
    """Compose the attacks on a ranker by method and rule, without methods that the ranker does not suit.

    Args:
        ranker: any.
        language: of its replies.
        config: of the attack.
        rules: that suit the goal.
        judges: of limits, as `compose_attack` takes them.
    """
    attacks = {
        method_label(method): compose_attack(ranker, language, config.settings(method), **judges)
        for method in config.method_names
        if (need := need_of(method)) is None or need.is_met(ranker)
    }
    goal = goal_of(config)
    return attacks | {
        rule.name: RankAttack(ranker, language, goal=goal, method=FixedRule(rule), edits=config.edits, budget=1)
        for rule in rules
    }


def judges_of(details: AttackDetails, train: CandidateSplit, seed: int, *, known_words: bool) -> dict[str, Any]:
    """Fit the judges of edits on the training split, as arguments of `compose_attack`; only those that settings need.

    Args:
        details: with the limits.
        train: the split.
        seed: of word vectors.
        known_words: whether words that enter stand in the split.
    """
    if not known_words and details.max_perplexity_ratio is None and details.min_cosine is None:
        return {}
    utterances = utterances_of(train)
    judges: dict[str, Any] = {}
    if known_words:
        judges["vocabulary"] = frozenset().union(*utterances)
    if details.max_perplexity_ratio is not None:
        from parley.engine.perturb.lexicon.tagger import NGrams

        judges["ngrams"] = NGrams(utterances)
    if details.min_cosine is not None:
        judges["vectors"] = _vectors(utterances, seed)
    return judges


def _vectors(utterances: Sequence[Utterance], seed: int) -> Any:
    """Make vectors of texts: means of skip-gram word vectors."""
    from parley.engine.ranking.attacks.cases import MeanVectors
    from parley.envs.corpora.pairs.vocabulary import PairVocabulary
    from parley.policies.ranking.matching.matcher import skip_gram

    vocabulary = PairVocabulary.build(utterances, None)
    vectors = skip_gram(utterances, vocabulary, _WIDTH, seed)
    return MeanVectors(dict(zip(vocabulary.words, vectors, strict=True)), _WIDTH)


def _outcome_columns(outcome: AttackOutcome) -> dict[str, Any]:
    """Return an outcome as columns of a row."""
    before, after = outcome.ranks() or (None, None)
    return {
        "status": outcome.status,
        "reason": " ".join(outcome.reason.split()),
        "place": outcome.index,
        "text": " ".join(outcome.words) if outcome.was_tried else None,
        "edited": list(outcome.edited),
        "num_changed": outcome.cost,
        "moves": list(outcome.moves),
        "score_before": outcome.scores[outcome.index] if outcome.was_tried and outcome.index is not None else None,
        "score": outcome.score,
        "rank_before": before,
        "rank_after": after,
        "queries": outcome.queries,
        "num_scored": outcome.num_scored,
        "num_slopes": outcome.num_slopes,
        "num_unscored": outcome.num_unscored,
        "trace": [point._asdict() for point in outcome.trace],
    }


def _reached(reached: bool | RankerError | None) -> dict[str, Any]:
    if isinstance(reached, RankerError):
        return {"reached": None, "error": reason_of(reached)}
    return {"reached": reached, "error": None}
