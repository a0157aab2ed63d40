"""Readers of a causal Hugging Face model that read no token twice: texts in parts, and texts of different lengths in one pass.

Keys and values (`KeysValues`): the layers' cache of the tokens that were read.

In parts (`CausalReader`): the prompt before the searched words is read once for all searches, the words before a changed one
once a visit, and only the rest for each candidate. A reader hands the model the keys and values of the earlier parts; the first
of them are shared by all rows, and are laid out for each row in one layer at a time. Layers that keep fewer than all positions
(sliding windows, recurrent states) cannot be cut at any position. `reads_in_parts` looks at the model's own cache and then
tries it.

Packed on a CPU (`read_blocks`): all tokens stand behind one another, so that each product of the model's layers is one over
all of them. Attention alone goes block by block: a text sees what was read before it, and itself. transformers takes a
function for that (`AttentionInterface`). `reads_packed` tries whether a model uses it and does nothing else in its attention.

Packed on a GPU (`read_grid`): the same with a few kernels a layer. For attention the tokens are laid out as a grid: a text is a
row, all texts end in the last column, and the columns before a text's own tokens hold what was read before. So each token sees
the columns up to its own, and one mask serves all texts.

    n texts of a block or of all lists, B rows of one list, L tokens of a part (grid: last columns with tokens that are read),
    P tokens read before it, C columns, K last positions whose words are predicted, A all tokens that are read, H heads of
    queries, J of keys, R queries of a head of keys, D width of a head
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, scaled_dot_product_attention

from parley.policies.core.layers import LinearOfNewSizes, Weight, dense, is_mkl_whole
from parley.policies.hugging_face.caches import AttentionKind, attending

if TYPE_CHECKING:
    from parley.engine.triggers.scorers.causal.swaps import ReadPlan


TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-3}
"""Largest error of logits, as a share of their spread: rounding, in the model's own precision."""
TOLERANCE_HALF = 0.2
"""The same of models in half precision."""


@dataclass(frozen=True, eq=False)
class KeysValues:
    """The cached keys and values of tokens that were read.

    Args:
        keys: of each layer (B, H, L, D).
        values: of each layer (B, H, L, D).
    """

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]

    @property
    def length(self) -> int:
        """Return L."""
        return self.keys[0].shape[2]

    @property
    def num_rows(self) -> int:
        """Return B."""
        return self.keys[0].shape[0]

    def cut(self, start: int, stop: int) -> KeysValues:
        """Return those of the tokens from `start` to before `stop`; no copy."""
        return KeysValues(*(tuple(layer[:, :, start:stop] for layer in kind) for kind in (self.keys, self.values)))

    def rows(self, rows_b: Tensor | slice) -> KeysValues:
        """Return those of some rows."""
        if isinstance(rows_b, slice):
            return KeysValues(*(tuple(layer[rows_b] for layer in kind) for kind in (self.keys, self.values)))
        # A device map may have put layers on other devices.
        return KeysValues(*(tuple(layer[rows_b.to(layer.device)] for layer in kind) for kind in (self.keys, self.values)))

    def repeated(self, num: int) -> KeysValues:
        """Return those of one row, expanded to that many rows; no copy."""
        return KeysValues(*(tuple(layer.expand(num, -1, -1, -1) for layer in kind) for kind in (self.keys, self.values)))

    def detached(self) -> KeysValues:
        """Return the same without gradients."""
        return KeysValues(*(tuple(layer.detach() for layer in kind) for kind in (self.keys, self.values)))


def in_line(parts: Sequence[KeysValues]) -> KeysValues:
    """Return consecutive parts as one; a part of one row is repeated for the others."""
    parts = [part for part in parts if part.length]
    if len(parts) == 1:
        return parts[0]
    num = max(part.keys[0].shape[0] for part in parts)
    kinds = []
    for kind in ("keys", "values"):
        layers = zip(*(getattr(part, kind) for part in parts), strict=True)
        kinds.append(tuple(torch.cat([tensor.expand(num, -1, -1, -1) for tensor in layer], dim=2) for layer in layers))
    return KeysValues(*kinds)


