"""Scenarios of any game, with their points and Pareto optimality; and Deal or No Deal (Lewis et al. 2017), the first game.

What belongs here of Deal or No Deal: the rules that make a scenario legal, the legal selections and the generator of random
scenarios. What every game has is in `domain.py`, dialogue in `game.py`.

Items 0, 1, 2 are books, hats and balls. A selection is six item tokens, the chooser's three items then the partner's;
item token ids are fixed: 5 * item + count for counts 0..4, then `<disagree>`, `<no_agreement>`, `<disconnect>`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING

import numpy as np

from envs.core.errors import ScenarioError
from envs.negotiation.domain import DEAL_OR_NO_DEAL, REFUSALS, Domain, Numbers, Selections, domain_of

if TYPE_CHECKING:
    from envs.negotiation.game import Agent
    from envs.negotiation.game_acts import GameActs
    from envs.negotiation.vocabulary import Vocabulary

ITEM_NAMES = ("book", "hat", "ball")
NUM_ITEMS = 3
MAX_COUNT = 4
TOTAL_VALUE = 10
MIN_TOTAL_ITEMS, MAX_TOTAL_ITEMS = 5, 7
ITEM_TOKENS = (*(f"item{item}={count}" for item in range(NUM_ITEMS) for count in range(MAX_COUNT + 1)), *REFUSALS)
DISAGREE_ID, NO_AGREEMENT_ID, DISCONNECT_ID = 15, 16, 17
ITEM_TOKEN_INDEX = {token: i for i, token in enumerate(ITEM_TOKENS)}
ILLEGAL = "<illegal>"
"""Stands for a selection out of range in what is written of a dialogue."""
MAX_SELECTIONS = 38
"""The most legal selections that any scenario has: (2+1)(2+1)(3+1) allocations and two refusals."""

Triple = tuple[int, int, int]
_BETWEEN = re.compile(r"\s*,\s*|\s+")
_WHOLE = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, order=True)
class Scenario:
    """One deal to be struck: how many of each item there are and what each side's items are worth.

    Args:
        counts: number of each item; of Deal or No Deal books, hats, balls, each 1..4, 5..7 in total.
        values: for side 0 and side 1, points per item; of Deal or No Deal each 0..10, and counts times values sum to 10.
        game: the name of its `Domain`.

    Raises:
        ConfigError: no game is called that.
        ScenarioError: a rule of the game is broken (message names the rule).
    """

    counts: Numbers
    values: tuple[Numbers, Numbers]
    game: str = DEAL_OR_NO_DEAL

    def __post_init__(self) -> None:
        domain, num = self.domain, len(self.domain.items)
        whole = all(len(part) == num for part in (self.counts, *self.values))
        problem = domain.problem(self.counts, self.values) if whole else f"there are {num} items"
        if problem:
            got = f"counts {self.counts}, values {self.values}"
            raise ScenarioError(f"illegal scenario: {problem}", got=got, fix=domain.rule)

    @property
    def domain(self) -> Domain:
        """What it is about."""
        return domain_of(self.game)

    @property
    def key(self) -> str:
        """A short name, equal for equal scenarios of a game: counts, then each side's values."""
        return "/".join(",".join(map(str, part)) for part in (self.counts, *self.values))

    @property
    def selections(self) -> Selections:
        """What may be chosen."""
        return self.domain.selections(self.counts)

    def context(self, side: int) -> Numbers:
        """The numbers that a side sees: count and own value of each item in turn."""
        return tuple(itertools.chain.from_iterable(zip(self.counts, self.values[side], strict=True)))

    def swapped(self) -> Scenario:
        """The same scenario with the sides exchanged."""
        return Scenario(self.counts, (self.values[1], self.values[0]), self.game)

    @classmethod
    def from_contexts(cls, first: Sequence[int], second: Sequence[int], game: str = DEAL_OR_NO_DEAL) -> Scenario:
        """A scenario from both sides' numbers (count and value of each item in turn).

        Raises:
            ScenarioError: the sides disagree on the counts, or a rule is broken.
        """
        width = 2 * len(domain_of(game).items)
        if len(first) != width or len(second) != width or tuple(first[::2]) != tuple(second[::2]):
            raise ScenarioError(
                "the two sides' contexts do not describe one scenario",
                got=f"{list(first)} and {list(second)}",
                fix=f"give {width} numbers a side with equal counts: c0 v0 c1 v1 and so on",
            )
        counts, mine, theirs = (tuple(map(int, part)) for part in (first[::2], first[1::2], second[1::2]))
        return cls(counts, (mine, theirs), game)


