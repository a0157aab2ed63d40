"""Every attack on one target, side by side: `parley attack table` (the rows of Cheng et al. 2019, tables 2 and 7).

Each row is a run of its own below the table's folder, on the same scenarios, and resumes by itself; the table is what their
summaries say. A row that needs a trained adversary trains one first, unless it is named.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from engine.jobs import sharded
from engine.jobs.composite import Composite, Stage, run_stages
from engine.jobs.job import Reporter, Result, Summary
from engine.jobs.negotiation import reinforce, whitebox
from engine.jobs.negotiation.agents import require_agents
from engine.jobs.negotiation.attack import ATTACK_RL, ATTACK_TRANSFER, AttackConfig, TransferConfig, TransferSettings
from engine.jobs.negotiation.judge import judge_of, who_judges
from engine.jobs.negotiation.language import require_words
from engine.jobs.negotiation.match import SELFPLAY, MatchConfig, PlayedConfig, seconds_per_dialogue
from engine.jobs.tables import TABLE_FILE
from engine.jobs.weights import checkpoint_folder
from engine.metrics.negotiation.attack import ATTACK_METRICS
from engine.metrics.negotiation.attack_table import ROWS, TABLE_2, TURNS, AttackLine, attack_table, table_lines
from engine.metrics.statistics import Estimate
from engine.metrics.tables import TextTable
from engine.negotiation.settings import ReinforceConfig, SearchConfig
from engine.negotiation.transfer import PAPER_SENTENCE
from engine.store.layout import SUMMARY
from engine.store.mirror import fetched_run
from engine.store.run_folder import RunFolder
from envs.core.config import shared
from envs.core.errors import ConfigError, RunError
from envs.core.ranges import NumItems
from envs.core.registry import nearest
from envs.storage.places import display_path

ADVERSARY = "adversary"
"""Name of the stage that trains one; also of its folder."""
BASELINE = "baseline"
"""Entry of the summary that holds the metrics of the other table that is shown beside."""

_SECONDS_PER_TRAINED_DIALOGUE = 0.0225
"""Measured on one core with the published network sizes; the live display knows better once it runs."""


@dataclass(frozen=True, kw_only=True)
class TableConfig(PlayedConfig):
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
    baseline: str = ""
    """Another table's run, such as of the target before it was hardened, whose advantages stand beside."""
    dialogues: NumItems = 500
    """Dialogues of each row."""
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
        for name in self.row_names():
            if name not in ROWS:
                raise ConfigError(f"no row is called {name!r}{nearest(name, ROWS)}", fix=f"rows: {','.join(ROWS)}")

    def row_names(self) -> list[str]:
        """The rows that are wanted."""
        return [name.strip() for name in self.rows.split(",")]


@dataclass(frozen=True)
class Planned:
    """A table that can be measured.

    Args:
        config: what was asked for.
        untrained: whether an adversary is trained first.
        baseline: the metrics of the table that is shown beside, by "ROW.METRIC".
    """

    config: TableConfig
    untrained: bool
    baseline: Mapping[str, Estimate]


def _announcement(rule: ReinforceConfig) -> str:
    minutes = max(1.0, rule.updates * rule.dialogues_per_update * _SECONDS_PER_TRAINED_DIALOGUE / 60)
    return (
        f"no --adversary is named, so one is trained first: {rule.updates:,} updates of {rule.dialogues_per_update} dialogues, "
        f"about {minutes:.0f} minutes of one core"
    )


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


def on_supervised() -> TableConfig:
    """Table 2 for the supervised target (Cheng et al. 2019)."""
    return TableConfig(published="sv")


def on_rl() -> TableConfig:
    """Table 2 for the goal-based target, judged by the supervised agent (Cheng et al. 2019)."""
    return TableConfig(target="runs/rl", judge="runs/negotiator", published="rl")


def on_hardened() -> TableConfig:
    """Table 6: the target after adversarial training, beside the RL target that it was (Cheng et al. 2019)."""
    return TableConfig(target="runs/minmax", judge="runs/negotiator", published="hardened", baseline="runs/attack-table-rl")


