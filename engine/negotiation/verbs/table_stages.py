"""The stages of a table of attacks: the rows to measure, the target of each attack, and the adversaries to train first.

The module holds the settings of `parley attack table`, and presets for tables 2, 6 and 7 of Cheng et al. 2019.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from parley.engine.core.runs.documents import SUMMARY
from parley.engine.core.stats.statistics import Estimate
from parley.engine.core.verbs.composite import Stage
from parley.engine.core.verbs.repeated import RepeatedConfig, nth_name, nth_seed
from parley.engine.negotiation.attacks.settings import DefenceConfig, ReinforceConfig, SearchConfig, TacticSettings
from parley.engine.negotiation.attacks.tactics import PAPER_SENTENCE
from parley.engine.negotiation.metrics.attack_table import (
    KNOWN,
    PLAIN,
    ROWS,
    SEARCHES,
    STRONGEST,
    TABLE_2,
    TACTIC,
    TRIGGERS,
    TURNS,
    UNATTACKED,
    strongest_attack,
    suffixes_of,
    trained_suffix,
)
from parley.engine.negotiation.verbs import training as reinforce
from parley.engine.negotiation.verbs import whitebox
from parley.engine.negotiation.verbs.agents import is_weightless, judge_of, split_names
from parley.engine.negotiation.verbs.defended import FilterLimit
from parley.engine.negotiation.verbs.exploitability import gains_in
from parley.engine.negotiation.verbs.match import SELFPLAY, MatchConfig, PlayedConfig
from parley.engine.negotiation.verbs.tactic import ATTACK_TACTIC, TacticConfig
from parley.engine.negotiation.verbs.trigger import ATTACK_TRIGGER, SMALL, is_readable_chat_model
from parley.engine.negotiation.verbs.whitebox import ATTACK_RL, TRANSFER_ROW, AttackConfig, TransferConfig, TransferSettings
from parley.engine.triggers.methods.settings import SearchSettings
from parley.envs.core.config import NonNegativeFloat, NumItems, PositiveShare, shared
from parley.envs.core.errors import ConfigError
from parley.envs.core.registry import nearest
from parley.envs.core.storage.uris import display_path

FILTER, OWN_DEMAND = "filter", "own-demand"
"""Defences of a table: a perplexity filter, a refusal to end without its own demand."""
BLACK_BOX = (PLAIN, "none", "rl", "transfer")
"""Rows that only play with the target."""
PLAYED = {*BLACK_BOX, *TRIGGERS, TACTIC}
"""Rows that need no negotiator of Parley's own as their target."""


