"""The page's chapter on negotiations: matches, attacks and adversarial training, from run folders.

Its verdict on a negotiator: the gain of the strongest attack, and the effect of hardening.
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
from parley.engine.core.tables.table import EstimateTable, with_interval
from parley.engine.core.verbs.hardening import rounds_of
from parley.engine.negotiation.metrics.attack import REACTIVE, budget_curves
from parley.engine.negotiation.metrics.attack_table import AttackLine, attack_table, titles_of
from parley.engine.negotiation.metrics.campaign import PLAIN_AGREEMENT, REPETITION, ROUND_METRICS, rounds_table
from parley.engine.negotiation.page.dialogues import BEST_AND_WORST, dialogue_items, shown_tactics
from parley.engine.negotiation.page.populations import PLAIN, Hardening, Match, Negotiation, populations, reproductions
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


def verdict_on(found: Negotiation) -> Verdict | None:
    """The sentences of a page: on its attacks or, without any, its plain matches; then on each campaign and each population.

    Where there are several of these, each is told by its name.
    """
    attacks = [match for match in found.matches if match.is_attack]
    plain = [match for match in found.matches if match.job == PLAIN and math.isfinite(match.advantage.value)]
    sentences = [_attacked(attacks)] if attacks else [_played(plain)] if plain and not found.campaigns else []
    shown = [*plain, *attacks]
    if len(shown) > MOST_MARKS:
        # There is not room for all of a table of several targets and defences.
        shown = [*plain[:1], *sorted(attacks, key=lambda match: -match.advantage.value)]
    marks = {match.name: match.advantage for match in shown}
    hardened = [(campaign.name, *_hardened(campaign)) for campaign in found.campaigns]
    told_by_name = sum(bool(sentence) for _, sentence, _ in hardened) > 1
    for name, sentence, measured in hardened:
        sentences.append(f"{name}: {sentence[:1].lower()}{sentence[1:]}" if sentence and told_by_name else sentence)
        # A match that a campaign measures by stands there under its name, and not twice.
        marks = {label: estimate for label, estimate in marks.items() if estimate not in measured.values()}
        marks |= {f"{name}: {label}" if told_by_name else label: estimate for label, estimate in measured.items()}
    sentences += [one.sentence for one in found.tactics]
    for one in found.reproductions:
        sentences.append(one.sentence)
        marks |= one.marks
    for matrix in found.populations:
        sentences.append(matrix.sentence)
        several = len(found.populations) > 1
        marks |= {f"{matrix.name}: {label}" if several else label: estimate for label, estimate in matrix.marks.items()}
    sentences += _without_effect(found.matches)
    sentences = [sentence for sentence in sentences if sentence]
    return Verdict(sentence=" ".join(sentences), metric=_AHEAD, marks=first_marks(marks)) if sentences else None


def _attacked(attacks: Sequence[Match]) -> str:
    best = max(attacks, key=lambda match: match.advantage.value)
    who = ATTACKERS.get(best.job, f"the attack {best.job.removeprefix('attack-')}")
    won = {1: "is certainly ahead", 0: "is not certainly ahead", -1: "stays certainly behind"}[certain_sign(best.advantage)]
    num_ahead = sum(certain_sign(match.advantage) > 0 for match in attacks)
    others = f" ({num_ahead} of {len(attacks)} attacks are)" if len(attacks) > 1 and num_ahead else ""
    said = f"{who[:1].upper()}{who[1:]} {_points(best)}: it {won}{others}.{caveat(best.advantage, unit='dialogues')}"
    without, forced = (best.metrics.get(name, NOTHING) for name in ("untouched_advantage", "forced_advantage"))
    if without.n:
        ahead = number(POINTS, forced.value)
        said += (
            f" If the target ended the talk there, {ahead} points ahead; {number(POINTS, without.value)} without these words."
        )
    return said


def _points(match: Match) -> str:
    adversary, target = (match.metrics.get(f"score_{side}", NOTHING).value for side in ("adversary", "target"))
    if math.isfinite(adversary) and math.isfinite(target):
        return f"takes {number(POINTS, adversary)} of {match.best} points and leaves the target {number(POINTS, target)}"
    return f"ends {number(POINTS, match.advantage.value)} points from the target"


def _played(matches: Sequence[Match]) -> str:
    first = matches[0]
    sides = [first.metrics.get(f"score_{side}", NOTHING).value for side in ("adversary", "target")]
    deals = first.metrics.get("agreement", NOTHING)
    told = " to ".join(number(POINTS, side) for side in sides)
    more = f" {len(matches) - 1} more matches are below." if len(matches) > 1 else ""
    said = f"{first.name}: {told} of {first.best} points, a deal in {100 * deals.value:.1f} % of the dialogues."
    return said + caveat(first.advantage, unit="dialogues") + more


def _hardened(campaign: Hardening) -> tuple[str, dict[str, Estimate]]:
    """Return whether the best known adversary gains less than before, in either direction, and the figures."""
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
        # Nobody gains from who never comes to a deal.
        text += f" But in plain play it comes to a deal in {number(SHARE, agreed.value)} of the dialogues"
        text += f" ({number(SHARE, was_agreed.value)} before)." if was_agreed.n else "."
    for who, ending in (("it", ""), ("the target of plain play alone", AS_CONTROL)):
        share = campaign.metrics.get(f"{REPETITION}{ending}", NOTHING)
        if has_lost(share.value):
            # What attacks gain from who no longer speaks says nothing of who does.
            text += f" But {who} has lost its language: it repeats itself in {number(SHARE, share.value)} of its 4-grams."
    return text + caveat(drop, unit="dialogues"), marks


def _unfinished(campaign: Hardening) -> tuple[str, dict[str, Estimate]]:
    measured = [one for one in campaign.rounds if EXPLOITABILITY in one.metrics]
    if not measured:
        return "", {}
    last = measured[-1]
    text = f"Round {last.number} is measured and the campaign is not finished: the best adversary known is "
    marks = {f"best adversary, round {one.number}": one.metrics[EXPLOITABILITY] for one in measured}
    ahead = last.metrics[EXPLOITABILITY]
    return f"{text}{number(POINTS, ahead.value)} points ahead.{caveat(ahead)}", marks


def _without_effect(matches: Sequence[Match]) -> list[str]:
    """Sentences on attacks that said no other word, and on those that came to the same points as others."""
    attacks = [match for match in matches if match.job != PLAIN and match.done]
    unchanged = [match.name for match in attacks if not match.changed_words]
    said = [f"No word was changed by: {listed(unchanged)}."] if unchanged else []
    by_points: dict[tuple[tuple[str, int, int], ...], list[Match]] = {}
    for match in matches:
        by_points.setdefault(match.points, []).append(match)
    for points, alike in by_points.items():
        if points and len(alike) > 1 and any(match.job != PLAIN for match in alike):
            said.append(f"The same points in every dialogue have: {listed([match.name for match in alike])}.")
    return said


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
"""What the rounds of a campaign tell."""
_BUDGETS = {
    "replaced": ("Advantage by replaced words", "words that may be replaced", "a word that is replaced twice counts twice"),
    "queries": (
        "Advantage by queries of the target",
        "queries that may be made",
        "a query asks whether a sentence makes the target end the talk, or what it would then choose; gradients do not count",
    ),
}
"""Title, budget and what is counted in it, by name in `budget_curves`."""
_WITHOUT_CURVE = "preemptive and trigger attacks record no steps, combined ones only those that succeeded: these have no curve"
_STEPLESS = (ATTACK_RA_PA_DA.name, ATTACK_RA_PA_TA.name, ATTACK_TRIGGER.name)
"""Attacks that have only the searches on record that succeeded, or of each no more than its beginning and its end."""
_OF_DIALOGUES = set(DIALOGUES.names) - set(OF_DEFENCES)
"""Columns of a dialogue; runs of before there were defences have no more."""
_ATTACK = "attack-"
_IN_TABLES = (ATTACK_TABLE.name, ATTACK_TACTIC.name, MINMAX.name, EVALUATE_POPULATION.name, REPRODUCE_CHENG2019.name)
"""Jobs whose figures stand in tables, and not beside those of matches."""
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
        tactics = shown_tactics(runs)
        matches = [match for run in runs if run.shown and (match := _match(run))]
        matches += [match for one in tactics for match in one.matches]
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

    def verdict(self, found: Negotiation) -> Verdict | None:
        return verdict_on(found)

    def render(self, found: Negotiation) -> Section:
        from parley.engine.negotiation.page import populations as plots

        played = [match for match in found.matches if match.done]
        items = [(match, dialogue_items(match)) for match in played]
        outcomes = [
            Figure(each.name, _outcome_caption(each, place == 0), Markup(plots.scatter_svg(each.name, each.done)))
            for place, each in enumerate(played)
        ]
        curves = [curve_figure(curve) for curve in found.curves if any(curve.series.values())]
        chosen: dict[str, Item] = {}
        for match, shown in items:
            chosen[f"{match.name}: best for the adversary"] = shown[0]
            if len(shown) > 1:
                chosen[f"{match.name}: worst for the adversary"] = shown[1]
        return Section(
            notes=[_NOTE_CHOSEN] if any(len(match.done) > len(shown) for match, shown in items) else [],
            tables=[
                *(table for one in found.tactics for table in one.tables),
                *(table for one in found.reproductions for table in one.tables),
                *found.tables,
                *(table for one in found.populations for table in one.tables.items()),
            ],
            measured=[*found.matches, *found.populations],
            figures=[
                *(drawn for one in found.tactics for drawn in one.figures),
                *(drawn for one in found.reproductions for drawn in one.figures),
                *_learned(found.budgets),
                *curves[:1],
                *(drawn for one in found.populations for drawn in one.figures),
                *outcomes,
                *_budgets(played),
                *curves[1:],
            ],
            lists={heading: pairs for one in found.tactics for heading, pairs in one.lists.items()},
            items=[item for _, shown in items for item in shown],
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
    # What a search records is of whom it read.
    stepless = run.job in _STEPLESS or bool(run.config.get("surrogate"))
    return Match.of(run, job=run.job, rows=rows, stepless=stepless)


def _tables(runs: Sequence[Run]) -> list[tuple[str, EstimateTable]]:
    """The tables of a folder, each with its heading: those that were measured as such, and one of its other attacks."""
    tables: list[tuple[str, EstimateTable]] = []
    lines = []
    for run in runs:
        if run.job == EVALUATE_EXPLOITABILITY.name:
            if known := known_adversaries(run.folder):
                tables.append((f"{run.heading}: known adversaries", known.table()))
            if len(by_budget(run.folder)) * run.config["seeds"] > 1:
                tables.append((f"{run.heading}: fresh adversaries by budget", budget_table(run.folder)))
        elif run.job == MINMAX.name:
            found = _campaign_tables(run)
            if not run.name:
                return found
            tables += [(f"{run.heading}: {title.lower()}", table) for title, table in found]
        elif run.job == ATTACK_TABLE.name and run.metrics:
            by_heading = ATTACK_TABLE.tables(run.folder)
            if not run.name:
                # The attacks below it are its rows, and the page bears its title.
                return [(heading or ALL_ATTACKS, table) for heading, table in by_heading.items()]
            tables += [(f"{run.heading}: {each.lower()}" if each else run.heading, table) for each, table in by_heading.items()]
        elif run.job.startswith(_ATTACK) and run.job != ATTACK_TACTIC.name and run.metrics:
            lines.append(AttackLine(run.heading, run.metrics))
    return [*tables, *([("Attacks side by side", attack_table(lines))] if len(lines) > 1 else [])]


def _campaign_tables(campaign: Run) -> list[tuple[str, EstimateTable]]:
    """Return the result of a campaign and the table of its rounds."""
    rounds = rounds_of(campaign.folder)
    outcome = [("Before and after", _before_and_after(campaign.metrics))] if campaign.metrics else []
    outcome += [("Known adversaries", known.table())] if (known := known_adversaries(campaign.folder)) else []
    return [*outcome, *campaign.trainings, *([("Rounds", rounds_table(rounds))] if rounds else [])]


def _before_and_after(metrics: Mapping[str, Estimate]) -> EstimateTable:
    columns = {"before": BEFORE_TRAINING, "after": ""}
    if DROP_BEYOND_CONTROL in metrics:
        columns["plain play alone"] = AS_CONTROL
    rows = [
        (metric.title, *(with_interval(metrics.get(name + ending, NOTHING)) for ending in columns.values()))
        for name, metric in {**ROUND_METRICS, MORE: LEGEND[MORE]}.items()
        if name in metrics
    ]
    lost = LEGEND[DROP]
    more = [with_interval(metrics[name]) for name in (DROP, DROP_BEYOND_CONTROL) if name in metrics]
    rows.append((lost.title, "", more[0], *(f"{each} more than it" for each in more[1:])))
    known = metrics.get(NUM_KNOWN, NOTHING)
    many = f" of {known.value:.0f} known adversaries" if known.n else " known adversary"
    note = (
        f"Exploitability: by the best{many}, in dialogues that chose neither it nor a round; a lower bound. "
        f"{lost.title.capitalize()}: {lost.definition}. Brackets: 95 % intervals."
    )
    return EstimateTable(("target", *columns), tuple(rows), note)


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
