"""Beam search over any decoder, against the same search written out in plain Python."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from parley.envs.corpora.pairs.vocabulary import BOS_ID, EOS_ID
from parley.policies.core.decoding import beam_search, n_best

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


def written_out(table_TVV: Tensor, width: int, length_penalty: float, rate: float = 0.0) -> list[list[int]]:
    """Hypotheses as lists, the best first; one that ends gives its place up, likelier siblings count against one."""
    nats = table_TVV.log_softmax(2).tolist()
    alive: list[tuple[float, list[int]]] = [(0.0, [BOS_ID])]
    ended: list[tuple[float, list[int]]] = []
    for length in range(1, LONGEST + 1):
        choice = range(WORDS) if length < LONGEST else [EOS_ID]
        grown = []
        for total, words in alive:
            siblings = sorted(((total + nats[length - 1][words[-1]][word], [*words, word]) for word in choice), reverse=True)
            grown += [(sibling[0] - rate * rank * (length > 1), sibling) for rank, sibling in enumerate(siblings)]
        alive = []
        for _, (total, words) in sorted(grown, reverse=True)[: width - len(ended) if length < LONGEST else width]:
            if words[-1] == EOS_ID:
                ended.append((total / length**length_penalty, words[1:-1]))
            else:
                alive.append((total, words))
    return [words for _, words in sorted(ended, reverse=True)]


@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("width", [1, 2, 3, 5])
def test_it_finds_what_the_search_written_out_finds(width: int, length_penalty: float) -> None:
    made = torch.randn(60, LONGEST, WORDS, WORDS, generator=torch.Generator().manual_seed(0)) * 2
    made[..., EOS_ID] += 1
    found = beam_search(Markov(), Tables(made), len(made), width, LONGEST, length_penalty)
    assert found == [written_out(table, width, length_penalty)[0] for table in made]
    assert len({len(reply) for reply in found}) > 2


@pytest.mark.parametrize("rate", [0.0, 0.7, 5.0])
@pytest.mark.parametrize("width", [1, 3, 5])
def test_all_that_a_diverse_beam_ends_is_what_the_search_written_out_ends(width: int, rate: float) -> None:
    made = torch.randn(40, LONGEST, WORDS, WORDS, generator=torch.Generator().manual_seed(1)) * 2
    found = n_best(Markov(), Tables(made), len(made), width, LONGEST, rate=rate)
    assert [[each.words for each in of_one] for of_one in found] == [written_out(table, width, 1.0, rate) for table in made]
    plain = n_best(Markov(), Tables(made), len(made), width, LONGEST)
    assert (found == plain) is (rate == 0 or width == 1)
    firsts = [sum(len({tuple(each.words[:2]) for each in of_one}) for of_one in lists) for lists in (plain, found)]
    assert firsts[1] > firsts[0] or rate == 0 or width == 1, "the beam is no more diverse"
