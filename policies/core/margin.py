"""Objectives of adversarial training (a margin between contexts) and of Reranking-RL (a reward for replies).

Source of both: Niu & Bansal 2018 (arXiv 1809.02079), section 2.1, section 4 and appendix A.5, and the authors' released code.
Both work for every `TrainableResponder`.

Adversarial training. A context s perturbed so that the answer should not change is learned by maximum likelihood, with the
recorded reply t. A context a perturbed so that the answer should change teaches what not to say:

    L = L_ML + alpha L_MM,    L_MM = mean over examples of max(0, M + [NLL(g | s) - NLL(g | a)] / |g|)

with g = t (truth), or g the current model's greedy reply to s (greedy), which works where a model has converged and its
likelihood of t cannot grow any more. One batch may hold both kinds of example. For a model of Reranking-RL, as released, L_MM
is the mean of that of a sampled reply and that of t (mixed), and alpha is multiplied by 1 - w. Which contexts are perturbed,
and how, is decided in engine/perturb/verbs/adversarial.py.

  * # Paper: log-probabilities of whole replies, sums over examples. Released: divided by words, means; ours too: L_ML by those
    of the batch (`Fit`), L_MM by each reply's, over all examples, of which those without a contrast count as met.
  * # Released: half of a batch is clean and half is perturbed. Ours: every example is learned, and the contrast is read beside
    it, because the ratio of the two terms then does not depend on how many examples could be perturbed.
  * # Released: the greedy reply is decoded with the graph of training. Ours: in evaluation mode, in full precision.
  * # Paper: silent about whether a model of Reranking-RL goes on to earn rewards. Ours: it does not.
  * # Released: VHRED draws its latent variable for each half anew. Ours: the margin is that of the prior's means
    (`Predictor.target_states`), so that the draws do not count as a difference between the contexts.

Reranking-RL, the mixed objective of Paulus et al. 2018. For a context S a reply G is sampled, and S_R is another context of the
training set:

    L = (1 - w) L_ML + w L_RL,    L_RL = mean of (R - b) NLL(G | S),    R = -log P(G | S_R)

The reward is held constant: no gradient flows through P(G | S_R). So the expected gradient of L_RL is that of -E[R] per word
of the recorded replies. A dull reply is likely behind any context and earns little.

  * # Paper: silent about w, about b and about how rewards are scaled. Released: b is the reward of the greedy reply, R a mean
    over words and over two rotations of the batch. Ours: options (`RerankingSettings`); a running mean is one more.
  * # Released: L_RL is divided by the number of sampled words. Ours: by that of recorded words, as L_ML is, because a number
    that depends on what was sampled would bend the gradient.
  * # Released: replies are sampled, scored and learned with the dropout of training. Ours: all of L_RL is in evaluation mode,
    so that replies come from the distribution whose gradient is followed; for VHRED that is the prior's mean.
  * # Paper, released: silent about replies with `<unk>`. Ours: an option; they may earn nothing.
  * # Released: offsets from 1 to the batch's size less 2. Ours: to the size less 1; a context that equals S in words is passed
    over, and where a batch has no other, the example earns nothing.

The best epoch is that of the lowest mixture on the validation split, (1 - w) nats per word - w E[R] per word. The mixture is
what is learned and not what is wished for, so replies are measured beside it (`Watched`).

`say` says replies and scores them behind several contexts (listeners) at once: one step of the decoder for each word, no
context encoded twice, and speakers that have ended leave.

Shapes: B examples, K other contexts of each, C speakers, L listeners of each, the speaker's own context first, T positions of a
reply, R rows, V words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from parley.envs.core.errors import ConfigError
from parley.envs.core.seeds import stream
from parley.envs.corpora.pairs.turns import Turn, Turns, turn_of
from parley.envs.corpora.pairs.vocabulary import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from parley.policies.core.decoding import drawn
from parley.policies.core.fitting.batches import Batch, ExtendedBatch, Fitness, Loss, OutputLoss, evaluate, example_nll
from parley.policies.core.fitting.loop import Objective
from parley.policies.core.responder import TrainableResponder
from parley.policies.core.settings import RerankingSettings

_LEFT = 0.8
"""Share of speakers still at work at which the ended ones leave."""
GREEDY_DRAW = -1.0
"""Stands for a uniform number if the likeliest word is said."""


class Spoken(NamedTuple):
    """Replies and their likelihoods."""

    words_CT: Tensor
    """The chosen ids, int64; `</s>` is one of them, unless the limit ended the reply. Padding behind."""
    lengths_C: Tensor
    """Number of chosen ids, int64, at least 1."""
    nats_LC: Tensor
    """Negative log-likelihoods of the replies behind each context, float64."""

    @property
    def real_CT(self) -> Tensor:
        """True at chosen words."""
        return torch.arange(self.words_CT.shape[1], device=self.words_CT.device) < self.lengths_C.unsqueeze(1)

    @property
    def words_in_CT(self) -> Tensor:
        """Inputs of a decoder for these replies: `<s>`, and each word but the last."""
        return torch.cat([torch.full_like(self.words_CT[:, :1], BOS_ID), self.words_CT[:, :-1]], dim=1)

    def replies(self) -> list[list[int]]:
        """Return the ids of each reply without the end."""
        rows = zip(self.words_CT.tolist(), self.lengths_C.tolist(), strict=True)
        return [words[: length - 1] if words[length - 1] == EOS_ID else words[:length] for words, length in rows]


@torch.no_grad()
def say(model: Any, memory: tuple[Any, ...], rows_LC: Tensor, draws_CT: Tensor) -> Spoken:
    """Return replies to contexts, with their likelihoods behind all their listeners.

    Args:
        model: in evaluation mode.
        memory: contexts that it has heard.
        rows_LC: the contexts of each reply: that to which it is said, then those behind which it is measured as well.
        draws_CT: uniform numbers in [0, 1), float64, that decide the words; `GREEDY_DRAW` for the likeliest. A reply has as
            many words as there are numbers, at most.
    """
    (num_L, num_C), device = rows_LC.shape, rows_LC.device
    words_CT = torch.full(draws_CT.shape, PAD_ID, device=device)
    lengths_C = torch.zeros(num_C, dtype=torch.int64, device=device)
    nats_LC = torch.zeros((num_L, num_C), dtype=torch.float64, device=device)
    live = torch.arange(num_C, device=device)
    open_ = torch.ones(num_C, dtype=torch.bool, device=device)
    heard = chosen_rows(memory, rows_LC.flatten())
    state, words_C = model.begin(heard), torch.full((num_C,), BOS_ID, device=device)
    for position in range(draws_CT.shape[1]):
        logits_RV, state = model.step(heard, words_C.repeat(num_L), state)
        logits_LCV = logits_RV.unflatten(0, (num_L, -1))
        draws = draws_CT[live, position]
        words_C = torch.where(draws < 0, logits_LCV[0].argmax(1), drawn(logits_LCV[0], draws.clamp(min=0)))
        chosen_logits_LC = logits_LCV.gather(2, words_C.expand(num_L, -1).unsqueeze(2)).squeeze(2)
        nats_LC[:, live] += (logits_LCV.logsumexp(2) - chosen_logits_LC).double() * open_
        words_CT[live, position] = torch.where(open_, words_C, PAD_ID)
        lengths_C[live] += open_
        open_ &= words_C != EOS_ID
        num_open = int(open_.sum())
        if not num_open:
            break
        if num_open <= _LEFT * len(live):
            stay = open_.nonzero().squeeze(1)
            rows_R = (torch.arange(num_L, device=device).unsqueeze(1) * len(live) + stay).flatten()
            heard, state = chosen_rows(heard, rows_R), chosen_rows(state, rows_R)
            live, words_C, open_ = live[stay], words_C[stay], open_[stay]
    return Spoken(words_CT, lengths_C, nats_LC)


def chosen_rows(parts: Any, rows_R: Tensor) -> Any:
    """Return some rows of a named tuple of tensors, or of None."""
    return type(parts)(*(None if part is None else part[rows_R] for part in parts))


MarginTargets = Literal["greedy", "truth", "mixed"]
_ROWS = 128


@dataclass(frozen=True)
class AdversarialExample:
    """One example of adversarial training.

    Args:
        context: the context that the reply is learned from.
        reply: the recorded one.
        contrast: a context that asks for another reply; None where there is none.
    """

    context: Turns
    reply: Turn
    contrast: Turns | None = None


@dataclass(frozen=True)
class AdversarialBatch(ExtendedBatch):
    """Lessons as a model reads them, and those with a contrast."""

    contrasted: Sequence[AdversarialExample]


class AdversarialExamples:
    """Lessons to be fitted to.

    Args:
        responder: the model that reads them.
        lessons: in the order in which `batch` counts them.
    """

    def __init__(self, responder: TrainableResponder, lessons: Sequence[AdversarialExample]) -> None:
        self.lessons = lessons
        self.learned = responder.examples([lesson.context for lesson in lessons], [lesson.reply for lesson in lessons])
        self.num_targets = self.learned.num_targets

    def __len__(self) -> int:
        return len(self.lessons)

    def batch(self, indices: np.ndarray) -> AdversarialBatch:
        """Return the lessons at `indices` (B,)."""
        chosen = (self.lessons[index] for index in indices)
        return AdversarialBatch(self.learned.batch(indices), [lesson for lesson in chosen if lesson.contrast is not None])


class MarginObjective(Objective[AdversarialBatch]):
    """The objective L_ML + alpha L_MM.

    Args:
        responder: the model that is trained.
        train: the training lessons; set the weight of a word beside an example.
        alpha: weight of the margin.
        margin: M, in nats per word.
        targets: replies of the margins: the model's own greedy ones, the recorded ones, or the mean over sampled
            and recorded ones.
    """

    def __init__(
        self, responder: TrainableResponder, train: AdversarialExamples, *, alpha: float, margin: float, targets: MarginTargets
    ) -> None:
        super().__init__(responder.model)
        self.responder, self.alpha, self.margin, self.targets = responder, alpha, margin, targets
        self._words_per_example = float(train.num_targets.mean())

    def loss(self, batch: AdversarialBatch, output_loss: OutputLoss) -> Loss:
        """Return the model's own loss plus, in the same unit, the weighted hinges of contrasted lessons."""
        model_loss = self.model.loss(batch.learned, output_loss)
        if not batch.contrasted:
            return model_loss
        hinges_B = (self.margin - self._gaps(batch.contrasted)).relu().mean(0)
        # Fit divides by the mean number of words in a batch; this weight turns the sum of hinges into a mean over examples.
        return Loss(model_loss.total + self.alpha * self._words_per_example * hinges_B.sum(), model_loss.nll)

    def validation(self, examples: Any) -> float:
        hinges = np.maximum(0.0, self.margin - self._measured(examples.lessons)).mean(0)
        return evaluate(self.model, examples.learned).nll + self.alpha * float(hinges.sum()) / len(examples)

    def gaps(self, lessons: Sequence[AdversarialExample]) -> np.ndarray:
        """Return [NLL(g | a) - NLL(g | s)] / |g| (n,) of the lessons with a contrast, in nats per word, without dropout.

        With sampled and recorded replies, the mean of both; samples are the same every time.
        """
        return np.asarray(self._measured(lessons).mean(0))

    @torch.no_grad()
    def _measured(self, lessons: Sequence[AdversarialExample]) -> np.ndarray:
        """Return the gaps (G, n) of each kind of reply."""
        contrasted = [lesson for lesson in lessons if lesson.contrast is not None]
        was_training, device = self.model.training, self.model.output.weight.device
        self.model.eval()
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(0)
            blocks = [self._gaps(contrasted[start : start + _ROWS]) for start in range(0, len(contrasted), _ROWS)]
        self.model.train(was_training)
        return torch.cat(blocks, dim=1).cpu().numpy() if blocks else np.zeros((1, 0))

    def _gaps(self, lessons: Sequence[AdversarialExample]) -> Tensor:
        """Return how much less likely per word the contrasts make G kinds of reply (G, B); gradients flow through it."""
        contexts = [lesson.context for lesson in lessons]
        contrasts = [lesson.contrast for lesson in lessons if lesson.contrast is not None]
        kinds = [self._said(contexts, sampled=False)] if self.targets == "greedy" else [[lesson.reply for lesson in lessons]]
        if self.targets == "mixed":
            kinds.insert(0, self._said(contexts, sampled=True))
        replies = [reply for kind in kinds for reply in kind]
        # One pass over all of them and both halves.
        both = [*contexts * len(kinds), *contrasts * len(kinds)]
        read: Batch = self.responder.examples(both, [*replies, *replies]).batch(np.arange(len(both)))
        nll_R, words_R = example_nll(self.model, read.to(self.model.output.weight.device))
        as_before_C, perturbed_C = nll_R.chunk(2)
        return ((perturbed_C - as_before_C) / words_R[: len(replies)]).view(len(kinds), -1)

    def _said(self, contexts: Sequence[Turns], *, sampled: bool) -> list[Turn]:
        """Return the present model's replies; torch's generator draws sampled ones."""
        was_training = self.model.training
        self.model.eval()
        # In full precision, as the model answers everywhere else.
        with torch.autocast(self.model.output.weight.device.type, enabled=False):
            replies = self._sampled(contexts) if sampled else self.responder.respond(contexts)
        self.model.train(was_training)
        return replies

    @torch.no_grad()
    def _sampled(self, contexts: Sequence[Turns]) -> list[Turn]:
        network: Any = self.model
        device, num = network.output.weight.device, len(contexts)
        read = self.responder.examples(contexts, [((),)] * num).batch(np.arange(num)).to(device)
        draws = torch.rand((num, network.sizes.max_reply - 1), dtype=torch.float64).to(device)
        spoken = say(network, network.hear(read), torch.arange(num, device=device).unsqueeze(0), draws)
        return [turn_of(network.vocabulary.decode(reply)) for reply in spoken.replies()]


