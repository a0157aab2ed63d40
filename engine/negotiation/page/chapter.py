"""The page's chapter on negotiations: matches, attacks and adversarial training, from run folders.

Its verdict on a negotiator has the gain of the strongest attack and the effect of hardening.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

from markupsafe import Markup

from parley.engine.core.page.content import Chapter, Figure, Item, Run, Section, Stages, Verdict, told_apart
from parley.engine.core.page.page import MINUS, MOST_MARKS, POINTS, SHARE, caveat, certain_sign, first_marks, listed, number
from parley.engine.core.page.trainings import CurveSource, curve_figure, read_curves
from parley.engine.core.stats.known import EXPLOITABILITY, MEAN_FRESH
from parley.engine.core.stats.statistics import NOTHING, Estimate, Metric, Points, has_lost
from parley.engine.core.tables.table import Column, EstimateTable, Form, MarkedEstimate, TableCell, TableRow, metric_table
from parley.engine.core.verbs.hardening import rounds_of
from parley.engine.negotiation.metrics.attack import REACTIVE, budget_curves
from parley.engine.negotiation.metrics.attack_table import attack_table, titles_of
from parley.engine.negotiation.metrics.campaign import PLAIN_AGREEMENT, REPETITION, ROUND_METRICS, rounds_table
from parley.engine.negotiation.page.dialogues import BEST_AND_WORST, dialogue_items, tactic_runs
from parley.engine.negotiation.page.populations import (
    PLAIN,
    Hardening,
    Match,
    Negotiation,
    populations,
    reproduction_figures,
    reproduction_marks,
    reproduction_sentence,
    reproductions,
)
from parley.engine.negotiation.verbs.exploitability import (
    BEST,
    EVALUATE_EXPLOITABILITY,
    MORE,
    NUM_KNOWN,
    budget_table,
    by_budget,
    known_adversaries,
)
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
from parley.engine.negotiation.verbs.population import EVALUATE_POPULATION
from parley.engine.negotiation.verbs.reproduction import REPRODUCE_CHENG2019
from parley.engine.negotiation.verbs.table import ALL_ATTACKS, ATTACK_TABLE, trained_of
from parley.engine.negotiation.verbs.tactic import ATTACK_TACTIC
from parley.engine.negotiation.verbs.trigger import ATTACK_TRIGGER
from parley.engine.negotiation.verbs.whitebox import ATTACK_RA_PA_DA, ATTACK_RA_PA_TA

_AGREES = 0.5
"""Share of plain dialogues in which a hardened target has to agree, or its verdict says so."""
_AHEAD = Metric("Points ahead", "higher: adversary", "the adversary's points less the target's, mean over all dialogues")
ATTACKERS = {
    "attack-rl": "a trained adversary",
    "attack-transfer": "a sentence that won elsewhere",
    "attack-tactic": "a chat model with a tactic that a model wrote",
    "attack-trigger": "a search for words to add (trigger)",
    "attack-reactive": "a search for the last word (reactive)",
    "attack-preemptive": "a search for words that make the target ask for less (preemptive)",
    "attack-ra-pa-da": "a combined search (RA+PA+DA)",
    "attack-ra-pa-ta": "a combined search (RA+PA+TA)",
    "evaluate-exploitability": "the best known adversary",
}


def verdict_on(negotiation: Negotiation) -> Verdict | None:
    """Return the sentences of a page: on its attacks or, without any, its matches; then on each campaign and population.

    If there are several campaigns or populations, each has its name.
    """
    attacks = [match for match in negotiation.matches if match.is_attack]
    plain = [match for match in negotiation.matches if match.job == PLAIN and math.isfinite(match.advantage.value)]
    sentences = [_attacked(attacks)] if attacks else [_played(plain)] if plain and not negotiation.campaigns else []
    compared = [*plain, *attacks]
    if len(compared) > MOST_MARKS:
        # A table of several targets and defences has too many marks.
        compared = [*plain[:1], *sorted(attacks, key=lambda match: -match.advantage.value)]
    marks = {match.name: match.advantage for match in compared}
    hardened = [(campaign.name, *_hardened(campaign)) for campaign in negotiation.campaigns]
    by_name = sum(bool(sentence) for _, sentence, _ in hardened) > 1
    for name, sentence, measured in hardened:
        sentences.append(f"{name}: {sentence[:1].lower()}{sentence[1:]}" if sentence and by_name else sentence)
        # A match that measures a campaign has one mark, under the campaign's name.
        marks = {label: estimate for label, estimate in marks.items() if estimate not in measured.values()}
        marks |= {f"{name}: {label}" if by_name else label: estimate for label, estimate in measured.items()}
    sentences += [run.sentence for run in negotiation.tactics]
    for results in negotiation.reproductions:
        sentences.append(reproduction_sentence(results))
        marks |= reproduction_marks(results)
    for matrix in negotiation.populations:
        sentences.append(matrix.sentence)
        several = len(negotiation.populations) > 1
        marks |= {f"{matrix.name}: {label}" if several else label: estimate for label, estimate in matrix.marks.items()}
    sentences += _without_effect(negotiation.matches)
    sentences = [sentence for sentence in sentences if sentence]
    return Verdict(sentence=" ".join(sentences), metric=_AHEAD, marks=first_marks(marks)) if sentences else None


def _attacked(attacks: Sequence[Match]) -> str:
    best = max(attacks, key=lambda match: match.advantage.value)
    who = ATTACKERS.get(best.job, f"the attack {best.job.removeprefix('attack-')}")
    won = {1: "is certainly ahead", 0: "is not certainly ahead", -1: "stays certainly behind"}[certain_sign(best.advantage)]
    num_ahead = sum(certain_sign(match.advantage) > 0 for match in attacks)
    ahead_of_all = f" ({num_ahead} of {len(attacks)} attacks are)" if len(attacks) > 1 and num_ahead else ""
    sentence = f"{who[:1].upper()}{who[1:]} {_points(best)}: it {won}{ahead_of_all}.{caveat(best.advantage, unit='dialogues')}"
    without, forced = (best.metrics.get(name, NOTHING) for name in ("untouched_advantage", "forced_advantage"))
    if without.n:
        ahead = number(POINTS, forced.value)
        sentence += (
            f" If the target ended the talk there, {ahead} points ahead; {number(POINTS, without.value)} without these words."
        )
    return sentence


def _points(match: Match) -> str:
    adversary, target = (match.metrics.get(f"score_{side}", NOTHING).value for side in ("adversary", "target"))
    if math.isfinite(adversary) and math.isfinite(target):
        return f"takes {number(POINTS, adversary)} of {match.best} points and leaves the target {number(POINTS, target)}"
    return f"ends {number(POINTS, match.advantage.value)} points from the target"


def _played(matches: Sequence[Match]) -> str:
    first = matches[0]
    sides = [first.metrics.get(f"score_{side}", NOTHING).value for side in ("adversary", "target")]
    deals = first.metrics.get("agreement", NOTHING)
    points = " to ".join(number(POINTS, side) for side in sides)
    more = f" {len(matches) - 1} more matches are below." if len(matches) > 1 else ""
    sentence = f"{first.name}: {points} of {first.best} points, a deal in {100 * deals.value:.1f} % of the dialogues."
    return sentence + caveat(first.advantage, unit="dialogues") + more


def _hardened(campaign: Hardening) -> tuple[str, dict[str, Estimate]]:
    """Return a sentence on the change of the best known adversary's gain, and its figures."""
    if DROP not in campaign.metrics:
        return _unfinished(campaign)
    before, after = campaign.metrics[EXPLOITABILITY + BEFORE_TRAINING], campaign.metrics[EXPLOITABILITY]
    drop = campaign.metrics[DROP]
    then, now, lost = (number(POINTS, estimate.value) for estimate in (before, after, drop))
    outcome = {
        1: f"Hardening helped, by {lost} points",
        0: "Hardening did not certainly help",
        -1: f"Hardening made it worse, by {lost.lstrip(MINUS)} points",
    }[certain_sign(drop)]
    control, beyond = (campaign.metrics.get(name, NOTHING) for name in (EXPLOITABILITY + AS_CONTROL, DROP_BEYOND_CONTROL))
    marks = {
        "best adversary, before hardening": before,
        **({"best adversary, after plain play alone": control} if control.n else {}),
        "best adversary, after hardening": after,
        "points that hardening takes off": drop,
    }
    num_known = campaign.metrics.get(NUM_KNOWN, NOTHING)
    of_all = f" of {num_known.value:.0f} known adversaries" if num_known.n else " known adversary"
    text = f"{outcome}: the best{of_all} was {then} points ahead before it and is {now} ahead after it."
    if control.n:
        doubt = "" if certain_sign(beyond) else ", no certain difference"
        alone = f"{number(POINTS, control.value)}{doubt}"
        text += f" As much training in plain play alone, without an adversary, brings it to {alone}."
    average, more = (campaign.metrics.get(name, NOTHING) for name in (MEAN_FRESH, MORE))
    if average.n:
        text += f" Fresh adversaries gain {number(POINTS, average.value)} in the mean."
        if certain_sign(more) > 0:
            text += f" The second half of their budget added {number(POINTS, more.value)}: a larger one would find more."
    if certain_sign(after) > 0:
        text += " It is still exploitable."
    was_agreed, agreed = (campaign.metrics.get(f"{PLAIN_AGREEMENT}{when}", NOTHING) for when in (BEFORE_TRAINING, ""))
    if agreed.n and agreed.value < _AGREES:
        # No adversary gains from a target that never comes to a deal.
        text += f" But in plain play it comes to a deal in {number(SHARE, agreed.value)} of the dialogues"
        text += f" ({number(SHARE, was_agreed.value)} before)." if was_agreed.n else "."
    for who, ending in (("it", ""), ("the target of plain play alone", AS_CONTROL)):
        share = campaign.metrics.get(f"{REPETITION}{ending}", NOTHING)
        if has_lost(share.value):
            # Gains from an agent without language say nothing about agents with one.
            text += f" But {who} has lost its language: it repeats itself in {number(SHARE, share.value)} of its 4-grams."
    return text + caveat(drop, unit="dialogues"), marks


