"""Every attack on one target, side by side: `parley attack table` (the rows of Cheng et al. 2019, tables 2 and 7).

Each row is a run of its own below the table's folder, on the same scenarios, and resumes by itself. The table takes its
figures from their summaries. A row that needs a trained adversary trains one first, unless it is named.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from parley.engine.core.runs.documents import SUMMARY
from parley.engine.core.runs.parts import Outcomes
from parley.engine.core.runs.remote_sync import fetched_run
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.statistics import NOTHING, Estimate, Metric, count
from parley.engine.core.stats.trainings import TRAININGS, over_trainings, spread_of
from parley.engine.core.tables.table import EstimateTable
from parley.engine.core.verbs import sharded
from parley.engine.core.verbs.checkpoints import checkpoint_folder
from parley.engine.core.verbs.composite import Composite, Stage, run_stages
from parley.engine.core.verbs.job import TABLE_FILE, USAGE, Reporter, Result, Summary, failure_of
from parley.engine.core.verbs.repeated import nth_name
from parley.engine.negotiation.attacks.tactics import REFINED, encode_sentence
from parley.engine.negotiation.metrics.attack import ATTACK_METRICS, ATTACKS, UNCHANGED
from parley.engine.negotiation.metrics.attack_table import (
    ADAPTIVE,
    KNOWN,
    PLAIN,
    REQUEST_METRICS,
    ROWS,
    SEARCHES,
    STRONGEST,
    TACTIC,
    TACTICS,
    UNATTACKED,
    attack_table,
    suffixes_of,
    targets_table,
    titles_of,
    trained_suffix,
)
from parley.engine.negotiation.metrics.dialogues import CHAT_METRICS, DEFENCE_METRICS
from parley.engine.negotiation.verbs import whitebox
from parley.engine.negotiation.verbs.agents import (
    is_weightless,
    require_learner,
    require_one_game,
    require_partner,
    shared_vocabulary,
    start_of,
    who_judges,
    words_of,
)
from parley.engine.negotiation.verbs.defended import FilterLimit, chosen_limit
from parley.engine.negotiation.verbs.match import seconds_per_dialogue
from parley.engine.negotiation.verbs.negotiator import require_words
from parley.engine.negotiation.verbs.table_stages import (
    ADVERSARY,
    BLACK_BOX,
    FILTER,
    PLAYED,
    TableConfig,
    adversaries_of,
    at_fixed_turns,
    chains_of,
    defences_around,
    defended_stages,
    demo,
    is_given,
    measured,
    needs_of,
    on_hardened,
    on_rl,
    on_supervised,
    planned_stages,
    strongest_attacks,
    table_judge,
)
from parley.engine.negotiation.verbs.whitebox import UNFOUND
from parley.envs.core.errors import ConfigError, RunError
from parley.envs.core.storage.uris import display_path
from parley.envs.negotiation.agents import is_chat_model
from parley.envs.negotiation.domain import DEAL_OR_NO_DEAL
from parley.policies.chat.answers import usage_of

BASELINE = "baseline"
"""Entry of the summary that holds the metrics of the baseline table."""
TRAINED = "trained"
"""Entry of the summary that names the trained counterparts of the target."""

ALL_ATTACKS, BY_TARGET = "All attacks", "By target"
"""Headings of the tables."""

_OF_A_ROW = ATTACK_METRICS | UNCHANGED | DEFENCE_METRICS | CHAT_METRICS | REQUEST_METRICS
_SECONDS_PER_TRAINED_DIALOGUE = 0.0225
"""Measured on one core with the published network sizes; the live display estimates again from the run itself."""


@dataclass(frozen=True)
class CheckedTable:
    """A table whose settings have been checked.

    Args:
        config: the settings.
        untrained: number of adversaries to train first.
        baseline: the metrics of the baseline table, by "ROW.METRIC".
        limit: the limit of the filter; None without a filter.
    """

    config: TableConfig
    untrained: int
    baseline: Mapping[str, Estimate]
    limit: FilterLimit | None = None


def _announcement(config: TableConfig, num: int) -> str:
    """Return the number of adversaries to train first, and the time if no chat model takes part."""
    rule = config.reinforce
    dialogues = num * rule.updates * rule.dialogues_per_update
    minutes = max(1, round(dialogues * _SECONDS_PER_TRAINED_DIALOGUE / 60))
    long = f"about {minutes} minute{'s' * (minutes != 1)} of one core"
    if any(map(is_chat_model, (config.target, *config.trained_names()))):
        long = (
            f"{dialogues:,} dialogues with a chat model, which decides how long that takes; reinforce.dialogues asks for fewer"
        )
    reason = f"each target is met by adversaries of its own{', a defended one too' * bool(config.defences)}"
    why = reason if config.trained or config.defences else "no --adversary is named"
    which = "one is" if num == 1 else f"{num} are"
    updates = f"{rule.updates:,} update{'s' * (rule.updates != 1)}"
    return f"{why}, so {which} trained first: {updates} of {rule.dialogues_per_update} dialogues, {long}"


def _baseline_metrics(config: TableConfig) -> dict[str, Estimate]:
    """Return the metrics of the baseline table, by "ROW.METRIC".

    Raises:
        RunError: the named run is no finished table.
    """
    if not config.baseline:
        return {}
    other = RunFolder.load(fetched_run(config.baseline))
    metrics = other.metrics()
    if other.job != ATTACK_TABLE.name or not metrics:
        raise RunError(
            "--baseline needs a finished table of attacks",
            where=config.baseline,
            got=f"a run of {other.job}" + ("" if metrics else ", not finished"),
            fix="name the run folder of parley attack table",
        )
    return metrics


def trained_of(summary: Mapping[str, Any]) -> list[str]:
    """Return the trained counterparts in a finished table; tables of earlier versions have none."""
    return summary.get(TRAINED, [])


def _tables(run: RunFolder, brief: bool = False) -> dict[str, EstimateTable]:
    """Return the tables of a run by heading: attacks by opponent, if there are several, and all attacks."""
    metrics, summary, config = run.metrics(), run.summary() or {}, run.config
    baseline = {name: Estimate.from_json(parts) for name, parts in summary.get(BASELINE, {}).items()}
    # Published targets are fitted negotiators; their figures are shown beside no other agent.
    published = "none" if is_weightless(config["target"]) else config["published"]
    trained, unfound = trained_of(summary), summary.get(UNFOUND, {})
    by_target = targets_table(metrics, trained, unfound)
    all_attacks = attack_table(
        metrics,
        titles_of(trained),
        published=ATTACKS.get(published, {}),
        baseline=baseline,
        trainings=spread_of(summary),
        unfound=unfound,
        brief=brief,
    )
    return {"": all_attacks} if by_target is None else {BY_TARGET: by_target, ALL_ATTACKS: all_attacks}


def _legend(trained: Sequence[str] = ()) -> dict[str, Metric]:
    strongest = {f"{STRONGEST}{end}.advantage": _OF_A_ROW["advantage"] for end, _ in suffixes_of(trained).values()}
    return {f"{row}.{name}": metric for row in titles_of(trained) for name, metric in _OF_A_ROW.items()} | strongest


def _requests(path: Path, row: str, config: TableConfig) -> dict[str, Estimate]:
    """Return the answers and the cost that a row's chat models took, `REQUEST_METRICS`; nothing without requests."""
    attack, plus, around = row.partition("+")
    end = plus + around if around.endswith((ADAPTIVE, KNOWN)) else ""
    adversary = ADVERSARY + end.removesuffix(ADAPTIVE).removesuffix(KNOWN)
    made_by = {"rl": (adversary,), "transfer": () if is_given(config.transfer) else (adversary, f"rl{end}")}.get(attack, ())
    numbers = range(1, config.seeds + 1)
    played, before = (
        [usage for name in names for number in numbers if (usage := usage_of(path / nth_name(name, number)))]
        for names in ((row,), made_by)
    )
    if not played:
        return {}
    return {
        "answers_before": count(sum(usage.total.asked for usage in before), 1),
        "cost": count(sum(usage.cost(config.chat) for usage in (*played, *before)), 1),
    }


