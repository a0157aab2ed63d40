"""Attacks on rankers under a budget of queries: `parley attack ranking`.

Each method and each rule that suits the goal attacks each ranker in the same contexts, and the edited replies are then shown
to the others. The baseline, random edits at the same budget, is always there. A worker makes one row of each context
(`attack_worker.py`), which depends on nothing but the configuration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.rows import selected
from parley.engine.core.stats.statistics import finished
from parley.engine.core.tables.table import EstimateTable
from parley.engine.core.verbs.export import FlatRows
from parley.engine.core.verbs.job import Reporter, Result, Summary, command_line, noted
from parley.engine.core.verbs.sharded import Prepared
from parley.engine.perturb.replies.catalogue import GROUPS
from parley.engine.ranking.attacks.catalogue import need_of
from parley.engine.ranking.attacks.settings import POLICY
from parley.engine.ranking.metrics.searched import (
    APPENDING,
    SEARCHED_ITEMS,
    SearchedRows,
    describe_search,
    search_metrics,
    success_table,
    tables_of_searches,
)
from parley.engine.ranking.verbs.attack_worker import RankingAttacks, composed, goal_of, method_label, suits
from parley.engine.ranking.verbs.config import RankedGroup, RankingAttackConfig, ranker_specs
from parley.engine.ranking.verbs.matcher import TRAIN_MATCHER
from parley.engine.ranking.verbs.prepared import (
    ATTACKED_CONTEXTS,
    NOT_RATED,
    NUM_CONTEXTS,
    RANKERS,
    SEARCH,
    SEARCHES,
    RankersJob,
    Tried,
    not_rated,
    not_read,
    prepare_ranking,
    without_scores,
)
from parley.envs.core.errors import ConfigError, DataError
from parley.envs.core.storage.copies import CHECKPOINT
from parley.policies.ranking.rankers import is_chat_ranker

if TYPE_CHECKING:
    from parley.engine.ranking.attacks.cases import Requirement

GOAL, BUDGET = "goal", "budget"
"""Entries of the summary: the goal in words; the most queries."""
_EDITED = {"promote": "wrong", "demote": "right"}

PreparedAttack = Prepared[RankingAttacks, RankedGroup]


def helpdesk() -> RankingAttackConfig:
    """Attack TF-IDF on the built-in help desk, offline, in seconds."""
    return RankingAttackConfig(model="tfidf")


def li2019() -> RankingAttackConfig:
    """Attack TF-IDF and BM25 on the dialogues of #ubuntu (corpus of Li et al. 2019), 300 contexts."""
    return RankingAttackConfig(corpus="ubuntu_dialogues", limit=300)


class AttackRanking(RankersJob[RankingAttackConfig, RankingAttacks]):
    """`parley attack ranking`."""

    words = ("attack", "ranking")
    run_name = "ranking-attack"
    config = RankingAttackConfig
    presets = {"helpdesk": helpdesk, "li2019": li2019}
    repeatable = ("model", "rules", "method", "moves")
    schema = SEARCHES
    item_metrics = SEARCHED_ITEMS
    doing = "attacking rankers"

    def prepare(self, config: RankingAttackConfig, path: Path, reporter: Reporter) -> PreparedAttack:
        if all(map(is_chat_ranker, config.model_names)):
            # Before any is loaded: they show no more than scores.
            for method in config.method_names:
                if need := need_of(method):
                    raise _lacking(method, need, config.model_names)
        specs = ranker_specs(config.model_names)
        config, groups, tried = prepare_ranking(config, specs, reporter, tags=True)
        _require_replies(config, groups.values())
        _require_needs(config, tried, reporter)
        _require_suited(config, tried, reporter)
        _require_names(config, tried)
        return Prepared(RankingAttacks(config, specs), groups)

    def measure(self, run: RunFolder, prepared: PreparedAttack) -> Summary:
        config, specs = prepared.task.config, prepared.task.rankers
        rows = run.rows()
        read = SearchedRows(rows)
        before = ((entry["model"], entry["scores"]) for row in finished(selected(rows, "before")) for entry in row["before"])
        return Summary(
            f"attack on {', '.join(ranker.label for ranker in specs)} on {config.corpus}",
            f"{len(prepared.items):,} {config.split} contexts, {goal_of(config)}, at most {config.edits} words and "
            f"{config.budget:,} queries, {_appended(config)}seed {config.seed}.",
            search_metrics(read, config.budget),
            {
                NUM_CONTEXTS: len(prepared.items),
                RANKERS: {ranker.label: asdict(ranker) for ranker in specs},
                GOAL: str(goal_of(config)),
                BUDGET: config.budget,
                **without_scores(read.errors),
                NOT_RATED: not_rated(run.path, specs, before),
                **not_read(rows, "before", config.candidates.turns, specs),
            },
        )

    def models(self, config: RankingAttackConfig) -> Mapping[str, str]:
        named = [name for name in config.method_names if ".py:" in name or name.startswith(POLICY)]
        methods = {f"method {name}": name.removeprefix(POLICY) for name in named}
        return {**super().models(config), **methods}

    def flat(self, run: RunFolder) -> FlatRows:
        return ATTACKED_CONTEXTS

    def next_commands(self, config: RankingAttackConfig, path: Path) -> tuple[str, ...]:
        commands = super().next_commands(config, path)
        if config.goal != "promote":
            return commands
        presets = TRAIN_MATCHER.presets
        same = {name: getattr(config, name) for name in ("lexicon", "candidates", "data_root")}
        trained = {name: spec.kind for name, spec in zip(config.model_names, ranker_specs(config.model_names), strict=True)}
        hardened = [
            command_line(
                TRAIN_MATCHER.words,
                presets,
                replace(presets[kind](), start=name, against=SEARCH, **same),
                Path(f"{name.removesuffix(f'/{CHECKPOINT}')}-{SEARCH}"),
            )
            for name, kind in trained.items()
            if kind in presets
        ]
        return (*commands, *hardened)

    def tables(self, run: RunFolder) -> dict[str, EstimateTable]:
        metrics = run.metrics()
        return tables_of_searches(metrics) if metrics else {}

    def present(self, result: Result, run: RunFolder) -> Result:
        legend = {name: describe_search(name) for name in result.metrics}
        tables = {"": success_table(result.metrics)} if result.metrics else {}
        return replace(result, legend=legend, tables=noted(tables, self.note(run)))


