"""Replies of any decoder that goes from state to state: word by word, or the likeliest that a beam finds.

Source of the beam: the HRED authors' released code (Sordoni et al. 2015, Serban et al. 2016): hypotheses of equal length
compete by their log-probability; one that ends leaves the beam and gives its place up; the best of those that ended is
the one of the highest log-probability divided by its length.

Departures:
  * # Released: `<unk>` is never said. Ours: it may be, as in greedy decoding, because the metrics count it.
  * # Released: a hypothesis at the limit of length is dropped unless none has ended. Ours: it ends there, `</s>` counted, for
    in training a reply of that length ends there too. So a beam that is wide enough finds the best of all replies.

A diverse beam (Li et al. 2016c, arXiv 1611.08562) takes from the second word on `rate` nats off a hypothesis for each of its
siblings that is likelier.
  * # Released (Li et al. 2017): what is taken off once stays off, in the score of the whole reply too. Ours: it decides who
    stays in the beam, as in the paper, so that scores of replies are log-probabilities.

What replies may say is changed by `Charge`s (`policies/core/charges.py`), which work in any of these searches.

Shapes: B contexts, K hypotheses of each, R = B K rows, V words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from parley.envs.corpora.pairs.vocabulary import BOS_ID, EOS_ID

MemoryT_contra = TypeVar("MemoryT_contra", bound=tuple[Any, ...], contravariant=True)
MemoryT = TypeVar("MemoryT", bound=tuple[Any, ...])
StateT = TypeVar("StateT", bound=tuple[Any, ...])
ReplyT = TypeVar("ReplyT")

_ROWS = 256
"""Hypotheses decoded at once."""


class Hypothesis(NamedTuple):
    """A reply that a beam has found."""

    words: list[int]
    """Ids without `</s>`."""
    nats: float
    """Its log-probability with what charges changed of it, `</s>` counted."""


class Decoder(Protocol[MemoryT_contra, StateT]):
    """What says replies word by word; memory and state are named tuples of tensors whose first axis is the row."""

    def begin(self, memory: MemoryT_contra, /) -> StateT:
        """Before the first word."""

    def step(self, memory: MemoryT_contra, words_R: Tensor, state: StateT, /) -> tuple[Tensor, StateT]:
        """Reads one word of each reply: the logits (R, V) of the next, and the state after it."""


class Charge(Protocol[StateT]):
    """What makes words dearer or cheaper while replies are decoded; its state is a named tuple like that of a `Decoder`."""

    def begin(self, num_rows: int, device: torch.device, /) -> StateT:
        """Before the first word."""

    def step(self, place: int, scores_RV: Tensor, words_R: Tensor, state: StateT, /) -> tuple[Tensor, StateT]:
        """Changes the scores of the next word.

        Args:
            place: of that word in the reply, from 0.
            scores_RV: in nats, up to a constant for each row.
            words_R: the words before it; `<s>` at first.
            state: after the words before those.
        """


Charges = Sequence[Charge[Any]]


@torch.no_grad()
def in_blocks(size: int, decode: Callable[[slice], list[ReplyT]], width: int = 1) -> list[ReplyT]:
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
    decoder: Decoder[MemoryT, StateT],
    memory: MemoryT,
    max_reply: int,
    choose: Callable[[int, Tensor], Tensor],
    charges: Charges = (),
) -> list[list[int]]:
    """A reply to each context, of which every word is chosen once.

    Args:
        decoder: of a model in evaluation mode.
        memory: of B contexts.
        max_reply: longest reply in words, `</s>` included.
        choose: the words (B,), from the place of the word and the logits (B, V).
        charges: what changes the logits.

    Returns:
        As `beam_search`.
    """
    state = decoder.begin(memory)
    first = _first(memory)
    charged = [charge.begin(len(first), first.device) for charge in charges]
    words_B = torch.full((len(first),), BOS_ID, device=first.device)
    over_B = torch.zeros_like(words_B, dtype=torch.bool)
    said: list[Tensor] = []
    while len(said) < max_reply - 1 and not bool(over_B.all()):
        logits_BV, state = decoder.step(memory, words_B, state)
        logits_BV, charged = _charge(charges, len(said), logits_BV, words_B, charged)
        words_B = choose(len(said), logits_BV)
        said.append(words_B)
        over_B |= words_B == EOS_ID
    return [words[: words.index(EOS_ID)] if EOS_ID in words else words for words in torch.stack(said, dim=1).tolist()]


def likeliest(place: int, logits_BV: Tensor) -> Tensor:
    """The word (B,) that greedy decoding says at any place."""
    return logits_BV.argmax(1)


def beam_search(
    decoder: Decoder[MemoryT, StateT], memory: MemoryT, size: int, width: int, max_reply: int, length_penalty: float = 1.0
) -> list[list[int]]:
    """The best reply found to each context; the arguments are those of `n_best`.

    Returns:
        Word ids of the replies without `</s>`; at most `max_reply` - 1 words.
    """
    found = n_best(decoder, memory, size, width, max_reply, length_penalty, most=1)
    return [best.words for (best,) in found]


@torch.no_grad()
def n_best(
    decoder: Decoder[MemoryT, StateT],
    memory: MemoryT,
    size: int,
    width: int,
    max_reply: int,
    length_penalty: float = 1.0,
    *,
    rate: float = 0.0,
    charges: Charges = (),
    most: int | None = None,
) -> list[list[Hypothesis]]:
    """The replies found to each context, the best first, at least one.

    Args:
        decoder: of a model in evaluation mode.
        memory: of `size` contexts.
        size: B.
        width: hypotheses kept for each, at least 1, which is greedy decoding.
        max_reply: longest reply in words, `</s>` included.
        length_penalty: exponent of the number of words, `</s>` counted, by which log-probabilities are divided; 0 for none.
        rate: nats that a hypothesis loses for each sibling that is likelier, from the second word on; above 0 the beam is
            diverse.
        charges: what changes the log-probabilities.
        most: replies to each context at most; None for all that ended, fewer than twice the width.
    """
    assert width >= 1, "somebody must speak"
    parts = {name: part for name, part in memory._asdict().items() if part is not None}  # type: ignore[attr-defined]  # a named tuple
    repeated = {name: part.repeat_interleave(width, dim=0) for name, part in parts.items()}
    memory = memory._replace(**repeated)  # type: ignore[attr-defined]  # a named tuple
    state = decoder.begin(memory)
    device = _first(memory).device
    charged = [charge.begin(size * width, device) for charge in charges]
    words_BK = torch.full((size, width), BOS_ID, device=device)
    # Log-probability of each hypothesis; minus infinity where there is none.
    totals_BK = torch.full((size, width), -torch.inf, device=device)
    totals_BK[:, 0] = 0
    places_B1 = torch.full((size, 1), width, device=device)
    said: list[Tensor] = []
    parents: list[Tensor] = []
    ended: list[Tensor] = []
    first_row_B1 = torch.arange(size, device=device).unsqueeze(1) * width
    for place in range(max_reply):
        logits_RV, state = decoder.step(memory, words_BK.flatten(), state)
        steps_RV, charged = _charge(charges, place, logits_RV.log_softmax(1), words_BK.flatten(), charged)
        steps_BKV = steps_RV.view(size, width, -1)
        if place == max_reply - 1:
            steps_BKV = torch.where(torch.arange(steps_BKV.shape[2], device=device) == EOS_ID, steps_BKV, -torch.inf)
            places_B1.fill_(width)
        totals_BK, parents_BK, words_BK = _grown(totals_BK, steps_BKV, rate if place else 0.0)
        totals_BK = totals_BK.masked_fill(torch.arange(width, device=device) >= places_B1, -torch.inf)
        ends_BK = (words_BK == EOS_ID) & totals_BK.isfinite()
        said.append(words_BK)
        parents.append(parents_BK)
        ended.append(totals_BK.masked_fill(~ends_BK, -torch.inf))
        places_B1 = places_B1 - ends_BK.sum(1, keepdim=True)
        totals_BK = totals_BK.masked_fill(ends_BK, -torch.inf)
        if not bool(totals_BK.isfinite().any()):
            break
        rows_R = (first_row_B1 + parents_BK).flatten()
        state = _rows(state, rows_R)
        charged = [_rows(each, rows_R) for each in charged]
    return _ranked(torch.stack(said).cpu(), torch.stack(parents).cpu(), torch.stack(ended).cpu(), length_penalty, most)


def _first(memory: tuple[Any, ...]) -> Tensor:
    part: Tensor = next(part for part in memory if part is not None)
    return part


def _rows(state: StateT, rows_R: Tensor) -> StateT:
    return type(state)(*(part[rows_R] for part in state))


def _charge(charges: Charges, place: int, scores_RV: Tensor, words_R: Tensor, states: list[Any]) -> tuple[Tensor, list[Any]]:
    after = []
    for charge, state in zip(charges, states, strict=True):
        scores_RV, state = charge.step(place, scores_RV, words_R, state)
        after.append(state)
    return scores_RV, after


def _grown(totals_BK: Tensor, steps_BKV: Tensor, rate: float) -> tuple[Tensor, Tensor, Tensor]:
    """The likeliest continuations of each context's hypotheses: their log-probabilities, parents and words, each (B, K).

    Of a hypothesis no more than K continuations can be among the K likeliest.
    """
    width = totals_BK.shape[1]
    totals_BKJ, words_BKJ = (totals_BK.unsqueeze(2) + steps_BKV).topk(min(width, steps_BKV.shape[2]), dim=2)
    siblings = totals_BKJ.shape[2]
    ranked_BKJ = totals_BKJ - rate * torch.arange(siblings, device=totals_BKJ.device) if rate else totals_BKJ
    chosen_BK = ranked_BKJ.flatten(1).topk(width).indices
    return totals_BKJ.flatten(1).gather(1, chosen_BK), chosen_BK // siblings, words_BKJ.flatten(1).gather(1, chosen_BK)


def _ranked(
    said_TBK: Tensor, parents_TBK: Tensor, ended_TBK: Tensor, length_penalty: float, most: int | None
) -> list[list[Hypothesis]]:
    """The hypotheses that ended, without their ends, by log-probability over length; of equal ones the earlier first."""
    places, _, width = ended_TBK.shape
    scores_TBK = ended_TBK / torch.tensor([number**length_penalty for number in range(1, places + 1)]).view(-1, 1, 1)
    scores_BM, order_BM = scores_TBK.transpose(0, 1).flatten(1).sort(dim=1, descending=True, stable=True)
    counts = scores_BM.isfinite().sum(1).clamp(min=1, max=most).tolist()
    found = []
    for row, (count, order) in enumerate(zip(counts, order_BM.tolist(), strict=True)):
        of_row = []
        for end in order[:count]:
            place, number = divmod(end, width)
            nats, reply = float(ended_TBK[place, row, number]), []
            for earlier in range(place, 0, -1):
                number = int(parents_TBK[earlier, row, number])
                reply.append(int(said_TBK[earlier - 1, row, number]))
            of_row.append(Hypothesis(reply[::-1], nats))
        found.append(of_row)
    return found
