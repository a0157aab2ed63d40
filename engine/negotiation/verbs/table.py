"""Every attack on one target, side by side: `parley attack table` (the rows of Cheng et al. 2019, tables 2, 6 and 7).

`recipes/attack_table.yaml` says how each attack is made and what the tables show; this module says which attacks meet whom. All
are played on the same scenarios. An attack that needs a trained adversary trains one first, unless it is named. Attacks on a
defended target and on trained counterparts are those made for the target, and those made for the one that they meet.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

from parley.engine.core.runs.documents import SUMMARY
from parley.engine.core.runs.remote_sync import fetched_run
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.statistics import NOTHING, Estimate, count
from parley.engine.core.verbs import sharded
from parley.engine.core.verbs.checkpoints import checkpoint_folder
from parley.engine.core.verbs.job import USAGE, Reporter, flat
from parley.engine.core.verbs.recipe import read_recipe
from parley.engine.core.verbs.recipe_job import PlannedRecipe, SettingsRecipe
from parley.engine.core.verbs.repeated import RepeatedConfig, nth_name, nth_seed
from parley.engine.negotiation.attacks.settings import ReinforceConfig, SearchConfig, TacticSettings
from parley.engine.negotiation.attacks.tactics import NONE, PAPER_SENTENCE, REFINED, encode_sentence
from parley.engine.negotiation.metrics.attack import ATTACKS, UNUSUAL_PROBABILITY
from parley.engine.negotiation.verbs import training as reinforce
from parley.engine.negotiation.verbs import whitebox
from parley.engine.negotiation.verbs.agents import (
    is_weightless,
    judge_of,
    require_learner,
    require_one_game,
    require_partner,
    shared_vocabulary,
    split_names,
    start_of,
    who_judges,
    words_of,
)
from parley.engine.negotiation.verbs.defended import FilterLimit, chosen_limit
from parley.engine.negotiation.verbs.match import PlayedConfig, seconds_per_dialogue
from parley.engine.negotiation.verbs.negotiator import require_words
from parley.engine.negotiation.verbs.tactic import TacticConfig
from parley.engine.negotiation.verbs.trigger import SMALL, is_readable_chat_model
from parley.engine.negotiation.verbs.whitebox import TransferSettings
from parley.engine.triggers.methods.settings import SearchSettings
from parley.envs.core.config import NonNegativeFloat, NumItems, PositiveShare, to_dict
from parley.envs.core.errors import ConfigError, RunError
from parley.envs.core.registry import nearest
from parley.envs.core.storage.uris import display_path
from parley.envs.negotiation.agents import is_chat_model
from parley.envs.negotiation.domain import DEAL_OR_NO_DEAL
from parley.policies.chat.answers import usage_of

PLAIN = "plain"
"""The row of ordinary play, in which both sides choose; it shows the cost of a defence."""
TABLE_2: dict[str, str] = {
    "none": "no attack",
    "rl": "RL attack",
    "transfer": "transfer",
    "reactive": "reactive",
    "preemptive": "preemptive",
    "ra-pa-da": "RA+PA+DA",
    "ra-pa-ta": "RA+PA+TA",
}
"""Titles of the default rows by name; "none" is the speaker without any attack."""
TURNS: dict[str, int] = {f"reactive-{n}": n for n in (1, 2, 3, 4)}
"""Rows of table 7: the reactive attack by n, the number of utterances of both sides before the attack's sentence.

