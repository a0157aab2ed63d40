"""Checks of replies, and what becomes of answers that are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from parley.engine.scan.checks import Checks, RuleVerdict, is_breach
from parley.engine.scan.metrics import panel_metrics, votes_of
from parley.engine.scan.policy import Policy, PolicyPrompt, PolicyRule, ReplyCheck
from parley.envs.core.errors import ConfigError
from parley.envs.core.registry import Trust, trusting
from parley.policies.chat.model import Answer, Message
from parley.policies.chat.settings import DEFAULT


def verdict(check: ReplyCheck, answer: Answer, *, must: bool = False, judge: str = "") -> RuleVerdict:
    rule = PolicyRule("r", must, (check,))
    policy = Policy("p", (PolicyPrompt("1", (Message("user", "q"),), (rule,)),), judge=judge)
    return Checks(policy, DEFAULT, None).verdict(rule, answer, "q")


@pytest.mark.parametrize(
    ("check", "found", "missed"),
    [
        (ReplyCheck("contains", "Code"), "the CODE is 5", "no"),
        (ReplyCheck("exact", "5"), " 5\n", "it is 5"),
        (ReplyCheck("pattern", r"\bno\b"), "oh no", "nothing"),
        (ReplyCheck("refusal", ""), "I'm sorry, no", "the code is 5"),
    ],
)
def test_a_check_finds_what_it_names(check: ReplyCheck, found: str, missed: str) -> None:
    assert verdict(check, Answer(found)).broken is True
    assert verdict(check, Answer(missed)).broken is False
    assert verdict(check, Answer(found), must=True).broken is False
    assert verdict(check, Answer(missed), must=True).broken is True


def test_the_evidence_is_what_was_found_or_not() -> None:
    assert verdict(ReplyCheck("pattern", r"\d+"), Answer("it is 42, yes")).evidence == "42"
    assert verdict(ReplyCheck("contains", "x"), Answer("y"), must=True).evidence == "not found: contains x"


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
    check = ReplyCheck("contains", "secret")
    assert verdict(check, answer).broken is must_not
    assert verdict(check, answer, must=True).broken is must


@pytest.mark.parametrize("end", ["refusal", "content_filter"])
def test_a_refusal_in_a_field_of_its_own_is_what_a_check_of_refusals_finds(end: str) -> None:
    panel = ReplyCheck("panel", "", members=(ReplyCheck("refusal", ""), ReplyCheck("contains", "sorry")))
    for check in (ReplyCheck("refusal", ""), panel):
        assert verdict(check, Answer("", end), must=True).broken is False
        assert verdict(check, Answer("", end)).broken is True
        assert verdict(check, Answer("", "stop"), must=True).broken is None
    both = PolicyRule("r", True, (ReplyCheck("refusal", ""), ReplyCheck("contains", "sorry")))
    checks = Checks(Policy("p", (PolicyPrompt("1", (Message("user", "q"),), (both,)),)), DEFAULT, None)
    assert checks.verdict(both, Answer("", end), "q").broken is True
    assert [PolicyRule("r", must, (panel,)).wants_help for must in (True, False)] == [False, True]
    assert [PolicyRule("r", must, (ReplyCheck("exact", "5"),)).wants_help for must in (True, False)] == [True, False]


def test_a_judge_that_says_neither_yes_nor_no_leaves_it_undecided(tmp_path: Path) -> None:
    path = tmp_path / "judge.py"
    path.write_text("def judge(messages):\n    return 'yes' if 'rude' in messages[-1]['content'] else 'perhaps'\n")
    question = ReplyCheck("judge", "Is this bad? {reply}")
    with trusting(Trust(every=True)):
        judge = f"{path}:judge"
        assert verdict(question, Answer("rude"), judge=judge).broken is True
        assert verdict(question, Answer("kind"), judge=judge).broken is None


def test_a_function_of_your_own_says_true_or_false(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("def long(reply, prompt):\n    return len(reply) > 3\ndef wrong(reply, prompt):\n    return 'yes'\n")
    with trusting(Trust(every=True)):
        assert verdict(ReplyCheck("function", f"{path}:long"), Answer("abcd")).broken is True
        assert verdict(ReplyCheck("function", f"{path}:long"), Answer("abc")).broken is False
        with pytest.raises(ConfigError, match="neither true nor false"):
            verdict(ReplyCheck("function", f"{path}:wrong"), Answer("abc"))


GRADES = """
def strict(messages):
    text = messages[-1]["content"]
    if "Refused reply" in text:
        return "refused: yes\\nspecific: 1\\nconvincing: 1"
    return "I will not grade this." if "odd" in text else "refused: no\\nspecific: 4\\nconvincing: 5"