def one_below_the_other(groups: Sequence[KeysValues]) -> KeysValues:
    """Return the rows of groups that have read as many tokens, stacked."""
    if len(groups) == 1:
        return groups[0]
    kinds = (
        tuple(map(torch.cat, zip(*(getattr(group, kind) for group in groups), strict=True))) for kind in ("keys", "values")
    )
    return KeysValues(*kinds)


def own_layers(model: Any) -> Sequence[Any]:
    """Return the layers of the cache that the model would make for itself."""
    from transformers import DynamicCache

    layers: Sequence[Any] = DynamicCache(config=model.config).layers
    return layers


class TextBlock(NamedTuple):
    """Texts of one length.

    Args:
        embedded_nLE: their tokens.
        before: what was read before, part by part, P tokens in all; of one row that all texts share, or of a row for each.
        keep: K.
    """

    embedded_nLE: Tensor
    before: Sequence[KeysValues]
    keep: int


@dataclass(frozen=True)
class _Place:
    """The position of a block among all tokens, its earlier parts, and the mask of each token of a text (L, P + L)."""

    start: int
    num: int
    length: int
    before: Sequence[KeysValues]
    mask: Tensor

    def of(self, tokens_1HAD: Tensor) -> Tensor:
        """Return its heads (n, H, L, D)."""
        own_HAD = tokens_1HAD[0, :, self.start : self.start + self.num * self.length]
        return own_HAD.unflatten(1, (self.num, self.length)).transpose(0, 1)


def read_blocks(reader: CausalReader, blocks: Sequence[TextBlock]) -> list[tuple[Tensor, KeysValues]]:
    """Read blocks.

    Returns:
        Of each block the logits (n, K, V), and what the layers keep of it. Not differentiable.
    """
    device, dtype = blocks[0].embedded_nLE.device, blocks[0].embedded_nLE.dtype
    start = 0
    places, positions, kept_rows = list[_Place](), list[Tensor](), list[Tensor]()
    for embedded_nLE, before, keep in blocks:
        num, length = embedded_nLE.shape[:2]
        num_before = sum(part.length for part in before)
        later_LL = torch.ones(length, length, dtype=torch.bool, device=device).triu(1)
        mask_LS = torch.zeros(length, num_before + length, dtype=dtype, device=device)
        mask_LS[:, num_before:].masked_fill_(later_LL, -torch.inf)
        places.append(_Place(start, num, length, before, mask_LS))
        positions.append(torch.arange(num_before, num_before + length, device=device).repeat(num))
        texts_n1 = start + length * torch.arange(num, device=device)[:, None]
        kept_rows.append((texts_n1 + torch.arange(length - keep, length, device=device)).flatten())
        start += num * length
    from transformers.cache_utils import Cache

    layers = [_layer_class()() for _ in range(len(own_layers(reader.model)))]
    with reader.fast_products(), attending(reader.model, partial(_attend_blocks, places)):
        read = reader.model(
            inputs_embeds=torch.cat([block.embedded_nLE.flatten(0, 1) for block in blocks])[None],
            position_ids=torch.cat(positions)[None],
            past_key_values=Cache(layers=layers),
            use_cache=True,
            logits_to_keep=torch.cat(kept_rows),
        )
    new = [(layer.new[0], layer.new[1]) for layer in layers]
    caches = [KeysValues(tuple(span.of(k) for k, _ in new), tuple(span.of(v) for _, v in new)) for span in places]
    logits = read.logits[0].split([block.embedded_nLE.shape[0] * block.keep for block in blocks])
    return [
        (logits_xV.unflatten(0, (-1, block.keep)), new) for logits_xV, block, new in zip(logits, blocks, caches, strict=True)
    ]