With n = 2, as in the released runs and in the row "reactive", the adversary speaks, the target answers, and the third utterance
is the attack's. The adversary begins if n is even, the target if it is odd.
"""
TRIGGERS: dict[str, str] = {"trigger": "searched words", "trigger-random": "random words, as many tried"}
"""Rows of chat models with readable weights, the control among them."""
TACTIC = "tactic"
"""The row of an attacker that refines tactics; it also adds the rows of `TACTICS`."""
TACTICS: dict[str, str] = {"none": "chat player, no tactic", "gains": "tactics by gains", "blind": "tactics drawn blind"}
"""Titles of the rows beside a refined tactic, by their names in `engine.negotiation.attacks.tactics.ARMS`."""
ROWS: dict[str, str] = {
    PLAIN: "plain play, both choose",
    **TABLE_2,
    **{row: f"reactive after {n} utterance{'s' * (n > 1)}" for row, n in TURNS.items()},
    **TRIGGERS,
    TACTIC: "refined tactic",
}
"""Titles of all rows by name, in the order of a full table."""
FILTER, OWN_DEMAND = "filter", "own-demand"
DEFENCES = {FILTER: "perplexity filter", OWN_DEMAND: "own demand"}
"""Titles of the defences of a table: a perplexity filter, a refusal to end without its own demand."""
LEARNED = ("rl", "transfer")
"""Rows that need a trained adversary."""
SEARCHES = tuple(row for row in ROWS if row not in (PLAIN, "none", *LEARNED, *TRIGGERS, TACTIC))
"""Rows whose search reads a negotiator's weights."""
BLACK_BOX = (PLAIN, "none", *LEARNED)
"""Rows that only play with the target."""
PLAYED = {*BLACK_BOX, *TRIGGERS, TACTIC}
"""Rows that need no negotiator of Parley's own as their target."""
ADVERSARY = "adversary"
"""Name of the stage that trains an adversary, and of its folder."""
ALL_ATTACKS = "All attacks"
"""Heading of the table of all rows."""
_SECONDS_PER_TRAINED_DIALOGUE = 0.0225
"""Measured on one core with the published network sizes; the live display estimates again from the run itself."""


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
    """Sentences to plug in; without a source, transfer takes them from the row rl, and ra-pa-ta says the released one."""
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


class Meeting(NamedTuple):
    """An agent that attacks meet.

    Args:
        end: suffix of the names of the attacks on it.
        agent: its name.
        title: its title in the rows; empty for the target.
        column: its column in the table by target.
        defence: the defence around it.
        adapted: True if the attacks are made for it, and not for the target.
        learned: suffix of the adversary that learned against it.
    """

    end: str
    agent: str
    title: str
    column: str
    defence: str = ""
    adapted: bool = False
    learned: str = ""


