"""The rules of Deal or No Deal: legal scenarios, their selections, and random scenarios.

Items 0, 1, 2 are books, hats and balls. A selection is six item tokens, the chooser's three items then the partner's;
item token ids are fixed: 5 * item + count for counts 0..4, then `<disagree>`, `<no_agreement>`, `<disconnect>`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cache, lru_cache

import numpy as np

from parley.envs.core.errors import ScenarioError
from parley.envs.negotiation.domain import REFUSALS, Numbers, Scenario, Selections

ITEM_NAMES = ("book", "hat", "ball")
NUM_ITEMS = 3
EVERY_ITEM = (1 << NUM_ITEMS) - 1
MAX_COUNT = 4
TOTAL_VALUE = 10
MIN_TOTAL_ITEMS, MAX_TOTAL_ITEMS = 5, 7
ITEM_TOKENS = (*(f"item{item}={count}" for item in range(NUM_ITEMS) for count in range(MAX_COUNT + 1)), *REFUSALS)
DISAGREE_ID, NO_AGREEMENT_ID, DISCONNECT_ID = 15, 16, 17
ITEM_TOKEN_INDEX = {token: i for i, token in enumerate(ITEM_TOKENS)}
MAX_SELECTIONS = 38
"""Most legal selections of a scenario: (2+1)(2+1)(3+1) allocations and two refusals."""

Triple = tuple[int, int, int]


def problem(counts: Numbers, values: tuple[Numbers, Numbers]) -> str:
    """Return the rule that a scenario breaks; empty for a legal one."""
    if not all(1 <= count <= MAX_COUNT for count in counts):
        return f"every count is 1..{MAX_COUNT}"
    if not MIN_TOTAL_ITEMS <= sum(counts) <= MAX_TOTAL_ITEMS:
        return f"there are {MIN_TOTAL_ITEMS}..{MAX_TOTAL_ITEMS} items in total"
    for side in values:
        if not all(0 <= value <= TOTAL_VALUE for value in side):
            return f"every value is 0..{TOTAL_VALUE}"
        if sum(c * v for c, v in zip(counts, side, strict=True)) != TOTAL_VALUE:
            return f"each side's items are worth {TOTAL_VALUE} in total"
    if not all(a or b for a, b in zip(*values, strict=True)):
        return "every item is wanted by someone"
    if not any(a and b for a, b in zip(*values, strict=True)):
        return "one item is wanted by both"
    return ""


@cache
def selection_table(counts: Numbers) -> np.ndarray:
    """Return the legal selections for these counts, in a fixed order.

    Returns:
        Item token ids (n, 6) int64: every allocation (own three, then the complement), then no agreement, then
        disconnect; 18 <= n <= 38 for legal counts. `<disagree>` is never a choice.
    """
    rows = [
        [5 * i + n for i, n in enumerate(items)] + [5 * i + counts[i] - n for i, n in enumerate(items)]
        for items in itertools.product(*(range(count + 1) for count in counts))
    ]
    rows += [[NO_AGREEMENT_ID] * 6, [DISCONNECT_ID] * 6]
    table = np.array(rows, dtype=np.int64)
    table.setflags(write=False)
    return table


@cache
def picks_table(counts: Numbers) -> np.ndarray:
    """Return the chooser's own items in each legal selection (n, 3) int64; -1 for the two refusals."""
    items = selection_table(counts)[:, :NUM_ITEMS]
    table = np.where(items < DISAGREE_ID, items - 5 * np.arange(NUM_ITEMS), -1)
    table.setflags(write=False)
    return table


def complement(counts: Numbers, selection: int) -> int:
    """Return the index of the other side's matching selection; refusals match themselves."""
    table = selection_table(counts)
    swapped = np.concatenate([table[selection, NUM_ITEMS:], table[selection, :NUM_ITEMS]])
    return int(np.flatnonzero((table == swapped).all(axis=1))[0])


def selection_index(counts: Numbers, items: Sequence[int]) -> int:
    """Return the index of the allocation that gives the chooser `items`.

    Raises:
        ScenarioError: more items are chosen than there are.
    """
    hits = np.flatnonzero((picks_table(counts) == np.asarray(items)).all(axis=1))
    if not hits.size or min(items) < 0:
        raise ScenarioError("illegal selection", got=f"{tuple(items)} of {counts}", fix="choose 0..count of each item")
    return int(hits[0])


@lru_cache(maxsize=1)
def _legal_scenarios() -> tuple[tuple[Triple, tuple[tuple[Triple, Triple], ...]], ...]:
    """Return every legal scenario, grouped by counts: 28 count vectors, each with all legal pairs of values."""
    groups = []
    for counts in itertools.product(range(1, MAX_COUNT + 1), repeat=NUM_ITEMS):
        if not MIN_TOTAL_ITEMS <= sum(counts) <= MAX_TOTAL_ITEMS:
            continue
        sides = [
            values
            for values in itertools.product(*(range(TOTAL_VALUE // count + 1) for count in counts))
            if sum(c * v for c, v in zip(counts, values, strict=True)) == TOTAL_VALUE
        ]
        # `problem` of the pairs without its checks of one side: someone wants every item, and both want one.
        wanted = [(values, sum(1 << item for item, value in enumerate(values) if value)) for values in sides]
        both_sides = itertools.product(wanted, repeat=2)
        pairs = tuple((mine, theirs) for (mine, m), (theirs, t) in both_sides if m | t == EVERY_ITEM and m & t)
        groups.append((counts, pairs))
    return tuple(groups)  # type: ignore[arg-type]  # product() types its tuples as variadic


def random_scenario(rng: np.random.Generator) -> Scenario:
    """Return a legal scenario: uniform over the 28 count vectors, then over the legal pairs of values."""
    groups = _legal_scenarios()
    counts, pairs = groups[rng.integers(len(groups))]
    return Scenario(counts, pairs[rng.integers(len(pairs))])


@lru_cache(maxsize=1)
def _stacked_selections() -> tuple[np.ndarray, np.ndarray]:
    """Return selections of every count vector at index 25 c0 + 5 c1 + c2, padded to 38, and the legal mask."""
    table = np.zeros((125, MAX_SELECTIONS, 2 * NUM_ITEMS), dtype=np.int64)
    legal = np.zeros((125, MAX_SELECTIONS), dtype=bool)
    for counts, _ in _legal_scenarios():
        rows = selection_table(counts)
        index = 25 * counts[0] + 5 * counts[1] + counts[2]
        table[index, : len(rows)] = rows
        legal[index, : len(rows)] = True
    return table, legal


def legal_selections(counts_n3: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the legal selections of many scenarios at once.

    Args:
        counts_n3: item counts (n, 3).

    Returns:
        Item token ids (n, 38, 6), in the order of `selection_table`, padded with zeros; the mask of legal rows (n, 38).
    """
    table, legal = _stacked_selections()
    index = counts_n3 @ np.array([25, 5, 1])
    return table[index], legal[index]


@cache
def selections(counts: Numbers) -> Selections:
    """Return the selections for these counts; the same object each time."""
    chooser_items = np.maximum(picks_table(counts), 0)
    other_items = np.array(counts) - chooser_items
    other_items[-2:] = 0
    fits = np.array([complement(counts, selection) for selection in range(len(chooser_items))], dtype=np.int64)
    return Selections(selection_table(counts), chooser_items, other_items, fits)
