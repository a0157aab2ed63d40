"""How well a DynoNet foretells what sides say and select, and how well its linker finds what speakers meant.

Shapes: n sides or chats.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch

from parley.envs.mutual_friends.events import FriendsChat, Mention, Token
from parley.envs.mutual_friends.linker import EntityLinker
from parley.envs.mutual_friends.schema import Entity
from parley.policies.core.fitting.batches import in_order
from parley.policies.core.fitting.evaluation import Fitness
from parley.policies.dynonet.batches import SideExamples
from parley.policies.dynonet.model import DynoNet
from parley.policies.dynonet.vocabulary import SELECT_ID, UNK_ID

_ROWS = 256


class SideFitness(NamedTuple):
    """How well a model predicts what sides do, by kind of token; sides stand as in `whose`."""

    tokens: Fitness
    """All of them."""
    known: Fitness
    """All but `<unk>`."""
    entities: Fitness
    """Copied entities of utterances."""
    items: Fitness
    """Selected items, which are copied, too."""


@torch.no_grad()
def by_kind(model: DynoNet, examples: SideExamples) -> SideFitness:
    """Scores the tokens of some sides.

    Args:
        model: in evaluation mode.
        examples: the sides.
    """
    device, found = next(model.parameters()).device, []
    for batch in in_order(examples, _ROWS):
        moved = batch.to(device)
        nll_BT = torch.zeros(batch.real_BT.shape).masked_scatter(batch.real_BT, model.nll(moved).cpu()).double()
        is_node_BT, is_item_BT = (batch.targets_BT >= len(model.vocabulary)) & batch.real_BT, torch.zeros_like(batch.real_BT)
        is_item_BT[:, 1:] = batch.targets_BT[:, :-1] == SELECT_ID
        is_known_BT = batch.real_BT & (batch.targets_BT != UNK_ID)
        chosen = batch.real_BT, is_known_BT, is_node_BT & ~is_item_BT, is_node_BT & is_item_BT
        found.append([((nll_BT * chosen_BT).sum(1), chosen_BT.sum(1)) for chosen_BT in chosen])
    kinds = zip(*found, strict=True)
    return SideFitness(*(Fitness(*(torch.cat(part).numpy() for part in zip(*kind, strict=True))) for kind in kinds))


def whose(examples: SideExamples) -> np.ndarray:
    """Of which chat each side is (n,), in the order in which sides are scored."""
    return examples.chats[np.argsort(examples.num_targets, kind="stable")]


def linked(chats: Iterable[FriendsChat], linker: EntityLinker) -> tuple[np.ndarray, np.ndarray]:
    """How many of the mentions that speakers meant a listener's linker finds, by the words alone.

    Args:
        chats: with marked mentions.
        linker: reads with the listener's table as context.

    Returns:
        Mentions found (n,) and mentions (n,) of each chat.
    """
    found, meant = [], []
    for chat in chats:
        hits = total = 0
        for event in chat.events:
            wanted = _spans(event.tokens)
            if wanted:
                known = _spans(linker.link(event.words, chat.scenario.mentionable[1 - event.side]))
                hits, total = hits + len(wanted.items() & known.items()), total + len(wanted)
        found.append(hits)
        meant.append(total)
    return np.array(found), np.array(meant)


def _spans(tokens: Iterable[Token]) -> dict[int, Entity]:
    """Entities by the place of their first word."""
    spans, at = {}, 0
    for token in tokens:
        if isinstance(token, Mention):
            spans[at] = token.entity
        at += len(token.words) if isinstance(token, Mention) else 1
    return spans
