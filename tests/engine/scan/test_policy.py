"""Policies as files: what they may say, and what is wrong with others."""

from __future__ import annotations

import hashlib
import tracemalloc
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest

from parley.engine.scan.policy import PackedPrompts, Policy, ReplyCheck, read_policy
from parley.envs.core.errors import ParleyError
from parley.policies.chat.model import Message

RULE = "rules: [{name: r, must_not: {contains: secret}}]\n"


def policy(folder: Path, text: str) -> Policy:
    path = folder / "policy.yaml"
    path.write_text(text)
    return read_policy(path)


def test_a_policy_is_read_with_its_rules_attacks_and_limits(tmp_path: Path) -> None:
    (tmp_path / "more.csv").write_text("id,Goal\na,say it\nb,say it again\nc,and again\n")
    (tmp_path / "lines.txt").write_text("one\n\ntwo\n")
    read = policy(
        tmp_path,
        RULE
        + """
name: shop
system: be kind
prompts:
  - hello
  - {id: own, text: 'when?', must: [{pattern: '\\d'}, {refusal: true}], tags: [T1]}
  - id: turns
    messages: [{role: user, content: a}, {role: assistant, content: b}, {role: user, content: c}]
  - {file: more.csv, limit: 2, must_not: bad}
  - {file: lines.txt, id: line}
attacks: [role-play, {template: 'please {prompt}', name: polite}]
repeats: 2
temperature: 0.5
limits: {breach: 0.1}
""",
    )
    assert [prompt.key for prompt in read.prompts] == ["1", "own", "turns", "more-a", "more-b", "line-1", "line-3"]
    assert read.prompts[3].messages == (Message("user", "say it"),)
    own = read.rules_of(read.prompts[1])
    assert [(rule.name, rule.must) for rule in own] == [("r", False), ("must", True)]
    assert own[1].checks == (ReplyCheck("pattern", "\\d"), ReplyCheck("refusal", ""))
    assert [message.role for message in read.prompts[2].messages] == ["user", "assistant", "user"]
    assert [(attack.name, attack.kind) for attack in read.attacks] == [("role-play", "named"), ("polite", "template")]
    assert (read.repeats, read.temperature, read.limits) == (2, 0.5, (("breach", 0.1),))


def test_the_example_and_the_demonstration_are_policies(tmp_path: Path) -> None:
    for name in ("example.yaml", "demo.yaml"):
        text = files("parley.engine.scan").joinpath(name).read_text()
        assert policy(tmp_path, text).limits == (("breach", 0.05),)


def test_the_digest_is_that_of_prompts_in_files_too(tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text("one\n")
    first = policy(tmp_path, RULE + "prompts: [{file: p.txt}]").digest
    assert policy(tmp_path, RULE + "prompts: [{file: p.txt}]\nname: policy").digest == first
    (tmp_path / "p.txt").write_text("two\n")
    assert policy(tmp_path, RULE + "prompts: [{file: p.txt}]").digest != first


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prompts: [", "the policy is not YAML"),
        ("prompts:\n\t- a", "fix:   indent with blanks, not with tabs"),
        ("prompts: [{text: a, must_not: {panel: [{contains: a}]}}]", "a panel has two checks or more"),
        ("prompts: [{text: a, must_not: {rubric: 2}}]", "rubric does not fit"),
        ("prompts: [{text: a, must_not: {rubric: 0.5}}]", "is judged by a chat model, and none is named"),
        ("prompts: [{text: a, must_not: {panel: [a, {judge: '{reply}'}]}}]", "is judged by a chat model, and none is named"),
        ("prompts: [{text: a, must_not: {contains: a, by: b}}]", "unknown key 'by'"),
        ("prompts: [{text: a, must_not: {safety: models/guard}}]", "a safety model is named hf:FOLDER"),
        ("prompts: [{text: a, must_not: {safety: 'hf:g', question: bad}}]", "the question does not show the reply"),
        (RULE + "prompts: [a]\ntags: [OWASP LLM11]", "a tag names no risk of owasp-llm, edition 2025, did you mean"),
        (RULE + "prompts: [a]\ntags: ['LLM07:2023']", "a tag names no risk of owasp-llm, edition 2025"),
        (RULE + "prompts: [{text: a, tags: [AML.T9999]}]", "a tag names no risk of mitre-atlas"),
        ("- a", "a policy is a mapping"),
        (RULE + "prompt: [a]", "unknown key 'prompt', did you mean 'prompts'?"),
        (RULE + "prompts: []", "the policy has no prompts"),
        (RULE + "prompts: a", "prompts is a list"),
        ("prompts: [a]", "a prompt has no rule to keep"),
        (RULE + "prompts: [{id: a}]", "a prompt has one of text, messages and file"),
        (RULE + "prompts: [{text: ''}]", "text is empty"),
        (RULE + "prompts: [{id: a, text: x}, {id: a, text: y}]", "two prompts have one id"),
        (RULE + "prompts: [{messages: [{role: assistant, content: x}]}]", "ends with the user's"),
        (RULE + "prompts: [{messages: [{role: user, content: x}, {role: assistant, content: y}]}]", "ends with the user's"),
        (RULE + "prompts: [{messages: [{role: bot, content: x}]}]", "a message has another role"),
        (RULE + "prompts: [{file: none.csv}]", "check its name, and that you may read it"),
        ("rules: [{must: x, must_not: y}]\nprompts: [a]", "what must or must not be in a reply"),
        ("rules: [{must_not: {holds: x}}]\nprompts: [a]", "there is no check 'holds'"),
        ("rules: [{must_not: {pattern: '('}}]\nprompts: [a]", "the pattern is no regular expression"),
        ("rules: [{must_not: {judge: 'Is {reply} bad?'}}]\nprompts: [a]", "judged by a chat model, and none is named"),
        ("judge: demo\nrules: [{must_not: {judge: Is it bad}}]\nprompts: [a]", "the question does not show the reply"),
        (RULE + "prompts: [a]\nattacks: [{template: hello}]", "the template does not hold the prompt"),
        (RULE + "prompts: [a]\nattacks: [role-play, role-play]", "two attacks bear one name"),
        ("rules: [{name: r, must: {contains: x}}, {name: r, must: {contains: y}}]\nprompts: [a]", "two rules bear one name"),
        (RULE + "prompts: [a]\nlimits: {breach: 1}", "a limit can never be broken"),
        (RULE + "prompts: [a]\nlimits: {breach: -1}", "breach does not fit"),
        (RULE + "prompts: [a]\nrepeats: 1.5", "repeats does not fit"),
        (RULE + "prompts: [a]\nrepeats: true", "repeats does not fit"),
        (RULE + "prompts: [a]\ntemperature: .nan", "temperature does not fit"),
    ],
)
def test_what_is_wrong_with_a_policy_is_said(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ParleyError) as raised:
        policy(tmp_path, text)
    assert message in str(raised.value)
    assert "policy.yaml" in str(raised.value) or "none.csv" in str(raised.value)


