"""What evaluations of rankers and attacks on them find and check before there is a run, and what jobs of both share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from parley.engine.core.runs.layout import SUMMARY
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.runs.schemas import OK
from parley.engine.core.verbs.job import Job, Reporter, Silent
from parley.engine.core.verbs.sharded import RESUME_SAFE
from parley.engine.core.verbs.tables import TABLE_FILE
from parley.engine.perturb.replies.language import ReplyLanguage
from parley.engine.perturb.replies.rule import Rule
from parley.engine.ranking.metrics.ranking import CLEAN
from parley.engine.ranking.verbs.asked import AskedRanker, loaded, models_of
from parley.engine.ranking.verbs.config import RankersConfig
from parley.engine.ranking.verbs.groups import (
    FEW,
    Contexts,
    RankedGroup,
    built_rules,
    chosen_groups,
    lexicon_setting,
    opened,
    rule_resources,
    rule_seed,
)
from parley.envs.corpora.root import data_root
from parley.envs.ranking.split import CandidateSplit
from parley.policies.chat.answers import usage_of
from parley.policies.chat.rating import UNRATED
from parley.policies.ranking.ranker import Ranker, Unread, unread_of
from parley.policies.ranking.rankers import RESPONSE_ONLY

NUM_CONTEXTS, RANKERS, ERRORS, NOT_SCORED = "contexts", "rankers", "errors", "not_scored"
NOT_RATED, CUT, UNREAD = "not_rated", "cut", "unread"
"""Entries of the summary: how many contexts there are; the rankers, by label; of rankers that gave no scores the most frequent
reason, and for how many contexts; of chat models that were asked for ratings how many replies they rated by no number, and of
how many; how many contexts have lost their oldest turns, and how many turns they keep; by ranker how many contexts and replies
it did not read whole."""

RankersConfigT = TypeVar("RankersConfigT", bound=RankersConfig)


@dataclass(frozen=True)
class PreparedRanking(Generic[RankersConfigT]):
    """What is to be done, found and checked.

    Args:
        config: what was asked for, its data root found.
        rankers: who is asked.
        groups: about what, by key.
    """

    config: RankersConfigT
    rankers: Sequence[AskedRanker]
    groups: Mapping[str, RankedGroup]


@dataclass(frozen=True)
class Tried:
    """Parts that were made once, of a few training contexts, to see whether they can be.

    Args:
        rankers: by their labels.
        rules: each applied once.
        language: of the replies.
    """

    rankers: Mapping[str, Ranker]
    rules: Sequence[Rule]
    language: ReplyLanguage


def found_ranking(
    config: RankersConfigT, asked: Sequence[AskedRanker], reporter: Reporter, *, tags: bool = False
) -> tuple[PreparedRanking[RankersConfigT], Tried]:
    """Finds out before a run is made whether everything is there and works.

    Args:
        config: what was asked for.
        asked: its rankers.
        reporter: who looks on.
        tags: whether words are tagged where there is no rule either.

    Raises:
        ParleyError: something is missing, damaged or does not fit.
    """
    config.require_device()
    found: RankersConfigT = replace(config, data_root=data_root(config.data_root))
    corpus = opened(found)
    groups = chosen_groups(found, corpus)
    rankers = loaded(asked, Contexts(corpus.splits["train"], FEW), config.chat.on("cpu"))
    first = next(iter(groups.values())).group
    with lexicon_setting():
        resources = rule_resources(found, corpus, FEW)
        rules = built_rules(found, resources)
        # Lexicons open when they are first asked.
        if tags:
            resources.language.tag_all([first.candidates[0]])
        for rule in rules:
            rule.apply([first], [rule_seed(found.seed, rule.name, first.key)])
    if (rules or tags) and found.lexicon_name == "built-in":
        from parley.engine.perturb.lexicon.built_in import ANNOUNCEMENT

        reporter.say(ANNOUNCEMENT)
    return PreparedRanking(found, asked, groups), Tried(rankers, rules, resources.language)


def not_scored(summary: Mapping[str, Any]) -> list[str]:
    """What rankers gave no scores of, and why, and what they did not read, in sentences; of the summary of a run."""
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


def without_scores(errors: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The entries `ERRORS` and `NOT_SCORED` of the summary.

    Args:
        errors: by ranker one reason for each context without scores.
    """
    reasons = {model: " ".join(Counter(model_errors).most_common(1)[0][0].split()) for model, model_errors in errors.items()}
    return {ERRORS: reasons, NOT_SCORED: {model: len(model_errors) for model, model_errors in errors.items()}}