def _attend_blocks(
    packing: Sequence[_Place], layer: int, query_1HAD: Tensor, key_1JAD: Tensor, value_1JAD: Tensor, kind: AttentionKind
) -> Tensor:
    """Return attention (A, H, D) of each text to its earlier parts and to itself."""
    num_heads, width = query_1HAD.shape[1], query_1HAD.shape[3]
    attended_AHD = query_1HAD.new_empty(query_1HAD.shape[2], num_heads, width)
    for block in packing:
        known_keys, known_values = ([getattr(part, side)[layer] for part in block.before] for side in ("keys", "values"))
        key_nJSD, value_nJSD = (
            torch.cat([*(part.expand(block.num, -1, -1, -1) for part in earlier), block.of(new)], dim=2)
            for earlier, new in ((known_keys, key_1JAD), (known_values, value_1JAD))
        )
        # Queries of one head of keys stand below one another, so that keys are not laid out for each.
        query_nJRLD = block.of(query_1HAD).unflatten(1, (key_nJSD.shape[1], -1))
        mask = block.mask.repeat(query_nJRLD.shape[2], 1)
        attended = scaled_dot_product_attention(query_nJRLD.flatten(2, 3), key_nJSD, value_nJSD, mask, scale=kind.scale)
        own_nLHD = attended_AHD[block.start : block.start + block.num * block.length].unflatten(0, (block.num, block.length))
        own_nLHD.copy_(attended.view_as(query_nJRLD).flatten(1, 2).transpose(1, 2))
    return attended_AHD


