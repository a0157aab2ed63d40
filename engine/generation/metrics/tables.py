"""The tables of an adversarial evaluation in the layout of Li et al. 2017 (tables 2 and 3), and what they come to in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from parley.engine.core.stats.rows import Row, finished
from parley.engine.core.stats.statistics import NOTHING, Estimate
from parley.engine.core.stats.tables import ABSENT, TextTable, few_note, interval, num_measured
from parley.engine.generation.metrics.adversarial import (
    AHEAD,
    AHEAD_RANDOM,
    CALIBRATION,
    CHANCE,
    CONSTANT,
    ERE,
    LENGTH_ONLY,
    TAU,
)
from parley.engine.generation.metrics.scenarios import ADVERSUC, CUT, GOLD, MATCHED, RANDOM

Metrics = Mapping[str, Estimate]

PUBLISHED_ERE = {"SVM+Unigram": 0.232, "Concat Neural": 0.209, "Hierarchical Neural": 0.193, "SVM+Neural+multi-features": 0.152}
"""Table 2 of the paper."""
PUBLISHED_ADVERSUC = {
    "MLE-BS": (0.037, 0.942),
    "MLE-greedy": (0.049, 0.945),
    "MMI+p(t|s)": (0.073, 0.953),
    "MMI-p(t)": (0.090, 0.880),
    "Sampling": (0.372, 0.679),
    "Adver-Reinforce": (0.080, 0.945),
    "Adver-REGS": (0.098, 0.952),
}
"""Table 3: AdverSuc and machine-vs-random of the hierarchical judge."""
SUCCESS, RELIABILITY, RANKING, AGREEMENT, FEATURES = (
    "AdverSuc and machine-vs-random (table 3)",
    "Reliability of the judges (table 2)",
    "Systems against each other",
    "Rank agreement of the judges",
    "Strongest features of linear judges",
)
_NOTE = (
    "AdverSuc: 1 less the accuracy of telling people's replies from the system's; .5 where the judge cannot, an undecided pair "
    "is half an error. Chance: range of judges with nothing to learn, 95 %. Machine-vs-random: accuracy of telling the "
    "system's replies from human ones to other sources. Matched, cut: AdverSuc where length tells nothing. Calibration: mean "
    "distance of 1 / (1 + exp(-score)) from the share of people's replies. Brackets: 95 % intervals, pairs of a source drawn "
    "together; n: sources."
)
_NOTE_ERE = (
    "ERE: mean distance of AdverSuc from gold over {num} scenarios, equally weighted; gold: .5 where both sides are one "
    "file's, 0 against random replies and next utterances. A judge that says nothing has an ERE of {constant}."
)
_NOTE_PUBLISHED = " Published: Li et al. 2017, on OpenSubtitles; ERE over four scenarios, .250 for a judge that says nothing."
_NOTE_RANKING = "The first system less the second on the sources that both answer; * where the interval leaves 0 out."
_NOTE_TAU = "Kendall's tau-b over the systems' AdverSuc: 1 the same order, -1 the opposite one."
_NOTE_FEATURES = "Weights, mean over folds; s: a word of the source. Above 0 for people's replies."
_NUM_FEATURES = 10
EQUAL = {MATCHED: "with lengths matched", CUT: "with all replies cut to one length"}
"""Scenarios in which length tells nothing, in words; the first one that has pairs enough decides whether length explains a
judge. Cut replies come second, because how they end may tell which of them were cut."""


@dataclass(frozen=True)
class AskedJudges:
    """Who judges what.

    Args:
        judges: labels of the judges that were named.
        controls: of those that are beside them in any case.
        systems: of the machine files.
        published: whether published figures are shown beside.
    """

    judges: Sequence[str]
    controls: Sequence[str]
    systems: Sequence[str]
    published: bool = False

    @property
    def all_judges(self) -> list[str]:
        """Those that were named, then the controls."""
        return [*self.judges, *self.controls]


def tables(metrics: Metrics, asked: AskedJudges, rows: Sequence[Row] = ()) -> dict[str, TextTable]:
    """All tables that there is something to say in, by their headings.

    Args:
        metrics: those of `adversarial_metrics`.
        asked: who judged what.
        rows: of the run, for the features of linear judges.
    """
    found = {SUCCESS: _success(metrics, asked), RELIABILITY: _reliability(metrics, asked)}
    if len(asked.systems) > 1:
        found[RANKING] = _ranking(metrics, asked)
    if any(name.startswith(f"{TAU}.") for name in metrics):
        found[AGREEMENT] = _agreement(metrics, asked)
    features = strongest_features(rows)
    if features:
        found[FEATURES] = _features(features)
    return found


def verdicts(metrics: Metrics, asked: AskedJudges) -> list[str]:
    """What the figures come to, a sentence for all systems of one outcome and one about judges that are not to be used."""
    told = dict[str, list[tuple[str, str]]]()
    for system in asked.systems:
        if found := _of_system(metrics, asked, system):
            told.setdefault(found[0], []).append((system, found[1]))
    said = []
    for outcome, systems in told.items():
        if len(systems) == 1:
            said += [f"{system}: {outcome} ({figures})." for system, figures in systems]
        else:
            each = "; ".join(f"{system} ({figures})" for system, figures in systems)
            said.append(f"{outcome.replace('its replies', 'the replies')}: {each}.")
    if unreliable := [judge for judge in asked.judges if not is_reliable(metrics, judge)]:
        constant = _share(metrics.get(f"{ERE}.{CONSTANT}", NOTHING).value)
        said.append(f"ERE no better than that of a constant ({constant}): do not use {', '.join(unreliable)}.")
    return said


def is_reliable(metrics: Metrics, judge: str) -> bool:
    """Whether a judge's ERE is certainly below that of a judge that says nothing."""
    return bool(metrics.get(f"{ERE}.{judge}", NOTHING).high < metrics.get(f"{ERE}.{CONSTANT}", NOTHING).value)


