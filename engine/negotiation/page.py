"""The chapters of negotiations: adversarial training, matches and attacks, tactics, populations.

The viewer shows dialogues: the scenario, the talk with replaced words marked, and the deal.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from heapq import nsmallest
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from markupsafe import Markup

from parley.engine.core.page.content import Chapter, CurveSource, Figure, Item, Run, Stages, Verdict, read_curves, told_apart
from parley.engine.core.page.markup import badges, joined, line
from parley.engine.core.page.page import MINUS, MOST_MARKS, POINTS, SHARE, brief_name, certain_sign, first_marks, listed, number
from parley.engine.core.stats.known import EXPLOITABILITY, MEAN_FRESH
from parley.engine.core.stats.rows import selected
from parley.engine.core.stats.statistics import NOTHING, Estimate, Metric, Points, Row, has_lost
from parley.engine.core.tables.table import (
    DIGITS,
    PERCENT,
    Column,
    EstimateTable,
    Form,
    MarkedEstimate,
    TableCell,
    TableRow,
    figure,
    metric_table,
    with_interval,
)
from parley.engine.core.verbs.campaign import rounds_of
from parley.engine.core.verbs.recipe_job import labels_of
from parley.engine.negotiation.attacks.tactics import ARMS, NONE, REFINED
from parley.engine.negotiation.attacks.tactics import ATTACKERS as TACTICIANS
from parley.engine.negotiation.metrics.attack import REACTIVE, Attempt, budget_curves
from parley.engine.negotiation.metrics.campaign import PLAIN_AGREEMENT, REPEATS, REPETITION, ROUND_METRICS, SINGLE, VALUE
from parley.engine.negotiation.metrics.dialogues import TACTIC_METRICS, TacticResults, tactics_table
from parley.engine.negotiation.verbs.exploitability import BEST, EVALUATE_EXPLOITABILITY, MORE, NUM_KNOWN, by_budget
from parley.engine.negotiation.verbs.match import DIALOGUES, OF_DEFENCES
from parley.engine.negotiation.verbs.minmax import (
    AS_CONTROL,
    BEFORE_TRAINING,
    DROP,
    DROP_BEYOND_CONTROL,
    FINAL_STAGES,
    LEGEND,
    MINMAX,
)
from parley.engine.negotiation.verbs.population import AGENTS, EVALUATE_POPULATION, PAYOFF, RATINGS, ROLES, estimates_of
from parley.engine.negotiation.verbs.table import ALL_ATTACKS, ATTACK_TABLE, ROWS
from parley.engine.negotiation.verbs.tactic import ATTACK_TACTIC, played_tactics
from parley.engine.negotiation.verbs.trigger import ATTACK_TRIGGER
from parley.engine.negotiation.verbs.whitebox import ATTACK_RA_PA_DA, ATTACK_RA_PA_TA
from parley.envs.core.seeds import stable_hash
from parley.envs.negotiation.domain import DEAL_OR_NO_DEAL, ILLEGAL, SELECTION, Domain, domain_of, domain_recorded

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PLAIN = "selfplay"
"""The job of matches without an attack."""
ATTACKERS = {
    "attack-rl": "a trained adversary",
    "attack-transfer": "a sentence that won elsewhere",
    "attack-tactic": "a chat model with a written tactic",
    "attack-trigger": "a search for words to add",
    "attack-reactive": "a search for the last word",
    "attack-preemptive": "a search for modest requests",
    "attack-ra-pa-da": "a combined search (RA+PA+DA)",
    "attack-ra-pa-ta": "a combined search (RA+PA+TA)",
    "evaluate-exploitability": "the best known adversary",
}
SIDES = ("adversary", "target")
BEST_AND_WORST = 20
"""Dialogues of a match in the viewer, of each kind: the adversary's best, its worst, and random others."""
_AHEAD = Metric("Points ahead", "higher: adversary", "the adversary's points less the target's, mean over all dialogues")
_AGREES = 0.5
"""Share of plain dialogues in which a hardened target has to agree, or its verdict says so."""
STEPLESS = (ATTACK_RA_PA_DA.name, ATTACK_RA_PA_TA.name, ATTACK_TRIGGER.name)
"""Attacks that record only successful searches, or only the beginning and the end of each."""
_OF_DIALOGUES = set(DIALOGUES.names) - set(OF_DEFENCES)
"""Columns of a dialogue in runs of all versions; those before defences have no others."""
_BUDGETS = {
    "replaced": ("Advantage by replaced words", "words that may be replaced", "a word that is replaced twice counts twice"),
    "queries": (
        "Advantage by queries of the target",
        "queries that may be made",
        "a query asks whether a sentence makes the target end the talk, or what it would then choose; gradients do not count",
    ),
}
"""Title, axis label and explanation of each budget, by its name in `budget_curves`."""
_WITHOUT_CURVE = "preemptive and trigger attacks record no steps, combined ones only those that succeeded: these have no curve"
_KEY = Markup(
    'one bubble per result, its area the number of dialogues: <span class="key tint">deals</span> <span class="key good">of '
    'them Pareto optimal</span> <span class="key dull">no deal</span> <span class="key mean">mean</span>; below the dashed '
    "line the adversary earned more"
)
_NOTE_CHOSEN = (
    f"The viewer holds the {BEST_AND_WORST} best and the {BEST_AND_WORST} worst dialogues for the adversary, and as many drawn "
    "by chance; the others are in the run's rows."
)
_TERMS = {
    r"\bside [01]\b": ("Side", "0 is the adversary, 1 the target; each speaks in turn and chooses items for itself."),
    r"\bElo\b": ("Elo", "a rating of who earns more points: 400 more are odds of ten to one."),
    r"equilibrium|\bnash\b": ("Equilibrium", "mixtures of agents that neither side gains by leaving (Nash)."),
    r"\bPAR\b|positive advantage rate": (
        "PAR",
        "positive advantage rate: share of dialogues in which the adversary earns no less than the target; 0 : 0 counts.",
    ),
    r"forced": (
        "Forced end",
        "once an attack's sentence makes that likely, the target must end the talk, and what it would then choose counts.",
    ),
    r"\blive\b": ("Live", "the target answers and decides itself."),
    r"exploitability": (
        "Exploitability",
        "points that the best known adversary is ahead, in dialogues that did not choose it; a bound from below.",
    ),
    r"pareto": ("Pareto optimal", "no other deal gives one side more and the other no less."),
    r"reactive": ("Reactive", "the attack wants the target to end the talk at once and to choose badly."),
    r"preemptive": ("Preemptive", "the attack wants the target to ask for less in its next sentence."),
    r"held.out": ("Held out", "dialogues that chose no tactic, and that no attacker has seen."),
    r"judge": ("Judge", "the model that says how likely, and so how usual, a sentence is."),
}


