"""Decoding of replies from state to state: word by word or by a (diverse) beam, with charges on words.

Source of the beam: the HRED authors' released code (Sordoni et al. 2015, Serban et al. 2016). Hypotheses of equal length
compete by log-probability; one that ends leaves the beam and frees its slot; the best has the highest log-probability per
word.

Departures:
  * # Released: `<unk>` is never said. Ours: it may be, as in greedy decoding, because the metrics count it.
  * # Released: a hypothesis at the limit of length is dropped unless none has ended. Ours: it ends there, `</s>` counted, for
    in training a reply of that length ends there too. So a beam that is wide enough finds the best of all replies.

A diverse beam (Li et al. 2016c, arXiv 1611.08562) takes `rate` nats off a hypothesis for each likelier sibling, from the second
word on.
  * # Released (Li et al. 2017): the penalty stays in the score of the whole reply. Ours: it decides only which hypotheses stay
    in the beam, as in the paper, so that scores of replies are log-probabilities.

A `Charge` changes the scores of words in any of these searches: forbidden words, and words said before. Li et al. 2017 (arXiv
1701.06547, section 3.3) penalise "word types (stop words excluded) that have already been generated"; the paper gives no
amount, so it is an option.

`drawn` decides each word by one uniform number: the word at which the summed probabilities, in the order of ids, pass it. Sums
are formed over blocks of words first, so each draw looks into one block.

Shapes: B contexts, K hypotheses of each, R = B K rows or draws, V words, T words said so far, n distributions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from parley.envs.core.errors import ConfigError
from parley.envs.corpora.pairs.tokens import is_content
from parley.envs.corpora.pairs.vocabulary import BOS_ID, END, EOS, EOS_ID, MARKS, PairVocabulary

_BLOCK, _SMALL = 128, 512
"""Words of a block, and the largest vocabulary that is summed without blocks."""
_BELOW_ONE = 1 - 2.0**-40
"""Largest draw: words of no probability may stand behind the end of a sum."""


def drawn(logits_nV: Tensor, draws_R: Tensor, rows_R: Tensor | None = None) -> Tensor:
    """Return words (R,) int64 drawn from distributions.

    Args:
        logits_nV: minus infinity for words that are never drawn.
        draws_R: uniform in [0, 1), float64.
        rows_R: the distribution of each draw, int64; each its own where none are named.
    """
    num, size = logits_nV.shape
    device, whole = logits_nV.device, size - size % _BLOCK
    shares_nV = logits_nV.softmax(1)
    if size <= _SMALL:
        passed_nV = shares_nV.cumsum(1, dtype=torch.float64)
        passed_RV = passed_nV if rows_R is None else passed_nV[rows_R]
        return torch.searchsorted(passed_RV, (draws_R * passed_RV[:, -1] * _BELOW_ONE).unsqueeze(1), right=True).squeeze(1)
    blocks_nKW = shares_nV[:, :whole].unflatten(1, (-1, _BLOCK)) if whole else shares_nV.new_zeros(num, 0, _BLOCK)
    rest_n1 = shares_nV[:, whole:].sum(1, keepdim=True)
    passed_nK = torch.cat([blocks_nKW.sum(2), rest_n1], dim=1).double().cumsum(1)
    if rows_R is None:
        rows_R = torch.arange(num, device=device)
    passed_RK = passed_nK[rows_R]
    bars_R1 = (draws_R * passed_RK[:, -1] * _BELOW_ONE).unsqueeze(1)
    blocks_R1 = torch.searchsorted(passed_RK, bars_R1, right=True)
    words_RW = blocks_R1 * _BLOCK + torch.arange(_BLOCK, device=device)
    within_RW = (shares_nV[rows_R.unsqueeze(1), words_RW.clamp(max=size - 1)] * (words_RW < size)).double().cumsum(1)
    before_R1 = torch.where(blocks_R1 > 0, passed_RK.gather(1, (blocks_R1 - 1).clamp(min=0)), 0.0)
    # The block's sum in float32 may be a little above that of its words.
    left_R1 = torch.minimum(bars_R1 - before_R1, within_RW[:, -1:] * _BELOW_ONE)
    return (blocks_R1 * _BLOCK + torch.searchsorted(within_RW, left_R1, right=True)).squeeze(1)


def raced(logits_BV: Tensor, generators: Sequence[np.random.Generator]) -> Tensor:
    """Return words (B,) int64 drawn from distributions: the first of all words, whose times are exponential.

    What a logit is rounded to changes the time of its own word alone. In `drawn` it moves the sums of all words behind it,
    which exchanges unlikely ones.

    Args:
        logits_BV: minus infinity for words that are never drawn.
        generators: of each row.
    """
    times_BV = np.stack([generator.standard_exponential(logits_BV.shape[1]) for generator in generators])
    return (logits_BV.double().softmax(1) / torch.from_numpy(times_BV)).argmax(1)


MemoryT_contra = TypeVar("MemoryT_contra", bound=tuple[Any, ...], contravariant=True)
MemoryT = TypeVar("MemoryT", bound=tuple[Any, ...])
StateT = TypeVar("StateT", bound=tuple[Any, ...])
ReplyT = TypeVar("ReplyT")

_ROWS = 256
"""Hypotheses decoded at once."""


class Hypothesis(NamedTuple):
    """A reply of a beam."""

    words: list[int]
    """Ids without `</s>`."""
    nats: float
    """Its log-probability, with the changes by charges, `</s>` counted."""


class Decoder(Protocol[MemoryT_contra, StateT]):
    """A model that writes replies word by word; memory and state are named tuples of tensors whose first axis is the row."""

    def begin(self, memory: MemoryT_contra, /) -> StateT:
        """Return the state before the first word."""

    def step(self, memory: MemoryT_contra, words_R: Tensor, state: StateT, /) -> tuple[Tensor, StateT]:
        """Return the logits (R, V) of the next word of each reply, and the state after reading its last word."""


class Charge(Protocol[StateT]):
    """A change of the scores of words while decoding; its state is a named tuple like that of a `Decoder`."""

    def begin(self, num_rows: int, device: torch.device, /) -> StateT:
        """Return the state before the first word."""

    def step(self, position: int, scores_RV: Tensor, words_R: Tensor, state: StateT, /) -> tuple[Tensor, StateT]:
        """Return the changed scores of the next word, and the next state.

        Args:
            position: of that word in the reply, from 0.
            scores_RV: in nats, up to a constant for each row.
            words_R: the words before it; `<s>` at first.
            state: after the words before those.
        """


Charges = Sequence[Charge[Any]]


@torch.no_grad()
def in_blocks(size: int, decode: Callable[[slice], list[ReplyT]], width: int = 1) -> list[ReplyT]:
    """Return the replies to `size` contexts, decoded in blocks that fit the memory.

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
    """Return a reply to each context; each word is chosen once.

    Args:
        decoder: of a model in evaluation mode.
        memory: of B contexts.
        max_reply: longest reply in words, `</s>` included.
        choose: the words (B,), from the place of the word and the logits (B, V).
        charges: changes of the logits.

    Returns:
        As `beam_search`.
    """
    state = decoder.begin(memory)
    first = _first(memory)
    charged = [charge.begin(len(first), first.device) for charge in charges]
    words_B = torch.full((len(first),), BOS_ID, device=first.device)
    over_B = torch.zeros_like(words_B, dtype=torch.bool)
    chosen: list[Tensor] = []
    while len(chosen) < max_reply - 1 and not bool(over_B.all()):
        logits_BV, state = decoder.step(memory, words_B, state)
        logits_BV, charged = _charge(charges, len(chosen), logits_BV, words_B, charged)
        words_B = choose(len(chosen), logits_BV)
        chosen.append(words_B)
        over_B |= words_B == EOS_ID
    return [words[: words.index(EOS_ID)] if EOS_ID in words else words for words in torch.stack(chosen, dim=1).tolist()]


