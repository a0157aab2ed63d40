"""Lessons of causal Hugging Face models with contrasts: contexts behind which a reply shall be less likely.

    L = L_ML + alpha L_MM,    L_MM = mean over lessons of max(0, M + [NLL(g | s) - NLL(g | a)] / |g|)

as in `policies/core/margin.py`, of Niu & Bansal 2018 (arXiv 1809.02079), section 4; s is the prompt of a lesson, a its
contrast.

Choices:
  * # Paper: g is the greedy reply of the model as it is at that moment. Ours: the lesson's own reply, which is the greedy one
    of the model before it learned, or the recorded one: a large model would spend most of a training on saying replies anew.
    NLL(g | s) is then at hand, because L_ML has read it.
  * As there, lessons without a contrast count as met.

Shapes: B lessons, C of them with a contrast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from parley.policies.chat.predictor import ChatBatch, ChatLesson, ChatLessons, ChatPredictor
from parley.policies.core.fitting.batches import ExtendedBatch
from parley.policies.core.fitting.evaluation import evaluate, example_nll
from parley.policies.core.fitting.fit import Objective
from parley.policies.core.fitting.loss import OutputLoss
from parley.policies.core.fitting.predictor import Loss

_ROWS = 128


@dataclass(frozen=True)
class ContrastedBatch(ExtendedBatch):
    """Lessons as a model reads them, and beside them the replies of some behind their contrasts.

    Args:
        rows_C: which lessons have a contrast, int64.
        contrasts: these, with the contrast in the prompt's place; None where there are none.
    """

    rows_C: Tensor
    contrasts: ChatBatch | None

    def to(self, device: torch.device) -> ContrastedBatch:
        """The same batch on a device."""
        contrasts = None if self.contrasts is None else self.contrasts.to(device)
        return ContrastedBatch(self.learned.to(device), self.rows_C.to(device), contrasts)


class ContrastedLessons:
    """Lessons, some of them with a contrast.

    Args:
        learned: all of them.
        contrasts: the same with their contrasts in the prompts' places, of those that have one.
        places: (C,) which of `learned` these are, ascending.
    """

    def __init__(self, learned: ChatLessons, contrasts: ChatLessons, places: Sequence[int]) -> None:
        self.learned, self.contrasts = learned, contrasts
        self.places = np.array(places, dtype=np.int64)
        self._contrast = {place: number for number, place in enumerate(places)}
        self.num_targets = learned.num_targets

    def __len__(self) -> int:
        return len(self.learned)

    def batch(self, indices: np.ndarray) -> ContrastedBatch:
        """The lessons at `indices` (B,)."""
        rows = [row for row, place in enumerate(indices.tolist()) if place in self._contrast]
        behind = np.array([self._contrast[place] for place in indices[rows].tolist()], dtype=np.int64)
        contrasts = self.contrasts.batch(behind) if rows else None
        return ContrastedBatch(self.learned.batch(indices), torch.tensor(rows, dtype=torch.int64), contrasts)


class ContrastObjective(Objective[ContrastedBatch]):
    """L_ML + alpha L_MM.

    Args:
        model: that is trained.
        train: what it is trained on; sets what a token weighs beside a lesson.
        alpha: weight of the margin.
        margin: M, in nats per token.
    """

    def __init__(self, model: ChatPredictor, train: ContrastedLessons, *, alpha: float, margin: float) -> None:
        super().__init__(model)
        self.alpha, self.margin = alpha, margin
        self._tokens_per_lesson = float(train.num_targets.mean())

    def loss(self, batch: ContrastedBatch, output_loss: OutputLoss) -> Loss:
        """The replies' likelihood and, in the same unit, the weighted hinges of those with a contrast."""
        nll_B, _ = example_nll(self.model, batch.learned)
        nll = nll_B.sum()
        if batch.contrasts is None:
            return Loss(nll, nll)
        behind_C, tokens_C = example_nll(self.model, batch.contrasts)
        hinges_C = (self.margin - (behind_C - nll_B[batch.rows_C]) / tokens_C).relu()
        # Fit divides by the mean number of tokens in a batch: a hinge that counts as much becomes a mean over lessons.
        return Loss(nll + self.alpha * self._tokens_per_lesson * hinges_C.sum(), nll)

    def validation(self, examples: Any) -> float:
        hinges = np.maximum(0.0, self.margin - gaps(self.model, examples))
        return evaluate(self.model, examples.learned).nll + self.alpha * float(hinges.sum()) / len(examples)


@torch.no_grad()
def gaps(model: Any, lessons: ContrastedLessons) -> np.ndarray:
    """[NLL(g | a) - NLL(g | s)] / |g| (C,) of the lessons that have a contrast, in nats per token, dropout off.

    Args:
        model: a `ChatPredictor`.
        lessons: to be measured.
    """
    was_training, device = model.training, next(model.parameters()).device
    model.eval()
    found = []
    for start in range(0, len(lessons.places), _ROWS):
        rows = np.arange(start, min(start + _ROWS, len(lessons.places)))
        as_before_C, tokens_C = example_nll(model, lessons.learned.batch(lessons.places[rows]).to(device))
        behind_C, _ = example_nll(model, lessons.contrasts.batch(rows).to(device))
        found.append(((behind_C - as_before_C) / tokens_C).cpu().numpy())
    model.train(was_training)
    return np.concatenate(found) if found else np.zeros(0)


def contrasted(
    tokenizer: Any, lessons: Sequence[ChatLesson], contrasts: Sequence[str], end_id: int, longest: float
) -> ContrastedLessons:
    """Lessons with a contrast each, or an empty one.

    Args:
        tokenizer: of the model.
        lessons: in the order in which `batch` counts them.
        contrasts: the prompts behind which their replies shall be less likely; empty where there is none.
        end_id: the token that ends a reply.
        longest: tokens that the model reads at most; infinity where nothing limits them.

    Raises:
        DataError: as `ChatLessons`.
    """
    places = [place for place, contrast in enumerate(contrasts) if contrast]
    behind = [ChatLesson(contrasts[place], lessons[place].reply, lessons[place].ended) for place in places]
    return ContrastedLessons(
        ChatLessons(tokenizer, lessons, end_id, longest), ChatLessons(tokenizer, behind, end_id, longest), places
    )
