"""Settings of the attacks that learn and of those that search. Torch-free, so that help starts fast."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from parley.envs.core.config import Configuration, NonNegativeFloat, NumItems, PositiveFloat, PositiveInt, PositiveShare, check

AttackKind = Literal["reactive", "preemptive", "ra-pa-da", "ra-pa-ta"]
"""The white-box attacks of Cheng et al. 2019."""
FIXED_TURN_KINDS: tuple[AttackKind, ...] = ("reactive", "preemptive")
"""Attacks that act once, at a fixed turn; the others try at every turn."""


RELEASED_GUARD = 0.625
"""`supervised_weight` as strong as the released guard: one supervised step of rate .5 beside four dialogues of rate .2, each
clipped to norm 1 (`clipping` "parts")."""


@dataclass(frozen=True, kw_only=True)
class ReinforceConfig(Configuration):
    """Settings of the training of one side by dialogues with a frozen partner."""

    topic: ClassVar[str] = "train rl"
    added: ClassVar[Mapping[str, Any]] = {"clipping": "whole"}

    reward: Literal["points", "advantage"] = "points"
    """Own points (goal-based agent), or own minus the partner's points (RL attack, and adversarial training, eq. 9)."""
    complementary: bool = False
    """The target alone chooses and the adversary is given the complement (the attack's rule)."""
    dialogues: NumItems = 16_000
    """Dialogues that are played and learned from in all."""
    dialogues_per_update: NumItems = 64
    """Dialogues played for each gradient step."""
    overlap: bool = False
    """Play while the update before is made, with weights one update older, so that env runners and learner work at once."""
    gamma: PositiveShare = 0.95
    """Discount per own word, counted back from the last."""
    scaling: Literal["none", "deviation", "sign"] = "none"
    """Scale of a reward less the baseline, which is the mean of the training so far: none (papers), per running
    deviation, or its sign alone."""
    optimiser: Literal["adam", "sgd"] = "adam"
    """Adam, or SGD with Nesterov momentum 0.1 (released code)."""
    learning_rate: PositiveFloat = 5e-4
    """Step size."""
    temperature: PositiveFloat = 0.5
    """Of the learner's and the partner's word distributions."""
    supervised_weight: NonNegativeFloat = 1.0
    """Weight of the supervised loss on corpus dialogues in each step; guards against language drift. 0 turns it off."""
    clipping: Literal["whole", "parts"] = "whole"
    """Clip the whole gradient to norm 1; or dialogues and supervised loss apart (released code), so that supervised_weight
    is the guard's share whatever the scale of rewards."""
    supervised_batch: NumItems = 16
    """Corpus dialogues in each step."""
    kl_weight: NonNegativeFloat = 0.0
    """Weight of KL(learner || starting model) on the learner's own words; the other guard. 0 turns it off."""
    scenarios: Literal["random", "selfplay"] = "random"
    """Random legal scenarios, or the corpus' self-play scenarios, each pass in an order of its own."""
    max_turns: NumItems = 20
    """Utterances after which the end of a dialogue is forced."""
    stalling_penalty: NonNegativeFloat = 0.0
    """Points that the learner loses in a dialogue whose end is forced. Without it a target learns to talk for ever."""

    clip: ClassVar[float] = 1.0
    """Largest norm of the whole gradient."""
    max_lost: ClassVar[float] = 0.1
    """Share of an update's dialogues in which a user's own agent may fail; they are left out, and training goes on. All
    trainings of the papers and of ours have both."""

    @property
    def updates(self) -> int:
        """Return the number of gradient steps; the last one has a whole batch too."""
        return math.ceil(self.dialogues / self.dialogues_per_update)