@dataclass(frozen=True, kw_only=True)
class TableConfig(PlayedConfig, RepeatedConfig):
    """Settings of a table of attacks; the rows rl and transfer have one adversary for each seed."""

    target: str = "runs/negotiator"
    """The attacked agent: run or checkpoint folder, or any agent's name; rows that read weights need a checkpoint."""
    speaker: str = ""
    """Checkpoint that speaks for the attacker where no attack does; the target's own when empty, if it has one."""
    adversary: str = ""
    """Trained adversary of the rows rl and transfer; one is trained below the table's folder when empty."""
    attacker: str = ""
    """Chat model of the row tactic: it writes tactics, and plays with them."""
    judge: str = ""
    """Checkpoint whose perplexity measures fluency; when empty, the target as it was before any reinforcement."""
    rows: str = ",".join(TABLE_2)
    """Rows to measure, separated by commas; in reactive-N, 1 to 4, N utterances come before the attack's. Earlier rows stay."""
    published: Literal["sv", "rl", "hardened", "turns", "none"] = "none"
    """Figures of Cheng et al. 2019 to show: of their supervised, RL or hardened target; turns: of the RL one, table 7."""
    defences: str = ""
    """Defences to measure beside each row: filter, own-demand; separated by commas. Each also meets adversaries that learned
    against it, and the filter searches that know it."""
    trained: str = ""
    """Trained counterparts of the target (parley minmax, train target), separated by commas, to which more may be added behind:
    each meets every attack, made for the target and made for it."""
    false_alarms: PositiveShare = 0.05
    """Share of the corpus' training sentences that the filter may stop, which decides its limit under the judge."""
    baseline: str = ""
    """Another table's run, such as of the target before it was hardened, whose advantages are shown beside."""
    dialogues: NumItems = 500
    """Dialogues of each row."""
    corpus: str = "dealornodeal"
    """Corpus that the target was fitted to, if an adversary is trained or a filter chosen."""
    search: SearchConfig = field(default_factory=SearchConfig)
    """How words are searched; at a fixed turn a search goes on past its goal, in the combined attacks it does not."""
    transfer: TransferSettings = field(default_factory=TransferSettings)
    """Sentences to plug in; without a source, transfer takes them from the row rl, and ra-pa-ta says the paper's sentence."""
    trigger: SearchSettings = SMALL
    """How words are searched in the rows trigger and trigger-random, under one budget."""
    tactics: TacticSettings = field(default_factory=TacticSettings)
    """How tactics are written."""
    development: NumItems = 20
    """Dialogues in which each tactic is tried, beside those of the row."""
    learner_gpus: NonNegativeFloat = 0.0
    """GPUs, or a fraction of one, that an adversary's learner computes with."""
    runner_gpus: NonNegativeFloat = 0.0
    """GPUs, or a fraction of one, that each worker plays on while an adversary learns."""
    reinforce: ReinforceConfig = field(default_factory=lambda: reinforce.cheng2019().reinforce)
    """The adversary's learning rule."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.row_names():
            if name not in ROWS:
                raise ConfigError(f"no row is called {name!r}{nearest(name, ROWS)}", fix=f"rows: {','.join(ROWS)}")
        if TACTIC in self.row_names() and not self.attacker:
            fix = "name a chat model with --attacker: hf:FOLDER, gguf:FILE, openai:URL#MODEL, or path/file.py:Name"
            raise ConfigError("no attacker is named for the row tactic", where="--attacker", fix=fix)
        for name in self.defence_names():
            if name not in (FILTER, OWN_DEMAND):
                fix = f"defences: {FILTER},{OWN_DEMAND}"
                raise ConfigError(f"no defence is called {name!r}{nearest(name, (FILTER, OWN_DEMAND))}", fix=fix)
        trained = self.trained_names()
        if twice := next((name for name in trained if [self.target, *trained].count(name) > 1), ""):
            what, fix = "an agent stands in the table twice", "name each once, and the target with --target alone"
            raise ConfigError(what, where="--trained", got=twice, fix=fix)
        if self.seeds > 1 and self.adversary:
            what, fix = "several seeds train several adversaries, and one is named", "leave out --adversary, or --seeds"
            raise ConfigError(what, got=f"adversary={self.adversary}, seeds={self.seeds}", fix=fix)

    def row_names(self) -> list[str]:
        """Return the names in the setting `rows`."""
        return [name.strip() for name in self.rows.split(",")]

    def defence_names(self) -> list[str]:
        """Return the names in the setting `defences`."""
        return split_names(self.defences)

    def trained_names(self) -> list[str]:
        """Return the names of the trained counterparts."""
        return split_names(self.trained)

    def wanted(self) -> list[str]:
        """Return the requested rows; a table with defences or counterparts also has ordinary play, which shows their cost."""
        costs = PLAIN not in self.row_names() and (self.defences or self.trained)
        return [*([PLAIN] if costs else []), *self.row_names()]

    def left_out(self, met: str = "") -> list[str]:
        """Return the requested rows that the agent cannot have, because they read weights of another kind.

        Args:
            met: the attacked agent: a trained counterpart; the target if empty.
        """
        there = {*BLACK_BOX, TACTIC}
        there |= {*TRIGGERS} if is_readable_chat_model(met or self.target) else set()
        there |= set() if is_weightless(met or self.target) else {*SEARCHES}
        return [name for name in self.wanted() if name not in there]


def is_given(plugs: TransferSettings) -> bool:
    """Return True if the transfer sentences are given, so that no adversary is needed."""
    return bool(plugs.source or plugs.sentence)


def on_supervised() -> TableConfig:
    """Use table 2 for the supervised target (Cheng et al. 2019)."""
    return TableConfig(published="sv")


def on_rl() -> TableConfig:
    """Use table 2 for the goal-based target, judged by the supervised agent (Cheng et al. 2019)."""
    return TableConfig(target="runs/rl", judge="runs/negotiator", published="rl")


def on_hardened() -> TableConfig:
    """Use table 6: the target after adversarial training, beside the RL target that it was (Cheng et al. 2019)."""
    return TableConfig(target="runs/minmax", judge="runs/negotiator", published="hardened", baseline="runs/attack-table-rl")


def at_fixed_turns() -> TableConfig:
    """Use table 7: the reactive attack on the goal-based target after 1, 2, 3 and 4 utterances (Cheng et al. 2019)."""
    return TableConfig(target="runs/rl", judge="runs/negotiator", rows=",".join(TURNS), published="turns")


def demo() -> TableConfig:
    """Use the small agents that parley demo trains; takes a few minutes."""
    small = TableConfig(target="runs/demo/target", adversary="runs/demo/adversary", corpus="embedded", dialogues=200)
    return replace(small, reinforce=reinforce.demo().reinforce)


ADVERSARY = "adversary"
"""Name of the stage that trains an adversary, and of its folder."""
_NO_PLUGS = TransferSettings()
_NO_DEFENCES: Mapping[str, DefenceConfig] = MappingProxyType({})


class TrainingTarget(NamedTuple):
    """A target against which a table trains adversaries.

    Args:
        agent: its name.
        defence: the defence around it.
        training_suffix: suffix of the names of their trainings.
        row_suffix: suffix of the names of their rows.
    """

    agent: str
    defence: DefenceConfig
    training_suffix: str
    row_suffix: str


def measured(config: TableConfig, met: str = "") -> set[str]:
    """Return the rows that are measured on the target, or on a trained counterpart."""
    wanted = {*config.wanted()} - {*config.left_out(met)}
    return wanted | ({"rl"} if "transfer" in wanted and not is_given(config.transfer) else set())


def training_targets(config: TableConfig, around: Mapping[str, DefenceConfig]) -> list[TrainingTarget]:
    """Return what adversaries train against: the target unless an adversary is named, defended targets, counterparts."""
    targets = [] if config.adversary else [TrainingTarget(config.target, DefenceConfig(), "", "")]
    targets += [TrainingTarget(config.target, defence, f"+{name}", f"+{name}{KNOWN}") for name, defence in around.items()]
    for number, agent in enumerate(config.trained_names(), start=1):
        suffixes = trained_suffix(number), trained_suffix(number, adaptive=True)
        targets.append(TrainingTarget(agent, DefenceConfig(), *suffixes))
    return [target for target in targets if "rl" in measured(config, "" if target.agent == config.target else target.agent)]


def adversaries_of(config: TableConfig) -> list[str]:
    """Return the names of the trainings of all adversaries."""
    targets = training_targets(config, defences_around(config.defence_names(), None))
    numbers = range(1, config.seeds + 1)
    return [nth_name(ADVERSARY + target.training_suffix, number) for target, number in product(targets, numbers)]


def _against(config: TableConfig, met: str) -> dict[str, Any]:
    """Return the settings of a row against an agent; all rows have the judge of the target's rows."""
    return {"target": met, "judge": config.judge if met == config.target else table_judge(config)}


