"""Deal or No Deal as a `Domain`."""

from __future__ import annotations

import re

import numpy as np

from parley.envs.negotiation import dealornodeal_rules as rules
from parley.envs.negotiation.dealornodeal_rules import ITEM_NAMES, NUM_ITEMS
from parley.envs.negotiation.domain import DEAL_OR_NO_DEAL, Domain, GameActs, Numbers, Scenario, Selections, Vocabulary
from parley.envs.negotiation.game import Agent
from parley.envs.negotiation.scripted.bargainers import Bargainer, DivisionActs
from parley.envs.negotiation.scripted.wording import bargainer_vocabulary

_BETWEEN = re.compile(r"\s*,\s*|\s+")
_WHOLE = re.compile(r"[0-9]{1,9}")


class Division(Domain):
    """Deal or No Deal: two sides divide items; each item goes to one of them."""

    name = DEAL_OR_NO_DEAL
    rule = (
        "counts 1..4 with 5..7 in total, values summing to 10 points on both sides, "
        "every item wanted by someone and one item wanted by both"
    )
    items = ITEM_NAMES
    tokens = rules.ITEM_TOKENS
    num_heads = 2 * NUM_ITEMS
    largest = best = rules.TOTAL_VALUE
    max_selections = rules.MAX_SELECTIONS
    how_to_play = (
        "You and a partner divide the items below by talking: each single item goes to one of you. After the talk each of you "
        "writes down which items you get yourself, unseen by the other. If both together are not exactly the items that there "
        "are, neither of you gets a point."
    )

    def problem(self, counts: Numbers, values: tuple[Numbers, Numbers]) -> str:
        return rules.problem(counts, values)

    def selections(self, counts: Numbers) -> Selections:
        return rules.selections(counts)

    def legal_selections(self, counts_nK: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return rules.legal_selections(counts_nK)

    def random_scenario(self, rng: np.random.Generator) -> Scenario:
        return rules.random_scenario(rng)

    def vocabulary(self) -> Vocabulary:
        return bargainer_vocabulary()

    def scripted(self, name: str, vocabulary: Vocabulary) -> Agent:
        return Bargainer.named(name, vocabulary)

    def acts(self, vocabulary: Vocabulary) -> GameActs:
        return DivisionActs(vocabulary)

    def question(self, counts: Numbers) -> str:
        return ", ".join(f"{name} 0..{count}" for name, count in zip(ITEM_NAMES, counts, strict=True))

    def answer_form(self, counts: Numbers) -> str:
        return f"{NUM_ITEMS} whole numbers, {self.question(counts)}, such as {' '.join(map(str, counts))}"

    def read_selection(self, counts: Numbers, text: str) -> int | None:
        numbers = read_numbers(text)
        fits = len(numbers) == NUM_ITEMS and all(map(int.__le__, numbers, counts))
        return rules.selection_index(counts, numbers) if fits else None

    def describe(self, counts: Numbers, selection: int) -> str:
        picks = rules.picks_table(counts)[selection].tolist()
        return ", ".join(f"{name} {pick}" for name, pick in zip(ITEM_NAMES, picks, strict=True))


def read_numbers(line: str) -> list[int]:
    """Return the whole numbers of a line, separated by blanks or commas; empty if there is other text."""
    parts = _BETWEEN.split(line)
    return [int(part) for part in parts] if all(map(_WHOLE.fullmatch, parts)) else []


DIVISION = Division()
