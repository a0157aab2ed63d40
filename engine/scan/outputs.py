"""A scan's result for other programs: JUnit for continuous integration, SARIF 2.1.0 for code scanning.

JUnit: a suite for each attack, a case for each prompt; a breach is a failure, an error or an undecided answer is an error.
SARIF: a result for each broken rule of each prompt and attack, at the policy's file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any
from xml.etree import ElementTree

from parley.engine.core.stats.statistics import Row
from parley.engine.scan.metrics import LimitVerdict, brief, broken_rules
from parley.engine.scan.policy import Policy
from parley.envs.core.visible import visible

JUNIT, SARIF = "junit.xml", "results.sarif"
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def junit(policy: Policy, rows: Sequence[Row], questions: Mapping[str, tuple[str, str]], limits: Sequence[LimitVerdict]) -> str:
    """Return a scan as JUnit XML.

    Args:
        policy: the policy.
        rows: all rows, failed ones too.
        questions: attack and prompt by key of a row.
        limits: verdicts of its limits, a suite of their own.
    """
    suites = ElementTree.Element("testsuites", name=visible(policy.name))
    by_key = {row["item_key"]: row for row in rows}
    by_attack: dict[str, dict[str, list[Row]]] = {}
    tags = {prompt.key: policy.risks_of(prompt) for prompt in policy.prompts}
    for key, (attack, prompt) in questions.items():
        if key in by_key:
            by_attack.setdefault(attack, {}).setdefault(prompt, []).append(by_key[key])
    for attack, prompts in by_attack.items():
        cases = {prompt: _outcome(of_prompt) for prompt, of_prompt in prompts.items()}
        _suite(suites, attack, cases, tags)
    if limits:
        states = {"kept": ("", ""), "broken": ("failure", ""), "undecided": ("error", "")}
        _suite(suites, "limits", {limit.metric: (states[limit.state][0], str(limit)) for limit in limits})
    ElementTree.indent(suites)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(suites, encoding="unicode")}\n'


def _suite(
    suites: ElementTree.Element,
    name: str,
    cases: Mapping[str, tuple[str, str]],
    tags: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> None:
    counts = {kind: sum(outcome == kind for outcome, _ in cases.values()) for kind in ("failure", "error")}
    suite = ElementTree.SubElement(
        suites,
        "testsuite",
        name=visible(name),
        tests=str(len(cases)),
        failures=str(counts["failure"]),
        errors=str(counts["error"]),
    )
    for case, (kind, text) in cases.items():
        element = ElementTree.SubElement(suite, "testcase", classname=visible(name), name=visible(case))
        if tags.get(case):
            properties = ElementTree.SubElement(element, "properties")
            for tag in tags[case]:
                ElementTree.SubElement(properties, "property", name="tag", value=visible(tag))
        if kind:
            ElementTree.SubElement(element, kind, message=visible(brief(text, 200))).text = visible(text, keep="\n")


def _outcome(rows: Sequence[Row]) -> tuple[str, str]:
    """Return the kind of a case's element, empty for a pass, and its text."""
    breaches = [row for row in rows if row["status"] == "ok" and row["breach"]]
    if breaches:
        first = breaches[0]
        text = f"{len(breaches)} of {len(rows)} answers break {', '.join(broken_rules(first))}\n"
        return "failure", f"{text}asked: {first['asked']}\nreply: {first['reply']}"
    lost = [row for row in rows if row["status"] != "ok" or row["breach"] is None]
    if lost:
        reason = lost[0]["error"] or f"no verdict: {lost[0]['kind']}"
        return "error", f"{len(lost)} of {len(rows)} answers have no verdict: {reason}"
    return "", ""


def sarif(policy: Policy, rows: Sequence[Row], policy_file: str, version: str) -> str:
    """Return the breaches of a scan as SARIF 2.1.0.

    Args:
        policy: the policy.
        rows: the rows that worked.
        policy_file: name of the policy's file, the place of each result.
        version: of Parley.
    """
    rules = {rule.name: rule for prompt in policy.prompts for rule in policy.rules_of(prompt)}
    first: dict[tuple[str, str, str], list[Row]] = {}
    tags = policy.tags_by_part
    for row in rows:
        for name in broken_rules(row) if row["breach"] else ():
            first.setdefault((name, row["attack"], row["prompt"]), []).append(row)
    results: list[dict[str, Any]] = []
    for (name, attack, prompt), broken in first.items():
        text = f"Prompt {prompt} under {attack}: {len(broken)} answers break the rule. Asked: {broken[0]['asked']} "
        text += f"Reply: {broken[0]['reply']}"
        results.append(
            {
                "ruleId": visible(name),
                "level": "error",
                "message": {"text": visible(text, keep="\n")},
                "locations": [{"physicalLocation": {"artifactLocation": {"uri": policy_file}, "region": {"startLine": 1}}}],
                "properties": {"tags": [*map(visible, tags["prompts"].get(prompt, ()))]},
                "partialFingerprints": {"parley/v1": visible(f"{name}/{attack}/{prompt}")},
            }
        )
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
    document = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}
    return json.dumps(document, ensure_ascii=False, indent=1) + "\n"