_KEPT = 0.99
"""Share of the running mean that stays after each batch."""


@dataclass(frozen=True)
class IndexedBatch(ExtendedBatch):
    """Examples as a model reads them, and their indices in their split (B,)."""

    indices: np.ndarray


class ExamplesByContext:
    """Examples in classes of equal contexts.

    Args:
        responder: the model that reads them.
        contexts: of the examples.
        replies: recorded ones, as many.
        units: the dialogue of each, for intervals; each is one when not given.
    """

    def __init__(
        self, responder: TrainableResponder, contexts: Sequence[Turns], replies: Sequence[Turn], units: Sequence[str] = ()
    ) -> None:
        learned: Any = responder.examples(contexts, replies)
        learned.units = np.array(units or range(len(contexts)))
        self.learned, self.units = learned, learned.units
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
        """Return the examples at `indices` (B,)."""
        return IndexedBatch(self.learned.batch(indices), indices)

    def drawn_others(self, indices: np.ndarray, num: int, rng: np.random.Generator) -> np.ndarray:
        """Return examples (K, B) drawn uniformly among those of other contexts; the indices themselves if there are none."""
        own_class = self.classes[indices]
        left_B = len(self) - self._counts[own_class]
        # All but the block of the own class, in the order of classes.
        places_KB = rng.integers(np.maximum(left_B, 1), size=(num, len(indices)))
        places_KB = np.where(places_KB < self._starts[own_class], places_KB, places_KB + self._counts[own_class])
        return np.where(left_B > 0, self._by_class[places_KB % len(self)], indices)


