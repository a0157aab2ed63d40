"""A policy that lies about friends: it scores every claim by what it sees of it, and learns by reinforcement.

It stands between a player of MutualFriends and its partner (`envs/mutual_friends/lies.py`); `engine/mutual_friends/rl/lying.py`
trains it.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from parley.envs.core.config import from_dict
from parley.envs.core.errors import CheckpointError
from parley.envs.corpora.words import WordList
from parley.envs.mutual_friends.lies import FEATURES, Choice, LieRules
from parley.policies.core.checkpoint import ModelFormat
from parley.policies.core.choosing import ActionScorer, drawn_actions
from parley.policies.core.choosing_settings import ChoiceSizes

_RULES = "rules"
"""Where a checkpoint says what its liar may do."""


class Liar(ActionScorer):
    """Scores claims.

    Args:
        vocabulary: what it sees of each, in words.
        sizes: widths.
    """

    def __init__(self, vocabulary: WordList, sizes: ChoiceSizes) -> None:
        super().__init__(len(vocabulary), sizes)
        self.vocabulary = vocabulary


LIAR = ModelFormat("liar", WordList, ChoiceSizes, Liar)
"""How it is stored."""


def new_liar(sizes: ChoiceSizes, seed: int) -> Liar:
    """A policy that has learned nothing yet."""
    liar = Liar(WordList(FEATURES), sizes)
    liar.draw_weights(seed)
    return liar.eval()


def save_liar(liar: Liar, folder: Path, rules: LieRules, provenance: dict[str, Any]) -> None:
    """Stores a policy with what it may do; errors as those of `ModelFormat.save`."""
    LIAR.save(liar, folder, {**provenance, _RULES: asdict(rules)})


def load_liar(folder: Path) -> tuple[Liar, LieRules]:
    """The policy of a run or checkpoint folder, and what it may do.

    Raises:
        CheckpointError: as `ModelFormat.load`, or it saw something else of claims.
    """
    liar = LIAR.load(folder)
    if liar.vocabulary.words != FEATURES:
        got = f"{len(liar.vocabulary)} features, {len(FEATURES)} expected"
        raise CheckpointError("the liar sees something else of claims", where=folder, got=got, fix="train it again")
    return liar, from_dict(LieRules, LIAR.provenance(folder)[_RULES])


def liar_choice(liar: Liar) -> Choice:
    """Which lies a policy tells: drawn from it, as in its training."""

    def choose(seen: np.ndarray, masks: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return drawn_actions(liar(torch.from_numpy(seen), torch.from_numpy(masks)), uniforms)

    return choose
