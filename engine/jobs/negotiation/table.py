"""Every attack on one target, side by side: `parley attack table` (the rows of Cheng et al. 2019, tables 2 and 7).

Each row is a run of its own below the table's folder, on the same scenarios, and resumes by itself; the table is what their
summaries say. A row that needs a trained adversary trains one first, unless it is named.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine.jobs import sharded
from engine.jobs.beside import Beside
from engine.jobs.composite import Composite, Stage, run_side_by_side
from engine.jobs.job import USAGE, Reporter, Result, Summary
from engine.jobs.negotiation import reinforce, whitebox
from engine.jobs.negotiation.agents import (
    is_weightless,
    require_learner,
    require_one_game,
    require_partner,
    shared_vocabulary,
    start_of,
    words_of,
)
from engine.jobs.negotiation.attack import ATTACK_RL, ATTACK_TRANSFER, AttackConfig, TransferConfig
from engine.jobs.negotiation.defended import FILTER, FilterLimit, chosen_limit, defended_stages
from engine.jobs.negotiation.judge import judge_of, who_judges
from engine.jobs.negotiation.language import require_words
from engine.jobs.negotiation.match import SELFPLAY, MatchConfig, PlayedConfig, seconds_per_dialogue
from engine.jobs.negotiation.table_config import (
    BLACK_BOX,
    PLAYED,
    TableConfig,
    at_fixed_turns,
    demo,
    is_given,
    on_hardened,
    on_rl,
    on_supervised,
)
from engine.jobs.negotiation.tactic import ATTACK_TACTIC, TacticConfig
from engine.jobs.negotiation.trigger import ATTACK_TRIGGER
from engine.jobs.repeated import nth_name, nth_seed, run_beside
from engine.jobs.tables import TABLE_FILE
from engine.jobs.weights import checkpoint_folder
from engine.metrics.negotiation.attack import ATTACK_METRICS, UNTOUCHED
from engine.metrics.negotiation.attack_table import (
    ASKED_METRICS,
    DEFENCES,
    DEFENDED,
    ROWS,
    TACTIC,
    TACTICS,
    TRIGGERS,
    TURNS,
    AttackLine,
    attack_table,
    table_lines,
)
from engine.metrics.negotiation.chat import CHAT_METRICS
from engine.metrics.negotiation.defences import DEFENCE_METRICS
from engine.metrics.repeats import TRAININGS, bounded, over_trainings, spread_of
from engine.metrics.statistics import Estimate, count
from engine.metrics.tables import TextTable
from engine.negotiation.settings import ReinforceConfig
from engine.negotiation.tactics import REFINED
from engine.negotiation.transfer import PAPER_SENTENCE, encode_sentence
from engine.runtime.shares import Share
from engine.store.layout import SUMMARY
from engine.store.mirror import fetched_run
from engine.store.run_folder import RunFolder
from envs.core.config import shared
from envs.core.errors import ConfigError, RunError
from envs.negotiation.agents import is_chat_model
from envs.negotiation.domain import DEAL_OR_NO_DEAL
from envs.storage.places import display_path
from policies.chat.answers import usage_of

ADVERSARY = "adversary"
"""Name of the stage that trains one; also of its folder."""
BASELINE = "baseline"
"""Entry of the summary that holds the metrics of the other table that is shown beside."""

_LEGEND = ATTACK_METRICS | UNTOUCHED | DEFENCE_METRICS | CHAT_METRICS | ASKED_METRICS
_SECONDS_PER_TRAINED_DIALOGUE = 0.0225
"""Measured on one core with the published network sizes; the live display knows better once it runs."""


@dataclass(frozen=True)
class Planned:
    """A table that can be measured.

    Args:
        config: what was asked for.
        untrained: whether an adversary is trained first.
        baseline: the metrics of the table that is shown beside, by "ROW.METRIC".
        limit: where the filter's limit lies; None where no filter is wanted.
    """

    config: TableConfig
    untrained: bool
    baseline: Mapping[str, Estimate]
    limit: FilterLimit | None = None


def _announcement(rule: ReinforceConfig, seeds: int, target: str) -> str:
    """What is trained first, and how long that takes; of a chat model only the display that watches it can tell."""
    dialogues = seeds * rule.updates * rule.dialogues_per_update
    long = f"about {max(1.0, dialogues * _SECONDS_PER_TRAINED_DIALOGUE / 60):.0f} minutes of one core"
    if is_chat_model(target):
        long = (
            f"{dialogues:,} dialogues with a chat model, which decides how long that takes; reinforce.dialogues asks for fewer"
        )
    num = "one is" if seeds == 1 else f"{seeds} are"
    updates = f"{rule.updates:,} updates of {rule.dialogues_per_update} dialogues"
    return f"no --adversary is named, so {num} trained first: {updates}, {long}"


def _baseline_metrics(config: TableConfig) -> dict[str, Estimate]:
    """The metrics of the table that is shown beside, by "ROW.METRIC".

    Raises:
        RunError: it is no finished table.
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


