"""Models of MutualFriends that are made up."""

from __future__ import annotations

from pathlib import Path

import torch

from parley.envs.mutual_friends.compiled import EMBEDDED_FRIENDS, load_friends
from parley.policies.dynonet.graphs import FriendsVocabulary
from parley.policies.dynonet.model import DYNONET, DynoNet
from parley.policies.dynonet.settings import DynoNetSizes


def drawn_dynonet(folder: Path) -> Path:
    """A tiny one with drawn weights, fitted to nothing."""
    corpus = load_friends(EMBEDDED_FRIENDS)
    sizes = DynoNetSizes(embed=6, hidden=6, message=4, edge=2)
    model = DynoNet(FriendsVocabulary.build(corpus.schema, [corpus.words], 1), sizes)
    model.initialise(torch.Generator().manual_seed(1))
    DYNONET.save(model.eval(), folder / "dynonet" / "checkpoint", {"corpus": EMBEDDED_FRIENDS})
    return folder / "dynonet"