def likeliest(position: int, logits_BV: Tensor) -> Tensor:
    """Return the word (B,) of greedy decoding at any position."""
    return logits_BV.argmax(1)


def beam_search(
    decoder: Decoder[MemoryT, StateT], memory: MemoryT, size: int, width: int, max_reply: int, length_penalty: float = 1.0
) -> list[list[int]]:
    """Return the best reply to each context; the arguments are those of `n_best`.

    Returns:
        Word ids of the replies without `</s>`; at most `max_reply` - 1 words.
    """
    hypotheses = n_best(decoder, memory, size, width, max_reply, length_penalty, most=1)
    return [best.words for (best,) in hypotheses]


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
    """Return the replies to each context, the best first, at least one.

    Args:
        decoder: of a model in evaluation mode.
        memory: of `size` contexts.
        size: B.
        width: hypotheses kept for each, at least 1, which is greedy decoding.
        max_reply: longest reply in words, `</s>` included.
        length_penalty: exponent of the number of words, `</s>` counted, by which log-probabilities are divided; 0 for none.
        rate: nats that a hypothesis loses for each sibling that is likelier, from the second word on; above 0 the beam is
            diverse.
        charges: changes of the log-probabilities.
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
    slots_B1 = torch.full((size, 1), width, device=device)
    chosen: list[Tensor] = []
    parents: list[Tensor] = []
    ended: list[Tensor] = []
    first_row_B1 = torch.arange(size, device=device).unsqueeze(1) * width
    for position in range(max_reply):
        logits_RV, state = decoder.step(memory, words_BK.flatten(), state)
        steps_RV, charged = _charge(charges, position, logits_RV.log_softmax(1), words_BK.flatten(), charged)
        steps_BKV = steps_RV.view(size, width, -1)
        if position == max_reply - 1:
            steps_BKV = torch.where(torch.arange(steps_BKV.shape[2], device=device) == EOS_ID, steps_BKV, -torch.inf)
            slots_B1.fill_(width)
        totals_BK, parents_BK, words_BK = _grown(totals_BK, steps_BKV, rate if position else 0.0)
        totals_BK = totals_BK.masked_fill(torch.arange(width, device=device) >= slots_B1, -torch.inf)
        ends_BK = (words_BK == EOS_ID) & totals_BK.isfinite()
        chosen.append(words_BK)
        parents.append(parents_BK)
        ended.append(totals_BK.masked_fill(~ends_BK, -torch.inf))
        slots_B1 = slots_B1 - ends_BK.sum(1, keepdim=True)
        totals_BK = totals_BK.masked_fill(ends_BK, -torch.inf)
        if not bool(totals_BK.isfinite().any()):
            break
        rows_R = (first_row_B1 + parents_BK).flatten()
        state = _rows(state, rows_R)
        charged = [_rows(charge_state, rows_R) for charge_state in charged]
    return _ranked(torch.stack(chosen).cpu(), torch.stack(parents).cpu(), torch.stack(ended).cpu(), length_penalty, most)


def _first(memory: tuple[Any, ...]) -> Tensor:
    part: Tensor = next(part for part in memory if part is not None)
    return part


def _rows(state: StateT, rows_R: Tensor) -> StateT:
    return type(state)(*(part[rows_R] for part in state))


def _charge(charges: Charges, position: int, scores_RV: Tensor, words_R: Tensor, states: list[Any]) -> tuple[Tensor, list[Any]]:
    after = []
    for charge, state in zip(charges, states, strict=True):
        scores_RV, state = charge.step(position, scores_RV, words_R, state)
        after.append(state)
    return scores_RV, after


def _grown(totals_BK: Tensor, steps_BKV: Tensor, rate: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return the likeliest continuations of each context's hypotheses: log-probabilities, parents and words, each (B, K).

    No more than K continuations of a hypothesis can be among the K likeliest.
    """
    width = totals_BK.shape[1]
    totals_BKJ, words_BKJ = (totals_BK.unsqueeze(2) + steps_BKV).topk(min(width, steps_BKV.shape[2]), dim=2)
    siblings = totals_BKJ.shape[2]
    ranked_BKJ = totals_BKJ - rate * torch.arange(siblings, device=totals_BKJ.device) if rate else totals_BKJ
    chosen_BK = ranked_BKJ.flatten(1).topk(width).indices
    return totals_BKJ.flatten(1).gather(1, chosen_BK), chosen_BK // siblings, words_BKJ.flatten(1).gather(1, chosen_BK)


