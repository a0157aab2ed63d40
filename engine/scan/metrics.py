"""Breach rates of a scan with their controls, the limits of a policy, and what would decide them.

    breach          share of the answers under the policy's attacks in which a rule is broken
    breach.NAME     the same under one attack or control
    broken          share of the prompts that an attack broke at least once; a failed or undecided answer breaks none
    above.NAME      breach.NAME less that without an attack, at equal cost on the same prompts
    rule.NAME       share of the answers under attacks that break this rule, of those that it is asked about
    undecided       share of all answers without a verdict
    untouched.NAME  share of the questions that an attack left as the prompt is; `untouched` of all attacks
    agreement.NAME  Krippendorff's alpha of the judges of a panel in this rule, or of people who label

With labels of people (`parley label`) also sensitivity, specificity and kappa of the verdicts, and corrected.breach ....

Under a budget a row is an attack that asks until a breach or the end of its budget. Then there are also

    gain.NAME       breach.NAME less that of the prompt repeated as often
    queries.NAME    messages to the target that an attack took
    refused.NAME    share of the attacker model's answers that are no attack

Answers without a verdict are in no rate but `undecided`, and untouched ones in none of an attack. Intervals are 95 %; answers
to one prompt are drawn together, and prompts of the same messages are one.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from parley.engine.core.stats.judged import agreement
from parley.engine.core.stats.pairs import ItemFigures, ItemMetrics
from parley.engine.core.stats.rows import Columns, linked_units, selected
from parley.engine.core.stats.statistics import (
    NEITHER,
    NOTHING,
    Estimate,
    Metric,
    Row,
    cluster_codes,
    clustered_rate,
    finished,
    mean_count,
    rate,
    rate_difference,
)
from parley.engine.core.tables.table import PERCENT, Column, EstimateTable, TableRow, metric_table, num_measured, with_interval
from parley.engine.scan.attacks import CONTROLS, NONE, REPEAT
from parley.engine.scan.defence_metrics import DEFENDED, describe_defence
from parley.engine.triggers.budget import BUDGET
from parley.envs.core.seeds import stable_hash

BREACH, BROKEN, UNDECIDED, UNTOUCHED, ABOVE, RULE = "breach", "broken", "undecided", "untouched", "above", "rule"
CORRECTED = "corrected"
"""Prefix of rates that labels of people correct for the errors of the verdicts (`labels.py`)."""
AGREEMENT, AGREEMENT_OF_LABELLERS = "agreement", "agreement.labellers"
GAIN, QUERIES, REFUSED = "gain", "queries", "refused"
"""Metrics of attacks under a budget."""
FOR_ADVERSARY = "higher: adversary"
NUM_SHOWN = 5
"""Breaches whose texts the last screen shows."""
_MOST_PROMPTS = 10_000_000
NO_REPEATS: Mapping[str, str] = MappingProxyType({})
_EQUAL_COST = "equal cost"
_ASKED_ONCE = "asked once; that at equal cost stands in above repetition"
_NOTE = (
    "Breaches: share of the answers in which a rule is broken. Above: less that without an attack, same prompts, {}. "
    "Answers without a verdict are left out.{} Brackets: 95 % intervals, answers to one prompt drawn together; n: prompts."
)
_NOTE_UNTOUCHED = " Untouched: questions that the attack left as the prompt is; their answers are in no other column."


_UNDECIDED, _AS_IS = -1, 1
_BEHIND = ("defence", "adaptive", "harmful", "unmet", "refused_by", "model_queries")
_COLUMNS = ("prompt", "attack", "repeat", "asked", "breach", "untouched", "rules", *_BEHIND, "turns", "refusals", *BUDGET)


class AnswerColumns:
    """Columns of numbers of answers, for all metrics; the rows are gone through once.

    An outcome is 1, 0, or -1 where it is undecided or there is none. The code of a name is its index in the order of names, and
    that of a prompt any number.

    Args:
        rows: of a scan; those that failed are counted.
        repeated: `Policy.repeated`; such prompts are one unit.
    """

    def __init__(self, rows: Iterable[Row], repeated: Mapping[str, str] = NO_REPEATS) -> None:
        self.attacks, self.rules = dict[str, int](), dict[str, int]()
        """Names, each with its index."""
        self.defences = {"": 0}
        """Names of defences; an empty one for none."""
        self.is_attacked, self.num_failed = False, 0
        """True if rows are attacks under a budget; the number of rows that failed."""
        self._columns, self._num = Columns(), 0
        for row in rows:
            if row.get("status", "ok") != "ok":
                self.num_failed += 1
                continue
            unit = repeated.get(row["prompt"], row["prompt"])
            self._add("Q", prompt=stable_hash(row["prompt"]), unit=stable_hash(unit))
            texts = {turn["asked"] for turn in row["turns"]} if row.get("turns") else {row["asked"]}
            # An attack of several wordings has changed the prompt. Rows of earlier versions do not say if they are untouched.
            digest = stable_hash(*texts) if len(texts) == 1 else 0
            self._add("Q", text=digest if row.get("untouched") is None else _AS_IS * row["untouched"])
            self._add("b", breach=_outcome(row["breach"]))
            self._add("H", attack=self.attacks.setdefault(row["attack"], len(self.attacks)), repeat=row.get("repeat") or 0)
            for verdict in row["rules"]:
                self._add("i", of=self._num)
                self._add("H", rule=self.rules.setdefault(verdict["rule"], len(self.rules)))
                self._add("b", broken=_outcome(verdict["broken"]))
            if "defence" in row:
                self._add("H", defence=self.defences.setdefault(row["defence"] or "", len(self.defences)))
                self._add("b", **{name: _outcome(row[name]) for name in ("adaptive", "harmful", "unmet")})
                self._add("b", stopped=bool(row["refused_by"]))
                self._add("i", model_queries=row["model_queries"])
            if "turns" in row:
                self.is_attacked = True
                first: Row = next((turn for turn in row["turns"] if turn["breach"]), {})
                for name in BUDGET:
                    self._add("d", **{name: row[name], f"first_{name}": first.get(name, math.inf)})
                self._add("i", refusals=len(row["refusals"]), thoughts=sum(bool(turn["thought"]) for turn in row["turns"]))
            self._num += 1
        self._units = {name: linked_units(self._columns.get(name, "Q")).astype(np.int32) for name in ("prompt", "unit")}
        plain, of, text = np.zeros(self._num, dtype=np.uint64), self["prompt"], self["text"]
        plain[of[self._of(NONE)]] = text[self._of(NONE)]
        self.untouched = ((text == _AS_IS) | ((text == plain[of]) & (text > 0))) & ~self.controlled
        """Whether an attack asked nothing but the prompt as it is (V,) bool."""

    def _add(self, code: str, **numbers: float) -> None:
        for name, number in numbers.items():
            self._columns.add(name, code, (number,))

    @classmethod
    def of(cls, rows: Answers, repeated: Mapping[str, str] = NO_REPEATS) -> AnswerColumns:
        """Return the columns of rows; columns stay as they are."""
        return rows if isinstance(rows, AnswerColumns) else cls(selected(rows, *_COLUMNS), repeated)

    def _verdicts(self) -> Iterator[np.ndarray]:
        return (self._columns.get(name, "i") for name in ("of", "rule", "broken"))

    def __len__(self) -> int:
        return self._num

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._columns:
            return np.zeros(self._num, dtype=np.int8)
        return self._units[name] if name in self._units else self._columns.get(name)

    def names(self, kind: str, among: np.ndarray) -> list[str]:
        """Return the attacks or defences of some answers, in the order in which they come.

        Args:
            kind: "attack" or "defence".
            among: whether an answer counts (V,) bool.
        """
        names = list({"attack": self.attacks, "defence": self.defences}[kind])
        codes, first = np.unique(self[kind][among], return_index=True)
        return [names[code] for code in codes[np.argsort(first)]]

    def _of(self, attack: str) -> np.ndarray:
        is_of: np.ndarray = self["attack"] == self.attacks.get(attack, -1)
        return is_of

    def under(self, attack: str) -> np.ndarray:
        """Return which answers are under an attack that changed the prompt, or under a control (V,) bool."""
        return self._of(attack) & ~self.untouched

    @property
    def attacked(self) -> np.ndarray:
        """The answers under attacks that changed the prompt (V,) bool."""
        return ~self.controlled & ~self.untouched

    @property
    def plain(self) -> np.ndarray:
        """The answers of the model without a defence (V,) bool."""
        is_plain: np.ndarray = self["defence"] == 0
        return is_plain

    @property
    def controlled(self) -> np.ndarray:
        """The answers under a control (V,) bool."""
        return np.isin(self["attack"], [index for name, index in self.attacks.items() if name in CONTROLS])

    def units(self, answers: np.ndarray) -> np.ndarray:
        """Return the unit of each of some answers, numbered in the order in which they come (n,).

        Args:
            answers: whether each answer is one of them (V,) bool, or their indices (n,).
        """
        units = self["unit"][answers]
        if (units[1:] >= units[:-1]).all():
            return cluster_codes(units)[0]
        _, first, inverse = np.unique(units, return_index=True, return_inverse=True)
        rank = np.empty_like(first)
        rank[np.argsort(first)] = np.arange(len(first))
        numbers: np.ndarray = rank[inverse]
        return numbers

    def share(self, column: str, answers: np.ndarray) -> Estimate:
        """Return the share of outcomes that are 1 among some answers (V,) bool or indices (n,); those of -1 do not count."""
        chosen = np.flatnonzero(answers) if answers.dtype == bool else answers
        return self.rate(self[column], chosen[self[column][chosen] != _UNDECIDED])

    def rate(self, hits: np.ndarray, answers: np.ndarray) -> Estimate:
        """Return the share of hits (V,) among some answers (V,) bool or indices (n,); no value without answers."""
        return clustered_rate(hits[answers], self.units(answers)) if len(hits[answers]) else NOTHING

    def difference(self, column: str, answers: np.ndarray, others: np.ndarray) -> Estimate:
        """Return the share of `column` among some answers less that among others, over `pairs` of decided ones (V,) bool."""
        decided = self[column] != _UNDECIDED
        here, there = self.pairs(answers & decided, others & decided)
        return rate_difference(self[column][here], self[column][there], self.units(here)) if len(here) else NOTHING

    def above(self, attack: str, control: str) -> Estimate:
        """Return the breaches under an attack less those under a control, without a defence."""
        return self.difference("breach", self.plain & self.under(attack), self.plain & self.under(control))

    def of_rule(self, rule: str, answers: np.ndarray) -> Estimate:
        """Return the share of some answers that break a rule, of those that it decides (V,) bool."""
        of, broken = self.verdicts(rule, answers)
        return clustered_rate(broken, self.units(of)) if len(of) else NOTHING

    def verdicts(self, rule: str, answers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the answers of some (V,) bool that a rule decides, and whether they break it (B,) each."""
        of, rules, broken = self._verdicts()
        counts = (rules == self.rules[rule]) & (broken != _UNDECIDED) & answers[of]
        return of[counts], broken[counts]

    def breaches(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the first breach of each rule by each changed prompt, by defence: answer, rule, number of all (B,)."""
        of, rules, broken = self._verdicts()
        is_broken = (broken == 1) & (self["breach"][of] == 1) & ~self.untouched[of]
        of, rules = of[is_broken], rules[is_broken]
        codes = self["prompt"][of].astype(np.int64) * len(self.attacks) + self["attack"][of]
        codes = codes * len(self.defences) + self["defence"][of]
        _, first, times = np.unique(codes * len(self.rules) + rules, return_index=True, return_counts=True)
        order = np.argsort(first)
        return of[first[order]], rules[first[order]], times[order]

    def rules_of(self, answers: np.ndarray) -> list[str]:
        """Return the rules that some answers were judged by (V,) bool, in the order in which they come."""
        names = list(self.rules)
        of, rules, _ = self._verdicts()
        codes, first = np.unique(rules[answers[of]], return_index=True)
        return [names[code] for code in codes[np.argsort(first)]]

    def pairs(self, answers: np.ndarray, others: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the indices of answers and of others to the same prompts in the same repeats, pair by pair (n,) and (n,).

        Args:
            answers: whether each answer is one of them (V,) bool; this and the other in the order of the answers.
            others: whether each answer is one of the others (V,) bool.
        """
        prompts, repeats = self["prompt"], self["repeat"]
        here, there = np.flatnonzero(answers), np.flatnonzero(others)
        num_repeats = int(repeats.max(initial=0)) + 1
        wanted, keys = (prompts[of].astype(np.int64) * num_repeats + repeats[of] for of in (here, there))
        order = np.argsort(keys, kind="stable")
        there, keys = there[order], keys[order]
        index = np.searchsorted(keys, wanted, side="right") - 1
        is_pair = index >= 0
        is_pair[is_pair] = keys[index[is_pair]] == wanted[is_pair]
        return here[is_pair], there[index[is_pair]]


Answers = Sequence[Row] | AnswerColumns
"""Rows of a scan, or their columns."""


def _outcome(outcome: bool | None) -> int:
    return _UNDECIDED if outcome is None else int(outcome)


def scan_metrics(rows: Answers) -> dict[str, Estimate]:
    """Return the metrics of the answers without a defence."""
    answers = AnswerColumns.of(rows)
    done = answers.plain
    attacks = answers.names("attack", done)
    attacked = done & answers.attacked
    metrics = {BREACH: answers.share("breach", attacked), BROKEN: _broken(answers, attacked)}
    metrics |= {f"{BREACH}.{attack}": answers.share("breach", done & answers.under(attack)) for attack in attacks}
    metrics |= {f"{ABOVE}.{attack}": answers.above(attack, NONE) for attack in attacks if attack != NONE}
    tried = {UNTOUCHED: ~answers.controlled} | {
        f"{UNTOUCHED}.{attack}": answers["attack"] == answers.attacks[attack] for attack in attacks if attack not in CONTROLS
    }
    metrics |= {name: answers.rate(answers.untouched, done & part) for name, part in tried.items() if len(tried) > 1}
    if answers.is_attacked:
        metrics |= _attack_metrics(answers, attacks)
    judged = attacked if attacked.any() else done
    metrics |= {f"{RULE}.{rule}": answers.of_rule(rule, judged) for rule in answers.rules_of(done)}
    metrics[UNDECIDED] = answers.rate(answers["breach"] == _UNDECIDED, done)
    return metrics


def _attack_metrics(answers: AnswerColumns, attacks: Sequence[str]) -> dict[str, Estimate]:
    others = [attack for attack in attacks if attack not in (NONE, REPEAT)] if REPEAT in attacks else []
    metrics = {f"{GAIN}.{attack}": answers.above(attack, REPEAT) for attack in others}
    for attack in attacks:
        of_attack = np.flatnonzero(answers.plain & answers.under(attack))
        metrics[f"{QUERIES}.{attack}"] = mean_count(answers["queries"][of_attack], answers.units(of_attack))
        refusals, thoughts = answers["refusals"][of_attack], answers["thoughts"][of_attack]
        if refusals.sum() + thoughts.sum():
            messages = np.concatenate([np.repeat(of_attack, refusals), np.repeat(of_attack, thoughts)])
            refused = np.arange(len(messages)) < refusals.sum()
            metrics[f"{REFUSED}.{attack}"] = clustered_rate(refused, answers.units(messages))
    return metrics


def conversation_before(row: Row) -> list[Row]:
    """Return the turns before the one that a row shows, oldest first; nothing for a row without turns."""
    turns = row.get("turns") or []
    shown = next((turn for turn in turns if (turn["asked"], turn["reply"]) == (row["asked"], row["reply"])), {"before": -1})
    chain: list[Row] = []
    while (before := shown["before"]) >= 0:
        shown = turns[before]
        chain.insert(0, shown)
    return chain


def success_within(rows: Answers, part: str, most: float, attack: str = "") -> Estimate:
    """Return the share of attacks with a breach before more than so much of a part of the budget was spent.

    Args:
        rows: of attacks under a budget.
        part: of the budget.
        most: what may be spent.
        attack: its name; all when empty.
    """
    answers = AnswerColumns.of(rows)
    decided = answers.plain & (answers["breach"] != _UNDECIDED)
    decided &= answers.under(attack) if attack else True
    return answers.rate(answers[f"first_{part}"] <= most, decided)


def cost_levels(rows: Answers, part: str) -> list[float]:
    """Return levels of a part of the budget at which attacks are compared: whole powers of two of queries up to the most.

    Of other parts a quarter, a half and all of what every attack may have spent: the least median of those that found nothing.
    """
    answers = AnswerColumns.of(rows)
    plain, costs = answers.plain, answers[part]
    if part == "queries":
        most = int(costs[plain].max(initial=0))
        return [2**power for power in range(most.bit_length()) if 2**power < most] + [most] * bool(most)
    medians = []
    for attack in answers.names("attack", plain & ~answers.under(NONE)):
        spent = np.sort(costs[plain & answers.under(attack) & (answers["breach"] != 1) & (costs > 0)])
        medians += [float(spent[len(spent) // 2])] if len(spent) else []
    return [share * min(medians) for share in (0.25, 0.5, 1.0)] if medians else []


def success_curves(rows: Answers, part: str) -> dict[str, list[tuple[float, Estimate]]]:
    """Return the success of each attack within the `cost_levels` of a part of the budget; nothing without levels."""
    answers = AnswerColumns.of(rows)
    levels = cost_levels(answers, part)
    return {
        attack: [(most, success_within(answers, part, most, attack)) for most in levels]
        for attack in answers.names("attack", answers.plain)
        if levels
    }


BUDGET_PARTS = dict(zip(BUDGET, ("queries", "tokens of the target", "tokens of the attacker", "seconds", "money"), strict=True))
SUCCESS_BY = "Success by "
"""The heading of a table of `budget_tables` begins so, and ends with the name of a part."""


def budget_tables(rows: Answers) -> dict[str, EstimateTable]:
    """Return the success of all attacks at equal cost, a table for each part of the budget, from the best to the worst."""
    tables, answers = {}, AnswerColumns.of(rows)
    for part, name in BUDGET_PARTS.items():
        if not (curves := success_curves(answers, part)):
            continue
        order = sorted(curves, key=lambda attack: (attack in CONTROLS, -_value(curves[attack][-1][1])))
        lines = tuple((attack_title(attack), *(PERCENT.cell(success) for _, success in curves[attack])) for attack in order)
        note = f"Share of the attacks with a breach within a cost in {name}. Brackets: 95 % intervals, by prompt."
        if part != "queries":
            note += " The last column is what every attack could spend."
        form = "{:,.3g}" if part in ("seconds", "money") else "{:,.0f}"
        heads = tuple(f"within {form.format(most)}" for most, _ in curves[order[0]])
        tables[f"{SUCCESS_BY}{name}"] = EstimateTable(("attack", *heads), lines, note)
    return tables


def unmet_note(rows: Answers, musts: Collection[str]) -> str:
    """Return a sentence on the attacks whose breaches without a defence are all of a `must`; empty if there are none."""
    answers, broken = AnswerColumns.of(rows), dict[str, set[str]]()
    attacks, rules, (of, of_rule, _) = list(answers.attacks), list(answers.rules), answers.breaches()
    counts = (answers.plain & answers.attacked)[of]
    for attack, rule in zip(answers["attack"][of[counts]], of_rule[counts], strict=True):
        broken.setdefault(attacks[attack], set()).add(rules[rule])
    names = ", ".join(attack for attack, of_attack in broken.items() if of_attack <= set(musts))
    return f"{names}: all breaches are of a must; what was wanted did not come, and nothing forbidden was said" if names else ""


QUALITY = {
    "sensitivity": Metric("sensitivity of the verdicts", "higher: surer", "share of people's breaches that they find", "share"),
    "specificity": Metric("specificity of the verdicts", "higher: surer", "share of people's kept answers they leave", "share"),
    "kappa": Metric("agreement with people, kappa", "higher: surer", "Cohen's; 0 is chance, 1 always"),
}
"""Metrics of the verdicts themselves, by labels of people."""


def _item_figures(rows: Sequence[Row], config: Mapping[str, Any]) -> dict[str, ItemFigures]:
    """Return the breaches of single answers: under attack, by attack, and by rule."""
    answers = AnswerColumns(rows)
    breach, attacked = answers["breach"], answers.plain & ~answers.controlled
    parts = {f"{BREACH}.{attack}": answers.plain & answers.under(attack) for attack in sorted(answers.attacks)}
    figures: dict[str, ItemFigures] = {}
    for name, part in {BREACH: attacked, **parts}.items():
        of = np.flatnonzero(part & (breach != _UNDECIDED))
        figures[name] = ItemFigures(of, breach[of].astype(np.float64), np.ones(len(of)), "share")
    for rule in sorted(answers.rules):
        figures[f"{RULE}.{rule}"] = ItemFigures.of(zip(*answers.verdicts(rule, attacked), repeat(1.0)), "share")
    return {name: of_rows for name, of_rows in figures.items() if len(of_rows.rows)}


_METRICS = QUALITY | {
    BREACH: Metric("breaches under attack", FOR_ADVERSARY, "share of the answers in which a rule is broken", "share", True),
    f"{BREACH}.": Metric("breaches, {}", FOR_ADVERSARY, "share of the answers in which a rule is broken", "share", True),
    BROKEN: Metric("prompts broken", FOR_ADVERSARY, "share that an attack broke; lost answers break none", "share", True),
    f"{ABOVE}.": Metric("above no attack, {}", FOR_ADVERSARY, "breaches less those without an attack, same prompts and cost"),
    f"{GAIN}.": Metric("above repetition, {}", FOR_ADVERSARY, "breaches less those of the prompt repeated as often", main=True),
    f"{QUERIES}.": Metric("queries, {}", NEITHER, "messages to the target until a breach or the end"),
    f"{REFUSED}.": Metric("refused, {}", NEITHER, "answers of the attacker model that are no attack", "share"),
    f"{RULE}.": Metric("rule broken: {}", FOR_ADVERSARY, "share of the answers under attack that it is asked about", "share"),
    f"{AGREEMENT}.": Metric("agreement of judges, {}", "higher: surer", "Krippendorff's alpha; 1 always, 0 as by chance"),
    UNDECIDED: Metric("undecided", NEITHER, "share of all answers without a verdict", "share"),
    UNTOUCHED: Metric("untouched", NEITHER, "share of the questions that attacks left as the prompt is", "share"),
    f"{UNTOUCHED}.": Metric("untouched, {}", NEITHER, "share of the questions that it left as the prompt is", "share"),
}
"""A name with a dot stands for all that begin with it."""


def describe_scan(name: str) -> Metric:
    """Return the meaning of a metric of a scan."""
    kind, _, rest = name.partition(".")
    if kind == DEFENDED:
        return describe_defence(name)
    if kind == CORRECTED:
        raw = describe_scan(rest)
        return raw._replace(title=f"{raw.title}, corrected", definition="corrected for the errors of the verdicts by labels")
    metric = _METRICS.get(name) or _METRICS.get(f"{kind}.", _METRICS[UNDECIDED])
    return metric._replace(title=metric.title.format(rest if kind in (RULE, AGREEMENT) else CONTROLS.get(rest, rest)))


SCAN_ITEMS = ItemMetrics(
    unit="prompts",
    figures=_item_figures,
    describe=describe_scan,
    links=lambda row: row.get("unit", row["prompt"]),
    # The message of an attack that talks is what it found, and no part of its task.
    content=lambda row: row["prompt"] if "turns" in row and row["attack"] != NONE else row["asked"],
)
"""Answers; those to one prompt belong together."""


def scan_tables(metrics: Mapping[str, Estimate]) -> dict[str, EstimateTable]:
    """Return the tables of a scan by their headings: by attack, and by rule if there are several."""
    attacks = [name.removeprefix(f"{BREACH}.") for name in metrics if name.startswith(f"{BREACH}.")]
    ordered = sorted(attacks, key=lambda name: (name in CONTROLS, -_value(metrics[f"{BREACH}.{name}"])))
    is_attack = any(metrics.get(name, NOTHING).n for name in (BREACH, UNTOUCHED))
    rows = [TableRow("all attacks", {"of": ""})] if is_attack else []
    rows += [TableRow(attack_title(name), {"of": f".{name}"}) for name in ordered]
    is_budget = any(name.startswith(f"{QUERIES}.") for name in metrics)
    is_untouched = metrics.get(UNTOUCHED, NOTHING).value > 0
    columns = [
        Column("breaches", f"{BREACH}{{of}}", PERCENT),
        Column("corrected", f"{CORRECTED}.{BREACH}{{of}}", PERCENT, optional=True),
        Column("above no attack", f"{ABOVE}{{of}}", PERCENT, signed=True),
        *[Column("above repetition", f"{GAIN}{{of}}", PERCENT, signed=True)] * is_budget,
        *[Column("queries", f"{QUERIES}{{of}}"), Column("refused", f"{REFUSED}{{of}}", PERCENT)] * is_budget,
        *[Column("untouched", f"{UNTOUCHED}{{of}}", PERCENT)] * is_untouched,
    ]
    note = _NOTE.format(_ASKED_ONCE if is_budget else _EQUAL_COST, _NOTE_UNTOUCHED * is_untouched)
    table = metric_table(metrics, "attack", rows, columns, note, n=f"{BREACH}{{of}}", unit="prompts")
    tables = {"Breaches by attack": table}
    rules = [name for name in metrics if name.startswith(f"{RULE}.")]
    if len(rules) > 1:
        lines = [TableRow(name.removeprefix(f"{RULE}."), {"name": name}) for name in rules]
        note = "Share of the answers under attack that break the rule. Brackets: 95 % intervals; n: prompts."
        shares = [Column("breaches", "{name}", PERCENT)]
        tables["Breaches by rule"] = metric_table(metrics, "rule", lines, shares, note, n="{name}", unit="prompts")
    judges = [name for name in metrics if name in QUALITY or name.startswith(f"{AGREEMENT}.")]
    if judges:
        cells = tuple((describe_scan(name).title, with_interval(metrics[name]), num_measured(metrics[name])) for name in judges)
        note = "Brackets: 95 % intervals; n: labels, or prompts with several verdicts. Corrected rates carry both errors."
        tables["Quality of the verdicts"] = EstimateTable(("metric", "value", "n"), cells, note)
    return tables


def breaches_table(rows: Iterable[Row], num: int = NUM_SHOWN) -> EstimateTable:
    """Return the first breaches with their texts, one of each prompt and attack, those without an attack first."""
    firsts, pairs = dict[str, dict[str, Row]](), array("Q")
    for row in rows:
        if row["breach"]:
            pairs.append(stable_hash(row["attack"], row["prompt"]))
            firsts.setdefault(row["attack"], {}).setdefault(row["prompt"], row)
            # Of an attack no more are shown.
            if len(of_attack := firsts[row["attack"]]) > num:
                del of_attack[max(of_attack, key=number_order)]
    ordered = [of_attack[prompt] for of_attack in firsts.values() for prompt in sorted(of_attack, key=number_order)]
    ordered.sort(key=lambda row: (row["attack"] != NONE, row["attack"] in CONTROLS))
    first_of = {row["attack"]: row for row in reversed(ordered)}
    # One of each attack first, so that a short list shows different ones.
    ordered.sort(key=lambda row: first_of[row["attack"]] is not row)
    lines = tuple(
        (row["prompt"], attack_title(row["attack"]), brief(row["asked"]), brief(reply_text(row)), "; ".join(broken_rules(row)))
        for row in ordered[:num]
    )
    note = f"{len(lines)} of {len(np.unique(pairs)):,} broken pairs of prompt and attack; all are on the page."
    columns = ("prompt", "attack", "asked", "reply", "rule")
    return EstimateTable(columns, lines, note, texts=columns[1:])


def number_order(key: str) -> list[str | int]:
    """Return what a key of a prompt sorts by, numbers in it by their size."""
    return [int(part) if number % 2 else part for number, part in enumerate(re.split(r"(\d+)", key))]


def reply_text(row: Row) -> str:
    """Return the reply of an answer or turn, or the kind of the answer that is none."""
    return row["reply"] or f"(no reply: {row['kind'] or 'nothing was asked'})"


def broken_rules(row: Row) -> list[str]:
    """Return the names of the rules that an answer breaks."""
    return [verdict["rule"] for verdict in row["rules"] if verdict["broken"]]


def row_tags(tags: Mapping[str, Mapping[str, Sequence[str]]], row: Row) -> list[str]:
    """Return the names of risks that an answer is about: those of its prompt, then of its rules.

    Args:
        tags: `Policy.tags_by_part`.
        row: the answer.
    """
    by_rule = (tag for verdict in row["rules"] for tag in tags["rules"].get(verdict["rule"], ()))
    return list(dict.fromkeys([*tags["prompts"].get(row["prompt"], ()), *by_rule]))


def brief(text: str, most: int = 70) -> str:
    """Return a text on one line, cut if it is long."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}\N{HORIZONTAL ELLIPSIS}"


@dataclass(frozen=True)
class LimitVerdict:
    """The verdict on a limit.

    Args:
        metric: its metric.
        limit: the highest share.
        estimate: the measured share.
        state: "kept", "broken" or "undecided".
        needed: prompts that would decide it if the share stayed as it is; None if it is decided, or no number would.
    """

    metric: str
    limit: float
    estimate: Estimate
    state: Literal["kept", "broken", "undecided"]
    needed: int | None = None

    def __str__(self) -> str:
        shown = PERCENT.cell(self.estimate).replace("\n", " ") if self.estimate.n else "nothing was measured"
        text = f"{self.metric} at most {100 * self.limit:g} %: {self.state}, {shown}"
        if self.state == "undecided" and self.needed:
            text += f"; {self.needed:,} prompts would decide it if the share stayed so, {self.estimate.n:,} were asked"
        return text


def decide_limit(metric: str, limit: float, estimate: Estimate) -> LimitVerdict:
    """Return the verdict of a limit: broken if the interval is above it, kept if not; undecided by one prompt, or else."""
    if estimate.n > 1 and (estimate.low > limit or estimate.high <= limit):
        return LimitVerdict(metric, limit, estimate, "broken" if estimate.low > limit else "kept")
    return LimitVerdict(metric, limit, estimate, "undecided", prompts_needed(estimate, limit) if estimate.n else None)


def prompts_needed(estimate: Estimate, limit: float) -> int | None:
    """Return how many prompts would decide a limit if the share stayed as it is; None if no number would.

    Prompts are counted as independent, and each as informative as those that were asked.
    """
    width = (estimate.high - estimate.low) / 2
    alone = rate(round(estimate.value * estimate.n), estimate.n)
    # Several answers a prompt tell less, or more, than one: the same number of prompts has this effect on the width.
    effect = (width / ((alone.high - alone.low) / 2)) ** 2 if alone.high > alone.low else 1.0

    def is_decided(num: int) -> bool:
        size = max(1, round(num / effect))
        result = rate(round(estimate.value * size), size)
        return result.low > limit or result.high <= limit

    most = 2
    while not is_decided(most):
        most *= 2
        if most > _MOST_PROMPTS:
            return None
    least = most // 2
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (least, middle) if is_decided(middle) else (middle, most)
    return most


_BALLOT = {True: "yes", False: "no", None: "undecided"}
_PANEL = "panel: "


def ballot_text(votes: Sequence[bool | None]) -> str:
    """Return the votes of a panel as the evidence of a rule."""
    return _PANEL + ", ".join(_BALLOT[vote] for vote in votes)


def votes_of(evidence: str) -> list[bool | None]:
    """Return the votes that `ballot_text` wrote; nothing for another text."""
    votes = {text: vote for vote, text in _BALLOT.items()}
    words = evidence.removeprefix(_PANEL).split(", ")
    return [votes[word] for word in words] if evidence.startswith(_PANEL) and votes.keys() >= set(words) else []


def panel_metrics(rows: Sequence[Row], panels: Iterable[str], repeated: Mapping[str, str] = NO_REPEATS) -> dict[str, Estimate]:
    """Return the agreement of the judges of each panel.

    Args:
        rows: rows of the scan.
        panels: names of rules that a panel decides.
        repeated: `Policy.repeated`.
    """
    metrics = {}
    for rule in panels:
        judged = ((row["prompt"], verdict) for row in finished(selected(rows, "prompt", "rules")) for verdict in row["rules"])
        ballots = ((repeated.get(of, of), votes_of(verdict["evidence"])) for of, verdict in judged if verdict["rule"] == rule)
        metrics[f"{AGREEMENT}.{rule}"] = agreement(ballots)
    return metrics


def _broken(answers: AnswerColumns, attacked: np.ndarray) -> Estimate:
    decided = attacked & (answers["breach"] != _UNDECIDED)
    num = len(np.unique(answers["unit"][decided]))
    return rate(len(np.unique(answers["unit"][decided & (answers["breach"] == 1)])), num) if num else NOTHING


def attack_title(attack: str) -> str:
    """Return an attack's title in tables; a control is marked."""
    return f"{CONTROLS[attack]} (control)" if attack in CONTROLS else attack


def _value(estimate: Estimate) -> float:
    return estimate.value if math.isfinite(estimate.value) else -1.0
