"""How well a DynoNet copies, and how well its linker finds what speakers meant.

Shapes: n sides or chats.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch

from envs.friends.events import FriendsChat, Mention, Token
from envs.friends.linker import EntityLinker
from envs.friends.schema import Entity
from policies.dynonet.batches import SideExamples
from policies.dynonet.model import DynoNet
from policies.dynonet.vocabulary import SELECT_ID
from policies.fitting.batches import in_order
from policies.fitting.evaluation import Fitness

_ROWS = 256


class CopyFitness(NamedTuple):
    """How well a model predicts what it can but copy."""

    entities: Fitness
    """Entities of utterances."""
    items: Fitness
    """Selected items."""


@torch.no_grad()
def copied(model: DynoNet, examples: SideExamples) -> CopyFitness:
    """Scores copied entities and selected items of a split.

    Args:
        model: in evaluation mode.
        examples: of the split.
    """
    device, found = next(model.parameters()).device, []
    for batch in in_order(examples, _ROWS):
        moved = batch.to(device)
        nll_BT = torch.zeros(batch.real_BT.shape).masked_scatter(batch.real_BT, model.nll(moved).cpu()).double()
        is_node_BT, is_item_BT = (batch.targets_BT >= len(model.vocabulary)) & batch.real_BT, torch.zeros_like(batch.real_BT)
        is_item_BT[:, 1:] = batch.targets_BT[:, :-1] == SELECT_ID
        chosen = is_node_BT & ~is_item_BT, is_node_BT & is_item_BT
        found += [((nll_BT * chosen_BT).sum(1), chosen_BT.sum(1)) for chosen_BT in chosen]
    kinds = (Fitness(*(torch.cat(part).numpy() for part in zip(*kind, strict=True))) for kind in (found[::2], found[1::2]))
    return CopyFitness(*kinds)


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