def lines_of(metrics: Mapping[str, Estimate], config: Mapping[str, Any], summary: Mapping[str, Any]) -> list[AttackLine]:
    """The lines of a table from its run's metrics, configuration and summary."""
    baseline = {name: Estimate.from_json(parts) for name, parts in summary.get(BASELINE, {}).items()}
    # Published targets are negotiators that were fitted; no other agent stands beside their figures.
    published = "none" if is_weightless(config["target"]) else config["published"]
    return table_lines(metrics, published, baseline, spread_of(summary))


def _asked(path: Path, row: str, config: TableConfig) -> dict[str, Estimate]:
    """What chat models were asked for a row, `ASKED_METRICS`; nothing where they were asked nothing.

    Args:
        path: of the table's run.
        row: with its defence.
        config: of the table.
    """
    attack = row.partition("+")[0]
    made_by = {"rl": (ADVERSARY,), "transfer": () if is_given(config.transfer) else (ADVERSARY, "rl")}.get(attack, ())
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


def _tactic_lines(path: Path) -> dict[str, Estimate]:
    """The metrics of the lines that a run of tactics brings along, by "ROW.METRIC"; none where it is not finished."""
    if not (path / SUMMARY).is_file():
        return {}
    run = RunFolder.load(path)
    found, used = run.metrics(), (run.summary() or {}).get(USAGE)
    metrics: dict[str, Estimate] = {}
    for arm, row in {REFINED: TACTIC, **{arm: f"{TACTIC}-{arm}" for arm in TACTICS}}.items():
        own = {name.partition(".")[2]: each for name, each in found.items() if name.partition(".")[0] == arm}
        metrics |= {f"{row}.{name}": each for name, each in own.items() if name in _LEGEND}
        if own:
            metrics[f"{row}.answers_before"] = own["calls"]
    if used and metrics:
        metrics[f"{TACTIC}.cost"] = count(used["cost"], 1)
    return metrics


