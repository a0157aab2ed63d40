"""The job interview as a `Domain`, and its embedded corpus: dialogues of scripted sides with random styles."""

from __future__ import annotations

import itertools

import numpy as np

from parley.envs.negotiation.domain import REFUSALS, Domain, GameActs, Numbers, Scenario, Selections, Vocabulary
from parley.envs.negotiation.game import Agent
from parley.envs.negotiation.interview.bargainers import (
    BEST,
    ISSUES,
    ITEMS,
    NAME,
    OPTION_INDEX,
    OPTIONS,
    STARTS,
    WEIGHTS,
    Applicant,
    InterviewActs,
    deals,
    describe,
    interview_vocabulary,
    selections,
)
from parley.envs.negotiation.scripted.bargainers import corpus_lines


def embedded_corpus(num_dialogues: int, seed: int) -> dict[str, list[str]]:
    """Generate the corpus; arguments, lines and errors as of `corpus_lines`."""
    vocabulary = interview_vocabulary()
    return corpus_lines(num_dialogues, seed, "embedded-interview", vocabulary, lambda styles: Applicant(vocabulary, styles))


class Interview(Domain):
    """The game of four issues."""

    name = NAME
    rule = (
        f"one of each of the {len(OPTIONS)} options; of each issue the worst option of a side is worth 0, "
        f"its best ones {BEST} points in total, and the sides want different options of some issue"
    )
    items = ITEMS
    tokens = (*(item.replace(" ", "=") for item in ITEMS), *REFUSALS)
    num_heads = len(ISSUES)
    largest = best = BEST
    max_selections = len(selections())
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
        return selections()

    def legal_selections(self, counts_nK: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        table = selections().table
        return np.broadcast_to(table, (len(counts_nK), *table.shape)), np.ones((len(counts_nK), len(table)), dtype=bool)

    def random_scenario(self, rng: np.random.Generator) -> Scenario:
        """Return a legal scenario: each side orders the weights at random, and a fair coin opposes or aligns each issue.

        Scenarios without an opposed issue are drawn again, and scenarios in which all deals have the same sum of points.
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
                    rising = [round(weight * i / last) for i in range(len(options))]
                    side += rising[::-1] if down else rising
                values.append(tuple(side))
            return Scenario((1,) * len(OPTIONS), (values[0], values[1]), self.name)

    def vocabulary(self) -> Vocabulary:
        return interview_vocabulary()

    def scripted(self, name: str, vocabulary: Vocabulary) -> Agent:
        return Applicant.named(name, vocabulary)

    def acts(self, vocabulary: Vocabulary) -> GameActs:
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
        return describe(selection)


INTERVIEW = Interview()
