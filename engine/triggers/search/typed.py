"""Searches among inputs that a victim allows as a whole, such as those that give the same tokens again when they are typed.

What is not allowed is refused before the model is asked: swaps leave their list, inputs cost infinitely much. A search may
stand at such an input (where gcg finds no allowed swap) and never returns it.

    B searches, G candidates, R inputs, N searched positions
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol, cast, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from parley.engine.triggers.methods.goal import Initial
from parley.engine.triggers.methods.objective import TriggerObjective
from parley.engine.triggers.scorers.scorer import ContinuingScorer, Incumbent, Scorer, Swaps, Victim
from parley.envs.core.errors import ConfigError
from parley.envs.core.seeds import derive_seed, stream

_DRAWN, _ROUNDS = 64, 16
"""Inputs that are drawn at once until one is allowed, and how often."""


@runtime_checkable
class RuledVictim(Victim, Protocol):
    """A victim with rules for whole inputs."""

    @property
    def start_ids(self) -> Sequence[int] | None:
        """The words (N,) that searches start from; None where they are drawn."""

    def allows(self, words_RN: Tensor) -> Tensor:
        """Which inputs (R,) are allowed."""


class RuledScorer:
    """A scorer that refuses inputs.

    Args:
        inner: answers for what is allowed.
        victim: says what is.
    """

    def __init__(self, inner: Scorer, victim: RuledVictim) -> None:
        self.inner, self.ruled = inner, victim
        self._refused: dict[int, int] = defaultdict(int)

    @property
    def victim(self) -> Victim:
        """The model."""
        return self.inner.victim

    @property
    def objective(self) -> TriggerObjective:
        """What is minimised."""
        return self.inner.objective

    def refused(self, target: Tensor) -> int:
        """How many candidates were refused of a search, told apart by the tensor of its target, since this was last asked."""
        return self._refused.pop(id(target), 0)

    def measure(self, targets: Sequence[Tensor], words_BN: Tensor) -> list[Incumbent]:
        """Those that are not allowed have an infinite loss, and are no hits."""
        measured = self.inner.measure(targets, words_BN)
        allowed = self.ruled.allows(words_BN).tolist()
        self._count(targets, allowed)
        return [
            incumbent if ok else replace(incumbent, loss=torch.inf, allowed=False)
            for incumbent, ok in zip(measured, allowed, strict=True)
        ]

    def slopes(self, incumbents: Sequence[Incumbent], positions_B: Tensor) -> Tensor:
        """Those of the inner scorer."""
        return self.inner.slopes(incumbents, positions_B)

    def gradients(self, incumbents: Sequence[Incumbent]) -> Tensor:
        """Those of the inner scorer."""
        return self.inner.gradients(incumbents)

    def next_logits(self, target: Tensor, words_Bt: Tensor) -> Tensor:
        """Those of the inner scorer."""
        return cast(ContinuingScorer, self.inner).next_logits(target, words_Bt)

    def best_swap(self, incumbents: Sequence[Incumbent], swaps: Swaps, beat_B: Tensor) -> tuple[Tensor, Tensor]:
        """The best of the allowed swaps; where none is allowed and nothing is to be beaten, the first at infinite loss."""
        tried_BGN = torch.stack([incumbent.words for incumbent in incumbents])[:, None].repeat(1, swaps.words_BG.shape[1], 1)
        tried_BGN.scatter_(2, swaps.positions_BG[..., None], swaps.words_BG[..., None])
        allowed_BG = self.ruled.allows(tried_BGN.flatten(0, 1)).view_as(swaps.words_BG)
        for incumbent, allowed_G in zip(incumbents, allowed_BG.tolist(), strict=True):
            self._count([incumbent.target] * len(allowed_G), allowed_G)
        choice_B, loss_B = torch.where(beat_B == torch.inf, 0, -1).cpu(), beat_B.clone()
        asked_b = allowed_BG.any(1).nonzero()[:, 0]
        if len(asked_b):
            kept_bG = (~allowed_BG[asked_b]).int().argsort(dim=1, stable=True)
            positions_bG, words_bG = (each[asked_b].gather(1, kept_bG) for each in (swaps.positions_BG, swaps.words_BG))
            left = Swaps(positions_bG, words_bG, allowed_BG[asked_b].sum(1).tolist())
            chosen_b, loss_B[asked_b] = self.inner.best_swap(
                [incumbents[row] for row in asked_b.tolist()], left, beat_B[asked_b]
            )
            named_b = kept_bG.cpu().gather(1, chosen_b.cpu().clamp_min(0)[:, None])[:, 0]
            choice_B[asked_b.cpu()] = torch.where(chosen_b.cpu() < 0, -1, named_b)
        return choice_B, loss_B

    def losses(self, targets: Sequence[Tensor], words_RN: Tensor) -> Tensor:
        """Infinite for what is not allowed."""
        allowed_R = self.ruled.allows(words_RN)
        self._count(targets, allowed_R.tolist())
        kept_r = allowed_R.nonzero()[:, 0]
        loss_R = torch.full((len(words_RN),), torch.inf, device=words_RN.device)
        if len(kept_r):
            loss_R[kept_r] = self.inner.losses([targets[row] for row in kept_r.tolist()], words_RN[kept_r])
        return loss_R

    def _count(self, targets: Sequence[Tensor], allowed: Sequence[bool]) -> None:
        counts: dict[int, int] = defaultdict(int)
        for target, ok in zip(targets, allowed, strict=True):
            counts[id(target)] += not ok
        for key, number in counts.items():
            # A step that ran out of memory is repeated, and what a list refused is measured again at times.
            if number > self._refused.get(key, 0):
                self._refused[key] = number


def allowed_inputs(victim: RuledVictim, likely: Callable[[int], Tensor] | None = None, *, from_start: bool = True) -> Initial:
    """Inputs that a victim allows: its own start, else drawn until one is.

    Args:
        victim: the model.
        likely: draws an input (N,) by a seed; uniformly when None.
        from_start: whether the victim's own start counts.

    Raises:
        ConfigError: the start is not allowed, or none of many that were drawn is.
    """
    words = victim.searchable_V.nonzero()[:, 0].cpu().numpy()
    device, length, own = victim.searchable_V.device, victim.input_length, victim.start_ids if from_start else None
    start_N = None if own is None else torch.tensor(own, device=device)
    if start_N is not None and not bool(victim.allows(start_N[None])[0]):
        fix = "start from other words, or --set hugging_face.typed=false"
        raise ConfigError("the text to start from gives other tokens where it stands in the prompt", got=str(own), fix=fix)

    def drawn(seed: int) -> Tensor:
        for number in range(_ROUNDS if likely else 0):
            assert likely is not None
            ids_N = likely(derive_seed(seed, "likely", number))
            if bool(victim.allows(ids_N[None])[0]):
                return ids_N
        generator = stream(seed, "uniform")
        # The first is what a search without rules starts from.
        tried_RN = generator.integers(len(words), size=(1, length))
        for _ in range(_ROUNDS):
            ids_RN = torch.from_numpy(words[tried_RN]).to(device)
            if len(found := victim.allows(ids_RN).nonzero()[:, 0]):
                return ids_RN[found[0]]
            # Words that repeat survive more often than others: half of the inputs are of one or two words.
            tried_RN = generator.integers(len(words), size=(_DRAWN, length))
            tried_RN[::2] = np.where(np.arange(length) % 2, tried_RN[::2, :1], tried_RN[::2, -1:])
        raise ConfigError(
            "no input was found that gives the same tokens again when it is typed",
            got=f"none of {_DRAWN * (_ROUNDS - 1) + 1} drawn",
            fix="name a text to start from (hugging_face.start), or --set hugging_face.typed=false",
        )

    def draw(seeds: Sequence[int]) -> Tensor:
        return torch.stack([drawn(seed) if start_N is None else start_N.clone() for seed in seeds])

    return draw
