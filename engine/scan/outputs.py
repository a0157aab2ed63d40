"""A scan's result for other programs: JUnit for continuous integration, SARIF 2.1.0 for code scanning.

JUnit: a suite for each attack, a case for each prompt; a breach is a failure, an error or an undecided answer is an error.
SARIF: a result for each broken rule of each prompt and attack, at the policy's file. Unchanged prompts stand in neither.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from typing import BinaryIO, NamedTuple
from xml.etree import ElementTree

import numpy as np

from parley.engine.core.stats.rows import selected
from parley.engine.core.stats.statistics import Row
from parley.engine.scan.metrics import AnswerColumns, LimitVerdict, brief, broken_rules, reply_text
from parley.engine.scan.policy import Policy
from parley.envs.core.visible import visible

JUNIT, SARIF = "junit.xml", "results.sarif"
_DEEP = " " * 4
"""Blanks before a result of SARIF."""
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


class ScanCase(NamedTuple):
    """The case of JUnit that an answer belongs to."""

    suite: str
    """An attack, and the defence around the model if there is one."""
    prompt: int
    """Index of the prompt in the policy."""


class _Cases:
    """The prompts of a suite: numbers for each, and where the text of its first breach or loss lies in a file (P,)."""

    def __init__(self, num_prompts: int, texts: BinaryIO) -> None:
        self.answers, self.breaches, self.lost = (np.zeros(num_prompts, dtype=np.uint16) for _ in range(3))
        self._starts = np.zeros(num_prompts, dtype=np.int64)
        self._texts = texts

    def add(self, prompt: int, row: Row) -> None:
        self.answers[prompt] += 1
        is_lost = row["status"] != "ok" or row["breach"] is None
        if not (row["breach"] or is_lost):
            return
        if not self.breaches[prompt] and not (is_lost and self.lost[prompt]):
            self._starts[prompt] = self._texts.seek(0, os.SEEK_END)
            reason = row["error"] or f"no verdict: {row['kind']}"
            broken = "" if is_lost else f"{', '.join(broken_rules(row))}\nasked: {row['asked']}\nreply: {reply_text(row)}"
            self._texts.write(json.dumps(reason if is_lost else broken).encode() + b"\n")
        (self.lost if is_lost else self.breaches)[prompt] += 1

    def outcome(self, prompt: int) -> tuple[str, str]:
        """Return the kind of a case's element, empty for a pass, and its text."""
        num, breaches, lost = (int(counts[prompt]) for counts in (self.answers, self.breaches, self.lost))
        if not breaches and not lost:
            return "", ""
        self._texts.seek(self._starts[prompt])
        text = json.loads(self._texts.readline())
        if breaches:
            return "failure", f"{breaches} of {num} answers break {text}"
        return "error", f"{lost} of {num} answers have no verdict: {text}"


def write_junit(
    file: BinaryIO,
    policy: Policy,
    rows: Sequence[Row],
    answers: AnswerColumns,
    cases: Mapping[str, ScanCase],
    limits: Sequence[LimitVerdict],
) -> None:
    """Write a scan as JUnit XML; the texts of breaches are never all in memory.

    Args:
        file: to write to.
        policy: the policy.
        rows: all rows, failed ones too.
        answers: columns of those that worked.
        cases: of a row, by its key.
        limits: verdicts of its limits, a suite of their own.
    """
    with tempfile.TemporaryFile() as texts:
        names = dict.fromkeys(case.suite for case in cases.values())
        suites, untouched = {name: _Cases(len(policy.prompts), texts) for name in names}, iter(answers.untouched.tolist())
        for row in selected(rows, "item_key", "breach", "error", "kind", "rules", "asked", "reply"):
            case = cases[row["item_key"]]
            if row["status"] != "ok" or not next(untouched):
                suites[case.suite].add(case.prompt, row)
        suites = {name: of_suite for name, of_suite in suites.items() if of_suite.answers.any()}
        file.write(b'<?xml version="1.0" encoding="UTF-8"?>\n')
        root = ElementTree.Element("testsuites", name=visible(policy.name))
        file.write(_text(root, 0) if not suites and not limits else _opening(root, 0))
        for name, of_suite in suites.items():
            numbers = np.flatnonzero(of_suite.answers).tolist()
            failures = int((of_suite.breaches > 0).sum())
            counts = len(numbers), failures, int(((of_suite.breaches == 0) & (of_suite.lost > 0)).sum())
            prompts = ((number, policy.prompts[number]) for number in numbers)
            cells = ((prompt.key, of_suite.outcome(number), policy.risks_of(prompt)) for number, prompt in prompts)
            _write_suite(file, name, cells, counts)
        if limits:
            states = {"kept": "", "broken": "failure", "undecided": "error"}
            kinds = [states[limit.state] for limit in limits]
            outcomes = ((limit.metric, (kind, str(limit)), ()) for kind, limit in zip(kinds, limits, strict=True))
            _write_suite(file, "limits", outcomes, (len(limits), kinds.count("failure"), kinds.count("error")))
        if suites or limits:
            file.write(b"</testsuites>\n")


