"""Checks of replies, and the verdict of a rule: kept, broken, or undecided.

An answer that is no reply breaks no `must_not`. Of a `must` it is a breach where the model or its server refused
(`MODERATED`), and undecided otherwise: cut in thinking, empty, a tool call, too long. Checks of refusals find the refused. A
judge that says neither yes nor no leaves a rule undecided too. Undecided answers are in no rate, and are counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parley.engine.core.stats.judged import majority
from parley.engine.scan.metrics import ballot_text
from parley.engine.scan.policy import CheckKind, Policy, PolicyRule, ReplyCheck
from parley.engine.triggers.success import Success, SuccessSettings, shows_refusal
from parley.envs.core.errors import ConfigError
from parley.envs.core.registry import Registry, own_code
from parley.policies.chat.model import MODERATED, Answer
from parley.policies.chat.settings import ChatModelSettings

reply_checks = Registry("check of replies", "parley.reply_checks")
"""Functions of reply and prompt that installed packages bring, for `function: NAME`."""


@dataclass(frozen=True)
class CheckVerdict:
    """The outcome of a check.

    Args:
        found: True or False; None if it is undecided.
        evidence: the text that was found; empty if there is none to show.
        votes: the verdicts of a panel.
    """

    found: bool | None
    evidence: str = ""
    votes: tuple[bool | None, ...] = ()


@dataclass(frozen=True)
class RuleVerdict:
    """The outcome of a rule.

    Args:
        rule: its name.
        broken: True or False; None if it is undecided.
        evidence: what a reader sees of the reason.
    """

    rule: str
    broken: bool | None
    evidence: str = ""


Finder = Callable[[Answer, str], CheckVerdict]
"""Returns the verdict of a check on a reply, by the prompt."""


class Checks:
    """The checks of a policy, each loaded once.

    Args:
        policy: the policy.
        chat: how a judge is loaded or asked.
        answers: folder of a run in which the answers of a judge are kept; None keeps none.

    Raises:
        ConfigError: a judge, a classifier or a function is none.
        CheckpointError: there is no model of that name.
    """

    def __init__(self, policy: Policy, chat: ChatModelSettings, answers: Path | None) -> None:
        self._finders: dict[ReplyCheck, Finder] = {}
        for check in dict.fromkeys(check for rule in policy.all_rules for check in rule.checks):
            self._finders[check] = finder_of(check, chat, answers, policy.judge)

    def verdict(self, rule: PolicyRule, answer: Answer, prompt: str) -> RuleVerdict:
        """Return the verdict of a rule on an answer to a prompt as it was asked."""
        if not answer.is_reply:
            refusals = [answer.kind in MODERATED and check.finds_refusals for check in rule.checks]
            broken = any(refusals) if not rule.must else not all(refusals) if answer.kind in MODERATED else None
            return RuleVerdict(rule.name, broken, f"no reply: {answer.kind.value}" if rule.must or broken else "")
        verdicts = [self._finders[check](answer, prompt) for check in rule.checks]
        findings = [verdict.found for verdict in verdicts]
        panel = next((ballot_text(verdict.votes) for verdict in verdicts if verdict.votes), "")
        if rule.must:
            missing = [
                f"{check.kind} {check.value}".strip()
                for check, verdict in zip(rule.checks, verdicts, strict=True)
                if verdict.found is False
            ]
            broken = True if missing else None if None in findings else False
            return RuleVerdict(rule.name, broken, panel or (f"not found: {'; '.join(missing)}" if missing else ""))
        broken = True if True in findings else None if None in findings else False
        evidence = next((verdict.evidence for verdict in verdicts if verdict.found), "")
        return RuleVerdict(rule.name, broken, panel or evidence)


def _contains(check: ReplyCheck, *_: Any) -> Finder:
    text = check.value

    def find(answer: Answer, prompt: str) -> CheckVerdict:
        at = answer.text.casefold().find(text.casefold())
        return CheckVerdict(at >= 0, text if at >= 0 else "")

    return find


def _exact(check: ReplyCheck, *_: Any) -> Finder:
    return lambda answer, prompt: CheckVerdict(answer.text.strip() == check.value.strip(), answer.text.strip())


def _pattern(check: ReplyCheck, *_: Any) -> Finder:
    compiled = re.compile(check.value)

    def find(answer: Answer, prompt: str) -> CheckVerdict:
        match = compiled.search(answer.text)
        return CheckVerdict(match is not None, match[0] if match else "")

    return find


def _refusal(*_: Any) -> Finder:
    return lambda answer, prompt: CheckVerdict(shows_refusal(answer.text) or not answer.text.strip(), "a sign of a refusal")


def _judge(check: ReplyCheck, judge: str, chat: ChatModelSettings, answers: Path | None) -> Finder:
    from parley.policies.chat.loading import load_chat_model
    from parley.policies.chat.verdicts import ChatVerdicts

    model = load_chat_model(check.option("by") or judge, chat, answers=answers)
    ask = ChatVerdicts(model, f"{check.value}\n\nAnswer with one word, yes or no.", chat.judge_tokens)

    def find(answer: Answer, prompt: str) -> CheckVerdict:
        verdict = ask(answer.text, "", prompt)
        return CheckVerdict(verdict.success if verdict.parsed else None, "the judge says yes")

    return find


def _rubric(check: ReplyCheck, judge: str, chat: ChatModelSettings, answers: Path | None) -> Finder:
    from parley.policies.chat.loading import load_chat_model
    from parley.policies.chat.verdicts import ChatGrades

    grades = ChatGrades(load_chat_model(check.option("by") or judge, chat, answers=answers))

    def find(answer: Answer, prompt: str) -> CheckVerdict:
        grade = grades(answer.text, prompt)
        return CheckVerdict(None if grade is None else grade.score >= float(check.value), str(grade or ""))

    return find


def _safety(check: ReplyCheck, judge: str, chat: ChatModelSettings, answers: Path | None) -> Finder:
    from parley.envs.core.storage.copies import fetched_model
    from parley.policies.chat.addresses import absolute_address, weights_of
    from parley.policies.hugging_face.judges import load_safety_model

    folder = fetched_model(weights_of(absolute_address(check.value)))
    model = load_safety_model(folder, check.option("guideline"), check.option("question"), chat.device)

    def find(answer: Answer, prompt: str) -> CheckVerdict:
        is_unsafe, text = model.verdict(prompt, answer.text)
        return CheckVerdict(is_unsafe, f"the model says {text!r}")

    return find


def _panel(check: ReplyCheck, judge: str, chat: ChatModelSettings, answers: Path | None) -> Finder:
    finders = [finder_of(member, chat, answers, judge) for member in check.members]

    def find(answer: Answer, prompt: str) -> CheckVerdict:
        votes = tuple(finder(answer, prompt).found for finder in finders)
        return CheckVerdict(majority(votes), votes=votes)

    return find


def _classifier(check: ReplyCheck, judge: str, chat: ChatModelSettings, answers: Path | None) -> Finder:
    from parley.engine.triggers.verbs.models import classifier

    settings = SuccessSettings(by="classifier", classifier=check.value)
    loaded = classifier(settings, chat.device)
    assert loaded is not None, "a classifier is named"
    success = Success(settings, end=False, scores=loaded.scores)
    return lambda answer, prompt: CheckVerdict(success.verdict(answer, "").success, "the classifier finds it")


def _function(check: ReplyCheck, *_: Any) -> Finder:
    name = check.value
    function = reply_checks.get(name)
    if not callable(function):
        raise ConfigError("this is no function of reply and prompt", where=name, got=repr(function)[:80])

    def find(answer: Answer, prompt: str) -> CheckVerdict:
        with own_code(name):
            result = function(answer.text, prompt)
        if not isinstance(result, bool):
            fix = "return True or False"
            raise ConfigError("a check says neither true nor false", where=name, got=repr(result)[:80], fix=fix)
        return CheckVerdict(result, f"{name.rpartition(':')[2]} says true")

    return find


_LOADERS: Mapping[CheckKind, Callable[[ReplyCheck, str, ChatModelSettings, Path | None], Finder]] = {
    "contains": _contains,
    "exact": _exact,
    "pattern": _pattern,
    "refusal": _refusal,
    "judge": _judge,
    "rubric": _rubric,
    "safety": _safety,
    "panel": _panel,
    "classifier": _classifier,
    "function": _function,
}


def finder_of(check: ReplyCheck, chat: ChatModelSettings, answers: Path | None, judge: str = "") -> Finder:
    """Return the function that a check stands for.

    Args:
        check: the check.
        chat: how a judge is loaded or asked.
        answers: folder in which its answers are kept; None keeps none.
        judge: address of the chat model that judges where the check names none.

    Raises:
        ConfigError: a judge, a classifier or a function is none.
        CheckpointError: there is no model of that name.
    """
    return _LOADERS[check.kind](check, judge, chat, answers)


def is_breach(verdicts: Sequence[RuleVerdict]) -> bool | None:
    """Return whether a rule is broken; None if none is and one is undecided."""
    broken = [verdict.broken for verdict in verdicts]
    return True if True in broken else None if None in broken else False
