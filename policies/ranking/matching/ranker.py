"""A matching model asked in words: the scores of candidates in their contexts.

Contexts are read in blocks, in which every different turn and reply is encoded once and pairs of like size are matched side
by side (`batches.py`). A score depends on its own context and reply alone, up to the last digits of float32.

Nothing is held from one call to the next: a search asks about some twenty drafts of a reply at a time, and encoding their
context again is 1 % (DAM) to 6 % (SMN) of what scoring them costs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from parley.envs.core.errors import CheckpointError
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.ranking.groups import Context
from parley.policies.core.stored import stored_kind
from parley.policies.ranking.matching.checkpoints import FORMATS
from parley.policies.ranking.matching.matcher import Matcher
from parley.policies.ranking.ranker import LimitedRanker, Pair, Unread


class MatcherRanker(LimitedRanker):
    """A ranker that is a matching model.

    Args:
        model: in evaluation mode, on the device where it is to work.
    """

    gives_probabilities = True

    def __init__(self, model: Matcher) -> None:
        self.model = model

    @torch.no_grad()
    def score_all(self, pairs: Sequence[Pair]) -> list[np.ndarray]:
        """Probabilities that the candidates of each context fit it (C,) float64."""
        device = self.model.embedding.weight.device
        found = []
        for some in self._blocks(pairs):
            block = self.model.reader.read(some, device)
            scores = self.model.scores(self.model(block)).cpu().numpy()
            found += np.split(scores, np.cumsum([len(candidates) for _, candidates in some])[:-1])
        return found

    def unread(self, context: Context, candidates: Sequence[Utterance]) -> Unread:
        """Turns before the newest ones that it reads, and what is longer than it reads."""
        sizes = self.model.sizes
        whole = sum(len(turn) <= sizes.words for turn in context[-sizes.turns :])
        return Unread(len(context) - whole, sum(len(reply) > sizes.words for reply in candidates))

    def slopes(self, context: Context, reply: Utterance, words: Sequence[str]) -> np.ndarray:
        """How much the log-odds rise, to first order, if words of a reply become others (T, W); a model's views count alike.

        Word vectors alone are followed: what MRFN reads of letters, and the places of a reply that is cut, have slope 0.
        """
        model, read = self.model, dict[str, Tensor]()

        def follow(layer: nn.Module, given: object, vectors_WE: Tensor) -> Tensor:
            read["vectors_WE"] = vectors_WE.detach().requires_grad_()
            return read["vectors_WE"]

        block = model.reader.read([(context, [reply])], model.embedding.weight.device)
        with torch.enable_grad(), model.embedding.register_forward_hook(follow):
            (gradient_WE,) = torch.autograd.grad(model(block).mean(), read["vectors_WE"])
        text = block.pairs_P2[0, 1]
        start, size = int(block.starts_T[text]), min(len(reply), int(block.lengths_T[text]))
        here_TE, gradient_TE = (part[start : start + size] for part in (read["vectors_WE"].detach(), gradient_WE))
        entering = torch.from_numpy(model.vocabulary.encode(words)).to(gradient_WE.device)
        slopes_TW = gradient_TE @ model.embedding.weight[entering].T - (gradient_TE * here_TE).sum(1, keepdim=True)
        return np.pad(slopes_TW.detach().double().cpu().numpy(), ((len(reply) - size, 0), (0, 0)))

    def _blocks(self, pairs: Sequence[Pair]) -> Iterator[Sequence[Pair]]:
        """Neighbouring pairs, of as many words as the model reads at once, or one pair."""
        start, words = 0, 0
        for end, (context, candidates) in enumerate(pairs):
            here = sum(map(len, context)) + sum(map(len, candidates))
            if end > start and words + here > self.model.words_at_once:
                yield pairs[start:end]
                start, words = end, 0
            words += here
        if start < len(pairs):
            yield pairs[start:]


def load_matcher(folder: Path, device: str = "cpu") -> MatcherRanker:
    """The ranker of a run or checkpoint folder that holds a matching model, on a torch device.

    Raises:
        CheckpointError: nothing is there, it is damaged, or it is of another kind.
    """
    kind = stored_kind(folder)
    if kind not in FORMATS:
        fix = f"name a checkpoint of kind {', '.join(FORMATS)}"
        raise CheckpointError("the checkpoint holds no matching model", where=folder, got=f"kind {kind!r}", fix=fix)
    return MatcherRanker(FORMATS[kind].load(folder).to(device))
