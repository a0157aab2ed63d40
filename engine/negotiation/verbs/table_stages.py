"""The stages of a table of attacks: which rows are measured, whom an attack is made for, and what is trained first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from parley.engine.core.runs.layout import SUMMARY
from parley.engine.core.stats.statistics import Estimate
from parley.engine.core.verbs.composite import Stage
from parley.engine.core.verbs.repeated import nth_name, nth_seed
from parley.engine.negotiation.attacks.settings import DefenceConfig
from parley.engine.negotiation.attacks.transfer import PAPER_SENTENCE
from parley.engine.negotiation.metrics.attack_table import (
    KNOWN,
    PLAIN,
    ROWS,
    SEARCHES,
    TACTIC,
    TRIGGERS,
    TURNS,
    UNATTACKED,
    around_trained,
)
from parley.engine.negotiation.metrics.targets_table import STRONGEST, endings_of, strongest_attack
from parley.engine.negotiation.verbs import reinforce, whitebox
from parley.engine.negotiation.verbs.agents import is_weightless
from parley.engine.negotiation.verbs.attack import ATTACK_RL, TRANSFER_ROW, AttackConfig, TransferConfig, TransferSettings
from parley.engine.negotiation.verbs.defended import defences_around
from parley.engine.negotiation.verbs.exploitability import gains_in
from parley.engine.negotiation.verbs.judge import judge_of
from parley.engine.negotiation.verbs.match import SELFPLAY, MatchConfig, PlayedConfig
from parley.engine.negotiation.verbs.table_config import TableConfig, is_given
from parley.engine.negotiation.verbs.tactic import ATTACK_TACTIC, TacticConfig
from parley.engine.negotiation.verbs.trigger import ATTACK_TRIGGER
from parley.envs.core.config import shared
from parley.envs.core.storage.uris import display_path

ADVERSARY = "adversary"
"""Name of the stage that trains one; also of its folder."""
_NO_PLUGS = TransferSettings()
_NO_DEFENCES: Mapping[str, DefenceConfig] = MappingProxyType({})


class Learned(NamedTuple):
    """Whom adversaries of a table's own learn against.

    Args:
        met: the agent.
        defence: what stands around it.
        of: ends the names of their trainings.
        end: ends the names of their rows.
    """

    met: str
    defence: DefenceConfig
    of: str
    end: str


def measured(config: TableConfig, met: str = "") -> set[str]:
    """The rows that are measured on the target, or on a trained counterpart."""
    wanted = {*config.wanted()} - {*config.left_out(met)}
    return wanted | ({"rl"} if "transfer" in wanted and not is_given(config.transfer) else set())


def learned(config: TableConfig, around: Mapping[str, DefenceConfig]) -> list[Learned]:
    """Whom adversaries learn against: the target, unless one is named, the target behind each defence, its counterparts."""
    found = [] if config.adversary else [Learned(config.target, DefenceConfig(), "", "")]
    found += [Learned(config.target, defence, f"+{name}", f"+{name}{KNOWN}") for name, defence in around.items()]
    for number, met in enumerate(config.trained_names(), start=1):
        found.append(Learned(met, DefenceConfig(), around_trained(number), around_trained(number, adaptive=True)))
    return [one for one in found if "rl" in measured(config, "" if one.met == config.target else one.met)]


def adversaries_of(config: TableConfig) -> list[str]:
    """The names of the trainings of all adversaries."""
    ends = [one.of for one in learned(config, defences_around(config.defence_names(), None))]
    return [nth_name(ADVERSARY + of, number) for of, number in product(ends, range(1, config.seeds + 1))]


def _against(config: TableConfig, met: str) -> dict[str, Any]:
    """The settings of a row against an agent; all rows have the judge that the target's have."""
    return {"target": met, "judge": config.judge if met == config.target else table_judge(config)}


def table_judge(config: TableConfig) -> str:
    """Who judges fluency in all rows; empty for nobody."""
    return judge_of(config.judge, (config.target, config.speaker))


def needs_of(stages: Mapping[str, Stage], path: Path) -> dict[str, list[str]]:
    """The stages whose agents or sentences each stage plays with, by its name."""
    at = {display_path(path / name): name for name in stages}
    return {
        name: [at[run] for run in (getattr(each, "speaker", ""), _source(each)) if run in at]
        for name, (_, each) in stages.items()
    }


def _source(settings: Any) -> str:
    """The run whose sentences or tactics a stage plays with; empty for none."""
    return str(getattr(settings, "source", "") or getattr(settings, "transfer", _NO_PLUGS).source)


def planned_stages(config: TableConfig, path: Path, around: Mapping[str, DefenceConfig] = _NO_DEFENCES) -> dict[str, Stage]:
    """All stages of a table: adversaries, rows on the target, and rows on its trained counterparts.

    Attacks that were not made for a defence are no part of it (`defended_stages`).

    Args:
        config: what is asked for.
        path: of the table's run.
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
                planned[row + around_trained(number, adaptive=True)] = job, replace(settings, **_against(config, met))
            if row in TRIGGERS:
                continue
            found = {"surrogate": config.target} if row in SEARCHES else {}
            found |= {"source": display_path(path / TACTIC)} if row == TACTIC else {}
            for nth in range(1, config.seeds + 1):
                if (name := nth_name(row, nth)) in planned:
                    job, settings = planned[name]
                    other = replace(settings, **_against(config, met), **found)
                    planned[nth_name(row + around_trained(number), nth)] = job, other
    return planned


def _rows(config: TableConfig, path: Path) -> dict[str, Stage]:
    """All rows on the target, those of a single adversary."""
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
    """Each adversary's training, and its rows of the table: adversary-2, rl-2 and transfer-2 of the target's second one.

    Args:
        config: what is asked for.
        path: of the table's run.
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
    for (met, defence, of, end), number in product(learned(config, around), range(1, config.seeds + 1)):
        # All adversaries start alike, whomever they learn against; the target's own is the start where none is named.
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
            # Of a target that yields little hardly any dialogue is won by more.
            least = min(settings.transfer.min_advantage, 1) if end else settings.transfer.min_advantage
            source = replace(settings.transfer, source=display_path(path / played), min_advantage=least)
            chain[plugged] = (attack, replace(settings, **against, transfer=source))
        chains.append(chain)
    return chains


def strongest_attacks(path: Path, config: TableConfig) -> dict[str, Estimate]:
    """Return what the strongest attack gains by column, each adversary of several trainings an attack of its own.

    Nothing for a target that stands alone: its attacks are one column, without a last line.
    """
    metrics: dict[str, Estimate] = {}
    columns = list(endings_of(config.trained_names()).values())
    # What an earlier command measured against defences stays in the table.
    if sum(any((path / f"{row}{end}" / SUMMARY).is_file() for row in UNATTACKED for end in ends) for ends in columns) < 2:
        return metrics
    for ends in columns:
        attacks = (row + end for row in ROWS if row not in (*UNATTACKED, TACTIC) for end in dict.fromkeys(ends))
        folders = (path / nth_name(attack, number) for attack in attacks for number in range(1, config.seeds + 1))
        gains = [gained for folder in folders if (folder / SUMMARY).is_file() and (gained := gains_in(folder))]
        metrics[f"{STRONGEST}{ends[0]}.advantage"] = strongest_attack(gains)
    return {name: estimate for name, estimate in metrics.items() if estimate.n}
