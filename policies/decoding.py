"""Replies of any decoder that goes from state to state: word by word, or the likeliest per word that a beam finds.

Source of the beam: the HRED authors' released code (Sordoni et al. 2015, Serban et al. 2016): hypotheses of equal length
compete by their log-probability; one that ends leaves the beam and gives its place up; the best of those that ended is
the one of the highest log-probability divided by its length.

Departures:
  * # Released: `<unk>` is never said. Ours: it may be, as in greedy decoding, because the metrics count it.
  * # Released: a hypothesis at the limit of length is dropped unless none has ended. Ours: it ends there, `</s>` counted, for
    in training a reply of that length ends there too. So a beam that is wide enough finds the best of all replies.

Shapes: B contexts, K hypotheses of each, R = B K rows, V words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from envs.pairs.vocabulary import BOS_ID, EOS_ID

MemoryT_contra = TypeVar("MemoryT_contra", bound=tuple[Any, ...], contravariant=True)
MemoryT = TypeVar("MemoryT", bound=tuple[Any, ...])
StateT = TypeVar("StateT", bound=tuple[Any, ...])

_ROWS = 256
"""Hypotheses decoded at once."""


class Decoder(Protocol[MemoryT_contra, StateT]):
    """What says replies word by word; memory and state are named tuples of tensors whose first axis is the row."""

    def begin(self, memory: MemoryT_contra, /) -> StateT:
        """Before the first word."""

    def step(self, memory: MemoryT_contra, words_R: Tensor, state: StateT, /) -> tuple[Tensor, StateT]:
        """Reads one word of each reply: the logits (R, V) of the next, and the state after it."""


@torch.no_grad()
def in_blocks(size: int, decode: Callable[[slice], list[list[int]]], width: int = 1) -> list[list[int]]:
    """The replies to `size` contexts, as many of them decoded together as memory is meant for.

    Args:
        size: contexts in all.
        decode: the replies to a slice of them.
        width: hypotheses of each.
    """
    at_once = max(1, _ROWS // width)
    return [reply for start in range(0, size, at_once) for reply in decode(slice(start, min(start + at_once, size)))]


@torch.no_grad()
def word_by_word(
    decoder: Decoder[MemoryT, StateT], memory: MemoryT, max_reply: int, choose: Callable[[int, Tensor], Tensor]
) -> list[list[int]]:
    """A reply to each context, of which every word is chosen once.

    Args:
        decoder: of a model in evaluation mode.
        memory: of B contexts.
        max_reply: longest reply in words, `</s>` included.
        choose: the words (B,), from the place of the word and the logits (B, V).

    Returns:
        As `beam_search`.
    """
    state = decoder.begin(memory)
    first = _first(memory)
    words_B = torch.full((len(first),), BOS_ID, device=first.device)
    over_B = torch.zeros_like(words_B, dtype=torch.bool)
    said: list[Tensor] = []
    while len(said) < max_reply - 1 and not bool(over_B.all()):
        logits_BV, state = decoder.step(memory, words_B, state)
        words_B = choose(len(said), logits_BV)
        said.append(words_B)
        over_B |= words_B == EOS_ID
    return [words[: words.index(EOS_ID)] if EOS_ID in words else words for words in torch.stack(said, dim=1).tolist()]


def likeliest(place: int, logits_BV: Tensor) -> Tensor:
    """The word (B,) that greedy decoding says at any place."""
    return logits_BV.argmax(1)


@torch.no_grad()
def beam_search(
    decoder: Decoder[MemoryT, StateT], memory: MemoryT, size: int, width: int, max_reply: int, length_penalty: float = 1.0
) -> list[list[int]]:
    """The best reply found to each context.

    Args:
        decoder: of a model in evaluation mode.
        memory: of `size` contexts.
        size: B.
        width: hypotheses kept for each, at least 1, which is greedy decoding.
        max_reply: longest reply in words, `</s>` included.
        length_penalty: exponent of the number of words, `</s>` counted, by which log-probabilities are divided; 0 for none.

    Returns:
        Word ids of the replies without `</s>`; at most `max_reply` - 1 words.
    """
    assert width >= 1, "somebody must speak"
    parts = {name: part for name, part in memory._asdict().items() if part is not None}  # type: ignore[attr-defined]  # a named tuple
    repeated = {name: part.repeat_interleave(width, dim=0) for name, part in parts.items()}
    memory = memory._replace(**repeated)  # type: ignore[attr-defined]  # a named tuple
    state = decoder.begin(memory)
    device = _first(memory).device
    words_BK = torch.full((size, width), BOS_ID, device=device)
    # Log-probability of each hypothesis; minus infinity where there is none.
    totals_BK = torch.full((size, width), -torch.inf, device=device)
    totals_BK[:, 0] = 0
    places_B1 = torch.full((size, 1), width, device=device)
    best_B = torch.full((size,), -torch.inf, device=device)
    ended_B2 = torch.zeros((size, 2), dtype=torch.int64, device=device)
    said: list[Tensor] = []
    parents: list[Tensor] = []
    first_row_B1 = torch.arange(size, device=device).unsqueeze(1) * width
    for place in range(max_reply):
        logits_RV, state = decoder.step(memory, words_BK.flatten(), state)
        steps_BKV = logits_RV.log_softmax(1).view(size, width, -1)
        num_words = steps_BKV.shape[2]
        if place == max_reply - 1:
            steps_BKV = torch.where(torch.arange(num_words, device=device) == EOS_ID, steps_BKV, -torch.inf)
            places_B1.fill_(width)
        totals_BK, chosen_BK = (totals_BK.unsqueeze(2) + steps_BKV).flatten(1).topk(width)
        parents_BK, words_BK = chosen_BK // num_words, chosen_BK % num_words
        totals_BK = totals_BK.masked_fill(torch.arange(width, device=device) >= places_B1, -torch.inf)
        ends_BK = (words_BK == EOS_ID) & totals_BK.isfinite()
        scores_BK = (totals_BK / (place + 1) ** length_penalty).masked_fill(~ends_BK, -torch.inf)
        score_B, which_B = scores_BK.max(1)
        better_B = score_B > best_B
        best_B = torch.where(better_B, score_B, best_B)
        ended_B2[better_B] = torch.stack([torch.full_like(which_B, place), which_B], dim=1)[better_B]
        said.append(words_BK)
        parents.append(parents_BK)
        places_B1 = places_B1 - ends_BK.sum(1, keepdim=True)
        totals_BK = totals_BK.masked_fill(ends_BK, -torch.inf)
        if not bool(totals_BK.isfinite().any()):
            break
        rows_R = (first_row_B1 + parents_BK).flatten()
        state = type(state)(*(part[rows_R] for part in state))
    return _followed(torch.stack(said).cpu(), torch.stack(parents).cpu(), ended_B2.tolist())


def _first(memory: tuple[Any, ...]) -> Tensor:
    part: Tensor = next(part for part in memory if part is not None)
    return part


def _followed(said_TBK: Tensor, parents_TBK: Tensor, ended: Sequence[tuple[int, int]]) -> list[list[int]]:
    """The words of the hypotheses that ended at (place, number), without their ends."""
    replies = []
    for row, (place, number) in enumerate(ended):
        reply: list[int] = []
        for earlier in range(place, 0, -1):
            number = int(parents_TBK[earlier, row, number])
            reply.append(int(said_TBK[earlier - 1, row, number]))
        replies.append(reply[::-1])
    return replies