def _unfinished(campaign: Hardening) -> tuple[str, dict[str, Estimate]]:
    measured = [row for row in campaign.rounds if EXPLOITABILITY in row.metrics]
    if not measured:
        return "", {}
    last = measured[-1]
    text = f"Round {last.number} is measured and the campaign is not finished: the best adversary known is "
    marks = {f"best adversary, round {row.number}": row.metrics[EXPLOITABILITY] for row in measured}
    ahead = last.metrics[EXPLOITABILITY]
    return f"{text}{number(POINTS, ahead.value)} points ahead.{caveat(ahead)}", marks


def _without_effect(matches: Sequence[Match]) -> list[str]:
    """Return sentences on attacks that changed no word, and on matches with the same points."""
    attacks = [match for match in matches if match.job != PLAIN and match.done]
    unchanged = [match.name for match in attacks if not match.changed_words]
    sentences = [f"No word was changed by: {listed(unchanged)}."] if unchanged else []
    by_points: dict[tuple[tuple[str, int, int], ...], list[Match]] = {}
    for match in matches:
        by_points.setdefault(match.points, []).append(match)
    for points, alike in by_points.items():
        if points and len(alike) > 1 and any(match.job != PLAIN for match in alike):
            sentences.append(f"The same points in every dialogue have: {listed([match.name for match in alike])}.")
    return sentences


