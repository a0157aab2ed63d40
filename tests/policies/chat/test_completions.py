"""Answers of chat completions: nothing passes for a reply but one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from parley.envs.core.errors import ModelError
from parley.policies.chat.completions import (
    BROKEN_BYTES,
    NO_REASON,
    OTHER_MODEL,
    PART_LEFT_OUT,
    SEVERAL,
    TOOL_BESIDE,
    HalfAnswerError,
    answer_of,
)
from parley.policies.chat.model import Answer, AnswerKind
from tests.policies.chat import answer_kinds as kinds
from tests.policies.chat.refusal_kinds import SAY, body_of, choice


def read(document: Any, **settings: Any) -> Answer:
    return answer_of(json.dumps(document).encode(), "here", max_tokens=5, **settings)


@pytest.mark.parametrize("name", kinds.ANSWERS)
def test_each_kind_of_answer_is_read_as_what_it_is(name: str) -> None:
    document, expected = kinds.ANSWERS[name]
    answer = read(document)
    assert (answer.kind, answer.text.strip()) == (expected.kind, expected.text)
    assert (answer.reasoning, answer.withheld) == (expected.reasoning, expected.withheld)
    assert answer.num_prompt_tokens == (7 if document.get("choices") else None)


@pytest.mark.parametrize(("reason", "kind"), kinds.FINISH_REASONS, ids=str)
def test_reasons_for_an_end_are_known_by_the_names_of_their_makers(reason: Any, kind: AnswerKind) -> None:
    answer = read(body_of(choice(SAY, reason)))
    assert answer.kind is kind
    assert answer.text == ("" if kind is AnswerKind.FILTERED else SAY)
    unknown = ("an end for the unknown reason 'a reason of its own', read as a whole text",)
    assert answer.notes == (unknown if reason == "a reason of its own" else ())


@pytest.mark.parametrize("name", kinds.BROKEN)
def test_half_an_answer_is_none(name: str) -> None:
    document, status = kinds.BROKEN[name]
    with pytest.raises(HalfAnswerError) as caught:
        read(document)
    refusal = caught.value.refusal
    assert refusal.in_answer
    assert refusal.status == (status or refusal.status)
    assert status is not None or refusal.status in (429, 500, 502)


@pytest.mark.parametrize(
    ("asked", "named", "noted"),
    [
        ("small", "large", True),
        ("gpt-x", "openai/GPT-x-2024-08-06", False),
        ("m.gguf", "/models/M.gguf", False),
        ("small", None, False),
        ("small", "", False),
        ("small", 7, True),
        ("", "large", False),
    ],
)
def test_a_server_that_answers_as_another_model_is_noted(asked: str, named: Any, noted: bool) -> None:
    where = f"openai:http://127.0.0.1/v1#{asked}" if asked else "http:bot.yaml"
    answer = answer_of(json.dumps({**body_of(choice(SAY, "stop")), "model": named}).encode(), where)
    assert answer.notes == ((f"{OTHER_MODEL} {str(named)!r}",) if noted else ())


def test_what_was_done_differently_is_noted() -> None:
    assert read(kinds.ANSWERS["many"][0]).notes == (SEVERAL,)
    assert read(kinds.ANSWERS["tool-beside"][0]).notes == (TOOL_BESIDE,)
    assert read(kinds.ANSWERS["no-reason"][0]).notes == (NO_REASON,)
    assert read(kinds.ANSWERS["null-null"][0]).notes == ()
    assert read(body_of(choice([{"type": "image_url", "image_url": {}}, SAY]))).notes == (PART_LEFT_OUT,)
    assert read(kinds.ANSWERS["ok"][0]).notes == ()


def test_bytes_that_are_no_utf8_are_read_and_noted() -> None:
    body = json.dumps(body_of(choice("caf\u00e9 \ufffd", reasoning="\u00e9")), ensure_ascii=False)
    assert answer_of(body.encode(), "here").notes == ()
    answer = answer_of(body.replace(" \ufffd", "").encode("latin-1"), "here")
    assert (answer.text, answer.notes) == ("caf\ufffd", (BROKEN_BYTES,))
    assert answer_of(b"\xef\xbb\xbf" + body.encode(), "here").text == "caf\u00e9 \ufffd"
    assert answer_of(body.encode().replace(b"caf", b"caf\n"), "here").text == "caf\n\u00e9 \ufffd", (
        "a bare line break in a text"
    )


def test_thinking_is_kept_in_the_text_on_request() -> None:
    answer = read(kinds.ANSWERS["think-inline"][0], thinking="keep")
    assert answer.text == f"<think>\n{kinds.THOUGHT}\n</think>\n\n{SAY}"
    assert (answer.kind, answer.reasoning) == (AnswerKind.REPLY, "")
    assert read(kinds.ANSWERS["think-beside"][0], thinking="keep").reasoning == kinds.THOUGHT


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (b"", "answers nothing"),
        (b"<html>", "a page"),
        (b'{"choices": [{"mess', "no JSON, or cut"),
        (b"data: {}\n\ndata: [DONE]", "a stream"),
        (b'{"choices": []}', "no choices"),
        (b'{"choices": [null]}', "no choices"),
        (b'{"choices": [{"finish_reason": "stop"}]}', "no message"),
        (b"[1, 2]", "no choices"),
        (b"7", "no choices"),
    ],
)
def test_what_the_protocol_does_not_know_is_no_answer(body: bytes, what: str) -> None:
    with pytest.raises(ModelError, match=what):
        answer_of(body, "here")
