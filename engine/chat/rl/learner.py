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
import torch.nn.functional as F
from torch import Tensor

from parley.engine.chat.rl.settings import ChatReinforceConfig
from parley.engine.core.rllib.reproducible import SeededLearner
from parley.policies.chat.predictor import own_logits, texts_of
from parley.policies.core.checkpoint import eager
from parley.policies.hugging_face.caches import TokenTree

COLUMNS = ("tokens", "own", "lengths", "advantage", "supervised", "kl_weight")
"""Of a batch: (S, T) tokens and own marks, and (S,) the rest; the weight of the KL is that of all rows."""


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
        for parameter in self._params.values():
            parameter.grad = None
        supervised = batch["supervised"].bool()
        own = batch["own"].bool()
        num_played, num_scripted = (max(1, int(own[rows].sum())) for rows in (~supervised, supervised))
        sums: dict[str, float] = dict.fromkeys(("policy_gradient_loss", "kl", "token_entropy", "supervised_loss"), 0.0)
        total, kl_weight = 0.0, batch["kl_weight"][0].item()
        for rows, is_scripted in _pieces(batch, self._rule.rows_at_once):
            loss, figures = self._piece(module, batch, rows, is_scripted, kl_weight, num_played, num_scripted)
            loss.backward()
            total += loss.item()
            for name, value in figures.items():
                sums[name] += value
        for name, value in sums.items():
            self.metrics.log_value((module_id, name), value, window=1)
        return torch.tensor(total)

    def own_gradients(self, loss_per_module: dict[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        """Return the gradients that the pieces have summed."""
        return {name: parameter.grad for name, parameter in self._params.items()}

    def _piece(
        self,
        module: Any,
        batch: Mapping[str, Tensor],
        rows: Tensor,
        is_scripted: bool,
        kl_weight: float,
        num_played: int,
        num_scripted: int,
    ) -> tuple[Tensor, dict[str, float]]:
        """Return the share of a piece of the loss, and of the figures."""
        base, width = module.base, int(batch["lengths"][rows].max())
        device = base.model.get_input_embeddings().weight.device
        columns = batch["tokens"][rows, :width], batch["own"][rows, :width].bool(), batch["lengths"][rows]
        start_MV = None
        if kl_weight > 0 and not is_scripted:
            # First: peft takes the gradients off an adapter that is switched off.
            with base.using(self._start), torch.no_grad():
                start_MV = (own_logits(base.model, *columns)[0] / self._rule.temperature).log_softmax(-1)
        with base.using(module.adapter), torch.enable_grad():
            logits_MV, targets_M, row_M = own_logits(base.model, *columns)
            if is_scripted:
                nll = F.cross_entropy(logits_MV, targets_M, reduction="sum") / num_scripted
                return self._rule.supervised_weight * nll, {"supervised_loss": nll.item()}
            # Of what was drawn from: the softmax at the temperature of play.
            log_probs_MV = (logits_MV / self._rule.temperature).log_softmax(-1)
            said_M = log_probs_MV.gather(1, targets_M[:, None]).squeeze(1)
            loss = -(batch["advantage"][rows].to(device)[row_M] * said_M).sum() / num_played
            known_MV = log_probs_MV.detach()
            entropy = -(known_MV.exp() * known_MV).sum().item() / num_played
            figures = {"policy_gradient_loss": loss.item(), "token_entropy": entropy}
            if start_MV is not None:
                kl = (log_probs_MV.exp() * (log_probs_MV - start_MV)).sum() / num_played
                loss = loss + kl_weight * kl
                figures["kl"] = kl.item()
        return loss, figures


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
