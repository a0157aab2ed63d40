"""Brute force: the model's reply to every possible input (He & Glass 2018, appendix B).

Inputs are the sequences of some words, letters for instance, of every length up to a limit. They form a tree in which an input
is the child of its beginning, so the encoder reads every input in one step from its parent's state; greedy decoding then runs
for all children of some parents side by side. A branch is all inputs with one beginning, and is one item of work.

    root       a, b, .., z           one letter: branches of their own when branches begin with two
    branch     ab, aba, .., abz, abaa, ..

Exactness: the replies are those of `parley.policies.seq2seq.decoding.greedy`, but for ties within rounding.

Shapes: P parents, B inputs (L words each), N words with `<eou>`, T words of a reply, H hidden.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from parley.envs.core.config import check
from parley.envs.corpora.pairs.vocabulary import BOS_ID, EOS_ID, EOU_ID
from parley.policies.seq2seq.model import Memory, Seq2Seq, State

_ROWS = 1024
"""Inputs decoded side by side: their gates fit into the cache."""


@dataclass(frozen=True)
class Space:
    """All inputs that are enumerated.

    Args:
        words: word ids that an input is made of.
        max_length: words of the longest inputs, `<eou>` not counted.
        branch_length: words that all inputs of a branch begin with.
    """

    words: tuple[int, ...]
    max_length: int
    branch_length: int = 2

    def __post_init__(self) -> None:
        check(self, "words", len(self.words) >= 1, "at least one")
        check(self, "max_length", self.max_length >= 1, "at least 1")
        check(self, "branch_length", 1 <= self.branch_length <= self.max_length, "1 to max_length")

    def __len__(self) -> int:
        return sum(len(self.words) ** length for length in range(1, self.max_length + 1))

    def branches(self) -> Iterator[tuple[int, ...]]:
        """Yield the beginnings: every input of `branch_length` words, and the shorter inputs, branches of one input each."""
        for length in range(1, self.branch_length + 1):
            yield from product(self.words, repeat=length)


@dataclass(frozen=True, eq=False)
class _Nodes:
    """Inputs that have been read: their words (B, L), the encoder's states after each of them (B, L, H), and its last cell."""

    words_BL: Tensor
    states_BLH: Tensor
    cell_BH: Tensor


@torch.no_grad()
def branch_replies(model: Seq2Seq, space: Space, beginning: Sequence[int]) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the greedy replies to every input of a branch.

    Args:
        model: in evaluation mode; its sources hold at least `max_length` words.
        space: all inputs.
        beginning: of `Space.branches`.

    Yields:
        Inputs (B, L) and their replies (B, T) as word ids, filled up with `</s>`.
    """
    assert space.max_length < model.sizes.max_source, "the model cuts inputs of this length"
    device = model.output.weight.device
    words_1L = torch.tensor([beginning], device=device)
    states_1LH, (_, cell_11H) = model.encoder(model.source_embedding(words_1L))
    nodes = _Nodes(words_1L, states_1LH, cell_11H[0])
    yield nodes.words_BL, _replies(model, nodes)
    if len(beginning) == space.branch_length:
        yield from _below(model, space, nodes)


def _below(model: Seq2Seq, space: Space, parents: _Nodes) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the inputs below some parents and their replies, depth first, a block of parents at a time."""
    if parents.words_BL.shape[1] == space.max_length:
        return
    letters_A = torch.tensor(space.words, device=parents.words_BL.device)
    size = max(1, _ROWS // len(letters_A))
    for start in range(0, len(parents.words_BL), size):
        block = slice(start, start + size)
        few = _Nodes(parents.words_BL[block], parents.states_BLH[block], parents.cell_BH[block])
        children = _read(model, few, letters_A)
        yield children.words_BL, _replies(model, children)
        yield from _below(model, space, children)


def _read(model: Seq2Seq, nodes: _Nodes, words_A: Tensor) -> _Nodes:
    """Return every node followed by every word; A = 1 for the end of a source."""
    size = len(words_A)
    grown_BL = nodes.words_BL.repeat_interleave(size, dim=0)
    added_B = words_A.repeat(len(nodes.words_BL))
    states_BLH, cell_BH = nodes.states_BLH, nodes.cell_BH
    if size > 1:
        states_BLH, cell_BH = states_BLH.repeat_interleave(size, dim=0), cell_BH.repeat_interleave(size, dim=0)
    before = states_BLH[:, -1].contiguous().unsqueeze(0), cell_BH.unsqueeze(0)
    state_B1H, (_, cell_1BH) = model.encoder(model.source_embedding(added_B).unsqueeze(1), before)
    words = torch.cat([grown_BL, added_B.unsqueeze(1)], dim=1)
    return _Nodes(words, torch.cat([states_BLH, state_B1H], dim=1), cell_1BH[0])


def _replies(model: Seq2Seq, nodes: _Nodes) -> Tensor:
    """Return the replies (B, T) to inputs of one length; a reply that has ended is padded and no longer computed."""
    num = len(nodes.words_BL)
    device = nodes.words_BL.device
    read = _read(model, nodes, torch.tensor([EOU_ID], device=device))
    memory = model.remember(read.states_BLH)
    state = model.begin(memory)
    words_B = torch.full((num,), BOS_ID, device=device)
    replies_BT = torch.full((num, model.sizes.max_reply - 1), EOS_ID, device=device)
    open_B = torch.arange(num, device=device)
    for position in range(model.sizes.max_reply - 1):
        logits_BV, state = model.step(memory, words_B, state)
        words_B = logits_BV.argmax(1)
        replies_BT[open_B, position] = words_B
        left_B = (words_B != EOS_ID).nonzero().squeeze(1)
        if not len(left_B):
            break
        if len(left_B) < len(words_B):
            open_B, words_B = open_B[left_B], words_B[left_B]
            memory = Memory(memory.states_BNH[left_B], memory.keys_BNH[left_B], None, memory.last_BH[left_B])
            state = State(*(part[left_B] for part in state))
    return replies_BT
