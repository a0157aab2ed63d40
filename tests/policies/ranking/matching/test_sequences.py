"""Texts that begin alike are read once: states are as if each text were read alone, and scores as if each pair were."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from parley.policies.core.gru import GRU
from parley.policies.ranking.matching.batches import Sequences
from parley.policies.ranking.matching.fit import MatcherRanker
from tests.policies.ranking.matching.made_up import KINDS, matcher, pairs

ROWS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6), min_size=1, max_size=9)


def sequences(rows: list[list[int]], alike: bool = True) -> tuple[Sequences, np.ndarray]:
    codes_X = np.concatenate(rows)
    return Sequences(np.array([len(row) for row in rows]), torch.device("cpu"), codes_X if alike else None), codes_X


@given(ROWS, st.integers(0, 3))
def test_beginnings_are_distinct_and_as_many_as_there_are(rows: list[list[int]], ahead: int) -> None:
    steps = sequences(rows)[0].begun(ahead)
    for size, count in enumerate(steps.counts, start=1):
        assert count == len({(tuple(row[: size + ahead]), len(row) < size + ahead) for row in rows if len(row) >= size})
    assert sum(steps.counts) == len(steps.places_B) == len(steps.parents_B)
    assert len(steps.which_X) == sum(map(len, rows))


@given(ROWS)
@settings(deadline=None)
def test_states_are_those_of_each_text_alone(rows: list[list[int]]) -> None:
    torch.manual_seed(1)
    gru, vectors = GRU(4, 5), torch.randn(4, 4)
    for alike in (True, False):
        found, codes_X = sequences(rows, alike)
        inputs = vectors[torch.from_numpy(codes_X)].requires_grad_()
        plain = [nn.GRU.forward(gru, vectors[torch.tensor(row)])[0] for row in rows]
        with torch.no_grad():
            assert torch.allclose(found.states(gru, inputs), torch.cat(plain), atol=1e-6)
            assert torch.allclose(found.last_states(gru, inputs), torch.stack([each[-1] for each in plain]), atol=1e-6)
        assert torch.allclose(found.states(gru, inputs), torch.cat(plain), atol=1e-6)
        gradients = torch.autograd.grad(found.last_states(gru, inputs).sum(), [inputs, *gru.parameters()])
        again = vectors[torch.from_numpy(codes_X)].requires_grad_()
        parts = again.split([len(row) for row in rows])
        loss = torch.stack([nn.GRU.forward(gru, part)[0][-1].sum() for part in parts]).sum()
        for mine, theirs in zip(gradients, torch.autograd.grad(loss, [again, *gru.parameters()]), strict=True):
            assert torch.allclose(mine, theirs, atol=1e-5)


@given(ROWS)
def test_texts_are_read_side_by_side_and_hardly_padded(rows: list[list[int]]) -> None:
    packed = sequences(rows, alike=False)[0].packed
    for step, count in enumerate(packed.counts):
        assert 0 <= count - sum(len(row) > step for row in rows) < 16
    assert len(packed.places_S) == sum(packed.counts)
    assert packed.places_S[packed.which_X].tolist() == list(range(sum(map(len, rows))))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("changes", [{}, {"unknowns": 3}, {"padding": "released"}], ids=str)
def test_scores_of_edits_do_not_depend_on_what_was_asked_beside_or_before(kind: str, changes: dict[str, Any]) -> None:
    ranker, rng = MatcherRanker(matcher(kind, **changes)), np.random.default_rng(2)
    (context, (reply, *_)), (other, _) = pairs(2, seed=5)
    reply = (*reply, "w1", "unseen", "w2")
    edits = [reply]
    for place in range(len(reply)):
        word = f"w{rng.integers(0, 40)}"
        before, behind = reply[:place], reply[place + 1 :]
        edits += [before + behind, (*before, word, *reply[place:]), (*before, word, *behind)]
    with torch.enable_grad():
        block = ranker.model.reader.read([(context, [edit]) for edit in edits], torch.device("cpu"))
        wanted = ranker.model.scores(ranker.model(block)).detach().numpy()
    alone = np.concatenate([ranker.score(context, [edit]) for edit in edits])
    beside = ranker.score(context, edits)
    after = ranker.score_all([(other, edits), (context, edits[::-1])])[1][::-1]
    for found in (alone, beside, after):
        assert np.allclose(found, wanted, rtol=0, atol=1e-5)
    assert beside.std() > 1e-3, "edits matter"
