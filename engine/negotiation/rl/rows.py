"""Dialogues as columns: what runners return, and the batch that the learner is given.

Shapes: N dialogues, T tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from parley.envs.negotiation.game import NegotiationGame
from parley.envs.negotiation.vocabulary import PAD_ID
from parley.policies.negotiator.batches import NegotiationBatch

COLUMNS = ("index", "contexts", "tokens", "lengths", "own", "points", "agreed", "turns", "forced")
_OVER_TOKENS = ("tokens", "own")


def played_rows(game: NegotiationGame, side: int, indices: Sequence[int]) -> dict[str, np.ndarray]:
    """Finished dialogues as `COLUMNS`, one row each, seen from the side that learns.

    Args:
        game: the dialogues.
        side: the learner's.
        indices: their numbers in the training.

    Returns:
        By column; `points` (N, 2) are the learner's and the other side's, `own` says which tokens the learner drew.
    """
    width = int(game.num_tokens.max())
    return {
        "index": np.array(indices, dtype=np.int64),
        "contexts": game.contexts[side].copy(),
        "tokens": game.tokens[side, :, :width].copy(),
        "lengths": game.num_tokens.copy(),
        "own": game.authors[:, :width] == side,
        "points": game.points[:, [side, 1 - side]],
        "agreed": game.agreed.copy(),
        "turns": game.num_turns.copy(),
        "forced": game.forced.copy(),
    }


def merged(parts: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The rows of several parts as one, in order of index, padded alike."""
    width = max(part["tokens"].shape[1] for part in parts)
    order = np.argsort(np.concatenate([part["index"] for part in parts]), kind="stable")

    def column(name: str) -> np.ndarray:
        values = [part[name] for part in parts]
        if name in _OVER_TOKENS:
            fill = PAD_ID if name == "tokens" else 0
            values = [np.pad(value, [(0, 0), (0, width - value.shape[1])], constant_values=fill) for value in values]
        return np.concatenate(values)[order]

    return {name: column(name) for name in COLUMNS}


def training_rows(played: Mapping[str, Any], returns_NT: np.ndarray, corpus: NegotiationBatch | None) -> dict[str, np.ndarray]:
    """Columns of a training batch (see `module.py`): dialogues just played, then corpus dialogues."""
    size = len(played["lengths"])
    extra = 0 if corpus is None else len(corpus.lengths_B)
    width = max(played["tokens"].shape[1], 0 if corpus is None else corpus.tokens_BT.shape[1])
    tokens = np.full((size + extra, width), PAD_ID, dtype=np.int64)
    own = np.zeros((size + extra, width), dtype=bool)
    weights = np.zeros((size + extra, width), dtype=np.float32)
    # Without corpus dialogues nobody reads them.
    outputs = np.zeros((size + extra, 1 if corpus is None else corpus.outputs_B6.shape[1]), dtype=np.int64)
    tokens[:size, : played["tokens"].shape[1]] = played["tokens"]
    own[:size, : played["own"].shape[1]] = played["own"]
    weights[:size, : returns_NT.shape[1]] = returns_NT
    contexts, lengths = played["contexts"], played["lengths"]
    if corpus is not None:
        tokens[size:, : corpus.tokens_BT.shape[1]] = corpus.tokens_BT.numpy()
        outputs[size:] = corpus.outputs_B6.numpy()
        contexts = np.concatenate([contexts, corpus.contexts_B6.numpy()])
        lengths = np.concatenate([lengths, corpus.lengths_B.numpy()])
    return {
        "contexts": contexts,
        "tokens": tokens,
        "lengths": lengths,
        "own": own,
        "returns": weights,
        "supervised": np.arange(size + extra) >= size,
        "corpus_width": np.full(size + extra, 0 if corpus is None else int(corpus.lengths_B.max())),
        "outputs": outputs,
    }
