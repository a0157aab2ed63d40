"""Choices that bfloat16 screens are those of float32: the best of each dialogue, exactly, whatever the network."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.engine.negotiation.attacks import choices
from parley.engine.negotiation.attacks.candidates import ReplacementResult, Scores
from parley.engine.negotiation.attacks.replacement import preemptive, reactive
from parley.engine.negotiation.attacks.settings import SearchConfig
from parley.envs.core.seeds import stream
from tests.engine.negotiation import searches
from tests.policies.negotiator.made_up import always_screened, never_screened

SIZE = 5
CONFIGS = [
    SearchConfig(),
    SearchConfig(proposals="exhaustive", kappa=2.0),
    SearchConfig(proposals="exhaustive", constraint="soft", loss="released"),
    SearchConfig(proposals="random", loss="outcome", candidates=64),
]


def found(config: SearchConfig, *, attack: str, screened: bool) -> list[ReplacementResult]:
    exchanges, sentences, _ = searches.states(list(range(SIZE)))
    draws = [stream(7, "draws", d) for d in range(SIZE)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(searches.TARGET.tables, "screening", always_screened() if screened else never_screened())
        search = reactive if attack == "reactive" else preemptive
        return search(searches.TARGET, exchanges, sentences, config, draws)


def assert_alike(ours: list[ReplacementResult], theirs: list[ReplacementResult]) -> None:
    """Equal findings; losses up to rounding, which depends on what is decided together."""

    def told(results: list[ReplacementResult]) -> list[object]:
        steps = [[(s.position, s.word, s.broken, s.points, s.reads, s.decisions) for s in r.steps] for r in results]
        return [(r.sentence.tolist(), r.reached, r.ends, path) for r, path in zip(results, steps, strict=True)]

    assert told(ours) == told(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert [step.loss for step in one.steps] == pytest.approx([step.loss for step in other.steps], abs=1e-4)


@pytest.mark.parametrize("config", CONFIGS)
def test_a_screened_search_finds_what_an_exact_one_finds(config: SearchConfig) -> None:
    exact = found(config, attack="reactive", screened=False)
    assert_alike(found(config, attack="reactive", screened=True), exact)
    assert any(len(result.steps) > 1 for result in exact), "otherwise nothing was chosen"


def test_finalists_are_those_of_an_exact_search() -> None:
    config = SearchConfig(replies=4, screening_replies=2, finalists=3)
    exact = found(config, attack="preemptive", screened=False)
    assert_alike(found(config, attack="preemptive", screened=True), exact)


def test_a_network_that_leaves_its_range_is_decided_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    screened = choices.Chooser._screened

    def misled(self: choices.Chooser, queries: choices.Queries) -> list[np.ndarray]:
        least, largest, *others = screened(self, queries)
        return [least + 1.0, largest + 1.0, *others]

    monkeypatch.setattr(choices.Chooser, "_screened", misled)
    exact = found(CONFIGS[1], attack="reactive", screened=False)
    assert_alike(found(CONFIGS[1], attack="reactive", screened=True), exact)


def test_most_choices_are_not_decided_again(monkeypatch: pytest.MonkeyPatch) -> None:
    decided: list[int] = []
    decide = choices.Chooser._decided

    def counted(self: choices.Chooser, queries: choices.Queries, rows: np.ndarray | None = None) -> choices.Choices:
        decided.append(len(queries) if rows is None else len(rows))
        return decide(self, queries, rows)

    monkeypatch.setattr(choices.Chooser, "_decided", counted)
    results = found(CONFIGS[1], attack="reactive", screened=True)
    assert 0 < sum(decided) < sum(result.decisions for result in results)


def test_what_cannot_improve_on_a_sentence_is_not_decided_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound that nothing reaches: one candidate of each dialogue is decided, to see that ranges hold."""
    wanted, decided = choices.Chooser.choices, []
    decide = choices.Chooser._decided

    def unreachable(self: choices.Chooser, queries: choices.Queries, most: int, below: np.ndarray) -> choices.Choices:
        return wanted(self, queries, most, np.full_like(below, -1e9))

    def counted(self: choices.Chooser, queries: choices.Queries, rows: np.ndarray | None = None) -> choices.Choices:
        assert rows is not None
        decided.append(len(rows) == len(np.unique(queries.dialogues[rows])))
        return decide(self, queries, rows)

    monkeypatch.setattr(choices.Chooser, "choices", unreachable)
    monkeypatch.setattr(choices.Chooser, "_decided", counted)
    found(CONFIGS[1], attack="reactive", screened=True)
    assert decided
    assert all(decided)


class Known(choices.Chooser):
    """Few different losses and points, so that most candidates are as good as others; ranges that hold."""

    def __init__(self, seed: int, size: int = 40) -> None:
        self._screening = always_screened()
        self.draw = draw = np.random.default_rng(seed)
        self.queries = choices.Queries(np.sort(draw.integers(3, size=size)), cast(Any, None), np.zeros(size))
        self.loss, self.advantage = draw.integers(3, size=size) / 2.0, draw.integers(-2, 3, size=size).astype(np.float64)
        self.slack, self.low, self.high = (draw.integers(2, size=size) for _ in range(3))
        self.decided: list[int] = []

    def best(self, told: choices.Choices, most: int) -> list[int]:
        unbroken = np.zeros(len(self.queries), dtype=bool)
        best: list[int] = Scores(unbroken, *told).best(self.queries.dialogues, most).tolist()
        return best

    def truth(self) -> choices.Choices:
        return self.loss, self.advantage, np.zeros(len(self.loss))

    def _screened(self, queries: choices.Queries) -> list[np.ndarray]:
        likely = self.advantage + self.draw.integers(-self.low, self.high + 1)
        least, largest = np.maximum(0.0, self.loss - self.slack / 2), self.loss + self.slack / 2
        return [least, largest, self.advantage - self.low, self.advantage + self.high, likely, np.zeros(len(queries))]

    def _decided(self, queries: choices.Queries, rows: np.ndarray | None = None) -> choices.Choices:
        assert rows is not None, "no range is left"
        self.decided.extend(rows.tolist())
        return self.loss[rows], self.advantage[rows], np.zeros(len(rows))


@given(st.integers(0, 2**32 - 1), st.integers(1, 3))
def test_the_best_are_exact_and_first_among_equals(seed: int, most: int) -> None:
    known = Known(seed)
    told = known.choices(known.queries, most, np.full(3, np.inf))
    exact = known.best(known.truth(), most)
    assert known.best(told, most) == exact
    assert told[0][exact].tolist() == known.loss[exact].tolist()
    assert told[1][exact].tolist() == known.advantage[exact].tolist()
    assert len(set(known.decided)) == len(known.decided)


@given(st.integers(0, 2**32 - 1))
def test_who_is_best_is_told_with_fewer_decisions(seed: int) -> None:
    known, figures = Known(seed), Known(seed)
    told = known.choices(known.queries, 1, None)
    figures.choices(figures.queries, 1, np.full(3, np.inf))
    assert known.best(told, 1) == known.best(known.truth(), 1)
    assert set(known.decided) <= set(figures.decided)


def test_who_is_plainly_best_is_not_decided() -> None:
    known = Known(0)
    known.slack[:] = known.low[:] = known.high[:] = 0
    assert known.best(known.choices(known.queries, 1, None), 1) == known.best(known.truth(), 1)
    assert not known.decided
