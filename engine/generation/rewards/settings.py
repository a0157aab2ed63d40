"""Settings of rewards, baselines and teacher forcing. Torch-free, so that help starts fast.

Defaults are those of the paper (Li et al. 2017, section 3); `released` gives those of the authors' code, where they differ.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from parley.envs.core.errors import ConfigError
from parley.envs.core.ranges import Configuration, NonNegativeInt, PositiveInt

Method = Literal["reinforce", "regs-mc", "regs-partial"]
METHODS: dict[Method, str] = {
    "reinforce": "every word earns what the reply earns",
    "regs-mc": "the mean over continuations of the reply up to the word",
    "regs-partial": "what a discriminator fitted to beginnings says of the reply up to the word",
}
"""What a word earns."""
Baseline = Literal["critic", "mean", "none", "prefix", "literal"]


@dataclass(frozen=True, kw_only=True)
class RewardSettings(Configuration):
    """What each word of a generated reply earns, and how a human reply is learned from beside it."""

    method: Method = "regs-mc"
    """reinforce: every word earns what the reply earns; regs-mc: the mean over continuations of the reply up to the word;
    regs-partial: what a discriminator fitted to beginnings says of the reply up to the word."""
    num_rollouts: PositiveInt = 5
    """Continuations of each beginning of a reply, with regs-mc."""
    max_words: NonNegativeInt = 0
    """Words of a reply at most, `</s>` not counted; 0: as many as the generator says; released: 40."""
    baseline: Literal["auto", "critic", "mean", "none", "prefix", "literal"] = "auto"
    """What is subtracted from a reward. critic: what a critic expects in the context; mean: the mean of rewards so far; none:
    nothing; prefix: what a critic expects before the word; literal: after it, as the paper writes, which is biased; auto:
    critic with reinforce or a linear critic, else prefix."""
    critic: Literal["network", "linear"] = "network"
    """What a critic is: a network like the discriminator, with weights of its own, or a layer on the generator's encoder, which
    knows contexts alone (released)."""
    critic_target: Literal["words", "final"] = "words"
    """What a critic learns to expect: the reward of each word, or the reply's own (released)."""
    last_word: Literal["own", "before"] = "own"
    """What the last word earns: the reply's own score, or what the word before it earns (released)."""
    divide: Literal["once", "twice"] = "once"
    """How often rewards are divided by the size of the batch; released: twice."""
    teacher_forcing: Literal["mle", "rewarded", "none"] = "mle"
    """How human replies are learned. mle: all with reward 1; rewarded: those that the discriminator rewards above the baseline,
    with that reward; none: not at all."""
    forced_batch: Literal["fresh", "last"] = "fresh"
    """Which human replies these are: newly drawn ones, or those to the contexts of the last update (released)."""
    weighted: bool = True
    """Whether replies weigh by the tf-idf of their words, so that dull ones teach less."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.critic == "linear" and self.baseline in ("prefix", "literal"):
            fix = "--baseline critic, or --critic network"
            raise ConfigError("a linear critic reads no words of a reply", where="--baseline", got=self.baseline, fix=fix)

    @property
    def chosen_baseline(self) -> Baseline:
        """With "auto" decided."""
        if self.baseline != "auto":
            return self.baseline
        return "critic" if self.method == "reinforce" or self.critic == "linear" else "prefix"


def released() -> RewardSettings:
    """What the authors' code does where the paper says otherwise, or nothing."""
    like_paper = RewardSettings(baseline="critic", critic_target="final", divide="twice", forced_batch="last", weighted=False)
    return replace(like_paper, critic="linear", max_words=40, last_word="before")