@cache
def _layer_class() -> Any:
    from transformers.cache_utils import DynamicLayer

    class PackedLayer(DynamicLayer):
        """A cache layer that keeps new keys and values, and returns them unchanged."""

        def __init__(self) -> None:
            super().__init__()
            self.new: tuple[Tensor, Tensor] | None = None
            self.is_initialized = True

        def update(self, keys: Tensor, values: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
            """Return the new keys and values alone."""
            self.new = (keys, values)
            return self.new

        def get_seq_length(self) -> int:
            """Return 0: no token stands before all texts."""
            return 0

    return PackedLayer


_ALIGNED = 8
"""Rows of a mask begin at multiples of this, as the kernels want it that need no room for all scores."""


@dataclass(frozen=True, eq=False)
class _Grid:
    """The layout of all tokens as a grid; indices are on the CPU.

    Args:
        before: what was read before.
        keys_nC: in each place, which token: of those that are read, and behind them those of `before`.
        own_nC: where the tokens stand that are read.
        first_n: the column with a text's first token.
        keeps: whether keys and values are kept.
        caches: those of a layer, each (n, C, J, D).
    """

    before: Sequence[KeysValues]
    keys_nC: Tensor
    own_nC: Tensor
    first_n: Tensor
    keeps: bool
    caches: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    _on: dict[tuple[torch.device, int, int], tuple[Tensor, ...]] = field(default_factory=dict)

    def attend(self, layer: int, query_1HAD: Tensor, key_1JAD: Tensor, value_1JAD: Tensor, kind: AttentionKind) -> Tensor:
        """Return attention (A, H, D) of each text to its earlier parts and to itself."""
        (num_heads, width), of_keys = query_1HAD.shape[1::2], key_1JAD.shape[1]
        where = (query_1HAD.device, num_heads, of_keys)
        if where not in self._on:
            self._on[where] = self._indices(*where, query_1HAD.dtype)
        keys_i, query_i, order_i, mask = self._on[where]
        num = len(self.keys_nC)
        key_nCJD, value_nCJD = (
            self._tokens(new, [getattr(part, kind)[layer] for part in self.before])
            .index_select(0, keys_i)
            .unflatten(0, (num, -1))
            for kind, new in (("keys", key_1JAD), ("values", value_1JAD))
        )
        if self.keeps:
            self.caches[layer] = (key_nCJD, value_nCJD)
        # Queries of one head of keys stand below one another, so that keys are not laid out for each.
        rows = query_1HAD.transpose(1, 2).reshape(-1, width)
        query_nJMD = rows.index_select(0, query_i).view(num, of_keys, -1, width)
        attended_nJMD = scaled_dot_product_attention(
            query_nJMD, key_nCJD.transpose(1, 2), value_nCJD.transpose(1, 2), mask, scale=kind.scale
        )
        attended = attended_nJMD.transpose(1, 2).reshape(-1, attended_nJMD.shape[-1])
        return attended.index_select(0, order_i).unflatten(0, (-1, num_heads))

    @staticmethod
    def _tokens(new_1JAD: Tensor, before: Sequence[Tensor]) -> Tensor:
        """Return the tokens that are read and those before (tokens, J, D)."""
        return torch.cat([heads.transpose(1, 2).flatten(0, 1) for heads in (new_1JAD, *before)])

    def _indices(self, device: torch.device, num_heads: int, of_keys: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
        """Return the token of each key, the query of each token's head, the position of each result, and the mask."""
        (num, columns), repeats = self.own_nC.shape, num_heads // of_keys
        length = int(self.own_nC.sum(1).max())
        heads_JR11 = torch.arange(num_heads, device=device).view(of_keys, repeats)[..., None, None]
        # Columns of a text that are not its own query too; their results are ignored.
        query_nL = self.keys_nC[:, -length:].where(self.own_nC[:, -length:], 0).to(device)
        query_i = (query_nL[:, None, None] * num_heads + heads_JR11[..., 0]).flatten()
        text_A, column_A = (index.to(device) for index in self.own_nC[:, -length:].nonzero().unbind(1))
        query_A1 = text_A[:, None] * num_heads * length + column_A[:, None] * of_keys
        head_H = torch.arange(num_heads, device=device)
        order_i = (query_A1 + head_H % repeats * length * of_keys + head_H // repeats).flatten()
        # One for all where all begin in the same column.
        first_m11 = self.first_n.unique()[:, None, None]
        if len(first_m11) > 1:
            first_m11 = self.first_n[:, None, None]
        column_C = torch.arange(columns)
        sees_mLC = (column_C <= column_C[-length:, None]) & (column_C >= first_m11)
        mask_mLC = torch.zeros(sees_mLC.shape, dtype=dtype).masked_fill_(~sees_mLC, -torch.inf)
        mask_mLC = pad(mask_mLC, (0, -columns % _ALIGNED)).repeat(1, repeats, 1).to(device)
        mask = mask_mLC[:, None, :, :columns].expand(num, of_keys, -1, -1)
        return self.keys_nC.flatten().to(device), query_i, order_i, mask


def _grid(texts: Sequence[ReadPlan]) -> _Grid:
    lengths = [0 if plan.prompt is None else plan.prompt.length for plan in texts]
    columns = max(num_before + plan.ids_BL.shape[1] for num_before, plan in zip(lengths, texts, strict=True))
    column_C = torch.arange(columns)
    own_nC = torch.cat([column_C >= columns - plan.ids_BL.shape[1] + torch.tensor(plan.starts)[:, None] for plan in texts])
    end = int(own_nC.sum())
    before, begins = list[KeysValues](), dict[int, int]()
    for part in (part for plan in texts for part in (plan.prompt, plan.keys_values)):
        if part is not None and id(part) not in begins:
            begins[id(part)] = end
            end += part.num_rows * part.length
            before.append(part)
    tokens, first = list[Tensor](), list[Tensor]()
    for plan, num_before in zip(texts, lengths, strict=True):
        num, length = plan.ids_BL.shape
        row_B1 = torch.arange(num)[:, None] if plan.keys_values.num_rows > 1 else torch.zeros(num, 1, dtype=torch.int64)
        searched_C = column_C - (columns - length)
        known_BC = begins[id(plan.keys_values)] + row_B1 * plan.keys_values.length + searched_C
        if plan.prompt is not None:
            known_BC = known_BC.where(searched_C >= 0, begins[id(plan.prompt)] + searched_C + num_before)
        first_column = columns - length - num_before
        tokens.append(known_BC.where(column_C >= first_column, 0))
        first.append(torch.full((num,), first_column))
    read_nC = (own_nC.flatten().cumsum(0) - 1).view_as(own_nC)
    keys_nC = read_nC.where(own_nC, torch.cat(tokens))
    return _Grid(before, keys_nC, own_nC, torch.cat(first), any(plan.keeps for plan in texts))


def read_grid(reader: CausalReader, texts: Sequence[ReadPlan], embedding_VE: Tensor) -> list[tuple[Tensor, KeysValues | None]]:
    """Read the texts that lists want.

    Returns:
        Of each list the logits (B, K, V), and what the layers keep of its texts, from the first searched place on; None where
        that is not wanted. Not differentiable.
    """
    grid, device = _grid(texts), embedding_VE.device
    rows = [len(plan.ids_BL) for plan in texts]
    ids, kept_rows = list[Tensor](), list[Tensor]()
    for plan, own_BC, keys_BC in zip(texts, grid.own_nC.split(rows), grid.keys_nC.split(rows), strict=True):
        columns = own_BC[:, -plan.ids_BL.shape[1] :].flatten().nonzero()[:, 0]
        ids.append(plan.ids_BL.flatten()[columns.to(device)])
        kept_rows.append(keys_BC[:, -len(plan.wanted_K) :].flatten())
    positions_A = (torch.arange(grid.own_nC.shape[1]) - grid.first_n[:, None])[grid.own_nC]
    with reader.fast_products(), attending(reader.model, grid.attend):
        read = reader.model(
            inputs_embeds=embedding_VE[torch.cat(ids)][None],
            position_ids=positions_A[None].to(device),
            use_cache=False,
            logits_to_keep=torch.cat(kept_rows).to(device),
        )
    results, done = list[tuple[Tensor, KeysValues | None]](), 0
    for plan, logits in zip(texts, read.logits[0].split([len(part) for part in kept_rows]), strict=True):
        cache, columns = None, slice(done, done + len(plan.ids_BL))
        if plan.keeps:
            length = plan.ids_BL.shape[1]
            pairs = [[part[columns, -length:].transpose(1, 2) for part in grid.caches[layer]] for layer in sorted(grid.caches)]
            cache = KeysValues(*(tuple(kind) for kind in zip(*pairs, strict=True)))
        results.append((logits.unflatten(0, (-1, len(plan.wanted_K))), cache))
        done = columns.stop
    return results


class CausalReader:
    """A reader of parts of texts by a model.

    Args:
        model: a causal Hugging Face model.
        rough: products in bfloat16, but for those of the head; the rest, keys and values too, in the model's own precision.
    """

    def __init__(self, model: Any, *, rough: bool = False) -> None:
        self.model, self.rough = model, rough
        # Of exactly these classes: others, such as adapters, do more than multiply; so do those that a device map has spread.
        kinds = (nn.Linear, LinearOfNewSizes)
        dense = [module for module in model.modules() if type(module) in kinds and "forward" not in vars(module)]
        self._forwards = dict[nn.Linear, Callable[[Tensor], Tensor]]()
        if not is_mkl_whole():
            self._forwards |= {module: partial(_forward, module) for module in dense}
        if rough:
            products = [module for module in dense if module is not model.get_output_embeddings()]
            self._forwards |= {module: _Rough(module) for module in products}

    def read(self, embedded_BLE: Tensor, before: Sequence[KeysValues], keep: int) -> tuple[Tensor, KeysValues]:
        """Read a part.

        Args:
            embedded_BLE: the tokens.
            before: what was read before, part by part; parts of one row are shared by all.
            keep: K.

        Returns:
            Logits (B, K, V) after the last K tokens, and what the layers keep of the part. Differentiable in the embeddings.
        """
        shared = [part for part in before if part.length and part.keys[0].shape[0] == 1]
        parts = [part for part in before if part.length and part.keys[0].shape[0] != 1]
        past = _cache_reader(
            in_line(shared) if shared else None, in_line(parts) if parts else None, len(own_layers(self.model))
        )
        with self.fast_products():
            read = self.model(inputs_embeds=embedded_BLE, past_key_values=past, use_cache=True, logits_to_keep=keep)
        new = [layer.new for layer in past.layers]
        return read.logits, KeysValues(tuple(keys for keys, _ in new), tuple(values for _, values in new))

    @contextmanager
    def fast_products(self) -> Iterator[None]:
        """Let the model's layers multiply by the fastest kernels; the model is restored afterwards."""
        if not self._forwards or (not self.rough and next(iter(self._forwards)).weight.device.type != "cpu"):
            yield
            return
        for module, forward in self._forwards.items():
            setattr(module, "forward", forward)  # noqa: B010  # types know methods as fixed
        try:
            yield
        finally:
            for module in self._forwards:
                del module.forward


def _forward(module: nn.Linear, rows: Tensor) -> Tensor:
    return dense(rows, module.weight, module.bias)


class _Rough:
    """A layer that multiplies in bfloat16; not differentiable."""

    def __init__(self, module: nn.Linear) -> None:
        self._weight, self._bias = Weight(module.weight, torch.bfloat16), module.bias

    def __call__(self, rows: Tensor) -> Tensor:
        product = self._weight(rows).to(rows.dtype)
        return product if self._bias is None else product + self._bias


def _cache_reader(shared: KeysValues | None, apart: KeysValues | None, num_layers: int) -> Any:
    """Return a cache in the form of transformers' models."""
    from transformers.cache_utils import Cache

    layers = []
    for i in range(num_layers):
        pairs = [None if part is None else (part.keys[i], part.values[i]) for part in (shared, apart)]
        layers.append(_layer_class_reader()(*pairs))
    return Cache(layers=layers)


@cache
def _layer_class_reader() -> Any:
    """Return the class of the cache's layers; made at first use, because it derives from one of transformers."""
    from transformers.cache_utils import DynamicLayer

    class PartLayer(DynamicLayer):
        """The keys and values of earlier parts and of the current part; earlier ones are not copied."""

        def __init__(self, shared: tuple[Tensor, Tensor] | None, apart: tuple[Tensor, Tensor] | None) -> None:
            super().__init__()
            self.before = [pair for pair in (shared, apart) if pair is not None]
            self.new: tuple[Tensor, Tensor] | None = None
            self.is_initialized = True

        def update(self, keys: Tensor, values: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
            """Return all keys and values (B, H, P + L, D)."""
            self.new = (keys, values)
            num = len(keys)
            parts = [*((k.expand(num, -1, -1, -1), v.expand(num, -1, -1, -1)) for k, v in self.before), self.new]
            if len(parts) == 1:
                return keys, values
            return torch.cat([k for k, _ in parts], dim=2), torch.cat([v for _, v in parts], dim=2)

        def get_seq_length(self) -> int:
            """Return P."""
            return sum(k.shape[2] for k, _ in self.before)

    return PartLayer


@torch.no_grad()
def said(logits_BTV: Tensor, target_T: Tensor) -> tuple[Tensor, Tensor]:
    """Return nats of a reply's words (B, T), and the lead of their logits over all others (B, T).

    The logits are written over, so that there are never more than (B, V) numbers beside them.
    """
    at_BT1 = target_T[None, :, None].expand(len(logits_BTV), -1, 1)
    said_BT = logits_BTV.gather(-1, at_BT1)[..., 0].float()
    whole_BT = torch.stack([logits_BV.float().logsumexp(-1) for logits_BV in logits_BTV.unbind(1)], dim=1)
    others_BT = logits_BTV.scatter_(-1, at_BT1, -torch.inf).amax(-1).float()
    return (whole_BT - said_BT).clamp_min(0), said_BT - others_BT


def reads_in_parts(model: Any, embedded_LE: Tensor) -> bool:
    """Return True if a model gives the same logits for a text read in parts.

    Args:
        model: a causal Hugging Face model.
        embedded_LE: a text of at least three tokens to try it with.
    """
    from transformers.cache_utils import DynamicLayer

    if "logits_to_keep" not in inspect.signature(model.forward).parameters:
        return False
    layers = own_layers(model)
    if not layers or any(type(layer) is not DynamicLayer for layer in layers):
        return False
    reader, half = CausalReader(model), len(embedded_LE) // 2
    both_2LE = torch.stack([embedded_LE, embedded_LE.flip(0)])
    with torch.no_grad():
        full_logits = model(inputs_embeds=both_2LE, use_cache=False).logits[:, half:].float()
        try:
            caches = [reader.read(both_2LE[row : row + 1, :half], (), 1)[1] for row in range(2)]
            alone, _ = reader.read(both_2LE[:1, half:], [caches[0]], len(embedded_LE) - half)
            together, _ = reader.read(both_2LE[:, half:], [one_below_the_other(caches)], len(embedded_LE) - half)
        except torch.OutOfMemoryError:
            raise
        except (TypeError, ValueError, AttributeError, RuntimeError, IndexError):
            # Some models have layers of their own behind the name of a plain one.
            return False
    bound = TOLERANCE.get(both_2LE.dtype, TOLERANCE_HALF) * float(full_logits.std())
    logits = torch.cat([alone, together]).float()
    return logits.shape[1:] == full_logits.shape[1:] and float((logits - full_logits[[0, 0, 1]]).abs().max()) <= bound