def advantage(run: Run) -> Estimate:
    """Return the points that the adversary of a match is ahead; `NOTHING` if they were not measured."""
    return run.metrics.get("advantage", NOTHING)


def _dialogues(run: Run) -> Sequence[Row]:
    """Return the finished dialogues of a match; none of a run whose rows are no dialogues."""
    return run.done if run.rows and set(run.rows[0]) >= _OF_DIALOGUES else []


def _is_attack(run: Run) -> bool:
    return run.job != PLAIN and run.arm != NONE and math.isfinite(advantage(run).value)


def _domain(row: Row) -> Domain:
    return domain_recorded(row["counts"], (row["values_adversary"], row["values_target"]))


def _best_deal(run: Run) -> int:
    """Return the points of the best deal of its game for a side; of Deal or No Deal if there is no dialogue."""
    rows = _dialogues(run)
    return (_domain(rows[0]) if rows else domain_of(DEAL_OR_NO_DEAL)).best


_COLUMNS = (
    Column("advantage, live", "{run}.advantage"),
    Column("advantage, forced", "{run}.forced_advantage", optional=True),
    Column("adversary's points", "{run}.score_adversary"),
    Column("target's points", "{run}.score_target"),
    Column("PAR", "{run}.par", PERCENT),
    Column("wins", "{run}.par_strict", PERCENT),
    Column("agreement", "{run}.agreement", PERCENT),
    Column("stopped", "{run}.stopped_share", PERCENT, optional=True),
    Column("refused", "{run}.refused_share", PERCENT, optional=True),
    Column("fluency", "{run}.attack_ppl", optional=True),
    Column("unusual", "{run}.unusual_share", PERCENT, optional=True),
    Column("seconds", "{run}.seconds", DIGITS, optional=True),
)
_NOTE_ATTACKS = (
    "Live: the target answers and decides itself. Forced: the target must end where an attack sentence satisfies the end "
    "constraint. PAR: ties count. Fluency: perplexity of the attack sentences under the judge. Brackets: 95 % intervals."
)


