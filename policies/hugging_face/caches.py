"""Abilities of a causal Hugging Face model: continue a reading, read texts side by side, read what they share once.

Attention keeps keys and values, which continue and are shared. Layers with a running state (LFM2, Qwen3-Next, Jamba, Mamba,
RWKV, RecurrentGemma and their kin) keep other things in transformers 5.23, in arguments of other names, or in the layers
themselves. An ability is tested on a few tokens against a plain reading, not told by the model's name; without it the whole
text is read again.

    B rows, P tokens of a prompt, V tokens of the vocabulary
"""

from __future__ import annotations

import ctypes
import inspect
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache, partial
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple
from weakref import WeakKeyDictionary, WeakSet

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

logger = logging.getLogger(__name__)
_PROMPT, _REPLY = 7, 4
"""Tokens of the test: more than a convolution of today's hybrid models looks back."""
_TOLERANCE, _TOLERANCE_HALF = 1e-2, 0.2
"""Largest difference of logits as a share of their spread, in float32 and in half precision."""
_WORTH = 16
"""Tokens from which a beginning that several texts share is read by itself."""
_ROOM = 32
"""Tokens that a cache takes in between two copies of what it holds."""
_MUCH = 2**28
"""Bytes of readings that are worth a second of pages to be asked for again."""
_abilities: WeakKeyDictionary[Any, dict[str, bool]] = WeakKeyDictionary()
_UNLIKE = {
    "continues": "what it has read cannot be kept: the whole text is read again for every token",
    "pads": "it cannot be told of padding: chats are read one at a time",
    "trees": "texts with one beginning cannot be read together: it is read once for each",
}


def continues_reading(model: Any) -> bool:
    """Return whether a model goes on from its `past_key_values`; otherwise every token takes a reading of the whole text."""
    return _able(model, "continues", _continues)


def pads_left(model: Any) -> bool:
    """Return whether a model reads texts of different lengths side by side, padded at the left."""
    return _able(model, "pads", _pads)


def reads_trees(model: Any) -> bool:
    """Return whether texts are read as a `TokenTree`, none of which sees another's own tokens."""
    return _able(model, "trees", _reads_trees)


class Segment(NamedTuple):
    """Tokens that some texts share, or that one has alone.

    Args:
        parts: the segments whose S tokens these texts begin with, this one's L tokens last.
        bias_LS: what is added to products: 0 for those that a token sees, minus infinity for those behind it.
    """

    parts: tuple[int, ...]
    bias_LS: Tensor


Layers = Sequence[tuple[Tensor, Tensor]]
"""Keys and values (1, H, P, D) of each layer for P tokens."""


