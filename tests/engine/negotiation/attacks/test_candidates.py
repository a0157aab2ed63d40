"""What candidates are compared by, and which words may be offered."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from parley.engine.negotiation.attacks.candidates import RESOLUTION, Candidates, Scores, offered_words, special_words
from parley.envs.negotiation.domain import EOS_ID, PAD_ID, SELECTION_ID, UNK_ID
from tests.envs.negotiation.agents import VOCABULARY

JUDGED = st.tuples(
    st.integers(0, 3),
    st.booleans(),
    st.sampled_from([-1.0, 0.0, RESOLUTION / 4, 3 * RESOLUTION, 2.0, float("inf")]),
    st.integers(0, 3),
    st.integers(0, 3),
)
"""Group, broken, loss, adversary's points, target's points: few different ones, so that many tie."""


def scores(rows: list[tuple[bool, float, float, float]]) -> Scores:
    broken, loss, adversary, target = (np.array(column) for column in zip(*rows, strict=True))
    return Scores(broken.astype(bool), loss.astype(float), adversary.astype(float), target.astype(float))


def test_the_constraint_comes_first_then_the_loss_then_what_is_gained() -> None:
    rising = scores(
        [
            (False, -5.0, 0, 10),
            (False, 0.0, 9, 1),
            (False, 0.0, 8, 1),
            (False, 0.0, 1, 9),
            (False, 7.0, 10, 0),
            (True, 0.1, 0, 0),
            (True, 0.2, 0, 0),
        ]
    )
    keys = [rising.key(row) for row in range(7)]
    assert all(early < late for early, late in itertools.pairwise(keys))
    assert rising.ranked(np.zeros(7, dtype=np.int64)).tolist() == list(range(7))
    backwards = scores([(True, 0.2, 0, 0), (False, 7.0, 10, 0), (False, 0.0, 1, 9), (False, 0.0, 9, 1)])
    assert backwards.ranked(np.zeros(4, dtype=np.int64)).tolist() == [3, 2, 1, 0]


def test_losses_are_rounded_once_however_many_candidates_are_compared() -> None:
    class Counted(np.ndarray):
        """Losses that count how often all of them are divided."""

        num_divided = 0

        def __truediv__(self, other: float) -> np.ndarray:
            Counted.num_divided += 1
            return np.asarray(self) / other

    losses, rest = np.linspace(0, 1, 50).view(Counted), np.zeros(50)
    many = Scores(rest.astype(bool), losses, rest, rest)
    assert len({many.key(row) for row in range(50)}) == 50
    many.best(np.arange(50))
    assert Counted.num_divided == 1


def test_rounding_does_not_choose_between_losses() -> None:
    close = scores([(False, 2.0, 3, 3), (False, 2.0 - RESOLUTION / 4, 1, 5), (False, 2.0 + RESOLUTION / 4, 8, 1)])
    assert len({close.key(row)[:2] for row in range(3)}) == 1
    assert close.best(np.zeros(3, dtype=np.int64)).tolist() == [2]
    apart = scores([(False, 2.0, 8, 1), (False, 2.0 - 2 * RESOLUTION, 1, 5)])
    assert apart.best(np.zeros(2, dtype=np.int64)).tolist() == [1]


def test_of_equal_candidates_the_first_is_best() -> None:
    equal = scores([(False, 1.0, 5, 2), (False, 1.0, 7, 4), (False, 1.0, 3, 0)])
    assert equal.best(np.array([1, 1, 1])).tolist() == [0]
    assert equal.ranked(np.array([1, 0, 1])).tolist() == [1, 0, 2]


@given(st.lists(JUDGED, min_size=1, max_size=40))
def test_ranks_are_those_of_the_keys(judged: list[tuple[int, bool, float, int, int]]) -> None:
    groups = np.array([group for group, *_ in judged])
    found = scores([row for _, *row in judged])  # type: ignore[misc]  # the rest of a tuple is a list
    wanted = sorted(range(len(judged)), key=lambda row: (groups[row], found.key(row)))
    assert found.ranked(groups).tolist() == wanted
    for most in (1, 2, 50):
        places = [sum(groups[other] == groups[row] for other in wanted[:place]) for place, row in enumerate(wanted)]
        best = [row for row, place in zip(wanted, places, strict=True) if place < most]
        assert found.best(groups, most).tolist() == best
    assert found.best(groups).tolist() == found.best(groups, 1).tolist()


def test_a_loss_that_is_no_number_never_wins() -> None:
    broken = scores([(False, float("nan"), 10, 0), (False, 5.0, 0, 10)])
    assert broken.best(np.zeros(2, dtype=np.int64)).tolist() == [1]
    assert not broken.key(0) < broken.key(1)


def test_edits_are_taken_by_row_and_by_slice() -> None:
    candidates = Candidates(np.array([0, 0, 1]), np.array([4, 5, 6]), np.array([7, 8, 9]))
    assert len(candidates) == 3
    assert candidates[1:].words.tolist() == [8, 9]
    assert candidates[np.array([2, 0])].positions.tolist() == [6, 4]
    assert candidates[np.array([True, False, True])].dialogues.tolist() == [0, 1]


def test_every_word_of_the_language_is_offered_and_nothing_else() -> None:
    offered = VOCABULARY.decode(offered_words(VOCABULARY, allow_special=False))
    assert offered == ["i", "want", "the", "book", "hat", "ball", "no", "deal", "."]


def test_special_tokens_are_offered_when_they_are_allowed_but_never_the_end_of_a_sentence() -> None:
    offered = offered_words(VOCABULARY, allow_special=True)
    assert offered.tolist() == [i for i in range(len(VOCABULARY)) if i != EOS_ID]
    assert offered.dtype == np.int64


def test_special_tokens_are_those_that_are_no_words() -> None:
    assert set(special_words(VOCABULARY)) == {UNK_ID, SELECTION_ID, PAD_ID, VOCABULARY.you_id, VOCABULARY.them_id}
