"""The settings of adversarial training: who is hardened, how long, and how it is measured."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from parley.engine.core.verbs.repeated import RepeatedConfig
from parley.engine.negotiation.attacks.opponents import OpponentConfig
from parley.engine.negotiation.attacks.settings import ReinforceConfig
from parley.engine.negotiation.verbs import reinforce
from parley.engine.negotiation.verbs.exploitability import MeasuringConfig
from parley.envs.core.config import check
from parley.envs.core.ranges import NonNegativeFloat, NonNegativeInt, NumItems, PositiveInt


@dataclass(frozen=True, kw_only=True)
class MinMaxConfig(MeasuringConfig, RepeatedConfig):
    """Who is hardened, how long, and how it is measured."""

    target: str = "runs/rl"
    """The target at the start: run or checkpoint folder."""
    adversary: str = ""
    """Adversary that the target meets from the first round on: trained against it already, or any agent's name."""
    speaker: str = ""
    """Where adversaries start, and what their KL guard compares with: the target's start when empty."""
    partner: str = ""
    """Ordinary partner of plain play, such as the supervised agent or scripted; the target's start when empty."""
    judge: str = ""
    """Checkpoint whose perplexity measures fluency; when empty, the target as it was before any reinforcement."""
    rounds: NumItems = 6
    """Rounds at most."""
    adversaries: Literal["continued", "fresh", "mixture"] = "continued"
    """The last one trained on (paper), best responses that measured the round before, or one to the targets' mixture (PSRO)."""
    meta: Literal["uniform", "prioritised", "nash"] = "nash"
    """For mixture: how targets and adversaries so far are mixed by their payoffs; replaces opponents.sampling."""
    patience: PositiveInt = 3
    """Rounds without gain after which the campaign stops."""
    least_gain: NonNegativeFloat = 0.1
    """Points by which exploitability must fall to count as gain."""
    plain_loss: NonNegativeFloat = 0.5
    """Points of plain score that the result may have lost against the start."""
    num_adversaries: NumItems = 1
    """Fresh adversaries, from seeds of their own, that measure the target of a round."""
    num_final_adversaries: NumItems = 1
    """Fresh adversaries that are trained against the start, and as many against the result and the control, at last."""
    control: bool = False
    """Also train the start as long in ordinary play alone, and measure it as the result: what training alone explains."""
    budget: NumItems = 12_800
    """Dialogues that each of them learns from; a round's own phases have attack.dialogues and defence.dialogues."""
    dialogues: NumItems = 1000
    """Dialogues of each measurement."""
    choosing: NumItems = 200
    """Dialogues of each pair, at most as many as measure, in which known adversaries play a target; they choose the best."""
    perplexity_limit: float = 1.5
    """Perplexity, as a multiple of that at the start of a phase, from which the phase counts as diverged; 0 for no limit."""
    retries: NonNegativeInt = 3
    """Times that a phase is done again, each time at half the rate, before the campaign gives up."""
    trainers: NonNegativeInt = 0
    """Ray actors that train: campaigns if there are several --seeds, else fresh adversaries, and beside the rounds the control;
    0 trains in this process."""
    opponents: OpponentConfig = field(default_factory=OpponentConfig)
    """Whom the target meets."""
    attack: ReinforceConfig = field(default_factory=lambda: replace(reinforce.cheng2019().reinforce, dialogues=12_800))
    """The adversary's learning rule; its dialogues are the length of a phase."""
    defence: ReinforceConfig = field(default_factory=lambda: reinforce.hardened().reinforce)
    """The target's learning rule; its dialogues are the length of a phase."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "perplexity_limit", self.perplexity_limit == 0 or self.perplexity_limit > 1, "0, or above 1")
