"""Matching models on disk (kinds `smn`, `dam`, `mrfn`), their training on labelled replies, and their use as rankers.

Each pair of context and reply is an example, right or wrong. A batch holds whole groups, so that a context is encoded once
for all its replies, and its texts are read without padding, as in scoring. With `fresh_negatives` a wrong reply is drawn anew
for each right one in each epoch; the draw depends on (seed, epoch, batch) alone. The loop is `policies/core/fitting/loop.py`;
the rate falls by steps, within one stage.

A ranker reads contexts in blocks, in which every different turn and reply is encoded once and pairs of like size are matched
side by side (`batches.py`). A score depends on its own context and reply alone, up to the last digits of float32. Nothing is
kept between calls: a search asks about some twenty drafts of a reply at a time, and encoding their context again is 1 % (DAM)
to 6 % (SMN) of the cost of scoring them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import compress, islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from parley.envs.core.errors import CheckpointError, ConfigError
from parley.envs.core.seeds import derive_seed
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.corpora.pairs.vocabulary import PairVocabulary
from parley.envs.ranking.groups import CandidateGroup, CandidateKind, Context
from parley.policies.core.checkpoint import ModelFormat, autocast, eager
from parley.policies.core.fitting.loop import SAVE_EVERY_S, FittingLoop, StepLoss
from parley.policies.core.responder import stored_kind
from parley.policies.ranking.matching.dam import DAM
from parley.policies.ranking.matching.matcher import Matcher
from parley.policies.ranking.matching.mrfn import MRFN
from parley.policies.ranking.matching.settings import DamSizes, MatcherFitConfig, MatcherSizes, MrfnSizes, SmnSizes
from parley.policies.ranking.matching.smn import SMN
from parley.policies.ranking.ranker import LimitedRanker, Pair, Unread

FORMATS: dict[str, ModelFormat[PairVocabulary, Any, Any]] = {
    "smn": ModelFormat("smn", PairVocabulary, SmnSizes, SMN),
    "dam": ModelFormat("dam", PairVocabulary, DamSizes, DAM),
    "mrfn": ModelFormat("mrfn", PairVocabulary, MrfnSizes, MRFN),
}
"""Storage formats by kind."""


def format_of(sizes: MatcherSizes) -> ModelFormat[PairVocabulary, Any, Any]:
    """Return the storage format of a model of such sizes."""
    return next(candidate for candidate in FORMATS.values() if isinstance(sizes, candidate.sizes))


def build(vocabulary: PairVocabulary, sizes: MatcherSizes) -> Matcher:
    """Return a new model of the kind that the sizes are of; its weights are not drawn yet."""
    model: Matcher = format_of(sizes).network(vocabulary, sizes)
    return model


class MatcherRanker(LimitedRanker):
    """A matching model as a ranker.

    Args:
        model: in evaluation mode, on the device where it is to work.
    """

    gives_probabilities = is_free = True

    def __init__(self, model: Matcher) -> None:
        self.model = model

    @torch.no_grad()
    def score_all(self, pairs: Sequence[Pair]) -> list[np.ndarray]:
        """Return probabilities that the candidates of each context fit it (C,) float64."""
        device = self.model.embedding.weight.device
        scores_of_pairs = []
        for some in self._blocks(pairs):
            block = self.model.reader.read(some, device)
            scores = self.model.scores(self.model(block)).cpu().numpy()
            scores_of_pairs += np.split(scores, np.cumsum([len(candidates) for _, candidates in some])[:-1])
        return scores_of_pairs

    def unread(self, context: Context, candidates: Sequence[Utterance]) -> Unread:
        """Return how many turns before the newest ones are not read, and which texts are longer than it reads."""
        sizes = self.model.sizes
        whole = sum(len(turn) <= sizes.words for turn in context[-sizes.turns :])
        return Unread(len(context) - whole, sum(len(reply) > sizes.words for reply in candidates))

    def slopes(self, context: Context, reply: Utterance, words: Sequence[str]) -> np.ndarray:
        """Return the first-order rise of the log-odds if words of a reply become others (T, W); views count alike.

        The slope follows word vectors alone: MRFN's letters, and the positions where a reply is cut, have slope 0.
        """
        model, read = self.model, dict[str, Tensor]()

        def follow(layer: nn.Module, given: object, vectors_WE: Tensor) -> Tensor:
            read["vectors_WE"] = vectors_WE.detach().requires_grad_()
            return read["vectors_WE"]

        block = model.reader.read([(context, [reply])], model.embedding.weight.device)
        with torch.enable_grad(), model.embedding.register_forward_hook(follow):
            (gradient_WE,) = torch.autograd.grad(model(block).mean(), read["vectors_WE"])
        text = block.pairs_P2[0, 1]
        start, size = int(block.starts_T[text]), min(len(reply), int(block.lengths_T[text]))
        here_TE, gradient_TE = (part[start : start + size] for part in (read["vectors_WE"].detach(), gradient_WE))
        entering = torch.from_numpy(model.vocabulary.encode(words)).to(gradient_WE.device)
        slopes_TW = gradient_TE @ model.embedding.weight[entering].T - (gradient_TE * here_TE).sum(1, keepdim=True)
        return np.pad(slopes_TW.detach().double().cpu().numpy(), ((len(reply) - size, 0), (0, 0)))

    def _blocks(self, pairs: Sequence[Pair]) -> Iterator[Sequence[Pair]]:
        """Yield neighbouring pairs, of as many words as the model reads at once, or one pair."""
        start, words = 0, 0
        for end, (context, candidates) in enumerate(pairs):
            here = sum(map(len, context)) + sum(map(len, candidates))
            if end > start and words + here > self.model.words_at_once:
                yield pairs[start:end]
                start, words = end, 0
            words += here
        if start < len(pairs):
            yield pairs[start:]


def load_matcher(folder: Path, device: str = "cpu") -> MatcherRanker:
    """Return the ranker of a run or checkpoint folder with a matching model, on a torch device.

    Raises:
        CheckpointError: nothing is there, it is damaged, or it is of another kind.
    """
    kind = stored_kind(folder)
    if kind not in FORMATS:
        fix = f"name a checkpoint of kind {', '.join(FORMATS)}"
        raise CheckpointError("the checkpoint holds no matching model", where=folder, got=f"kind {kind!r}", fix=fix)
    return MatcherRanker(FORMATS[kind].load(folder).to(device))


_LEAST = 1e-12
"""Least probability in a loss, for scores of 0 or 1 in float64."""

Rewrite = Callable[[Sequence[CandidateGroup]], Sequence[CandidateGroup]]
"""A function that changes training groups before a step, keeping their order, such as an attack on replies; each result
depends on its group alone."""


class WrongReplies(Protocol):
    """A source of fresh negatives."""

    def __call__(self, groups: np.ndarray, seed: int) -> Sequence[Utterance]:
        """Return a wrong reply for each of some training groups.

        Args:
            groups: their indices; one may come several times.
            seed: seed of the draws.
        """


@dataclass(frozen=True)
class MatcherFitness:
    """Figures of a model on some groups."""

    loss: float
    """Cross-entropy of a pair's score in nats."""
    recall_at_1: float
    """Share of a group's right replies that are first, ties as chance decides them; the mean over groups."""