def strongest_features(rows: Sequence[Row]) -> dict[tuple[str, str], list[tuple[str, float]]]:
    """By system and linear judge the words of largest mean weight over folds, most human first, then most machine-like."""
    sums: dict[tuple[str, str], dict[str, float]] = {}
    folds: dict[tuple[str, str], int] = {}
    for row in finished(rows):
        kind, _, system = row["scenario"].partition(".")
        if kind == ADVERSUC and row["features"]:
            key = system, row["judge"]
            folds[key] = folds.get(key, 0) + 1
            words = sums.setdefault(key, {})
            for feature in row["features"]:
                words[feature["word"]] = words.get(feature["word"], 0.0) + feature["weight"]
    found = {}
    for key, words in sorted(sums.items()):
        order = sorted(((word, weight / folds[key]) for word, weight in words.items()), key=lambda pair: (-pair[1], pair[0]))
        human, machine = order[:_NUM_FEATURES], order[-_NUM_FEATURES:][::-1]
        found[key] = [pair for pair in human if pair[1] > 0] + [pair for pair in machine if pair[1] < 0]
    return found


def _success(metrics: Metrics, asked: AskedJudges) -> TextTable:
    rows: list[tuple[str, ...]] = []
    columns = ("judge, system", "AdverSuc", "chance", "machine-vs-random", "matched", "cut", "calibration", "n")
    for judge in asked.all_judges:
        for system in asked.systems:
            kinds = (ADVERSUC, RANDOM, MATCHED, CUT, CALIBRATION)
            told = {kind: metrics.get(f"{kind}.{judge}.{system}", NOTHING) for kind in kinds}
            name = f"{judge}{' (control)' * (judge in asked.controls)}, {system}"
            cells = [_number(told[kind]) for kind in (RANDOM, MATCHED, CUT, CALIBRATION)]
            chance = interval(metrics.get(f"{CHANCE}.{ADVERSUC}.{system}", NOTHING), _share)
            rows.append((name, _number(told[ADVERSUC]), chance or ABSENT, *cells, num_measured(told[ADVERSUC])))
    few = any("few" in row[-1] for row in rows)
    if asked.published:
        rows += [
            (f"{name}, published", _share(adversuc), ABSENT, _share(accuracy), *[ABSENT] * 3, "")
            for name, (adversuc, accuracy) in PUBLISHED_ADVERSUC.items()
        ]
    return TextTable(columns, tuple(rows), _NOTE + _NOTE_PUBLISHED * asked.published + few_note("sources") * few)


def _reliability(metrics: Metrics, asked: AskedJudges) -> TextTable:
    names = [f"{kind}.{{}}.{system}" for kind in GOLD for system in asked.systems] + [f"{kind}.{{}}" for kind in GOLD]
    shown = [name for name in names if any(name.format(judge) in metrics for judge in asked.all_judges)]
    heads = [name.replace(".{}", "").replace(".", ", ") for name in shown]
    rows = [
        (
            f"{judge}{' (control)' * (judge in asked.controls)}",
            _number(metrics.get(f"{ERE}.{judge}", NOTHING)),
            *(_number(metrics.get(name.format(judge), NOTHING)) for name in shown),
        )
        for judge in asked.all_judges
    ]
    if asked.published:
        rows += [(f"{name}, published", _share(ere), *[ABSENT] * len(shown)) for name, ere in PUBLISHED_ERE.items()]
    num = len({name.partition(".")[0] for name in shown})
    note = _NOTE_ERE.format(num=num, constant=_share(metrics.get(f"{ERE}.{CONSTANT}", NOTHING).value))
    return TextTable(("judge", "ERE", *heads), tuple(rows), note + _NOTE_PUBLISHED * asked.published)


