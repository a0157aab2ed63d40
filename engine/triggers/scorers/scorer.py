"""The protocols between a trigger search and a model, and `PlainScorer`, their plain implementation.

A search holds one `BestInput` per (target, restart): an input, its loss, and the slope of the loss at it. It asks a
`Scorer` for three things: to measure inputs, for the slope of the loss towards every word at a position, and for the best
of a list of single swaps. `PlainScorer` answers for anything that is a `Victim`, with one batched forward pass of every
candidate; `lstm/scorer.py` gives the same answers for Parley's own networks with a fraction of the arithmetic, and
`causal/scorer.py` for causal Hugging Face models.

    B searches, G candidates each, R inputs, N searched positions, T words of a target with its end, V words, E embedding
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import pad

from parley.engine.triggers.hits import Reading
from parley.engine.triggers.methods.objective import TriggerObjective
from parley.engine.triggers.searches.batch_finder import BatchFinder
from parley.envs.core.errors import CheckpointError

LEAST_GAIN = 1e-6
"""A swap's least gain in nats, or its share of losses above 1: the current word returns within rounding of its loss."""


class Victim(Protocol):
    """A model whose replies are searched for."""

    @property
    def embedding_VE(self) -> Tensor:
        """Return the embeddings of the words of the input."""

    @property
    def searchable_V(self) -> Tensor:
        """Return a mask of the words that an input may hold (bool): no special tokens."""

    @property
    def input_length(self) -> int:
        """Return N, the searched positions; the model's input may have further tokens, such as a prompt."""

    def reply_logits(self, embedded_BNE: Tensor, replies_BT: Tensor) -> Tensor:
        """Return logits (B, T, V) of each word of the replies given those before it; differentiable in the embeddings."""


class TextVictim(Victim, Protocol):
    """A model that also knows the text of its words."""

    def target(self, text: str) -> Tensor:
        """Return the word ids (T,) int64 of a reply, its end included, on the model's device.

        Raises:
            DataError: the model cannot say some of it.
        """

    def words(self, ids: Sequence[int]) -> list[str]:
        """Return the spelling of each word."""

    def text(self, ids: Sequence[int]) -> str:
        """Return an input as text."""


class InputModel(Protocol):
    """A language model that judges inputs; its words are the victim's."""

    @property
    def embedding_VE(self) -> Tensor:
        """Return the embeddings of the words."""

    @property
    def end_id(self) -> int:
        """Return the id that ends an input."""

    def word_logits(self, embedded_BNE: Tensor) -> Tensor:
        """Return logits (B, N + 1, V) of each word of the inputs and of their end; differentiable in the embeddings."""


@dataclass(frozen=True, eq=False)
class BestInput:
    """An input that a search has reached, measured.

    Args:
        target: word ids (T,) int64, the end included.
        words: the input's word ids (N,) int64.
        loss: the objective.
        reading: log probabilities of the target's words and of the input.
        cache: data of the scorer that measured it.
        allowed: True if the victim's rules allow it as a whole; otherwise its loss is infinite.
    """

    target: Tensor
    words: Tensor
    loss: float
    reading: Reading
    cache: Any = field(repr=False)
    allowed: bool = True