class TokenTree:
    """Texts as one sequence, in which what some of them begin with is read once, and nothing for padding.

    A token sees its own text's tokens up to itself, as if the text were read alone.

    Args:
        texts: tokens of each text.
        device: where they are read.
        known: of what all texts begin with, which is not read again; None for nothing.

    Attributes:
        places: where the sequence holds the tokens of each text, those that are known left out.
    """

    def __init__(self, texts: Sequence[Sequence[int]], device: Any = "cpu", known: Layers | None = None) -> None:
        self._texts, self._device, self._known = [tuple(text) for text in texts], device, known
        self._num_known = known[0][0].shape[2] if known else 0
        self._ids, self._positions = list[int](), list[int]()
        self._segments: list[Segment] = []
        self._lengths = [self._num_known] if known else []
        self.places: list[list[int]] = [[] for _ in texts]
        self._grow(range(len(texts)), self._num_known, (0,) if known else ())

    def __len__(self) -> int:
        return len(self._ids)

    def _grow(self, rows: Iterable[int], depth: int, before: tuple[int, ...]) -> None:
        """Add the tokens from a depth on of texts that are alike up to there."""
        branches: dict[int, list[int]] = {}
        for row in rows:
            if len(self._texts[row]) > depth:
                branches.setdefault(self._texts[row][depth], []).append(row)
        for branch in branches.values():
            # Of texts in order, the first and the last are the least alike.
            first, last = (choose(self._texts[row] for row in branch) for choose in (min, max))
            end = next((at for at in range(depth, len(first)) if first[at] != last[at]), len(first))
            start, stop = len(self._ids), len(self._ids) + end - depth
            self._ids += first[depth:end]
            self._positions += range(depth, end)
            parts = (*before, len(self._lengths))
            self._lengths.append(end - depth)
            bias_LS = torch.full((end - depth, end), -torch.inf, device=self._device).triu_(depth + 1)
            self._segments.append(Segment(parts, bias_LS))
            for row in branch:
                self.places[row] += range(start, stop)
            self._grow(branch, end, parts)

    def logits(self, model: Any, places: Sequence[int], layers: list[tuple[Tensor, Tensor]] | None = None) -> Tensor:
        """Return what a model that `reads_trees` gives at places of the sequence: logits (M, V).

        Args:
            model: causal, of transformers.
            places: in any order.
            layers: takes the keys and values of all tokens, the known ones first.
        """
        given = {"input_ids": self._ids, "position_ids": self._positions}
        ids = {name: torch.tensor([values], device=self._device) for name, values in given.items()}
        with attending(model, partial(self._attended, layers), plain=False):
            kept = torch.tensor(places, device=self._device)
            logits_MV: Tensor = model(**ids, use_cache=False, logits_to_keep=kept).logits[0]
        return logits_MV

    def _attended(
        self,
        layers: list[tuple[Tensor, Tensor]] | None,
        number: int,
        query_1HAD: Tensor,
        key_1JSD: Tensor,
        value_1JSD: Tensor,
        kind: AttentionKind,
    ) -> Tensor:
        """Return attention (A, H, D) of each segment to itself and to those before it."""
        if self._known:
            key_1JSD, value_1JSD = (
                torch.cat(sides, 2) for sides in zip(self._known[number], (key_1JSD, value_1JSD), strict=True)
            )
        if layers is not None:
            layers.append((key_1JSD, value_1JSD))
        # Queries of one head of keys stand below one another, so that keys are not laid out for each.
        queries_1JRAD = query_1HAD.unflatten(1, (key_1JSD.shape[1], -1)).split(self._lengths[bool(self._known) :], 3)
        keys, values = (side.split(self._lengths, 2) for side in (key_1JSD, value_1JSD))
        attended = []
        for (parts, bias_LS), query_1JRLD in zip(self._segments, queries_1JRAD, strict=True):
            key, value = (torch.cat([side[part] for part in parts], 2) for side in (keys, values))
            if kind.window:
                bias_LS = bias_LS + torch.full_like(bias_LS, -torch.inf).tril(bias_LS.shape[1] - len(bias_LS) - kind.window)
            bias_NS = bias_LS.to(query_1HAD.dtype).repeat(query_1JRLD.shape[2], 1)
            found_1JND = kind.attend(query_1JRLD.flatten(2, 3), key, value, bias_NS)
            attended.append(found_1JND.view_as(query_1JRLD).flatten(1, 2)[0].transpose(0, 1))
        return torch.cat(attended)


_ATTENTION = "parley_packed"


