"""Reranking-RL: likelihood, and a reward for replies that other contexts would not have called forth.

Source: Niu & Bansal 2018 (arXiv 1809.02079), section 2.1, the mixed objective of Paulus et al. 2018, and the code that the
authors released. For a context S a reply G is sampled, and S_R is another context of the training set:

    L = (1 - w) L_ML + w L_RL,    L_RL = mean of (R - b) NLL(G | S),    R = -log P(G | S_R)

The reward is held constant: no gradient flows through P(G | S_R). So the expected gradient of L_RL is that of -E[R] per word
of the recorded replies. A dull reply is likely behind any context and earns little.

Works for every `TrainableResponder` that reads contexts by `hear`. Replies are said, and heard by all their contexts, in one
pass (`policies/core/speaking.py`).

Choices:
  * # Paper: silent about w, about b and about how rewards are scaled. Released: b is the reward of the greedy reply, R a mean
    over words and over two rotations of the batch. Ours: options (`reranking_settings.py`); a running mean is one more.
  * # Released: L_RL is divided by the number of sampled words. Ours: by that of recorded words, as L_ML is, because a number
    that depends on what was sampled would bend the gradient.
  * # Released: replies are sampled, scored and learned with the dropout of training. Ours: all of L_RL is in evaluation mode,
    so that replies come from the distribution whose gradient is followed; for VHRED that is the prior's mean.
  * # Paper, released: silent about replies with `<unk>`. Ours: an option; they may earn nothing.
  * # Released: offsets from 1 to the batch's size less 2. Ours: to the size less 1; a context that equals S in words is passed
    over, and where a batch has no other, the example earns nothing.

Which epoch is best is decided by the mixture on the validation split, (1 - w) nats per word - w E[R] per word: what is learned
and not what is wished for, so what replies look like is measured beside it (`Watched`).

Shapes: B examples, K other contexts of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from parley.envs.core.errors import ConfigError
from parley.envs.core.seeds import stream
from parley.envs.corpora.pairs.turns import Turn, Turns
from parley.envs.corpora.pairs.vocabulary import UNK_ID
from parley.policies.core.fitting.batches import ExtendedBatch
from parley.policies.core.fitting.evaluation import Fitness, evaluate
from parley.policies.core.fitting.fit import Objective
from parley.policies.core.fitting.loss import OutputLoss
from parley.policies.core.fitting.predictor import Loss
from parley.policies.core.reranking_settings import RerankingSettings
from parley.policies.core.responder import TrainableResponder
from parley.policies.core.speaking import GREEDY_DRAW, Spoken, say

_KEPT = 0.99
"""Share of the running mean that stays with each batch."""
_ROWS = 128


@dataclass(frozen=True)
class IndexedBatch(ExtendedBatch):
    """Examples as a model reads them, and where in their split they are (B,)."""

    indices: np.ndarray


class ExamplesByContext:
    """Examples whose contexts are told apart.

    Args:
        responder: the model that reads them.
        contexts: of the examples.
        replies: recorded ones, as many.
    """

    def __init__(self, responder: TrainableResponder, contexts: Sequence[Turns], replies: Sequence[Turn]) -> None:
        self.learned = responder.examples(contexts, replies)
        self.num_targets = self.learned.num_targets
        read: list[bytes] = []
        for start in range(0, len(contexts), 1024):
            read += self.learned.batch(np.arange(start, min(start + 1024, len(contexts)))).contexts
        numbers: dict[bytes, int] = {}
        self.classes = np.array([numbers.setdefault(words, len(numbers)) for words in read], dtype=np.int64)
        """(n,) equal where contexts are equal in the words that the model reads."""
        self._by_class = np.argsort(self.classes, kind="stable")
        self._counts = np.bincount(self.classes)
        self._starts = np.cumsum(self._counts) - self._counts

    def __len__(self) -> int:
        return len(self.classes)

    def batch(self, indices: np.ndarray) -> IndexedBatch:
        """The examples at `indices` (B,)."""
        return IndexedBatch(self.learned.batch(indices), indices)

    def drawn_others(self, indices: np.ndarray, num: int, rng: np.random.Generator) -> np.ndarray:
        """Examples (K, B) drawn uniformly among those whose contexts differ; those at `indices` themselves where none do."""
        own = self.classes[indices]
        left_B = len(self) - self._counts[own]
        # All but the block of the own class, in the order of classes.
        places_KB = rng.integers(np.maximum(left_B, 1), size=(num, len(indices)))
        places_KB = np.where(places_KB < self._starts[own], places_KB, places_KB + self._counts[own])
        return np.where(left_B > 0, self._by_class[places_KB % len(self)], indices)


def rotated_others(classes_B: np.ndarray, num: int, rng: np.random.Generator) -> np.ndarray:
    """Rows of a batch (K, B), each by an offset of its own that is never 0; equal contexts are passed over.

    Args:
        classes_B: equal where contexts are.
        num: K; fewer where the batch is too small for as many offsets.
        rng: draws the offsets.

    Returns:
        A row itself where no context of the batch is another.
    """
    size = len(classes_B)
    offsets = 1 + rng.permutation(size - 1)[:num] if size > 1 else np.zeros(1, dtype=np.int64)
    rows_KB = (np.arange(size) + offsets[:, None]) % size
    for _ in range(size):
        same_KB = classes_B[rows_KB] == classes_B
        if not same_KB.any():
            break
        rows_KB = np.where(same_KB, (rows_KB + 1) % size, rows_KB)
    return np.where(classes_B[rows_KB] == classes_B, np.arange(size), rows_KB)


class Overheard(NamedTuple):
    """Replies to the contexts of a batch; rows of `nats_LC` behind the first are what other contexts make of them."""

    sampled: Spoken
    greedy: Spoken | None
    earns_B: Tensor
    """False where there was no other context."""


@dataclass(frozen=True)
class HeardReplies:
    """Replies of a model to some contexts, and how likely they are.

    Args:
        replies: ids of their words, without the end.
        num_words: (n,) of each, the end counted where it was said.
        own: (n,) negative log-likelihoods in nats behind their own contexts.
        others: (n,) behind other contexts, the mean over those.
    """

    replies: Sequence[Sequence[int]]
    num_words: np.ndarray
    own: np.ndarray
    others: np.ndarray


class Watched(NamedTuple):
    """What a model has come to on a split."""

    fitness: Fitness
    """How likely it finds the recorded replies."""
    chosen: np.ndarray
    """(n,) the examples of the split to which it replies."""
    sampled: HeardReplies
    """What it says to them by chance."""
    greedy: HeardReplies
    """Its likeliest replies to them."""


class RerankingObjective(Objective[IndexedBatch]):
    """(1 - w) L_ML + w L_RL.

    Args:
        responder: the model that is trained.
        train: what it is trained on, from which other contexts are drawn.
        settings: the reward and its weight.
        seed: of what is drawn when a split is measured; training draws by torch's generator.
        num_watched: examples of a split to which replies are said when it is measured, at most.

    Raises:
        ConfigError: all contexts of the training split are equal, and there is something to be earned.
    """

    def __init__(
        self,
        responder: TrainableResponder,
        train: ExamplesByContext,
        settings: RerankingSettings,
        *,
        seed: int = 0,
        num_watched: int = 1000,
    ) -> None:
        super().__init__(responder.model)
        if settings.weight and not train.classes.any():
            raise ConfigError(
                "all contexts of the training split are equal in the words that the model knows",
                got=f"{len(train)} examples",
                fix="name another corpus; a reward needs other contexts",
            )
        self.train, self.settings, self.seed, self.num_watched = train, settings, seed, num_watched
        self.network: Any = responder.model
        self.carried = {"steps": 0, "reward": 0.0, "reward_weight": 0.0}
        self.watched: Watched | None = None
        """Of the split that was measured last."""

    @property
    def weight(self) -> float:
        """What w is at the next step."""
        if not self.settings.warm_up:
            return self.settings.weight
        return self.settings.weight * min(1.0, (self.carried["steps"] + 1) / self.settings.warm_up)

    def loss(self, batch: IndexedBatch, output_loss: OutputLoss) -> Loss:
        own = self.model.loss(batch.learned, output_loss)
        weight = self.weight
        self.carried["steps"] += 1
        if not weight:
            return own
        rng = np.random.default_rng(int(torch.randint(2**62, ())))
        return Loss((1 - weight) * own.total + weight * self.reward_loss(batch, rng, output_loss), own.nll)

    def reward_loss(self, batch: IndexedBatch, rng: np.random.Generator, output_loss: OutputLoss) -> Tensor:
        """L_RL of a batch, summed over its examples: replies are sampled, heard by other contexts, and made more likely.

        Args:
            batch: of the examples that are learned from.
            rng: decides replies and other contexts.
            output_loss: the loss of this model's output layer.
        """
        was_training = self.network.training
        self.network.eval()
        # Layers of cuDNN give no gradient in evaluation mode.
        with torch.backends.cudnn.flags(enabled=False):
            memory = self.network.hear(batch.learned)
        exact = not torch.is_autocast_enabled(self.network.output.weight.device.type)
        spoken = self.spoken(self.train, batch, rng, memory if exact else None, greedy=self.settings.baseline == "greedy")
        loss = self.policy_loss(memory, spoken.sampled, self.advantages(spoken, rng), output_loss)
        self.network.train(was_training)
        return loss

    def policy_loss(self, memory: Any, spoken: Spoken, advantages_B: Tensor, output_loss: OutputLoss) -> Tensor:
        """Sum over replies of (advantage) x NLL(G | S).

        Args:
            memory: the contexts of the replies, through which gradients flow.
            spoken: what was said to them.
            advantages_B: rewards less baselines; no gradient flows through them.
            output_loss: the loss of this model's output layer.
        """
        longest = int(spoken.lengths_C.max())
        real_BT = spoken.real_CT[:, :longest]
        states_MH = self.network.reply_states(memory, spoken.words_in_CT[:, :longest])[real_BT]
        shares_M = advantages_B.to(states_MH.dtype).repeat_interleave(spoken.lengths_C)
        return output_loss(states_MH, spoken.words_CT[:, :longest][real_BT], shares_M)

    def spoken(
        self, examples: ExamplesByContext, batch: IndexedBatch, rng: np.random.Generator, memory: Any = None, *, greedy: bool
    ) -> Overheard:
        """What the model says to the contexts of a batch, heard by other contexts too; in full precision.

        Args:
            examples: the split of the batch.
            batch: on the model's device.
            rng: decides replies and other contexts.
            memory: the contexts of the batch, heard in full precision; they are heard here when not given.
            greedy: whether the likeliest replies are said as well.
        """
        device, size, num = self.network.output.weight.device, len(batch.indices), self.settings.num_others
        with torch.no_grad(), torch.autocast(device.type, enabled=False):
            if self.settings.others == "rotated":
                heard = self.network.hear(batch.learned) if memory is None else memory
                others_KB = rotated_others(examples.classes[batch.indices], num, rng)
                rows_LB, others_KB = np.concatenate([[np.arange(size)], others_KB]), batch.indices[others_KB]
            else:
                # One batch of encodings for S and S_R.
                others_KB = examples.drawn_others(batch.indices, num, rng)
                both = examples.learned.batch(np.concatenate([batch.indices, others_KB.flatten()]))
                heard, rows_LB = self.network.hear(both.to(device)), np.arange(size * (num + 1)).reshape(num + 1, size)
            draws = rng.random((size, self.network.sizes.max_reply - 1))
            kinds = 2 if greedy else 1
            draws_CT = np.concatenate([draws, np.full_like(draws, GREEDY_DRAW)][:kinds])
            rows_LC = np.tile(rows_LB, (1, kinds))
            said = say(self.network, heard, torch.from_numpy(rows_LC).to(device), torch.from_numpy(draws_CT).to(device))
        parts = zip(said.words_CT.chunk(kinds), said.lengths_C.chunk(kinds), said.nats_LC.chunk(kinds, 1), strict=True)
        sampled, *rest = [Spoken(*part) for part in parts]
        earns_B = examples.classes[others_KB[0]] != examples.classes[batch.indices]
        return Overheard(sampled, rest[0] if rest else None, torch.from_numpy(earns_B).to(device))

    def rewards(self, spoken: Spoken) -> Tensor:
        """R of each reply (B,) float64, in nats."""
        nats_B = spoken.nats_LC[1:].mean(0)
        if not self.settings.unknown:
            nats_B = nats_B * (spoken.words_CT != UNK_ID).all(1)
        return nats_B / spoken.lengths_C if self.settings.per == "word" else nats_B

    def advantages(self, spoken: Overheard, rng: np.random.Generator) -> Tensor:
        """Rewards of sampled replies less the baseline (B,) float64; the running mean learns of them afterwards."""
        rewards_B = self.rewards(spoken.sampled)
        if spoken.greedy is not None:
            rewards_B = rewards_B - self.rewards(spoken.greedy)
        elif self.settings.baseline == "mean" and spoken.earns_B.any():
            past, reward = self.carried, float(rewards_B[spoken.earns_B].mean())
            if past["reward_weight"]:
                rewards_B = rewards_B - past["reward"] / past["reward_weight"]
            past["reward"] = _KEPT * past["reward"] + (1 - _KEPT) * reward
            past["reward_weight"] = _KEPT * past["reward_weight"] + 1 - _KEPT
        rewards_B = rewards_B * spoken.earns_B
        if self.settings.shuffled:
            rewards_B = rewards_B[torch.from_numpy(rng.permutation(len(rewards_B))).to(rewards_B.device)]
        return rewards_B

    def validation(self, examples: Any) -> float:
        self.watched = self.measure(examples)
        return self.mixture(self.watched)

    def mixture(self, watched: Watched) -> float:
        """(1 - w) nats per word of recorded replies - w E[R] per word, what training brings down; lower: better."""
        weight, fitness, sampled = self.settings.weight, watched.fitness, watched.sampled
        rewards = sampled.others / sampled.num_words if self.settings.per == "word" else sampled.others
        if not self.settings.unknown:
            rewards = rewards * [UNK_ID not in reply for reply in sampled.replies]
        words = fitness.num_targets.mean()
        return (1 - weight) * fitness.nll - (weight * float(rewards.mean() / words) if weight else 0.0)

    @torch.no_grad()
    def measure(self, examples: ExamplesByContext) -> Watched:
        """The model as it is on a split; what is drawn is the same every time."""
        rng = stream(self.seed, "watched")
        chosen = np.sort(rng.permutation(len(examples))[: self.num_watched])
        was_training, device = self.network.training, self.network.output.weight.device
        self.network.eval()
        fewest = self.settings.num_others + 1
        starts = list(range(0, len(chosen), max(_ROWS, fewest)))
        # Fewer rows have not as many offsets as those of other blocks: a last block of so few joins the one before.
        if len(starts) > 1 and len(chosen) - starts[-1] < fewest:
            starts.pop()
        blocks = [
            self.spoken(examples, examples.batch(block).to(device), rng, greedy=True) for block in np.split(chosen, starts[1:])
        ]
        self.network.train(was_training)
        sampled = _gathered([block.sampled for block in blocks])
        greedy = _gathered([block.greedy for block in blocks if block.greedy is not None])
        return Watched(evaluate(self.model, examples.learned), chosen, sampled, greedy)


def _gathered(blocks: Sequence[Spoken]) -> HeardReplies:
    nats_LC = torch.cat([block.nats_LC for block in blocks], dim=1).cpu().numpy()
    lengths = torch.cat([block.lengths_C for block in blocks]).cpu().numpy()
    return HeardReplies([reply for block in blocks for reply in block.replies()], lengths, nats_LC[0], nats_LC[1:].mean(0))
