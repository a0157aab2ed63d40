"""What adversarial training brings down: a likelihood, and a margin between contexts.

Source: Niu & Bansal 2018 (arXiv 1809.02079), section 4 and appendix A.5, and the code that its authors released. A context s
that was perturbed so that the answer should not change teaches by maximum likelihood: the recorded reply t is learned from
the perturbed context. A context a that was perturbed so that the answer should change teaches what not to say:

    L = L_ML + alpha L_MM,    L_MM = mean over examples of max(0, M + [NLL(g | s) - NLL(g | a)] / |g|)

with g = t (truth), or g the greedy reply to s of the model as it is at that moment (greedy), which works where a model has
converged and its likelihood of t cannot grow any more. Both kinds of example may stand in one batch. For a model of
Reranking-RL (`policies/core/reranking.py`), as released, L_MM is the mean of that of a sampled reply and that of t (mixed), and
alpha is multiplied by 1 - w.

Works for every `TrainableResponder`. Which contexts are perturbed, and how, is decided elsewhere
(engine/perturb/verbs/adversarial.py).

Choices:
  * # Paper: silent about the scale. Ours: L_ML in nats per word, as `Fit` divides it, and L_MM as a mean over all examples of
    a batch, of which those without a contrast count as met.
  * # Released: half of a batch is clean and half is perturbed. Ours: every example is learned, and the contrast is read beside
    it, because the ratio of the two terms then does not depend on how many examples could be perturbed.
  * # Released: the greedy reply is decoded with the graph of training. Ours: in evaluation mode, in full precision.
  * # Paper: silent about whether a model of Reranking-RL goes on to earn rewards. Ours: it does not.
  * # Released: VHRED draws its latent variable for each half anew. Ours: the margin is that of the prior's means
    (`Predictor.target_states`), so that the draws do not count as a difference between the contexts.

Shapes: B examples of a batch that have a contrast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from parley.envs.corpora.pairs.turns import Turn, Turns, turn_of
from parley.policies.core.fitting.batches import Batch, ExtendedBatch
from parley.policies.core.fitting.evaluation import evaluate, example_nll
from parley.policies.core.fitting.fit import Objective
from parley.policies.core.fitting.loss import OutputLoss
from parley.policies.core.fitting.predictor import Loss
from parley.policies.core.responder import TrainableResponder
from parley.policies.core.speaking import say

MarginTargets = Literal["greedy", "truth", "mixed"]
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
class LessonBatch(ExtendedBatch):
    """Lessons as a model reads them; those that have a contrast stand beside."""

    contrasted: Sequence[Lesson]


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
        targets: whose margins they are: the model's own greedy replies', the recorded ones', or the mean of those of sampled
            and of recorded ones.
    """

    def __init__(
        self, responder: TrainableResponder, train: Lessons, *, alpha: float, margin: float, targets: MarginTargets
    ) -> None:
        super().__init__(responder.model)
        self.responder, self.alpha, self.margin, self.targets = responder, alpha, margin, targets
        self._words_per_example = float(train.num_targets.mean())

    def loss(self, batch: LessonBatch, output_loss: OutputLoss) -> Loss:
        """The model's own loss of what is learned and, in the same unit, the weighted hinges of what is contrasted."""
        own = self.model.loss(batch.learned, output_loss)
        if not batch.contrasted:
            return own
        hinges_B = (self.margin - self._gaps(batch.contrasted)).relu().mean(0)
        # Fit divides by the mean number of words in a batch: a hinge that counts as much becomes a mean over examples.
        return Loss(own.total + self.alpha * self._words_per_example * hinges_B.sum(), own.nll)

    def validation(self, examples: Any) -> float:
        hinges = np.maximum(0.0, self.margin - self._measured(examples.lessons)).mean(0)
        return evaluate(self.model, examples.learned).nll + self.alpha * float(hinges.sum()) / len(examples)

    def gaps(self, lessons: Sequence[Lesson]) -> np.ndarray:
        """[NLL(g | a) - NLL(g | s)] / |g| (n,) of the lessons that have a contrast, in nats per word, dropout off.

        Of sampled and recorded replies, the mean of both; what is sampled is the same every time.
        """
        return np.asarray(self._measured(lessons).mean(0))

    @torch.no_grad()
    def _measured(self, lessons: Sequence[Lesson]) -> np.ndarray:
        """The gaps (G, n) of each kind of reply."""
        contrasted = [each for each in lessons if each.contrast is not None]
        was_training, device = self.model.training, self.model.output.weight.device
        self.model.eval()
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(0)
            blocks = [self._gaps(contrasted[start : start + _ROWS]) for start in range(0, len(contrasted), _ROWS)]
        self.model.train(was_training)
        return torch.cat(blocks, dim=1).cpu().numpy() if blocks else np.zeros((1, 0))

    def _gaps(self, lessons: Sequence[Lesson]) -> Tensor:
        """How much less likely per word G kinds of reply become by the contrasts (G, B); gradients flow through it."""
        contexts = [each.context for each in lessons]
        contrasts = [each.contrast for each in lessons if each.contrast is not None]
        kinds = [self._said(contexts, sampled=False)] if self.targets == "greedy" else [[each.reply for each in lessons]]
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
        """Replies of the model as it is; sampled ones are drawn by torch's generator."""
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
        said = say(network, network.hear(read), torch.arange(num, device=device).unsqueeze(0), draws)
        return [turn_of(network.vocabulary.decode(reply)) for reply in said.replies()]
