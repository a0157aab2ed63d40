"""Gaps to the end of the talk that bfloat16 screens are those of float32 wherever a search looks at them."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.negotiation import ending
from engine.negotiation.ending import EndGaps
from engine.negotiation.settings import SearchConfig
from policies.negotiator.prefix import Endings, Prefixes
from tests.engine.negotiation import searches

SIZE, DIALOGUES = 60, 4
NOBODY = cast(Any, None)


@pytest.fixture(autouse=True)
def _screening(monkeypatch: pytest.MonkeyPatch) -> None:
    """Screens however few endings, whatever the processor."""
    monkeypatch.setattr(ending, "SCREENED", 1)
    monkeypatch.setattr(searches.TARGET.tables, "can_screen", True)


class Known(EndGaps):
    """Gaps that are known, and rough ones off by as much as they may be."""

    def __init__(self, gaps: np.ndarray, rough: np.ndarray) -> None:
        super().__init__(searches.TARGET)
        self.gaps, self.known_rough, self.reread = gaps, rough, 0

    def exact(self, prefixes: Prefixes, endings: Endings) -> np.ndarray:
        self.reread += len(endings)
        return self.gaps[endings.keeps]

    def rough(self, prefixes: Prefixes, endings: Endings) -> tuple[np.ndarray, np.ndarray]:
        return self.known_rough[endings.keeps], np.full(len(endings), 0.25)


def numbered(size: int = SIZE) -> Endings:
    """Endings that a known gap belongs to by how many tokens they keep."""
    rows = np.arange(size)
    return Endings(np.zeros(size, dtype=np.int64), rows, rows[:, None], np.ones(size, dtype=np.int64))


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, -0.5]), st.floats(-1.0, 1.0))
def test_who_keeps_the_constraint_and_who_comes_nearest_are_those_of_exact_gaps(seed: int, limit: float, shift: float) -> None:
    draw = np.random.default_rng(seed)
    dialogues = np.sort(draw.integers(DIALOGUES, size=SIZE))
    gaps = draw.normal(shift + draw.normal(size=DIALOGUES)[dialogues], 0.5)
    known = Known(gaps, gaps + draw.uniform(-0.12, 0.12, size=SIZE))
    found = known.where_needed(NOBODY, numbered(), dialogues, limit)
    assert ((found <= limit) == (gaps <= limit)).all()
    for d in np.unique(dialogues):
        rows = np.flatnonzero(dialogues == d)
        if (gaps[rows] > limit).all():
            assert found[rows].min() == gaps[rows].min()
            assert found[rows].argmin() == gaps[rows].argmin()


def test_only_what_is_near_is_read_again() -> None:
    """In the first dialogue some keep the constraint; in the second none does, and two come nearest."""
    gaps = np.array([-2.0, -0.1, 0.2, 0.4, 3.0, 5.0, 1.0, 1.3, 1.9, 4.0])
    known = Known(gaps, gaps + 0.05)
    found = known.where_needed(NOBODY, numbered(10), np.repeat([0, 1], [6, 4]), 0.0)
    assert np.flatnonzero(found == gaps).tolist() == [1, 2, 6, 7]
    assert known.reread == 4


def test_gaps_that_leave_their_range_are_all_read_again() -> None:
    gaps = np.linspace(-3.0, 3.0, SIZE)
    known = Known(gaps, gaps + 0.15)
    found = known.where_needed(NOBODY, numbered(), np.zeros(SIZE, dtype=np.int64), 0.0)
    assert found.tolist() == gaps.tolist()


def test_nothing_near_is_nothing_read_again() -> None:
    gaps = np.linspace(-3.0, -1.0, SIZE)
    known = Known(gaps, gaps)
    assert known.where_needed(NOBODY, numbered(), np.zeros(SIZE, dtype=np.int64), 0.0).tolist() == gaps.tolist()
    assert known.reread == 0


def test_gaps_of_sentences_and_how_rough_they_are() -> None:
    numbers = list(range(40))
    exchanges, sentences, _ = searches.states(numbers)
    oracles = [searches.Oracle(searches.TARGET, i, SearchConfig()) for i in numbers]
    prefixes = Prefixes(searches.TARGET.tables, exchanges.contexts[1], exchanges.tokens, exchanges.lengths)
    words = [oracle.said(sentence.tolist())[len(oracle.before) :] for oracle, sentence in zip(oracles, sentences, strict=True)]
    lengths = np.array([len(row) for row in words])
    tokens = np.zeros((len(words), lengths.max()), dtype=np.int64)
    for row, ids in zip(tokens, words, strict=True):
        row[: len(ids)] = ids
    endings = Endings(np.array(numbers), exchanges.lengths, tokens, lengths)
    gaps = EndGaps(searches.TARGET)
    exact = gaps.exact(prefixes, endings)
    assert exact == pytest.approx([oracle.gap(ids.tolist()) for oracle, ids in zip(oracles, sentences, strict=True)], abs=1e-4)
    rough, doubt = gaps.rough(prefixes, endings)
    assert 0 < (np.abs(rough - exact) / doubt).max() < 1


def test_without_fast_bfloat16_all_gaps_are_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searches.TARGET.tables, "can_screen", False)
    gaps = np.linspace(-3.0, 3.0, SIZE)
    known = Known(gaps, gaps + 9.0)
    assert known.where_needed(NOBODY, numbered(), np.zeros(SIZE, dtype=np.int64), 0.0).tolist() == gaps.tolist()