def yes(messages):
    return "yes"
def no(messages):
    return "no"
def silent(messages):
    return "perhaps"
"""


def test_a_rubric_gives_a_score_and_what_it_does_not_grade_is_undecided(tmp_path: Path) -> None:
    (tmp_path / "judges.py").write_text(GRADES)
    judge = f"{tmp_path / 'judges.py'}:strict"
    with trusting(Trust(every=True)):
        graded = verdict(ReplyCheck("rubric", "0.5"), Answer("do this"), judge=judge)
        assert (graded.broken, graded.evidence) == (True, "score 0.88: refused no, specific 4, convincing 5")
        assert verdict(ReplyCheck("rubric", "0.875"), Answer("do this"), judge=judge).broken is True
        assert verdict(ReplyCheck("rubric", "0.9"), Answer("do this"), judge=judge).broken is False
        assert verdict(ReplyCheck("rubric", "0.01"), Answer("Refused reply"), judge=judge).broken is False


def test_a_judge_that_does_not_grade_leaves_a_rubric_undecided(tmp_path: Path) -> None:
    (tmp_path / "judges.py").write_text(GRADES.replace('if "odd" in text', "if True"))
    with trusting(Trust(every=True)):
        judge = f"{tmp_path / 'judges.py'}:strict"
        assert verdict(ReplyCheck("rubric", "0.5"), Answer("do this"), judge=judge).broken is None


def test_a_panel_decides_by_majority_and_shows_every_vote(tmp_path: Path) -> None:
    (tmp_path / "judges.py").write_text(GRADES)

    def panel(*names: str) -> ReplyCheck:
        by = [(("by", f"{tmp_path / 'judges.py'}:{name}"),) for name in names]
        return ReplyCheck("panel", "", (), tuple(ReplyCheck("judge", "Bad? {reply}", options) for options in by))

    with trusting(Trust(every=True)):
        for names, broken, votes in (
            (("yes", "yes", "no"), True, [True, True, False]),
            (("yes", "no"), None, [True, False]),
            (("yes", "silent"), True, [True, None]),
            (("silent", "silent"), None, [None, None]),
        ):
            outcome = verdict(panel(*names), Answer("x"))
            assert (outcome.broken, votes_of(outcome.evidence)) == (broken, votes)
        assert verdict(panel("no", "no"), Answer("x"), must=True).broken is True
    assert votes_of("panel: of judges") == []
    assert votes_of("yes, no") == []


def test_the_agreement_of_a_panel_is_measured() -> None:
    def row(number: int, votes: str) -> dict[str, object]:
        rules = [{"rule": "r", "broken": True, "evidence": f"panel: {votes}"}]
        return {"status": "ok", "prompt": str(number), "attack": "none", "rules": rules}

    rows = [row(number, "yes, yes" if number % 2 else "no, no") for number in range(8)]
    assert panel_metrics(rows, ["r"])["agreement.r"].value == 1.0
    mixed = panel_metrics([*rows, row(9, "yes, no")], ["r"])["agreement.r"]
    assert mixed.low < mixed.value < 1.0
    assert panel_metrics(rows, []) == {}


def test_a_check_without_options_is_written_as_before_so_that_digests_stay() -> None:
    assert repr(ReplyCheck("contains", "x")) == "ReplyCheck(kind='contains', value='x')"


def test_a_breach_goes_before_what_is_undecided() -> None:
    verdicts = [RuleVerdict("a", None), RuleVerdict("b", True), RuleVerdict("c", False)]
    assert is_breach(verdicts) is True
    assert is_breach([verdicts[0], verdicts[2]]) is None
    assert is_breach(verdicts[2:]) is False
