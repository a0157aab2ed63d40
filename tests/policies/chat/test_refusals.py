"""What servers mean by their refusals, in the statuses, codes, words and figures of their makers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from parley.policies.chat.refusals import Refusal, RefusalKind, RefusalReading
from tests.policies.chat import refusal_kinds as kinds
from tests.policies.chat.fake_server import Said

REQUEST: dict[str, Any] = {
    "model": "m", "messages": [{"role": "system", "content": "rules"}, {"role": "user", "content": "hi"}],
    "temperature": 0.5, "seed": 3, "max_tokens": 5,
}  # fmt: skip


def read(response: Said, request: dict[str, Any] = REQUEST) -> RefusalReading:
    return Refusal.of_response(response.status, response.body).read(request)


def of(status: int, document: Any, request: dict[str, Any] = REQUEST) -> RefusalReading:
    return read(Said(json.dumps(document).encode() if document else b"", status), request)


@pytest.mark.parametrize("name", kinds.LONG_KINDS)
def test_messages_that_are_too_long_are_told_in_every_wording(name: str) -> None:
    assert read(kinds.long_error(name, 1_300)).kind is RefusalKind.TOO_LONG


@pytest.mark.parametrize("name", kinds.MODERATED)
def test_moderation_is_told_in_every_wording(name: str) -> None:
    assert of(*kinds.MODERATED[name]).kind is RefusalKind.FILTERED


@pytest.mark.parametrize("name", kinds.FORBIDDEN)
def test_what_is_forbidden_to_a_key_or_without_a_reason_is_no_moderation(name: str) -> None:
    explained = {
        "forbidden-model": RefusalKind.NO_MODEL,
        "forbidden-key": RefusalKind.OTHER,
        "forbidden-account": RefusalKind.OTHER,
        "forbidden-region": RefusalKind.OTHER,
    }
    assert of(*kinds.FORBIDDEN[name]).kind is explained.get(name, RefusalKind.FORBIDDEN)


@pytest.mark.parametrize("name", kinds.QUOTA)
def test_a_spent_quota_is_told_in_every_wording(name: str) -> None:
    status, document, _ = kinds.QUOTA[name]
    assert of(status, document).kind is RefusalKind.QUOTA


def test_a_limit_by_the_minute_in_the_words_of_a_spent_quota_is_waited_for() -> None:
    refusal = Refusal.of_response(429, json.dumps(kinds.error(f"{kinds.RATE}Please retry in 21.5s.")).encode())
    assert (refusal.read(REQUEST).kind, refusal.wait_s) == (RefusalKind.BUSY, 21.5)
    details = {"error": {"message": kinds.RATE, "details": [{"@type": "RetryInfo", "retryDelay": "7s"}]}}
    refusal = Refusal.of_response(429, json.dumps(details).encode())
    assert (refusal.read(REQUEST).kind, refusal.wait_s) == (RefusalKind.BUSY, 7)
    assert Refusal.of_response(429, b"Please try again in 1m2s.").wait_s == 62
    assert Refusal.of_response(429, b"try again in 120ms").wait_s == 0.12
    assert Refusal.of_response(429, kinds.RATE.encode(), wait_s=3).read(REQUEST).kind is RefusalKind.BUSY


@pytest.mark.parametrize("name", kinds.FIELDS)
def test_a_field_or_role_that_a_server_lacks_is_told(name: str) -> None:
    play, what = kinds.FIELDS[name]
    request = {**REQUEST, "temperature": 0.0} if name.startswith("no-temp-zero") else REQUEST
    reading = read(play(0, request), request)
    if what in ("system", "turns"):
        assert reading.kind is {"system": RefusalKind.SYSTEM, "turns": RefusalKind.TURNS}[what]
    else:
        assert reading.kind is RefusalKind.FIELD
        assert reading.field == ("max_tokens" if name in ("no-limit", "no-fields") else what)


@pytest.mark.parametrize("name", kinds.LARGE)
def test_room_for_an_answer_is_read_out_of_the_figures(name: str) -> None:
    request = {**REQUEST, "max_tokens": 32_000}
    assert of(400, kinds.LARGE[name](32_000), request) == RefusalReading(RefusalKind.NO_ROOM, "max_tokens", kinds.ROOM - 96)


@pytest.mark.parametrize(
    ("status", "document", "kind"),
    [
        (400, kinds.error("temperature must be between 0 and 1", param="temperature"), RefusalKind.VALUE),
        (422, {"detail": [{"loc": ["body", "temperature"], "msg": "Input should be at most 2"}]}, RefusalKind.VALUE),
        (400, kinds.error("API key not valid. Please pass a valid API key."), RefusalKind.KEY),
        (401, "", RefusalKind.KEY),
        (404, kinds.error("model m not found"), RefusalKind.NO_MODEL),
        (400, kinds.error("Could not finish the message because max_tokens or model output limit was reached."),
         RefusalKind.CUT_IN_THINKING),
        (500, kinds.error("the moderation service failed"), RefusalKind.BUSY),
        (503, kinds.error("moderation is overloaded"), RefusalKind.BUSY),
        (500, kinds.error("out of memory"), RefusalKind.BUSY),
        (500, kinds.error("unexpected error after max_tokens were written"), RefusalKind.BUSY),
        (500, kinds.error("a worker was lost in between, seed 3"), RefusalKind.BUSY),
        (429, kinds.error("Rate limit reached on tokens per min: Limit 10000, Used 9500, Requested 700."), RefusalKind.BUSY),
        (400, kinds.error("the chat template cannot be filled from this context"), RefusalKind.OTHER),
        (400, {"error": {"message": "a role is unknown", "prompt": "what is your maximum context length"}}, RefusalKind.OTHER),
        (400, "<html>maximum context length</html>", RefusalKind.OTHER),
        (400, kinds.error("max_tokens must be 1 or greater"), RefusalKind.OTHER),
        (400, kinds.error("The request body exceeds the number of parallel requests, 10"), RefusalKind.OTHER),
        (400, kinds.error("messages: text content blocks must be non-empty"), RefusalKind.OTHER),
        (400, kinds.error("the message contains illegal characters"), RefusalKind.OTHER),
        (403, kinds.error("Your IP was blocked"), RefusalKind.OTHER),
        (403, kinds.error("You are not allowed to sample from this model"), RefusalKind.FORBIDDEN),
        (400, kinds.error("`max_new_tokens` must be <= 512. Given: 1024"), RefusalKind.NO_ROOM),
    ],
)  # fmt: skip
def test_others_are_told_apart(status: int, document: Any, kind: RefusalKind) -> None:
    body = document.encode() if isinstance(document, str) else json.dumps(document).encode()
    assert Refusal.of_response(status, body).read(REQUEST).kind is kind


def test_nothing_is_read_out_of_what_was_asked() -> None:
    text = "say that seed is unsupported by our content policy, at the maximum context length"
    body = json.dumps(kinds.error(f"cannot answer: {text}")).encode()
    assert Refusal.of_response(400, body).read(REQUEST).kind is RefusalKind.FILTERED
    assert Refusal.of_response(400, body, request_texts=[text]).read(REQUEST).kind is RefusalKind.OTHER


def test_a_field_of_the_users_own_is_named() -> None:
    reading = of(400, kinds.error("Unknown parameter: 'reasoning_effort'."), {**REQUEST, "reasoning_effort": "low"})
    assert reading == RefusalReading(RefusalKind.FIELD, "reasoning_effort")
