"""Checks before evaluations of rankers and attacks on them, the rows of both, and adversarial training of matching models.

A training changes the replies of a pool of training contexts (`Adversaries`).

Source: Li et al. 2019, section 4. A rule that keeps labels (IIW, RSW) replaces replies of the pool, with the labels that they
had. Any other rule adds its edits of right replies as new wrong ones, beside the right ones. IIW takes random words of the
context, one for nine.

  * # Paper: a pool of 100,000 examples, silent on what one is. Ours: a share of the contexts, each with its replies.
  * # Paper: one rule a training. Ours: several too, at once. A right reply that one rule replaces then stays if another one
    makes a wrong reply of it, as the paper keeps it beside those.

A row of an evaluation or an attack is one context with its candidates. Rows of an evaluation hold the changes of each rule and
all scores; rows of an attack hold the result of each method on each ranker. `FlatRows` make the lines of `parley rows`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from parley.engine.core.ray.worker import IndexedItems
from parley.engine.core.runs.parts import ERROR, row_schema
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.rows import selected
from parley.engine.core.stats.statistics import finished
from parley.engine.core.verbs.export import FlatRows, Line, Row
from parley.engine.core.verbs.job import Reporter
from parley.engine.core.verbs.sharded import ItemsJob, TaskT
from parley.engine.perturb.replies.catalogue import build_rules, rule_names
from parley.engine.perturb.replies.shapes import Attacked, Rule, RuleResources
from parley.engine.ranking.attacks.catalogue import policy_rule
from parley.engine.ranking.attacks.settings import POLICY
from parley.engine.ranking.metrics.ranking import CLEAN, CONTEXT
from parley.engine.ranking.metrics.searched import expected_ranks
from parley.engine.ranking.verbs.config import (
    FEW,
    Contexts,
    RankedGroup,
    RankersConfig,
    RankerSpec,
    built_rules,
    chosen_groups,
    lexicon_setting,
    loaded,
    models_of,
    opened,
    rule_resources,
    rule_seed,
)
from parley.envs.core.errors import ConfigError
from parley.envs.core.seeds import derive_seed, stream
from parley.envs.corpora.arrow import data_root
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.ranking.groups import CandidateGroup, CandidateKind, CandidateSplit
from parley.policies.chat.answers import usage_of
from parley.policies.chat.questions import UNRATED
from parley.policies.ranking.ranker import Ranker, Unread, unread_of
from parley.policies.ranking.rankers import RESPONSE_ONLY

NOTHING = "none"
"""The control: as many epochs on unchanged replies."""
SEARCH = "search"
"""The attack search (`attack_worker.py`); no rule."""
_IN_TRAINING = {"iiw": "iiw-training"}
_CHUNK = 512


class _Reply(NamedTuple):
    words: Utterance
    label: bool
    kind: CandidateKind
    attackable: bool


class Keyed(Protocol):
    """A collection with a key for each row, such as a split."""

    def __len__(self) -> int: ...

    def key(self, row: int) -> str:
        """Return the key of a row."""


def training_names(against: str) -> tuple[str, ...]:
    """Return the rules of a training, in their variants for training, then its policies; empty for "none" and "search".

    Raises:
        ConfigError: none is named, or one is unknown, with the nearest name.
    """
    named = ",".join(part for part in against.split(",") if part.strip() != SEARCH)
    if against == NOTHING or (is_searched(against) and not named):
        return ()
    parts = [part.strip() for part in named.split(",")]
    policies = [part for part in parts if part.startswith(POLICY)]
    fixed = rule_names(",".join(part for part in parts if part not in policies)) if len(policies) < len(parts) else ()
    return tuple(dict.fromkeys([*(_IN_TRAINING.get(name, name) for name in fixed), *policies]))


def evaluated_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the rules of an evaluation from those of a training, some of which are variants."""
    names_by_variant = {variant: name for name, variant in _IN_TRAINING.items()}
    return tuple(names_by_variant.get(name, name) for name in names)


def is_searched(against: str) -> bool:
    """Return True if the attack search is part of a training."""
    return SEARCH in map(str.strip, against.split(","))


