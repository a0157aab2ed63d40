"""Settings of adversarial training: order and speed of learning, rewards, baselines and teacher forcing.

Source: Li et al. 2017 (arXiv 1701.06547), section 3 and figure 1. Defaults are the paper's, where `released` differs it gives
those of the authors' code. Torch-free, so that help starts fast.
# Paper: silent on rounds, rates, optimiser and norms; a footnote has batches of 128. Ours: `ReplyLearning`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from parley.envs.core.config import Configuration, NonNegativeInt, NumItems, PositiveFloat, PositiveInt
from parley.envs.core.errors import ConfigError

Method = Literal["reinforce", "regs-mc", "regs-partial"]
METHODS: dict[Method, str] = {
    "reinforce": "every word earns what the reply earns",
    "regs-mc": "the mean over continuations of the reply up to the word",
    "regs-partial": "what a discriminator fitted to beginnings says of the reply up to the word",
}
"""Rewards of words."""
Baseline = Literal["critic", "mean", "none", "prefix", "literal"]


@dataclass(frozen=True, kw_only=True)
class RewardSettings(Configuration):
    """The rewards of words of generated replies, and the learning from human replies."""

    method: Method = "regs-mc"
    """reinforce: every word earns what the reply earns; regs-mc: the mean over continuations of the reply up to the word;
    regs-partial: what a discriminator fitted to beginnings says of the reply up to the word."""
    num_rollouts: PositiveInt = 5
    """Continuations of each beginning of a reply, with regs-mc."""
    max_words: NonNegativeInt = 0
    """Words of a reply at most, `</s>` not counted; 0: as many as the generator says; released: 40."""
    baseline: Literal["auto", "critic", "mean", "none", "prefix", "literal"] = "auto"
    """The baseline that is subtracted from a reward. critic: what a critic expects in the context; mean: the mean of rewards so
    far; none: nothing; prefix: what a critic expects before the word; literal: after it, as the paper writes, which is biased;
    auto: critic with reinforce or a linear critic, else prefix."""
    critic: Literal["network", "linear"] = "network"
    """The kind of critic: a network like the discriminator, with weights of its own, or a layer on the generator's encoder,
    which knows contexts alone (released)."""
    critic_target: Literal["words", "final"] = "words"
    """The target of a critic: the reward of each word, or the reply's own (released)."""
    last_word: Literal["own", "before"] = "own"
    """The reward of the last word: the reply's own score, or what the word before it earns (released)."""
    divide: Literal["once", "twice"] = "once"
    """How often rewards are divided by the size of the batch; released: twice."""
    teacher_forcing: Literal["mle", "rewarded", "none"] = "mle"
    """How human replies are learned. mle: all with reward 1; rewarded: those that the discriminator rewards above the baseline,
    with that reward; none: not at all."""
    forced_batch: Literal["fresh", "last"] = "last"
    """Which human replies these are: those to the contexts of the last update (figure 1), or newly drawn ones."""
    weighted: bool = True
    """Whether replies weigh by the tf-idf of their words, so that dull ones teach less."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.critic == "linear" and self.baseline in ("prefix", "literal"):
            fix = "--baseline critic, or --critic network"
            raise ConfigError("a linear critic reads no words of a reply", where="--baseline", got=self.baseline, fix=fix)

    @property
    def chosen_baseline(self) -> Baseline:
        """Return the baseline, with "auto" resolved."""
        if self.baseline != "auto":
            return self.baseline
        return "critic" if self.method == "reinforce" or self.critic == "linear" else "prefix"


def released() -> RewardSettings:
    """Return the settings of the authors' code where they differ from the paper's, or nothing."""
    like_paper = RewardSettings(baseline="critic", critic_target="final", divide="twice", weighted=False)
    return replace(like_paper, critic="linear", max_words=40, last_word="before")


Phase = Literal["discriminator", "generator", "teacher"]
Reward = Literal["discriminator", "constant", "shuffled", "length"]
"""Rewards of the generator; all but the first are controls."""
UNJUDGED = ("constant", "length")
"""Rewards that need no judge."""


@dataclass(frozen=True, kw_only=True)
class ReplyLearning(Configuration):
    """Rounds of discriminator steps, generator steps and teacher forcing."""

    topic: ClassVar[str] = "reply-learning"

    rounds: NumItems = 1_000
    """Rounds of all phases."""
    discriminator_steps: NonNegativeInt = 5
    """Discriminator updates of a round; 0 freezes it."""
    generator_steps: NonNegativeInt = 1
    """Policy-gradient updates of a round."""
    teacher_steps: NonNegativeInt = 1
    """Teacher-forcing updates of a round."""
    examples_per_step: NumItems = 64
    """Contexts of an update."""
    generator_rate: PositiveFloat = 1e-4
    """Step size of the generator."""
    discriminator_rate: PositiveFloat = 1e-3
    """Step size of the discriminator."""
    critic_rate: PositiveFloat = 1e-3
    """Step size of the critic; released: 5e-4."""
    optimiser: Literal["adam", "sgd"] = "adam"
    """Of all of them; released: sgd."""
    clip: PositiveFloat = 5.0
    """Largest norm of a network's gradient."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.cycle:
            fix = "give discriminator_steps, generator_steps or teacher_steps"
            raise ConfigError("a round has no step", where="learning", got="0 steps of each kind", fix=fix)

    @property
    def cycle(self) -> tuple[Phase, ...]:
        """Return the phases of a round."""
        steps: tuple[tuple[Phase, int], ...] = (
            ("discriminator", self.discriminator_steps),
            ("generator", self.generator_steps),
            ("teacher", self.teacher_steps),
        )
        return tuple(phase for phase, times in steps for _ in range(times))

    @property
    def updates(self) -> int:
        """Return the number of updates of all rounds."""
        return self.rounds * len(self.cycle)

    def phase(self, update: int) -> Phase:
        """Return the side that learns in an update, and its source; updates count from 0."""
        return self.cycle[update % len(self.cycle)]
