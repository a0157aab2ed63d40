"""Text tables of ranker evaluations (Li et al. 2019, tables 3 to 6), and paired comparisons of rankers.

A line is a ranker under a rule, or on candidates as they are; published figures stand below.

Comparisons follow Li et al. 2019, tables 5 and 6, which set a matcher that was trained against a rule
beside the one that it began with.

  * # Paper: figures alone. Ours: the paired bootstrap test of their differences, contexts of a dialogue drawn together, also
    against the control that was trained as long on clean pairs, and of every two rankers that are no such trainings.

Metrics are called KIND_less.MODEL.OTHER.RULE: "r@1_less.hard.smn.iiw" is R_n@1 of hard less that of smn, under IIW.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, combinations
from typing import Literal

from parley.engine.core.stats.statistics import NOTHING, Estimate, count
from parley.engine.core.tables.table import (
    ABSENT,
    BETWEEN,
    FEW_MARK,
    MINUS,
    EstimateTable,
    above,
    few_note,
    figure,
    num_measured,
    number,
)
from parley.engine.ranking.metrics import published
from parley.engine.ranking.metrics.erasure import KS as KEPT_KS
from parley.engine.ranking.metrics.ranking import (
    BY_KIND,
    CHANGE,
    CLEAN,
    FAILED,
    KEPT,
    KEPT_RELATIVE,
    LESS,
    LESS_P,
    P_VALUE,
    TIES_RIGHT,
    TIES_WRONG,
    UNRANKED,
    UNTOUCHED,
    WORDS,
    RankedRows,
    among,
    first_place,
    metric_of,
    only,
)
from parley.engine.ranking.metrics.ranks import KS, MAP, MRR, PAIRWISE, PRECISION, GroupMetrics, compared, recall_at, title
from parley.envs.ranking.groups import CandidateKind

Trainings = Mapping[str, tuple[Sequence[str], str]]
"""By label of a ranker the rules that it was trained against, none for the control that was trained as long on clean pairs, and
the label of its base or ""."""
_NO_TRAINING: tuple[Sequence[str], str] = ((), "")


def control_of(ranker: str, trainings: Trainings) -> str:
    """The control that was trained as long from the same base, the first of several; "" where none is there, or it is one."""
    against, base = trainings.get(ranker, _NO_TRAINING)
    if not (against and base):
        return ""
    return next((label for label, (rules, begun) in trainings.items() if begun == base and not rules), "")


def rankers_beside(rankers: Sequence[str], trainings: Trainings) -> list[tuple[str, str]]:
    """Who is compared with whom: a training with its base and its control, of all others the one named later with the earlier.

    Args:
        rankers: labels of those that are compared, in the order in which they were asked for.
        trainings: of all rankers.
    """
    bases = {ranker: trainings.get(ranker, _NO_TRAINING)[1] for ranker in rankers}
    alone = [ranker for ranker, base in bases.items() if not base]
    trained = [(ranker, other) for ranker, base in bases.items() for other in (base, control_of(ranker, trainings)) if base]
    return [*((later, earlier) for earlier, later in combinations(alone, 2)), *(pair for pair in trained if pair[1])]


def differences(found: RankedRows, pairs: Iterable[tuple[str, str]]) -> dict[str, Estimate]:
    """How much oftener one ranker puts a right reply first, or what a rule left of it, and the p-value of that difference."""
    at_first = first_place(found.several)

    @cache
    def measured(ranker: str, rule: str) -> GroupMetrics:
        return only(found.measured(ranker, rule), at_first)

    metrics: dict[str, Estimate] = {}
    for ranker, other in pairs:
        for rule in (CLEAN, *found.rules):
            test = compared(measured(ranker, rule), measured(other, rule), found.clusters)[at_first]
            kind = metric_of(at_first, found.rules.get(rule, True))
            metrics[f"{kind}{LESS}.{ranker}.{other}.{rule}"] = test.difference
            metrics[f"{kind}{LESS_P}.{ranker}.{other}.{rule}"] = count(test.p_value, test.difference.n)
    return metrics


SIGNIFICANT = 0.05
"""A star stands where the p-value is below this."""
Metrics = Mapping[str, Estimate]
Corpus = Literal["none", "ubuntu", "douban"]

_PUBLISHED = "published"
_SHORT = (PAIRWISE, *map(recall_at, KS))
"""Columns for groups of one right reply, where MAP is MRR and P@1 is R@1."""
_LONG = (MAP, MRR, PRECISION, *map(recall_at, KS))
_ALL = (*_SHORT, MAP, MRR, PRECISION)
_NOTE = "0 to 1; brackets: 95 % intervals, contexts of a dialogue drawn together; n: dialogues."
_NOTE_CHANGE = (
    " Change: less {first} on the same contexts as they are; star: p < 0.05, paired bootstrap, two-sided, not corrected for "
    "their number."
)
_NOTE_TIES = " A tie is worth its share; beside it {first} with all ties right and all wrong."
_NOTE_UNTOUCHED = "Untouched: contexts in which the rule changed nothing, {untouched}. Words: changed of a changed reply, mean."
_NOTE_OVERVIEW = (
    "{first}: how often a right reply is first, a tie being worth its share; brackets: 95 % intervals, contexts of a dialogue "
    "drawn together; n: dialogues."
)
_NOTE_RULES = (
    " A@1: how often what a rule left of the right reply is first; lower is better. Below: the figure less {first} on the same "
    "contexts as they are; star: p < 0.05, paired bootstrap, two-sided, not corrected for their number."
)
_BY = "\N{MULTIPLICATION SIGN} "
_NOTE_KEPT = (
    "{first} when only so many words of right replies stay, those whose erasure costs most (figure 2), 0 to 1; brackets: 95 % "
    "intervals, contexts of a dialogue drawn together; n: dialogues. Below: divided by {first} with whole replies."
)
_NOTE_NGR = " ngr: one reply for all contexts unless replies.generic names several; its figure is how that text ranks."
_UNTOUCHED = {"left-out": "left out of the figures", "kept": "kept as attacks that failed"}
_NOTE_UNRANKED = " Without a right or a wrong reply, {unranked}: {num:,.0f} of {n:,} contexts."
_UNRANKED = {"left-out": "left out", "zero": "worth 0"}
_NOTE_PUBLISHED = (
    " Published: Li et al. 2019, on another corpus or another part of it: drops can be compared, absolute values cannot."
)
_NOTE_ATTACKED = "What the rule left of the right reply is the relevant one: lower is better. "
_NOTE_TRAINED = (
    "How often a right reply is first before and after training against a rule, on candidates as they are and as the rule "
    "leaves them; brackets: 95 % intervals, contexts of a dialogue drawn together; n: dialogues. Change: after less before on "
    "the same contexts; less control: after less that of the ranker that was trained as long on clean pairs; star: p < 0.05, "
    "paired bootstrap, two-sided, not corrected for their number."
)
_NOTE_TRAINED_PUBLISHED = " Published changes: differences of the printed figures."
_NOTE_BESIDE = (
    "{first} of the one ranker less that of the other on the same contexts (A@1 under rules that spoil the right reply, where "
    "less is better); brackets: 95 % intervals, contexts of a dialogue drawn together; n: dialogues; star: p < 0.05, paired "
    "bootstrap, two-sided, not corrected for their number."
)


@dataclass(frozen=True)
class Shown:
    """What tables say of an evaluation beside its metrics.

    Args:
        rules: whether each rule keeps labels.
        controls: labels of rankers that are there to be beaten.
        kinds: of checkpoints, by label, such as "smn".
        trainings: what rankers were trained against, and from which they began.
        size: candidates of every group; None where groups differ.
        several: whether a group has several right replies.
        corpus: of the paper, whose figures are shown beside.
        untouched: "left-out" or "kept".
        unranked: "left-out" or "zero".
    """

    rules: Mapping[str, bool]
    controls: Sequence[str] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)
    trainings: Trainings = field(default_factory=dict)
    size: int | None = None
    several: bool = False
    corpus: Corpus = "none"
    untouched: str = "left-out"
    unranked: str = "left-out"

    @property
    def first(self) -> str:
        """The metric that says how often a right reply is first."""
        return first_place(self.several)

    @property
    def columns(self) -> tuple[str, ...]:
        """The metrics of tables 3 and 4, by their names in `GroupMetrics.values`."""
        return _LONG if self.several or self.corpus == "douban" else _SHORT


def overview(metrics: Metrics, shown: Shown) -> EstimateTable:
    """How often each ranker puts a right reply first, and under each rule: a line for each ranker."""
    situations = {CLEAN: True, **shown.rules}
    rows = []
    for model in models_of(metrics):
        cells = [_glance(metrics, shown, model, rule) for rule in situations]
        rows.append((model, *cells, num_measured(_first(metrics, shown, model, CLEAN))))
    untouched = {rule: metrics[f"{UNTOUCHED}.{rule}"].value for rule in shown.rules}
    told = [f"{rule} {100 * share:.1f} %" for rule, share in untouched.items() if share > 0]
    note = _NOTE_OVERVIEW.format(first=_at_first(shown)) + (_NOTE_RULES.format(first=_at_first(shown)) if shown.rules else "")
    note += f" Untouched contexts, {_UNTOUCHED[shown.untouched]}: {', '.join(told)}." if told else ""
    if (unranked := metrics.get(UNRANKED, NOTHING)).value > 0:
        note += _NOTE_UNRANKED.format(unranked=_UNRANKED[shown.unranked], num=unranked.value, n=unranked.n)
    few = any(row[-1].endswith(FEW_MARK) for row in rows)
    return EstimateTable(
        ("ranker", *_heads(shown), "n"), tuple(rows), note + _controls(shown) + _failed(metrics) + few_note("dialogues") * few
    )


def tables(metrics: Metrics, shown: Shown) -> dict[str, EstimateTable]:
    """All metrics of candidates as they are, and tables 3 to 6, those that there is something to say in, by their headings."""
    found = {"Candidates as they are": _attacked(metrics, shown, (), True, _ALL)}
    keeping, others = ([rule for rule, keeps in shown.rules.items() if keeps is wanted] for wanted in (True, False))
    if keeping:
        found["Rules that keep labels"] = _attacked(metrics, shown, keeping, True, shown.columns)
    if others:
        found["Rules that make wrong replies of right ones"] = _attacked(metrics, shown, others, False, shown.columns)
    if kinds := [kind for kind in CandidateKind if any(f"{among(kind)}." in name for name in metrics)]:
        found["By where wrong replies come from"] = _by_kind(metrics, kinds)
    if (beside := _beside(metrics, shown)).rows:
        found["Rankers beside one another"] = beside
    if shown.rules:
        found["What the rules changed"] = _rules(metrics, shown)
    if any(name.startswith(KEPT) for name in metrics):
        found["Only the most important words of right replies"] = _kept(metrics, shown)
    for keeps, heading in ((True, "Training against rules that keep labels"), (False, "Training against other rules")):
        table = _trained(metrics, shown, keeps)
        if table.rows:
            found[heading] = table
    return found


def models_of(metrics: Metrics) -> list[str]:
    """The rankers, in the order in which they were asked for."""
    return [name.removeprefix(f"{FAILED}.") for name in metrics if name.startswith(f"{FAILED}.")]


def _attacked(metrics: Metrics, shown: Shown, rules: Sequence[str], keeps_labels: bool, names: Sequence[str]) -> EstimateTable:
    """Table 3, or table 4, or without rules candidates as they are alone; the columns are the metrics of these names."""
    models = models_of(metrics)
    situations = [CLEAN, *rules] if keeps_labels else list(rules)
    has_ties = any(_first(metrics, shown, model, rule, TIES_RIGHT).n for model in models for rule in situations)
    columns = ["ranker, rule" if rules else "ranker"]
    columns += [title(name, shown.size, adversarial=not keeps_labels) for name in names]
    columns += ["ties right : wrong"] * has_ties + ["change"] * bool(rules) + ["n"]
    figures = _published_figures(shown.corpus, keeps_labels)
    rows: list[tuple[str, ...]] = []
    for model in models:
        for rule in situations:
            cells: list[str] = [
                number(metrics.get(f"{metric_of(name, keeps_labels)}.{model}.{rule}", NOTHING)) for name in names
            ]
            cells += [_ties(metrics, shown, model, rule)] * has_ties
            cells += [ABSENT if rule == CLEAN else _change(metrics, shown, model, rule)] * bool(rules)
            line = f"{model}, {rule}" if rules else model
            rows.append((line, *cells, num_measured(_first(metrics, shown, model, rule))))
            rows += _published(figures, names, shown.kinds.get(model, ""), rule, len(columns), _PUBLISHED)
    others = [kind for kind in figures if kind not in shown.kinds.values()]
    for kind in others:
        for rule in situations:
            rows += _published(figures, names, kind, rule, len(columns), f"{kind.upper()}, {rule}, {_PUBLISHED}")
    first = _at_first(shown)
    note = ("" if keeps_labels else _NOTE_ATTACKED) + _NOTE + _NOTE_CHANGE.format(first=first) * bool(rules)
    note += _NOTE_TIES.format(first=first) * has_ties + _controls(shown) + _failed(metrics) + _NOTE_PUBLISHED * bool(figures)
    few = any(row[-1].endswith(FEW_MARK) for row in rows)
    return EstimateTable(tuple(columns), tuple(rows), note + few_note("dialogues") * few)


def _by_kind(metrics: Metrics, kinds: Sequence[str]) -> EstimateTable:
    """How rankers do when wrong replies of one kind stand beside the right ones, and no others."""
    columns = [(name, kind) for kind in kinds for name in BY_KIND]
    rows = []
    for model in models_of(metrics):
        found = [metrics.get(f"{name}{among(kind)}.{model}.{CLEAN}", NOTHING) for name, kind in columns]
        rows.append((model, *map(number, found), num_measured(found[0])))
    heads = (f"{title(name)}, {kind}" for name, kind in columns)
    few = any(row[-1].endswith(FEW_MARK) for row in rows)
    return EstimateTable(("ranker", *heads, "n"), tuple(rows), f"Candidates as they are. {_NOTE}" + few_note("dialogues") * few)


def _kept(metrics: Metrics, shown: Shown) -> EstimateTable:
    """Figure 2: the first place when only few words stay, and below it relative to whole replies."""
    rows = []
    for model in models_of(metrics):
        known = [metrics.get(f"{KEPT}{k}.{model}", NOTHING) for k in KEPT_KS]
        if known[0].n:
            relative = [metrics[f"{KEPT_RELATIVE}{k}.{model}"].value for k in KEPT_KS]
            cells = [f"{number(each)}\n{_BY}{figure(part)}" for each, part in zip(known, relative, strict=True)]
            rows.append((model, *cells, num_measured(known[0])))
    heads = (f"{k} {'word' if k == 1 else 'words'}" for k in KEPT_KS)
    few = any(row[-1].endswith(FEW_MARK) for row in rows)
    note = _NOTE_KEPT.format(first=title(recall_at(1), shown.size))
    return EstimateTable(("ranker", *heads, "n"), tuple(rows), note + few_note("dialogues") * few)


def _beside(metrics: Metrics, shown: Shown) -> EstimateTable:
    """Differences of rankers; without any row where one stands alone."""
    situations = {CLEAN: True, **shown.rules}
    rankers = [model for model in models_of(metrics) if model not in shown.controls]
    rows = []
    for ranker, other in rankers_beside(rankers, shown.trainings):
        cells = [_less(metrics, shown, ranker, other, rule) for rule in situations]
        rows.append((f"{ranker} less {other}", *cells, num_measured(_first(metrics, shown, f"{ranker}.{other}", CLEAN, LESS))))
    few = any(row[-1].endswith(FEW_MARK) for row in rows)
    note = _NOTE_BESIDE.format(first=_at_first(shown)) + few_note("dialogues") * few
    return EstimateTable(("rankers", *_heads(shown), "n"), tuple(rows), note)


def _rules(metrics: Metrics, shown: Shown) -> EstimateTable:
    """What each rule found to change."""
    rows = []
    for rule in shown.rules:
        untouched, words = (metrics.get(f"{kind}.{rule}", NOTHING) for kind in (UNTOUCHED, WORDS))
        share = f"{100 * untouched.value:.1f} %" if untouched.n else ABSENT
        rows.append((rule, share, number(words), f"{untouched.n:,}"))
    note = _NOTE_UNTOUCHED.format(untouched=_UNTOUCHED[shown.untouched]) + _NOTE_NGR * ("ngr" in shown.rules)
    return EstimateTable(("rule", "untouched", "words", "contexts"), tuple(rows), note)


def _glance(metrics: Metrics, shown: Shown, model: str, rule: str) -> str:
    """How often a right reply is first, and under a rule how far that is from the same contexts as they are."""
    measured = _first(metrics, shown, model, rule)
    if rule == CLEAN or not measured.n:
        return number(measured)
    change, *_ = _change(metrics, shown, model, rule).split("\n")
    return f"{number(measured)}\n{change}"


def _change(metrics: Metrics, shown: Shown, model: str, rule: str) -> str:
    """How far a figure is from that of the same contexts as they are, with a star where that is no chance."""
    return _starred(*(_first(metrics, shown, model, rule, ending) for ending in (CHANGE, P_VALUE)))


def _less(metrics: Metrics, shown: Shown, model: str, other: str, rule: str) -> str:
    """How far a ranker's figure is above another's, likewise; a dash where that is not known."""
    return _starred(*(_first(metrics, shown, f"{model}.{other}", rule, ending) for ending in (LESS, LESS_P)))


def _starred(difference: Estimate, p_value: Estimate) -> str:
    value, *below = number(difference).split("\n")
    # NaN, for no test, is not below it.
    return above(value + "*" * (p_value.value < SIGNIFICANT), *below)


def _ties(metrics: Metrics, shown: Shown, model: str, rule: str) -> str:
    ends = [_first(metrics, shown, model, rule, ending) for ending in (TIES_RIGHT, TIES_WRONG)]
    return BETWEEN.join(map(number, ends)) if ends[0].n else ABSENT


def _first(metrics: Metrics, shown: Shown, model: str, rule: str, ending: str = "") -> Estimate:
    """How often a right reply is first, or what is left of it; by its ending what is known of that figure."""
    return metrics.get(f"{metric_of(shown.first, shown.rules.get(rule, True))}{ending}.{model}.{rule}", NOTHING)


def _heads(shown: Shown) -> list[str]:
    """The first place as replies are, and under each rule."""
    situations = {CLEAN: True, **shown.rules}
    return [f"{rule} {title(shown.first, shown.size, adversarial=not keeps)}" for rule, keeps in situations.items()]


def _at_first(shown: Shown) -> str:
    return title(shown.first, shown.size)


def _controls(shown: Shown) -> str:
    return f" Controls, to be beaten: {', '.join(shown.controls)}." if shown.controls else ""


def _failed(metrics: Metrics) -> str:
    """Which rankers gave no scores, and for how many contexts; nothing where all did."""
    counts = {model: metrics[f"{FAILED}.{model}"] for model in models_of(metrics)}
    told = [f"{model} for {each.value:,.0f} of {each.n:,} contexts" for model, each in counts.items() if each.value > 0]
    return f" No scores under one rule at least: {', '.join(told)}." if told else ""


def _published_figures(corpus: Corpus, keeps_labels: bool) -> Mapping[str, Mapping[str, published.Figures]]:
    table = published.TABLE_3 if keeps_labels else published.TABLE_4
    return table.get(corpus, {})


def _published(
    figures: Mapping[str, Mapping[str, published.Figures]], names: Sequence[str], kind: str, rule: str, width: int, name: str
) -> list[tuple[str, ...]]:
    """The published line of a kind of ranker under a rule; none where nothing is known of it."""
    known = figures.get(kind, {}).get(published.CLEAN if rule == CLEAN else rule)
    if known is None:
        return []
    cells = [f"{known[metric]:.3f}" if metric in known else ABSENT for metric in names]
    return [(name, *cells, *[ABSENT] * (width - len(cells) - 2), "")]


def _trained(metrics: Metrics, shown: Shown, keeps_labels: bool) -> EstimateTable:
    """Table 5, or table 6; without any row where no ranker was trained against such a rule that it was asked about."""
    clean, attacked = (title(shown.first, shown.size, adversarial=each) for each in (False, not keeps_labels))
    named = (clean, f"attacked {attacked}")
    columns = ["ranker, rule", *(f"{name} {kind}" for name in named for kind in ("before", "after", "change"))]
    has_control = any(control_of(model, shown.trainings) for model in shown.trainings)
    columns += [*(f"{name} less control" for name in named)] * has_control + ["n"]
    known = (published.TABLE_5 if keeps_labels else published.TABLE_6) if shown.corpus == "ubuntu" else {}
    rows: list[tuple[str, ...]] = []
    for model, (against, base) in shown.trainings.items():
        # The control stands beside every training that began as it did.
        others = (rules for rules, begun in shown.trainings.values() if begun == base)
        control = control_of(model, shown.trainings)
        for rule in against or dict.fromkeys(chain.from_iterable(others)):
            if shown.rules.get(rule) is not keeps_labels:
                continue
            cells: list[str] = []
            for situation in (CLEAN, rule):
                cells += [number(_first(metrics, shown, each, situation)) for each in (base, model)]
                cells.append(_less(metrics, shown, model, base, situation))
            cells += [_less(metrics, shown, model, control, situation) for situation in (CLEAN, rule)] * has_control
            named_rule = f"{model}, {rule}" if against else f"{model} (control), {rule}"
            rows.append((named_rule, *cells, num_measured(_first(metrics, shown, model, rule))))
            kind = shown.kinds.get(model, "") if against else ""
            if (told := known.get(kind, {}).get(rule)) is not None:
                before, under = _before(kind, rule, keeps_labels)
                figures = (before, told.clean, told.clean - before, under, told.attacked, told.attacked - under)
                shown_figures = (ABSENT if math.isnan(each) else f"{each:.3f}".replace("-", MINUS) for each in figures)
                rows.append((_PUBLISHED, *shown_figures, *[ABSENT] * 2 * has_control, ""))
    few = any(row[-1].endswith(FEW_MARK) for row in rows)
    return EstimateTable(
        tuple(columns),
        tuple(rows),
        _NOTE_TRAINED + (_NOTE_PUBLISHED + _NOTE_TRAINED_PUBLISHED) * bool(known) + few_note("dialogues") * few,
    )


def _before(kind: str, rule: str, keeps_labels: bool) -> tuple[float, float]:
    """R10@1 before training as the paper has it, clean and under the rule."""
    before = published.TABLE_5_BEFORE[kind]
    spoiled = published.TABLE_4["ubuntu"][kind].get(rule, {}).get(recall_at(1), math.nan)
    return before[published.CLEAN], before.get(rule, math.nan) if keeps_labels else spoiled