@dataclass(frozen=True)
class AttackPlan:
    """The attacks of a table.

    Args:
        config: the settings.
        path: folder of the table's run, whose measured rows stay; None if it is not known.
        limit: the limit of the filter; None before it is chosen, or without a filter.
    """

    config: TableConfig
    path: Path | None = None
    limit: FilterLimit | None = None

    def is_measured(self, name: str) -> bool:
        """Return True if an earlier command has measured a row."""
        return self.path is not None and (self.path / name / SUMMARY).is_file()

    @cached_property
    def meetings(self) -> list[Meeting]:
        """The agents that attacks meet, the target first."""
        target = self.config.target
        meetings = [Meeting("", target, "", "target")]
        for name, title in DEFENCES.items():
            known = f"{title.removeprefix('perplexity ')} known to the attack"
            meetings.append(Meeting(f"+{name}", target, title, name, name))
            meetings.append(Meeting(f"+{name}-known", target, known, name, name, True, f"+{name}"))
        for number, met in enumerate(self.config.trained_names(), start=1):
            end = f"trained{number}"
            meetings.append(Meeting(f"+{end}", met, met, end))
            meetings.append(Meeting(f"+{end}-adaptive", met, f"{met}, adaptive", end, "", True, f"+{end}"))
        return meetings

    def is_planned(self, row: str, meeting: Meeting) -> bool:
        """Return True if an attack on an agent is asked for, or was measured before."""
        trained, config = meeting.column.startswith("trained"), self.config
        here, on_target = measured(config, meeting.agent if trained else ""), measured(config)
        if not meeting.end:
            is_wanted = row in here
        elif meeting.adapted:
            searched = row in SEARCHES and meeting.defence == FILTER
            is_made = row in LEARNED or searched or (trained and row not in (PLAIN, "none"))
            is_wanted = is_made and row in here and not (row == "transfer" and (is_given(config.transfer) or "rl" not in here))
        else:
            is_wanted = row in here & on_target and row not in (TRIGGERS if trained else (TACTIC,))
        is_wanted = is_wanted and (not meeting.defence or meeting.defence in config.defence_names())
        return is_wanted or self.is_measured(row + meeting.end)

    @cached_property
    def attacks(self) -> dict[str, tuple[str, Meeting]]:
        """Each attack and whom it meets, by the name of its stage, in the order of the table."""
        return {row + meeting.end: (row, meeting) for row in ROWS for meeting in self.meetings if self.is_planned(row, meeting)}

    @cached_property
    def trainings(self) -> list[Meeting]:
        """The agents that adversaries learn against: the target, unless an adversary is named, and those with own attacks."""
        return [
            meeting
            for meeting in self.meetings
            if (meeting.adapted or not (meeting.end or self.config.adversary)) and f"rl{meeting.end}" in self.attacks
        ]

    def given(self) -> dict[str, Any]:
        """Return the settings of the recipe."""
        config, judge = self.config, table_judge(self.config)
        stages: dict[str, list[dict[str, Any]]] = {
            key: [] for key in (PLAIN, "none", *LEARNED, "fixed", "ra-pa-da", "ra-pa-ta", "triggers", TACTIC)
        }
        for row, meeting in self.attacks.values():
            key = "fixed" if row in TURNS or row in ("reactive", "preemptive") else "triggers" if row in TRIGGERS else row
            stages[key].append(self._facts(meeting) | self._attack(row, meeting))
        start, rule = config.speaker if is_weightless(config.target) else config.target, to_dict(config)
        trainings = [
            {
                **self._facts(meeting),
                "end": meeting.learned,
                # All adversaries have one start, against any target: the named speaker, or the target's own checkpoint.
                "learner": start if meeting.end or is_weightless(config.target) else "",
                "judge": judge if meeting.defence else "",
            }
            for meeting in self.trainings
        ]
        search = {key: value for key, value in rule["search"].items() if key != "stop_at_goal"}
        limit = "" if self.limit is None else f"; {self.limit}"
        plain = " but in plain play" if PLAIN in self.attacks else ""
        apart = config.trainers or not config.workers
        return {
            **{name: rule[name] for name in ("corpus", "dialogues", "reinforce", "learner_gpus", "runner_gpus", "attacker")},
            **{name: rule[name] for name in ("trigger", "tactics", "development", "baseline")},
            **stages,
            **self._compared(),
            "search": search,
            "agents": ", ".join((config.target, *config.trained_names())),
            "about": f"{config.dialogues:,} dialogues a row on the same {config.scenarios} scenarios, seed {config.seed}; "
            f"the target alone chooses{plain}; {who_judges(judge)}{limit}.",
            "seeds": [nth_seed(config.seed, number, ADVERSARY) for number in range(1, config.seeds + 1)],
            "trainings": trainings,
            "env_runners": 0 if apart else config.workers,
            "learners_at": "" if apart else config.address,
            "speaker": config.speaker or config.target,
            "sentences": rule["transfer"],
            "sentence": config.transfer.sentence if is_given(config.transfer) else PAPER_SENTENCE,
            "unusual": f"{1 / UNUSUAL_PROBABILITY:,.0f}",
            "notes": " ".join(self._notes()),
            "rows": list(self._rows()),
            "unpublished": not self.published,
        }

    def _facts(self, meeting: Meeting) -> dict[str, Any]:
        """Return the settings of every attack on an agent; all rows have the judge of the target's rows."""
        highest = 0.0 if self.limit is None else self.limit.max_perplexity
        defence = {"max_perplexity": highest * (meeting.defence == FILTER), "own_demand": meeting.defence == OWN_DEMAND}
        judge = self.config.judge if meeting.agent == self.config.target else table_judge(self.config)
        return {"end": meeting.end, "agent": meeting.agent, "judge": judge, "defence": defence}

    def _attack(self, row: str, meeting: Meeting) -> dict[str, Any]:
        """Return the settings of one attack on an agent."""
        config = self.config
        adversary = f"${{{ADVERSARY}{meeting.learned}.run}}" if meeting.adapted or not config.adversary else config.adversary
        source = config.transfer.source if is_given(config.transfer) else f"${{rl{meeting.end * meeting.adapted}.run}}"
        moved = meeting.column.startswith("trained") and not meeting.adapted
        least, highest = config.transfer.min_advantage, config.search.max_perplexity
        known = self.limit.max_perplexity if self.limit is not None and meeting.adapted and meeting.defence else highest
        judged = {"judge": table_judge(config)} if meeting.adapted and meeting.defence and row in LEARNED else {}
        return judged | {
            "attack": row,
            "words": row,
            "kind": "reactive" if row in TURNS else row,
            "turn": TURNS.get(row, whitebox.FIXED_TURN),
            "preset": "gcg" if row == "trigger" else "random",
            "adversary": adversary,
            "source": source,
            # Against a target that yields little, hardly any dialogue is won by more.
            "least": min(least, 1) if meeting.adapted else least,
            "surrogate": config.target if moved else "",
            "limit": known,
            "tactics": f"${{{TACTIC}.run}}" if moved else "",
        }

    def _titles(self) -> Iterator[tuple[str, str, str, Meeting]]:
        """Yield name, attack, title and opponent of each row; a tactic adds rows, and play without one is made for nobody."""
        for name, (row, meeting) in self.attacks.items():
            yield name, row, ROWS[row], meeting
        tactics = [meeting for row, meeting in self.attacks.values() if row == TACTIC]
        arms = TacticConfig(target="", search=self.config.tactics).arms
        for arm, title in ((arm, title) for arm, title in TACTICS.items() if arm in (NONE, *arms)):
            yield from ((f"{TACTIC}-{arm}{met.end}", arm, title, met) for met in tactics if not (arm == "none" and met.adapted))

    @property
    def published(self) -> Mapping[str, Mapping[str, float]]:
        """The published figures by row and column, of fitted negotiators, which are shown beside no other agent."""
        return {} if is_weightless(self.config.target) else ATTACKS.get(self.config.published, {})

    def _rows(self) -> Iterator[dict[str, Any]]:
        for name, row, title, meeting in self._titles():
            tactic = name.startswith(TACTIC)
            # A defended target is not forced, nor is one to the result of a search on another target.
            is_forced = not meeting.end or meeting.end.endswith("-adaptive")
            yield {
                "name": name,
                "stage": f"{TACTIC}{meeting.end}" if tactic else name,
                "label": f"{title}, {meeting.title}" if meeting.title else title,
                "of": "" if not tactic else f"{REFINED if row == TACTIC else row}.",
                "answers": f"{REFINED if row == TACTIC else row}.calls" if tactic else "answers_before",
                "fluency": "attack_ppl" if row in SEARCHES or row in TRIGGERS else "fluency_ppl",
                "forced": "forced_" if is_forced else "no_",
                "tried": "reads" if row in TRIGGERS else "not_tried",
                "illegal": "illegal_target" if is_chat_model(meeting.agent) else "not_asked",
                # The paper's row without an attack is ordinary play.
                "printed": {} if meeting.end or tactic else self.published.get({PLAIN: "none", "none": ""}.get(row, row), {}),
            }

    def _compared(self) -> dict[str, Any]:
        """Return columns and lines of the table by target; nothing if attacks meet the target alone."""
        names = dict.fromkeys(meeting.column for _, meeting in self.attacks.values())
        columns = [
            {"key": meeting.column, "name": meeting.title or "target"}
            for meeting in self.meetings
            if meeting.column in names and not meeting.adapted
        ]
        stages = {(row, meeting.column, meeting.adapted): name for name, (row, meeting) in self.attacks.items()}
        lines = []
        for row, of, title in (
            (PLAIN, "score_target", "plain play: target's points"),
            (PLAIN, "agreement", "plain play: agreement"),
            *((row, "advantage", title) for row, title in ROWS.items() if row not in (PLAIN, TACTIC)),
            (TACTIC, "none.advantage", TACTICS["none"]),
            (TACTIC, f"{REFINED}.advantage", ROWS[TACTIC]),
        ):
            for adapted in (False, True):
                # The target's own attacks are made for it.
                there = {name: stages[key] for name in names if (key := (row, name, adapted and name != "target")) in stages}
                if there and not (adapted and (there.keys() <= {"target"} or row == PLAIN or of == "none.advantage")):
                    line = f"{PLAIN}-{of}" if row == PLAIN else f"{row}-none" if of == "none.advantage" else row
                    suffix = ", adaptive" * adapted
                    lines.append({"row": f"{line}{'-adaptive' * adapted}", "label": title + suffix, "of": of, "stages": there})
        attacks = [f"targets.{shown['row']}" for shown in lines if shown["of"] == "advantage" and shown["row"] != "none"]
        return {
            "compared": [{}] if len(columns) > 1 else [],
            "columns": columns,
            "lines": lines,
            "strongest": [{"attacks": attacks}] if attacks else [],
        }

    def _notes(self) -> Iterator[str]:
        if any(meeting.agent != self.config.target for _, meeting in self.attacks.values()):
            yield "With another agent's name: the attack, made for the target and played against it; adaptive: made for it."
        if any(row == TACTIC for row, _ in self.attacks.values()):
            yield "Tactics: the attacker's model plays in dialogues of its own, none of which chose a tactic."