def rotated_others(classes_B: np.ndarray, num: int, rng: np.random.Generator) -> np.ndarray:
    """Return rows of a batch (K, B), each at an offset of its own, never 0; equal contexts are passed over.

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
    """Replies to the contexts of a batch; rows of `nats_LC` after the first are scores behind other contexts."""

    sampled: Spoken
    greedy: Spoken | None
    earns_B: Tensor
    """False where there was no other context."""


@dataclass(frozen=True)
class HeardReplies:
    """Replies of a model to some contexts, and their likelihoods.

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
    """Figures and replies of a model on a split."""

    fitness: Fitness
    """Likelihood of the recorded replies."""
    chosen: np.ndarray
    """(n,) indices of the examples to which it replies."""
    units: np.ndarray
    """(n,) the dialogue of each of them."""
    sampled: HeardReplies
    """Its sampled replies."""
    greedy: HeardReplies
    """Its greedy replies."""


class RerankingObjective(Objective[IndexedBatch]):
    """The objective (1 - w) L_ML + w L_RL.

    Args:
        responder: the model that is trained.
        train: the training examples, from which other contexts are drawn.
        settings: the reward and its weight.
        seed: of the draws when a split is measured; training draws by torch's generator.
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
        """The value of w at the next step."""
        if not self.settings.warm_up:
            return self.settings.weight
        return self.settings.weight * min(1.0, (self.carried["steps"] + 1) / self.settings.warm_up)

    def loss(self, batch: IndexedBatch, output_loss: OutputLoss) -> Loss:
        model_loss = self.model.loss(batch.learned, output_loss)
        weight = self.weight
        self.carried["steps"] += 1
        if not weight:
            return model_loss
        rng = np.random.default_rng(int(torch.randint(2**62, ())))
        return Loss((1 - weight) * model_loss.total + weight * self.reward_loss(batch, rng, output_loss), model_loss.nll)

    def reward_loss(self, batch: IndexedBatch, rng: np.random.Generator, output_loss: OutputLoss) -> Tensor:
        """Return L_RL of a batch, summed over its examples: sampled replies are scored behind other contexts and reinforced.

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
        """Return the sum over replies of (advantage) x NLL(G | S).

        Args:
            memory: the contexts of the replies, through which gradients flow.
            spoken: the replies to them.
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
        """Return the model's replies to the contexts of a batch, scored behind other contexts too; in full precision.

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
            spoken = say(self.network, heard, torch.from_numpy(rows_LC).to(device), torch.from_numpy(draws_CT).to(device))
        parts = zip(spoken.words_CT.chunk(kinds), spoken.lengths_C.chunk(kinds), spoken.nats_LC.chunk(kinds, 1), strict=True)
        sampled, *rest = [Spoken(*part) for part in parts]
        earns_B = examples.classes[others_KB[0]] != examples.classes[batch.indices]
        return Overheard(sampled, rest[0] if rest else None, torch.from_numpy(earns_B).to(device))

    def rewards(self, spoken: Spoken) -> Tensor:
        """Return R of each reply (B,) float64, in nats."""
        nats_B = spoken.nats_LC[1:].mean(0)
        if not self.settings.unknown:
            nats_B = nats_B * ((spoken.words_CT != UNK_ID) | ~spoken.real_CT).all(1)
        return nats_B / spoken.lengths_C if self.settings.per == "word" else nats_B

    def advantages(self, spoken: Overheard, rng: np.random.Generator) -> Tensor:
        """Return rewards of sampled replies less the baseline (B,) float64, and update the running mean."""
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
        """Return (1 - w) nats per word of recorded replies - w E[R] per word, which training minimises."""
        weight, fitness, sampled = self.settings.weight, watched.fitness, watched.sampled
        rewards = sampled.others / sampled.num_words if self.settings.per == "word" else sampled.others
        if not self.settings.unknown:
            rewards = rewards * [UNK_ID not in reply for reply in sampled.replies]
        words = fitness.num_targets.mean()
        return (1 - weight) * fitness.nll - (weight * float(rewards.mean() / words) if weight else 0.0)

    @torch.no_grad()
    def measure(self, examples: ExamplesByContext) -> Watched:
        """Return the present model's figures and replies on a split; draws are the same every time."""
        rng = stream(self.seed, "watched")
        chosen = np.sort(rng.permutation(len(examples))[: self.num_watched])
        was_training, device = self.network.training, self.network.output.weight.device
        self.network.eval()
        fewest = self.settings.num_others + 1
        starts = list(range(0, len(chosen), max(_ROWS, fewest)))
        # Too few rows have too few offsets, so a short last block joins the one before.
        if len(starts) > 1 and len(chosen) - starts[-1] < fewest:
            starts.pop()
        blocks = [
            self.spoken(examples, examples.batch(block).to(device), rng, greedy=True) for block in np.split(chosen, starts[1:])
        ]
        self.network.train(was_training)
        sampled = _gathered([block.sampled for block in blocks])
        greedy = _gathered([block.greedy for block in blocks if block.greedy is not None])
        return Watched(evaluate(self.model, examples.learned), chosen, examples.units[chosen], sampled, greedy)


def _gathered(blocks: Sequence[Spoken]) -> HeardReplies:
    nats_LC = torch.cat([block.nats_LC for block in blocks], dim=1).cpu().numpy()
    lengths = torch.cat([block.lengths_C for block in blocks]).cpu().numpy()
    return HeardReplies([reply for block in blocks for reply in block.replies()], lengths, nats_LC[0], nats_LC[1:].mean(0))