def points(scenario: Scenario, selections: tuple[int, int]) -> tuple[bool, tuple[int, int]]:
    """Whether the sides' selections fit together, and what each side earns (0, 0 if they do not).

    Refusals and anything that does not add up to the counts are no agreement, as in the published scoring.
    """
    legal, (first, second) = scenario.selections, selections
    if first >= legal.no_agreement or int(legal.fits[first]) != second:
        return False, (0, 0)
    return True, (int(legal.own[first] @ scenario.values[0]), int(legal.other[first] @ scenario.values[1]))


def is_pareto_optimal(scenario: Scenario, earned: tuple[int, int]) -> bool:
    """Whether no legal deal is at least as good for both sides and better for one."""
    first, second = scenario.selections.own @ scenario.values[0], scenario.selections.other @ scenario.values[1]
    # Refusals earn nothing, so that they are better than no deal.
    better = (first >= earned[0]) & (second >= earned[1]) & ((first > earned[0]) | (second > earned[1]))
    return not better.any()


def _problem(counts: Numbers, values: tuple[Numbers, Numbers]) -> str:
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
    """The legal selections for those counts, in a fixed order.

    Returns:
        Item token ids (n, 6) int64: every allocation (own three, then the complement), then no agreement, then
        disconnect; 18 <= n <= 38 for legal counts. `<disagree>` is never a choice.
    """
    rows = [
        [5 * i + n for i, n in enumerate(own)] + [5 * i + counts[i] - n for i, n in enumerate(own)]
        for own in itertools.product(*(range(count + 1) for count in counts))
    ]
    rows += [[NO_AGREEMENT_ID] * 6, [DISCONNECT_ID] * 6]
    table = np.array(rows, dtype=np.int64)
    table.setflags(write=False)
    return table


@cache
def picks_table(counts: Numbers) -> np.ndarray:
    """The chooser's own items in each legal selection (n, 3) int64; -1 throughout for the two refusals."""
    own = selection_table(counts)[:, :NUM_ITEMS]
    table = np.where(own < DISAGREE_ID, own - 5 * np.arange(NUM_ITEMS), -1)
    table.setflags(write=False)
    return table


def complement(counts: Numbers, selection: int) -> int:
    """Index of the selection in which the other side holds the rest; refusals are their own complement."""
    table = selection_table(counts)
    swapped = np.concatenate([table[selection, NUM_ITEMS:], table[selection, :NUM_ITEMS]])
    return int(np.flatnonzero((table == swapped).all(axis=1))[0])


def selection_index(counts: Numbers, own: Sequence[int]) -> int:
    """Index of the allocation that gives the chooser `own` items.

    Raises:
        ScenarioError: more items are chosen than there are.
    """
    hits = np.flatnonzero((picks_table(counts) == np.asarray(own)).all(axis=1))
    if not hits.size or min(own) < 0:
        raise ScenarioError("illegal selection", got=f"{tuple(own)} of {counts}", fix="choose 0..count of each item")
    return int(hits[0])