def measured(config: TableConfig, met: str = "") -> set[str]:
    """Return the rows that are measured on the target, or on a trained counterpart."""
    wanted = {*config.wanted()} - {*config.left_out(met)}
    return wanted | ({"rl"} if "transfer" in wanted and not is_given(config.transfer) else set())


def table_judge(config: TableConfig) -> str:
    """Return the judge of fluency in all rows; empty for none."""
    return judge_of(config.judge, (config.target, config.speaker))


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


def _announcement(config: TableConfig, num: int) -> str:
    """Return the number of adversaries to train first, and the time if no chat model takes part."""
    rule = config.reinforce
    dialogues = num * rule.updates * rule.dialogues_per_update
    minutes = max(1, round(dialogues * _SECONDS_PER_TRAINED_DIALOGUE / 60))
    long = f"about {minutes} minute{'s' * (minutes != 1)} of one core"
    if any(map(is_chat_model, (config.target, *config.trained_names()))):
        long = f"{dialogues:,} dialogues with a chat model, which decides how long it takes; reinforce.dialogues asks for fewer"
    reason = f"each target is met by adversaries of its own{', a defended one too' * bool(config.defences)}"
    why = reason if config.trained or config.defences else "no --adversary is named"
    which = "one is" if num == 1 else f"{num} are"
    updates = f"{rule.updates:,} update{'s' * (rule.updates != 1)}"
    return f"{why}, so {which} trained first: {updates} of {rule.dialogues_per_update} dialogues, {long}"


