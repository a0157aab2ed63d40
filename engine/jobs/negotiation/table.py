"""Every attack on one target, side by side: `parley attack table` (the rows of Cheng et al. 2019, tables 2 and 7).

Each row is a run of its own below the table's folder, on the same scenarios, and resumes by itself; the table is what their
summaries say. A row that needs a trained adversary trains one first, unless it is named.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from engine.jobs import sharded
from engine.jobs.command import command_line
from engine.jobs.job import Job, Reporter, Result
from engine.jobs.negotiation import reinforce, whitebox
from engine.jobs.negotiation.agents import require_agents
from engine.jobs.negotiation.attack import ATTACK_RL, ATTACK_TRANSFER, AttackConfig, TransferConfig, TransferSettings
from engine.jobs.negotiation.judge import judge_of, who_judges
from engine.jobs.negotiation.match import SELFPLAY, MatchConfig, seconds_per_dialogue
from engine.jobs.negotiation.training import require_words
from engine.jobs.sharded import ShardedConfig
from engine.jobs.tables import TABLE_FILE, write_table
from engine.jobs.weights import checkpoint_folder
from engine.metrics.negotiation.attack import ATTACK_METRICS
from engine.metrics.negotiation.attack_table import ROWS, TABLE_2, TURNS, attack_table, table_lines
from engine.metrics.statistics import Estimate
from engine.negotiation.settings import ReinforceConfig, SearchConfig
from engine.negotiation.transfer import PAPER_SENTENCE
from engine.store.layout import SUMMARY
from engine.store.mirror import fetched_run
from engine.store.run_folder import RunFolder
from envs.core.config import check
from envs.core.errors import ConfigError, RunError
from envs.core.registry import nearest
from envs.storage.places import display_path

ADVERSARY = "adversary"
"""Name of the stage that trains one; also of its folder."""
BESIDE = "beside"
"""Entry of the summary that holds the metrics of the other table that is shown beside."""

_SECONDS_PER_TRAINED_DIALOGUE = 0.0225
"""Measured on one core with the published network sizes; the live display knows better once it runs."""


@dataclass(frozen=True, kw_only=True)
class TableConfig(ShardedConfig):
    """Who is attacked, through whom, and which rows are wanted."""

    target: str = "runs/negotiator"
    """The attacked agent: run or checkpoint folder."""
    speaker: str = ""
    """Checkpoint that speaks for the attacker wherever no attack does; the target's own when empty."""
    adversary: str = ""
    """Trained adversary of the rows rl and transfer; one is trained below the table's folder when empty."""
    judge: str = ""
    """Checkpoint whose perplexity measures fluency; when empty, the target as it was before any reinforcement."""
    rows: str = ",".join(TABLE_2)
    """Rows to measure, separated by commas; in reactive-N, 1 to 4, N utterances come before the attack's. Earlier rows stay."""
    published: Literal["sv", "rl", "hardened", "turns", "none"] = "none"
    """Figures of Cheng et al. 2019 to show: of their supervised, RL or hardened target; turns: of the RL one, table 7."""
    beside: str = ""
    """Another table's run, such as of the target before it was hardened, whose advantages stand beside."""
    dialogues: int = 500
    """Dialogues of each row."""
    scenarios: str = "random"
    """"random" for random legal scenarios, a corpus name for its self-play scenarios in turn, or a file of them."""
    corpus: str = "dealornodeal"
    """Corpus that the target was fitted to, where an adversary is trained."""
    search: SearchConfig = field(default_factory=SearchConfig)
    """How words are searched; at a fixed turn a search goes on past its goal, in the combined attacks it does not."""
    transfer: TransferSettings = field(default_factory=TransferSettings)
    """What is plugged in; without a source, transfer takes it from the row rl, and ra-pa-ta says the paper's sentence."""
    reinforce: ReinforceConfig = field(default_factory=lambda: reinforce.cheng2019().reinforce)
    """The adversary's learning rule."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "dialogues", self.dialogues >= 1, "at least 1")
        for name in self.row_names():
            if name not in ROWS:
                raise ConfigError(f"no row is called {name!r}{nearest(name, ROWS)}", fix=f"rows: {','.join(ROWS)}")

    def row_names(self) -> list[str]:
        """The rows that are wanted."""
        return [name.strip() for name in self.rows.split(",")]


RESUME_SAFE = (*sharded.RESUME_SAFE, "rows", "beside")


def stages(config: TableConfig, path: Path) -> dict[str, tuple[Job, Any]]:
    """The job and configuration of each stage by its name, in the order in which they are done.

    Args:
        config: the table.
        path: its folder, as it was given; the stages name each other's folders below it.
    """
    wanted = set(config.row_names())
    plugs = config.transfer
    given = bool(plugs.source or plugs.sentence)
    if "transfer" in wanted and not given:
        wanted.add("rl")
    speaker, adversary = config.speaker or config.target, config.adversary or display_path(path / ADVERSARY)
    names = ("target", "judge", "dialogues", "scenarios", "seed", "workers", "gpus_per_worker", "address", "data_root")
    shared: dict[str, Any] = {name: getattr(config, name) for name in names}
    collected = plugs if given else replace(plugs, source=display_path(path / "rl"))
    fixed = plugs if given else replace(plugs, sentence=PAPER_SENTENCE)
    rows: dict[str, tuple[Job, Any]] = {
        "none": (SELFPLAY, MatchConfig(adversary=speaker, complementary=True, **shared)),
        "rl": (ATTACK_RL, AttackConfig(speaker=adversary, **shared)),
        "transfer": (ATTACK_TRANSFER, TransferConfig(speaker=speaker, transfer=collected, **shared)),
    }
    for name, job in whitebox.JOBS.items():
        preset = next(iter(job.presets.values()))()
        search = replace(config.search, stop_at_goal=preset.search.stop_at_goal)
        plugged = {"transfer": fixed} if isinstance(preset, whitebox.PlugInConfig) else {}
        rows[name] = (job, replace(preset, speaker=speaker, search=search, **plugged, **shared))
    attack, settings = rows[whitebox.REACTIVE]
    rows |= {name: (attack, replace(settings, turn=n)) for name, n in TURNS.items()}
    planned = {name: rows[name] for name in ROWS if name in wanted}
    if "rl" in planned and not config.adversary:
        settings = reinforce.TrainReinforceConfig(
            target=config.target,
            corpus=config.corpus,
            data_root=config.data_root,
            seed=config.seed,
            env_runners=config.workers,
            address=config.address,
            reinforce=config.reinforce,
        )
        planned = {ADVERSARY: (reinforce.TRAIN_ADVERSARY, settings), **planned}
    return planned


def run(config: TableConfig, path: Path, reporter: Reporter) -> Result:
    """Does what is left of the stages and writes the table."""
    words = require_agents(config, ("target", "speaker", "adversary", "judge"))
    beside = _metrics_beside(config)
    planned = stages(config, path)
    untrained = ADVERSARY in planned and checkpoint_folder(display_path(path / ADVERSARY)) is None
    if untrained and config.reinforce.supervised_weight > 0:
        # Before there is a folder, which is tied to its configuration.
        require_words(config.corpus, config.data_root, words, "or a trained adversary with --adversary")
    with RunFolder.open(path, config, job=ATTACK_TABLE.name, resume_safe=ATTACK_TABLE.resume_safe) as folder:
        if untrained:
            reporter.say(_announcement(config.reinforce))
        for number, (name, (job, settings)) in enumerate(planned.items(), start=1):
            reporter.say(f"stage {number} of {len(planned)}: {name}")
            job.run(settings, path / name, reporter)
        about = {
            "title": f"attacks on {config.target}",
            "description": f"{config.dialogues:,} dialogues a row on the same {config.scenarios} scenarios, "
            f"seed {config.seed}; the target alone chooses; {who_judges(judge_of(config.judge, (config.target,)))}.",
            "command": command_line(ATTACK_TABLE, config, path),
        }
        metrics = _measured(path)
        lines = table_lines(metrics, config.published, beside)
        write_table(path / TABLE_FILE, attack_table(lines), about)
        # The report shows them too, wherever the other table is by then.
        folder.write_summary(metrics, about | {BESIDE: {name: estimate.to_json() for name, estimate in beside.items()}})
    return replace(ATTACK_TABLE.result(config, path), tables=(attack_table(lines, brief=True),))


def _announcement(rule: ReinforceConfig) -> str:
    minutes = max(1.0, rule.updates * rule.dialogues_per_update * _SECONDS_PER_TRAINED_DIALOGUE / 60)
    return (
        f"no --adversary is named, so one is trained first: {rule.updates:,} updates of {rule.dialogues_per_update} dialogues, "
        f"about {minutes:.0f} minutes of one core"
    )


def _measured(path: Path) -> dict[str, Estimate]:
    """The metrics of every row that is finished, by "ROW.METRIC"."""
    metrics: dict[str, Estimate] = {}
    for row in ROWS:
        if not (path / row / SUMMARY).is_file():
            continue
        run = RunFolder.load(path / row)
        found = {name: Estimate.from_json(parts) for name, parts in (run.summary() or {})["metrics"].items()}
        # Matches without a search do not count their time among their metrics.
        found.setdefault("seconds", seconds_per_dialogue(run))
        metrics |= {f"{row}.{name}": estimate for name, estimate in found.items()}
    return metrics


def _metrics_beside(config: TableConfig) -> dict[str, Estimate]:
    """The metrics of the table that is shown beside, by "ROW.METRIC".

    Raises:
        RunError: it is no finished table.
    """
    if not config.beside:
        return {}
    other = RunFolder.load(fetched_run(config.beside))
    summary = other.summary()
    if other.job != ATTACK_TABLE.name or summary is None:
        raise RunError(
            "--beside needs a finished table of attacks",
            where=config.beside,
            got=f"a run of {other.job}" + ("" if summary else ", not finished"),
            fix="name the run folder of parley attack table",
        )
    return {name: Estimate.from_json(parts) for name, parts in summary["metrics"].items()}


def _next_commands(config: TableConfig, path: Path) -> tuple[str, ...]:
    return (
        shlex.join(["parley", "play", config.target]),
        shlex.join(["parley", "report", display_path(path), "--picture", display_path(path / "report.png")]),
    )


def on_supervised() -> TableConfig:
    """Table 2 for the supervised target (Cheng et al. 2019)."""
    return TableConfig(published="sv")


def on_rl() -> TableConfig:
    """Table 2 for the goal-based target, judged by the supervised agent (Cheng et al. 2019)."""
    return TableConfig(target="runs/rl", judge="runs/negotiator", published="rl")


def on_hardened() -> TableConfig:
    """Table 6: the target after adversarial training, beside the RL target that it was (Cheng et al. 2019)."""
    return TableConfig(target="runs/minmax", judge="runs/negotiator", published="hardened", beside="runs/attack-table-rl")


def at_fixed_turns() -> TableConfig:
    """Table 7: the reactive attack on the goal-based target after 1, 2, 3 and 4 utterances (Cheng et al. 2019)."""
    return TableConfig(target="runs/rl", judge="runs/negotiator", rows=",".join(TURNS), published="turns")


def demo() -> TableConfig:
    """The small agents that parley demo trains, in a few minutes."""
    return TableConfig(target="runs/demo/target", adversary="runs/demo/adversary", corpus="embedded", dialogues=200)


ATTACK_TABLE = Job(
    "attack-table",
    TableConfig,
    {
        "cheng2019": on_supervised,
        "cheng2019-rl": on_rl,
        "cheng2019-hardened": on_hardened,
        "cheng2019-turns": at_fixed_turns,
        "demo": demo,
    },
    run,
    {f"{row}.{name}": metric for row in ROWS for name, metric in ATTACK_METRICS.items()},
    (TABLE_FILE, SUMMARY),
    _next_commands,
    RESUME_SAFE,
)