@dataclass(frozen=True, kw_only=True)
class DefenceConfig(Configuration):
    """Defences around the target, which is not trained for them."""

    topic: ClassVar[str] = "selfplay"

    max_perplexity: NonNegativeFloat = 0.0
    """The target hears one <unk> for a sentence that is more perplexing to the judge. 0: no filter."""
    own_demand: bool = False
    """The target does not end the talk if it would choose less than its last demand; it repeats that demand."""

    @property
    def wanted(self) -> bool:
        """Return True if any defence is set."""
        return self.max_perplexity > 0 or self.own_demand


@dataclass(frozen=True, kw_only=True)
class SearchConfig(Configuration):
    """Settings of the search for the words of an adversarial sentence."""

    topic: ClassVar[str] = "attack ra-pa-da"

    loss: Literal["hinge", "released", "outcome"] = "hinge"
    """Hinge over the target's logits (paper), the released code's, or the points alone: decision-based, one choice a query."""
    kappa: NonNegativeFloat = 0.0
    """Margin of the hinge in logits; larger asks for a surer choice."""
    constraint: Literal["hard", "soft"] = "hard"
    """The target must end the talk (paper), or the loss has a penalty for its distance from that (released code)."""
    penalty: NonNegativeFloat = 1.0
    """Weight of the soft constraint."""
    end_margin: NonNegativeFloat = 0.0
    """Logits by which <selection> must lead the target's other words under the hard constraint."""
    proposals: Literal["pad-scan", "exhaustive", "gradient", "random"] = "pad-scan"
    """The best place by padding it out, then every word there (paper); every word everywhere; best by gradient; by chance."""
    candidates: PositiveInt = 512
    """Candidates for each replaced word, with gradient or random proposals."""
    max_replacements: PositiveInt = 2
    """Words of a sentence that may be replaced."""
    allow_special: bool = False
    """Offer <unk>, <selection>, <pad> and the speaker markers as words too (released code)."""
    goal: float = 5.0
    """Advantage in points from which a reactive search counts as successful."""
    preemptive_goal: float = 2.0
    """Expected advantage in points from which a preemptive search counts as successful."""
    stop_at_goal: bool = False
    """A successful search replaces no further word; otherwise it goes on while that gains something."""
    replies: PositiveInt = 16
    """Replies of the target over which a preemptive sentence is judged."""
    screening_replies: PositiveInt = 2
    """Replies over which every candidate of a preemptive search is judged first."""
    finalists: PositiveInt = 24
    """Candidates of a preemptive search that go on to be judged over all replies."""
    max_perplexity: NonNegativeFloat = 0.0
    """Sentences above this perplexity under the judge are no candidates: an attack on a filter. 0: no limit."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "screening_replies", self.screening_replies <= self.replies, "at most replies")
        decided = self.loss == "outcome"
        check(self, "proposals", not (decided and self.proposals == "gradient"), "anything but gradient with the loss outcome")
        check(self, "constraint", not (decided and self.constraint == "soft"), "hard with the loss outcome")
        check(self, "end_margin", not (decided and self.end_margin > 0), "0 with the loss outcome")


@dataclass(frozen=True, kw_only=True)
class TacticSettings(Configuration):
    """Settings of an attacker that writes tactics for a chat model."""

    topic: ClassVar[str] = "attack tactic"

    rounds: PositiveInt = 5
    """Times that each stream asks for a tactic; all but the first see the results of earlier ones."""
    streams: PositiveInt = 3
    """Streams side by side, each with a history of its own."""
    controls: str = "gains,blind"
    """Attackers beside it, with as many tactics: gains sees no transcripts, blind sees nothing; between commas; or none."""
    transcripts: PositiveInt = 3
    """Dialogues of the last tactic that the attacker reads, from worst to best; fewer where its context holds no more."""
    memory: PositiveInt = 4
    """Earlier tactics with their gains in its prompt, the best among them."""
    temperature: NonNegativeFloat = 1.0
    """Of the attacker's answers; at 0 all streams write the same."""
    max_words: PositiveInt = 80
    """Words of a tactic at most; a longer one is asked for once more, and then counts as none."""
    max_tokens: PositiveInt = 200
    """Tokens of an attacker's answer at most."""
