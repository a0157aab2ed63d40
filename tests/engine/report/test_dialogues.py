"""Which dialogues are shown."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.report.dialogues import extremes, visible
from tests.engine.report.dialogues import row

POINTS = st.lists(st.tuples(st.integers(0, 10), st.integers(0, 10)), max_size=12)


@given(POINTS, st.integers(1, 4))
def test_best_and_worst_are_the_ends_of_one_order(points: list[tuple[int, int]], limit: int) -> None:
    rows = [row(f"{i:02d}", pair) for i, pair in enumerate(points)]
    best, worst = extremes(rows, limit)
    shown = [dialogue.key for dialogue in best + worst]
    assert len(set(shown)) == len(shown) == min(len(rows), 2 * limit)
    leads = sorted((a - b for a, b in points), reverse=True)
    assert [d.points[0] - d.points[1] for d in best] == leads[: len(best)]
    assert [d.points[0] - d.points[1] for d in worst] == leads[::-1][: len(worst)]


@given(POINTS.flatmap(lambda points: st.permutations(list(enumerate(points)))))
def test_order_of_rows_does_not_matter(numbered: list[tuple[int, tuple[int, int]]]) -> None:
    rows = [row(f"{i:02d}", pair) for i, pair in numbered]
    assert extremes(rows) == extremes(sorted(rows, key=lambda row: row["item_key"]))


@given(st.text())
def test_visible_text_keeps_everything_that_can_be_seen(text: str) -> None:
    shown = visible(text)
    assert visible(shown) == shown
    assert [c for c in shown if c in "\u202e\u200b\x00\n\ud800"] == []
    if text.isascii() and text.isprintable():
        assert shown == text
