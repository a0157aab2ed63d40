"""The order of candidates follows from the key."""

from hypothesis import given
from hypothesis import strategies as st

from parley.envs.ranking.groups import order_of


@given(st.text(max_size=8), st.integers(2, 15), st.integers(0, 2**31))
def test_an_order_holds_every_candidate_once_and_follows_from_key_and_seed(key: str, size: int, seed: int) -> None:
    assert sorted(order_of(key, size, seed)) == list(range(size))
    assert order_of(key, size, seed) == order_of(key, size, seed)


def test_the_first_comes_to_every_place() -> None:
    places = [order_of(f"test-{i:07d}", 10, 0).index(0) for i in range(2_000)]
    assert all(150 < places.count(place) < 250 for place in range(10))
    assert places != [order_of(f"test-{i:07d}", 10, 1).index(0) for i in range(2_000)]
