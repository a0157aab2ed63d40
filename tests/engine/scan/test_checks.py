"""Checks of replies, and what becomes of answers that are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from parley.engine.scan.checks import Checks, RuleVerdict, is_breach
from parley.engine.scan.policy import Check, Policy, PolicyPrompt, PolicyRule
from parley.envs.core.errors import ConfigError
from parley.envs.core.registry import Trust, trusting
from parley.policies.chat.model import Answer, Message
from parley.policies.chat.settings import DEFAULT


def verdict(check: Check, answer: Answer, *, must: bool = False, judge: str = "") -> RuleVerdict:
    rule = PolicyRule("r", must, (check,))
    policy = Policy("p", (PolicyPrompt("1", (Message("user", "q"),), (rule,)),), judge=judge)
    return Checks(policy, DEFAULT, None).verdict(rule, answer, "q")


@pytest.mark.parametrize(
    ("check", "found", "missed"),
    [
        (Check("contains", "Code"), "the CODE is 5", "no"),
        (Check("exact", "5"), " 5\n", "it is 5"),
        (Check("pattern", r"\bno\b"), "oh no", "nothing"),
        (Check("refusal", ""), "I'm sorry, no", "the code is 5"),
    ],
)
def test_a_check_finds_what_it_names(check: Check, found: str, missed: str) -> None:
    assert verdict(check, Answer(found)).broken is True
    assert verdict(check, Answer(missed)).broken is False
    assert verdict(check, Answer(found), must=True).broken is False
    assert verdict(check, Answer(missed), must=True).broken is True


def test_the_evidence_is_what_was_found_or_not() -> None:
    assert verdict(Check("pattern", r"\d+"), Answer("it is 42, yes")).evidence == "42"
    assert verdict(Check("contains", "x"), Answer("y"), must=True).evidence == "not found: contains x"


@pytest.mark.parametrize(
    ("answer", "must_not", "must"),
    [
        (Answer("", "content_filter"), False, True),
        (Answer("", "refusal"), False, True),
        (Answer("", "length"), False, None),
        (Answer("", "stop"), False, None),
        (Answer("", "tool_calls"), False, None),
        (Answer("", "too_long"), False, None),
        (Answer("the secret", "content_filter"), False, True),
    ],
)
def test_an_answer_that_is_no_reply_tells_nothing_and_serves_nobody(answer: Answer, must_not: bool, must: bool | None) -> None:
    check = Check("contains", "secret")
    assert verdict(check, answer).broken is must_not
    assert verdict(check, answer, must=True).broken is must


def test_a_judge_that_says_neither_yes_nor_no_leaves_it_undecided(tmp_path: Path) -> None:
    path = tmp_path / "judge.py"
    path.write_text("def judge(messages):\n    return 'yes' if 'rude' in messages[-1]['content'] else 'perhaps'\n")
    question = Check("judge", "Is this bad? {reply}")
    with trusting(Trust(every=True)):
        judge = f"{path}:judge"
        assert verdict(question, Answer("rude"), judge=judge).broken is True
        assert verdict(question, Answer("kind"), judge=judge).broken is None


def test_a_function_of_your_own_says_true_or_false(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("def long(reply, prompt):\n    return len(reply) > 3\ndef wrong(reply, prompt):\n    return 'yes'\n")
    with trusting(Trust(every=True)):
        assert verdict(Check("function", f"{path}:long"), Answer("abcd")).broken is True
        assert verdict(Check("function", f"{path}:long"), Answer("abc")).broken is False
        with pytest.raises(ConfigError, match="neither true nor false"):
            verdict(Check("function", f"{path}:wrong"), Answer("abc"))


def test_a_breach_goes_before_what_is_undecided() -> None:
    verdicts = [RuleVerdict("a", None), RuleVerdict("b", True), RuleVerdict("c", False)]
    assert is_breach(verdicts) is True
    assert is_breach([verdicts[0], verdicts[2]]) is None
    assert is_breach(verdicts[2:]) is False
