"""Abilities of a causal Hugging Face model's cache: continue a reading, share it among replies, read texts side by side.

Attention keeps keys and values, which continue and are shared. Layers with a running state (LFM2, Qwen3-Next, Jamba, Mamba,
RWKV, RecurrentGemma and their kin) keep other things in transformers 5.23, in caches that cannot be repeated, in arguments of
other names, or in the layers themselves. An ability is tested on a few tokens against a plain reading, not told by the
model's name; without it the whole text is read again.

    B rows, P tokens of a prompt, V tokens of the vocabulary
"""

from __future__ import annotations

import copy
import inspect
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
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
_abilities: WeakKeyDictionary[Any, dict[str, bool]] = WeakKeyDictionary()
_UNLIKE = {
    "continues": "what it has read cannot be kept: the whole text is read again for every token",
    "shares": "what it has read cannot be shared: messages are read again for each of several replies",
    "pads": "it cannot be told of padding: chats are read one at a time",
    "trees": "texts with one beginning cannot be read together: it is read once for each",
}


def continues_reading(model: Any) -> bool:
    """Return whether a model goes on from its `past_key_values`; otherwise every token takes a reading of the whole text."""
    return _able(model, "continues", _continues)


def shares_reading(model: Any) -> bool:
    """Return whether several replies can go on from one reading of their messages."""
    return _able(model, "shares", _shares)


def pads_left(model: Any) -> bool:
    """Return whether a model reads texts of different lengths side by side, padded at the left."""
    return _able(model, "pads", _pads)


def reads_trees(model: Any) -> bool:
    """Return whether texts are read as a `TokenTree`, none of which sees another's own tokens."""
    return _able(model, "trees", _reads_trees)


class Segment(NamedTuple):
    """Tokens that some texts share, or that one has alone.

    Args:
        start: place of the first of them in the sequence of all.
        stop: place behind the last.
        before: such pairs of the segments that these texts begin with.
        sees_LS: which of the S tokens of `before` and of its own each of its L tokens sees.
    """

    start: int
    stop: int
    before: tuple[tuple[int, int], ...]
    sees_LS: Tensor


class TokenTree:
    """Texts as one sequence, in which what some of them begin with is read once, and nothing for padding.

    A token sees its own text's tokens up to itself, as if the text were read alone.

    Args:
        texts: tokens of each text.
        device: where they are read.
    """

    def __init__(self, texts: Sequence[Sequence[int]], device: Any = "cpu") -> None:
        self._texts, self._device = [tuple(text) for text in texts], device
        self._ids, self._positions = list[int](), list[int]()
        self._segments: list[Segment] = []
        self.places: list[list[int]] = [[] for _ in texts]
        """Where the sequence holds the tokens of each text."""
        self._grow(range(len(texts)), 0, ())

    def __len__(self) -> int:
        return len(self._ids)

    def _grow(self, rows: Iterable[int], depth: int, before: tuple[tuple[int, int], ...]) -> None:
        """Add the tokens from a depth on of texts that are alike up to there."""
        branches: dict[int, list[int]] = {}
        for row in rows:
            if len(self._texts[row]) > depth:
                branches.setdefault(self._texts[row][depth], []).append(row)
        for branch in branches.values():
            texts = [self._texts[row] for row in branch]
            # Of texts in order, the first and the last are the least alike.
            first, last = min(texts), max(texts)
            end = next((at for at in range(depth, len(first)) if first[at] != last[at]), len(first))
            start, stop = len(self._ids), len(self._ids) + end - depth
            self._ids += first[depth:end]
            self._positions += range(depth, end)
            sees_LS = torch.ones(end - depth, end, dtype=torch.bool, device=self._device).tril(depth)
            self._segments.append(Segment(start, stop, before, sees_LS))
            for row in branch:
                self.places[row] += range(start, stop)
            self._grow(branch, end, (*before, (start, stop)))

    def logits(self, model: Any, places: Sequence[int]) -> Tensor:
        """Return what a model that `reads_trees` gives at places of the sequence: logits (M, V)."""
        given = {"input_ids": self._ids, "position_ids": self._positions}
        ids = {name: torch.tensor([values], device=self._device) for name, values in given.items()}
        with attending(model, self._attended, windows=True):
            kept = torch.tensor(places, device=self._device)
            logits_MV: Tensor = model(**ids, use_cache=False, logits_to_keep=kept).logits[0]
        return logits_MV

    def _attended(
        self, _: int, query_1HAD: Tensor, key_1JAD: Tensor, value_1JAD: Tensor, scaling: float | None, window: int | None
    ) -> Tensor:
        """Return attention (A, H, D) of each segment to itself and to those before it."""
        parts, num = [], key_1JAD.shape[1]
        for start, stop, before, sees_LS in self._segments:
            spans = [*before, (start, stop)]
            keys, values = (torch.cat([side[:, :, first:end] for first, end in spans], 2) for side in (key_1JAD, value_1JAD))
            if window:
                sees_LS = sees_LS.triu(sees_LS.shape[1] - len(sees_LS) - window + 1)
            # Queries of one head of keys stand below one another, so that keys are not laid out for each.
            query_1JRLD = query_1HAD[:, :, start:stop].unflatten(1, (num, -1))
            mask = sees_LS.repeat(query_1JRLD.shape[2], 1)
            attended = F.scaled_dot_product_attention(query_1JRLD.flatten(2, 3), keys, values, mask, scale=scaling)
            parts.append(attended.view_as(query_1JRLD).flatten(1, 2)[0].transpose(0, 1))
        return torch.cat(parts)