CURVES = (
    CurveSource(
        "round",
        "exploitability",
        "advantage in points",
        {
            "best known adversary": "exploitability",
            "fresh, mean": "mean_fresh",
            "trained along, before": "advantage_before",
            "after": "advantage_after",
        },
    ),
    CurveSource("round", "plain play", "points", {"target": "plain_score"}),
    CurveSource("round", "language", "perplexity", {"validation": "perplexity"}),
    CurveSource("round", "repetition", "share of 4-grams", {"plain play": "repetition"}),
)
"""Curves of the rounds of a campaign."""
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
_STEPLESS = (ATTACK_RA_PA_DA.name, ATTACK_RA_PA_TA.name, ATTACK_TRIGGER.name)
"""Attacks that record only successful searches, or only the beginning and the end of each."""
_OF_DIALOGUES = set(DIALOGUES.names) - set(OF_DEFENCES)
"""Columns of a dialogue in runs of all versions; those before defences have no others."""
_ATTACK = "attack-"
_IN_TABLES = (ATTACK_TABLE.name, ATTACK_TACTIC.name, MINMAX.name, EVALUATE_POPULATION.name, REPRODUCE_CHENG2019.name)
"""Jobs whose figures are in tables of their own."""
_KEY = Markup(
    'one bubble per result, its area the number of dialogues: <span class="key tint">deals</span> <span class="key good">of '
    'them Pareto optimal</span> <span class="key dull">no deal</span> <span class="key mean">mean</span>; below the dashed '
    "line the adversary earned more"
)