@dataclass(frozen=True)
class MatcherEpoch:
    """The results of one epoch."""

    number: int
    stage: str
    """Always "full"."""
    learning_rate: float
    """At its end."""
    train_loss: float
    """Mean loss of a pair in nats while the weights moved; of MRFN the sum over its six views."""
    validation: MatcherFitness
    seconds: float
    best: bool
    """True if it is the best model so far by the criterion."""

    def __str__(self) -> str:
        figures = f"validation {self.validation.loss:.4f}, R@1 {self.validation.recall_at_1:.3f}"
        return f"training loss {self.train_loss:.4f}, {figures}{', best' if self.best else ''}"

    def as_row(self) -> dict[str, Any]:
        """Return flat JSON types for event logs and plots."""
        row = asdict(self)
        validation = row.pop("validation")
        return row | {f"validation_{name}": value for name, value in validation.items()}


class MatcherFit(FittingLoop[Matcher, MatcherFitConfig, MatcherFitness, MatcherEpoch]):
    """A supervised training of a matching model.

    Args:
        model: its weights are drawn here unless a saved state exists or `fresh` says otherwise.
        train: groups to learn from.
        validation: groups that decide which model is best.
        config: the recipe.
        seed: master seed.
        state_path: file of the exact training state; an existing one is resumed.
        save_every_s: seconds of an epoch after which the state is kept within it.
        fresh: whether weights are drawn; otherwise training goes on from those that the model has.
        wrong: draws fresh negatives, where the recipe asks for them; each training group then holds a right reply.
        rewrite: changes groups before a step, fresh negatives included; a batch has as many groups as without it.
        begin: prepares an epoch, counted from 1, of which so many batches are made already; the model is in evaluation mode.
        vectors: word vectors to start from (V, E), of the words of the model's vocabulary; drawn where there are none.

    Raises:
        ConfigError: the recipe asks for fresh negatives and `wrong` is not given.
    """

    falling = "decay"

    def __init__(
        self,
        model: Matcher,
        train: Sequence[CandidateGroup],
        validation: Sequence[CandidateGroup],
        config: MatcherFitConfig,
        seed: int,
        state_path: Path,
        save_every_s: float = SAVE_EVERY_S,
        *,
        fresh: bool = True,
        wrong: WrongReplies | None = None,
        rewrite: Rewrite = list,
        begin: Callable[[int, int], None] | None = None,
        vectors: np.ndarray | None = None,
    ) -> None:
        self.train, self.validation = train, validation
        if config.fresh_negatives and wrong is None:
            fix = "hand in what draws wrong replies, or set fresh_negatives to false"
            raise ConfigError("fresh negatives have no source", where="fresh_negatives", got="no `wrong`", fix=fix)
        self._wrong = wrong if config.fresh_negatives else None
        self._rewrite, self._begin, self._vectors = rewrite, begin, vectors
        self._sizes = np.array([2 * sum(group.labels) if self._wrong else len(group.labels) for group in train], dtype=np.int64)
        super().__init__(model, config, seed, state_path, save_every_s, fresh=fresh)

    def initialise(self, generator: torch.Generator) -> None:
        self.model.initialise(generator)
        if self._vectors is not None:
            self.model.take_vectors(self._vectors)

    def new_optimiser(self, rate: float) -> torch.optim.Optimizer:
        return eager(torch.optim.Adam)(
            [parameter for parameter in self.model.parameters() if parameter.requires_grad], lr=rate, fused=True
        )

    def groups(self, generator: np.random.Generator) -> Sequence[np.ndarray]:
        """Return groups in random order, in batches of about `batch_size` pairs, the last drawn one smaller."""
        order = generator.permutation(len(self.train))
        ends = np.cumsum(self._sizes[order])
        return np.split(order, np.flatnonzero(np.diff((ends - 1) // self.config.batch_size)) + 1)

    def begin_epoch(self, number: int) -> None:
        if self._begin is not None:
            self.model.eval()
            self._begin(number + 1, self.batches_done)

    def step(self, group: np.ndarray) -> StepLoss:
        """Make one update on the mean loss of the pairs, which is measured before the update."""
        pairs, labels = self._examples(group)
        batches_per_epoch = math.ceil(int(self._sizes.sum()) / self.config.batch_size)
        self._set_rate(len(self.history) * batches_per_epoch + self.batches_done)
        device = self.model.embedding.weight.device
        labels_P = torch.tensor(labels, dtype=torch.float32, device=device)
        block = self.model.reader.read(pairs, device)
        with autocast(device, self.precision):
            log_odds_PV = self.model(block).float()
        loss = self.model.loss(log_odds_PV, labels_P, self.config.loss_cap).mean()
        self.descend(loss)
        nats = float(loss.detach())
        return StepLoss(nats, nats * len(labels), len(labels))

    def descend(self, loss: torch.Tensor) -> None:
        if self.config.clip_by == "norm":
            super().descend(loss)
            return
        self._optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_value_(self.model.parameters(), self.config.clip)
        self._optimiser.step()

    def validate(self) -> MatcherFitness:
        return evaluate(self.model, self.validation)

    def criterion(self, figures: MatcherFitness) -> float:
        """Return the loss, or the share of right replies that are not first."""
        return figures.loss if self.config.criterion == "loss" else 1 - figures.recall_at_1

    def epoch(self, number: int, loss: float, figures: MatcherFitness, seconds: float, best: bool) -> MatcherEpoch:
        return MatcherEpoch(number, self._stage, self._rate, loss, figures, seconds, best)

    def _set_rate(self, steps: int) -> None:
        config = self.config
        self._rate = config.learning_rate * config.decay ** (steps // config.decay_steps if config.decay_steps else 0)
        for group in self._optimiser.param_groups:
            group["lr"] = self._rate

    def _examples(self, indices: np.ndarray) -> tuple[list[Pair], list[bool]]:
        """Return the contexts of some groups, each with its replies, and the labels of all replies in a row."""
        groups = [self.train[int(index)] for index in indices]
        groups = list(self._rewrite(groups if self._wrong is None else self._with_fresh(indices, groups, self._wrong)))
        return [(group.context, group.candidates) for group in groups], [label for group in groups for label in group.labels]

    def _with_fresh(self, indices: np.ndarray, groups: Sequence[CandidateGroup], wrong: WrongReplies) -> list[CandidateGroup]:
        """Return groups with their right replies, and behind them as many wrong ones."""
        right = [tuple(compress(group.candidates, group.labels)) for group in groups]
        counts = list(map(len, right))
        seed = derive_seed(self.seed, "negatives", len(self.history), self.batches_done)
        drawn = iter(wrong(np.repeat(indices, counts), seed))
        return [
            CandidateGroup(
                group.key,
                group.context,
                replies + tuple(islice(drawn, len(replies))),
                (True,) * len(replies) + (False,) * len(replies),
                tuple(compress(group.kinds, group.labels)) + (CandidateKind.RANDOM,) * len(replies),
                tuple(compress(group.attackable, group.labels)) + (True,) * len(replies),
            )
            for group, replies in zip(groups, right, strict=True)
        ]


def pair_losses(scores: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the cross-entropies of pairs in nats (P,).

    Args:
        scores: of the pairs, in [0, 1] (P,).
        right: whether the reply of each is right (P,) bool.
    """
    losses: np.ndarray = -np.log(np.clip(np.where(right, scores, 1 - scores), _LEAST, None))
    return losses


def evaluate(model: Matcher, groups: Sequence[CandidateGroup]) -> MatcherFitness:
    """Return a model's figures on groups, without dropout; groups without a right reply count in the loss alone."""
    was_training = model.training
    model.eval()
    scores = MatcherRanker(model).score_all([(group.context, group.candidates) for group in groups])
    model.train(was_training)
    nats, recalls = [], []
    for group_scores, group in zip(scores, groups, strict=True):
        right = np.array(group.labels)
        nats.append(pair_losses(group_scores, right))
        if right.any():
            first = group_scores == group_scores.max()
            recalls.append((first & right).sum() / first.sum() / right.sum())
    return MatcherFitness(float(np.concatenate(nats).mean()), float(np.mean(recalls)) if recalls else math.nan)