def _tactic_lines(path: Path, end: str) -> dict[str, Estimate]:
    """Return the metrics of the lines of a tactics run, by "ROW.METRIC"; nothing if it is not finished.

    Args:
        path: folder of the table's run.
        end: suffix of the rows; empty for the target's.
    """
    if not (path / (TACTIC + end) / SUMMARY).is_file():
        return {}
    runs = [
        RunFolder.load(path / name) for name in dict.fromkeys((TACTIC + end, *([] if end.endswith(ADAPTIVE) else [TACTIC])))
    ]
    figures, used = runs[0].metrics(), [usage for run in runs if (usage := (run.summary() or {}).get(USAGE))]
    metrics: dict[str, Estimate] = {}
    for arm, row in {REFINED: TACTIC, **{arm: f"{TACTIC}-{arm}" for arm in TACTICS}}.items():
        of_arm = {name.partition(".")[2]: estimate for name, estimate in figures.items() if name.partition(".")[0] == arm}
        # Play without a tactic is not adapted to a target.
        if of_arm and not (row in UNATTACKED and end.endswith(ADAPTIVE)):
            metrics |= {f"{row}{end}.{name}": estimate for name, estimate in of_arm.items() if name in _OF_A_ROW}
            metrics[f"{row}{end}.answers_before"] = of_arm["calls"]
    if used and metrics:
        metrics[f"{TACTIC}{end}.cost"] = count(sum(usage["cost"] for usage in used), 1)
    return metrics


