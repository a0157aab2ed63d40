"""Settings of Reranking-RL (`policies/core/reranking.py`). Torch-free, so that help starts fast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from parley.envs.core.ranges import Configuration, NonNegativeInt, PositiveInt, Share


@dataclass(frozen=True, kw_only=True)
class RerankingSettings(Configuration):
    """What is earned by a reply, and how much that counts; the defaults are the paper's but for the weight."""

    weight: Share = 0.05
    """w: share of the reward in the objective, the rest is likelihood; 0 is maximum likelihood bit by bit. Paper: silent."""
    warm_up: NonNegativeInt = 0
    """Steps in which w rises to its value."""
    others: Literal["corpus", "rotated"] = "corpus"
    """Where other contexts S_R come from: drawn from the split (paper), or the batch's own, rotated by a random offset
    (released), which costs no encoding. None of them equals S in words."""
    num_others: PositiveInt = 1
    """Other contexts of each reply, whose rewards are averaged; paper 1, released 2, by different offsets."""
    per: Literal["reply", "word"] = "reply"
    """Whether a reward is -log P(G | S_R) of the reply (paper), or that over its words (released)."""
    baseline: Literal["none", "greedy", "mean"] = "none"
    """What is taken off a reward: nothing (paper), that of the greedy reply to the same context (released), a running mean."""
    unknown: bool = True
    """Whether a reply that holds `<unk>` earns anything (paper, released). No context calls for the words that a model cannot
    write, so that such replies are an easy way to a reward."""
    shuffled: bool = False
    """The control: rewards are exchanged among the replies of a batch."""