def _ranked(
    words_TBK: Tensor, parents_TBK: Tensor, ended_TBK: Tensor, length_penalty: float, most: int | None
) -> list[list[Hypothesis]]:
    """Return the hypotheses that ended, without their ends, by log-probability over length; of equal ones the earlier first."""
    num_positions, _, width = ended_TBK.shape
    scores_TBK = ended_TBK / torch.tensor([number**length_penalty for number in range(1, num_positions + 1)]).view(-1, 1, 1)
    scores_BM, order_BM = scores_TBK.transpose(0, 1).flatten(1).sort(dim=1, descending=True, stable=True)
    counts = scores_BM.isfinite().sum(1).clamp(min=1, max=most).tolist()
    hypotheses = []
    for row, (count, order) in enumerate(zip(counts, order_BM.tolist(), strict=True)):
        of_row = []
        for end in order[:count]:
            position, number = divmod(end, width)
            nats, reply = float(ended_TBK[position, row, number]), []
            for earlier in range(position, 0, -1):
                number = int(parents_TBK[earlier, row, number])
                reply.append(int(words_TBK[earlier - 1, row, number]))
            of_row.append(Hypothesis(reply[::-1], nats))
        hypotheses.append(of_row)
    return hypotheses


def charges_on_words(vocabulary: PairVocabulary, forbid: Sequence[str], repeat: float) -> list[Charge[Any]]:
    """Return charges that keep replies from forbidden words and from repeated content words.

    Args:
        vocabulary: of the model.
        forbid: words that are never said.
        repeat: nats that a content word costs which was said before; 0 for none.

    Raises:
        ConfigError: the end of a reply is forbidden.
    """
    charges: list[Charge[Any]] = []
    if EOS in forbid:
        raise ConfigError("the end of a reply cannot be forbidden", where="forbid", got=EOS, fix="forbid other words")
    if forbid:
        charges.append(Forbidden(vocabulary, forbid) if vocabulary.merges is None else Spelt(vocabulary, torch.inf, forbid))
    if repeat:
        charges.append(Repetition(vocabulary, repeat) if vocabulary.merges is None else Spelt(vocabulary, repeat))
    return charges