class Negotiations(Chapter):
    """The chapter of matches, attacks and tables of attacks."""

    name, title, unit = "negotiation", "Negotiation", "dialogues"
    jobs = (PLAIN, ATTACK_TABLE.name, *(job for job in ATTACKERS if job != ATTACK_TACTIC.name))
    stages: ClassVar = {
        ATTACK_TABLE.name: Stages(lambda summary: ROWS | labels_of(summary, ALL_ATTACKS)),
        EVALUATE_EXPLOITABILITY.name: Stages({BEST: "best known adversary"}, others="hidden"),
    }
    terms: ClassVar = _TERMS

    def shows(self, run: Run) -> bool:
        """Return whether a match was measured or has dialogues; other runs may have tables."""
        if run.job == ATTACK_TABLE.name:
            return bool(run.metrics)
        return bool(run.shown and (run.metrics or run.rows)) or bool(self.tables(run))

    def verdict(self, runs: Sequence[Run]) -> Verdict | None:
        """Return the gain of the strongest attack or, without any, that of the first match."""
        matches = [run for run in runs if run.shown and run.job != ATTACK_TABLE.name]
        attacks = sorted(filter(_is_attack, matches), key=lambda run: -advantage(run).value)
        plain = [run for run in matches if not _is_attack(run) and math.isfinite(advantage(run).value)]
        if not attacks and not plain:
            return None
        # A table of several targets and defences has too many marks.
        marked = [run for run in matches if run in plain or run in attacks]
        marked = marked if len(marked) <= MOST_MARKS else [*plain[:1], *attacks]
        first, details = (attacks or plain)[0], []
        if attacks:
            ahead = sum(certain_sign(advantage(run)) > 0 for run in attacks)
            details += [f"Certainly ahead are {ahead} of {len(attacks)} attacks."] * (len(attacks) > 1)
            without, forced = (first.metrics.get(name, NOTHING) for name in ("untouched_advantage", "forced_advantage"))
            if without.n:
                points = number(POINTS, forced.value), number(POINTS, without.value)
                details.append("If the target ended the talk there, {} points ahead; {} without these words.".format(*points))
        elif len(plain) > 1:
            details.append(f"{len(plain) - 1} more matches are below.")
        return Verdict(
            sentence=_attacked(first) if attacks else _played(first),
            metric=_AHEAD,
            number=advantage(first),
            label=f"Points ahead, {first.heading}" if len(marked) > 1 else "",
            unit="dialogues",
            marks=first_marks({run.heading: advantage(run) for run in marked}),
            warnings=_without_effect(matches),
            details=details,
            rank=int(not attacks or first.job == EVALUATE_EXPLOITABILITY.name),
        )

    def shown(self, run: Run) -> Mapping[str, Estimate]:
        return {} if run.job == ATTACK_TABLE.name or not run.shown else run.metrics

    def tables(self, run: Run) -> Mapping[str, EstimateTable]:
        """Return the table of attacks, or the known and the fresh adversaries of one target."""
        return run.tables if run.job in (ATTACK_TABLE.name, EVALUATE_EXPLOITABILITY.name) else {}

    def shared_tables(self, runs: Sequence[Run]) -> Mapping[str, EstimateTable]:
        """Return all attacks side by side, if no table on the page holds them."""
        attacks = {str(i): run for i, run in enumerate(runs) if run.job.startswith("attack-") and run.metrics}
        attacks = {i: run for i, run in attacks.items() if run.job != ATTACK_TABLE.name}
        if len(attacks) < 2 or any(run.job == ATTACK_TABLE.name and run.tables and not run.name for run in runs):
            return {}
        metrics = {f"{i}.{name}": estimate for i, run in attacks.items() for name, estimate in run.metrics.items()}
        rows = [TableRow(run.heading, {"run": i}) for i, run in attacks.items()]
        return {"Attacks side by side": metric_table(metrics, "attack", rows, _COLUMNS, _NOTE_ATTACKS, n="{run}.advantage")}

    def notes(self, run: Run) -> Iterable[str]:
        rows = _dialogues(run)
        return [_NOTE_CHOSEN] if len(rows) > 3 * BEST_AND_WORST else []

    def shared_figures(self, runs: Sequence[Run]) -> Iterable[Figure]:
        """Return what adversaries learned by budget, the points of each match, and gains of searches within a budget."""
        from parley.engine.core.page import plots

        budgets = {
            run.heading: points
            for run in runs
            if run.job == EVALUATE_EXPLOITABILITY.name and len(points := by_budget(run.folder)) > 1
        }
        if budgets:
            title, label = "Mean of fresh adversaries by budget", "dialogues that adversaries learned from"
            caption = "mean over the adversaries of a target, each as it was after so many dialogues; with 95 % intervals"
            yield plots.budget(title, caption, label, budgets)
        played = [run for run in runs if run.shown and _dialogues(run)]
        for index, run in enumerate(played):
            yield _outcomes(run, explained=not index)
        yield from _within_budgets(played)

    def items(self, run: Run) -> Iterable[tuple[str, Iterable[Item]]]:
        """Return the best dialogue for the adversary, the worst, then the others of `BEST_AND_WORST`."""
        if not run.shown or not (rows := _dialogues(run)):
            return
        best, worst = extremes(rows)
        taken = {str(row["item_key"]) for row in (*best, *worst)}
        others = (row for row in rows if str(row["item_key"]) not in taken)
        left = nsmallest(BEST_AND_WORST, others, lambda row: stable_hash("report", str(row["item_key"])))
        links = ["best for the adversary", *["worst for the adversary"] * bool(worst)]
        chosen = [*best[:1], *worst[:1], *best[1:], *worst[1:], *left]
        yield "", (dialogue(row, links[index] if index < len(links) else "") for index, row in enumerate(chosen))


def _attacked(run: Run) -> str:
    who = ATTACKERS.get(run.job, f"the attack {run.job.removeprefix('attack-')}")
    won = {1: "is certainly ahead", 0: "is not certainly ahead", -1: "stays certainly behind"}[certain_sign(advantage(run))]
    scores = [run.metrics.get(f"score_{side}", NOTHING).value for side in SIDES]
    points = f"ends {number(POINTS, advantage(run).value)} points from the target"
    if all(map(math.isfinite, scores)):
        adversary, target = (number(POINTS, score) for score in scores)
        points = f"takes {adversary} of {_best_deal(run)} points and leaves the target {target}"
    return f"{who[:1].upper()}{who[1:]} {points}: it {won}."


def _played(run: Run) -> str:
    points = " to ".join(number(POINTS, run.metrics.get(f"score_{side}", NOTHING).value) for side in SIDES)
    deals = number(SHARE, run.metrics.get("agreement", NOTHING).value)
    return f"{brief_name(run.heading)}: {points} of {_best_deal(run)} points, a deal in {deals} of the dialogues."


