"""How work is cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from parley.engine.core.ray.worker import make_shards


@given(keys=st.sets(st.text(max_size=4), max_size=60), size=st.integers(1, 9), order=st.randoms(use_true_random=False))
def test_every_item_is_in_one_shard_whatever_the_order(keys: set[str], size: int, order: object) -> None:
    shuffled = sorted(keys)
    order.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis gives a Random
    shards = make_shards({key: key.upper() for key in shuffled}, size)
    assert [key for shard in shards for key in shard.keys] == sorted(keys)
    assert [item for shard in shards for item in shard.items] == [key.upper() for key in sorted(keys)]
    assert all(len(shard) == size for shard in shards[:-1])
    assert shards == make_shards({key: key.upper() for key in keys}, size)


def test_names_sort_like_the_shards() -> None:
    names = [shard.name for shard in make_shards({f"{i:07d}": i for i in range(100_001)}, 1)]
    assert names == sorted(names)
    assert names[0] == "000000"
    assert make_shards({"a": 1}, 4)[0].name == "00000"


def test_no_work_is_no_shard() -> None:
    assert make_shards({}, 4) == []