class AttackTable(Composite[TableConfig, CheckedTable, CheckedTable]):
    """`parley attack table`."""

    words = ("attack", "table")
    run_name = "attack-table"
    config = TableConfig
    presets = {
        "cheng2019": on_supervised,
        "cheng2019-rl": on_rl,
        "cheng2019-hardened": on_hardened,
        "cheng2019-turns": at_fixed_turns,
        "demo": demo,
    }
    legend = _legend()
    files = (TABLE_FILE, SUMMARY)
    resume_safe = (*sharded.RESUME_SAFE, "rows", "defences", "trained", "baseline", "trainers")

    def metrics_of(self, config: TableConfig) -> Collection[str]:
        return _legend(config.trained_names())

    def stages(self, config: TableConfig, path: Path) -> dict[str, Stage]:
        return planned_stages(config, path)

    def finished(self, config: TableConfig, path: Path, weights: Mapping[str, str]) -> bool:
        """Return False: another `--rows` may have added rows, and each stage knows if it is finished."""
        return False

    def prepare(self, config: TableConfig, path: Path, reporter: Reporter) -> CheckedTable:
        require_partner(config.target, "--target")
        for met in config.trained_names():
            require_partner(met, "--trained")
        speaker = start_of(config.speaker, config.target, "--speaker")
        adversaries = adversaries_of(config)
        if adversaries or not set(config.row_names()) <= PLAYED:
            words = require_learner(speaker, "--speaker" if config.speaker else "--target", config.judge)
        else:
            require_partner(speaker, "--speaker")
            words = words_of([speaker, config.target])
        if config.adversary:
            require_partner(config.adversary, "--adversary")
        require_one_game(
            {f"--{name}": getattr(config, name) for name in ("target", "speaker", "adversary", "judge")}
            | {f"--trained {met}": met for met in config.trained_names()}
        )
        if words.game != DEAL_OR_NO_DEAL and config.published != "none":
            got = f"--published {config.published}, and agents of {words.game!r}"
            raise ConfigError(f"published figures are of {DEAL_OR_NO_DEAL!r}", got=got, fix="--published none")
        self._leave_out(config, speaker, reporter)
        if config.transfer.sentence and {"transfer", whitebox.RA_PA_TA} & measured(config):
            encode_sentence(config.transfer.sentence, words)
        baseline = _baseline_metrics(config)
        untrained = sum(checkpoint_folder(display_path(path / name)) is None for name in adversaries)
        if untrained and config.reinforce.supervised_weight > 0:
            # Before there is a run folder, which is tied to its configuration.
            require_words(config.corpus, config.data_root, words, "or a trained adversary with --adversary")
        judge = table_judge(config)
        talk = config.corpus, config.data_root, config.false_alarms, config.device, config.chat
        limit = chosen_limit(judge, *talk) if FILTER in config.defence_names() else None
        if limit is not None:
            reporter.say(str(limit))
        return CheckedTable(config, untrained, baseline, limit)

    def _leave_out(self, config: TableConfig, speaker: str, reporter: Reporter) -> None:
        """Report the rows that are left out, and check that a search's models have one vocabulary."""
        requested, left = {*config.row_names()}, {met: config.left_out(met) for met in ("", *config.trained_names())}
        reason = "they read weights that {} has not".format
        if all(requested <= {*names} for names in left.values()):
            fix = f"ask for {', '.join(BLACK_BOX)}"
            got = f"{config.rows}: {reason(config.target)}"
            raise ConfigError("there is no row to measure", where="--rows", got=got, fix=fix)
        for met, names in left.items():
            if names:
                reporter.say(f"left out{f' against {met}' * bool(met)}: {', '.join(names)}; {reason(met or config.target)}")
            if {*SEARCHES} & measured(config, met):
                who = {"--trained": met} if met else {"--target": config.target}
                judges = {"--judge": config.judge} if config.judge else {}
                shared_vocabulary({**who, "--speaker": speaker, **judges})

    def work(self, run: RunFolder, prepared: CheckedTable, reporter: Reporter) -> CheckedTable:
        if prepared.untrained:
            reporter.say(_announcement(prepared.config, prepared.untrained))
        config = prepared.config
        around = defences_around(config.defence_names(), prepared.limit)
        planned = planned_stages(config, run.path, around)
        planned |= defended_stages(planned, config.seeds, around)
        # Rows are played in the pool, and those that need no adversary do not wait for the trainings.
        trained = {next(iter(chain)) for chain in chains_of(config, run.path, around)}
        run_stages(
            planned,
            run.path,
            reporter,
            needs=needs_of(planned, run.path),
            most=max(1, config.trainers) if config.workers else config.trainers,
            pooled=planned.keys() - trained if config.workers else (),
            address=config.address,
        )
        return prepared

    def measure(self, run: RunFolder, plan: CheckedTable) -> Summary:
        config = plan.config
        metrics: dict[str, Estimate] = {}
        trainings: dict[str, list[float | None]] = {}
        unfound: dict[str, str] = {}
        for row in (name for name in titles_of(config.trained_names()) if not name.startswith(TACTIC)):
            folders = [run.path / nth_name(row, number) for number in range(1, config.seeds + 1)]
            runs = [RunFolder.load(folder) for folder in folders if (folder / SUMMARY).is_file()]
            reasons = [why for training in runs if (why := (training.summary() or {}).get(UNFOUND))]
            if reasons:
                suffix = f"; so in {len(reasons)} of {len(runs)} trainings, and the figures are of the others"
                unfound[row] = reasons[0] + suffix * (len(reasons) < len(runs))
            if played := [training for training in runs if training.metrics()]:
                # Matches without a search have no time among their metrics.
                figures = [{"seconds": seconds_per_dialogue(training), **training.metrics()} for training in played]
                over = {
                    name: over_trainings([training[name] for training in figures], ATTACK_METRICS.get(name))
                    for name in figures[0]
                }
                # A defended target is not forced, nor is one to the result of a search on another target.
                names = [name for name in over if row in ROWS or row.endswith(ADAPTIVE) or not name.startswith("forced_")]
                metrics |= {f"{row}.{name}": over[name] for name in names}
                metrics |= {f"{row}.{name}": plan for name, plan in _requests(run.path, row, config).items()}
            if len(runs) > 1:
                advantages = [training.metrics().get("advantage", NOTHING) for training in runs]
                trainings[f"{row}.advantage"] = [training.to_json()["value"] for training in advantages]
        for number in range(len(config.trained_names()) + 1):
            for end in (trained_suffix(number), trained_suffix(number, adaptive=True)) if number else ("",):
                metrics |= _tactic_lines(run.path, end)
        metrics |= strongest_attacks(run.path, config)
        judge = table_judge(config)
        limit = "" if plan.limit is None else f"; {plan.limit}"
        plain = " but in plain play" if f"{PLAIN}.advantage" in metrics else ""
        return Summary(
            f"attacks on {', '.join((config.target, *config.trained_names()))}",
            f"{config.dialogues:,} dialogues a row on the same {config.scenarios} scenarios, "
            f"seed {config.seed}; the target alone chooses{plain}; {who_judges(judge)}{limit}.",
            metrics,
            # The report shows them too, even if the other table has moved.
            {
                BASELINE: {name: estimate.to_json() for name, estimate in plan.baseline.items()},
                TRAININGS: trainings,
                TRAINED: config.trained_names(),
                UNFOUND: unfound,
            },
        )

    def next_commands(self, config: TableConfig, path: Path) -> tuple[str, ...]:
        return (
            shlex.join(["parley", "play", config.target]),
            shlex.join(["parley", "report", display_path(path), "--picture", display_path(path / "report.png")]),
        )

    def tables(self, run: RunFolder) -> dict[str, EstimateTable]:
        return _tables(run)

    def present(self, result: Result, run: RunFolder) -> Result:
        """Add as much of the tables as a screen holds; report a failure if no dialogue of any row ended."""
        rows = dict.fromkeys(run.path / name.partition(".")[0] for name in result.metrics)
        outcomes = sum((RunFolder.load(row).outcomes() for row in rows if (row / SUMMARY).is_file()), Outcomes())
        legend = _legend(trained_of(run.summary() or {}))
        return replace(result, tables=_tables(run, brief=True), legend=legend, failure=failure_of(outcomes) or result.failure)


ATTACK_TABLE = AttackTable()