def at_fixed_turns() -> TableConfig:
    """Table 7: the reactive attack on the goal-based target after 1, 2, 3 and 4 utterances (Cheng et al. 2019)."""
    return TableConfig(target="runs/rl", judge="runs/negotiator", rows=",".join(TURNS), published="turns")


def demo() -> TableConfig:
    """The small agents that parley demo trains, in a few minutes."""
    return TableConfig(target="runs/demo/target", adversary="runs/demo/adversary", corpus="embedded", dialogues=200)


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
    legend = {f"{row}.{name}": metric for row in ROWS for name, metric in ATTACK_METRICS.items()}
    files = (TABLE_FILE, SUMMARY)
    resume_safe = (*sharded.RESUME_SAFE, "rows", "baseline")

    def stages(self, config: TableConfig, path: Path) -> dict[str, Stage]:
        wanted = set(config.row_names())
        plugs = config.transfer
        given = bool(plugs.source or plugs.sentence)
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
        planned = {name: rows[name] for name in ROWS if name in wanted}
        if "rl" in planned and not config.adversary:
            training = reinforce.TrainReinforceConfig(
                target=config.target,
                corpus=config.corpus,
                data_root=config.data_root,
                seed=config.seed,
                env_runners=config.workers,
                address=config.address,
                reinforce=config.reinforce,
            )
            planned = {ADVERSARY: (reinforce.TRAIN_ADVERSARY, training), **planned}
        return planned

    def finished(self, config: TableConfig, path: Path, weights: Mapping[str, str]) -> bool:
        """Rows that were measured under another `--rows` may have joined: the stages say themselves what is finished."""
        return False

    def prepare(self, config: TableConfig, path: Path, reporter: Reporter) -> Planned:
        words = require_agents(config, ("target", "speaker", "adversary", "judge"))
        baseline = _baseline_metrics(config)
        untrained = ADVERSARY in self.stages(config, path) and checkpoint_folder(display_path(path / ADVERSARY)) is None
        if untrained and config.reinforce.supervised_weight > 0:
            # Before there is a folder, which is tied to its configuration.
            require_words(config.corpus, config.data_root, words, "or a trained adversary with --adversary")
        return Planned(config, untrained, baseline)

    def work(self, run: RunFolder, prepared: Planned, reporter: Reporter) -> Planned:
        if prepared.untrained:
            reporter.say(_announcement(prepared.config.reinforce))
        run_stages(self.stages(prepared.config, run.path), run.path, reporter)
        return prepared

    def measure(self, run: RunFolder, found: Planned) -> Summary:
        """The metrics of every row that is finished, by "ROW.METRIC"."""
        config = found.config
        metrics: dict[str, Estimate] = {}
        for row in ROWS:
            if (run.path / row / SUMMARY).is_file():
                measured = RunFolder.load(run.path / row)
                # Matches without a search do not count their time among their metrics.
                estimates = {"seconds": seconds_per_dialogue(measured), **measured.metrics()}
                metrics |= {f"{row}.{name}": estimate for name, estimate in estimates.items()}
        return Summary(
            f"attacks on {config.target}",
            f"{config.dialogues:,} dialogues a row on the same {config.scenarios} scenarios, "
            f"seed {config.seed}; the target alone chooses; {who_judges(judge_of(config.judge, (config.target,)))}.",
            metrics,
            # The report shows them too, wherever the other table is by then.
            {BASELINE: {name: estimate.to_json() for name, estimate in found.baseline.items()}},
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
        baseline = {name: Estimate.from_json(parts) for name, parts in (run.summary() or {}).get(BASELINE, {}).items()}
        return table_lines(run.metrics(), run.config["published"], baseline)

    def present(self, result: Result, run: RunFolder) -> Result:
        """With as much of the table as a screen holds."""
        return replace(result, tables={"": attack_table(self.lines(run), brief=True)})


ATTACK_TABLE = AttackTable()