def _write_suite(
    file: BinaryIO, name: str, cases: Iterable[tuple[str, tuple[str, str], Sequence[str]]], counts: tuple[int, int, int]
) -> None:
    """Write a suite: cases with their outcome and tags, and the number of all, of failures and of errors."""
    tests, failures, errors = map(str, counts)
    suite = ElementTree.Element("testsuite", name=visible(name), tests=tests, failures=failures, errors=errors)
    file.write(_opening(suite, 1))
    for case, (kind, text), tags in cases:
        element = ElementTree.Element("testcase", classname=visible(name), name=visible(case))
        if tags:
            properties = ElementTree.SubElement(element, "properties")
            for tag in tags:
                ElementTree.SubElement(properties, "property", name="tag", value=visible(tag))
        if kind:
            ElementTree.SubElement(element, kind, message=visible(brief(text, 200))).text = visible(text, keep="\n")
        file.write(_text(element, 2))
    file.write(b"  </testsuite>\n")


def _text(element: ElementTree.Element, level: int) -> bytes:
    ElementTree.indent(element, level=level)
    return f"{'  ' * level}{ElementTree.tostring(element, encoding='unicode').rstrip()}\n".encode("utf-8", "backslashreplace")


def _opening(element: ElementTree.Element, level: int) -> bytes:
    return _text(element, level).replace(b" />\n", b">\n")


def write_sarif(
    file: BinaryIO, policy: Policy, rows: Sequence[Row], answers: AnswerColumns, policy_file: str, version: str
) -> None:
    """Write the breaches of a scan as SARIF 2.1.0.

    Args:
        file: to write to.
        policy: the policy.
        rows: the rows that worked.
        answers: their columns.
        policy_file: name of the policy's file, the place of each result.
        version: of Parley.
    """
    rules = {rule.name: rule for rule in policy.all_rules}
    tags = policy.tags_by_part
    driver = {
        "name": "Parley",
        "version": version,
        "rules": [
            {
                "id": visible(name),
                "shortDescription": {"text": visible(name)},
                "properties": {"tags": [*map(visible, (*rule.tags, *policy.tags))]},
            }
            for name, rule in rules.items()
        ],
    }
    document = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": []}]}
    before, _, after = json.dumps(document, ensure_ascii=False, indent=1).rpartition("[]")
    file.write(f"{before}[".encode("utf-8", "backslashreplace"))
    joint, names, shown = "\n", list(answers.rules), selected(rows, "attack", "defence", "prompt", "asked", "reply", "kind")
    for number, rule, num in zip(*answers.breaches(), strict=True):
        name, row = names[rule], shown[number]
        prompt, behind = row["prompt"], row.get("defence") or ""
        attack = f"{row['attack']} behind {behind}" if behind else row["attack"]
        text = f"Prompt {prompt} under {attack}: {num} answers break the rule. Asked: {row['asked']} Reply: {reply_text(row)}"
        result = {
            "ruleId": visible(name),
            "level": "error",
            "message": {"text": visible(text, keep="\n")},
            "locations": [{"physicalLocation": {"artifactLocation": {"uri": policy_file}, "region": {"startLine": 1}}}],
            "properties": {"tags": [*map(visible, tags["prompts"].get(prompt, ()))]},
            "partialFingerprints": {"parley/v1": visible(f"{name}/{attack}/{prompt}")},
        }
        lines = json.dumps(result, ensure_ascii=False, indent=1).replace("\n", f"\n{_DEEP}")
        file.write(f"{joint}{_DEEP}{lines}".encode("utf-8", "backslashreplace"))
        joint = ",\n"
    end = "]" if joint == "\n" else f"\n{_DEEP[1:]}]"
    file.write(f"{end}{after}\n".encode("utf-8", "backslashreplace"))