def evaluated_name(rule: Rule) -> str:
    """Return the name of a training's rule in evaluations."""
    return evaluated_names([rule.name])[0]


def training_rules(names: Sequence[str], resources: RuleResources, group: CandidateGroup) -> list[Rule]:
    """Build the rules of a training and try each once, because lexicons open at first use.

    Args:
        names: as `training_names` gives them.
        resources: shared by rules.
        group: that they are tried on.

    Raises:
        ConfigError: there is none of a name, two bear the same, one edits contexts or does not suit the language.
        DataError: a resource of a rule is missing.
    """
    fixed = build_rules([name for name in names if not name.startswith(POLICY)], resources)
    rules = [*fixed, *(policy_rule(name, resources) for name in names if name.startswith(POLICY))]
    bound_names = [rule.name for rule in rules]
    if len(set(bound_names)) < len(bound_names):
        raise ConfigError("two rules bear the same name", where="--against", got=", ".join(bound_names), fix="rename yours")
    for rule in rules:
        if rule.attacks == "context":
            raise ConfigError("a rule edits contexts, and a matching model is trained on changed replies", where=rule.name)
        rule.apply([group], [0])
    return rules


def drawn_rows(split: Sized, size: int, seed: int) -> np.ndarray:
    """Draw at most `size` contexts of a split (n,), ascending; a smaller draw is part of a larger one."""
    return np.sort(stream(seed, "pool").permutation(len(split))[:size])


def drawn_pool(split: Keyed, share: float, seed: int) -> frozenset[str]:
    """Draw the keys of a share of a split's contexts, at least one; smaller shares are part of larger ones."""
    size = max(1, round(share * len(split)))
    return frozenset(split.key(row) for row in drawn_rows(split, size, seed).tolist())


class Adversaries:
    """A function that changes the groups of a pool and keeps the others; a result depends on its group and the seed alone.

    Args:
        rules: all of which meet each group.
        seed: master seed.
        pool: keys of those groups; all groups when not given.
        fixed: whether a group has the same replies whenever it comes, so that it is changed once.
        weights: a group meets one rule, drawn by these weights; all of them when empty.
        again: how often the rules meet every group besides, each time with other draws.
    """

    def __init__(
        self,
        rules: Sequence[Rule],
        seed: int,
        pool: Collection[str] | None = None,
        *,
        fixed: bool = False,
        weights: Sequence[float] = (),
        again: int = 0,
    ) -> None:
        self._rules, self._seed, self._pool, self._again = rules, seed, pool, again
        self._weights = np.array(weights) / sum(weights) if weights else None
        self._made: dict[str, CandidateGroup] | None = {} if fixed else None
        self.untouched = dict.fromkeys(map(evaluated_name, rules), 0)
        """Groups so far in which a rule changed nothing."""

    def __call__(self, groups: Sequence[CandidateGroup]) -> list[CandidateGroup]:
        """Return the groups to learn from, in their order."""
        made = {} if self._made is None else self._made
        changed = [made.get(group.key, group) for group in groups]
        met = [index for index, group in enumerate(groups) if group.key not in made and self._num_draws(group)]
        for start in range(0, len(met), _CHUNK):
            indices = met[start : start + _CHUNK]
            results: dict[int, list[tuple[Rule, Attacked]]] = {index: [] for index in indices}
            for draw in range(self._again + 1):
                drawn = [index for index in indices if draw < self._num_draws(groups[index])]
                for index, attacks in zip(drawn, self._attacks([groups[index] for index in drawn], draw), strict=True):
                    results[index] += attacks
            for index in indices:
                changed[index] = with_adversaries(groups[index], results[index])
                if self._made is not None:
                    made[groups[index].key] = changed[index]
        return changed

    def _num_draws(self, group: CandidateGroup) -> int:
        return self._again + (self._pool is None or group.key in self._pool)

    def _attacks(self, groups: Sequence[CandidateGroup], draw: int) -> Iterator[list[tuple[Rule, Attacked]]]:
        """Yield for each group what the rules that it meets in a draw make of it."""
        number = (draw,) if draw else ()
        attacked = []
        for rule in self._rules:
            seeds = [derive_seed(self._seed, "adversaries", rule.name, group.key, *number) for group in groups]
            attacked.append(rule.apply(groups, seeds))
            self.untouched[evaluated_name(rule)] += sum(not any(attack.changed) for attack in attacked[-1]) * (draw == 0)
        for group, *attacks in zip(groups, *attacked, strict=True):
            results = list(zip(self._rules, attacks, strict=True))
            if self._weights is not None:
                draws = stream(self._seed, "adversary", group.key, *number)
                results = [results[draws.choice(len(results), p=self._weights)]]
            yield results


