"""Tables of ranker evaluations (Li et al. 2019, tables 3 to 6), and paired comparisons of rankers.

A line is a ranker under a rule, or on unchanged candidates; published figures stand below it. Comparisons follow tables 5 and
6, which set a matcher that was trained against a rule beside its base.

  * # Paper: figures alone. Ours: the paired bootstrap test of their differences, contexts of a dialogue drawn together, also
    against the control that was trained as long on clean pairs, and of every two rankers that are no such trainings.

Metrics are called KIND_less.MODEL.OTHER.RULE: "r@1_less.hard.smn.iiw" is R_n@1 of hard less that of smn, under IIW.

The published figures are those of the Ubuntu Dialogue Corpus V1 and the Douban Conversation Corpus, in groups of ten. Rules
have the names of the project; the paper prints RLW as "RSW" in table 6 and MRFN as "MFRN". Contradictions of the paper:

  * the abstract's drops of R10@1 (38.3, 45.0 and 31.5 points) are none of table 3 (at most 38.4, 40.9 and 40.4);
  * MRFN under RSW: R10@1 .569 in table 3, .529 in table 5; and .569 beside R2@1 .853 stands far from the other models' rows;
  * MRFN trained against RLW_L/2: "from 76.3 % to 0.6 %" in the text, .060 in table 6;
  * the mean drops under RLW_L/2 and RLW_1 are 70.2 and 63.8 points in the text, 68.4 and 64.2 by tables 4 and 6.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import chain, combinations
from typing import Literal

from parley.engine.core.stats.statistics import NOTHING, Estimate, count
from parley.engine.core.tables.table import (
    ABSENT,
    DECIMAL,
    PERCENT,
    PUBLISHED,
    STAR_NOTE,
    THOUSANDTHS,
    Column,
    EstimateTable,
    Form,
    MarkedEstimate,
    TableCell,
    TableRow,
    metric_table,
    published_cell,
    read_published,
)
from parley.engine.perturb.strategy import RANDOM_WORDS
from parley.engine.ranking.metrics.erasure import KS as KEPT_KS
from parley.engine.ranking.metrics.ranking import (
    BEYOND,
    BEYOND_P,
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

LI_2019 = read_published("parley.engine.ranking.metrics", "li2019.csv")
"""Figures of Li et al. 2019: by table and corpus, such as "3 ubuntu", by model and rule, such as "smn iiw", and by metric."""
BASE = "base"
"""The paper's name of the condition without a rule."""

Trainings = Mapping[str, tuple[Sequence[str], str]]
"""By label of a ranker the rules that it was trained against, none for the control that was trained as long on clean pairs, and
the label of its base or ""."""
_NO_TRAINING: tuple[Sequence[str], str] = ((), "")


def control_of(ranker: str, trainings: Trainings) -> str:
    """Return the first control that was trained as long from the same base; "" for none, or for a control."""
    against, base = trainings.get(ranker, _NO_TRAINING)
    if not (against and base):
        return ""
    return next((label for label, (rules, begun) in trainings.items() if begun == base and not rules), "")


def rankers_beside(rankers: Sequence[str], trainings: Trainings) -> list[tuple[str, str]]:
    """Pair rankers for comparison: a training with its base and its control, any other with each one named before it.

    Args:
        rankers: labels of those that are compared, in the order of the run.
        trainings: of all rankers.
    """
    bases = {ranker: trainings.get(ranker, _NO_TRAINING)[1] for ranker in rankers}
    alone = [ranker for ranker, base in bases.items() if not base]
    trained = [(ranker, other) for ranker, base in bases.items() for other in (base, control_of(ranker, trainings)) if base]
    return [*((later, earlier) for earlier, later in combinations(alone, 2)), *(pair for pair in trained if pair[1])]


def differences(ranked: RankedRows, pairs: Iterable[tuple[str, str]]) -> dict[str, Estimate]:
    """Compare how often the rankers of each pair put a right reply first, by rule, with p-values."""
    at_first = first_place(ranked.several)

    @cache
    def measured(ranker: str, rule: str) -> GroupMetrics:
        return only(ranked.measured(ranker, rule), at_first)

    metrics: dict[str, Estimate] = {}
    for ranker, other in pairs:
        for rule in (CLEAN, *ranked.rules):
            test = compared(measured(ranker, rule), measured(other, rule), ranked.clusters)[at_first]
            kind = metric_of(at_first, ranked.rules.get(rule, True))
            metrics[f"{kind}{LESS}.{ranker}.{other}.{rule}"] = test.difference
            metrics[f"{kind}{LESS_P}.{ranker}.{other}.{rule}"] = count(test.p_value, test.difference.n)
    return metrics