@dataclass(frozen=True, eq=False)
class Swaps:
    """Single swaps to try on one incumbent each.

    Args:
        positions_BG: the positions, int64.
        words_BG: the new words, int64.
        nums: number of swaps of each list that count, the first ones; all when None.
    """

    positions_BG: Tensor
    words_BG: Tensor
    nums: Sequence[int] | None = None

    def lists(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield positions and words (G,) of each list."""
        nums = self.nums or [self.words_BG.shape[1]] * len(self.words_BG)
        for num, positions_G, words_G in zip(nums, self.positions_BG, self.words_BG, strict=True):
            yield positions_G[:num], words_G[:num]


class Scorer(Protocol):
    """The losses and slopes of a model's inputs, for one objective."""

    @property
    def victim(self) -> Victim:
        """Return the model."""

    @property
    def objective(self) -> TriggerObjective:
        """Return the objective."""

    def measure(self, targets: Sequence[Tensor], words_BN: Tensor) -> list[BestInput]:
        """Measure inputs together with the slopes at them.

        Results do not depend on what else is in the batch.
        """

    def slopes(self, incumbents: Sequence[BestInput], positions_B: Tensor) -> Tensor:
        """Return the first-order change of the loss (B, V) towards each word at a position, up to a constant per row.

        It is the gradient in the one-hot input x_t, taken as continuous (equation 8); the lower, the better the word.
        """

    def gradients(self, incumbents: Sequence[BestInput]) -> Tensor:
        """Return the loss's gradient (B, N, E) in the words' embeddings, a language model's term left out."""

    def best_swap(self, incumbents: Sequence[BestInput], swaps: Swaps, beat_B: Tensor) -> tuple[Tensor, Tensor]:
        """Return the best swap of each list, if it is better than the loss to beat.

        Args:
            incumbents: where the swaps start from.
            swaps: the lists.
            beat_B: the loss that must be undercut, float32; infinity for none.

        Returns:
            (choice_B, loss_B): index of the swap of least loss, ties to the first, and its loss; -1 and `beat_B` where none
            undercuts it. Choices do not depend on what else is in the batch, and losses within rounding.
        """

    def losses(self, targets: Sequence[Tensor], words_RN: Tensor) -> Tensor:
        """Return the loss of each input (R,) for the target beside it."""


class ContinuingScorer(Scorer, Protocol):
    """A scorer of a victim that predicts the next word of its inputs; it also gives losses of inputs shorter than N."""

    def next_logits(self, target: Tensor, words_Bt: Tensor) -> Tensor:
        """Return logits (B, V), float32, of the word behind the first t words of inputs; equal ones if t is 0."""


@dataclass(frozen=True, eq=False)
class Slope:
    """The plain scorer's cache of an incumbent: gradients (N, E) in both embeddings, and log P_LM of every word (N, V)."""

    gradient_NE: Tensor
    input_gradient_NE: Tensor | None
    input_pull_NV: Tensor | None
    keys_values: Any


class PlainScorer:
    """The reference scorer, also for models without a faster one: one forward pass of everything.

    Args:
        victim: the model.
        objective: the loss.
        input_model: judges inputs; used only if the objective weighs it, and for readings.
        rows: inputs per forward pass, until memory runs out.
    """

    def __init__(
        self, victim: Victim, objective: TriggerObjective, input_model: InputModel | None = None, *, rows: int = 128
    ) -> None:
        assert objective.lm_weight == 0 or input_model is not None, "the objective weighs a language model"
        self.victim, self.objective, self.input_model = victim, objective, input_model
        self._finder = BatchFinder(rows, "inputs of a forward pass")

    def measure(self, targets: Sequence[Tensor], words_BN: Tensor) -> list[BestInput]:
        """Measure inputs one by one, so that no batch can change a result."""
        return [self._measure(target, words_N) for target, words_N in zip(targets, words_BN, strict=True)]

    def slopes(self, incumbents: Sequence[BestInput], positions_B: Tensor) -> Tensor:
        """Return the one-hot gradient at a position: through both embeddings, and through the language model's prediction."""
        rows = []
        # Positions of one incumbent in one product.
        for _, group in groupby(zip(incumbents, positions_B.tolist(), strict=True), key=lambda pair: id(pair[0])):
            group_rows = list(group)
            slope: Slope = group_rows[0][0].cache
            at = [position for _, position in group_rows]
            rows_bV = slope.gradient_NE[at] @ self.victim.embedding_VE.T
            if slope.input_gradient_NE is not None and slope.input_pull_NV is not None:
                assert self.input_model is not None
                rows_bV = rows_bV + (slope.input_gradient_NE[at] @ self.input_model.embedding_VE.T).to(rows_bV.device)
                rows_bV = rows_bV - slope.input_pull_NV[at].to(rows_bV.device)
            rows.append(rows_bV)
        return torch.cat(rows)

    def gradients(self, incumbents: Sequence[BestInput]) -> Tensor:
        """Return the stored gradients of the backward pass (B, N, E)."""
        return torch.stack([incumbent.cache.gradient_NE for incumbent in incumbents])

    def next_logits(self, target: Tensor, words_Bt: Tensor) -> Tensor:
        """Return the victim's logits (B, V)."""
        logits_BV: Tensor = self.victim.next_logits(words_Bt)  # type: ignore[attr-defined]  # callers check that it exists
        return logits_BV

    def best_swap(self, incumbents: Sequence[BestInput], swaps: Swaps, beat_B: Tensor) -> tuple[Tensor, Tensor]:
        """Return the argmin over the losses of the whole lists."""
        choices, losses = [], []
        for incumbent, (positions_G, words_G), beat in zip(incumbents, swaps.lists(), beat_B, strict=True):
            loss_G = self.swap_losses(incumbent, positions_G, words_G)
            require_numbers(loss_G)
            best = int(loss_G.argmin())
            undercut = bool(loss_G[best] < beat)
            choices.append(best if undercut else -1)
            losses.append(loss_G[best] if undercut else beat)
        return torch.tensor(choices), torch.stack(losses)

    def swap_losses(self, incumbent: BestInput, positions_G: Tensor, words_G: Tensor) -> Tensor:
        """Return the loss (G,) of each swap of a list."""
        tried_GN = incumbent.words.repeat(len(words_G), 1)
        tried_GN[torch.arange(len(words_G)), positions_G] = words_G
        return self.losses([incumbent.target] * len(words_G), tried_GN)

    @torch.no_grad()
    def losses(self, targets: Sequence[Tensor], words_RN: Tensor) -> Tensor:
        """Return the loss of each input (R,)."""
        losses: list[Tensor] = []

        def score(rows: Sequence[int]) -> None:
            words_BN = words_RN[rows[0] : rows[-1] + 1]
            replies_BT, mask_BT = stack_targets([targets[row] for row in rows])
            nll_BT, likeliest_BT = read_replies(self.victim, self.victim.embedding_VE[words_BN], replies_BT)
            losses.append(self.objective.loss(nll_BT, likeliest_BT, mask_BT, self.input_nll(words_BN)))

        self._finder.in_pieces(score, range(len(words_RN)))
        return torch.cat(losses)

    def input_nll(self, words_BN: Tensor) -> Tensor | None:
        """Return R(x) of each input (B,); None if the objective does not weigh it."""
        if self.objective.lm_weight == 0:
            return None
        assert self.input_model is not None
        there_BN = words_BN.to(self.input_model.embedding_VE.device)
        return self._inputs(self.input_model.embedding_VE[there_BN], there_BN)[0].to(words_BN.device)

    def _read(self, embedded_1NE: Tensor, target_T: Tensor) -> tuple[Tensor, Tensor, Any]:
        """Return nats (1, T), differentiable, whether each word is the likeliest (1, T), and a cache for the incumbent."""
        return *read_replies(self.victim, embedded_1NE, target_T[None]), None

    def _measure(self, target_T: Tensor, words_N: Tensor) -> BestInput:
        embedded_BNE = self.victim.embedding_VE[words_N][None].detach().requires_grad_()
        mask_BT = torch.ones(1, len(target_T), dtype=torch.bool, device=words_N.device)
        nll_BT, likeliest_BT, cache = self._read(embedded_BNE, target_T)
        self.objective.loss(nll_BT, likeliest_BT, mask_BT, None).sum().backward()
        assert embedded_BNE.grad is not None
        input_nll_B, slope = None, Slope(embedded_BNE.grad[0], None, None, cache)
        if self.input_model is not None:
            there_N = words_N.to(self.input_model.embedding_VE.device)
            input_nll_B, input_gradient_NE, pull_NV = self._measure_input(self.input_model, there_N)
            input_nll_B = input_nll_B.to(words_N.device)
            slope = Slope(slope.gradient_NE, input_gradient_NE, pull_NV, cache)
        nll_BT = nll_BT.detach()
        weighed_B = input_nll_B if self.objective.lm_weight > 0 else None
        loss = float(self.objective.loss(nll_BT, likeliest_BT, mask_BT, weighed_B))
        input_log_probability = None if input_nll_B is None else -float(input_nll_B)
        reading = Reading((-nll_BT[0]).tolist(), likeliest_BT[0].tolist(), input_log_probability)
        return BestInput(target_T, words_N, loss, reading, slope)

    def _measure_input(self, input_model: InputModel, words_N: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Return R(x) as (1,), and the slopes of its term if it is weighed: (N, E), and (N, V) as predicted words."""
        with torch.set_grad_enabled(self.objective.lm_weight > 0):
            embedded_BNE = input_model.embedding_VE[words_N][None].detach().requires_grad_(self.objective.lm_weight > 0)
            nll_B, log_BNV = self._inputs(embedded_BNE, words_N[None])
            if self.objective.lm_weight == 0:
                return nll_B, None, None
            weight_B = self.objective.input_weight(nll_B.detach())
            (weight_B * nll_B).sum().backward()
        assert embedded_BNE.grad is not None
        return nll_B.detach(), embedded_BNE.grad[0], weight_B * log_BNV.detach()[0] / (len(words_N) + 1)

    def _inputs(self, embedded_BNE: Tensor, words_BN: Tensor) -> tuple[Tensor, Tensor]:
        """Return R(x) of each input (B,), and log P_LM (B, N, V) of every word at each of their positions."""
        assert self.input_model is not None
        log_BNV = self.input_model.word_logits(embedded_BNE).float().log_softmax(-1)
        said_BN = log_BNV.gather(-1, pad(words_BN, (0, 1), value=self.input_model.end_id)[..., None])[..., 0]
        return -said_BN.mean(-1), log_BNV[:, :-1]


def read_replies(victim: Victim, embedded_BNE: Tensor, replies_BT: Tensor) -> tuple[Tensor, Tensor]:
    """Return nats of the replies' words (B, T), differentiable in the embeddings, and whether they are the likeliest."""
    log_BTV = victim.reply_logits(embedded_BNE, replies_BT).float().log_softmax(-1)
    said_BT = log_BTV.gather(-1, replies_BT[..., None])[..., 0]
    return -said_BT, said_BT.detach() >= log_BTV.detach().amax(-1)


def require_numbers(values: Tensor) -> None:
    """Raise CheckpointError if a model's loss, or a part of it, is no finite number."""
    if not bool(values.isfinite().all()):
        raise CheckpointError("the model's loss is no number", fix="fit the model again, or name another checkpoint")


def stack_targets(targets: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return padded targets: ids (B, T), the first target word repeated as padding, and the mask (B, T) of real words."""
    length = max(map(len, targets))
    ids_BT = torch.stack([torch.cat([target, target[:1].expand(length - len(target))]) for target in targets])
    lengths_B = torch.tensor([len(target) for target in targets], device=ids_BT.device)
    return ids_BT, torch.arange(length, device=ids_BT.device) < lengths_B[:, None]


def to_beat(loss: float) -> float:
    """Return the loss that a swap must undercut to be better by more than rounding."""
    return loss if loss == torch.inf else loss - LEAST_GAIN * max(1.0, loss)