def _without_effect(matches: Sequence[Run]) -> list[str]:
    """Return sentences on attacks that changed no word, and on matches with the same points."""
    played = [(run, rows) for run in matches if (rows := _dialogues(run))]
    unchanged = []
    for run, rows in played:
        edits = ((row, attempt) for row in rows for attempt in row.get("attempts", ()))
        is_edited = any(row["turns"][attempt["turn"]]["words"] != attempt["base"] for row, attempt in edits)
        if run.job != PLAIN and any("attempts" in row for row in rows) and not is_edited:
            unchanged.append(run.heading)
    sentences = [f"No word was changed by: {listed(unchanged)}."] if unchanged else []
    by_points: dict[int, list[Run]] = {}
    for run, rows in played:
        shown = selected(rows, "item_key", "points_adversary", "points_target")
        digests = (stable_hash(str(row["item_key"]), row["points_adversary"], row["points_target"]) for row in shown)
        by_points.setdefault(sum(digests), []).append(run)
    alike = [runs for runs in by_points.values() if len(runs) > 1 and any(run.job != PLAIN for run in runs)]
    return sentences + [f"The same points in every dialogue have: {listed([run.heading for run in runs])}." for runs in alike]


def _within_budgets(played: Sequence[Run]) -> Iterator[Figure]:
    """Return the gains of searches within a budget, all attacks in one drawing; none for searches without a step."""
    from parley.engine.core.page import plots

    def has_steps(run: Run) -> bool:
        # A search on a surrogate records the surrogate's answers.
        if run.job in STEPLESS or run.config.get("surrogate"):
            return False
        rows = _dialogues(run)
        defended = any(row.get(name) is not None for row in rows for name in ("stopped", "refused"))
        return not defended and {attempt["kind"] for row in rows for attempt in row.get("attempts", ())} == {REACTIVE}

    reactive = [run for run in played if has_steps(run)]
    names = told_apart([run.heading for run in reactive])
    curves = {name: budget_curves(_dialogues(run)) for name, run in zip(names, reactive, strict=True)}
    for budget, (title, label, counted) in _BUDGETS.items():
        series: dict[str, Points] = {
            name: by_name[budget] for name, by_name in curves.items() if len(by_name.get(budget, ())) > 1
        }
        if series:
            nums = ", ".join(f"{points[0][1].n:,}" for points in series.values())
            mean = f"end forced; mean over {nums} dialogues with a reactive attack; with 95 % intervals"
            yield plots.budget(title, f"{mean}; {counted}; {_WITHOUT_CURVE}", label, series)


def _outcomes(run: Run, explained: bool) -> Figure:
    """Return the points of both sides in every dialogue of a match."""
    rows = _dialogues(run)
    agreed, optimal = (sum(bool(row[name]) for row in rows) for name in ("agreed", "pareto"))
    counted = f"{len(rows)} dialogues: {agreed} deals, {optimal} of them Pareto optimal, {len(rows) - agreed} without a deal"
    caption = line("{}; {}", counted, _KEY) if explained else line("{}", counted)
    return Figure(run.heading, caption, size=(4.2, 4.2), draw=partial(draw_outcomes, rows))


_LARGEST_BUBBLE = 900.0