Metrics = Mapping[str, Estimate]
Corpus = Literal["none", "ubuntu", "douban"]

_SHORT = (PAIRWISE, *map(recall_at, KS))
"""Columns for groups of one right reply, where MAP is MRR and P@1 is R@1."""
_LONG = (MAP, MRR, PRECISION, *map(recall_at, KS))
_ALL = (*_SHORT, MAP, MRR, PRECISION)
_CHANGES, _LESSES = (CHANGE, P_VALUE), (LESS, LESS_P)
"""Endings of a difference and of its p-value."""
_ALONE = Form(bounded=False)
_BRACKETS = " Brackets: 95 % intervals, contexts of a dialogue drawn together; n: dialogues."
_NOTE_CHANGE = " Change: less {first} on the same contexts as they are."
_NOTE_TIES = " A tie is worth its share; beside it {first} with all ties right and all wrong."
_NOTE_RULES = (
    " A@1: how often what a rule left of the right reply is first; lower is better. Below: the figure less {first} on the same "
    "contexts as they are."
)
_UNTOUCHED = {"left-out": "left out of the figures", "kept": "kept as attacks that failed"}
_UNRANKED = {"left-out": "left out", "zero": "worth 0"}
_NOTE_PUBLISHED = (
    " Published: Li et al. 2019, on another corpus or another part of it: drops can be compared, absolute values cannot."
)
_NOTE_TRAINED = (
    "How often a right reply is first before and after training against a rule, on candidates as they are and as the rule "
    "leaves them. Change: after less before on the same contexts; less control: after less that of the ranker that was trained "
    "as long on clean pairs."
)