@lru_cache(maxsize=1)
def _legal_scenarios() -> tuple[tuple[Triple, tuple[tuple[Triple, Triple], ...]], ...]:
    """Every legal scenario, grouped by counts: 28 count vectors, each with all legal pairs of values."""
    groups = []
    for counts in itertools.product(range(1, MAX_COUNT + 1), repeat=NUM_ITEMS):
        if not MIN_TOTAL_ITEMS <= sum(counts) <= MAX_TOTAL_ITEMS:
            continue
        sides = [
            values
            for values in itertools.product(*(range(TOTAL_VALUE // count + 1) for count in counts))
            if sum(c * v for c, v in zip(counts, values, strict=True)) == TOTAL_VALUE
        ]
        both = itertools.product(sides, repeat=2)
        pairs = tuple(pair for pair in both if not _problem(counts, pair))  # type: ignore[arg-type]  # typed as variadic
        groups.append((counts, pairs))
    return tuple(groups)  # type: ignore[arg-type]  # product() types its tuples as variadic


def random_scenario(rng: np.random.Generator) -> Scenario:
    """A legal scenario: counts uniform over the 28 count vectors of the corpus, then values uniform over the legal pairs."""
    groups = _legal_scenarios()
    counts, pairs = groups[rng.integers(len(groups))]
    return Scenario(counts, pairs[rng.integers(len(pairs))])


@lru_cache(maxsize=1)
def _stacked_selections() -> tuple[np.ndarray, np.ndarray]:
    """Legal selections of every count vector at index 25 c0 + 5 c1 + c2, padded to 38, and which are legal."""
    table = np.zeros((125, MAX_SELECTIONS, 2 * NUM_ITEMS), dtype=np.int64)
    legal = np.zeros((125, MAX_SELECTIONS), dtype=bool)
    for counts, _ in _legal_scenarios():
        rows = selection_table(counts)
        index = 25 * counts[0] + 5 * counts[1] + counts[2]
        table[index, : len(rows)] = rows
        legal[index, : len(rows)] = True
    return table, legal


def legal_selections(counts_n3: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The legal selections of many scenarios at once.

    Args:
        counts_n3: item counts (n, 3).

    Returns:
        Item token ids (n, 38, 6), in the order of `selection_table` and padded with zeros; which rows are legal (n, 38).
    """
    table, legal = _stacked_selections()
    index = counts_n3 @ np.array([25, 5, 1])
    return table[index], legal[index]


class Division(Domain):
    """Deal or No Deal: goods are divided, and what one side does not get the other one does."""

    name = DEAL_OR_NO_DEAL
    rule = (
        "counts 1..4 with 5..7 in total, values summing to 10 points on both sides, "
        "every item wanted by someone and one item wanted by both"
    )
    items = ITEM_NAMES
    tokens = ITEM_TOKENS
    num_heads = 2 * NUM_ITEMS
    largest = best = TOTAL_VALUE
    max_selections = MAX_SELECTIONS
    how_to_play = (
        "You and a partner divide the items below by talking: each single item goes to one of you. After the talk each of you "
        "writes down which items you get yourself, unseen by the other. If both together are not exactly the items that there "
        "are, neither of you gets a point."
    )

    def problem(self, counts: Numbers, values: tuple[Numbers, Numbers]) -> str:
        return _problem(counts, values)

    def selections(self, counts: Numbers) -> Selections:
        return _selections(counts)

    def legal_selections(self, counts_nK: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return legal_selections(counts_nK)

    def random_scenario(self, rng: np.random.Generator) -> Scenario:
        return random_scenario(rng)

    def vocabulary(self) -> Vocabulary:
        # Imported here because the bargainers' wording tables are not needed by those who bring agents of their own.
        from envs.negotiation.scripted.wording import bargainer_vocabulary

        return bargainer_vocabulary()

    def scripted(self, name: str, vocabulary: Vocabulary) -> Agent:
        from envs.negotiation.scripted.bargainers import Bargainer

        return Bargainer.named(name, vocabulary)

    def acts(self, vocabulary: Vocabulary) -> GameActs:
        from envs.negotiation.scripted.acts import DivisionActs

        return DivisionActs(vocabulary)

    def question(self, counts: Numbers) -> str:
        return ", ".join(f"{name} 0..{count}" for name, count in zip(ITEM_NAMES, counts, strict=True))

    def answer_form(self, counts: Numbers) -> str:
        return f"{NUM_ITEMS} whole numbers, {self.question(counts)}, such as {' '.join(map(str, counts))}"

    def read_selection(self, counts: Numbers, text: str) -> int | None:
        numbers = read_numbers(text)
        fits = len(numbers) == NUM_ITEMS and all(map(int.__le__, numbers, counts))
        return selection_index(counts, numbers) if fits else None

    def describe(self, counts: Numbers, selection: int) -> str:
        picks = picks_table(counts)[selection].tolist()
        return ", ".join(f"{name} {pick}" for name, pick in zip(ITEM_NAMES, picks, strict=True))


def read_numbers(line: str) -> list[int]:
    """The whole numbers of a line, with blanks or commas between them; none when anything else stands in it."""
    parts = _BETWEEN.split(line)
    return [int(part) for part in parts] if all(map(_WHOLE.fullmatch, parts)) else []


@cache
def _selections(counts: Numbers) -> Selections:
    own = np.maximum(picks_table(counts), 0)
    other = np.array(counts) - own
    other[-2:] = 0
    fits = np.array([complement(counts, selection) for selection in range(len(own))], dtype=np.int64)
    return Selections(selection_table(counts), own, other, fits)


DIVISION = Division()