class AttackTable(Composite[TableConfig, Planned, Planned]):
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
    legend = {f"{row}.{name}": metric for row in DEFENDED for name, metric in _LEGEND.items()}
    files = (TABLE_FILE, SUMMARY)
    resume_safe = (*sharded.RESUME_SAFE, "rows", "defences", "baseline", "trainers")

    def stages(self, config: TableConfig, path: Path) -> dict[str, Stage]:
        wanted = set(config.row_names()) - set(config.left_out())
        plugs = config.transfer
        given = is_given(plugs)
        if "transfer" in wanted and not given:
            wanted.add("rl")
        speaker, adversary = config.speaker or config.target, config.adversary or display_path(path / ADVERSARY)
        how = shared(config, PlayedConfig) | {"target": config.target}
        collected = plugs if given else replace(plugs, source=display_path(path / "rl"))
        fixed = plugs if given else replace(plugs, sentence=PAPER_SENTENCE)
        rows: dict[str, Stage] = {
            "none": (SELFPLAY, MatchConfig(adversary=speaker, complementary=True, **how)),
            "rl": (ATTACK_RL, AttackConfig(speaker=adversary, **how)),
            "transfer": (ATTACK_TRANSFER, TransferConfig(speaker=speaker, transfer=collected, **how)),
        }
        for name, job in whitebox.JOBS.items():
            preset = next(iter(job.presets.values()))()
            search = replace(config.search, stop_at_goal=preset.search.stop_at_goal)
            rows[name] = (job, replace(preset, speaker=speaker, search=search, **how))
        plug_in, settings = rows[whitebox.RA_PA_TA]
        rows[whitebox.RA_PA_TA] = (plug_in, replace(settings, transfer=fixed))
        attack, settings = rows[whitebox.REACTIVE]
        rows |= {name: (attack, replace(settings, turn=n)) for name, n in TURNS.items()}
        rows |= {
            name: (ATTACK_TRIGGER, replace(ATTACK_TRIGGER.row(name), speaker=speaker, search=config.trigger, **how))
            for name in TRIGGERS
        }
        if TACTIC in wanted:
            tried = how | {"dialogues": config.development, "held_out": config.dialogues, "shard_size": None}
            rows[TACTIC] = (ATTACK_TACTIC, TacticConfig(attacker=config.attacker, search=config.tactics, **tried))
        planned = {name: rows[name] for name in ROWS if name in wanted}
        if "rl" not in planned or config.adversary:
            return planned
        first, *others = self._chains(config, path, planned)
        return {ADVERSARY: first[ADVERSARY], **planned, **{name: stage for chain in others for name, stage in chain.items()}}

    def _chains(self, config: TableConfig, path: Path, planned: Mapping[str, Stage]) -> list[dict[str, Stage]]:
        """Each adversary's training, and its rows of the table: adversary-2, rl-2 and transfer-2 of the second one."""
        training = reinforce.TrainReinforceConfig(
            target=config.target,
            learner=config.speaker if is_weightless(config.target) else "",
            corpus=config.corpus,
            data_root=config.data_root,
            seed=config.seed,
            env_runners=0 if config.trainers else config.workers,
            address="" if config.trainers else config.address,
            learner_gpus=config.learner_gpus,
            runner_gpus=config.runner_gpus,
            chat=config.chat,
            reinforce=config.reinforce,
        )
        chains = []
        for number in range(1, config.seeds + 1):
            trained, played, plugged = (nth_name(name, number) for name in (ADVERSARY, "rl", "transfer"))
            seed = nth_seed(config.seed, number, ADVERSARY)
            attack, settings = planned["rl"]
            chain: dict[str, Stage] = {
                trained: (reinforce.TRAIN_ADVERSARY, replace(training, seed=seed)),
                played: (attack, replace(settings, speaker=display_path(path / trained))),
            }
            if "transfer" in planned and not is_given(config.transfer):
                attack, settings = planned["transfer"]
                source = replace(settings.transfer, source=display_path(path / played))
                chain[plugged] = (attack, replace(settings, transfer=source))
            chains.append(chain)
        return chains

    def finished(self, config: TableConfig, path: Path, weights: Mapping[str, str]) -> bool:
        """Rows that were measured under another `--rows` may have joined: the stages say themselves what is finished."""
        return False

    def prepare(self, config: TableConfig, path: Path, reporter: Reporter) -> Planned:
        require_partner(config.target, "--target")
        speaker = start_of(config.speaker, config.target, "--speaker")
        if ADVERSARY in self.stages(config, path) or not set(config.row_names()) <= PLAYED:
            words = require_learner(speaker, "--speaker" if config.speaker else "--target", config.judge)
        else:
            require_partner(speaker, "--speaker")
            words = words_of([speaker, config.target])
        if config.adversary:
            require_partner(config.adversary, "--adversary")
        require_one_game({f"--{name}": getattr(config, name) for name in ("target", "speaker", "adversary", "judge")})
        if words.game != DEAL_OR_NO_DEAL and config.published != "none":
            got = f"--published {config.published}, and agents of {words.game!r}"
            raise ConfigError(f"published figures are of {DEAL_OR_NO_DEAL!r}", got=got, fix="--published none")
        left_out, reason = config.left_out(), f"they read weights that {config.target} has not"
        if len(left_out) == len(config.row_names()):
            fix = f"ask for {', '.join(BLACK_BOX)}"
            raise ConfigError("there is no row to measure", where="--rows", got=f"{config.rows}: {reason}", fix=fix)
        if left_out:
            reporter.say(f"left out: {', '.join(left_out)}; {reason}")
        elif not set(config.row_names()) <= PLAYED:
            named = {"--target": config.target, "--speaker": speaker, "--judge": config.judge}
            shared_vocabulary({option: spec for option, spec in named.items() if spec})
        if config.transfer.sentence and {"transfer", whitebox.RA_PA_TA} & ({*config.row_names()} - {*left_out}):
            encode_sentence(config.transfer.sentence, words)
        baseline = _baseline_metrics(config)
        untrained = ADVERSARY in self.stages(config, path) and checkpoint_folder(display_path(path / ADVERSARY)) is None
        if untrained and config.reinforce.supervised_weight > 0:
            # Before there is a folder, which is tied to its configuration.
            require_words(config.corpus, config.data_root, words, "or a trained adversary with --adversary")
        judge = judge_of(config.judge, (config.target, config.speaker))
        talk = config.corpus, config.data_root, config.false_alarms, config.device, config.chat
        limit = chosen_limit(judge, *talk) if FILTER in config.defence_names() else None
        if limit is not None:
            reporter.say(str(limit))
        return Planned(config, untrained, baseline, limit)

    def work(self, run: RunFolder, prepared: Planned, reporter: Reporter) -> Planned:
        if prepared.untrained:
            reporter.say(_announcement(prepared.config.reinforce, prepared.config.seeds, prepared.config.target))
        config, planned = prepared.config, self.stages(prepared.config, run.path)
        chains = [list(chain) for chain in self._chains(config, run.path, planned)] if ADVERSARY in planned else []
        # With workers the rows are played in their pool; without, each training's where it was trained.
        begun = [chain[:1] for chain in chains] if config.workers else chains
        names = [name for chain in begun for name in chain] if config.workers else planned
        first = {name: planned.pop(name) for name in [*names]}
        defended = defended_stages({**first, **planned}, config.seeds, config.defence_names(), prepared.limit)
        around = ("", *(f"+{defence}" for defence in DEFENCES))
        needs = {
            nth_name(row + defence, number): [nth_name(needed, number)]
            for row, needed in {"rl": ADVERSARY, "transfer": "rl"}.items()
            for defence in around
            for number in range(1, config.seeds + 1)
        }
        planned |= defended
        trainings = [{name: first[name] for name in chain} for chain in begun]
        actors = max(1, config.trainers) if config.workers else 0
        # A worker at least has room beside the trainings.
        worker = Share((1.0, config.gpus_per_worker))
        with Beside(trainings, run.path, actors, num_cpus=config.workers, address=config.address, spare=worker) as beside:
            if beside.num_actors:
                # Rows that need no adversary need not wait for one.
                run_side_by_side(planned, run.path, reporter, config, needs, beside)
            beside.wait(reporter, "adversaries")
        run_beside(first, begun, run.path, config.trainers, reporter, "adversaries", config.address)
        run_side_by_side(planned, run.path, reporter, config, needs)
        return prepared

    def measure(self, run: RunFolder, found: Planned) -> Summary:
        """The metrics of every row that is finished, by "ROW.METRIC"."""
        config = found.config
        metrics: dict[str, Estimate] = {}
        trainings: dict[str, list[float | None]] = {}
        for row in (each for each in DEFENDED if not each.startswith(TACTIC)):
            folders = [run.path / nth_name(row, number) for number in range(1, config.seeds + 1)]
            runs = [RunFolder.load(folder) for folder in folders if (folder / SUMMARY).is_file()]
            if runs:
                # Matches without a search do not count their time among their metrics.
                each = [{"seconds": seconds_per_dialogue(one), **one.metrics()} for one in runs]
                over = {name: over_trainings([one[name] for one in each]) for name in each[0]}
                # Nobody forces a defended target.
                told = [name for name in over if row in ROWS or not name.startswith("forced_")]
                metrics |= {f"{row}.{name}": bounded(over[name], ATTACK_METRICS.get(name)) for name in told}
                metrics |= {f"{row}.{name}": found for name, found in _asked(run.path, row, config).items()}
            if len(runs) > 1:
                trainings[f"{row}.advantage"] = [one["advantage"].to_json()["value"] for one in each]
        metrics |= _tactic_lines(run.path / TACTIC)
        judge = judge_of(config.judge, (config.target, config.speaker))
        limit = "" if found.limit is None else f"; {found.limit}"
        return Summary(
            f"attacks on {config.target}",
            f"{config.dialogues:,} dialogues a row on the same {config.scenarios} scenarios, "
            f"seed {config.seed}; the target alone chooses; {who_judges(judge)}{limit}.",
            metrics,
            # The report shows them too, wherever the other table is by then.
            {BASELINE: {name: estimate.to_json() for name, estimate in found.baseline.items()}, TRAININGS: trainings},
        )

    def next_commands(self, config: TableConfig, path: Path) -> tuple[str, ...]:
        return (
            shlex.join(["parley", "play", config.target]),
            shlex.join(["parley", "report", display_path(path), "--picture", display_path(path / "report.png")]),
        )

    def tables(self, run: RunFolder) -> dict[str, TextTable]:
        return {"": attack_table(self.lines(run))}

    def lines(self, run: RunFolder) -> list[AttackLine]:
        """The lines of the table."""
        return lines_of(run.metrics(), run.config, run.summary() or {})

    def present(self, result: Result, run: RunFolder) -> Result:
        """With as much of the table as a screen holds."""
        return replace(result, tables={"": attack_table(self.lines(run), brief=True)})


ATTACK_TABLE = AttackTable()
