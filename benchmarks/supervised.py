"""Supervised training: our fast recipe on our recurrence against the released recipe on torch's own layers.

The reference is the released training loop: `torch.nn.GRU` forwards and backwards, SGD at rate 1 with Nesterov momentum,
batches of 16 sorted by length. Ours is the preset `fast` of `parley train negotiator`. Both start from the same weights,
see the same dialogues and take turns, so that both meet the same neighbours on the machine; only training is timed.

"ratio" compares seconds to the same validation loss (words + 0.5 * selection, nats), "epoch_ratio" seconds for an epoch.
"identical": the gradients of one batch through torch's layers and through ours agree to 1e-4.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.measure import BenchmarkOptions, Clock, Result, run
from benchmarks.weights import EMBEDDED, pick
from parley.engine.negotiation.verbs.negotiator import fast, lewis2017
from parley.envs.core.seeds import derive_seed, stream
from parley.envs.negotiation.corpora.catalogue import Split, load_corpus
from parley.policies.negotiator.model import (
    NegotiationBatch,
    Negotiator,
    evaluate,
    make_batch,
    shuffled,
    supervised_loss,
    word_nll,
)
from parley.policies.negotiator.settings import NegotiatorFitConfig
from parley.policies.negotiator.speaker import NegotiatorEpoch, NegotiatorFit

SEED = 1
MOST_DIFFERENCE = 1e-4
Curve = list[tuple[float, float]]
"""Seconds of training so far, and the validation loss then."""


@dataclass(frozen=True, kw_only=True)
class Options(BenchmarkOptions):
    """The fast recipe against the released one, on the same dialogues."""

    corpus: str = EMBEDDED
    """Registered corpus, or path/file.py:NAME."""
    data_root: Path | None = None
    """Where corpora lie; the usual places when not given."""
    epochs: int = 1
    """Epochs of each."""

    @property
    def stops(self) -> int:
        """Return the interruptions of an epoch, to change turns and to evaluate."""
        return 8 if self.quick else 4


def plain_pass(model: Negotiator, batch: NegotiationBatch) -> tuple[Tensor, Tensor]:
    """Return word logits (B, T - 1, V) and item logits (B, 6, 18) by torch's own layers, padding read like words."""
    scenario_BC = model.encode_context(batch.contexts_B6)
    words_TBE = model.word_embedding(batch.tokens_BT.t())
    repeated_TBC = scenario_BC.expand(len(words_TBE), *scenario_BC.shape)
    states_TBH, _ = nn.GRU.forward(model.language, model.dropout(torch.cat([words_TBE, repeated_TBC], 2)))
    logits_TBV = F.linear(model.decoder(states_TBH[:-1]), model.word_embedding.weight)
    hidden_TB2S, _ = nn.GRU.forward(model.selection, model.dropout(torch.cat([states_TBH, words_TBE], 2)))
    weights_TB1 = model.attention_score(torch.tanh(model.attention_hidden(hidden_TB2S))).softmax(0)
    attended_B2S = (weights_TB1 * hidden_TB2S).sum(0)
    encoded = torch.tanh(model.selection_encoder(model.dropout(torch.cat([attended_B2S, scenario_BC], 1))))
    return logits_TBV.transpose(0, 1), model.selection_heads(encoded).view(len(encoded), 6, -1)


def loss_of(passed: tuple[Tensor, Tensor], batch: NegotiationBatch, weight: float) -> Tensor:
    """Return the loss of a batch."""
    logits_BTV, choice_B6K = passed
    nll_BT = word_nll(logits_BTV, batch.tokens_BT)
    return supervised_loss(choice_B6K, nll_BT, batch.lengths_B, batch.outputs_B6, weight)[0]


class PlainTraining:
    """The released recipe, some batches at a time.

    Args:
        model: starts from its present weights.
        train: dialogues to learn from.
        recipe: rate, momentum, batch size and clip are read.
    """

    def __init__(self, model: Negotiator, train: Split, recipe: NegotiatorFitConfig) -> None:
        self.model, self.train, self.recipe = model, train, recipe
        self.clock = Clock()
        self.num_dialogues = 0
        self._optimiser = torch.optim.SGD(model.parameters(), lr=recipe.learning_rate, momentum=recipe.momentum, nesterov=True)
        self._batches = self._endless()

    def advance(self, num_dialogues: int) -> None:
        """Train until the model has seen `num_dialogues` dialogues."""
        with torch.random.fork_rng(), self.clock.running():
            torch.manual_seed(derive_seed(SEED, "dropout", self.num_dialogues))
            self.model.train()
            while self.num_dialogues < num_dialogues:
                batch = next(self._batches)
                self._optimiser.zero_grad()
                loss_of(plain_pass(self.model, batch), batch, self.recipe.selection_weight).backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip)
                self._optimiser.step()
                self.num_dialogues += len(batch.lengths_B)

    def _endless(self) -> Iterator[NegotiationBatch]:
        epoch = 0
        while True:
            for group in shuffled(self.train, self.recipe.batch_size, stream(SEED, "order", epoch)):
                yield make_batch(self.train, group)
            epoch += 1


