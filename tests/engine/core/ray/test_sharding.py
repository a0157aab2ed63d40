"""How work is cut."""

from __future__ import annotations

import copy
import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from parley.engine.core.ray.worker import IndexedItems, make_shards


@given(keys=st.sets(st.text(max_size=4), max_size=60), size=st.integers(1, 9), order=st.randoms(use_true_random=False))
def test_every_item_is_in_one_shard_whatever_the_order(keys: set[str], size: int, order: object) -> None:
    shuffled = sorted(keys)
    order.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis gives a Random
    shards = make_shards({key: key.upper() for key in shuffled}, size)
    assert [key for shard in shards for key in shard.keys] == sorted(keys)
    assert [item for shard in shards for item in shard.items] == [key.upper() for key in sorted(keys)]
    assert all(len(shard) == size for shard in shards[:-1])
    assert shards == make_shards({key: key.upper() for key in keys}, size)


@given(keys=st.sets(st.text(max_size=4), max_size=40), size=st.integers(1, 9))
def test_items_that_are_made_when_asked_for_are_cut_like_those_in_memory(keys: set[str], size: int) -> None:
    order = list(keys)
    lazy = IndexedItems(iter(order), lambda index: order[index].upper())
    assert (list(lazy), list(lazy.values())) == (order, [key.upper() for key in order])
    assert dict(lazy) == {key: lazy[key] for key in order}
    shards = make_shards(lazy, size)
    assert shards == make_shards(dict(lazy), size)
    for shard in shards:
        sent = copy.deepcopy(shard)
        assert (type(sent.keys), type(sent.items)) == (tuple, tuple)
        assert (sent, shard.loaded()) == (shard, shard)


def test_keys_of_100_000_items_take_few_bytes() -> None:
    tracemalloc.start()
    try:
        items = IndexedItems((f"prompts-{number}/random words/0" for number in range(100_000)), str)
        shards = make_shards(items, 256)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(map(len, shards)) == 100_000
    assert held < 56 * 100_000


def test_names_sort_like_the_shards() -> None:
    names = [shard.name for shard in make_shards({f"{i:07d}": i for i in range(100_001)}, 1)]
    assert names == sorted(names)
    assert names[0] == "000000"
    assert make_shards({"a": 1}, 4)[0].name == "00000"


def test_no_work_is_no_shard() -> None:
    assert make_shards({}, 4) == []
