"""The chapters of attacks on rankers and of campaigns that harden rankers.

Drawings of attacks: success against queries, and transfer between rankers as a heat table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
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
    SearchedRows,
    attacks_of,
    baseline_of,
    describe_search,
    expected_ranks,
    points_in,
    points_of,
)
from parley.engine.ranking.page.chapter import (
    AttackedContext,
    RankedCandidate,
    RankersRun,
    context_item,
    marked,
    measured_section,
    rank_change,
    shown_text,
)
from parley.engine.ranking.verbs.attack import ATTACK_RANKING, BUDGET, GOAL
from parley.engine.ranking.verbs.minmax import MINMAX_RANKING
from parley.engine.ranking.verbs.prepared import not_scored
from parley.envs.core.seeds import stable_hash
from parley.envs.core.visible import visible

_STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
"""Numbers of queries at which a curve is drawn."""


@dataclass(frozen=True, kw_only=True)
class RankerAttackRun(RankersRun):
    """A run of attacks on rankers.

    Args:
        goal: of the attacks, in words.
        budget: the most queries.
    """

    goal: str = ""
    budget: int = 1

    @cached_property
    def searched(self) -> SearchedRows:
        """The rows by ranker and method."""
        return SearchedRows(self.rows)

    def reached(self, model: str, method: str, queries: int) -> Estimate:
        """Return the success of a method on a ranker within some number of queries."""
        return self.estimates.get(f"{SUCCESS}{queries}.{model}.{method}", NOTHING)


def search_figures(run: RankerAttackRun) -> list[Figure]:
    """Return a curve for each ranker, and a heat table for each method if there are several rankers."""
    models = run.searched.models
    methods = list(dict.fromkeys(method for _, method in run.searched.searches))
    curves = [_curves(run, model) for model in models]
    return curves + ([_heat(run, method, models) for method in methods] if len(models) > 1 else [])


def _curves(run: RankerAttackRun, model: str) -> Figure:
    steps = sorted({*points_of(run.budget), *(step for step in _STEPS if step < run.budget)})
    # Methods on all rankers come first, so that a method has one colour in all drawings.
    num_rankers = Counter(method for _, method in run.searched.searches)
    methods = sorted((method for of, method in run.searched.searches if of == model), key=lambda method: -num_rankers[method])
    curves = {visible(method): run.searched.curve(model, method, steps) for method in methods}
    series = {label: points for label, points in curves.items() if points[0][1].n}
    title = f"{run.name}, {visible(model)}"
    caption = f"{run.name}: {run.goal}; share of the attacked contexts; bands are 95 % intervals; a rule makes one query"
    drawn = plots.budget_svg(f"{title}, success", "queries at most", series, "goal reached") if series else ""
    return Figure(f"Success against queries, {visible(model)}", caption, Markup(drawn))


def _heat(run: RankerAttackRun, method: str, models: Sequence[str]) -> Figure:
    def cell(attacked: str, other: str) -> tuple[float, str] | None:
        success, transfer = f"{SUCCESS}{run.budget}.{other}.{method}", f"{TRANSFER}.{attacked}.{other}.{method}"
        share = run.estimates.get(success if attacked == other else transfer, NOTHING)
        return (share.value, f"{100 * share.value:.0f} %\nn {share.n:,}") if share.n else None

    caption = (
        f"{run.name}: of the successes on the ranker of the line the share that reach the goal on that of the column; on the "
        "diagonal success itself; n: dialogues"
    )
    title, names = f"Transfer of {visible(method)}", [visible(name) for name in models]
    cells = [[cell(attacked, other) for other in models] for attacked in models]
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
        """Answer with the right replies that stay first under attack: start, control and result."""
        names = {column: f"{HELD}{ending}" for column, ending in RANKERS.endings.items()}
        held = {column: metrics[name] for column, name in names.items() if name in metrics}
        sentence = (
            f"Under attack the right reply stays first in {number(SHARE, held['after'].value)} of the contexts, before the "
            f"hardening in {number(SHARE, held['before'].value)}{certainly(metrics[GAIN], 'fewer', 'more')}"
        )
        if GAIN_BEYOND_CONTROL in metrics:
            sentence += f", after as much training on replies as they are in {number(SHARE, held['control'].value)}"
            sentence += certainly(metrics[GAIN_BEYOND_CONTROL], "fewer", "more")
        return Verdict(sentence=f"{sentence}.{caveat(*held.values(), unit='dialogues')}", metric=_HELD, marks=held)


NUM_SHOWN = 10
"""Contexts of a method on a ranker in the viewer."""
_SUCCESS = SHARE._replace(title="Goal reached", definition="share of the attacked contexts")


Runs = Sequence[RankerAttackRun]


class RankerAttacks(Chapter[Runs]):
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

    def collect(self, runs: Sequence[Run]) -> Runs | None:
        return [_attacked(run) for run in runs if run.rows] or None

    def verdict(self, runs: Runs) -> Verdict | None:
        """Answer for the first run and ranker: the best method against its control, with all queries and few."""
        measured = [run for run in runs if run.metrics]
        if not measured:
            return None
        first = measured[0]
        attacks = attacks_of(first.estimates)
        model, budget = attacks[0][0], first.budget
        methods = {method: first.reached(of, method, budget) for of, method in attacks if of == model}
        if not methods[BASELINE].n:
            return None
        # A method that ended without scores everywhere has no figure.
        contenders = [method for method, success in methods.items() if method not in CONTROLS and success.n]
        best = max(contenders, key=lambda method: _worth(first, model, method), default=BASELINE)
        few = points_in(first.estimates)[0]
        sentences = [
            f"{visible(best)} reaches the goal on {visible(model)} ({first.goal}) in {number(SHARE, methods[best].value)} of "
            f"the attacked contexts with {budget:,} queries and in {number(SHARE, first.reached(model, best, few).value)} "
            f"with {few:,}"
        ]
        control = baseline_of(best)
        if best != BASELINE and control in methods:
            ahead = first.estimates.get(f"{AHEAD}{budget}.{model}.{best}", NOTHING)
            sign = {1: ", certainly fewer", 0: "", -1: ", certainly more"}[certain_sign(ahead)]
            early = first.reached(model, control, few)
            sentences.append(
                f"{CONTROLS[control]} in {number(SHARE, methods[control].value)}{sign}, and in {number(SHARE, early.value)}"
            )
        sentences += [
            f"{number(SHARE, estimate.value)} of its successes fool {visible(other)} too"
            for other in dict.fromkeys(of for of, _ in attacks)
            if (estimate := first.estimates.get(f"{TRANSFER}.{model}.{other}.{best}", NOTHING)).n
        ]
        marks = {f"{visible(model)}, {visible(method)}": first.reached(model, method, budget) for model, method in attacks}
        return Verdict(
            sentence=f"{'; '.join(sentences)}.{caveat(methods[best], unit='dialogues')}{others_below(measured, 'runs')}",
            metric=_SUCCESS,
            marks=first_marks({name: mark for name, mark in marks.items() if mark.n}),
        )

    def render(self, runs: Runs) -> Section:
        return measured_section(runs, search_figures, _items_of)


def _items_of(run: RankerAttackRun) -> dict[str, list[Item]]:
    return {
        f"{run.name}, {visible(method)} on {visible(model)}": searched_items(run, model, method)
        for model, method in run.searched.searches
    }


def searched_items(run: RankerAttackRun, model: str, method: str) -> list[Item]:
    """Return contexts whose reply a method edited, those with success first."""
    rows = run.searched.rows
    edited = [(rows[number], search) for number, search in run.searched.tried(model, method) if search["num_changed"]]
    edited.sort(key=lambda pair: (pair[1]["status"] != "success", stable_hash("report", pair[0]["item_key"])))
    group = f"{run.name}, {visible(method)} on {visible(model)}"
    return [context_item(group, read_search(row, search)) for row, search in edited[:NUM_SHOWN]]


def read_search(row: Row, search: Row) -> AttackedContext:
    """Return an attacked context.

    Args:
        row: of the context.
        search: the result of a method, one of its `searches`.
    """
    edited, right = search["place"], row["labels"]
    (scores,) = (entry["scores"] for entry in row["before"] if entry["model"] == search["model"])
    before = expected_ranks(scores)
    after = expected_ranks(np.where(np.arange(len(scores)) == edited, search["score"], scores).tolist())
    queries = search["queries"]
    return AttackedContext(
        key=visible(str(row["item_key"])),
        context=[shown_text(turn) for turn in row["context"]],
        rankers=[visible(search["model"])],
        candidates=[
            RankedCandidate(
                marked(row["candidates"][index], search["text"] if index == edited else row["candidates"][index]),
                right[index],
                index == edited,
                [rank_change(before[index], after[index])],
            )
            for index in sorted(range(len(after)), key=lambda index: (after[index], index))
        ],
        before=float(before[edited]),
        after=float(after[edited]),
        num_changed=search["num_changed"],
        reply=shown_text(row["candidates"][edited]),
        fooled=search["status"] == "success",
        remarks=[
            f"{queries:,} {'query' if queries == 1 else 'queries'}",
            *(", ".join(search["moves"]),) * bool(search["moves"]),
        ],
    )


def _attacked(run: Run) -> RankerAttackRun:
    budget = run.summary.get(BUDGET, 1)
    shown = [name for name in run.metrics if name.startswith(f"{SUCCESS}{budget}.")]
    return RankerAttackRun.of(
        run,
        # The tables show all others.
        metrics={name: run.metrics[name] for name in shown},
        legend={name: describe_search(name) for name in shown},
        estimates=run.metrics,
        tables=ATTACK_RANKING.tables(run.folder) if run.metrics else {},
        goal=run.summary.get(GOAL, ""),
        budget=budget,
        not_scored=not_scored(run.summary),
    )


def _worth(run: RankerAttackRun, model: str, method: str) -> tuple[float, float]:
    """Return success with all queries, then the negative number of queries, to compare methods."""
    spent = run.estimates.get(f"{MEDIAN_QUERIES}.{model}.{method}", NOTHING)
    return run.reached(model, method, run.budget).value, -spent.value
