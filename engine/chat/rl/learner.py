"""The learner of an adapter: policy gradient, KL to the start, and scripted dialogues, on own tokens alone.

An update sums the gradients of a few conversations at a time, so its memory does not grow with it. Conversations are read as a
tree: what several begin with, such as the system's text or a scenario's, is read once, and nothing for padding.

    L = (- sum of A log p + kl_weight * sum of KL) / M + supervised_weight * (sum of nll) / M'

over the M own tokens of played conversations and the M' of scripted ones; A is the advantage of the dialogue, p the softmax at
the temperature of play, and KL(learner || start) is exact over the vocabulary. One M for all rows keeps the gradient that of
the mean reward, however long dialogues are.

Shapes: S sequences, T tokens, M own tokens of a piece, V vocabulary.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from parley.engine.chat.rl.settings import ChatReinforceConfig
from parley.engine.core.rllib.reproducible import SeededLearner
from parley.policies.chat.predictor import own_logits, texts_of
from parley.policies.core.checkpoint import eager
from parley.policies.hugging_face.caches import TokenTree

COLUMNS = ("tokens", "own", "lengths", "advantage", "supervised", "kl_weight")
"""Of a batch: (S, T) tokens and own marks, and (S,) the rest; the weight of the KL is that of all rows."""

_BLOCK = 8
"""Own tokens whose logits are read and overwritten together."""


def batch_rows(
    played: Sequence[tuple[Sequence[int], Sequence[bool], float]],
    scripted: Sequence[tuple[Sequence[int] | np.ndarray, Sequence[bool] | np.ndarray]],
    kl_weight: float,
) -> dict[str, np.ndarray]:
    """Return the columns of an update.

    Args:
        played: tokens, own marks and advantage of each sequence that was played.
        scripted: tokens and own marks of scripted ones.
        kl_weight: weight of the KL.
    """
    rows: list[tuple[Any, Any, float, bool]] = [(tokens, own, advantage, False) for tokens, own, advantage in played]
    rows += [(tokens, own, 0.0, True) for tokens, own in scripted]
    width = max(len(tokens) for tokens, *_ in rows)
    columns = {
        "tokens": np.zeros((len(rows), width), dtype=np.int64),
        "own": np.zeros((len(rows), width), dtype=bool),
        "lengths": np.array([len(tokens) for tokens, *_ in rows], dtype=np.int64),
        "advantage": np.array([advantage for *_, advantage, _ in rows], dtype=np.float32),
        "supervised": np.array([supervised for *_, supervised in rows], dtype=bool),
        "kl_weight": np.full(len(rows), kl_weight, dtype=np.float32),
    }
    for row, (tokens, own, *_) in enumerate(rows):
        columns["tokens"][row, : len(tokens)] = tokens
        columns["own"][row, : len(own)] = own
    return columns


class ChatLearner(SeededLearner):
    """The learner of an `AdapterModule`."""

    def build(self) -> None:
        """Build the module and its optimiser, and add the adapter of the start, to which the KL is measured."""
        if self.config.num_learners:
            cpus = self.config.num_cpus_per_learner
            torch.set_num_threads(1 if cpus == "auto" else int(cpus))
        super().build()
        spec, self._start = self.config.spec, ""
        if spec.start and self._rule.kl_weight > 0:
            # Always from its folder: a copy of the present weights would move after a resume. A fresh adapter changes nothing.
            self._start = spec.shared().add(spec.start, spec.lora, spec.seed)
            weakref.finalize(self, spec.shared().remove, self._start)

    @property
    def _rule(self) -> ChatReinforceConfig:
        rule: ChatReinforceConfig = self.config.reinforce
        return rule

    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        """Register Adam over the weights of the adapter."""
        parameters = self.get_parameters(self._module[module_id])
        optimiser = eager(torch.optim.Adam)(parameters, fused=True)
        self.register_optimizer(module_id=module_id, optimizer=optimiser, params=parameters, lr_or_lr_schedule=config.lr)

    def compute_loss_for_module(self, *, module_id: str, config: Any, batch: dict[str, Any], fwd_out: dict[str, Any]) -> Tensor:
        """Return the loss, whose gradient is summed piece by piece on the way."""
        module = self.module[module_id].unwrapped()
        # The step needs the room, and new dialogues share little with those that were played.
        module.base.forget()
        for parameter in self._params.values():
            parameter.grad = None
        supervised = batch["supervised"].bool()
        own = batch["own"].bool()
        num_played, num_scripted = (max(1, int(own[rows].sum())) for rows in (~supervised, supervised))
        sums: dict[str, float] = dict.fromkeys(("policy_gradient_loss", "kl", "token_entropy", "supervised_loss"), 0.0)
        kl_weight = batch["kl_weight"][0].item()
        for rows, is_scripted in _pieces(batch, self._rule.rows_at_once):
            num, weight = (num_scripted, 0.0) if is_scripted else (num_played, kl_weight)
            for name, value in self._piece(module, batch, rows, is_scripted, weight, num).items():
                sums[name] += value
        total = sums["policy_gradient_loss"] + kl_weight * sums["kl"] + self._rule.supervised_weight * sums["supervised_loss"]
        for name, value in sums.items():
            self.metrics.log_value((module_id, name), value, window=1)
        return torch.tensor(total)

    def own_gradients(self, loss_per_module: dict[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        """Return the gradients that the pieces have summed."""
        return {name: parameter.grad for name, parameter in self._params.items()}

    def _piece(
        self, module: Any, batch: Mapping[str, Tensor], rows: Tensor, is_scripted: bool, kl_weight: float, num_own: int
    ) -> dict[str, float]:
        """Sum the gradient of a piece, and return its shares of the figures."""
        base, width = module.base, int(batch["lengths"][rows].max())
        columns = batch["tokens"][rows, :width], batch["own"][rows, :width].bool(), batch["lengths"][rows]
        start_MV = None
        if kl_weight > 0:
            # First: peft takes the gradients off an adapter that is switched off.
            with base.using(self._start), torch.no_grad():
                start_MV = own_logits(base.model, *columns)[0]
        with base.using(module.adapter), torch.enable_grad():
            logits_MV, targets_M, row_M = own_logits(base.model, *columns)
            if is_scripted:
                factors_M = torch.full_like(row_M, self._rule.supervised_weight / num_own, dtype=torch.float32)
                temperature = 1.0
            else:
                factors_M = batch["advantage"][rows].to(row_M.device)[row_M] / num_own
                temperature = self._rule.temperature
            gradient_MV, said_M, entropy_M, kl_M = policy_gradient(
                logits_MV.detach(), start_MV, targets_M, factors_M, kl_weight / num_own, temperature
            )
            logits_MV.backward(gradient_MV)
        if is_scripted:
            return {"supervised_loss": -said_M.sum().item() / num_own}
        policy_loss, entropy, kl = -(factors_M * said_M).sum(), entropy_M.sum() / num_own, kl_M.sum() / num_own
        return {"policy_gradient_loss": policy_loss.item(), "token_entropy": entropy.item(), "kl": kl.item()}


def policy_gradient(
    logits_MV: Tensor, start_MV: Tensor | None, targets_M: Tensor, factors_M: Tensor, kl_factor: float, temperature: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradient of the loss at logits, formed a few tokens at a time, and what the loss sums.

    The loss is - sum of f log p + kl_factor * sum of KL, of softmaxes at the temperature of play.

    Args:
        logits_MV: of the learner, without gradients.
        start_MV: of the start, which the gradient overwrites; None for no KL.
        targets_M: tokens that were drawn.
        factors_M: f of each token.
        kl_factor: weight of the KL at each token.
        temperature: of play.

    Returns:
        The gradient (M, V); log probability of each token, entropy and KL to the start there, in nats (M,).
    """
    said_M, entropy_M, kl_M = logits_MV.new_zeros(3, len(logits_MV))
    gradient_MV = torch.empty_like(logits_MV) if start_MV is None else start_MV
    # A block stays in the cache of a core from pass to pass.
    for first in range(0, len(logits_MV), _BLOCK):
        block = slice(first, first + _BLOCK)
        targets_m1, factors_m1, gradient_mV = targets_M[block, None], factors_M[block, None], gradient_MV[block]
        log_p_mV = logits_MV[block] / temperature
        log_p_mV.sub_(log_p_mV.logsumexp(-1, keepdim=True))
        p_mV = log_p_mV.exp()
        said_M[block] = log_p_mV.gather(1, targets_m1).squeeze(1)
        entropy_M[block] = -torch.linalg.vecdot(p_mV, log_p_mV)
        if start_MV is None:
            torch.mul(p_mV, factors_m1, out=gradient_mV)
        else:
            gradient_mV.div_(temperature)
            ratio_mV = log_p_mV.sub_(gradient_mV.sub_(gradient_mV.logsumexp(-1, keepdim=True)))
            kl_m = kl_M[block] = torch.linalg.vecdot(p_mV, ratio_mV)
            torch.mul(ratio_mV.mul_(kl_factor).add_(factors_m1 - kl_factor * kl_m[:, None]), p_mV, out=gradient_mV)
        gradient_mV.scatter_add_(1, targets_m1, -factors_m1).div_(temperature)
    return gradient_MV, said_M, entropy_M, kl_M


def _pieces(batch: Mapping[str, Tensor], most: int) -> Iterator[tuple[Tensor, bool]]:
    """Yield rows that are read at once, those with one beginning side by side, played ones and scripted ones apart.

    Args:
        batch: the columns.
        most: longest rows that are read at once. Of rows with one beginning there may be twice as many, and half as many
            tokens more.
    """
    supervised, lengths = batch["supervised"].bool(), batch["lengths"]
    for is_scripted in (False, True):
        rows = (supervised == is_scripted).nonzero().squeeze(1)
        texts = dict(zip(rows.tolist(), texts_of(batch["tokens"][rows], lengths[rows]), strict=True))
        piece: list[int] = []
        for row in sorted(texts, key=texts.__getitem__):
            wider = [*piece, row]
            tree = TokenTree([texts[number] for number in wider])
            is_full = len(tree) > 1.5 * most * max(len(texts[number]) for number in wider)
            if piece and (is_full or len(wider) > 2 * most):
                yield torch.tensor(piece), is_scripted
                wider = [row]
            piece = wider
        if piece:
            yield torch.tensor(piece), is_scripted
