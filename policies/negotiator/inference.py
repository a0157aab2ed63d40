"""A negotiator in its form for play: words one after another, decisions over whole dialogues, and endings of shared prefixes.

`Tables` reads with the networks of play in `model.py`: products of words are tables, and decoder and tied output embedding
fold into one map. Figures equal those of `Negotiator` up to rounding (tested).

The selection network, which costs most, can decide with its products in bfloat16. `Screening` decides whether it first does
so: bfloat16 then separates the clear choices from those that need float32. The gain depends on two things. The speed of
bfloat16 on this machine is measured at first need: the network reads the same made-up dialogues in both precisions by turns, a
tenth of a second long (`policies/core/layers.py`). The number of choices left to float32 is counted on the way. A hastily
fitted network, whose selections are nearly equal, leaves nearly all of them, and screening then costs more than it saves on
any processor.

A choice equals that of float32 if bfloat16 moved no selection further against the best than `MARGIN`. This bound is measured,
not proved: a proved one, carried through the steps of a recurrence, soon exceeds every distance between selections. Each
choice that float32 makes again is compared, and a network that leaves the margin is decided in float32 alone from then on. So
measurements change time and not rows, on one machine or on many, as long as the margin holds.

`Prefixes` reads many endings of shared beginnings, for searches over thousands of dialogues that differ in a few words near
the end. Language states and the forward half of the selection network depend on earlier tokens alone, so they are kept for
every position of a prefix. The backward half sees the whole dialogue; its inputs from a prefix (input products, the forward
share of the attention) are kept too. Figures equal those of `Negotiator` on whole dialogues up to rounding (tested).

Shapes: n rows or prefixes, T tokens or longest ending, N tokens of all rows, M language states, V words, H language state, P
longest prefix, r endings, S selection state, A attention.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from weakref import proxy

import numpy as np
import torch
from torch import Tensor

from parley.policies.core.layers import (
    ENOUGH,
    TokenPlaces,
    by_step,
    clock_of,
    cost_of_bfloat16,
    has_onednn,
    is_mkl_whole,
    running,
    shortest_share,
)
from parley.policies.negotiator.model import ROWS, AttentionSums, Cell, Negotiator, Products, Selection
from parley.policies.negotiator.settings import NegotiatorSizes

MARGIN = 0.005
"""Largest move of a selection against the best by bfloat16, as a share of the distance from best to worst. Observed: 0.005
at most anywhere and 0.0038 among selections near the best, in 20,000 dialogues of each of four networks, supervised and
reinforced; 0.0041 near the best in 74,000 candidates of two. It changed a choice only where the second was behind by
less than 0.0012."""
LEAST_ROWS = 256
"""Least number of choices at a time for which screening can pay."""
FIRST = 1000
"""Choices after which the number left to float32 counts."""


class Screening:
    """A decision on whether the next choices of a network are screened.

    Args:
        cost: returns the time of a reading in bfloat16 as a share of float32's; called once, when first needed.
        least_rows: least number of choices at a time.
    """

    def __init__(self, cost: Callable[[], float], least_rows: int = LEAST_ROWS) -> None:
        self._measure, self._least_rows = cost, least_rows
        self._num_screened = self._num_left = 0
        self._trusted = True

    @cached_property
    def cost(self) -> float:
        """Time of a reading in bfloat16 as a share of float32's."""
        return self._measure()

    @property
    def share_left(self) -> float:
        """Share of the choices screened so far that was left to float32."""
        return self._num_left / max(1, self._num_screened)

    def pays(self, rows: int) -> bool:
        """Return True if it is faster to screen this number of choices than to make all in float32."""
        if rows < self._least_rows or not self._trusted:
            return False
        return self.cost + (self.share_left if self._num_screened >= FIRST else 0.0) < ENOUGH

    @property
    def facts(self) -> dict[str, float]:
        """Return figures for benchmarks to print."""
        return {"cost": self.cost, "share_left": self.share_left, "pays": float(self.pays(self._least_rows))}

    def note(self, screened: int, left: int, moved_too_far: bool) -> None:
        """Count screened choices and those left to float32; stop screening if bfloat16 left the margin."""
        self._num_screened += screened
        self._num_left += left
        self._trusted &= not moved_too_far