def table_judge(config: TableConfig) -> str:
    """Return the judge of fluency in all rows; empty for none."""
    return judge_of(config.judge, (config.target, config.speaker))


def needs_of(stages: Mapping[str, Stage], path: Path) -> dict[str, list[str]]:
    """Return the stages whose agents or sentences each stage needs, by its name."""
    at = {display_path(path / name): name for name in stages}
    return {
        name: [at[run] for run in (getattr(settings, "speaker", ""), _source(settings)) if run in at]
        for name, (_, settings) in stages.items()
    }


def _source(settings: Any) -> str:
    """Return the run whose sentences or tactics a stage uses; empty for none."""
    return str(getattr(settings, "source", "") or getattr(settings, "transfer", _NO_PLUGS).source)


def defences_around(names: Sequence[str], limit: FilterLimit | None) -> dict[str, DefenceConfig]:
    """Return the wanted defences of a table, `FILTER` or `OWN_DEMAND`, by name.

    Args:
        names: names of defences.
        limit: the filter's limit; None without a filter.
    """
    highest = 0.0 if limit is None else limit.max_perplexity
    defences = {FILTER: DefenceConfig(max_perplexity=highest), OWN_DEMAND: DefenceConfig(own_demand=True)}
    return {name: defence for name, defence in defences.items() if name in names}


