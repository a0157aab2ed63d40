"""Beam search over any decoder, against the same search written out in plain Python."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from envs.pairs.vocabulary import BOS_ID, EOS_ID
from policies.decoding import beam_search

WORDS, LONGEST = 7, 6


class Tables(NamedTuple):
    """Which table a row follows."""

    logits_RTVV: Tensor


class Said(NamedTuple):
    """How many words each row has said, and by which table."""

    number_R: Tensor
    logits_RTVV: Tensor


class Markov:
    """Says each word by its place and the word before it, by a table that belongs to the context."""

    def begin(self, memory: Tables) -> Said:
        return Said(torch.zeros(len(memory.logits_RTVV), dtype=torch.int64), memory.logits_RTVV)

    def step(self, memory: Tables, words_R: Tensor, state: Said) -> tuple[Tensor, Said]:
        assert torch.equal(memory.logits_RTVV, state.logits_RTVV), "a row has changed contexts"
        logits_RV = memory.logits_RTVV[torch.arange(len(words_R)), state.number_R, words_R]
        return logits_RV, Said(state.number_R + 1, state.logits_RTVV)


def written_out(table_TVV: Tensor, width: int, length_penalty: float) -> list[int]:
    """Hypotheses as lists; one that ends gives its place up."""
    nats = table_TVV.log_softmax(2).tolist()
    alive: list[tuple[float, list[int]]] = [(0.0, [BOS_ID])]
    ended: list[tuple[float, list[int]]] = []
    for length in range(1, LONGEST + 1):
        choice = range(WORDS) if length < LONGEST else [EOS_ID]
        grown = [(total + nats[length - 1][words[-1]][word], [*words, word]) for total, words in alive for word in choice]
        alive = []
        for total, words in sorted(grown, reverse=True)[: width - len(ended) if length < LONGEST else width]:
            if words[-1] == EOS_ID:
                ended.append((total / length**length_penalty, words[1:-1]))
            else:
                alive.append((total, words))
    return max(ended)[1]


@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("width", [1, 2, 3, 5])
def test_it_finds_what_the_search_written_out_finds(width: int, length_penalty: float) -> None:
    made = torch.randn(60, LONGEST, WORDS, WORDS, generator=torch.Generator().manual_seed(0)) * 2
    made[..., EOS_ID] += 1
    found = beam_search(Markov(), Tables(made), len(made), width, LONGEST, length_penalty)
    assert found == [written_out(table, width, length_penalty) for table in made]
    assert len({len(reply) for reply in found}) > 2
