"""Attacks on rankers under a budget of queries, from run folders to what their report shows.

Drawings of attacks on rankers: success against queries, and transfer between rankers as a heat table.

Campaigns that harden rankers, from run folders to what their report shows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
from markupsafe import Markup

from parley.engine.core.page import plots
from parley.engine.core.page.content import Chapter, Figure, Item, Run, Section, Stages, Verdict
from parley.engine.core.page.page import SHARE, caveat, certain_sign, first_marks, number, others_below
from parley.engine.core.page.trainings import CurveSource, Hardenings, certainly
from parley.engine.core.stats.statistics import NOTHING, Estimate, Row
from parley.engine.core.verbs.hardening import CONTROL, RESULT, START
from parley.engine.ranking.metrics.campaign import ATTACKS, GAIN, GAIN_BEYOND_CONTROL, HELD, RANKERS
from parley.engine.ranking.metrics.searched import (
    AHEAD,
    BASELINE,
    CONTROLS,
    MEDIAN_QUERIES,
    SUCCESS,
    TRANSFER,
    attacks_of,
    baseline_of,
    describe_search,
    expected_ranks,
    points_in,
    points_of,
)
from parley.engine.ranking.page.chapter import AttackedContext, ShownCandidate, context_item, marked, moved, said_by
from parley.engine.ranking.page.sections import ShownSearches, measured_section
from parley.engine.ranking.verbs.attack import ATTACK_RANKING, BUDGET, GOAL
from parley.engine.ranking.verbs.minmax import MINMAX_RANKING
from parley.engine.ranking.verbs.prepared import not_scored
from parley.envs.core.seeds import stable_hash
from parley.envs.core.visible import visible

_STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
"""Numbers of queries at which a curve is drawn."""


def search_figures(run: ShownSearches) -> list[Figure]:
    """All drawings of a run: a curve for each ranker, and a heat table for each method where there are several rankers."""
    models = run.searched.models
    methods = list(dict.fromkeys(method for _, method in run.searched.searches))
    found = [_curves(run, model) for model in models]
    return found + ([_heat(run, method, models) for method in methods] if len(models) > 1 else [])


def _curves(run: ShownSearches, model: str) -> Figure:
    steps = sorted({*points_of(run.budget), *(step for step in _STEPS if step < run.budget)})
    # Those that all rankers meet come first, so that a method has one colour in all drawings.
    met = Counter(method for _, method in run.searched.searches)
    methods = sorted((method for of, method in run.searched.searches if of == model), key=lambda method: -met[method])
    curves = {visible(method): run.searched.curve(model, method, steps) for method in methods}
    series = {label: points for label, points in curves.items() if points[0][1].n}
    title = f"{run.name}, {visible(model)}"
    caption = f"{run.name}: {run.goal}; share of the attacked contexts; bands are 95 % intervals; a rule makes one query"
    drawn = plots.budget_svg(f"{title}, success", "queries at most", series, "goal reached") if series else ""
    return Figure(f"Success against queries, {visible(model)}", caption, Markup(drawn))


def _heat(run: ShownSearches, method: str, models: Sequence[str]) -> Figure:
    def cell(attacked: str, asked: str) -> tuple[float, str] | None:
        own, others = f"{SUCCESS}{run.budget}.{asked}.{method}", f"{TRANSFER}.{attacked}.{asked}.{method}"
        found = run.known.get(own if attacked == asked else others)
        return (found.value, f"{100 * found.value:.0f} %\nn {found.n:,}") if found is not None and found.n > 0 else None

    caption = (
        f"{run.name}: of the successes on the ranker of the line the share that reach the goal on that of the column; on the "
        "diagonal success itself; n: dialogues"
    )
    title, names = f"Transfer of {visible(method)}", [visible(name) for name in models]
    cells = [[cell(attacked, asked) for asked in models] for attacked in models]
    drawn = plots.heat_svg(f"{run.name}, {title}", names, names, cells, ("shown to", "found on"))
    return Figure(title, caption, Markup(drawn))


_HELD = SHARE._replace(title="Right reply first under attack", definition="share of the contexts")


class HardenedRankers(Hardenings):
    """The chapter of campaigns."""

    name, title = "hardened-rankers", "Hardened rankers"
    job, unhelped = MINMAX_RANKING, MINMAX_RANKING.unhelped
    words = ATTACKS
    sources: ClassVar = (
        CurveSource(
            "round",
            "what adversaries reach",
            "share of the attacked contexts",
            {
                "fresh policy": "exploitability",
                "search": "search_success",
                "last policy, before": "policy_before",
                "after": "policy_after",
            },
        ),
        CurveSource(
            "round", "right replies first", "share of the contexts", {"as they are": "clean", "under attack": "under_attack"}
        ),
    )
    stages: ClassVar = {
        MINMAX_RANKING.name: Stages(
            {
                f"{START}-attack": "attacks on the start",
                f"{RESULT}-attack": "attacks on the result",
                f"{CONTROL}-attack": "attacks on the control",
            },
            others="hidden",
        )
    }
    terms: ClassVar = {
        r"\bpolic(y|ies)\b": ("Policy", "a network that chooses which word of a reply becomes which word of the context."),
        r"\bcontrol\b": ("Control", "the same ranker, trained as long on replies as they are."),
    }

    def verdict_of(self, metrics: Mapping[str, Estimate]) -> Verdict:
        """Right replies that stay first under attack: start, control and result."""
        held = {told: metrics[f"{HELD}{ending}"] for told, ending in RANKERS.endings.items() if f"{HELD}{ending}" in metrics}
        said = (
            f"Under attack the right reply stays first in {number(SHARE, held['after'].value)} of the contexts, before the "
            f"hardening in {number(SHARE, held['before'].value)}{_told(metrics[GAIN])}"
        )
        if GAIN_BEYOND_CONTROL in metrics:
            said += f", after as much training on replies as they are in {number(SHARE, held['control'].value)}"
            said += _told(metrics[GAIN_BEYOND_CONTROL])
        return Verdict(sentence=f"{said}.{caveat(*held.values(), unit='dialogues')}", metric=_HELD, marks=held)


def _told(gain: Estimate) -> str:
    return certainly(gain, "fewer", "more")


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
