"""Training of Hugging Face bi-encoders and cross-encoders on groups of candidates, exactly resumable.

Losses, of scores s behind a context c, its right reply r, and wrong replies:

    contrastive     -log  e^s(c, r) / sum over candidates x  e^s(c, x)
    cross-entropy   of each pair, the score as its log-odds

A bi-encoder's candidates are all replies of the batch: right replies of other contexts, and all given wrong ones. A reply that
is right for a context is no wrong one for it. Its score is the cosine times `scale` (20 as in sentence-transformers), or the
product as it is. A cross-encoder, which reads each pair anew, has the candidates of the context alone.

The choice of the best epoch needs one number for both: the contrastive loss among the candidates of the context.

Adapters, or all weights of the transformer learn; modules behind it stay. Texts are read side by side where they have equally
many tokens, so that nothing is padded, as in `encoders.py`. Dropout is that of the model.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from parley.envs.core.errors import ConfigError
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.ranking.groups import CandidateGroup
from parley.policies.chat.predictor import LearningWeights, adapted, merged
from parley.policies.chat.settings import LoraSettings
from parley.policies.core.checkpoint import autocast, eager
from parley.policies.core.fitting.loop import SAVE_EVERY_S, FittingLoop, StepLoss
from parley.policies.hugging_face.models import without_progress_bars
from parley.policies.ranking.encoders import BiEncoder, CrossEncoder, transformer_folder
from parley.policies.ranking.matching.fit import MatcherEpoch, MatcherFitness, Rewrite
from parley.policies.ranking.matching.settings import EncoderFitConfig
from parley.policies.ranking.sentence_modules import StaticWords

CONTRASTIVE = "contrastive"


class EncoderLearner(LearningWeights):
    """A ranker whose transformer learns.

    Args:
        ranker: of a Hugging Face folder; trained in place, in float32.
        lora: of adapters; None trains all weights.
        seed: of the first weights of adapters.

    Raises:
        ConfigError: the ranker is a table of words, peft is not installed, or no adapter fits the model.
    """

    def __init__(self, ranker: BiEncoder | CrossEncoder, lora: LoraSettings | None, seed: int) -> None:
        super().__init__()
        if isinstance(ranker.model, StaticWords):
            raise ConfigError("a table of word vectors has no layers to train", fix="name a model with a transformer")
        self.stored_as = next(ranker.model.parameters()).dtype
        device = ranker.model.device
        model = ranker.model.float()
        model = model.requires_grad_(True) if lora is None else adapted(model, lora, seed, None).to(device)
        self.ranker, self.has_adapters = ranker, lora is not None
        ranker.model = self.model = model.eval()

    def merge(self) -> None:
        """Add adapters to the weights, and bring these to the precision in which they were stored."""
        model = merged(self.model) if self.has_adapters else self.model
        self.has_adapters = False
        # What is measured is what is stored.
        self.ranker.model = self.model = model.eval().requires_grad_(False).to(self.stored_as)

    def save(self, source: Path, folder: Path) -> None:
        """Write the ranker as a copy of the folder that it began with, with other weights.

        Args:
            source: the folder that it began with.
            folder: to write, which is not there.
        """
        start = transformer_folder(source)
        # Weights in other formats than safetensors would be those of the model before.
        shutil.copytree(source, folder, ignore=shutil.ignore_patterns("*.bin", "*.onnx", "*.h5", "*.msgpack", "*.ot", ".git"))
        stored = folder / start.relative_to(source)
        for old in stored.glob("model*.safetensors*"):
            old.unlink()
        with without_progress_bars():
            self.model.save_pretrained(stored)


class EncoderFit(FittingLoop[EncoderLearner, EncoderFitConfig, MatcherFitness, MatcherEpoch]):
    """A training of an encoder that goes on from its weights.

    Args:
        model: that learns.
        train: groups to learn from, each with a right and a wrong reply.
        validation: groups that decide which epoch is kept.
        config: the recipe.
        seed: master seed.
        state_path: file of the exact training state; an existing one is resumed.
        attacked: returns a function that changes groups before a step, keeping their order, by the number of the epoch.
        save_every_s: seconds of an epoch after which the state is kept within it.
    """

    falling = "decay"

    def __init__(
        self,
        model: EncoderLearner,
        train: Sequence[CandidateGroup],
        validation: Sequence[CandidateGroup],
        config: EncoderFitConfig,
        seed: int,
        state_path: Path,
        attacked: Callable[[int], Rewrite] = lambda epoch: list,
        save_every_s: float = SAVE_EVERY_S,
    ) -> None:
        self.train, self.validation, self._attacked = train, validation, attacked
        self._rewrite: Rewrite = list
        self._loss = bi_encoder_loss if isinstance(model.ranker, BiEncoder) else cross_encoder_loss
        super().__init__(model, config, seed, state_path, save_every_s, fresh=False)

    def initialise(self, generator: torch.Generator) -> None:
        raise AssertionError("the weights are those of a model")

    def new_optimiser(self, rate: float) -> torch.optim.Optimizer:
        learning = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        return eager(torch.optim.AdamW)(learning, lr=rate, weight_decay=self.config.weight_decay)

    def groups(self, generator: np.random.Generator) -> Sequence[np.ndarray]:
        """Return groups in random order, in batches of equal sizes but for one."""
        num = len(self.train)
        return np.array_split(generator.permutation(num), math.ceil(num / self.config.batch_size))

    def begin_epoch(self, number: int) -> None:
        self._rewrite = self._attacked(number)

    def step(self, group: np.ndarray) -> StepLoss:
        """Make one update on the mean loss of the right replies, or of the pairs, before the update."""
        groups = list(self._rewrite([self.train[int(index)] for index in group]))
        with autocast(self.model.ranker.model.device, self.precision):
            losses = self._loss(self.model.ranker, groups, self.config)
        self.descend(losses.mean())
        nats = float(losses.detach().mean())
        return StepLoss(nats, nats * len(losses), len(losses))

    def validate(self) -> MatcherFitness:
        return encoder_fitness(self.model.ranker, self.validation, self.config.scale)

    def criterion(self, figures: MatcherFitness) -> float:
        return figures.loss

    def epoch(self, number: int, loss: float, figures: MatcherFitness, seconds: float, best: bool) -> MatcherEpoch:
        return MatcherEpoch(number, self._stage, self._rate, loss, figures, seconds, best)


def bi_encoder_loss(ranker: Any, groups: Sequence[CandidateGroup], config: EncoderFitConfig) -> Tensor:
    """Return the contrastive loss of each right reply of some groups among all replies of the batch (P,)."""
    rights: dict[Any, set[Utterance]] = {}
    for group in groups:
        of_group = {words for words, label in zip(group.candidates, group.labels, strict=True) if label}
        rights.setdefault(group.context, set()).update(of_group)
    replies = list(dict.fromkeys(words for group in groups for words in group.candidates))
    index = {words: column for column, words in enumerate(replies)}
    of_contexts_BE, of_replies_RE = ranker.learned_vectors([group.context for group in groups], replies)
    scores_BR = of_contexts_BE @ of_replies_RE.T * (config.scale if ranker.cosine else 1.0)
    rows, targets = [], list[int]()
    for row, group in enumerate(groups):
        right = rights[group.context]
        # Another right reply of the context is neither the target nor a wrong one.
        is_wrong_R = torch.tensor([words not in right for words in replies], device=scores_BR.device)
        for words in {words: None for words, label in zip(group.candidates, group.labels, strict=True) if label}:
            stays_R = is_wrong_R.clone()
            stays_R[index[words]] = True
            rows.append(scores_BR[row].masked_fill(~stays_R, -math.inf))
            targets.append(index[words])
    return F.cross_entropy(torch.stack(rows), torch.tensor(targets, device=scores_BR.device), reduction="none")


def cross_encoder_loss(ranker: Any, groups: Sequence[CandidateGroup], config: EncoderFitConfig) -> Tensor:
    """Return the cross-entropy of each pair, or the contrastive loss of each right reply in its group (P,)."""
    scores = ranker.learned_scores([(group.context, group.candidates) for group in groups])
    labels = [torch.tensor(group.labels, device=of_group.device) for group, of_group in zip(groups, scores, strict=True)]
    if config.loss != CONTRASTIVE:
        return F.binary_cross_entropy_with_logits(torch.cat(scores), torch.cat(labels).double(), reduction="none")
    return torch.cat([_listed(of_group, right) for of_group, right in zip(scores, labels, strict=True)])


def _listed(scores_C: Tensor, right_C: Tensor) -> Tensor:
    wrong = torch.logsumexp(scores_C[~right_C], dim=0)
    return torch.logaddexp(scores_C[right_C], wrong) - scores_C[right_C]


@torch.no_grad()
def encoder_fitness(ranker: BiEncoder | CrossEncoder, groups: Sequence[CandidateGroup], scale: float) -> MatcherFitness:
    """Return the contrastive loss of right replies among the candidates of their groups, and how often they are first."""
    was_training = ranker.model.training
    ranker.model.eval()
    if isinstance(ranker, BiEncoder):
        ranker.forget()
        scores = [
            scale * torch.from_numpy(of) for of in ranker.score_all([(group.context, group.candidates) for group in groups])
        ]
    else:
        scores = [of_group.cpu() for group in groups for of_group in ranker.learned_scores([(group.context, group.candidates)])]
    ranker.model.train(was_training)
    losses, first = [], []
    for of_group, group in zip(scores, groups, strict=True):
        right = torch.tensor(group.labels)
        losses.append(float(_listed(of_group, right).mean()))
        best = of_group == of_group.max()
        first.append(float((best & right).sum() / best.sum() / right.sum()))
    return MatcherFitness(float(np.mean(losses)), float(np.mean(first)))