class Negotiations(Chapter[Negotiation]):
    """The chapter of matches, attacks and campaigns."""

    name, title = "negotiation", "Negotiation"
    jobs = (PLAIN, EVALUATE_EXPLOITABILITY.name, *_IN_TABLES, *ATTACKERS)
    stages: ClassVar = {
        ATTACK_TABLE.name: Stages(lambda summary: titles_of(trained_of(summary))),
        MINMAX.name: Stages(FINAL_STAGES, others="hidden"),
        EVALUATE_EXPLOITABILITY.name: Stages({BEST: "best known adversary"}, others="hidden"),
        EVALUATE_POPULATION.name: Stages(others="hidden"),
        REPRODUCE_CHENG2019.name: Stages(others="hidden"),
    }
    terms: ClassVar = {
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

    def collect(self, runs: Sequence[Run]) -> Negotiation | None:
        tactics = tactic_runs(runs)
        matches = [match for run in runs if run.shown and (match := _match(run))]
        matches += [match for run_of_tactics in tactics for match in run_of_tactics.matches]
        budgets = {run.heading: points for run in runs if len(points := _found_by_budget(run)) > 1}
        campaigns = [Hardening(name=run.heading, metrics=run.metrics, rounds=rounds_of(run.folder)) for run in _campaigns(runs)]
        curves = read_curves(CURVES, _campaigns(runs))
        tables = _tables(runs)
        matrices, published = populations(runs), reproductions(runs)
        if not (matches or tables or curves or matrices or tactics or published):
            return None
        return Negotiation(
            matches=matches,
            campaigns=campaigns,
            tables=tables,
            curves=curves,
            budgets=budgets,
            populations=matrices,
            tactics=tactics,
            reproductions=published,
        )

    def verdict(self, negotiation: Negotiation) -> Verdict | None:
        return verdict_on(negotiation)

    def render(self, negotiation: Negotiation) -> Section:
        from parley.engine.negotiation.page import populations as plots

        played = [match for match in negotiation.matches if match.done]
        items = [(match, dialogue_items(match)) for match in played]
        outcomes = [
            Figure(match.name, _outcome_caption(match, index == 0), Markup(plots.scatter_svg(match.name, match.done)))
            for index, match in enumerate(played)
        ]
        curves = [curve_figure(curve) for curve in negotiation.curves if any(curve.series.values())]
        chosen: dict[str, Item] = {}
        for match, dialogues in items:
            chosen[f"{match.name}: best for the adversary"] = dialogues[0]
            if len(dialogues) > 1:
                chosen[f"{match.name}: worst for the adversary"] = dialogues[1]
        return Section(
            notes=[_NOTE_CHOSEN] if any(len(match.done) > len(dialogues) for match, dialogues in items) else [],
            tables=[
                *(table for tactics in negotiation.tactics for table in tactics.tables),
                *(table for results in negotiation.reproductions for table in results.tables().items()),
                *negotiation.tables,
                *(table for matrix in negotiation.populations for table in matrix.tables.items()),
            ],
            measured=[*negotiation.matches, *negotiation.populations],
            figures=[
                *(drawn for tactics in negotiation.tactics for drawn in tactics.figures),
                *(drawn for results in negotiation.reproductions for drawn in reproduction_figures(results)),
                *_learned(negotiation.budgets),
                *curves[:1],
                *(drawn for matrix in negotiation.populations for drawn in matrix.figures),
                *outcomes,
                *_budgets(played),
                *curves[1:],
            ],
            lists={heading: pairs for tactics in negotiation.tactics for heading, pairs in tactics.lists.items()},
            items=[item for _, dialogues in items for item in dialogues],
            chosen=chosen,
        )


_NOTE_CHOSEN = (
    f"Of each match the viewer holds the {BEST_AND_WORST} best and the {BEST_AND_WORST} worst dialogues for the adversary, and "
    "as many drawn by chance; the others are in the run's rows."
)


def _campaigns(runs: Sequence[Run]) -> list[Run]:
    return [run for run in runs if run.job == MINMAX.name]


def _match(run: Run) -> Match | None:
    if run.job in _IN_TABLES:
        return None
    rows = run.rows if run.rows and set(run.rows[0]) >= _OF_DIALOGUES else []
    if not run.metrics and not rows:
        return None
    # A search on a surrogate records the surrogate's answers.
    stepless = run.job in _STEPLESS or bool(run.config.get("surrogate"))
    return Match.of(run, job=run.job, rows=rows, stepless=stepless)


def _tables(runs: Sequence[Run]) -> list[tuple[str, EstimateTable]]:
    """Return the tables of a folder with their headings: the runs of tables, and one table of the other attacks."""
    tables: list[tuple[str, EstimateTable]] = []
    titles: dict[str, str] = {}
    metrics: dict[str, Estimate] = {}
    for index, run in enumerate(runs):
        if run.job == EVALUATE_EXPLOITABILITY.name:
            if adversaries := known_adversaries(run.folder):
                tables.append((f"{run.heading}: known adversaries", adversaries.table()))
            if len(by_budget(run.folder)) * run.config["seeds"] > 1:
                tables.append((f"{run.heading}: fresh adversaries by budget", budget_table(run.folder)))
        elif run.job == MINMAX.name:
            of_campaign = _campaign_tables(run)
            if not run.name:
                return of_campaign
            tables += [(f"{run.heading}: {title.lower()}", table) for title, table in of_campaign]
        elif run.job == ATTACK_TABLE.name and run.metrics:
            by_heading = ATTACK_TABLE.tables(run.folder)
            if not run.name:
                # The attacks below it are its rows, and the page has its title.
                return [(heading or ALL_ATTACKS, table) for heading, table in by_heading.items()]
            for title, table in by_heading.items():
                tables.append((f"{run.heading}: {title.lower()}" if title else run.heading, table))
        elif run.job.startswith(_ATTACK) and run.job != ATTACK_TACTIC.name and run.metrics:
            titles[str(index)] = run.heading
            metrics |= {f"{index}.{name}": estimate for name, estimate in run.metrics.items()}
    return [*tables, *([("Attacks side by side", attack_table(metrics, titles))] if len(titles) > 1 else [])]


def _campaign_tables(campaign: Run) -> list[tuple[str, EstimateTable]]:
    """Return the result of a campaign and the table of its rounds."""
    rounds = rounds_of(campaign.folder)
    outcome = [("Before and after", _before_and_after(campaign.metrics))] if campaign.metrics else []
    outcome += [("Known adversaries", adversaries.table())] if (adversaries := known_adversaries(campaign.folder)) else []
    return [*outcome, *campaign.trainings, *([("Rounds", rounds_table(rounds))] if rounds else [])]


def _before_and_after(metrics: Mapping[str, Estimate]) -> EstimateTable:
    inline = Form(inline=True)
    endings = {"before": BEFORE_TRAINING, "after": ""}
    lost = LEGEND[DROP]
    drop: dict[str, str] = {"before": "", "after": inline.cell(metrics[DROP])}
    if DROP_BEYOND_CONTROL in metrics:
        endings["plain play alone"] = AS_CONTROL
        beyond = metrics[DROP_BEYOND_CONTROL]
        drop["plain play alone"] = TableCell(f"{inline.cell(beyond)} more than it", MarkedEstimate(beyond))
    rows = [TableRow(metric.title, {"name": name}) for name, metric in _BEFORE_AND_AFTER.items() if name in metrics]
    rows.append(TableRow(lost.title, cells=drop))
    num = metrics.get(NUM_KNOWN, NOTHING)
    best_of = f" of {num.value:.0f} known adversaries" if num.n else " known adversary"
    note = (
        f"Exploitability: by the best{best_of}, in dialogues that chose neither it nor a round; a lower bound. "
        f"{lost.title.capitalize()}: {lost.definition}. Brackets: 95 % intervals."
    )
    columns = [Column(heading, f"{{name}}{ending}", inline) for heading, ending in endings.items()]
    return metric_table(metrics, "target", rows, columns, note)


_BEFORE_AND_AFTER = {**ROUND_METRICS, MORE: LEGEND[MORE]}


def _found_by_budget(run: Run) -> Points:
    return by_budget(run.folder) if run.job == EVALUATE_EXPLOITABILITY.name else []


def _learned(budgets: Mapping[str, Points]) -> list[Figure]:
    """Return the learning curves of adversaries, all targets in one drawing."""
    from parley.engine.core.page import plots

    if not budgets:
        return []
    title, label = "Mean of fresh adversaries by budget", "dialogues that adversaries learned from"
    caption = "mean over the adversaries of a target, each as it was after so many dialogues; bands are 95 % intervals"
    return [Figure(title, caption, Markup(plots.budget_svg(title, label, budgets, "adversary's points ahead")))]


def _budgets(matches: Sequence[Match]) -> list[Figure]:
    """Return the gains of searches within a budget, all attacks in one drawing; none for searches without a step."""
    from parley.engine.core.page import plots

    reactive = [match for match in matches if match.kinds == {REACTIVE} and not (match.stepless or match.defended)]
    by_budget: dict[str, dict[str, Points]] = {name: {} for name in _BUDGETS}
    for heading, match in zip(told_apart([match.name for match in reactive]), reactive, strict=True):
        for name, points in budget_curves(match.done).items():
            by_budget[name][heading] = points
    figures = []
    for name, (title, label, counted) in _BUDGETS.items():
        series = {heading: points for heading, points in by_budget[name].items() if len(points) > 1}
        if series:
            nums = ", ".join(f"{points[0][1].n:,}" for points in series.values())
            mean = f"end forced; mean over {nums} dialogues with a reactive attack; bands are 95 % intervals"
            caption = f"{mean}; {counted}; {_WITHOUT_CURVE}"
            figures.append(Figure(title, caption, Markup(plots.budget_svg(title, label, series, "adversary's points ahead"))))
    return figures


def _outcome_caption(match: Match, explained: bool) -> Markup:
    rows = match.done
    agreed = sum(bool(row["agreed"]) for row in rows)
    optimal = sum(bool(row["pareto"]) for row in rows)
    counted = f"{len(rows)} dialogues: {agreed} deals, {optimal} of them Pareto optimal, {len(rows) - agreed} without a deal"
    return Markup("{}; {}").format(counted, _KEY) if explained else Markup("{}").format(counted)