class NoState(NamedTuple):
    """The state of a charge that does not depend on the words so far."""


class Forbidden(Charge[NoState]):
    """A charge that forbids words.

    Args:
        vocabulary: of the model.
        words: forbidden words; unknown ones are never said anyway.
    """

    def __init__(self, vocabulary: PairVocabulary, words: Sequence[str]) -> None:
        self._ids = [vocabulary.index[word] for word in words if word in vocabulary.index]

    def begin(self, num_rows: int, device: torch.device) -> NoState:
        return NoState()

    def step(self, position: int, scores_RV: Tensor, words_R: Tensor, state: NoState) -> tuple[Tensor, NoState]:
        return scores_RV.index_fill(1, torch.tensor(self._ids, dtype=torch.int64, device=scores_RV.device), -torch.inf), state


class SaidBefore(NamedTuple):
    """The words of replies so far."""

    words_RT: Tensor


class Repetition(Charge[SaidBefore]):
    """A charge on content words that a reply already holds, once however often it holds them.

    Args:
        vocabulary: of the model.
        amount: nats that each costs, above 0.
    """

    def __init__(self, vocabulary: PairVocabulary, amount: float) -> None:
        self._amounts_V = torch.tensor([amount if is_content(word) else 0.0 for word in vocabulary.words])

    def begin(self, num_rows: int, device: torch.device) -> SaidBefore:
        return SaidBefore(torch.zeros((num_rows, 0), dtype=torch.int64, device=device))

    def step(self, position: int, scores_RV: Tensor, words_R: Tensor, state: SaidBefore) -> tuple[Tensor, SaidBefore]:
        words_RT = torch.cat([state.words_RT, words_R.unsqueeze(1)], dim=1)
        charged_RT = scores_RV.gather(1, words_RT) - self._amounts_V.to(scores_RV)[words_RT]
        return scores_RV.scatter(1, words_RT, charged_RT), SaidBefore(words_RT)


class Spelt(Charge[SaidBefore]):
    """A charge on words of a model of pieces: on the piece that would end the word, whatever pieces it began with.

    A word that breaks off at the end of a reply is not charged.

    Args:
        vocabulary: of pieces.
        amount: nats.
        words: that cost it; content words that the reply holds already when not given.
    """

    def __init__(self, vocabulary: PairVocabulary, amount: float, words: Sequence[str] | None = None) -> None:
        self._vocabulary, self._amount, self._words = vocabulary, amount, words

    def begin(self, num_rows: int, device: torch.device) -> SaidBefore:
        return SaidBefore(torch.zeros((num_rows, 0), dtype=torch.int64, device=device))

    def step(self, position: int, scores_RV: Tensor, words_R: Tensor, state: SaidBefore) -> tuple[Tensor, SaidBefore]:
        words_RT = torch.cat([state.words_RT, words_R.unsqueeze(1)], dim=1)
        amounts_RV = torch.zeros_like(scores_RV)
        for row, ids in enumerate(words_RT.tolist()):
            amounts_RV[row, self._endings(ids)] = self._amount
        return scores_RV - amounts_RV, SaidBefore(words_RT)

    def _endings(self, ids: Sequence[int]) -> list[int]:
        whole_words, begun = self._vocabulary.parted(ids)
        charged = filter(is_content, whole_words) if self._words is None else self._words
        index = self._vocabulary.index
        begins = (word for word in charged if word in MARKS or word.startswith(begun))
        ends = (word if word in MARKS else word[len(begun) :] + END for word in begins)
        return [index[end] for end in ends if end in index]