@dataclass(frozen=True)
class EvaluationInfo:
    """The facts of an evaluation that its tables need beside the metrics.

    Args:
        rules: by rule, True if it keeps labels.
        controls: labels of the controls.
        kinds: of checkpoints, by label, such as "smn".
        trainings: rules and bases of trained rankers.
        size: candidates of every group; None where groups differ.
        several: True if a group has several right replies.
        corpus: of the paper, whose figures are shown.
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
        """The metric of the first place."""
        return first_place(self.several)

    @property
    def first_title(self) -> str:
        """The title of that metric."""
        return title(self.first, self.size)

    @property
    def columns(self) -> tuple[str, ...]:
        """The metrics of tables 3 and 4, by their names in `GroupMetrics.values`."""
        return _LONG if self.several or self.corpus == "douban" else _SHORT

    @property
    def questions(self) -> list[str]:
        """The strategies that change the question, without their controls."""
        return [rule for rule in self.rules if f"{rule}{RANDOM_WORDS}" in self.rules]

    @property
    def reply_rules(self) -> dict[str, bool]:
        """The rules that change replies, as in `rules`."""
        changed = {name for rule in self.questions for name in (rule, f"{rule}{RANDOM_WORDS}")}
        return {rule: keeps for rule, keeps in self.rules.items() if rule not in changed}

    @property
    def situations(self) -> list[tuple[str, str, str]]:
        """No rule, then each rule on replies: its name, the heading of its first place, and the metric of that."""
        return [
            (rule, f"{rule} {title(self.first, self.size, adversarial=not keeps)}", metric_of(self.first, keeps))
            for rule, keeps in {CLEAN: True, **self.reply_rules}.items()
        ]


def overview(metrics: Metrics, info: EvaluationInfo) -> EstimateTable:
    """Return how often each ranker puts a right reply first, and under each rule: a line for each ranker."""
    columns = [
        Column(heading, f"{kind}.{{model}}.{rule}", below=_difference("", kind, _CHANGES, f"{{model}}.{rule}", _ALONE))
        for rule, heading, kind in info.situations
    ]
    note = f"{info.first_title}: how often a right reply is first, a tie being worth its share.{_BRACKETS}"
    if info.reply_rules:
        note += _NOTE_RULES.format(first=info.first_title) + STAR_NOTE
    untouched = {rule: metrics[f"{UNTOUCHED}.{rule}"].value for rule in info.reply_rules}
    if shares := [f"{rule} {100 * share:.1f} %" for rule, share in untouched.items() if share > 0]:
        note += f" Untouched contexts, {_UNTOUCHED[info.untouched]}: {', '.join(shares)}."
    if (unranked := metrics.get(UNRANKED, NOTHING)).value > 0:
        num = f"{unranked.value:,.0f} of {unranked.n:,} contexts"
        note += f" Without a right or a wrong reply, {_UNRANKED[info.unranked]}: {num}."
    note += _controls_and_failures(metrics, info)
    return metric_table(metrics, "ranker", _models(metrics), columns, note, n=f"{info.first}.{{model}}.{CLEAN}")


def tables(metrics: Metrics, info: EvaluationInfo) -> dict[str, EstimateTable]:
    """Return all metrics of unchanged candidates, and tables 3 to 6, by their headings; tables without rows are left out."""
    tables = {"Changed questions": _questions(metrics, info)} if info.questions else {}
    tables["Candidates as they are"] = _attacked(metrics, info, (), True, _ALL)
    keeping, spoiling = ([rule for rule, keeps in info.reply_rules.items() if keeps is wanted] for wanted in (True, False))
    if keeping:
        tables["Rules that keep labels"] = _attacked(metrics, info, keeping, True, info.columns)
    if spoiling:
        tables["Rules that make wrong replies of right ones"] = _attacked(metrics, info, spoiling, False, info.columns)
    if kinds := [kind for kind in CandidateKind if any(f"{among(kind)}." in name for name in metrics)]:
        tables["By where wrong replies come from"] = _by_kind(metrics, kinds)
    tables["Rankers beside one another"] = _beside(metrics, info)
    tables["What the rules changed"] = _rules(metrics, info)
    tables["Only the most important words of right replies"] = _kept(metrics, info)
    for keeps_labels, heading in ((True, "Training against rules that keep labels"), (False, "Training against other rules")):
        tables[heading] = _trained(metrics, info, keeps_labels)
    return {heading: table for heading, table in tables.items() if table.rows}


def _questions(metrics: Metrics, info: EvaluationInfo) -> EstimateTable:
    """Return how often a right reply is first behind changed questions, and behind as many random words."""
    first = info.first_title
    columns = [
        Column(f"{CLEAN} {first}", f"{info.first}.{{model}}.{CLEAN}"),
        Column(first, f"{info.first}.{{model}}.{{rule}}"),
        _difference("change", info.first, _CHANGES, "{model}.{rule}"),
        _difference("change, random words", info.first, _CHANGES, f"{{model}}.{{rule}}{RANDOM_WORDS}"),
        _difference("beyond random words", info.first, (BEYOND, BEYOND_P), "{model}.{rule}"),
        Column("untouched", f"{UNTOUCHED}.{{rule}}", PERCENT),
        Column("words", f"{WORDS}.{{rule}}", _ALONE),
    ]
    rows = [
        TableRow(f"{row.label}, {rule}", {**row.fields, "rule": rule})
        for row in _models(metrics)
        if row.label not in info.controls
        for rule in info.questions
    ]
    note = (
        f"{first} behind questions that a strategy changed; untouched ones are {_UNTOUCHED[info.untouched]}. Change: less "
        f"{first} of the same questions as they are. Random words: as many in the same turns, drawn from training contexts. "
        f"Words: changed of a changed question, mean.{_BRACKETS}{STAR_NOTE}"
    )
    return metric_table(metrics, "ranker, strategy", rows, columns, note, n=f"{info.first}.{{model}}.{{rule}}")


def _models(metrics: Metrics) -> list[TableRow]:
    names = [name.removeprefix(f"{FAILED}.") for name in metrics if name.startswith(f"{FAILED}.")]
    return [TableRow(name, {"model": name}) for name in names]


def _difference(heading: str, kind: str, endings: tuple[str, str], of: str, form: Form = DECIMAL) -> Column:
    """Return a column of paired differences with their stars; `of` names the rankers and the rule, or their fields."""
    difference, p_value = (f"{kind}{ending}.{of}" for ending in endings)
    return Column(heading, difference, form, p_value=p_value)


def _attacked(
    metrics: Metrics, info: EvaluationInfo, rules: Sequence[str], keeps_labels: bool, names: Sequence[str]
) -> EstimateTable:
    """Return table 3 or 4, or without rules unchanged candidates alone; the columns are the metrics of these names."""
    kind, ranked = metric_of(info.first, keeps_labels), "{model}.{rule}"
    headings = {name: title(name, info.size, adversarial=not keeps_labels) for name in names}
    if len(set(headings.values())) < len(headings):
        # Of groups of several sizes, A_n@1 has the title of P@1 under attack.
        headings[recall_at(1)] = "An@1"
    printed = LI_2019.get(f"{3 if keeps_labels else 4} {info.corpus}", {})

    def printed_figures(model: str, rule: str) -> dict[str, float]:
        figures = printed.get(f"{model} {BASE if rule == CLEAN else rule}", {})
        return {headings[name]: value for name, value in figures.items() if name in headings}

    situations = [CLEAN, *rules] if keeps_labels else list(rules)
    rows = [
        TableRow(
            f"{row.label}, {rule}" if rules else row.label,
            {**row.fields, "rule": rule},
            printed_figures(info.kinds.get(row.label, ""), rule),
        )
        for row in _models(metrics)
        for rule in situations
    ]
    columns = [Column(heading, f"{metric_of(name, keeps_labels)}.{ranked}") for name, heading in headings.items()]
    has_ties = any(_ties(kind, metrics, row) != ABSENT for row in rows)
    columns += [Column("ties right : wrong", cell=partial(_ties, kind))] * has_ties
    columns += [_difference("change", kind, _CHANGES, ranked)] * bool(rules)
    empty = {column.heading: ABSENT for column in columns} | {"n": ""}
    rows += [
        TableRow(
            f"{model.upper()}, {rule}, {PUBLISHED}",
            {"model": model, "rule": rule},
            cells=empty | {heading: published_cell(value, THOUSANDTHS) for heading, value in figures.items()},
        )
        for model in dict.fromkeys(name.split()[0] for name in printed)
        if model not in info.kinds.values()
        for rule in situations
        if (figures := printed_figures(model, rule))
    ]
    note = ("" if keeps_labels else "What the rule left of the right reply is the relevant one: lower is better. ") + "0 to 1."
    note += _BRACKETS + (_NOTE_CHANGE.format(first=info.first_title) + STAR_NOTE) * bool(rules)
    note += _NOTE_TIES.format(first=info.first_title) * has_ties + _controls_and_failures(metrics, info)
    note += _NOTE_PUBLISHED * bool(printed)
    corner = "ranker, rule" if rules else "ranker"
    return metric_table(metrics, corner, rows, columns, note, n=f"{kind}.{ranked}", published=THOUSANDTHS)


def _ties(kind: str, metrics: Metrics, row: TableRow) -> str:
    of = f"{row.fields['model']}.{row.fields['rule']}"
    right, wrong = (metrics.get(f"{kind}{ending}.{of}", NOTHING) for ending in (TIES_RIGHT, TIES_WRONG))
    return DECIMAL.pair(right, wrong)


def _by_kind(metrics: Metrics, kinds: Sequence[str]) -> EstimateTable:
    columns = [Column(f"{title(name)}, {kind}", f"{name}{among(kind)}.{{model}}.{CLEAN}") for kind in kinds for name in BY_KIND]
    note = f"Candidates as they are. 0 to 1.{_BRACKETS}"
    return metric_table(metrics, "ranker", _models(metrics), columns, note, n=columns[0].metric)


def _kept(metrics: Metrics, info: EvaluationInfo) -> EstimateTable:
    """Return figure 2: the first place when only a few words stay, and below it relative to whole replies."""
    columns = [
        Column(
            f"{k} {'word' if k == 1 else 'words'}",
            f"{KEPT}{k}.{{model}}",
            below=Column("", f"{KEPT_RELATIVE}{k}.{{model}}", cell=partial(_relative, k)),
        )
        for k in KEPT_KS
    ]
    rows = [row for row in _models(metrics) if columns[0].has(metrics, row)]
    first = title(recall_at(1), info.size)
    note = (
        f"{first} when only so many words of right replies stay, those whose erasure costs most (figure 2), 0 to 1.{_BRACKETS} "
        f"Below: divided by {first} with whole replies."
    )
    return metric_table(metrics, "ranker", rows, columns, note, n=columns[0].metric)


def _relative(k: int, metrics: Metrics, row: TableRow) -> str:
    estimate = metrics[f"{KEPT_RELATIVE}{k}.{row.label}"]
    return TableCell(f"\N{MULTIPLICATION SIGN} {DECIMAL.value(estimate.value)}", MarkedEstimate(estimate))


def _beside(metrics: Metrics, info: EvaluationInfo) -> EstimateTable:
    """Return the differences of rankers; no row if there is only one."""
    rankers = [row.label for row in _models(metrics) if row.label not in info.controls]
    rows = [
        TableRow(f"{ranker} less {other}", {"ranker": ranker, "other": other})
        for ranker, other in rankers_beside(rankers, info.trainings)
    ]
    pair = "{ranker}.{other}"
    columns = [_difference(heading, kind, _LESSES, f"{pair}.{rule}") for rule, heading, kind in info.situations]
    note = (
        f"{info.first_title} of the one ranker less that of the other on the same contexts (A@1 under rules that spoil the "
        f"right reply, where less is better).{_BRACKETS}{STAR_NOTE}"
    )
    return metric_table(metrics, "rankers", rows, columns, note, n=columns[0].metric)


def _rules(metrics: Metrics, info: EvaluationInfo) -> EstimateTable:
    """Return how much each rule changed."""
    columns = [
        Column("untouched", f"{UNTOUCHED}.{{rule}}", Form(places=1, factor=100.0, unit=" %", bounded=False)),
        Column("words", f"{WORDS}.{{rule}}"),
        Column("dialogues", cell=lambda metrics, row: f"{metrics.get(f'{UNTOUCHED}.{row.label}', NOTHING).n:,}"),
    ]
    note = f"Untouched: contexts in which the rule changed nothing, {_UNTOUCHED[info.untouched]}. "
    note += "Words: changed of a changed reply, mean."
    if "ngr" in info.rules:
        note += " ngr: one reply for all contexts unless replies.generic names several; its figure is how that text ranks."
    return metric_table(metrics, "rule", [TableRow(rule, {"rule": rule}) for rule in info.rules], columns, note)


def _controls_and_failures(metrics: Metrics, info: EvaluationInfo) -> str:
    """Name the controls, and the rankers without scores, with the number of their contexts."""
    note = f" Controls, to be beaten: {', '.join(info.controls)}." if info.controls else ""
    counts = {row.label: metrics[f"{FAILED}.{row.label}"] for row in _models(metrics)}
    failures = [f"{model} for {lost.value:,.0f} of {lost.n:,} contexts" for model, lost in counts.items() if lost.value > 0]
    return note + (f" No scores under one rule at least: {', '.join(failures)}." if failures else "")


def _trained(metrics: Metrics, info: EvaluationInfo, keeps_labels: bool) -> EstimateTable:
    """Return table 5 or 6; no row if no ranker was trained against such a rule of the run."""
    attacked = metric_of(info.first, keeps_labels)
    sides = {
        info.first_title: (info.first, CLEAN),
        f"attacked {title(info.first, info.size, adversarial=not keeps_labels)}": (attacked, "{rule}"),
    }
    columns = []
    for name, (kind, rule) in sides.items():
        columns += [Column(f"{name} before", f"{kind}.{{base}}.{rule}"), Column(f"{name} after", f"{kind}.{{model}}.{rule}")]
        columns.append(_difference(f"{name} change", kind, _LESSES, f"{{model}}.{{base}}.{rule}"))
    headings = [column.heading for column in columns]
    if any(control_of(model, info.trainings) for model in info.trainings):
        for name, (kind, rule) in sides.items():
            columns.append(_difference(f"{name} less control", kind, _LESSES, f"{{model}}.{{control}}.{rule}"))
    rows = []
    for model, (against, base) in info.trainings.items():
        # The control stands beside every training that began as it did.
        alike = (rules for rules, begun in info.trainings.values() if begun == base)
        for rule in against or dict.fromkeys(chain.from_iterable(alike)):
            if info.rules.get(rule) is keeps_labels:
                label = f"{model}, {rule}" if against else f"{model} (control), {rule}"
                fields = {"model": model, "rule": rule, "base": base, "control": control_of(model, info.trainings)}
                kind = info.kinds.get(model, "") if against and info.corpus == "ubuntu" else ""
                rows.append(
                    TableRow(label, fields, dict(zip(headings, _printed_training(kind, rule, keeps_labels), strict=False)))
                )
    note = _NOTE_TRAINED + _BRACKETS + STAR_NOTE
    if info.corpus == "ubuntu":
        note += f"{_NOTE_PUBLISHED} Published changes: differences of the printed figures."
    return metric_table(metrics, "ranker, rule", rows, columns, note, n=f"{attacked}.{{model}}.{{rule}}", published=THOUSANDTHS)


def _printed_training(kind: str, rule: str, keeps_labels: bool) -> tuple[float, ...]:
    """Return the printed R10@1 before and after a training and its change, clean and under the rule; empty for none."""
    after = LI_2019[f"{5 if keeps_labels else 6} after"].get(f"{kind} {rule}")
    if after is None:
        return ()
    before = LI_2019["5 before"][kind]
    spoiled = LI_2019["4 ubuntu"].get(f"{kind} {rule}", {}).get(recall_at(1), math.nan)
    under = before.get(rule, math.nan) if keeps_labels else spoiled
    return before[BASE], after["clean"], after["clean"] - before[BASE], under, after["attacked"], after["attacked"] - under