def defended_stages(planned: Mapping[str, Stage], seeds: int, around: Mapping[str, DefenceConfig]) -> dict[str, Stage]:
    """Return the rows of a table against each defended target; searches also with the filter's limit as a constraint.

    Args:
        planned: stages of the table by name, with the rows of the undefended target.
        seeds: number of trained adversaries.
        around: the defences by name.
    """
    stages: dict[str, Stage] = {}
    for row, number in product(ROWS, range(1, seeds + 1)):
        if row == TACTIC or nth_name(row, number) not in planned:
            continue
        job, settings = planned[nth_name(row, number)]
        for name, defence in around.items():
            against = replace(settings, defence=defence)
            stages[nth_name(f"{row}+{name}", number)] = (job, against)
            if defence.max_perplexity and isinstance(search := getattr(settings, "search", None), SearchConfig):
                minding = replace(search, max_perplexity=defence.max_perplexity)
                stages[nth_name(f"{row}+{name}{KNOWN}", number)] = (job, replace(against, search=minding))
    return stages


def planned_stages(config: TableConfig, path: Path, around: Mapping[str, DefenceConfig] = _NO_DEFENCES) -> dict[str, Stage]:
    """Return all stages of a table: adversaries, rows on the target, and rows on its trained counterparts.

    `defended_stages` adds attacks on defended targets that were made for the undefended one.

    Args:
        config: the settings.
        path: folder of the table's run.
        around: the defences that adversaries learn against, by name.
    """
    rows, wanted = _rows(config, path), measured(config)
    made = {name: stage for chain in chains_of(config, path, around) for name, stage in chain.items()}
    first = {name: stage for name, stage in made.items() if name == ADVERSARY}
    planned = {**first, **{name: rows[name] for name in ROWS if name in wanted}, **made}
    for number, met in enumerate(config.trained_names(), start=1):
        wanted = measured(config, met)
        for row in (name for name in ROWS if name in wanted):
            if row in SEARCHES or row in TRIGGERS or row == TACTIC:
                job, settings = rows[row]
                planned[row + trained_suffix(number, adaptive=True)] = job, replace(settings, **_against(config, met))
            if row in TRIGGERS:
                continue
            extra = {"surrogate": config.target} if row in SEARCHES else {}
            extra |= {"source": display_path(path / TACTIC)} if row == TACTIC else {}
            for nth in range(1, config.seeds + 1):
                if (name := nth_name(row, nth)) in planned:
                    job, settings = planned[name]
                    other = replace(settings, **_against(config, met), **extra)
                    planned[nth_name(row + trained_suffix(number), nth)] = job, other
    return planned