def with_adversaries(group: CandidateGroup, attacks: Sequence[tuple[Rule, Attacked]]) -> CandidateGroup:
    """Return a group with the replies that rules made, behind its own, or the question that a strategy changed.

    A reply with the words of a right one is never added as a wrong one, and what a rule has made it does not add again.
    """
    whole = list(map(_Reply, group.candidates, group.labels, group.kinds, group.attackable))
    rights = {reply.words for reply in whole if reply.label}
    replaced: set[int] = set()
    sources: set[int] = set()
    added: list[_Reply] = []
    made: set[tuple[str, int, Utterance]] = set()
    for rule, attacked in attacks:
        for index, words in enumerate(attacked.group.candidates):
            label = whole[index].label and rule.keeps_labels
            result = (rule.name, index, words)
            if not attacked.changed[index] or (not label and words in rights) or result in made:
                continue
            made.add(result)
            (replaced if rule.keeps_labels else sources).add(index)
            added.append(_Reply(words, label, whole[index].kind if rule.keeps_labels else CandidateKind.HARD, True))
    kept = [reply for index, reply in enumerate(whole) if index not in replaced or index in sources] + added
    return CandidateGroup(
        group.key,
        next((attacked.group.context for rule, attacked in attacks if rule.attacks == "context"), group.context),
        tuple(reply.words for reply in kept),
        tuple(reply.label for reply in kept),
        tuple(reply.kind for reply in kept),
        tuple(reply.attackable for reply in kept),
    )


# The index of a candidate, its words under the rule between blanks, and the number of changed words; `CONTEXT` for the context,
# a turn a line.
_CHANGED = {"place": int, "text": str, "num_changed": int}
# A rule, true if it keeps labels, and the candidates that it changed.
_ATTACK = {"rule": str, "keeps_labels": bool, "changed": [_CHANGED]}
# As `parley.policies.ranking.ranker.Unread`: turns and candidates that the ranker did not read, or not whole.
_UNREAD = {"turns_unread": int, "replies_unread": int}
# A ranker, a rule ("clean" for none), the score of each candidate, or null and why there is none.
_SCORED = {"model rule": str, "scores": [float], "error": str, **_UNREAD}
# The dialogue that the context is of, by its number in the split, its turns, and whether older ones are left out
# (`candidates.turns`). Turns and candidates are words between blanks; a kind is a `parley.envs.ranking.groups.CandidateKind`.
_ABOUT = {"dialogue": int, "context": [str], "is_cut": bool}
_CONTEXT = {**_ABOUT, "candidates": [str], "labels": [bool], "kinds": [str]}
# A ranker, the index of a right reply, its distinct words with their importance to the ranker by erasure, and the
# scores of the reply with only its 1 to 6 most important words.
_READING = {"model": str, "place": int, "words": [str], "importance kept": [float]}
RANKING = row_schema({**_CONTEXT, "attacks": [_ATTACK], "ranked": [_SCORED], "readings": [_READING]})
"""One context of a corpus of candidates per row; without readings unless it was drawn for them."""