def _appended(config: RankingAttackConfig) -> str:
    names = [name for name in APPENDING if name in config.method_names]
    return f"{', '.join(names)} put {config.attack.gaslite.num_words} words behind the reply, " if names else ""


def _require_replies(config: RankingAttackConfig, items: Iterable[RankedGroup]) -> None:
    """Require a context with a reply to attack, and one with enough replies."""
    wanted, most = config.goal == "demote", 0
    for item in items:
        group = item.group
        if any(may and label is wanted for may, label in zip(group.attackable, group.labels, strict=True)):
            most = max(most, len(group.candidates))
    if not most:
        what = f"no context has a {_EDITED[config.goal]} reply that may be attacked"
        fix = "--goal promote|demote takes the others, or name another --corpus or --split"
        raise DataError(what, where=config.corpus, got=f"--goal {config.goal}", fix=fix)
    if config.attack.rank >= most:
        what = "every reply is at the top from the first"
        fix = f"allowed: at most {most - 1}, for contexts have {most} replies at most"
        raise ConfigError(what, where="attack.rank", got=config.attack.rank, fix=fix)


def _require_needs(config: RankingAttackConfig, tried: Tried, reporter: Reporter) -> None:
    """Report the rankers that white-box methods leave out; raise if none is left."""
    for method in config.method_names:
        if (need := need_of(method)) is None:
            continue
        name = method_label(method)
        without = [label for label, ranker in tried.rankers.items() if not need.is_met(ranker)]
        if len(without) == len(tried.rankers):
            raise _lacking(method, need, without)
        if without:
            reporter.say(f"{name} leaves out rankers that give no {need.what}: {', '.join(without)}")


def _lacking(method: str, need: Requirement, rankers: Iterable[str]) -> ConfigError:
    what = f"no ranker gives {need.what}, which {method_label(method)} goes by"
    return ConfigError(what, got=", ".join(rankers), fix=need.fix)


def _require_suited(config: RankingAttackConfig, tried: Tried, reporter: Reporter) -> None:
    """Report the rules of groups that do not suit the goal; raise if one was named by itself."""
    unsuited = [rule.name for rule in tried.rules if not suits(rule, config.goal)]
    grouped = {name for group in GROUPS.values() for name in group}
    named = {part.strip() for part in config.rules.split(",")}
    if wrong := [name for name in unsuited if name in named or name not in grouped]:
        what = f"the rule does not suit the goal: edited are {_EDITED[config.goal]} replies, and stay {_EDITED[config.goal]}"
        fix = "parley evaluate ranking measures what such a rule does"
        raise ConfigError(what, where=wrong[0], got=f"--goal {config.goal}", fix=fix)
    if unsuited:
        reporter.say(f"rules that do not suit the goal are left out: {', '.join(unsuited)}")


def _require_names(config: RankingAttackConfig, tried: Tried) -> None:
    """Compose every attack once; raise if two methods or rules have one name."""
    rules = [rule for rule in tried.rules if suits(rule, config.goal)]
    names = [*map(method_label, config.method_names), *(rule.name for rule in rules)]
    if len(set(names)) < len(names):
        raise ConfigError("two methods or rules bear one name", got=", ".join(names), fix="rename yours")
    # Only workers fit the judges of limits.
    unlimited = replace(config, attack=replace(config.attack, max_perplexity_ratio=None, min_cosine=None))
    for ranker in tried.rankers.values():
        composed(ranker, tried.resources.language, unlimited, rules, {})


ATTACK_RANKING = AttackRanking()