def _ranking(metrics: Metrics, asked: AskedJudges) -> TextTable:
    rows = []
    for judge in asked.judges:
        for one, other in combinations(asked.systems, 2):
            told = [metrics.get(f"{kind}.{judge}.{one}.{other}", NOTHING) for kind in (AHEAD, AHEAD_RANDOM)]
            cells = [_number(each) + "*" * _certain(each) for each in told]
            rows.append((f"{judge}: {one} less {other}", *cells, num_measured(told[0])))
    return TextTable(("judge, systems", "AdverSuc", "machine-vs-random", "n"), tuple(rows), _NOTE_RANKING)


def _agreement(metrics: Metrics, asked: AskedJudges) -> TextTable:
    told = {tuple(name.split(".")[1:]): each.value for name, each in metrics.items() if name.startswith(f"{TAU}.")}
    told |= {(other, one): value for (one, other), value in told.items()}
    names = [judge for judge in asked.all_judges if any(judge in pair for pair in told)]
    rows = [(one, *(_share(told.get((one, other), math.nan)) for other in names)) for one in names]
    return TextTable(("judge", *names), tuple(rows), _NOTE_TAU)


def _features(features: Mapping[tuple[str, str], Sequence[tuple[str, float]]]) -> TextTable:
    rows = []
    for (system, judge), words in features.items():
        sides = [", ".join(f"{word} {weight:+.2f}" for word, weight in words if (weight > 0) == side) for side in (True, False)]
        rows.append((f"{judge}, {system}", *sides))
    return TextTable(("judge, system", "people's", "machine's"), tuple(rows), _NOTE_FEATURES)


def _of_system(metrics: Metrics, asked: AskedJudges, system: str) -> tuple[str, str] | None:
    """What a system comes to, and by which figures; None where nobody judged it."""
    told = {judge: metrics.get(f"{ADVERSUC}.{judge}.{system}", NOTHING) for judge in asked.judges}
    known = {judge: each for judge, each in told.items() if each.n}
    if not known:
        return None
    chance = metrics[f"{CHANCE}.{ADVERSUC}.{system}"]
    best = min(known, key=lambda judge: known[judge].value)
    figures = f"AdverSuc {_share(known[best].value)} by {best}"
    beside = f"machine-vs-random {_share(metrics.get(f'{RANDOM}.{best}.{system}', NOTHING).value)}"
    coins = f"chance, {_share(chance.low)} to {_share(chance.high)}; {beside}"
    if known[best].value > chance.high:
        return "these judges are wrong more often than coins", f"{figures}, above {coins}; that is no success of the system"
    if known[best].value >= chance.low:
        return "these judges cannot tell its replies from people's", f"{figures}, within {coins}"
    # What tells nothing explains nothing, and so few pairs that this judge would be within chance anyway decide nothing.
    equal = {kind: metrics.get(f"{kind}.{best}.{system}", NOTHING) for kind in EQUAL}
    low = {kind: metrics.get(f"{CHANCE}.{kind}.{system}", NOTHING).low for kind in EQUAL}
    alone = metrics.get(f"{ADVERSUC}.{LENGTH_ONLY}.{system}", NOTHING).value
    decides = next((kind for kind in EQUAL if equal[kind].n and known[best].value < low[kind]), None)
    if alone < chance.low and decides and equal[decides].value >= low[decides]:
        found = f"{_share(alone)} by length alone, {_share(equal[decides].value)} {EQUAL[decides]}, no better than chance"
        return "length explains it", f"{figures}, {found}; {beside}"
    shown = decides or next((kind for kind in EQUAL if equal[kind].n), None)
    more = f", {_share(equal[shown].value)} {EQUAL[shown]}" if shown else ""
    return f"{best} tells its replies from people's", f"{figures}{more}; {beside}"


def _certain(difference: Estimate) -> bool:
    return difference.low > 0 or difference.high < 0


def _share(value: float) -> str:
    return f"{value:.3f}" if math.isfinite(value) else ABSENT


def _number(estimate: Estimate) -> str:
    return " ".join(filter(None, (_share(estimate.value), interval(estimate, _share))))