# A ranker and its scores of all candidates before any edit, log-odds in the place of probabilities; empty for none.
_BEFORE = {"model": str, "scores": [float], **_UNREAD}
# As `parley.engine.ranking.attacks.cases.TracePoint`.
_TRACE = {"queries": int, "margin": float, "cost": int}
# Another ranker, and whether the edited reply reaches the goal there; null where that ranker puts the reply there
# before any edit, or gave no scores, and why.
_TRANSFER = {"model": str, "reached": bool, "error": str}
# As `parley.engine.ranking.attacks.cases.AttackOutcome`; text: the edited reply, words between blanks; `edited`: true for its
# new words; scores are on the scale of those of `before`.
_EDITED = {
    "text": str,
    "edited": [bool],
    "num_changed": int,
    "moves": [str],
    "score_before score": float,
    # From 1; places of ties are shared.
    "rank_before rank_after": float,
    # Texts scored are more than queries if a free ranker scored drafts ahead of a success.
    "queries num_scored num_slopes": int,
    # Drafts without a score, which count as no closer to the goal than the original.
    "num_unscored": int,
    "trace": [_TRACE],
    "transfers": [_TRANSFER],
}
# A ranker, and a method or a rule.
_SEARCHED = {"model method status reason": str, "place": int, **_EDITED}
SEARCHES = row_schema({**_CONTEXT, "before": [_BEFORE], "searches": [_SEARCHED]})
"""One attacked context per row."""


def _ranked_lines(row: Row) -> Iterator[Line]:
    about = {name: row[name] for name in _ABOUT}
    changed = {attack["rule"]: {reply["place"]: reply for reply in attack["changed"]} for attack in row["attacks"]}
    keeps_labels = {attack["rule"]: attack["keeps_labels"] for attack in row["attacks"]}
    for entry in row["ranked"]:
        rule, scores = entry["rule"], entry["scores"] if entry["error"] is None else []
        ranks, times = expected_ranks(scores).tolist(), Counter(scores)
        turns = changed.get(rule, {}).get(CONTEXT, {}).get("text")
        context = row["context"] if turns is None else turns.split("\n")
        common = about | {
            "context": context,
            "model": entry["model"],
            "rule": rule,
            "keeps_labels": keeps_labels.get(rule, True),
        }
        common |= {name: entry[name] for name in ("turns_unread", "replies_unread")} | _error(entry["error"])
        for index, candidate in enumerate(zip(row["candidates"], row["labels"], row["kinds"], strict=True)):
            text, label, kind = candidate
            edited: Mapping[str, Any] = changed.get(rule, {}).get(index, {"text": text, "num_changed": 0})
            line = common | {"place": index, "label": label, "kind": kind}
            line |= {"text": edited["text"], "num_changed": edited["num_changed"]}
            if scores:
                line |= {"score": scores[index], "rank": ranks[index], "tied": times[scores[index]]}
            yield line


def _searched_lines(row: Row) -> Iterator[Line]:
    about = {name: row[name] for name in _ABOUT}
    for search in row["searches"]:
        status, index = search["status"], search["place"]
        line = about | {name: value for name, value in search.items() if name != "status"} | {"outcome": status}
        if status == ERROR:
            line |= _error(search["reason"])
        if index is not None:
            line |= {"label": row["labels"][index], "kind": row["kinds"][index], "original": row["candidates"][index]}
        yield line


def _error(reason: str | None) -> dict[str, Any]:
    return {} if reason is None else {"status": ERROR, "error": reason}


RANKED_CANDIDATES = FlatRows(
    row_schema(
        {
            **_ABOUT,
            # A ranker, a rule ("clean" for none), whether it keeps labels.
            "model rule": str,
            "keeps_labels": bool,
            # The index of the candidate, its label before the rule, its source, and its words under the rule.
            "place": int,
            "label": bool,
            "kind text": str,
            "num_changed": int,
            # Null where the ranker gave none. Rank from 1, ties share the mean of theirs; candidates that have this score, this
            # one too.
            "score rank": float,
            "tied": int,
            **_UNREAD,
        }
    ),
    _ranked_lines,
)
"""Of `RANKING` one candidate per line, as one ranker scored it under one rule."""

ATTACKED_CONTEXTS = FlatRows(
    # As in `SEARCHES`; outcome: "success", "failure", "skipped" or "error"; the label, source and original words of the reply.
    row_schema({**_ABOUT, "model method outcome reason": str, "place": int, "label": bool, "kind original": str, **_EDITED}),
    _searched_lines,
)
"""Of `SEARCHES` one context per line, as one method attacked one ranker in it."""


