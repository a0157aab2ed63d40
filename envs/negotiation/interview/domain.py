"""A job interview: two sides settle four issues of a job, of each one option, such as 60k, 25 days, Lima, engineer.

Written for Parley, after negotiations with several issues as they are studied (preferences that are opposed on some issues and
alike on others, so that points can be won together). Each of the thirteen options is an item that is there once; a choice names
one option of each issue, both sides hold what is chosen, and choices fit when they are the same.

A selection is four tokens, one an issue: `salary=40k` and so on in the order of `OPTIONS`, then the refusals.
"""

from __future__ import annotations

import itertools
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from envs.negotiation.domain import REFUSALS, Domain, Numbers, Selections
from envs.negotiation.scenario import Scenario

if TYPE_CHECKING:
    from envs.negotiation.game import Agent
    from envs.negotiation.game_acts import GameActs
    from envs.negotiation.vocabulary import Vocabulary

NAME = "interview"
ISSUES: dict[str, tuple[str, ...]] = {
    "salary": ("40k", "50k", "60k", "70k"),
    "holidays": ("20", "25", "30"),
    "office": ("lima", "oslo", "perth"),
    "role": ("analyst", "engineer", "manager"),
}
OPTIONS = tuple((issue, option) for issue, options in enumerate(ISSUES.values()) for option in options)
"""Issue and word of each item."""
OPTION_INDEX = {word: item for item, (_, word) in enumerate(OPTIONS)}
STARTS = tuple(itertools.accumulate((len(options) for options in ISSUES.values()), initial=0))
"""The items of issue i are those from `STARTS[i]` up to `STARTS[i + 1]`."""
WEIGHTS = (6, 4, 3, 2)
"""Points that the best options are worth, by importance, in scenarios that are drawn."""
BEST = sum(WEIGHTS)


@cache
def deals() -> np.ndarray:
    """Every deal (108, 4) int64, in the order of the selections."""
    of_issues = (range(start, stop) for start, stop in itertools.pairwise(STARTS))
    return np.array(list(itertools.product(*of_issues)), dtype=np.int64)


@cache
def _selections() -> Selections:
    chosen = deals()
    table = np.concatenate([chosen, np.full((2, len(ISSUES)), len(OPTIONS) + 1)])
    table[-1] += 1
    held = np.zeros((len(table), len(OPTIONS)), dtype=np.int64)
    np.put_along_axis(held[:-2], chosen, 1, axis=1)
    return Selections(table, held, held, np.arange(len(table)))


class Interview(Domain):
    """The game of four issues."""

    name = NAME
    rule = (
        f"one of each of the {len(OPTIONS)} options; of each issue the worst option of a side is worth 0, "
        f"its best ones {BEST} points in total, and the sides want different options of some issue"
    )
    items = tuple(f"{tuple(ISSUES)[issue]} {option}" for issue, option in OPTIONS)
    tokens = (*(item.replace(" ", "=") for item in items), *REFUSALS)
    num_heads = len(ISSUES)
    largest = best = BEST
    max_selections = len(_selections())
    how_to_play = (
        f"You and a partner settle a contract by talking: one option of each issue, {', '.join(ISSUES)}, which then holds for "
        "both of you. After the talk each of you writes down the contract, unseen by the other. If the two differ in any "
        "issue, neither of you gets a point."
    )

    def problem(self, counts: Numbers, values: tuple[Numbers, Numbers]) -> str:
        if set(counts) != {1}:
            return "every option is there once"
        issues = [[side[start:stop] for start, stop in itertools.pairwise(STARTS)] for side in values]
        if any(min(issue) != 0 for side in issues for issue in side):
            return "the worst option of an issue is worth 0"
        if any(sum(map(max, side)) != BEST for side in issues):
            return f"each side's best options are worth {BEST} in total"
        if all(mine[theirs.index(max(theirs))] == max(mine) for mine, theirs in zip(*issues, strict=True)):
            return "the sides want different options of some issue"
        return ""

    def selections(self, counts: Numbers) -> Selections:
        return _selections()

    def legal_selections(self, counts_nK: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        table = _selections().table
        return np.broadcast_to(table, (len(counts_nK), *table.shape)), np.ones((len(counts_nK), len(table)), dtype=bool)

    def random_scenario(self, rng: np.random.Generator) -> Scenario:
        """A side's issues differ in weight, in an order of its own; each issue is opposed or alike by a fair coin.

        Scenarios without an opposed issue are drawn again, and those in which all deals are worth the same to both together.
        """
        while True:
            first, opposed = rng.integers(2, size=(2, len(ISSUES))).astype(bool)
            if not opposed.any():
                continue
            weights = [rng.permutation(WEIGHTS).tolist() for _ in range(2)]
            if opposed.all() and weights[0] == weights[1]:
                continue
            values = []
            for falls, order in zip((first, first ^ opposed), weights, strict=True):
                side: list[int] = []
                for options, weight, down in zip(ISSUES.values(), order, falls, strict=True):
                    last = len(options) - 1
                    rising = [round(weight * place / last) for place in range(len(options))]
                    side += rising[::-1] if down else rising
                values.append(tuple(side))
            return Scenario((1,) * len(OPTIONS), (values[0], values[1]), self.name)

    def vocabulary(self) -> Vocabulary:
        # Imported here because those who bring agents of their own need no wording.
        from envs.negotiation.interview.wording import interview_vocabulary

        return interview_vocabulary()

    def scripted(self, name: str, vocabulary: Vocabulary) -> Agent:
        from envs.negotiation.interview.bargainers import Applicant

        return Applicant.named(name, vocabulary)

    def acts(self, vocabulary: Vocabulary) -> GameActs:
        from envs.negotiation.interview.acts import InterviewActs

        return InterviewActs(vocabulary)

    def question(self, counts: Numbers) -> str:
        return ", ".join(f"{issue} {'|'.join(options)}" for issue, options in ISSUES.items())

    def answer_form(self, counts: Numbers) -> str:
        example = " ".join(options[1] for options in ISSUES.values())
        return f"one option of each issue, {self.question(counts)}, such as {example}"

    def read_selection(self, counts: Numbers, text: str) -> int | None:
        items = [OPTION_INDEX.get(word) for word in text.lower().replace(",", " ").split()]
        if len(items) != len(ISSUES) or None in items:
            return None
        hits = np.flatnonzero((deals() == sorted(item for item in items if item is not None)).all(axis=1))
        return int(hits[0]) if hits.size else None

    def describe(self, counts: Numbers, selection: int) -> str:
        return ", ".join(self.items[item] for item in deals()[selection].tolist())


INTERVIEW = Interview()
