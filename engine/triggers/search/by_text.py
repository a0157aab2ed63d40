"""Losses of a model that has other tokens than the searched ones: each input is read as its text, and nothing points to a word.

What all texts of a list begin with is read once; those of as many tokens are read together, the head at the reply alone.

    B inputs at once, R inputs, N searched positions, S tokens of a prompt, T words of a target
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from parley.engine.triggers.hits import Reading
from parley.engine.triggers.methods.objective import TriggerObjective
from parley.engine.triggers.scorers.causal.reader import CausalReader, reads_in_parts, said
from parley.engine.triggers.scorers.causal.scorer import LOGITS
from parley.engine.triggers.scorers.scorer import Incumbent, InputModel, PlainScorer, Victim
from parley.envs.core.errors import ConfigError

_TRIED = 7
"""Tokens of a text by which it is found out whether a model reads the same in parts."""


@runtime_checkable
class VictimByText(Victim, Protocol):
    """A causal model that reads inputs as texts."""

    @property
    def model(self) -> Any:
        """The Hugging Face model."""

    def reads(self, words_RN: Tensor) -> list[list[int]]:
        """The tokens of the whole prompt with each input typed into it."""

    def room(self, read: Sequence[int]) -> int | float:
        """Words of a reply that fit behind these tokens."""


class ByTextScorer(PlainScorer):
    """Says what inputs cost, and not where they should change.

    Args:
        victim: the model.
        objective: as of `PlainScorer`.
        input_model: as of `PlainScorer`.
    """

    victim: VictimByText

    def __init__(self, victim: VictimByText, objective: TriggerObjective, input_model: InputModel | None = None) -> None:
        super().__init__(victim, objective, input_model)
        in_parts = reads_in_parts(victim.model, victim.embedding_VE[:_TRIED])
        self._reader = CausalReader(victim.model) if in_parts else None

    @torch.no_grad()
    def losses(self, targets: Sequence[Tensor], words_RN: Tensor) -> Tensor:
        """The loss of each input (R,); those of as many tokens for one target are read together."""
        read, loss_R = self.victim.reads(words_RN), torch.empty(len(words_RN), device=words_RN.device)
        alike = dict[tuple[int, int], list[int]]()
        for row, (target, ids) in enumerate(zip(targets, read, strict=True)):
            alike.setdefault((id(target), len(ids)), []).append(row)

        def score(rows: Sequence[int]) -> None:
            target_T = targets[rows[0]]
            nll_BT, likeliest_BT = self._said([read[row] for row in rows], target_T)
            input_nll_B = self.input_nll(words_RN[list(rows)])
            loss_R[list(rows)] = self.objective.loss(nll_BT, likeliest_BT, torch.ones_like(likeliest_BT), input_nll_B)

        for rows in alike.values():
            most = max(1, LOGITS // (len(targets[rows[0]]) * len(self.victim.embedding_VE)))
            self._finder.in_pieces(score, rows, most)
        return loss_R

    @torch.no_grad()
    def _measure(self, target_T: Tensor, words_N: Tensor) -> Incumbent:
        nll_1T, likeliest_1T = self._said(self.victim.reads(words_N[None]), target_T)
        loss_1 = self.objective.loss(nll_1T, likeliest_1T, torch.ones_like(likeliest_1T), self.input_nll(words_N[None]))
        return Incumbent(target_T, words_N, float(loss_1), Reading((-nll_1T[0]).tolist(), likeliest_1T[0].tolist()), None)

    def _said(self, read: Sequence[Sequence[int]], target_T: Tensor) -> tuple[Tensor, Tensor]:
        """Nats of the target's words (B, T) behind prompts of as many tokens, and whether they are the likeliest."""
        if self.victim.room(read[0]) < len(target_T):
            got, fix = f"{len(read[0])} tokens before the target", "leave the prompt out, or the model"
            raise ConfigError("a prompt with an input is longer than a model reads", got=got, fix=fix)
        ids_BS = torch.tensor(read, device=target_T.device)
        embedded_BLE = self.victim.embedding_VE[torch.cat([ids_BS, target_T[:-1].expand(len(ids_BS), -1)], dim=1)]
        if self._reader is None:
            logits_BTV = self.victim.model(inputs_embeds=embedded_BLE, use_cache=False).logits[:, -len(target_T) :]
        else:
            alike = min(int((ids_BS == ids_BS[0]).all(0).int().cumprod(0).sum()), len(read[0]) - 1)
            known = [self._reader.read(embedded_BLE[:1, :alike], (), 1)[1]] if alike else []
            logits_BTV = self._reader.read(embedded_BLE[:, alike:], known, len(target_T))[0]
        nll_BT, lead_BT = said(logits_BTV, target_T)
        return nll_BT, lead_BT >= 0