NUM_CONTEXTS, RANKERS, ERRORS, NOT_SCORED = "contexts", "rankers", "errors", "not_scored"
NOT_RATED, CUT, UNREAD = "not_rated", "cut", "unread"
"""Entries of the summary: how many contexts there are; the rankers, by label; of rankers that gave no scores the most frequent
reason, and for how many contexts; of chat models that were asked for ratings how many replies they rated by no number, and of
how many; how many contexts have lost their oldest turns, and how many turns they keep; by ranker how many contexts and replies
it did not read whole."""

RankersConfigT = TypeVar("RankersConfigT", bound=RankersConfig)


@dataclass(frozen=True)
class Tried:
    """Parts that were made once from a few training contexts, as a check.

    Args:
        rankers: by their labels.
        rules: each applied once.
        resources: of the rules; its language opens the lexicon.
    """

    rankers: Mapping[str, Ranker]
    rules: Sequence[Rule]
    resources: RuleResources


def prepare_ranking(
    config: RankersConfigT, specs: Sequence[RankerSpec], reporter: Reporter, *, tags: bool = False
) -> tuple[RankersConfigT, IndexedItems[RankedGroup], Tried]:
    """Load and check everything before a run is made; return the located configuration, the contexts by key, and tried parts.

    Args:
        config: of the evaluation or attack.
        specs: of its rankers.
        reporter: shows progress.
        tags: whether words are tagged where there is no rule either.

    Raises:
        ParleyError: something is missing, damaged or does not fit.
    """
    config.require_device()
    resolved: RankersConfigT = replace(config, data_root=data_root(config.data_root))
    corpus = opened(resolved)
    groups = chosen_groups(resolved, corpus)
    rankers = loaded(specs, Contexts(corpus.splits["train"], FEW), config.chat.on("cpu"))
    first = next(iter(groups.values())).group
    with lexicon_setting():
        resources = rule_resources(resolved, corpus, FEW)
        rules = built_rules(resolved, resources)
        # Lexicons open at first use.
        if tags:
            resources.language.tag_all([first.candidates[0]])
        for rule in rules:
            rule.apply([first], [rule_seed(resolved.seed, rule.name, first.key)])
    if (rules or tags) and resolved.lexicon_name == "built-in":
        from parley.engine.perturb.lexicon.built_in import ANNOUNCEMENT

        reporter.say(ANNOUNCEMENT)
    return resolved, groups, Tried(rankers, rules, resources)


def not_scored(summary: Mapping[str, Any]) -> list[str]:
    """Say which contexts rankers did not score or not read whole, from the summary of a run."""
    # Runs of older versions do not count them.
    counted, whole = summary.get(NOT_SCORED, {}), f" of {summary.get(NUM_CONTEXTS, 0):,}"
    sentences = [
        f"{model} gave no scores for {f'{counted[model]:,}{whole}' if model in counted else 'some'} contexts: {reason}."
        for model, reason in summary.get(ERRORS, {}).items()
    ]
    # Runs of older versions do not count them.
    for model, (lost, num) in summary.get(NOT_RATED, {}).items():
        sentences.append(f"{model} rated {lost:,} of {num:,} replies by no number: they stand below all others, tied.")
    num_cut, turns = summary.get(CUT, (0, 0))
    if num_cut:
        what = f"{num_cut:,} of {summary[NUM_CONTEXTS]:,} contexts have more turns"
        sentences.append(f"{what}: the newest {turns} are kept (candidates.turns).")
    alike: dict[tuple[int, int], list[str]] = {}
    for model, (contexts, replies) in summary.get(UNREAD, {}).items():
        alike.setdefault((contexts, replies), []).append(model)
    for (contexts, replies), models in alike.items():
        are, they = ("are", "they") if models[1:] else ("is", "it")
        what = f"{they} did not read all of {contexts:,} contexts and {replies:,} replies."
        sentences.append(f"{', '.join(models)} {are} made for shorter texts: {what}")
    return sentences