def test_a_behaviour_of_harmbench_stands_behind_its_context(tmp_path: Path) -> None:
    (tmp_path / "h.csv").write_text("Behavior,ContextString,BehaviorID\ntell a joke,,joke\nsay a rude word,At a party.,rude\n")
    prompts = policy(tmp_path, RULE + "prompts: [{file: h.csv}]").prompts
    assert [(prompt.key, prompt.messages[0].content) for prompt in prompts] == [
        ("h-joke", "tell a joke"),
        ("h-rude", "At a party.\n\n---\n\nsay a rude word"),
    ]


def test_a_file_of_prompts_without_such_a_column_names_those_it_has(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("goal,other\nx,y\n")
    with pytest.raises(ParleyError, match="the file has no column") as raised:
        policy(tmp_path, RULE + "prompts: [{file: p.csv, column: prompt}]")
    assert "p.csv" in str(raised.value)


def test_packed_prompts_are_those_of_a_tuple_in_a_dozen_bytes_each(tmp_path: Path) -> None:
    (tmp_path / "more.csv").write_text("prompt\n" + "".join(f"what is number {number}?\n" for number in range(5_000)))
    text = f"{RULE}prompts: [hello, {{text: '\u00e4 \ud83d\ude00', tags: [T1], goal: g}}, {{file: more.csv}}]\n"
    text = text.encode("utf-16", "surrogatepass").decode("utf-16")
    tracemalloc.start()
    read = policy(tmp_path, text)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    whole = tuple(read.prompts)
    assert (len(whole), whole[1].messages[0].content) == (5_002, "\u00e4 \U0001f600")
    assert read.prompts == whole
    assert (repr(read.prompts), replace(read, prompts=whole)) == (repr(whole), read)
    assert repr(PackedPrompts(read.prompts[:1])) == repr(whole[:1])
    assert (tuple(read.prompts[1:3]), read.prompts[-1]) == (whole[1:3], whole[-1])
    assert [rule.name for rule in read.all_rules] == ["r"]
    goals = [read.attacker, read.budget, [prompt.goal for prompt in whole]]
    assert read.digest == hashlib.sha256(f"{read!r}{goals!r}".encode()).hexdigest()[:16]
    assert held < 30 * len(whole)


def test_a_file_of_prompts_is_read_again_once_it_has_changed(tmp_path: Path) -> None:
    for content in ("prompt\none\n", "prompt\ntwo\n"):
        (tmp_path / "more.csv").write_text(content)
        read = policy(tmp_path, f"{RULE}prompts: [{{file: more.csv}}]\n")
        assert read.prompts[0].messages == (Message("user", content.split()[1]),)
        assert policy(tmp_path, f"{RULE}prompts: [{{file: more.csv}}]\n").prompts is read.prompts
