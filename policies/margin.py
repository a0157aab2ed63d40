"""What adversarial training brings down: a likelihood, and a margin between contexts.

Source: Niu & Bansal 2018 (arXiv 1809.02079), section 4 and appendix A.5, and the code that its authors released. A context s
that was perturbed so that the answer should not change teaches by maximum likelihood: the recorded reply t is learned from
the perturbed context. A context a that was perturbed so that the answer should change teaches what not to say:

    L = L_ML + alpha L_MM,    L_MM = mean over examples of max(0, M + [NLL(g | s) - NLL(g | a)] / |g|)

with g = t (truth), or g the greedy reply to s of the model as it is at that moment (greedy), which works where a model has
converged and its likelihood of t cannot grow any more. Both kinds of example may stand in one batch.

Works for every `TrainableResponder`. Which contexts are perturbed, and how, is decided elsewhere
(engine/jobs/perturb/adversarial.py).

Choices:
  * # Paper: silent about the scale. Ours: L_ML in nats per word, as `Fit` divides it, and L_MM as a mean over all examples of
    a batch, of which those without a contrast count as met.
  * # Released: half of a batch is clean and half is perturbed. Ours: every example is learned, and the contrast is read beside
    it, because the ratio of the two terms then does not depend on how many examples could be perturbed.
  * # Released: the greedy reply is decoded with the graph of training. Ours: in evaluation mode, in full precision.
  * # Released: VHRED draws its latent variable for each half anew. Ours: the margin is that of the prior's means
    (`Predictor.target_states`), so that the draws do not count as a difference between the contexts.

Shapes: B examples of a batch that have a contrast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from envs.pairs.turns import Turn, Turns
from policies.fitting.batches import Batch
from policies.fitting.evaluation import evaluate, example_nll
from policies.fitting.fit import Objective
from policies.fitting.loss import OutputLoss
from policies.fitting.predictor import Loss
from policies.responder import TrainableResponder

_ROWS = 128


@dataclass(frozen=True)
class Lesson:
    """One example of adversarial training.

    Args:
        context: what the reply is learned from.
        reply: the recorded one.
        contrast: a context that asks for another reply; None where there is none.
    """

    context: Turns
    reply: Turn
    contrast: Turns | None = None


@dataclass(frozen=True)
class LessonBatch:
    """Lessons as a model reads them."""

    learned: Any
    """Contexts and recorded replies, a batch of the model's own."""
    contrasted: Sequence[Lesson]
    """Those that have a contrast."""

    @property
    def targets_BT(self) -> Tensor:
        """What is predicted; padding included."""
        targets_BT: Tensor = self.learned.targets_BT
        return targets_BT

    @property
    def real_BT(self) -> Tensor:
        """True where there is something to predict."""
        real_BT: Tensor = self.learned.real_BT
        return real_BT

    def to(self, device: torch.device) -> LessonBatch:
        """The same batch on a device."""
        return LessonBatch(self.learned.to(device), self.contrasted)


class Lessons:
    """Lessons to be fitted to.

    Args:
        responder: the model that reads them.
        lessons: in the order in which `batch` counts them.
    """

    def __init__(self, responder: TrainableResponder, lessons: Sequence[Lesson]) -> None:
        self.lessons = lessons
        self.learned = responder.examples([each.context for each in lessons], [each.reply for each in lessons])
        self.num_targets = self.learned.num_targets

    def __len__(self) -> int:
        return len(self.lessons)

    def batch(self, indices: np.ndarray) -> LessonBatch:
        """The lessons at `indices` (B,)."""
        chosen = (self.lessons[index] for index in indices)
        return LessonBatch(self.learned.batch(indices), [each for each in chosen if each.contrast is not None])


class MarginObjective(Objective[LessonBatch]):
    """L_ML + alpha L_MM.

    Args:
        responder: the model that is trained.
        train: what it is trained on; sets what a word weighs beside an example.
        alpha: weight of the margin.
        margin: M, in nats per word.
        greedy: whether margins are those of the model's own greedy replies, and not of the recorded ones.
    """

    def __init__(self, responder: TrainableResponder, train: Lessons, *, alpha: float, margin: float, greedy: bool) -> None:
        super().__init__(responder.model)
        self.responder, self.alpha, self.margin, self.greedy = responder, alpha, margin, greedy
        self._words_per_example = float(train.num_targets.mean())

    def loss(self, batch: LessonBatch, output_loss: OutputLoss) -> Loss:
        """The model's own loss of what is learned and, in the same unit, the weighted hinges of what is contrasted."""
        own = self.model.loss(batch.learned, output_loss)
        if not batch.contrasted:
            return own
        hinges_B = (self.margin - self._gaps(batch.contrasted)).relu()
        # Fit divides by the mean number of words in a batch: a hinge that counts as much becomes a mean over examples.
        return Loss(own.total + self.alpha * self._words_per_example * hinges_B.sum(), own.nll)

    def validation(self, examples: Any) -> float:
        hinges = np.maximum(0.0, self.margin - self.gaps(examples.lessons))
        return evaluate(self.model, examples.learned).nll + self.alpha * float(hinges.sum()) / len(examples)

    @torch.no_grad()
    def gaps(self, lessons: Sequence[Lesson]) -> np.ndarray:
        """[NLL(g | a) - NLL(g | s)] / |g| (n,) of the lessons that have a contrast, in nats per word, dropout off."""
        contrasted = [each for each in lessons if each.contrast is not None]
        was_training = self.model.training
        self.model.eval()
        blocks = [self._gaps(contrasted[start : start + _ROWS]) for start in range(0, len(contrasted), _ROWS)]
        self.model.train(was_training)
        return torch.cat(blocks).cpu().numpy() if blocks else np.zeros(0)

    def _gaps(self, lessons: Sequence[Lesson]) -> Tensor:
        """How much less likely, per word, the replies become by the contrasts (B,); gradients flow through it."""
        contexts = [each.context for each in lessons]
        contrasts = [each.contrast for each in lessons if each.contrast is not None]
        replies = self._greedy(contexts) if self.greedy else [each.reply for each in lessons]
        # One pass over both halves.
        read: Batch = self.responder.examples([*contexts, *contrasts], [*replies, *replies]).batch(np.arange(2 * len(lessons)))
        nll_R, words_R = example_nll(self.model, read.to(self.model.output.weight.device))
        as_before_B, perturbed_B = nll_R.chunk(2)
        return (perturbed_B - as_before_B) / words_R[: len(lessons)]

    def _greedy(self, contexts: Sequence[Turns]) -> list[Turn]:
        was_training = self.model.training
        self.model.eval()
        # In full precision, as the model answers everywhere else.
        with torch.autocast(self.model.output.weight.device.type, enabled=False):
            replies = self.responder.respond(contexts)
        self.model.train(was_training)
        return replies