def _rows(config: TableConfig, path: Path) -> dict[str, Stage]:
    """Return all rows on the target, with one adversary."""
    plugs = config.transfer
    given = is_given(plugs)
    speaker, adversary = config.speaker or config.target, config.adversary or display_path(path / ADVERSARY)
    how = shared(config, PlayedConfig) | {"target": config.target}
    collected = plugs if given else replace(plugs, source=display_path(path / "rl"))
    fixed = plugs if given else replace(plugs, sentence=PAPER_SENTENCE)
    rows: dict[str, Stage] = {
        PLAIN: (SELFPLAY, MatchConfig(adversary=speaker, **how)),
        "none": (SELFPLAY, MatchConfig(adversary=speaker, complementary=True, **how)),
        "rl": (ATTACK_RL, AttackConfig(speaker=adversary, **how)),
        "transfer": (TRANSFER_ROW, TransferConfig(speaker=speaker, transfer=collected, **how)),
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
    if TACTIC in config.row_names():
        tried = how | {"dialogues": config.development, "held_out": config.dialogues, "shard_size": None}
        rows[TACTIC] = (ATTACK_TACTIC, TacticConfig(attacker=config.attacker, search=config.tactics, **tried))
    return rows


def chains_of(config: TableConfig, path: Path, around: Mapping[str, DefenceConfig] = _NO_DEFENCES) -> list[dict[str, Stage]]:
    """Return each adversary's training and its rows of the table; the target's second has adversary-2, rl-2 and transfer-2.

    Args:
        config: the settings.
        path: folder of the table's run.
        around: the defences that adversaries learn against, by name.
    """
    training = reinforce.TrainReinforceConfig(
        target=config.target,
        corpus=config.corpus,
        data_root=config.data_root,
        env_runners=0 if config.trainers else config.workers,
        address="" if config.trainers else config.address,
        learner_gpus=config.learner_gpus,
        runner_gpus=config.runner_gpus,
        chat=config.chat,
        reinforce=config.reinforce,
    )
    rows, chains = _rows(config, path), []
    for (met, defence, of, end), number in product(training_targets(config, around), range(1, config.seeds + 1)):
        # All adversaries have one start, against any target: the named speaker, or the target's own checkpoint.
        start = config.speaker if is_weightless(config.target) else config.target if end else ""
        trained, played, plugged = (nth_name(name, number) for name in (ADVERSARY + of, f"rl{end}", f"transfer{end}"))
        seed = nth_seed(config.seed, number, ADVERSARY)
        attack, settings = rows["rl"]
        judged: dict[str, Any] = {"defence": defence, "judge": table_judge(config)} if defence.wanted else {}
        against = _against(config, met) | judged
        chain: dict[str, Stage] = {
            trained: (reinforce.TRAIN_ADVERSARY, replace(training, target=met, learner=start, seed=seed, **judged)),
            played: (attack, replace(settings, **against, speaker=display_path(path / trained))),
        }
        if "transfer" in measured(config) and not is_given(config.transfer):
            attack, settings = rows["transfer"]
            # Against a target that yields little, hardly any dialogue is won by more.
            least = min(settings.transfer.min_advantage, 1) if end else settings.transfer.min_advantage
            source = replace(settings.transfer, source=display_path(path / played), min_advantage=least)
            chain[plugged] = (attack, replace(settings, **against, transfer=source))
        chains.append(chain)
    return chains


def strongest_attacks(path: Path, config: TableConfig) -> dict[str, Estimate]:
    """Return the gain of the strongest attack by column; each adversary of several trainings is an attack of its own.

    A target without counterparts or defences has no such line: its attacks are one column.
    """
    metrics: dict[str, Estimate] = {}
    columns = list(suffixes_of(config.trained_names()).values())
    # Rows against defences that an earlier command measured stay in the table.
    if sum(any((path / f"{row}{end}" / SUMMARY).is_file() for row in UNATTACKED for end in ends) for ends in columns) < 2:
        return metrics
    for ends in columns:
        attacks = (row + end for row in ROWS if row not in (*UNATTACKED, TACTIC) for end in dict.fromkeys(ends))
        folders = (path / nth_name(attack, number) for attack in attacks for number in range(1, config.seeds + 1))
        gains = [gained for folder in folders if (folder / SUMMARY).is_file() and (gained := gains_in(folder))]
        metrics[f"{STRONGEST}{ends[0]}.advantage"] = strongest_attack(gains)
    return {name: estimate for name, estimate in metrics.items() if estimate.n}