def not_read(rows: Iterable[Mapping[str, Any]], column: str, turns: int, rankers: Sequence[AskedRanker]) -> dict[str, Any]:
    """The entries `CUT` and `UNREAD` of the summary.

    Args:
        rows: of contexts.
        column: holds what each ranker left out of the candidates as they are.
        turns: `candidates.turns`.
        rankers: who was asked; of controls nothing is told.
    """
    done, labels = [row for row in rows if row["status"] == OK], {each.label for each in rankers if not each.is_control}
    left_out = (
        # Rows of older versions do not say.
        (entry["model"], Unread(entry.get("turns_unread") or 0, entry.get("replies_unread") or 0))
        for row in done
        for entry in row[column]
        if entry["model"] in labels and entry.get("rule", CLEAN) == CLEAN
    )
    return _left_out((row.get("is_cut") for row in done), turns, left_out)


def not_read_in(splits: Iterable[CandidateSplit], turns: int, label: str, ranker: Ranker) -> dict[str, Any]:
    """The entries `NUM_CONTEXTS`, `CUT` and `UNREAD` of the summary of a training.

    Args:
        splits: what is trained and measured on.
        turns: `candidates.turns`.
        label: what the ranker is called.
        ranker: knows beforehand what it leaves out.
    """
    whole = [*splits]
    left_out = ((label, unread_of(ranker, group.context, group.candidates)) for split in whole for group in split)
    cut = (is_cut for split in whole for is_cut in split.is_cut.tolist())
    return {NUM_CONTEXTS: sum(map(len, whole)), **_left_out(cut, turns, left_out)}


def not_read_told(summary: Mapping[str, Any]) -> str:
    """What is not read of what is trained and measured on, in sentences, of a summary; empty where all is."""
    told = " ".join(not_scored(summary))
    return told and f"All splits that are used: {told}"


def _left_out(is_cut: Iterable[Any], turns: int, unread: Iterable[tuple[str, Unread]]) -> dict[str, Any]:
    """The entries of contexts that are cut, and of what a ranker does not read of each, by its label."""
    found: dict[str, list[int]] = {}
    for label, each in unread:
        if any(each):
            counted = found.setdefault(label, [0, 0])
            counted[0] += bool(each.turns)
            counted[1] += each.replies
    return {CUT: (sum(map(bool, is_cut)), turns), UNREAD: found}


def not_rated(
    path: Path, rankers: Sequence[AskedRanker], scores: Iterable[tuple[str, Sequence[float]]]
) -> dict[str, tuple[int, int]]:
    """Replies that chat models rated by no number, and replies that they were to rate, by label; nobody who rated all.

    Args:
        path: of the run; who was asked for ratings has answers there.
        rankers: who was asked.
        scores: of the candidates of a context, with the label of their ranker.
    """
    usage = usage_of(path)
    rating = {each.label for each in rankers if usage and each.name.removeprefix(RESPONSE_ONLY) in usage.models}
    lost, num = Counter[str](), Counter[str]()
    for label, found in scores:
        if label in rating:
            lost[label] += sum(score == UNRATED for score in found)
            num[label] += len(found)
    return {label: (count, num[label]) for label, count in lost.items() if count}


class RankersJob(Job[RankersConfigT, PreparedRanking[RankersConfigT], PreparedRanking[RankersConfigT]]):
    """A job that asks rankers about contexts, one row each."""

    files = (TABLE_FILE, SUMMARY, "rows")
    num_rows_entry = NUM_CONTEXTS
    resume_safe = RESUME_SAFE
    repeatable: tuple[str, ...] = ("model", "rules")

    def models(self, config: RankersConfigT) -> Mapping[str, str]:
        return models_of(config)

    def num_items(self, config: RankersConfigT) -> int:
        return len(self.prepare(config, Path(self.run_name), Silent()).groups)

    def metrics_of(self, config: RankersConfigT) -> None:
        """Only a run can tell which rules suit, and where there are ties."""

    def note(self, run: RunFolder) -> str:
        return " ".join(not_scored(run.summary() or {}))
