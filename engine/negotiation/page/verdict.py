"""The verdict on a negotiator: what the strongest attack takes from it, and whether hardening helped."""

from __future__ import annotations

import math
from collections.abc import Sequence

from parley.engine.core.page.content import Verdict
from parley.engine.core.page.verdicts import MINUS, MOST_MARKS, POINTS, SHARE, caveat, certain_sign, first_marks, listed, number
from parley.engine.core.stats.exploitability import EXPLOITABILITY, MEAN_FRESH
from parley.engine.core.stats.repetition import has_lost
from parley.engine.core.stats.statistics import NOTHING, Estimate, Metric
from parley.engine.negotiation.metrics.campaign import PLAIN_AGREEMENT, REPETITION
from parley.engine.negotiation.page.sections import PLAIN, Hardening, Match, Negotiation
from parley.engine.negotiation.verbs.exploitability import MORE, NUM_KNOWN
from parley.engine.negotiation.verbs.minmax import AS_CONTROL, BEFORE_TRAINING, DROP, DROP_BEYOND_CONTROL

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
    """Whether the best known adversary gains less from the target than before, in either direction, and the figures."""
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