def without_scores(errors: Mapping[str, Iterable[str]]) -> dict[str, Any]:
    """Return the entries `ERRORS` and `NOT_SCORED` of the summary.

    Args:
        errors: by ranker one reason for each context without scores, or the number of contexts of each reason.
    """
    counted = {model: Counter(model_errors) for model, model_errors in errors.items()}
    reasons = {model: " ".join(counts.most_common(1)[0][0].split()) for model, counts in counted.items()}
    return {ERRORS: reasons, NOT_SCORED: {model: counts.total() for model, counts in counted.items()}}


def not_read(rows: Sequence[Mapping[str, Any]], column: str, turns: int, rankers: Sequence[RankerSpec]) -> dict[str, Any]:
    """Return the entries `CUT` and `UNREAD` of the summary.

    Args:
        rows: of contexts.
        column: holds the counts of unread turns and replies of each ranker.
        turns: `candidates.turns`.
        rankers: of the run; controls are left out.
    """
    labels = {spec.label for spec in rankers if not spec.is_control}
    left_out = (
        # Rows of older versions do not say.
        (entry["model"], Unread(entry.get("turns_unread") or 0, entry.get("replies_unread") or 0))
        for row in finished(selected(rows, column))
        for entry in row[column]
        if entry["model"] in labels and entry.get("rule", CLEAN) == CLEAN
    )
    return _left_out((row.get("is_cut") for row in finished(selected(rows, "is_cut"))), turns, left_out)


def not_read_in(splits: Iterable[CandidateSplit], turns: int, label: str, ranker: Ranker) -> dict[str, Any]:
    """Return the entries `NUM_CONTEXTS`, `CUT` and `UNREAD` of the summary of a training.

    Args:
        splits: for training and measurement.
        turns: `candidates.turns`.
        label: of the ranker.
        ranker: counts unread parts before it scores.
    """
    whole = [*splits]
    left_out = ((label, unread_of(ranker, group.context, group.candidates)) for split in whole for group in split)
    cut = (is_cut for split in whole for is_cut in split.is_cut.tolist())
    return {NUM_CONTEXTS: sum(map(len, whole)), **_left_out(cut, turns, left_out)}


def unread_note(summary: Mapping[str, Any]) -> str:
    """Say what is not read of the splits of a training, from its summary; empty if all is read."""
    note = " ".join(not_scored(summary))
    return note and f"All splits that are used: {note}"


def _left_out(is_cut: Iterable[Any], turns: int, unread: Iterable[tuple[str, Unread]]) -> dict[str, Any]:
    """Return the entries of cut contexts, and of unread contexts and replies by ranker."""
    counts: dict[str, list[int]] = {}
    for label, left_out in unread:
        if any(left_out):
            counted = counts.setdefault(label, [0, 0])
            counted[0] += bool(left_out.turns)
            counted[1] += left_out.replies
    return {CUT: (sum(map(bool, is_cut)), turns), UNREAD: counts}


def not_rated(
    path: Path, rankers: Sequence[RankerSpec], scores: Iterable[tuple[str, Sequence[float]]]
) -> dict[str, tuple[int, int]]:
    """Count the replies that chat models rated by no number, and all their replies, by label.

    Args:
        path: of the run, which holds the answers of chat models.
        rankers: of the run.
        scores: of the candidates of a context, with the label of their ranker.
    """
    usage = usage_of(path)
    rating = {spec.label for spec in rankers if usage and spec.name.removeprefix(RESPONSE_ONLY) in usage.models}
    lost, num = Counter[str](), Counter[str]()
    for label, reply_scores in scores if rating else ():
        if label in rating:
            lost[label] += sum(score == UNRATED for score in reply_scores)
            num[label] += len(reply_scores)
    return {label: (count, num[label]) for label, count in lost.items() if count}


class RankersJob(ItemsJob[RankersConfigT, TaskT, RankedGroup]):
    """A job that asks rankers about contexts, one row each."""

    num_rows_entry = NUM_CONTEXTS
    repeatable: tuple[str, ...] = ("model", "rules")

    def models(self, config: RankersConfigT) -> Mapping[str, str]:
        return models_of(config)

    def metrics_of(self, config: RankersConfigT) -> None:
        """Return None, because only a run can tell which rules suit, and where there are ties."""

    def note(self, run: RunFolder) -> str:
        return " ".join(not_scored(run.summary() or {}))
