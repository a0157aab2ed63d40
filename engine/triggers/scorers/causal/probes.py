"""Probe sampling: a draft model ranks the candidates of a visit, and the full model reads few of them (Zhao et al. 2024).

arXiv 2403.01251, algorithm 1, for one list of B candidates:

    draft    the draft model reads all B
    probes   the full model reads B / 16 of them
    alpha    how far both models agree on the probes: (1 + Spearman's rank correlation) / 2
    filter   the (1 - alpha) B / 8 candidates of least draft loss are read by the full model too
    decide   the least of the full model's losses, of probes and filtered candidates

So every loss that decides, or is reported, is the full model's. A draft that agrees leaves one candidate beside the probes.
Two kinds of draft: the first layers of the model itself with its own head, and another model with the same tokens.

# Paper: probes are drawn. Ours: every 16th candidate of the list, which gcg draws anyway, so that a list has one result.
# Paper: the draft has a tokenizer of its own, and texts are read again. Ours: the same tokens, so that ids are typed ids.
# Paper: all B are read. Ours: a candidate that is listed twice is read once, and what cannot win ends early, as in all lists.
"""

from __future__ import annotations

import copy
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from parley.engine.triggers.scorers.causal.swaps import SwapList
from parley.envs.core.errors import ConfigError

if TYPE_CHECKING:
    from parley.engine.triggers.scorers.causal.scorer import CausalVictim

PROBES, REDUCTION = 16, 8
"""Candidates for each probe, and R of the paper: both are its defaults."""
LEAST_PROBES = 4
"""Probes of a short list; fewer ranks agree by chance."""


class ProbedSwapList(SwapList):
    """The candidates of a visit, of which a draft model leaves few to the full one."""

    def best(self) -> tuple[int, float]:
        """Return the candidate of least loss of those that the full model reads, and that loss; see `SwapList.best`."""
        draft = self.scorer.draft
        assert draft is not None, "the scorer has a draft model"
        distinct = self.distinct
        num_probes = max(LEAST_PROBES, len(distinct) // PROBES)
        self.scorer.num_listed += len(distinct)
        if num_probes >= len(distinct):
            self.scorer.num_read += len(distinct)
            return super().best()
        drafted = SwapList(
            draft, self.scorer.drafted(self.incumbent), *torch.tensor([self.positions, self.words]).to(self.words_G)
        )
        draft_loss = dict(zip(distinct, drafted.losses(distinct).tolist(), strict=True))
        probes = [distinct[len(distinct) * number // num_probes] for number in range(num_probes)]
        probe_losses = self.losses(probes)
        self.take(zip(probes, probe_losses.tolist(), strict=True))
        alpha = agreement(torch.tensor([draft_loss[probe] for probe in probes]), probe_losses.cpu())
        num = max(1, int((1 - alpha) * len(distinct) / REDUCTION))
        left = sorted(draft_loss.keys() - set(probes), key=lambda candidate: (draft_loss[candidate], candidate))[:num]
        self.scorer.num_read += len(probes) + len(left)
        self.in_pieces(self._try, self.by_position(left))
        return self.best_choice, self.best_loss


def agreement(draft_K: Tensor, full_K: Tensor) -> float:
    """Return how far two models agree on the order of K candidates: 0 for opposite orders, 1 for equal ones (algorithm 1)."""
    ranks = [losses.argsort(stable=True).argsort(stable=True).double() for losses in (draft_K, full_K)]
    num = len(draft_K)
    return 1 - 3 * float((ranks[0] - ranks[1]).square().sum()) / (num * (num * num - 1))


def drafting(victim: CausalVictim, draft: str) -> CausalVictim:
    """Return the victim with a draft in the place of its model.

    Args:
        victim: the model that is searched, behind its prompt.
        draft: a number of layers, or `hf:FOLDER` or `gguf:FILE`.

    Raises:
        ConfigError: the model has no more layers than that, or the other one has other tokens.
        CheckpointError: there is no such model.
    """
    other: Any = copy.copy(victim)
    if draft.isdecimal():
        other.model = _first_layers(victim.model, int(draft))
        return other
    model, vocabulary = _draft_model(draft, str(victim.model.device))
    tokenizer = getattr(victim, "tokenizer", None)
    if tokenizer is None or tokenizer.get_vocab() != vocabulary:
        fix = "name a smaller model of the same family, or a number of layers: search.draft=12"
        raise ConfigError("the draft model has other tokens than the searched one", where="search.draft", got=draft, fix=fix)
    from parley.policies.hugging_face.victims import token_embeddings

    other.model, other.embedding_VE = model, token_embeddings(model.get_input_embeddings())
    return other


@lru_cache(maxsize=1)
def _draft_model(draft: str, device: str) -> tuple[Any, dict[str, int]]:
    from parley.policies.hugging_face.models import read_model

    tokenizer, model = read_model(draft, device=device)
    return model.eval().requires_grad_(False), tokenizer.get_vocab()


_shortened: WeakKeyDictionary[Any, dict[int, Any]] = WeakKeyDictionary()


def _first_layers(model: Any, num: int) -> Any:
    """Return a model of the first layers and the same head; all weights are shared."""
    by_num = _shortened.setdefault(model, {})
    if num not in by_num:
        total = model.config.num_hidden_layers
        layers = next((part for part in model.modules() if isinstance(part, nn.ModuleList) and len(part) == total), None)
        if layers is None or not 0 < num < total:
            fix = f"1 to {total - 1} layers, or hf:FOLDER of a smaller model"
            raise ConfigError("no draft of so many layers can be made", where="search.draft", got=f"{num} of {total}", fix=fix)
        config = copy.deepcopy(model.config)
        config.num_hidden_layers = num
        if getattr(config, "layer_types", None):
            config.layer_types = config.layer_types[:num]

        def short(part: Any) -> Any:
            other = copy.copy(part[:num] if part is layers else part)
            other._modules = {name: child if child is None else short(child) for name, child in other._modules.items()}
            if getattr(part, "config", None) is model.config:
                other.config = config
            return other

        by_num[num] = short(model)
    return by_num[num]
