"""Settings of `parley attack table`, and presets for tables 2, 6 and 7 of Cheng et al. 2019."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from parley.engine.core.verbs.repeated import RepeatedConfig
from parley.engine.negotiation.attacks.settings import ReinforceConfig, SearchConfig, TacticSettings
from parley.engine.negotiation.metrics.attack_table import PLAIN, ROWS, SEARCHES, TABLE_2, TACTIC, TRIGGERS, TURNS
from parley.engine.negotiation.verbs import reinforce
from parley.engine.negotiation.verbs.agents import is_weightless, split_names
from parley.engine.negotiation.verbs.attack import TransferSettings
from parley.engine.negotiation.verbs.defended import FILTER, OWN_DEMAND
from parley.engine.negotiation.verbs.match import PlayedConfig
from parley.engine.negotiation.verbs.trigger import SMALL, is_readable_chat_model
from parley.engine.triggers.methods.settings import SearchSettings
from parley.envs.core.errors import ConfigError
from parley.envs.core.ranges import NonNegativeFloat, NumItems, PositiveShare
from parley.envs.core.registry import nearest

BLACK_BOX = (PLAIN, "none", "rl", "transfer")
"""Rows that only play with the target."""
PLAYED = {*BLACK_BOX, *TRIGGERS, TACTIC}
"""Rows that need no negotiator of Parley's own as their target."""


@dataclass(frozen=True, kw_only=True)
class TableConfig(PlayedConfig, RepeatedConfig):
    """Who is attacked, through whom, which rows are wanted; rl and transfer are of as many adversaries as seeds."""

    target: str = "runs/negotiator"
    """The attacked agent: run or checkpoint folder, or any agent's name; the rows that read weights need some."""
    speaker: str = ""
    """Checkpoint that speaks for the attacker wherever no attack does; the target's own when empty, if it has one."""
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
    """Another table's run, such as of the target before it was hardened, whose advantages stand beside."""
    dialogues: NumItems = 500
    """Dialogues of each row."""
    corpus: str = "dealornodeal"
    """Corpus that the target was fitted to, where an adversary is trained or a filter chosen."""
    search: SearchConfig = field(default_factory=SearchConfig)
    """How words are searched; at a fixed turn a search goes on past its goal, in the combined attacks it does not."""
    transfer: TransferSettings = field(default_factory=TransferSettings)
    """What is plugged in; without a source, transfer takes it from the row rl, and ra-pa-ta says the paper's sentence."""
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
            raise ConfigError("nobody is named who writes the tactics of the row tactic", where="--attacker", fix=fix)
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
        """The rows that are wanted."""
        return [name.strip() for name in self.rows.split(",")]

    def defence_names(self) -> list[str]:
        """The defences that are wanted."""
        return split_names(self.defences)

    def trained_names(self) -> list[str]:
        """The trained counterparts."""
        return split_names(self.trained)

    def wanted(self) -> list[str]:
        """The rows that are wanted; ordinary play is one of them where the table has defences, which cost something there."""
        costs = PLAIN not in self.row_names() and (self.defences or self.trained)
        return [*([PLAIN] if costs else []), *self.row_names()]

    def left_out(self, met: str = "") -> list[str]:
        """The wanted rows that cannot be measured: they read weights of another kind than there are.

        Args:
            met: who is attacked: a trained counterpart; the target when empty.
        """
        there = {*BLACK_BOX, TACTIC}
        there |= {*TRIGGERS} if is_readable_chat_model(met or self.target) else set()
        there |= set() if is_weightless(met or self.target) else {*SEARCHES}
        return [name for name in self.wanted() if name not in there]


def is_given(plugs: TransferSettings) -> bool:
    """Whether it is said what transfer plugs in, so that no adversary is asked."""
    return bool(plugs.source or plugs.sentence)


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
    small = TableConfig(target="runs/demo/target", adversary="runs/demo/adversary", corpus="embedded", dialogues=200)
    return replace(small, reinforce=reinforce.demo().reinforce)