class AttentionKind(NamedTuple):
    """What the attention of a layer is beside plain products.

    Args:
        scale: of products; one over the root of D if None.
        window: tokens that a token sees at most; None for all.
        softcap: bound of products; None for none.
        sinks_H: product of each head with nothing at all; None for none.
    """

    scale: float | None
    window: int | None
    softcap: float | None
    sinks_H: Tensor | None

    @property
    def is_plain(self) -> bool:
        """True if products and scale are all."""
        return self.window is None and self.softcap is None and self.sinks_H is None

    def attend(self, query_1JND: Tensor, key_1JSD: Tensor, value_1JSD: Tensor, bias_NS: Tensor) -> Tensor:
        """Return attention (1, J, N, D) of queries, those of the heads that share keys below one another."""
        if self.softcap is None and self.sinks_H is None:
            return F.scaled_dot_product_attention(query_1JND, key_1JSD, value_1JSD, bias_NS, scale=self.scale)
        products_1JNS = query_1JND @ key_1JSD.mT * (self.scale or query_1JND.shape[-1] ** -0.5)
        if self.softcap is not None:
            products_1JNS = self.softcap * (products_1JNS / self.softcap).tanh()
        products_1JNS = products_1JNS + bias_NS
        if self.sinks_H is not None:
            num, rows = query_1JND.shape[1:3]
            sinks_JR = self.sinks_H.view(num, -1)
            sinks_1JN1 = sinks_JR.repeat_interleave(rows // sinks_JR.shape[1], 1)[None, ..., None]
            products_1JNS = torch.cat([products_1JNS, sinks_1JN1.to(products_1JNS)], -1)
        return products_1JNS.softmax(-1, dtype=torch.float32)[..., : bias_NS.shape[1]].to(value_1JSD) @ value_1JSD


Attend = Callable[[int, Tensor, Tensor, Tensor, AttentionKind], Tensor]
"""Attention (A, H, D) of a layer to tokens in line: its number, queries (1, H, A, D), keys and values (1, J, A, D)."""


_attending: ContextVar[tuple[Attend, bool] | None] = ContextVar("attending", default=None)
"""The attention now, and whether it takes plain products alone."""


@contextmanager
def attending(model: Any, attend: Attend, plain: bool = True) -> Iterator[None]:
    """Let a model attend to packed texts by a function; it is restored afterwards.

    Args:
        model: of transformers.
        attend: the function.
        plain: whether it takes plain products alone; layers of other kinds are refused then (TypeError).
    """
    _register()
    usual, token = model.config._attn_implementation, _attending.set((attend, plain))
    model.config._attn_implementation = _ATTENTION
    try:
        yield
    finally:
        model.config._attn_implementation = usual
        _attending.reset(token)


@cache
def _register() -> None:
    from transformers import AttentionInterface

    AttentionInterface.register(_ATTENTION, _attend)


def _attend(
    module: Any,
    query_1HAD: Tensor,
    key_1JAD: Tensor,
    value_1JAD: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Return attention (1, A, H, D) in the signature of transformers."""
    now = _attending.get()
    assert now is not None, "nothing is packed"
    attend, plain = now
    kind = AttentionKind(scaling, sliding_window, softcap, s_aux)
    if plain and not kind.is_plain:
        raise TypeError("the model's attention is no plain one")
    return attend(module.layer_idx, query_1HAD, key_1JAD, value_1JAD, kind)[None], None


def logits_of_last(model: Any, num: int) -> dict[str, int]:
    """Return the argument by which a model forms the logits of its last positions alone, which are the most memory."""
    return {"logits_to_keep": num} if "logits_to_keep" in inspect.signature(model.forward).parameters else {}


def next_logits(model: Any, ids_BP: Tensor) -> Tensor:
    """Return the logits (B, V) of the token behind texts, read whole."""
    logits_BV: Tensor = model(input_ids=ids_BP, use_cache=False, **logits_of_last(model, 1)).logits[:, -1]
    return logits_BV


def _able(model: Any, name: str, trial: Callable[[Any, Tensor], bool]) -> bool:
    abilities = _abilities.setdefault(model, {})
    if name not in abilities:
        layer = model.get_input_embeddings()
        tokens = torch.arange(2 * _PROMPT + 2 * _REPLY, device=layer.weight.device) * 7 + 3
        training = model.training
        with torch.inference_mode():
            try:
                # Dropout would make any two readings differ.
                abilities[name] = trial(model.eval(), tokens % len(layer.weight))
            except torch.OutOfMemoryError:
                raise
            # Caches of other kinds lack methods, hold nothing, or have other argument names.
            except (AttributeError, IndexError, KeyError, NotImplementedError, RuntimeError, TypeError, ValueError):
                abilities[name] = False
            finally:
                model.train(training)
        if not abilities[name]:
            logger.warning("%s: %s", getattr(model, "name_or_path", "") or type(model).__name__, _UNLIKE[name])
    return abilities[name]


def _continues(model: Any, tokens: Tensor) -> bool:
    prompt, reply = tokens[None, :_PROMPT], tokens[None, -_REPLY:]
    if (past := _read(model, prompt).past_key_values) is None:
        return False
    steps = []
    for number in range(_REPLY):
        read = _read(model, reply[:, number : number + 1], past)
        past = read.past_key_values
        steps.append(read.logits[0, -1])
    whole = _read(model, torch.cat([prompt, reply], dim=1), use_cache=False).logits[0, -_REPLY:]
    return _same(torch.stack(steps), whole)


def _pads(model: Any, tokens: Tensor) -> bool:
    if "position_ids" not in inspect.signature(model.forward).parameters:
        return False
    num = _PROMPT // 2
    rows = torch.stack([tokens[:_PROMPT], torch.cat([tokens[:1].expand(num), tokens[_PROMPT : 2 * _PROMPT - num]])])
    mask = torch.ones_like(rows)
    mask[1, :num] = 0
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    cached = continues_reading(model)
    read = model(input_ids=rows, attention_mask=mask, position_ids=positions, use_cache=cached)
    padded, last = read.logits[1, -1], tokens[-1:].expand(2)[:, None]
    more, longer = torch.cat([mask, torch.ones_like(last)], dim=1), positions[:, -1:] + 1
    if cached:
        past = read.past_key_values
        then = model(input_ids=last, attention_mask=more, position_ids=longer, past_key_values=past, use_cache=True)
    else:
        all_positions = torch.cat([positions, longer], dim=1)
        then = model(input_ids=torch.cat([rows, last], dim=1), attention_mask=more, position_ids=all_positions, use_cache=False)
    alone = _read(model, torch.cat([rows[1:, num:], last[1:]], dim=1), use_cache=False).logits[0, -2:]
    return _same(torch.stack([padded, then.logits[1, -1]]), alone)


def _reads_trees(model: Any, tokens: Tensor) -> bool:
    if not {"position_ids", "logits_to_keep"} <= set(inspect.signature(model.forward).parameters):
        return False
    rests = tokens[-_REPLY:], tokens[_PROMPT : _PROMPT + _REPLY + 1]
    texts = [torch.cat([tokens[:_PROMPT], rest]).tolist() for rest in rests]
    alone = [_read(model, torch.tensor([text], device=tokens.device), use_cache=False).logits[0, -1] for text in texts]
    layers = list[tuple[Tensor, Tensor]]()
    TokenTree([tokens[:_PROMPT].tolist()], tokens.device).logits(model, [0], layers)
    trees = [TokenTree(texts, tokens.device, known) for known in (None, layers)]
    logits = [tree.logits(model, [places[-1] for places in tree.places]) for tree in trees]
    return all(_same(read, torch.stack(alone)) for read in logits)


def _read(model: Any, ids_BP: Tensor, past: Any = None, *, use_cache: bool = True) -> Any:
    past_arguments = {} if past is None else {"past_key_values": past}
    return model(input_ids=ids_BP, use_cache=use_cache, **past_arguments)


def difference(logits: Tensor, wanted: Tensor) -> float:
    """Return how far logits are off at most, as a share of the spread of those that are wanted."""
    return float((logits.float() - wanted.float()).abs().max() / wanted.float().std().clamp_min(1e-12))


def _same(logits: Tensor, wanted: Tensor) -> bool:
    share = _TOLERANCE if wanted.dtype in (torch.float32, torch.float64) else _TOLERANCE_HALF
    return logits.shape == wanted.shape and difference(logits, wanted) <= share


def can_select_rows(cache: Any) -> bool:
    """Return whether rows can be taken out of a cache: of plain attention, or None where nothing is kept."""
    layers = getattr(cache, "layers", [])
    return cache is None or (bool(layers) and all(type(layer).__name__ in ("DynamicLayer", "RoomyLayer") for layer in layers))


def give_room(cache: Any) -> Any:
    """Return a cache, which from now on copies what it holds once in many tokens, if it is of plain attention."""
    if cache is not None and can_select_rows(cache):
        for layer in cache.layers:
            layer.__class__ = _roomy()
    return cache


@cache
def _roomy() -> Any:
    """Return transformers' layer of a cache with room for tokens to come."""
    from transformers.cache_utils import DynamicLayer

    class RoomyLayer(DynamicLayer):
        def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
            if not self.get_seq_length():
                return super().update(key_states, value_states)
            held = [getattr(self, side) for side in ("keys", "values")]
            rooms = zip(held, getattr(self, "rooms", held), (key_states, value_states), strict=True)
            self.rooms = [_written(*sides) for sides in rooms]
            num = held[0].shape[-2] + key_states.shape[-2]
            self.keys, self.values = keys, values = tuple(room[..., :num, :] for room in self.rooms)
            return keys, values

    return RoomyLayer


def _written(held: Tensor, room: Tensor, new: Tensor) -> Tensor:
    """Return memory that holds what was held, and new tokens behind it: the same one if they fit there."""
    num, end = held.shape[-2], held.shape[-2] + new.shape[-2]
    # Rows may have left, and places may have been cut off.
    if (held.data_ptr(), held.stride()) != (room.data_ptr(), room.stride()) or end > room.shape[-2]:
        room = held.new_empty((*held.shape[:-2], end + _ROOM, held.shape[-1]))
        room[..., :num, :] = held
    room[..., num:end, :] = new
    return room


def select_rows(cache: Any, rows: Sequence[int]) -> None:
    """Leave some rows alone in a cache of plain attention."""
    if cache is not None:
        cache.batch_select_indices(torch.tensor(rows, device=cache.layers[0].keys.device))


class PaddedTexts(NamedTuple):
    """Texts side by side, known tokens and new ones both padded at the left.

    Args:
        ids: tokens of each row.
        mask: 1 where a token is of the text.
        num_new: last columns, which are read.
    """

    ids: list[list[int]]
    mask: list[list[int]]
    num_new: int


def padded_left(prompts: Sequence[Sequence[int]], known: Sequence[int], pad: int) -> PaddedTexts:
    """Return texts side by side, of each of which so many tokens are known."""
    parts = [(ids[:num], ids[num:]) for ids, num in zip(prompts, known, strict=True)]
    most_known, num_new = max(known), max(len(new) for _, new in parts)
    gaps = [(most_known - len(old), num_new - len(new)) for old, new in parts]
    rows = list(zip(parts, gaps, strict=True))
    ids = [[*[pad] * first, *old, *[pad] * second, *new] for (old, new), (first, second) in rows]
    mask = [[0] * first + [1] * len(old) + [0] * second + [1] * len(new) for (old, new), (first, second) in rows]
    return PaddedTexts(ids, mask, num_new)


class KeptText:
    """Keys and values of a text.

    Args:
        layers: keys and values (H, P, D) of each layer.
        used: readings of the model that had begun when it was last used.
    """

    def __init__(self, layers: list[tuple[Tensor, Tensor]], used: int) -> None:
        self.layers, self.used = layers, used
        self.num_bytes = sum(side.nbytes for sides in layers for side in sides)


class KeptReadings:
    """Keys and values of texts that a model has read, so that a longer text is read from where it goes on.

    The messages of a conversation are so read once, and not again at every turn; what several conversations begin with, such as
    a system's text, is read once for them. Only caches of plain attention are kept, and none of them once a weight has changed.
    All readers of a model, such as adapters on one base, have room together. Where it is full, what was not used lately goes;
    if there is nothing of the kind, what is new is not kept, for the next turn needs the old.

    Args:
        model: its layers.
        most_bytes: of all keys and values of the model's readers.
    """

    _readers: WeakKeyDictionary[Any, WeakSet[KeptReadings]] = WeakKeyDictionary()
    _begun = 0
    """Readings that all readers have begun."""
    _lately: ClassVar[int] = 32
    """Readings within which a text was used lately: more than a game of a dozen players begins in a turn."""

    def __init__(self, model: Any, most_bytes: int = 2**30) -> None:
        self._model, self._most_bytes = model, most_bytes
        self._kept: dict[tuple[int, ...], KeptText] = {}
        self._ids: dict[tuple[int, ...], np.ndarray] = {}
        self._version = self._weights_version()
        self._readers.setdefault(model, WeakSet()).add(self)

    @classmethod
    def forget(cls, model: Any) -> None:
        """Forget what all readers of a model keep; where that is much, its memory goes back to the system."""
        readers = list(cls._readers.get(model, ()))
        num_bytes = sum(text.num_bytes for reader in readers for text in reader._kept.values())
        for reader in readers:
            reader._kept, reader._ids = {}, {}
        if num_bytes > _MUCH:
            # In the midst of what stays, glibc leaves it to itself, and what is larger has no room there.
            with suppress(AttributeError):
                ctypes.CDLL(None).malloc_trim(0)

    def begin(self, prompts: Sequence[Sequence[int]]) -> tuple[Any, list[int]]:
        """Return a cache of what is known of some prompts, padded at the left, and the number of tokens known of each.

        Beginnings of some length that several prompts share are read first. At least one token of each is left to read.
        """
        self.share(prompts)
        matches = [self._longest(np.asarray(prompt[:-1])) for prompt in prompts]
        longest = max(known for _, known in matches)
        if not longest:
            return None, [0] * len(prompts)
        from transformers import DynamicCache

        cache = DynamicCache()
        for number in range(len(next(iter(self._kept.values())).layers)):
            sides = []
            for side in (0, 1):
                parts = [self._kept[key].layers[number][side][:, :known] if known else None for key, known in matches]
                like = next(part for part in parts if part is not None)
                filled_BHPD = like.new_zeros((len(parts), like.shape[0], longest, like.shape[2]))
                for row, part in enumerate(parts):
                    if part is not None:
                        filled_BHPD[row, :, longest - part.shape[1] :] = part
                sides.append(filled_BHPD)
            cache.update(*sides, number)
        return cache, [known for _, known in matches]

    def share(self, prompts: Sequence[Sequence[int]]) -> None:
        """Read beginnings of some length that several prompts share, and keep them."""
        KeptReadings._begun += 1
        version = self._weights_version()
        if version != self._version:
            self._kept, self._ids, self._version = {}, {}, version
        rows = [np.asarray(prompt[:-1]) for prompt in prompts]
        if beginnings := _beginnings(rows, [self._longest(row)[1] for row in rows]):
            self._read(beginnings)

    def _read(self, texts: Sequence[Sequence[int]]) -> None:
        """Read different texts side by side, from where they are known, and keep them."""
        cache, known = self.begin(texts)
        padded, device = padded_left(texts, known, 0), self._model.get_input_embeddings().weight.device
        ids_BP, mask_BP = torch.tensor(padded.ids, device=device), torch.tensor(padded.mask, device=device)
        given: dict[str, Any] = logits_of_last(self._model, 1)
        if len(texts) > 1:
            positions_BP = (mask_BP.cumsum(1) - 1).clamp(min=0)
            given |= {"attention_mask": mask_BP, "position_ids": positions_BP[:, -padded.num_new :]}
        read = self._model(input_ids=ids_BP[:, -padded.num_new :], past_key_values=cache, use_cache=True, **given)
        self.keep(dict(enumerate(texts)), read.past_key_values, mask_BP)

    def keep(self, texts: Mapping[int, Sequence[int]], cache: Any, mask_BP: Tensor) -> None:
        """Keep what was read of texts, in place of what they begin with.

        Args:
            texts: by row, its tokens that the mask shows; what the mask shows beyond them is left out.
            cache: behind the reading of P tokens of B rows.
            mask_BP: 1 where a token is of the text.
        """
        if cache is None or not can_select_rows(cache):
            return
        layers = cache.layers
        for row, text in texts.items():
            places = mask_BP[row, : layers[0].keys.shape[-2]].nonzero()[: len(text), 0]
            key = tuple(text[: len(places)])
            ids = np.asarray(key)
            common = {known: _num_common(self._ids[known], ids) for known in self._kept}
            if len(ids) in common.values():
                continue
            for known, num in common.items():
                if num == len(known):
                    del self._kept[known], self._ids[known]
            parts = [(layer.keys[row][:, places], layer.values[row][:, places]) for layer in layers]
            self._kept[key], self._ids[key] = KeptText(parts, self._begun), ids
            self._make_room(key)

    def _make_room(self, newest: tuple[int, ...]) -> None:
        texts = [(reader, key, reading) for reader in self._readers[self._model] for key, reading in reader._kept.items()]
        texts.sort(key=lambda text: text[2].used)
        excess = sum(reading.num_bytes for _, _, reading in texts) - self._most_bytes
        while excess > 0 and len(texts) > 1:
            reader, key, reading = texts.pop(0)
            if reading.used > self._begun - self._lately:
                del self._kept[newest], self._ids[newest]
                break
            del reader._kept[key], reader._ids[key]
            excess -= reading.num_bytes

    def _longest(self, row: np.ndarray) -> tuple[tuple[int, ...], int]:
        known = [(_num_common(ids, row), key) for key, ids in self._ids.items()]
        num, key = max(known, key=lambda pair: pair[0], default=(0, ()))
        if num:
            self._kept[key].used = self._begun
        return key, num

    def _weights_version(self) -> int:
        return sum(parameter._version for parameter in self._model.parameters())


def _beginnings(rows: Sequence[np.ndarray], known: Sequence[int]) -> list[list[int]]:
    """Return the longest texts with which several rows begin alike, where they are longer than what is known of those rows."""
    order = sorted(range(len(rows)), key=lambda row: rows[row].tolist())
    ends = [0, *(_num_common(rows[first], rows[second]) for first, second in pairwise(order)), 0]
    beginnings: dict[tuple[int, ...], None] = {}
    for index, row in enumerate(order):
        shared = max(ends[index], ends[index + 1])
        if shared >= known[row] + _WORTH:
            beginnings[tuple(rows[row][:shared].tolist())] = None
    return list(map(list, beginnings))


def _num_common(first: np.ndarray, second: np.ndarray) -> int:
    num = min(len(first), len(second))
    unlike = (first[:num] != second[:num]).nonzero()[0]
    return int(unlike[0]) if len(unlike) else num