def _baseline_metrics(config: TableConfig) -> dict[str, Estimate]:
    """Return the metrics of the baseline table."""
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


@dataclass(frozen=True)
class PlannedTable(PlannedRecipe):
    """A table whose settings have been checked, with the figures of the baseline table."""

    before: Mapping[str, Estimate] = field(default_factory=dict)


class AttackTable(SettingsRecipe):
    """`parley attack table`."""

    resume_safe = (*sharded.RESUME_SAFE, "rows", "defences", "trained", "baseline", "trainers")

    def given(self, config: TableConfig, path: Path | None) -> dict[str, Any]:
        return AttackPlan(config, path).given()

    def shared(self, config: TableConfig) -> dict[str, Any]:
        """Return the settings of played dialogues; the recipe names all others."""
        own = {setting.name for setting in fields(PlayedConfig)}
        return {key: value for key, value in flat(to_dict(config)).items() if key.partition(".")[0] in own}

    def at_once(self, config: TableConfig) -> int:
        return max(1, config.trainers) if config.workers else config.trainers

    def pooled(self, prepared: PlannedRecipe) -> Collection[str]:
        """Return all attacks; those that need no adversary do not wait for the trainings."""
        is_pooled = bool(prepared.config.workers)
        return [name for name, (job, _) in prepared.stages.items() if is_pooled and job is not reinforce.TRAIN_ADVERSARY]

    def prepare(self, config: TableConfig, path: Path, reporter: Reporter) -> PlannedRecipe:
        require_partner(config.target, "--target")
        for met in config.trained_names():
            require_partner(met, "--trained")
        speaker = start_of(config.speaker, config.target, "--speaker")
        plan = AttackPlan(config, path)
        if plan.trainings or not set(config.row_names()) <= PLAYED:
            words = require_learner(speaker, "--speaker" if config.speaker else "--target", config.judge)
        else:
            require_partner(speaker, "--speaker")
            words = words_of([speaker, config.target])
        adversary = config.adversary if "rl" in {row for row, _ in plan.attacks.values()} else ""
        if adversary:
            require_partner(adversary, "--adversary")
        require_one_game(
            {f"--{name}": getattr(config, name) for name in ("target", "speaker", "judge")}
            | {"--adversary": adversary, **{f"--trained {met}": met for met in config.trained_names()}}
        )
        if words.game != DEAL_OR_NO_DEAL and config.published != "none":
            got = f"--published {config.published}, and agents of {words.game!r}"
            raise ConfigError(f"published figures are of {DEAL_OR_NO_DEAL!r}", got=got, fix="--published none")
        self._leave_out(config, speaker, reporter)
        if config.transfer.sentence and {"transfer", whitebox.RA_PA_TA} & measured(config):
            encode_sentence(config.transfer.sentence, words)
        before, numbers = _baseline_metrics(config), range(1, config.seeds + 1)
        names = [nth_name(ADVERSARY + meeting.learned, number) for meeting in plan.trainings for number in numbers]
        untrained = sum(checkpoint_folder(display_path(path / name)) is None for name in names)
        if untrained and config.reinforce.supervised_weight > 0:
            # Before there is a run folder, which is tied to its configuration.
            require_words(config.corpus, config.data_root, words, "or a trained adversary with --adversary")
        judge = table_judge(config)
        talk = config.corpus, config.data_root, config.false_alarms, config.device, config.chat
        is_filtered = any(meeting.defence == FILTER for _, meeting in plan.attacks.values())
        limit = chosen_limit(judge, *talk) if is_filtered else None
        if limit is not None:
            reporter.say(str(limit))
        if untrained:
            reporter.say(_announcement(config, untrained))
        recipe = read_recipe(self.file, given=AttackPlan(config, path, limit).given(), shared=self.shared(config))
        return PlannedTable(recipe, config, recipe.planned(path, self.shared(config)), before=before)

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

    def figures(self, prepared: PlannedRecipe, path: Path) -> Mapping[str, Estimate]:
        """Return the figures of an attack with its time, its requests to chat models, and those before on another target."""
        assert isinstance(prepared, PlannedTable)
        run, config, before = RunFolder.load(path), prepared.config, prepared.before
        metrics = run.metrics()
        if not metrics:
            return metrics
        stage = next(spec.name for spec in prepared.recipe.stages.values() if path.name in spec.folders)
        names = {f"before.{name}": f"{stage}.{name}" for name in ("advantage", "forced_advantage")}
        # Tables of earlier versions name no table in their metrics.
        others = {key: before.get(f"attacks.{name}", before.get(name, NOTHING)) for key, name in names.items()}
        # The other table has one figure of all its trainings.
        others = {key: estimate for key, estimate in others.items() if estimate.n and path.name == stage}
        needs = prepared.recipe.needs()
        earlier = dict.fromkeys(needs[path.name])
        earlier |= dict.fromkeys(need for name in earlier for need in needs[name])
        if stage.startswith(TACTIC):
            summaries = [RunFolder.load(path.parent / name).summary() or {} for name in (path.name, *earlier)]
            used = [summary[USAGE] for summary in summaries if summary.get(USAGE)]
            cost = {f"{REFINED}.cost": count(sum(usage["cost"] for usage in used), 1)} if used and config.chat.prices else {}
            return {**metrics, **cost, **others}
        # Matches without a search have no time among their metrics.
        metrics = {"seconds": seconds_per_dialogue(run), **metrics, **others}
        if (played := usage_of(path)) is not None:
            made = [usage for name in earlier if (usage := usage_of(path.parent / name)) is not None]
            metrics["answers_before"] = count(sum(usage.total.asked for usage in made), 1)
            if config.chat.prices:
                metrics["cost"] = count(sum(usage.cost(config.chat) for usage in (played, *made)), 1)
        return metrics

    def next_commands(self, config: TableConfig, path: Path) -> tuple[str, ...]:
        return (
            shlex.join(["parley", "play", config.target]),
            shlex.join(["parley", "report", display_path(path), "--picture", display_path(path / "report.png")]),
        )


_PRESETS = {
    "cheng2019": on_supervised,
    "cheng2019-rl": on_rl,
    "cheng2019-hardened": on_hardened,
    "cheng2019-turns": at_fixed_turns,
    "demo": demo,
}
ATTACK_TABLE = AttackTable("attack table", "negotiation/attack_table", TableConfig, _PRESETS)