def gradient_difference(model: Negotiator, split: Split) -> float:
    """Return the largest relative difference of a parameter's gradient between torch's layers and ours, dropout off.

    The batch is the largest group of dialogues of one length, at most 16: without padding both compute the same thing.
    """
    lengths, counts = np.unique(split.lengths, return_counts=True)
    batch = make_batch(split, np.flatnonzero(split.lengths == lengths[counts.argmax()])[:16])
    model.eval()
    passes = (plain_pass(model, batch), model(batch.contexts_B6, batch.tokens_BT, batch.lengths_B))
    theirs, ours = (torch.autograd.grad(loss_of(passed, batch, 0.5), list(model.parameters())) for passed in passes)
    # A parameter whose gradient is zero but for rounding (the attention's last bias) is measured against all of them.
    floor = 1e-3 * torch.cat([grad.flatten() for grad in theirs]).norm()
    return max(float((a - b).norm() / torch.maximum(a.norm(), floor)) for a, b in zip(theirs, ours, strict=True))


def train_both(train: Split, validation: Split, ours: Negotiator, options: Options) -> tuple[Curve, Curve]:
    """Train both by turns; return our curve and the reference's."""
    recipe = replace(fast().fit, max_epochs=options.epochs, patience=options.epochs, anneal_floor=1.0)
    reference = Negotiator(ours.vocabulary, ours.sizes)
    with tempfile.TemporaryDirectory() as folder:
        fit = NegotiatorFit(ours, train, validation, recipe, SEED, Path(folder) / "state.safetensors")
        reference.load_state_dict(ours.state_dict())
        plain = PlainTraining(reference, train, lewis2017().fit)
        start = _validation_loss(ours, validation, recipe)
        curve, reference_curve = [(0.0, start)], [(0.0, start)]
        mark = time.process_time()

        def on_batch(epoch: int, done: int, total: int) -> None:
            nonlocal mark
            if done * options.stops // total == (done - 1) * options.stops // total:
                return
            seconds = curve[-1][0] + time.process_time() - mark
            curve.append((seconds, _validation_loss(ours, validation, recipe)))
            plain.advance((epoch - 1) * len(train) + len(train) * done // total)
            reference_curve.append((plain.clock.cpu_s, _validation_loss(reference, validation, recipe)))
            mark = time.process_time()

        def on_epoch(_: NegotiatorEpoch) -> None:
            nonlocal mark
            mark = time.process_time()

        fit.run(on_epoch, on_batch)
    return curve, reference_curve


def _validation_loss(model: Negotiator, validation: Split, recipe: NegotiatorFitConfig) -> float:
    fitness = evaluate(model, validation)
    return math.log(fitness.perplexity) + recipe.selection_weight * fitness.selection_loss


def seconds_to(loss: float, curve: Curve) -> float:
    """Return the seconds at which a curve first reaches a loss, interpolated between its points."""
    (last_seconds, last_loss), *rest = curve
    for seconds, value in rest:
        if value <= loss:
            return last_seconds + (seconds - last_seconds) * (last_loss - loss) / (last_loss - value)
        last_seconds, last_loss = seconds, value
    raise AssertionError("the loss is one that the curve reaches")


def measure(options: Options) -> Result:
    """Compare gradients, then train both."""
    corpus = load_corpus(options.corpus, options.data_root)
    train, validation = corpus.splits["train"], corpus.splits["val"]
    size = len(train)
    if options.quick:
        train = pick(train, stream(SEED, "train").choice(len(train), size=800, replace=False))
        validation = pick(validation, stream(SEED, "validation").choice(len(validation), size=64, replace=False))
    model = Negotiator(corpus.vocabulary, fast().fit.sizes)
    model.initialise(torch.Generator().manual_seed(derive_seed(SEED, "gradients")))
    difference = gradient_difference(model, train)
    curve, reference_curve = train_both(train, validation, model, options)
    # The loss that both reach: the worse of the two best.
    reached = max(min(loss for _, loss in points) for points in (curve, reference_curve))
    ours_s, reference_s = seconds_to(reached, curve), seconds_to(reached, reference_curve)
    epoch_s, reference_epoch_s = (points[-1][0] / options.epochs * size / len(train) for points in (curve, reference_curve))
    return Result(
        ratio=reference_s / ours_s,
        identical=difference <= MOST_DIFFERENCE,
        figures={
            "gradient_difference": difference,
            "epoch_ratio": reference_epoch_s / epoch_s,
            "epoch_cpu_s": epoch_s,
            "reference_epoch_cpu_s": reference_epoch_s,
            "loss_reached": reached,
            "cpu_s_to_loss": ours_s,
            "reference_cpu_s_to_loss": reference_s,
            "corpus": options.corpus,
            "dialogues": len(train),
            "epochs": options.epochs,
            "curve": curve,
            "reference_curve": reference_curve,
        },
    )


if __name__ == "__main__":
    run("supervised", Options, measure)
