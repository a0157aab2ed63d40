"""Texts of different lengths that a causal model on a GPU reads in one pass: as `packed.py`, with a few kernels a layer.

All tokens stand behind one another, so that each product of the model's layers is one over all of them. For attention they
are laid out as a grid: a text is a row, all texts end in the last column, and the columns before a text's own tokens hold what
was read before. So each token sees the columns up to its own, and one mask serves all texts.

    n texts of all lists, B of one, C columns, L last columns with tokens that are read, K last positions whose words are
    predicted, A tokens that are read, H heads of queries, J of keys, R queries of a head of keys, D width of a head
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from parley.engine.triggers.scorers.causal.kept_keys import KeysValues
from parley.engine.triggers.scorers.causal.packed import packed

if TYPE_CHECKING:
    from parley.engine.triggers.scorers.causal.passes import WantedReads
    from parley.engine.triggers.scorers.causal.reader import CausalReader

_ALIGNED = 8
"""Rows of a mask begin at multiples of this, as the kernels want it that need no room for all scores."""


@dataclass(frozen=True, eq=False)
class _Grid:
    """What stands where; indices are on the CPU.

    Args:
        before: what was read before.
        keys_nC: in each place, which token: of those that are read, and behind them those of `before`.
        own_nC: where the tokens stand that are read.
        first_n: the column with a text's first token.
        keeps: whether keys and values are kept.
        kept: those of a layer, each (n, C, J, D).
    """

    before: Sequence[KeysValues]
    keys_nC: Tensor
    own_nC: Tensor
    first_n: Tensor
    keeps: bool
    kept: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    _on: dict[tuple[torch.device, int, int], tuple[Tensor, ...]] = field(default_factory=dict)

    def attend(self, layer: int, query_1HAD: Tensor, key_1JAD: Tensor, value_1JAD: Tensor, scaling: float | None) -> Tensor:
        """Attention (A, H, D) of each text to what was read before and to itself."""
        (num_heads, width), of_keys = query_1HAD.shape[1::2], key_1JAD.shape[1]
        where = (query_1HAD.device, num_heads, of_keys)
        if where not in self._on:
            self._on[where] = self._indices(*where, query_1HAD.dtype)
        keys_i, query_i, found_i, mask = self._on[where]
        num = len(self.keys_nC)
        key_nCJD, value_nCJD = (
            self._tokens(new, [getattr(part, kind)[layer] for part in self.before])
            .index_select(0, keys_i)
            .unflatten(0, (num, -1))
            for kind, new in (("keys", key_1JAD), ("values", value_1JAD))
        )
        if self.keeps:
            self.kept[layer] = (key_nCJD, value_nCJD)
        # Queries of one head of keys stand below one another, so that keys are not laid out for each.
        rows = query_1HAD.transpose(1, 2).reshape(-1, width)
        query_nJMD = rows.index_select(0, query_i).view(num, of_keys, -1, width)
        found_nJMD = scaled_dot_product_attention(
            query_nJMD, key_nCJD.transpose(1, 2), value_nCJD.transpose(1, 2), mask, scale=scaling
        )
        found = found_nJMD.transpose(1, 2).reshape(-1, found_nJMD.shape[-1])
        return found.index_select(0, found_i).unflatten(0, (-1, num_heads))

    @staticmethod
    def _tokens(new_1JAD: Tensor, before: Sequence[Tensor]) -> Tensor:
        """Those that are read and those before (tokens, J, D)."""
        return torch.cat([each.transpose(1, 2).flatten(0, 1) for each in (new_1JAD, *before)])

    def _indices(self, device: torch.device, num_heads: int, of_keys: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
        """Which token is each key, which head of a token each query, where each head's result is, and who sees what."""
        (num, columns), repeats = self.own_nC.shape, num_heads // of_keys
        length = int(self.own_nC.sum(1).max())
        heads_JR11 = torch.arange(num_heads, device=device).view(of_keys, repeats)[..., None, None]
        # Columns of a text that are not its own ask, too; nobody looks at what they find.
        query_nL = self.keys_nC[:, -length:].where(self.own_nC[:, -length:], 0).to(device)
        query_i = (query_nL[:, None, None] * num_heads + heads_JR11[..., 0]).flatten()
        text_A, column_A = (each.to(device) for each in self.own_nC[:, -length:].nonzero().unbind(1))
        query_A1 = text_A[:, None] * num_heads * length + column_A[:, None] * of_keys
        head_H = torch.arange(num_heads, device=device)
        found_i = (query_A1 + head_H % repeats * length * of_keys + head_H // repeats).flatten()
        # One for all where all begin in the same column.
        first_m11 = self.first_n.unique()[:, None, None]
        if len(first_m11) > 1:
            first_m11 = self.first_n[:, None, None]
        column_C = torch.arange(columns)
        sees_mLC = (column_C <= column_C[-length:, None]) & (column_C >= first_m11)
        mask_mLC = torch.zeros(sees_mLC.shape, dtype=dtype).masked_fill_(~sees_mLC, -torch.inf)
        mask_mLC = pad(mask_mLC, (0, -columns % _ALIGNED)).repeat(1, repeats, 1).to(device)
        mask = mask_mLC[:, None, :, :columns].expand(num, of_keys, -1, -1)
        return self.keys_nC.flatten().to(device), query_i, found_i, mask


def _grid(texts: Sequence[WantedReads]) -> _Grid:
    lengths = [0 if each.prompt is None else each.prompt.length for each in texts]
    columns = max(num_before + each.ids_BL.shape[1] for num_before, each in zip(lengths, texts, strict=True))
    column_C = torch.arange(columns)
    own_nC = torch.cat([column_C >= columns - each.ids_BL.shape[1] + torch.tensor(each.starts)[:, None] for each in texts])
    end = int(own_nC.sum())
    before, begins = list[KeysValues](), dict[int, int]()
    for part in (part for each in texts for part in (each.prompt, each.known)):
        if part is not None and id(part) not in begins:
            begins[id(part)] = end
            end += part.num_rows * part.length
            before.append(part)
    known, first = list[Tensor](), list[Tensor]()
    for each, num_before in zip(texts, lengths, strict=True):
        num, length = each.ids_BL.shape
        row_B1 = torch.arange(num)[:, None] if each.known.num_rows > 1 else torch.zeros(num, 1, dtype=torch.int64)
        searched_C = column_C - (columns - length)
        known_BC = begins[id(each.known)] + row_B1 * each.known.length + searched_C
        if each.prompt is not None:
            known_BC = known_BC.where(searched_C >= 0, begins[id(each.prompt)] + searched_C + num_before)
        first_column = columns - length - num_before
        known.append(known_BC.where(column_C >= first_column, 0))
        first.append(torch.full((num,), first_column))
    read_nC = (own_nC.flatten().cumsum(0) - 1).view_as(own_nC)
    keys_nC = read_nC.where(own_nC, torch.cat(known))
    return _Grid(before, keys_nC, own_nC, torch.cat(first), any(each.keeps for each in texts))


def read_grid(
    reader: CausalReader, texts: Sequence[WantedReads], embedding_VE: Tensor
) -> list[tuple[Tensor, KeysValues | None]]:
    """Reads what lists want.

    Returns:
        Of each list the logits (B, K, V), and what the layers keep of its texts, from the first searched place on; None where
        that is not wanted. Not differentiable.
    """
    grid, device = _grid(texts), embedding_VE.device
    rows = [len(each.ids_BL) for each in texts]
    ids, kept = list[Tensor](), list[Tensor]()
    for each, own_BC, keys_BC in zip(texts, grid.own_nC.split(rows), grid.keys_nC.split(rows), strict=True):
        own = own_BC[:, -each.ids_BL.shape[1] :].flatten().nonzero()[:, 0]
        ids.append(each.ids_BL.flatten()[own.to(device)])
        kept.append(keys_BC[:, -len(each.wanted_K) :].flatten())
    positions_A = (torch.arange(grid.own_nC.shape[1]) - grid.first_n[:, None])[grid.own_nC]
    with reader.fast_products(), packed(reader.model, grid.attend):
        read = reader.model(
            inputs_embeds=embedding_VE[torch.cat(ids)][None],
            position_ids=positions_A[None].to(device),
            use_cache=False,
            logits_to_keep=torch.cat(kept).to(device),
        )
    found, done = list[tuple[Tensor, KeysValues | None]](), 0
    for each, logits in zip(texts, read.logits[0].split([len(part) for part in kept]), strict=True):
        known, own = None, slice(done, done + len(each.ids_BL))
        if each.keeps:
            length = each.ids_BL.shape[1]
            pairs = [[part[own, -length:].transpose(1, 2) for part in grid.kept[layer]] for layer in sorted(grid.kept)]
            known = KeysValues(*(tuple(kind) for kind in zip(*pairs, strict=True)))
        found.append((logits.unflatten(0, (-1, len(each.wanted_K))), known))
        done = own.stop
    return found
