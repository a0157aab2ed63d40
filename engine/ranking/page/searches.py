"""Attacks on rankers under a budget of queries, from run folders to what their report shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from parley.engine.core.page.content import Chapter, Item, Section, Verdict
from parley.engine.core.page.runs import Run
from parley.engine.core.page.verdicts import SHARE, caveat, certain_sign, first_marks, number, others_below
from parley.engine.core.stats.rows import Row
from parley.engine.core.stats.statistics import NOTHING
from parley.engine.ranking.metrics.movement import expected_ranks
from parley.engine.ranking.metrics.search_tables import attacks_of, points_in
from parley.engine.ranking.metrics.searched import (
    AHEAD,
    BASELINE,
    CONTROLS,
    MEDIAN_QUERIES,
    SUCCESS,
    TRANSFER,
    baseline_of,
    describe_search,
)
from parley.engine.ranking.page.examples import AttackedContext, ShownCandidate, context_item, marked, moved, said_by
from parley.engine.ranking.page.sections import ShownSearches, measured_section
from parley.engine.ranking.verbs.attack import ATTACK_RANKING, BUDGET, GOAL
from parley.engine.ranking.verbs.prepared import not_scored
from parley.envs.core.seeds import stable_hash
from parley.envs.core.visible import visible

NUM_SHOWN = 10
"""Contexts of a method on a ranker that the viewer holds."""
_SUCCESS = SHARE._replace(title="Goal reached", definition="share of the attacked contexts")


Shown = Sequence[ShownSearches]


class RankerAttacks(Chapter[Shown]):
    """The chapter of attacks on rankers."""

    name, title = "ranker-attacks", "Attacks on rankers"
    jobs = (ATTACK_RANKING.name,)
    terms: ClassVar = {
        r"\bquer(y|ies)\b": ("Query", "one reply scored in its context; scores before any edit are none, nor are repeats."),
        r"\brandom\b": ("random", "the baseline: random edits at the same budget."),
        r"\bgreedy\b": ("greedy", "words by what erasing them does, each by its best edit."),
        r"\bbeam\b": ("beam", "all edits of the best few drafts, edit after edit."),
        r"\bgradient\b": ("gradient", "replacements that the ranker's own slopes point to; slopes are no queries."),
        r"\bgaslite\b": ("gaslite", "words of the encoder's vocabulary behind the reply, by slopes averaged over some texts."),
        r"\brandom-steps\b": ("random-steps", "gaslite without slopes: random words in its steps, from the best text so far."),
        r"\brandom-words\b": ("random-words", "as many random words there, all drawn anew for each query."),
        r"[Tt]ransfer": ("Transfer", "edits that were found on one ranker, shown to another one."),
    }

    def collect(self, runs: Sequence[Run]) -> Shown | None:
        return [_attacked(run) for run in runs if run.rows] or None

    def verdict(self, found: Shown) -> Verdict | None:
        """On the first run and its first ranker: the best method against the baseline, with all queries and with few."""
        measured = [each for each in found if each.metrics]
        if not measured:
            return None
        first = measured[0]
        attacks = attacks_of(first.known)
        model, budget = attacks[0][0], first.budget
        methods = {method: first.reached(of, method, budget) for of, method in attacks if of == model}
        if not methods[BASELINE].n:
            return None
        # One that ended without scores everywhere has no figure.
        others = [method for method, success in methods.items() if method not in CONTROLS and success.n]
        best = max(others, key=lambda method: _worth(first, model, method), default=BASELINE)
        few = points_in(first.known)[0]
        told = [
            f"{visible(best)} reaches the goal on {visible(model)} ({first.goal}) in {number(SHARE, methods[best].value)} of "
            f"the attacked contexts with {budget:,} queries and in {number(SHARE, first.reached(model, best, few).value)} "
            f"with {few:,}"
        ]
        control = baseline_of(best)
        if best != BASELINE and control in methods:
            ahead = first.known.get(f"{AHEAD}{budget}.{model}.{best}", NOTHING)
            sign = {1: ", certainly fewer", 0: "", -1: ", certainly more"}[certain_sign(ahead)]
            early = first.reached(model, control, few)
            told.append(
                f"{CONTROLS[control]} in {number(SHARE, methods[control].value)}{sign}, and in {number(SHARE, early.value)}"
            )
        told += [
            f"{number(SHARE, estimate.value)} of its successes fool {visible(other)} too"
            for other in dict.fromkeys(of for of, _ in attacks)
            if (estimate := first.known.get(f"{TRANSFER}.{model}.{other}.{best}", NOTHING)).n
        ]
        marks = {f"{visible(model)}, {visible(method)}": first.reached(model, method, budget) for model, method in attacks}
        return Verdict(
            sentence=f"{'; '.join(told)}.{caveat(methods[best], unit='dialogues')}{others_below(measured, 'runs')}",
            metric=_SUCCESS,
            marks=first_marks({name: mark for name, mark in marks.items() if mark.n}),
        )

    def render(self, found: Shown) -> Section:
        # matplotlib costs a second, which readers of the verdict need not pay.
        from parley.engine.ranking.page.search_figures import search_figures

        return measured_section(found, search_figures, _items_of)


def _items_of(run: ShownSearches) -> dict[str, list[Item]]:
    return {
        f"{run.name}, {visible(method)} on {visible(model)}": searched_items(run, model, method)
        for model, method in run.searched.searches
    }


def searched_items(run: ShownSearches, model: str, method: str) -> list[Item]:
    """Contexts whose reply a method edited: first where it reached the goal."""
    found = [(number, each) for number, each in run.searched.tried(model, method) if each["num_changed"]]
    found.sort(key=lambda pair: (pair[1]["status"] != "success", stable_hash("report", run.searched.rows[pair[0]]["item_key"])))
    group = f"{run.name}, {visible(method)} on {visible(model)}"
    return [context_item(group, read_search(run.searched.rows[number], each)) for number, each in found[:NUM_SHOWN]]


def read_search(row: Row, found: Row) -> AttackedContext:
    """An attacked context, ready to be shown.

    Args:
        row: of the context.
        found: what a method did to one of its replies, one of its `searches`.
    """
    place, right = found["place"], row["labels"]
    (scores,) = (each["scores"] for each in row["before"] if each["model"] == found["model"])
    before = expected_ranks(scores)
    after = expected_ranks(np.where(np.arange(len(scores)) == place, found["score"], scores).tolist())
    queries = found["queries"]
    return AttackedContext(
        key=visible(str(row["item_key"])),
        context=[said_by(turn) for turn in row["context"]],
        rankers=[visible(found["model"])],
        candidates=[
            ShownCandidate(
                marked(text, found["text"] if number == place else text),
                right[number],
                number == place,
                [moved(before[number], after[number])],
            )
            for number, text in sorted(enumerate(row["candidates"]), key=lambda each: (after[each[0]], each[0]))
        ],
        before=float(before[place]),
        after=float(after[place]),
        num_changed=found["num_changed"],
        reply=said_by(row["candidates"][place]),
        fooled=found["status"] == "success",
        remarks=[f"{queries:,} {'query' if queries == 1 else 'queries'}", *(", ".join(found["moves"]),) * bool(found["moves"])],
    )


def _attacked(run: Run) -> ShownSearches:
    budget = run.summary.get(BUDGET, 1)
    wanted = f"{SUCCESS}{budget}."
    return ShownSearches.of(
        run,
        # All others stand in the tables.
        metrics={name: estimate for name, estimate in run.metrics.items() if name.startswith(wanted)},
        legend={name: describe_search(name) for name in run.metrics if name.startswith(wanted)},
        known=run.metrics,
        tables=ATTACK_RANKING.tables(run.folder) if run.metrics else {},
        goal=run.summary.get(GOAL, ""),
        budget=budget,
        not_scored=not_scored(run.summary),
    )


def _worth(run: ShownSearches, model: str, method: str) -> tuple[float, float]:
    """Success with all queries, then few queries."""
    spent = run.known.get(f"{MEDIAN_QUERIES}.{model}.{method}", NOTHING)
    return run.reached(model, method, run.budget).value, -spent.value