_ATTENTION = "parley_packed"
_REFUSED = ("softcap", "s_aux")
"""Arguments of other kinds of attention: capped scores, sinks."""
Attend = Callable[..., Tensor]
"""Attention (A, H, D) of a layer to tokens in line: its number, queries (1, H, A, D), keys and values (1, J, A, D), the
scale of products, and the window of the layer where windows are taken."""


_attending: ContextVar[tuple[Attend, bool] | None] = ContextVar("attending", default=None)
"""The attention now, and whether it takes windows."""


@contextmanager
def attending(model: Any, attend: Attend, windows: bool = False) -> Iterator[None]:
    """Let a model attend to packed texts by a function; it is restored afterwards.

    Args:
        model: of transformers.
        attend: the function.
        windows: whether it takes windows; layers with one are refused (TypeError) otherwise.
    """
    _register()
    usual, token = model.config._attn_implementation, _attending.set((attend, windows))
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
    **options: Any,
) -> tuple[Tensor, None]:
    """Return attention (1, A, H, D) in the signature of transformers."""
    now = _attending.get()
    assert now is not None, "nothing is packed"
    attend, windows = now
    if any(options.get(name) is not None for name in _REFUSED) or (sliding_window is not None and not windows):
        raise TypeError("the model's attention is no plain one")
    window = (sliding_window,) if windows else ()
    return attend(module.layer_idx, query_1HAD, key_1JAD, value_1JAD, scaling, *window)[None], None


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


def _shares(model: Any, tokens: Tensor) -> bool:
    prompt, replies = tokens[None, :_PROMPT], tokens[-2 * _REPLY :].unflatten(0, (2, _REPLY))
    past = copy.deepcopy(_read(model, prompt).past_key_values)
    past.batch_repeat_interleave(2)
    shared = _read(model, replies, past).logits
    whole = _read(model, torch.cat([prompt.expand(2, -1), replies], dim=1), use_cache=False).logits[:, -_REPLY:]
    return _same(shared, whole)


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
    tree = TokenTree(texts, tokens.device)
    logits = tree.logits(model, [places[-1] for places in tree.places])
    alone = [_read(model, torch.tensor([text], device=tokens.device), use_cache=False).logits[0, -1] for text in texts]
    return _same(logits, torch.stack(alone))


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
    return cache is None or (bool(layers) and all(type(layer).__name__ == "DynamicLayer" for layer in layers))


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

    def begin(self, prompts: Sequence[Sequence[int]]) -> tuple[Any, list[int]]:
        """Return a cache of what is known of some prompts, padded at the left, and the number of tokens known of each.

        Beginnings of some length that several prompts share are read first. At least one token of each is left to read.
        """
        KeptReadings._begun += 1
        version = self._weights_version()
        if version != self._version:
            self._kept, self._ids, self._version = {}, {}, version
        rows = [np.asarray(prompt[:-1]) for prompt in prompts]
        matches = [self._longest(row) for row in rows]
        if beginnings := _beginnings(rows, [known for _, known in matches]):
            self._read(beginnings)
            matches = [self._longest(row) for row in rows]
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
    """Return how many tokens two texts begin with alike."""
    num = min(len(first), len(second))
    unlike = (first[:num] != second[:num]).nonzero()[0]
    return int(unlike[0]) if len(unlike) else num
