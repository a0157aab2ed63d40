"""Texts that begin alike are read once: states are as if each text were read alone, and scores as if each pair were."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.gru import GRU
from policies.matching.beginnings import Beginnings, begun_states
from policies.matching.matcher import state_at, states
from policies.matching.ranker import MatcherRanker
from tests.policies.matching.made_up import KINDS, matcher, pairs

ROWS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6), min_size=1, max_size=9)


def padded(rows: list[list[int]]) -> np.ndarray:
    codes = np.full((len(rows), max(map(len, rows))), -1)
    for row, words in zip(codes, rows, strict=True):
        row[: len(words)] = words
    return codes


@given(ROWS, st.integers(0, 3))
def test_beginnings_are_distinct_and_as_many_as_there_are(rows: list[list[int]], ahead: int) -> None:
    steps = Beginnings(padded(rows), torch.device("cpu")).steps(ahead)
    for size, count in enumerate(steps.counts, start=1):
        assert count == len({(tuple(row[: size + ahead]), len(row) < size + ahead) for row in rows if len(row) >= size})
    assert sum(steps.counts) == len(steps.places_B) == len(steps.parents_B)
    assert all((row < sum(steps.counts)).sum() == len(words) for row, words in zip(steps.which_RN, rows, strict=True))


@given(ROWS)
@settings(deadline=None)
@torch.no_grad()
def test_states_are_those_of_each_text_alone(rows: list[list[int]]) -> None:
    torch.manual_seed(1)
    gru, vectors, codes = GRU(4, 5), torch.randn(4, 4), padded(rows)
    steps = Beginnings(codes, torch.device("cpu")).exact
    inputs = vectors[torch.from_numpy(codes)]
    plain, found = states(gru, inputs), states(gru, inputs, steps)
    for row, words in enumerate(rows):
        assert torch.allclose(found[row, : len(words)], plain[row, : len(words)], atol=1e-6)
        assert not found[row, len(words) :].any()
    ends = torch.tensor([len(words) - 1 for words in rows])
    assert torch.allclose(state_at(gru, inputs, ends, steps), state_at(gru, inputs, ends), atol=1e-6)
    distinct = {tuple(row[:size]) for row in rows for size in range(1, len(row) + 1)}
    assert len(begun_states(gru, inputs, steps)) == len(distinct) + 1


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
