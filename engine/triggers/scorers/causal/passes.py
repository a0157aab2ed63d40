"""Passes of a causal model over texts that lists of candidates want read, of one list or of several.

A list says what it wants read next, and is given what was found; so lists of different searches share passes without knowing of
each other (`read_together`). Where texts are packed one pass reads all (`packed.py`, `packed_grid.py`). Elsewhere those
that begin at the same place share one, the shorter filled up behind their ends, each behind its own beginning; neighbours begin
together where that costs less.

    n texts of a part, B texts of a list, L tokens from the first searched place on, K last positions whose words are wanted
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn.functional import pad

from parley.engine.triggers.scorers.causal.kept_keys import TOLERANCE, TOLERANCE_HALF, KeysValues, in_line, one_below_the_other
from parley.engine.triggers.scorers.causal.packed import TextBlock, read_blocks
from parley.engine.triggers.scorers.causal.packed_grid import read_grid
from parley.engine.triggers.scorers.causal.reader import CausalReader, said
from parley.engine.triggers.scorers.scorer import require_numbers

PASS, PASS_GPU = 64, 2048
"""What a pass costs beside its tokens, in tokens: on a CPU to fetch the weights from memory, on a GPU to start."""

FoundT = TypeVar("FoundT")
_packs: WeakKeyDictionary[Any, dict[str, bool]] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class WantedReads:
    """What a list wants read.

    Args:
        ids_BL: its texts.
        starts: of each, how many of its tokens are known; rising.
        prompt: what was read before the first searched place; None for nothing.
        known: what was read of the texts, of one row that all share or of a row for each.
        wanted_K: the last words of a reply, the same for all; what the last K positions say of them is asked.
        keeps: whether what the layers keep is wanted too.
    """

    ids_BL: Tensor
    starts: Sequence[int]
    prompt: KeysValues | None
    known: KeysValues
    wanted_K: Tensor
    keeps: bool

    def beginning(self, rows: slice, start: int) -> KeysValues:
        """What is known of some texts before a token."""
        known = self.known.cut(0, start)
        return known if known.num_rows == 1 else known.rows(rows)


class ReadWords(NamedTuple):
    """What was found.

    Args:
        nll_BK: nats of the wanted words.
        lead_BK: how far their logits are above all others.
        known: of each text, from the first searched place on; None where it is not wanted.
    """

    nll_BK: Tensor
    lead_BK: Tensor
    known: KeysValues | None

    def layers(self) -> list[Tensor]:
        """What is kept, layer by layer."""
        return [] if self.known is None else [*self.known.keys, *self.known.values]


Reads = Generator[WantedReads, ReadWords, FoundT]
"""Says what it wants read, is sent what was found, and returns what comes of it."""
Part = tuple[int, slice]
"""Texts of a list: its number, and which."""
Read = tuple[int, Sequence[Part], Sequence[tuple[Tensor, KeysValues]]]
"""From which token on parts were read; of each the logits (n, K, V), and what the layers keep of it."""


def read_together(lists: Sequence[Reads[FoundT]], read: Callable[[Sequence[WantedReads]], list[ReadWords]]) -> list[FoundT]:
    """What comes of lists that are read side by side."""
    found = dict[int, FoundT]()
    answers: dict[int, ReadWords | None] = dict.fromkeys(range(len(lists)))
    while answers:
        asked = dict[int, WantedReads]()
        for number, answer in answers.items():
            try:
                asked[number] = next(lists[number]) if answer is None else lists[number].send(answer)
            except StopIteration as end:
                found[number] = end.value
        answers = dict(zip(asked, read(list(asked.values())), strict=True)) if asked else {}
    return [found[number] for number in range(len(lists))]


@torch.no_grad()
def read_texts(reader: CausalReader, texts: Sequence[WantedReads], embedding_VE: Tensor, *, packs: bool) -> list[ReadWords]:
    """Reads what lists want."""
    if packs and embedding_VE.is_cuda:
        read_all = zip(texts, read_grid(reader, texts, embedding_VE), strict=True)
        return [_words(each, [logits_BKV], known) for each, (logits_BKV, known) in read_all]
    found: list[list[tuple[int, slice, Tensor, KeysValues]]] = [[] for _ in texts]
    for start, parts, read in _packed(reader, texts, embedding_VE) if packs else _apart(reader, texts, embedding_VE):
        for (number, rows), (logits_nKV, new) in zip(parts, read, strict=True):
            found[number].append((start, rows, logits_nKV, new))
    return [_answer(each, of) for each, of in zip(texts, found, strict=True)]


def reads_packed(reader: CausalReader, embedded_LE: Tensor) -> bool:
    """Whether a model gives the same for texts that are read in one pass; tried once a model and kind of device.

    Args:
        reader: of a model that reads in parts.
        embedded_LE: a text of at least six tokens to try it with.
    """
    tried = _packs.setdefault(reader.model, {})
    device = embedded_LE.device.type
    if device not in tried:
        tried[device] = _tried(reader, embedded_LE)
    return tried[device]


@torch.no_grad()
def _tried(reader: CausalReader, embedded_LE: Tensor) -> bool:
    # Three texts of two lists, which begin at other places behind other prompts.
    ids_2L = torch.tensor([[0, 1, 2, 3, 4, 5], [0, 1, 5, 4, 3, 2]], device=embedded_LE.device)
    prompt = reader.read(embedded_LE[None, 3:6], (), 1)[1]
    prompts = [prompt, prompt.cut(0, 1)]
    known = [reader.read(embedded_LE[None, :4], [each], 1)[1] for each in prompts]
    lists = [
        WantedReads(ids_2L, [1, 2], prompts[0], known[0], ids_2L[0, :2], True),
        WantedReads(ids_2L[:1, :5], [3], prompts[1], known[1], ids_2L[0, 4:], True),
    ]
    wanted = read_texts(reader, lists, embedded_LE, packs=False)
    try:
        found = read_texts(reader, lists, embedded_LE, packs=True)
    except torch.OutOfMemoryError:
        raise
    except (TypeError, ValueError, AttributeError, RuntimeError, IndexError, KeyError):
        # Models may compute attention by themselves.
        return False
    words, expected = (torch.cat([part.flatten() for each in of for part in each[:2]]) for of in (found, wanted))
    bound = TOLERANCE.get(embedded_LE.dtype, TOLERANCE_HALF) * float(expected.std())
    same_kept = all(
        float((own - other).abs().max()) <= TOLERANCE_HALF
        for each, apart in zip(found, wanted, strict=True)
        for own, other in zip(each.layers(), apart.layers(), strict=True)
    )
    return same_kept and float((words - expected).abs().max()) <= bound


def _packed(reader: CausalReader, texts: Sequence[WantedReads], embedding_VE: Tensor) -> Iterator[Read]:
    groups = list(_groups(texts, 0))
    blocks = []
    for start, parts in groups:
        for number, rows in parts:
            each = texts[number]
            before = [known for known in (each.prompt, each.beginning(rows, start)) if known is not None]
            blocks.append(TextBlock(embedding_VE[each.ids_BL[rows, start:]], before, len(each.wanted_K)))
    read = iter(read_blocks(reader, blocks))
    for start, parts in groups:
        yield start, parts, [next(read) for _ in parts]


def _apart(reader: CausalReader, texts: Sequence[WantedReads], embedding_VE: Tensor) -> Iterator[Read]:
    # Behind another prompt no text begins at the same place.
    for prompt in {id(each.prompt): each.prompt for each in texts}.values():
        asked = [number for number, each in enumerate(texts) if each.prompt is prompt]
        cost = PASS_GPU if embedding_VE.is_cuda else PASS
        for start, parts in _groups([texts[number] for number in asked], cost):
            parts = [(asked[number], rows) for number, rows in parts]
            yield start, parts, _read_rows(reader, texts, start, parts, embedding_VE)


def _read_rows(
    reader: CausalReader, texts: Sequence[WantedReads], start: int, parts: Sequence[Part], embedding_VE: Tensor
) -> list[tuple[Tensor, KeysValues]]:
    """Reads parts in one pass, all of them from one token on."""
    lengths, wanted = ([getattr(texts[number], name).shape[-1] for number, _ in parts] for name in ("ids_BL", "wanted_K"))
    length, first = max(lengths), min(own - num for own, num in zip(lengths, wanted, strict=True))
    ids = [
        pad(texts[number].ids_BL[rows, start:], (0, length - own)) for (number, rows), own in zip(parts, lengths, strict=True)
    ]
    beginnings = [texts[number].beginning(rows, start) for number, rows in parts]
    if len(parts) > 1:
        nums = [len(each) for each in ids]
        beginnings = [one_below_the_other([each.repeated(num) for each, num in zip(beginnings, nums, strict=True)])]
    prompt = texts[parts[0][0]].prompt
    before = beginnings if prompt is None else [prompt, *beginnings]
    logits_BKV, new = reader.read(embedding_VE[torch.cat(ids)], before, length - first)
    found, done = [], 0
    for each, own, num in zip(ids, lengths, wanted, strict=True):
        rows = slice(done, done + len(each))
        done = rows.stop
        found.append((logits_BKV[rows, own - num - first : own - first], new.rows(rows).cut(0, own - start)))
    return found


def _answer(texts: WantedReads, found: Sequence[tuple[int, slice, Tensor, KeysValues]]) -> ReadWords:
    whole = None
    if texts.keeps:
        whole = one_below_the_other([in_line([texts.beginning(rows, start), new]) for start, rows, _, new in found])
    return _words(texts, [logits_nKV for _, _, logits_nKV, _ in found], whole)


def _words(texts: WantedReads, logits: Sequence[Tensor], known: KeysValues | None) -> ReadWords:
    nll, lead = zip(*(said(logits_nKV, texts.wanted_K) for logits_nKV in logits), strict=True)
    nll_BK = torch.cat(nll)
    require_numbers(nll_BK)
    return ReadWords(nll_BK, torch.cat(lead), known)


def _groups(texts: Sequence[WantedReads], pass_cost: int) -> Iterator[tuple[int, list[Part]]]:
    """From which token on each group of texts is read, and which they are."""
    num_at = Counter(start for each in texts for start in each.starts)
    starts, end = sorted(num_at), max(each.ids_BL.shape[1] for each in texts)
    for group in cheapest_groups([(num_at[start], end - start) for start in starts], pass_cost):
        first, last = starts[group.start], starts[group.stop - 1]
        rows = [slice(bisect_left(each.starts, first), bisect_right(each.starts, last)) for each in texts]
        yield first, [(number, each) for number, each in enumerate(rows) if each.start < each.stop]


def cheapest_groups(parts: Sequence[tuple[int, int]], pass_cost: int) -> list[range]:
    """Which neighbours are read together, so that all cost least.

    Args:
        parts: rows and tokens of each, the tokens falling; a group reads all its rows from where its first part begins.
        pass_cost: of one more group, in tokens of a row.
    """
    best: list[tuple[float, list[range]]] = [(0.0, [])]
    for stop in range(1, len(parts) + 1):
        options = []
        for start in range(stop):
            tokens = sum(rows for rows, _ in parts[start:stop]) * parts[start][1]
            options.append((best[start][0] + tokens + pass_cost, [*best[start][1], range(start, stop)]))
        best.append(min(options, key=lambda option: option[0]))
    return best[-1][1]
