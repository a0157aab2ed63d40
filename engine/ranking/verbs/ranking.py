"""Evaluation of rankers: `parley evaluate ranking` (Li et al. 2019, tables 3 to 6).

Rankers choose a reply among candidates, as they are and as rules leave them. A shard is a few contexts under all rules; what a
worker makes of it is one row for each context (`worker.py`), and depends on nothing but the configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any

from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.rows import selected
from parley.engine.core.stats.statistics import finished
from parley.engine.core.tables.table import EstimateTable
from parley.engine.core.verbs.export import FlatRows
from parley.engine.core.verbs.job import Reporter, Result, Summary, command_line, drawn, noted
from parley.engine.core.verbs.sharded import Prepared
from parley.engine.ranking.metrics.ranking import CLEAN, RANKED_ITEMS, RankedRows, describe, ranking_metrics
from parley.engine.ranking.metrics.table import EvaluationInfo, Trainings, differences, overview, rankers_beside, tables
from parley.engine.ranking.verbs.attack import ATTACK_RANKING
from parley.engine.ranking.verbs.config import RankedGroup, RankersConfig, RankingAttackConfig, RankingConfig, ranker_specs
from parley.engine.ranking.verbs.prepared import (
    NOT_RATED,
    NUM_CONTEXTS,
    RANKED_CANDIDATES,
    RANKERS,
    RANKING,
    RankersJob,
    not_rated,
    not_read,
    prepare_ranking,
    without_scores,
)
from parley.engine.ranking.verbs.worker import RankingTask
from parley.envs.core.config import shared
from parley.envs.core.errors import DataError

RULES, SIZE, SEVERAL = "rules", "candidates", "several_right"
"""Entries of the summary: whether each rule keeps labels; candidates of every group; whether a group has several right ones."""
OVERVIEW = "Right replies in the first place"
"""Heading of the table that has a line for each ranker."""

_SEARCHED = 300
"""Contexts of the attack that is named as the next command, at most."""

PreparedRanking = Prepared[RankingTask, RankedGroup]


def helpdesk() -> RankingConfig:
    """Rank the built-in help desk under the seven rules, offline, in seconds."""
    return RankingConfig()


def li2019() -> RankingConfig:
    """Rank the dialogues of #ubuntu under the seven rules, beside the published figures (Li et al. 2019)."""
    return RankingConfig(corpus="ubuntu_dialogues", published="ubuntu")


class EvaluateRanking(RankersJob[RankingConfig, RankingTask]):
    """`parley evaluate ranking`."""

    words = ("evaluate", "ranking")
    run_name = "ranking"
    config = RankingConfig
    presets = {"helpdesk": helpdesk, "li2019": li2019}
    schema = RANKING
    item_metrics = RANKED_ITEMS
    doing = "ranking replies"

    def prepare(self, config: RankingConfig, path: Path, reporter: Reporter) -> PreparedRanking:
        """Load groups, rankers and rules; try each rule once.

        Raises:
            DataError: no context has both right and wrong replies.
        """
        specs = ranker_specs(config.model_names, controls=config.controls)
        config, groups, _ = prepare_ranking(config, specs, reporter)
        if not any(len(set(item.group.labels)) > 1 for item in groups.values()):
            what = f"no context of the {config.split} split has both right and wrong replies"
            fix = "list replies of both labels, or name another --split or --corpus"
            raise DataError(what, where=config.corpus, got=f"{len(groups):,} contexts", fix=fix)
        num = config.num_erased
        read = frozenset(drawn(list(groups), num, config.seed, "erasure") if num else ())
        items = groups.mapped(lambda item: item._replace(is_read=item.group.key in read))
        return Prepared(RankingTask(config, specs), items)

    def measure(self, run: RunFolder, prepared: PreparedRanking) -> Summary:
        config, specs = prepared.task.config, prepared.task.rankers
        rows = run.rows()
        controls = [ranker.label for ranker in specs if ranker.is_control]
        read = RankedRows(rows, config.metrics.untouched, config.metrics.unranked, controls)
        entries = (entry for row in finished(selected(rows, "ranked")) for entry in row["ranked"])
        scored = ((entry["model"], entry["scores"]) for entry in entries if entry["rule"] == CLEAN and entry["scores"])
        named = [ranker.label for ranker in specs if not ranker.is_control]
        rankers = {ranker.label: asdict(ranker) for ranker in specs}
        pairs = rankers_beside(named, _trainings(rankers))
        num = len(config.rule_names)
        rules = f"{num} rule{'s' * (num > 1)}" if num else "no rules"
        return Summary(
            f"ranking by {', '.join(named)} on {config.corpus}",
            f"{len(prepared.items):,} {config.split} contexts, {rules}, seed {config.seed}.",
            ranking_metrics(read) | differences(read, pairs),
            {
                NUM_CONTEXTS: len(prepared.items),
                RANKERS: rankers,
                RULES: read.rules,
                **without_scores(read.errors),
                NOT_RATED: not_rated(run.path, specs, scored),
                **not_read(rows, "ranked", config.candidates.turns, specs),
                SIZE: read.size,
                SEVERAL: read.several,
            },
        )

    def flat(self, run: RunFolder) -> FlatRows:
        return RANKED_CANDIDATES

    def next_commands(self, config: RankingConfig, path: Path) -> tuple[str, ...]:
        settings = shared(config, RankersConfig) | {"rules": "all", "model": ",".join(config.model_names)}
        # Searches cost more than rules do.
        wanted = RankingAttackConfig(**settings | {"limit": min(config.limit or _SEARCHED, _SEARCHED)})
        # Not the preset of a paper, which may be nearer to a run of own data.
        searched = command_line(ATTACK_RANKING.words, {"": ATTACK_RANKING.presets["helpdesk"]}, wanted, None)
        return (*super().next_commands(config, path), searched)

    def tables(self, run: RunFolder) -> dict[str, EstimateTable]:
        metrics, shown = run.metrics(), _shown(run.config, run.summary() or {})
        return {OVERVIEW: overview(metrics, shown), **tables(metrics, shown)} if metrics else {}

    def present(self, result: Result, run: RunFolder) -> Result:
        size = (run.summary() or {})[SIZE]
        legend = {name: describe(name, size) for name in result.metrics}
        shown = dict(islice(self.tables(run).items(), 2))
        return replace(result, legend=legend, tables=noted(shown, self.note(run)))


def _shown(config: Mapping[str, Any], summary: Mapping[str, Any]) -> EvaluationInfo:
    rankers: Mapping[str, Mapping[str, Any]] = summary[RANKERS]
    return EvaluationInfo(
        rules=summary[RULES],
        controls=[label for label, spec in rankers.items() if spec["is_control"]],
        kinds={label: spec["kind"] for label, spec in rankers.items() if spec["kind"]},
        trainings=_trainings(rankers),
        size=summary[SIZE],
        several=summary[SEVERAL],
        corpus=config["published"],
        untouched=config["metrics"]["untouched"],
        unranked=config["metrics"]["unranked"],
    )


def _trainings(rankers: Mapping[str, Mapping[str, Any]]) -> Trainings:
    return {label: (spec["against"], spec["base"]) for label, spec in rankers.items() if spec["against"] or spec["base"]}


EVALUATE_RANKING = EvaluateRanking()