def of_machine(sizes: NegotiatorSizes, device: torch.device, measure: Callable[[], float]) -> Screening:
    """Return a screening that measures this machine, for torch's number of threads at first use.

    Args:
        sizes: the sizes of the network.
        device: its device.
        measure: measures the cost, see `cost_of_bfloat16`.
    """
    by_onednn = has_onednn() and not is_mkl_whole()
    return Screening(lambda: cost_of_bfloat16(device, {"sizes": asdict(sizes), "float32 by oneDNN": by_onednn}, measure))


MADE_UP = 2, 256
"""Tokens and rows of the dialogues that measure bfloat16."""


class Tables:
    """A negotiator's frozen form for inference.

    Args:
        model: its weights are read now; after further training, make new tables.
    """

    @torch.no_grad()
    def __init__(self, model: Negotiator) -> None:
        self.model, self.device = model, model.word_embedding.weight.device
        decoder, self.word_bias_V = model.folded_decoder()
        self.word_weight_HV = decoder.t().contiguous()
        self._language = Cell(model.language, model.word_embedding.weight, 0, "", Products(torch.float32, self.device))
        self._selections = {torch.float32: Selection(model, torch.float32)}
        # Training makes new tables at each update; a reference cycle would keep the old ones until the garbage collector runs.
        self.screening = of_machine(model.sizes, self.device, partial(Tables._cost_of_bfloat16, proxy(self)))

    @torch.no_grad()
    def selection(self, dtype: torch.dtype) -> Selection:
        """Return the selection network with its products in a precision; few callers use bfloat16."""
        if dtype not in self._selections:
            self._selections[dtype] = Selection(self.model, dtype)
        return self._selections[dtype]

    @torch.no_grad()
    def encode(self, contexts_n6: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return the scenario's encoding (n, C) and its constant share of the language gates (n, 3H)."""
        context_nC = self.model.encode_context(torch.from_numpy(contexts_n6).to(self.device))
        return context_nC, context_nC @ self._language.read_weight

    def advance(self, tokens_n: Tensor, context_gates_n3H: Tensor, states_nH: Tensor, out_nH: Tensor | None = None) -> Tensor:
        """Return language states after one more token in each row, written to `out_nH` if given."""
        out = torch.empty_like(states_nH) if out_nH is None else out_nH
        self._language.step(self._language.sums(tokens_n, context_gates_n3H), states_nH, out)
        return out

    def listen(
        self, tokens_N: Tensor, positions: TokenPlaces, context_gates_n3H: Tensor, states_nH: Tensor, out_NH: Tensor
    ) -> None:
        """Write language states after many more tokens in each row, the longest first.

        Args:
            tokens_N: the tokens.
            positions: positions of the tokens.
            context_gates_n3H: the scenarios' share of the language gates.
            states_nH: states before the first token.
            out_NH: receives the states after each token.
        """

        def begin(here: slice) -> Tensor:
            return self._language.sums(tokens_N[here], context_gates_n3H.index_select(0, positions.rows_N[here]))

        self._language.read(begin, positions.counts, states_nH, out_NH)

    @torch.no_grad()
    def decide(
        self,
        contexts_n6: np.ndarray,
        tokens_nT: np.ndarray,
        lengths_n: np.ndarray,
        states_MH: Tensor,
        at_nT: np.ndarray,
        dtype: torch.dtype = torch.float32,
    ) -> Tensor:
        """Return item logits of the final choice of whole dialogues; rows in any order.

        Args:
            contexts_n6: count and own value of each item in turn.
            tokens_nT: dialogues from this side's perspective.
            lengths_n: number of tokens that count, at least 1.
            states_MH: language states, in any order.
            at_nT: index of the state after each token.
            dtype: of products; `MARGIN` bounds the error of bfloat16.

        Returns:
            Item logits (n, 6, 18), float32.
        """
        context_nC, _ = self.encode(contexts_n6)
        logits = context_nC.new_empty(len(lengths_n), self.model.domain.num_heads, len(self.model.domain.tokens))
        order = np.argsort(-lengths_n, kind="stable")
        for start in range(0, len(order), ROWS[dtype]):
            rows = order[start : start + ROWS[dtype]]
            step_N, row_N = by_step(lengths_n[rows])
            tokens_N, at_N = (torch.from_numpy(part[rows[row_N], step_N]).to(self.device) for part in (tokens_nT, at_nT))
            positions, language_NH = TokenPlaces.of(lengths_n[rows], self.device), states_MH.index_select(0, at_N)
            nothing_rS = context_nC.new_zeros(len(rows), self.model.sizes.hidden_selection)
            _, attended = self.selection(dtype).read(tokens_N, language_NH, positions, nothing_rS)
            index = torch.from_numpy(rows).to(self.device)
            logits[index] = self.heads(attended, context_nC[index])
        return logits

    def heads(self, attended: AttentionSums, context_rC: Tensor) -> Tensor:
        """Return item logits (r, 6, 18) from the attention over whole dialogues."""
        return self.model.choice(torch.cat([attended.forward, attended.backward, context_rC], dim=1))

    def _cost_of_bfloat16(self) -> float:
        read = self._read_made_up
        return shortest_share(partial(read, torch.bfloat16), partial(read, torch.float32), clock_of(self.device))

    @torch.no_grad()
    def _read_made_up(self, dtype: torch.dtype) -> Tensor:
        """Read empty dialogues with the selection network; return on the CPU, so that it waits for the device."""
        steps, rows = MADE_UP
        positions, tokens_N = (
            TokenPlaces.of(np.full(rows, steps), self.device),
            torch.zeros(steps * rows, dtype=torch.int64, device=self.device),
        )
        language_NH = torch.zeros(len(tokens_N), self.model.sizes.hidden_language, device=self.device)
        before_rS = torch.zeros(rows, self.model.sizes.hidden_selection, device=self.device)
        return self.selection(dtype).read(tokens_N, language_NH, positions, before_rS)[0].cpu()


@dataclass(frozen=True)
class Endings:
    """r endings: each keeps the first tokens of a prefix and continues with its own.

    Args:
        prefixes: index (r,) of the prefix of each ending.
        keeps: tokens (r,) kept of it, from none to all.
        tokens: token ids (r, T) that follow, padded.
        lengths: number of `tokens` that count (r,), at least 1.
    """

    prefixes: np.ndarray
    keeps: np.ndarray
    tokens: np.ndarray
    lengths: np.ndarray

    def __len__(self) -> int:
        return len(self.prefixes)

    def __getitem__(self, rows: np.ndarray) -> Endings:
        return Endings(self.prefixes[rows], self.keeps[rows], self.tokens[rows], self.lengths[rows])

    def distinct(self) -> tuple[np.ndarray, np.ndarray]:
        """Return one row (u,) of each kind of equal endings, and the index of the kind of each ending (r,)."""
        read = np.where(np.arange(self.tokens.shape[1]) < self.lengths[:, None], self.tokens, -1)
        keys = np.ascontiguousarray(np.column_stack([self.prefixes, self.keeps, read]))
        bytes_of = keys.view(np.dtype((np.void, keys.dtype.itemsize * keys.shape[1]))).ravel()
        _, rows, which = np.unique(bytes_of, return_index=True, return_inverse=True)
        return rows, which


class Prefixes:
    """n beginnings of dialogues, read once.

    Args:
        tables: the negotiator that reads them.
        contexts_n6: count and own value of each item in turn.
        tokens_nP: the dialogues from its perspective, padded.
        lengths_n: number of tokens that count, at least 1.
    """

    @torch.no_grad()
    def __init__(self, tables: Tables, contexts_n6: np.ndarray, tokens_nP: np.ndarray, lengths_n: np.ndarray) -> None:
        self._tables, self._model, self.domain = tables, tables.model, tables.model.domain
        self.context_nC, self.context_gates_n3H = tables.encode(np.ascontiguousarray(contexts_n6))
        sizes = self._model.sizes
        rows, num_positions = len(lengths_n), int(lengths_n.max())
        tokens_Pn = torch.from_numpy(np.ascontiguousarray(tokens_nP[:, :num_positions].T)).to(tables.device)
        # Padding behind a row's last token is read too but never used: no ending keeps more than the row has.
        language = self.context_nC.new_zeros(num_positions + 1, rows, sizes.hidden_language)
        for t in range(num_positions):
            tables.advance(tokens_Pn[t], self.context_gates_n3H, language[t], out_nH=language[t + 1])
        self._tokens_Pn = tokens_Pn
        # Stored by prefix, then position, so that one number addresses a position of a prefix.
        self._num_positions, self._language = num_positions, language.transpose(0, 1).contiguous()
        self._in_precision: dict[torch.dtype, list[Tensor]] = {}

    @cached_property
    def _forward(self) -> Tensor:
        """States (n, P + 1, S) of the forward half before and after each position."""
        num_positions, rows = self._tokens_Pn.shape
        cell = self._tables.selection(torch.float32).forward
        states = self._language.new_zeros(num_positions + 1, rows, self._model.sizes.hidden_selection)
        for t in range(num_positions):
            cell.step(cell.inputs(self._tokens_Pn[t], self._language[:, t + 1]), states[t], states[t + 1])
        return states.transpose(0, 1).contiguous()

    @cached_property
    def _shares(self) -> list[Tensor]:
        """Inputs of the backward half and of the attention from each position of a prefix (n * P, .)."""
        selection = self._tables.selection(torch.float32)
        inputs = selection.backward.inputs(self._tokens_Pn.t().flatten(), self._language[:, 1:].flatten(0, 1))
        return [inputs, selection.hidden(self._forward[:, 1:].flatten(0, 1))]

    def _shares_in(self, dtype: torch.dtype) -> list[Tensor]:
        if dtype not in self._in_precision:
            self._in_precision[dtype] = [share.to(dtype) for share in self._shares]
        return self._in_precision[dtype]

    @torch.no_grad()
    def states(self, endings: Endings) -> Tensor:
        """Return language states (r, H) after each ending."""
        states_rH = self._language.new_empty(len(endings), self._language.shape[2])
        for rows in _chunks(_by_length(endings), ROWS[torch.float32]):
            tokens_N, positions, prefixes, state = self._begin(endings[rows])
            gates = self.context_gates_n3H.index_select(0, prefixes)
            for tokens in tokens_N.split(positions.counts):
                k = len(tokens)
                self._tables.advance(tokens, gates[:k], state[:k], state[:k])
            states_rH[torch.from_numpy(rows).to(state.device)] = state
        return states_rH

    @torch.no_grad()
    def decide(self, endings: Endings, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return item logits (r, 6, 18) of the final choice after dialogues with those endings, the last token included.

        Args:
            endings: their endings.
            dtype: of products; `MARGIN` bounds the error of bfloat16.
        """
        device = self._language.device
        states_rS = torch.empty(len(endings), self._model.sizes.hidden_selection, device=device)
        attended = AttentionSums.to_nothing(states_rS)
        # Grouped once by their own tokens and once by those kept, so that a group's rows run equally far.
        for rows in _chunks(_by_length(endings), ROWS[dtype]):
            index = torch.from_numpy(rows).to(device)
            states_rS[index], part = self._over_ending(endings[rows], dtype)
            attended.include(index, part)
        order = np.lexsort((endings.prefixes, -endings.keeps))[: np.count_nonzero(endings.keeps)]
        for rows in _chunks(order, ROWS[dtype]):
            index = torch.from_numpy(rows).to(device)
            attended.include(index, self._over_prefix(endings.prefixes[rows], endings.keeps[rows], states_rS[index], dtype))
        return self._tables.heads(attended, self.context_nC[torch.from_numpy(endings.prefixes).to(device)])

    def _begin(self, endings: Endings) -> tuple[Tensor, TokenPlaces, Tensor, Tensor]:
        """Return tokens (N,) and their positions, and the prefix (r,) and language state (r, H) that each continues."""
        positions = TokenPlaces.of(endings.lengths, self._language.device)
        tokens_rT, prefixes, keeps = (
            torch.from_numpy(part).to(self._language.device) for part in (endings.tokens, endings.prefixes, endings.keeps)
        )
        return tokens_rT[positions.rows_N, positions.steps_N], positions, prefixes, self._language[prefixes, keeps]

    def _over_ending(self, endings: Endings, dtype: torch.dtype) -> tuple[Tensor, AttentionSums]:
        """Return the backward states (r, S) before the endings' own tokens, longest first, and their attention."""
        tokens_N, positions, prefixes, state = self._begin(endings)
        gates = self.context_gates_n3H.index_select(0, prefixes)
        language_NH = state.new_empty(len(tokens_N), state.shape[1])
        for tokens, after in zip(tokens_N.split(positions.counts), language_NH.split(positions.counts), strict=True):
            k = len(tokens)
            state = self._tables.advance(tokens, gates[:k], state[:k], after)
        before_rS = self._forward[prefixes, torch.from_numpy(endings.keeps).to(prefixes.device)]
        return self._tables.selection(dtype).read(tokens_N, language_NH, positions, before_rS)

    def _over_prefix(self, prefixes: np.ndarray, keeps: np.ndarray, state_rS: Tensor, dtype: torch.dtype) -> AttentionSums:
        """Return the attention over kept tokens, most kept first; `state_rS` moves on to the start."""
        selection, (inputs, hidden) = self._tables.selection(dtype), self._shares_in(dtype)
        last, steps = torch.from_numpy(prefixes * self._num_positions + keeps - 1).to(state_rS.device), running(keeps)
        attended = AttentionSums.to_nothing(state_rS)
        # Last token first, nothing before the start.
        scores_Kr = state_rS.new_full((len(steps), len(prefixes)), -torch.inf)
        for t, k in enumerate(steps):
            positions, state = last[:k] - t, state_rS[:k]
            selection.backward.step(selection.products.begin(inputs, positions), state, state)
            scores_Kr[t, :k] = selection.scores(selection.products.begin(hidden, positions), state)
            attended.backward[:k].lerp_(state, attended.outweigh(scores_Kr[t, :k]))
        weights_Kr = (scores_Kr - attended.weights).exp_()
        # The forward outputs of kept tokens are the same for all endings that keep as many.
        for same in _groups(prefixes * self._num_positions + keeps):
            keep = int(keeps[same.start])
            before = torch.arange(keep, 0, -1, device=state_rS.device)
            forward_KS = self._forward[int(prefixes[same.start]), before]
            torch.mm(weights_Kr[:keep, same].t(), forward_KS, out=attended.forward[same])
        return attended


def _groups(labels_k: np.ndarray) -> Iterator[slice]:
    stops = [*(np.flatnonzero(np.diff(labels_k)) + 1).tolist(), len(labels_k)]
    yield from (slice(start, stop) for start, stop in zip([0, *stops], stops, strict=False))


def _by_length(endings: Endings) -> np.ndarray:
    return np.lexsort((endings.prefixes, -endings.keeps, -endings.lengths))


def _chunks(rows: np.ndarray, size: int) -> Iterator[np.ndarray]:
    yield from (rows[start : start + size] for start in range(0, len(rows), size))