def draw_outcomes(rows: Sequence[Row], axes: Axes) -> None:
    """Draw one bubble per outcome, its area the number of dialogues, its core the Pareto optimal deals.

    Points are integers, so single dots would hide each other; the mean of all dialogues is a cross.

    Args:
        rows: finished dialogues, at least one.
        axes: the axes to draw on.
    """
    from parley.engine.core.page.plots import DULL, GOOD, INK, MUTED, PAPER, TINT

    layers = {colour: Counter[tuple[int, int]]() for colour in (TINT, GOOD, DULL)}
    for row in selected(rows, "points_adversary", "points_target", "agreed", "pareto"):
        point = int(row["points_adversary"]), int(row["points_target"])
        layers[TINT if row["agreed"] else DULL][point] += 1
        layers[GOOD].update([point] * bool(row["pareto"]))
    best = _domain(rows[0]).best
    scale = _LARGEST_BUBBLE / max(count for counts in layers.values() for count in counts.values())
    axes.grid(True)
    axes.plot([0, best], [0, best], color=MUTED, linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
    for order, (colour, counts) in enumerate(layers.items(), start=2):
        if cells := sorted(counts):
            x, y = np.array(cells).T
            sizes = [scale * counts[cell] for cell in cells]
            axes.scatter(x, y, s=sizes, color=colour, edgecolors=PAPER, linewidths=0.8, zorder=order)
    points = layers[TINT] + layers[DULL]
    mean_x, mean_y = np.average(list(points), axis=0, weights=list(points.values()))
    for colour, width, size in ((PAPER, 4.5, 13), (INK, 2.0, 11)):
        axes.plot(mean_x, mean_y, marker="+", markersize=size, markeredgewidth=width, color=colour, zorder=5)
    limits, ticks = (-1, best + 1), range(0, best + 1, best // 5)
    axes.set(xlim=limits, ylim=limits, xticks=ticks, yticks=ticks, aspect="equal")
    axes.set(xlabel="points of the adversary", ylabel="points of the target")


def extremes(rows: Sequence[Row], limit: int = BEST_AND_WORST) -> tuple[list[Row], list[Row]]:
    """Return the best and the worst dialogues for the adversary.

    They are ordered by the adversary's lead, then by its points, by attack sentences and by key, so that a run always shows
    the same dialogues.

    Args:
        rows: finished dialogues.
        limit: largest number of each kind; no dialogue is in both.

    Returns:
        The best, best first, and the worst, worst first.
    """

    def first(some: Iterable[Row], sign: int, num: int) -> list[Row]:
        def rank(row: Row) -> tuple[int, int, bool, str]:
            points, other = int(row["points_adversary"]), int(row["points_target"])
            return sign * (other - points), -sign * points, not row.get("attempts"), str(row["item_key"])

        return nsmallest(num, some, rank)

    best = first(rows, 1, min(limit, (len(rows) + 1) // 2))
    taken = {row["item_key"] for row in best}
    return best, first((row for row in rows if row["item_key"] not in taken), -1, min(limit, len(rows) // 2))


def dialogue(row: Row, link: str = "") -> Item:
    """Return a finished dialogue of a run for the viewer."""
    attempts = {attempt["turn"]: attempt for attempt in row.get("attempts", ())}
    defence = {
        **dict.fromkeys(row.get("stopped") or (), "not heard: the filter stopped it"),
        **dict.fromkeys(row.get("refused") or (), "refused to end below this demand"),
    }
    notes = ["Pareto optimal" if row["pareto"] else "not Pareto optimal"] if row["agreed"] else []
    if row["forced"]:
        notes.append("ended by a limit")
    elif row["ended_by"] in (0, 1):
        notes.append(f"ended by the {SIDES[row['ended_by']]}")
    points, outcome = (int(row["points_adversary"]), int(row["points_target"])), _outcome(row)
    place = min(attempts, default=0)
    words = spoken(str(row["turns"][place]["words"]), attempts.get(place)).striptags() if row["turns"] else ""
    forced = Markup("")
    if "attempts" in row:
        pattern = '<p class="protocol">as played; with the end forced, <strong>{} : {}</strong></p>'
        forced = line(pattern, row["forced_points_adversary"], row["forced_points_target"])
    turns = joined(
        _turn(SIDES[turn["side"]], str(turn["words"]), bool(row["forced"]), attempts.get(index), defence.get(index, ""))
        for index, turn in enumerate(row["turns"])
    )
    score = '<span class="adversary">adversary {}</span><span class="colon">:</span><span class="target">{} target</span>'
    tags = {"attempts": "attacked", "stopped": "sentence stopped", "refused": "end refused"}
    return Item(
        kind="dialogue",
        key=str(row["item_key"]),
        summary=line('<b class="adversary">{}</b> : <b class="target">{}</b> {} <q>{}</q>', *points, outcome, words),
        body=joined(
            [
                line(f'<p class="result">{score}</p>{{}}', *points, forced),
                badges([(outcome, bool(row["agreed"])), *((note, None) for note in (*notes, f"{row['num_turns']} turns"))]),
                _deal(row),
                line('<ol class="turns">{}</ol><footer>seed <code>{}</code></footer>', turns, int(row["seed"])),
            ]
        ),
        tags=("deal" if row["agreed"] else "no deal", *notes, *(tag for column, tag in tags.items() if row.get(column))),
        values={"points ahead": points[0] - points[1], "turns": int(row["num_turns"])},
        link=link,
    )


def spoken(words: str, attempt: Attempt | None) -> Markup:
    """Return an utterance; in an attack sentence replaced words are marked, with those before behind them."""
    if attempt is None:
        return line("{}", words or "(says nothing)")
    instead = '<del><span class="unseen">instead of </span>{}</del>'
    parts, base = (words or "(says nothing)").split(" "), str(attempt["base"]).split(" ")
    # Only in a sentence of equal length does each word replace one word.
    if len(parts) != len(base):
        before = line(" " + instead, attempt["base"]) if attempt["base"] else ""
        return line("{}{}", words or "(says nothing)", before)
    marked = [
        line("<mark>{}</mark> {}", word, line(instead, before)) if index in attempt["replaced"] else line("{}", word)
        for index, (word, before) in enumerate(zip(parts, base, strict=True))
    ]
    return joined(marked, " ")


def _turn(side: str, words: str, forced: bool, attempt: Attempt | None, defence: str) -> Markup:
    if words.strip() == SELECTION:
        end = "a limit ends the talk" if forced else f"the {side} ends the talk"
        return line('<li class="{} ends"><span class="words" dir="auto">{}</span></li>', side, end)
    remarks = joined(line(' <span class="attempt">{}</span>', text) for text in (attempt and story(attempt), defence) if text)
    pattern = '<li class="{side}"><span class="speaker">{side}{}</span><span class="words" dir="auto">{}</span></li>'
    return line(pattern, remarks, spoken(words, attempt), side=side)


def story(attempt: Attempt) -> str:
    """Return the attack and its result, such as "reactive, 2 words replaced, target ends with 63 %: it did"."""
    num = len(attempt["replaced"])
    parts = [str(attempt["kind"])]
    if attempt["kind"] != "transfer":
        parts.append(f"{num} word{'' if num == 1 else 's'} replaced")
        parts += [] if attempt["accepted"] else ["goal not reached"]
    if attempt["end_probability"] is not None:
        ended = "did" if attempt["ended"] else "did not"
        parts.append(f"target ends with {100 * attempt['end_probability']:.0f} %: it {ended}")
    return ", ".join(parts)


def _taken(row: Row, side: str) -> tuple[int, ...] | None:
    return _domain(row).held(row["counts"], row[f"selection_{side}"])


def _deal(row: Row) -> Markup:
    """Return a table of item types: their count, their value to each side, and the number that each side took."""
    taken = [_taken(row, side) for side in SIDES]
    lines = []
    for i, name in enumerate(_domain(row).items):
        cells = [line("<td>{}</td>", row["counts"][i])]
        for side, held in zip(SIDES, taken, strict=True):
            took = "\N{EN DASH}" if held is None else held[i]
            cells.append(line('<td>{}</td><td class="took">{}</td>', row[f"values_{side}"][i], took))
        lines.append(line('<tr><th scope="row">{}</th>{}</tr>', name, joined(cells)))
    sides = joined(line('<th scope="colgroup" colspan="2" class="{side}">{side}</th>', side=side) for side in SIDES)
    names = joined(line('<th scope="col">{}</th>', name) for name in ("item", "there are", "worth", "took", "worth", "took"))
    head = line("<thead><tr><td></td><td></td>{}</tr><tr>{}</tr></thead>", sides, names)
    return line('<table class="items">{}<tbody>{}</tbody></table>', head, joined(lines))


def _outcome(row: Row) -> str:
    if row["agreed"]:
        return "deal"
    if illegal := [side for side in SIDES if row[f"selection_{side}"] == [ILLEGAL]]:
        return f"no deal: the {illegal[0]} chose out of range"
    refusals = [side for side in SIDES if _taken(row, side) is None]
    if len(refusals) == len(SIDES):
        return "no deal: both refused"
    return f"no deal: the {refusals[0]} refused" if refusals else "no deal: the choices do not fit together"


class HardenedNegotiators(Chapter):
    """The chapter of campaigns."""

    name, title, unit = "hardened-negotiators", "Hardened negotiators", "rounds"
    in_tables = True
    noted = False
    jobs = (MINMAX.name,)
    stages: ClassVar = {MINMAX.name: Stages(FINAL_STAGES, others="hidden")}
    terms: ClassVar = _TERMS
    curves = (
        CurveSource(
            "round",
            "exploitability",
            "advantage in points",
            {
                "best known by that round": "exploitability",
                "fresh, mean": "mean_fresh",
                "trained along, before": "advantage_before",
                "after": "advantage_after",
            },
        ),
        CurveSource("round", "plain play", "points", {"target": "plain_score"}),
        CurveSource("round", "language", "perplexity", {"validation": "perplexity"}),
        CurveSource("round", "repetition", "share", {"4-grams of an utterance": REPETITION, "utterances": REPEATS}),
    )

    def shows(self, run: Run) -> bool:
        return bool(self.tables(run) or read_curves(self.curves, [run]))

    def verdict_of(self, run: Run) -> Verdict | None:
        """Return the change of the best known adversary's gain; of an unfinished campaign the last measured round."""
        metrics = run.metrics
        if DROP not in metrics:
            return _unfinished(run)
        before, after, drop = (metrics[name] for name in (EXPLOITABILITY + BEFORE_TRAINING, EXPLOITABILITY, DROP))
        then, now, lost = (number(POINTS, estimate.value) for estimate in (before, after, drop))
        outcome = {
            1: f"Hardening helped, by {lost} points",
            0: "Hardening did not certainly help",
            -1: f"Hardening made it worse, by {lost.lstrip(MINUS)} points",
        }[certain_sign(drop)]
        control, beyond = (metrics.get(name, NOTHING) for name in (EXPLOITABILITY + AS_CONTROL, DROP_BEYOND_CONTROL))
        warnings, details = _cautions(metrics), []
        if (num := metrics.get(NUM_KNOWN, NOTHING)).n:
            details.append(f"The best of {num.value:.0f} known adversaries, in dialogues that did not choose it.")
        plainly = f", {number(POINTS, control.value)} after plain play alone" if control.n else ""
        as_much = "as much, within the intervals" if certain_sign(drop) > 0 else ""
        if control.n and (help_of_control := {-1: "more", 0: as_much, 1: ""}[certain_sign(beyond)]):
            warnings.append(f"As many dialogues of plain play, without an adversary, help {help_of_control}.")
        average, more = (metrics.get(name, NOTHING) for name in (MEAN_FRESH, MORE))
        if average.n:
            details.append(f"Fresh adversaries gain {number(POINTS, average.value)} in the mean.")
            if certain_sign(more) > 0:
                added = f"The second half of their budget added {number(POINTS, more.value)}: a larger one would find more."
                warnings.append(added)
        return Verdict(
            sentence=f"{outcome}: the best known adversary was {then} points ahead before it, {now} after it{plainly}.",
            metric=_AHEAD,
            number=drop,
            label="Points that hardening takes off",
            unit="dialogues",
            marks={
                "best adversary, before hardening": before,
                **({"best adversary, after plain play alone": control} if control.n else {}),
                "best adversary, after hardening": after,
                "points that hardening takes off": drop,
            },
            warnings=[*["It is still exploitable."] * (certain_sign(after) > 0), *warnings],
            details=details,
        )

    def tables(self, run: Run) -> Mapping[str, EstimateTable]:
        """Return the result of a campaign, its known adversaries, its rounds and its trainings."""
        result = {"Before and after": _before_and_after(run.metrics)} if run.metrics else {}
        return {**result, **MINMAX.more(run.folder), **dict(run.trainings)}


def _cautions(metrics: Mapping[str, Estimate]) -> list[str]:
    """Return warnings on a target that hardly agrees, and on those that have lost their language."""
    warnings = []
    was_agreed, agreed = (metrics.get(f"{PLAIN_AGREEMENT}{when}", NOTHING) for when in (BEFORE_TRAINING, ""))
    if agreed.n and agreed.value < _AGREES:
        # No adversary gains from a target that never comes to a deal.
        before = f" ({number(SHARE, was_agreed.value)} before)" if was_agreed.n else ""
        warnings.append(f"In plain play it comes to a deal in {number(SHARE, agreed.value)} of the dialogues{before}.")
    for who, ending in (("It", ""), ("The target of plain play alone", AS_CONTROL)):
        share = metrics.get(f"{REPETITION}{ending}", NOTHING)
        if has_lost(share.value):
            # Gains from an agent without language say nothing about agents with one.
            warnings.append(f"{who} has lost its language: it repeats itself in {number(SHARE, share.value)} of its 4-grams.")
        usual, again = metrics.get(f"{REPEATS}{BEFORE_TRAINING}", NOTHING), metrics.get(f"{REPEATS}{ending}", NOTHING)
        if has_lost(again.value - usual.value):
            # Standing firm by saying a demand again is no loss of language, but it is not what people do either.
            shares = f"{number(SHARE, again.value)} of its later utterances ({number(SHARE, usual.value)} before)"
            warnings.append(f"{who} says again, word for word, {shares}.")
    return warnings


def _unfinished(run: Run) -> Verdict | None:
    measured = [row for row in rounds_of(run.folder) if EXPLOITABILITY in row.metrics]
    if not measured:
        return None
    last = measured[-1]
    ahead = last.metrics[EXPLOITABILITY]
    return Verdict(
        sentence=f"Round {last.number} is measured: the best adversary known is {number(POINTS, ahead.value)} points ahead.",
        metric=_AHEAD,
        number=ahead,
        unit="dialogues",
        marks={f"best adversary, round {row.number}": row.metrics[EXPLOITABILITY] for row in measured},
        warnings=["The campaign is not finished."],
    )


def _before_and_after(metrics: Mapping[str, Estimate]) -> EstimateTable:
    inline = Form(inline=True)
    endings = {"before": BEFORE_TRAINING, "after": ""}
    lost = LEGEND[DROP]
    drop: dict[str, str] = {"before": "", "after": inline.cell(metrics[DROP])}
    if DROP_BEYOND_CONTROL in metrics:
        endings["plain play alone"] = AS_CONTROL
        beyond = metrics[DROP_BEYOND_CONTROL]
        drop["plain play alone"] = TableCell(f"{inline.cell(beyond)} more than it", MarkedEstimate(beyond))
    shown = {**ROUND_METRICS, MORE: LEGEND[MORE]}
    rows = [TableRow(metric.title, {"name": name}) for name, metric in shown.items() if name in metrics]
    rows.append(TableRow(lost.title, cells=drop))
    num = metrics.get(NUM_KNOWN, NOTHING)
    best_of = f" of {num.value:.0f} known adversaries" if num.n else " known adversary"
    note = (
        f"Exploitability: by the best{best_of}, in dialogues that chose neither it nor a round; a lower bound. "
        f"{lost.title.capitalize()}: {lost.definition}. Brackets: 95 % intervals."
    )
    columns = [Column(heading, f"{{name}}{ending}", inline) for heading, ending in endings.items()]
    return metric_table(metrics, "target", rows, columns, note)


_MAX_CHARACTERS = 600
"""Largest number of characters of a tactic on the page."""
_CONTROLS = {"gains": "one of an attacker that is told gains alone", "blind": "one drawn blind"}


class Tactics(Negotiations):
    """The chapter of attacks by tactics: held-out dialogues of each attacker's best tactic, and those without one."""

    name, title = "tactics", "Tactics"
    jobs = (ATTACK_TACTIC.name,)
    stages: ClassVar = {}

    def collect(self, runs: Sequence[Run]) -> Sequence[Run]:
        parts: list[Run] = []
        for run in runs:
            if not run.shown or not (played := _played_tactics(run)).rows:
                continue
            parts.append(run.part("all", run.heading, rows=[]))
            for arm in played.chosen:
                metrics = {name: value for name in TACTIC_METRICS if (value := run.metrics.get(f"{arm}.{name}")) is not None}
                heading = f"{run.heading}: {ARMS[arm]}" if run.name else f"{ARMS[arm][:1].upper()}{ARMS[arm][1:]}"
                if metrics or played.held_out(arm):
                    parts.append(run.part(arm, heading, metrics=metrics, legend=TACTIC_METRICS, rows=played.held_out(arm)))
        return parts

    def verdict(self, runs: Sequence[Run]) -> Verdict | None:
        """Return the gain of refining tactics against no tactic, or the strongest attack of tactics from another run."""
        refined = Chapter.verdict(self, [run for run in runs if run.arm == "all"])
        matches = [run for run in runs if run.arm != "all"]
        return refined or super().verdict(matches)

    def verdict_of(self, run: Run) -> Verdict | None:
        over = {arm: run.metrics.get(f"{REFINED}.over_{arm}", NOTHING) for arm in ARMS if arm != REFINED}
        if not over[NONE].n or run.config.get("source"):
            return None
        certainty = {1: "certainly more", 0: "no certain difference", -1: "certainly less"}
        gains = {
            what: f"{number(POINTS, over[arm].value)} points more than {what} ({certainty[certain_sign(over[arm])]})"
            for arm, what in {NONE: "no tactic", **_CONTROLS}.items()
            if over[arm].n
        }
        sentence = f"The tactic refined from transcripts gains {gains.pop('no tactic')}."
        if not any(tactic.number for tactic in _played_tactics(run).written):
            sentence = "The attacker wrote no tactic that could be tried."
        return Verdict(
            sentence=sentence,
            metric=_AHEAD,
            number=over[NONE],
            label="Points more than without a tactic",
            unit="dialogues",
            marks={f"more than {what}": over[arm] for arm, what in {NONE: "no tactic", **_CONTROLS}.items() if over[arm].n},
            details=[f"It gains {gain}." for gain in gains.values()],
        )

    def shown(self, run: Run) -> Mapping[str, Estimate]:
        return {} if run.arm == "all" else run.metrics

    def tables(self, run: Run) -> Mapping[str, EstimateTable]:
        """Return the table of the attackers; none before the run is finished."""
        if run.arm != "all" or not run.metrics:
            return {}
        return {"Tactics beside their controls": tactics_table(run.metrics)}

    def shared_tables(self, runs: Sequence[Run]) -> Mapping[str, EstimateTable]:
        return {}

    def figures(self, run: Run) -> Iterable[Figure]:
        """Return the best tactic's gain by the dialogues played to find it."""
        from parley.engine.core.page import plots

        played = _played_tactics(run)
        curves = {title: points for arm, title in TACTICIANS.items() if len(points := played.curve(arm)) > 1}
        if curves and run.arm == "all":
            caption = (
                "advantage of each attacker's best tactic so far in the development dialogues, which chose it, so too high; at "
                "0 without a tactic; with 95 % intervals; the table has the held-out advantage of the last"
            )
            label = "development dialogues played"
            yield plots.budget("Gain by dialogues with the target", caption, label, curves, "points ahead, development")

    def lists(self, run: Run) -> Mapping[str, Sequence[tuple[str, str]]]:
        """Return the texts of each attacker, the chosen one first; none for a run with the tactics of another on its page."""
        lists: dict[str, list[tuple[str, str]]] = {}
        if run.arm != "all" or (run.config.get("source") and run.name):
            return lists
        played = _played_tactics(run)
        for arm, title in TACTICIANS.items():
            best = played.chosen.get(arm)
            written = [tactic for tactic in played.written if tactic.arm == arm]
            written.sort(key=lambda tactic: (not tactic.number or tactic.number != best, tactic.round, tactic.stream))
            for tactic in written:
                text = tactic.text[:_MAX_CHARACTERS] + "\N{HORIZONTAL ELLIPSIS}" * (len(tactic.text) > _MAX_CHARACTERS)
                gain = f"gain {with_interval(played.gain(tactic.number))}"
                remark = gain if tactic.number else f"no tactic: {tactic.problem}"
                chosen = "chosen, " if tactic.number and tactic.number == best else ""
                name = f"{chosen}round {tactic.round}, stream {tactic.stream}: {remark}"
                lists.setdefault(f"Tactics, {title}", []).append((name, text or "(nothing)"))
        return lists


def _played_tactics(run: Run) -> TacticResults:
    return played_tactics(run.folder)


class Populations(Chapter):
    """The chapter of payoff matrices, with ratings and the values of mixtures."""

    name, title, unit = "populations", "Populations", "dialogues"
    jobs = (EVALUATE_POPULATION.name,)
    stages: ClassVar = {EVALUATE_POPULATION.name: Stages(others="hidden")}
    terms: ClassVar = _TERMS

    def shows(self, run: Run) -> bool:
        return run.shown and PAYOFF in run.summary

    def verdict_of(self, run: Run) -> Verdict | None:
        """Return the value of the matrix, and the gain from the best target alone."""
        value, single, fresh = (run.metrics.get(name) for name in (VALUE, SINGLE, EXPLOITABILITY))
        if value is None or single is None:
            return None
        labels = {VALUE: "equilibrium", SINGLE: "best target alone", EXPLOITABILITY: "best adversary, mixture"}
        mixture = fresh and f"The best adversary against the mixture is {number(POINTS, fresh.value)} points ahead."
        return Verdict(
            sentence=f"At the equilibrium of the matrix the adversaries are {number(POINTS, value.value)} points ahead; the "
            f"best target alone gives its worst adversary {number(POINTS, single.value)}.",
            metric=_AHEAD,
            number=value,
            label="Points ahead at the equilibrium",
            unit="dialogues",
            marks={label: run.metrics[name] for name, label in labels.items() if name in run.metrics},
            details=["The equilibrium is measured in the dialogues that chose it.", *([mixture] if mixture else [])],
        )

    def figures(self, run: Run) -> Iterable[Figure]:
        from parley.engine.core.page import plots

        names: Mapping[str, Sequence[str]] = run.summary[AGENTS]
        cells_TA = [estimates_of(part) for part in run.summary[PAYOFF]]
        values = [cell.value for cells in cells_TA for cell in cells]
        least, span = min(values), max(max(values) - min(values), 1e-9)
        tinted = [
            [((cell.value - least) / span, figure(cell.value)) for cell in cells] for cells in zip(*cells_TA, strict=True)
        ]
        caption = "advantage of the adversary of the line over the target of the column, in points"
        yield plots.heat("Payoff matrix", caption, names["adversaries"], names["targets"], tinted, SIDES[::-1])
        ratings = {
            f"{name} ({side})": rating
            for role, side in zip(ROLES, SIDES[::-1], strict=True)
            for name, rating in zip(names[role], estimates_of(run.summary[RATINGS][role]), strict=True)
        }
        ladder = sorted(ratings, key=lambda label: -ratings[label].value)
        caption = "400 more are odds of ten to one to earn more points; bars: 95 % intervals"
        yield plots.dots("Elo ratings", caption, "Elo rating", ladder, {"rating": ratings})
