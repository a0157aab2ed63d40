"""Everything that servers of chat completions are known to say, played by a model's name.

`serving(play)` is a server whose model `think-empty`, say, gives that kind of answer; `ANSWERS` tells what an answer has to be
read as. A name with a colon has an argument: `block-403:word` stops each question that holds the word, and answers all others.

Wordings follow the makers' own pages and public reports of them; no two makers agree on any.
"""

from __future__ import annotations

import json
import threading
from typing import Any, NamedTuple

from parley.policies.chat.model import AnswerKind
from tests.policies.chat.fake_server import Said, serving
from tests.policies.chat.refusal_kinds import (
    FIELDS,
    FORBIDDEN,
    LARGE,
    LONG,
    LONG_KINDS,
    MODERATED,
    QUOTA,
    RATE,
    ROOM,
    USAGE,
    body_of,
    choice,
    error,
    long_error,
    said,
)
from tests.policies.chat.refusal_kinds import SAY as SAY

HALF = "i am fine , thank"
THOUGHT = "Okay, the user says something. Sorry or not? Let me weigh it."


class Expected(NamedTuple):
    """What an answer has to be read as."""

    kind: AnswerKind
    text: str = ""
    reasoning: str = ""
    withheld: str = ""


REPLY = Expected(AnswerKind.REPLY, SAY)
THINKING = Expected(AnswerKind.REPLY, SAY, THOUGHT)
CUT_THINKING = Expected(AnswerKind.CUT_IN_THINKING, reasoning=THOUGHT)
FILTERED = Expected(AnswerKind.FILTERED)
TOOL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CALLED = Expected(AnswerKind.TOOL_CALL, withheld=json.dumps([TOOL]))

STEPS, CAP = "Here are my reasoning steps: one and two.", "<thinking-cap>on</thinking-cap>"
STRUCK, MARKED = "It was <s>ten</s>", "<tool_call> is the mark of a call."
ANSWERS: dict[str, tuple[dict[str, Any], Expected]] = {
    "ok": (body_of(choice(SAY)), REPLY),
    "cut": (body_of(choice(HALF, "length")), Expected(AnswerKind.CUT, HALF)),
    "empty": (body_of(choice("")), Expected(AnswerKind.EMPTY)),
    "blank": (body_of(choice(" \n")), Expected(AnswerKind.EMPTY)),
    "null": (body_of(choice(None)), Expected(AnswerKind.EMPTY)),
    "null-null": (body_of(choice(None, None)), Expected(AnswerKind.EMPTY)),
    "empty-length": (body_of(choice("", "length")), Expected(AnswerKind.CUT_IN_THINKING)),
    "think-inline": (body_of(choice(f"<think>\n{THOUGHT}\n</think>\n\n{SAY}")), THINKING),
    "think-end-alone": (body_of(choice(f"{THOUGHT}\n</think>\n\n{SAY}")), THINKING),
    "think-cut": (body_of(choice(f"<think>\n{THOUGHT}", "length")), CUT_THINKING),
    "think-unclosed": (body_of(choice(f"<think>\n{THOUGHT}", "stop")), CUT_THINKING),
    "think-null": (body_of(choice(None, "length", reasoning_content=THOUGHT)), CUT_THINKING),
    "think-empty": (body_of(choice("", "length", reasoning_content=THOUGHT)), CUT_THINKING),
    "think-empty-stop": (
        body_of(choice("", "stop", reasoning=THOUGHT)),
        Expected(AnswerKind.ONLY_THINKING, reasoning=THOUGHT),
    ),
    "think-beside": (body_of(choice(SAY, reasoning_content=THOUGHT)), THINKING),
    "think-both": (body_of(choice(SAY, reasoning=THOUGHT, reasoning_content=THOUGHT)), THINKING),
    "think-list": (body_of(choice(SAY, reasoning_content=[{"type": "text", "text": THOUGHT}])), THINKING),
    "think-details": (
        body_of(choice(SAY, reasoning_details=[{"type": "reasoning.text", "text": THOUGHT, "index": 0}])),
        THINKING,
    ),
    "think-summary": (
        body_of(choice(SAY, reasoning=None, reasoning_details=[{"type": "reasoning.summary", "summary": THOUGHT}])),
        THINKING,
    ),
    "think-hidden": (
        body_of(choice(""), usage={**USAGE, "completion_tokens_details": {"reasoning_tokens": 3}}),
        Expected(AnswerKind.ONLY_THINKING, reasoning="(3 tokens of reasoning that the server does not show)"),
    ),
    "parts": (
        body_of(
            choice(
                [{"type": "thinking", "thinking": [{"type": "text", "text": THOUGHT}]}, {"type": "text", "text": SAY}],
            )
        ),
        THINKING,
    ),
    "parts-text": (body_of(choice([{"type": "text", "text": HALF}, {"type": "text", "text": SAY[len(HALF) :]}])), REPLY),
    "parts-blocks": (
        body_of(choice([{"type": "thinking", "thinking": THOUGHT}, {"type": "output_text", "text": SAY}])),
        THINKING,
    ),
    "parts-reasoning": (
        body_of(choice([{"type": "reasoning", "summary": [{"text": THOUGHT}]}, {"type": "text", "text": SAY}])),
        THINKING,
    ),
    "parts-strings": (body_of(choice([HALF, SAY[len(HALF) :]])), REPLY),
    "parts-thinking-alone": (
        body_of(choice([{"type": "thinking", "thinking": THOUGHT}], "length")),
        CUT_THINKING,
    ),
    "parts-refusal": (
        body_of(choice([{"type": "refusal", "refusal": "I cannot."}])),
        Expected(AnswerKind.REFUSED, withheld="I cannot."),
    ),
    "parts-none": (body_of(choice([])), Expected(AnswerKind.EMPTY)),
    "part-alone": (body_of(choice({"type": "text", "text": SAY})), REPLY),
    "refusal": (body_of(choice(None, refusal="I cannot.")), Expected(AnswerKind.REFUSED, withheld="I cannot.")),
    "refusal-litellm": (
        body_of(choice(None, refusal=None, provider_specific_fields={"refusal": "I cannot."})),
        Expected(AnswerKind.REFUSED, withheld="I cannot."),
    ),
    "refusal-empty": (body_of(choice("", refusal="I cannot.")), Expected(AnswerKind.REFUSED, withheld="I cannot.")),
    "refusal-reason": (body_of(choice("I can", "refusal")), Expected(AnswerKind.REFUSED, withheld="I can")),
    "refusal-null": (body_of(choice(SAY, refusal=None)), REPLY),
    "tool": (body_of(choice(None, "tool_calls", tool_calls=[TOOL])), CALLED),
    "tool-stop": (body_of(choice("", "stop", tool_calls=[TOOL])), CALLED),
    "tool-old": (
        body_of(choice(None, "function_call", function_call={"name": "f", "arguments": "{}"})),
        Expected(AnswerKind.TOOL_CALL, withheld=json.dumps({"name": "f", "arguments": "{}"})),
    ),
    "tool-beside": (body_of(choice(SAY, "tool_calls", tool_calls=[TOOL])), REPLY),
    "tool-empty": (body_of(choice(SAY, tool_calls=[])), REPLY),
    "tool-text": (
        body_of(choice('<tool_call>{"name": "f"}</tool_call>')),
        Expected(AnswerKind.TOOL_CALL, withheld=json.dumps('<tool_call>{"name": "f"}</tool_call>')),
    ),
    "invisible": (body_of(choice("\u200b\ufeff")), Expected(AnswerKind.EMPTY)),
    "end-alone": (body_of(choice("<|im_end|>")), Expected(AnswerKind.EMPTY)),
    "end-within": (body_of(choice(f"{SAY}<|im_end|>\n<|im_start|>user\nand you?", "length")), REPLY),
    "think-named": (body_of(choice(f"<inner_thoughts>{THOUGHT}</inner_thoughts>{SAY}")), THINKING),
    "think-no-tokens": (body_of(choice(f"analysis{THOUGHT}assistantfinal{SAY}")), THINKING),
    "words-of-thinking": (body_of(choice(STEPS)), Expected(AnswerKind.REPLY, STEPS)),
    "name-alike": (body_of(choice(CAP)), Expected(AnswerKind.REPLY, CAP)),
    "end-spoken": (body_of(choice(STRUCK)), Expected(AnswerKind.REPLY, STRUCK)),
    "tool-spoken": (body_of(choice(MARKED)), Expected(AnswerKind.REPLY, MARKED)),
    "filtered": (body_of(choice("", "content_filter")), FILTERED),
    "filtered-null": (body_of(choice(None, "content_filter")), FILTERED),
    "filtered-half": (body_of(choice(HALF, "content_filter")), Expected(AnswerKind.FILTERED, withheld=HALF)),
    "filtered-native": (body_of({**choice(None), "native_finish_reason": "SAFETY"}), FILTERED),
    "filtered-no-choices": (
        {"prompt_filter_results": [{"content_filter_results": {"hate": {"filtered": True}}}], "choices": []},
        FILTERED,
    ),
    "filtered-feedback": ({"promptFeedback": {"blockReason": "SAFETY"}, "usage": USAGE}, FILTERED),
    "many": (body_of(choice("number one", index=1), choice(SAY, index=0)), REPLY),
    "many-no-index": (body_of({"message": {"content": SAY}}, {"message": {"content": "number one"}}), REPLY),
    "no-reason": (body_of({"message": {"content": SAY}}), REPLY),
    "no-reason-full": (
        body_of({"message": {"content": SAY}}, usage={"prompt_tokens": 7, "completion_tokens": 10**6}),
        Expected(AnswerKind.CUT, SAY),
    ),
    "finish-details": (
        body_of({**choice(HALF, None), "finish_details": {"type": "max_tokens"}}),
        Expected(AnswerKind.CUT, HALF),
    ),
    "text": (body_of({"text": SAY, "finish_reason": "stop"}), REPLY),
    "usage-odd": (body_of(choice(SAY), usage={"prompt_tokens": 7.0, "completion_tokens": "3"}), REPLY),
    "usage-other": (body_of(choice(SAY), usage={"input_tokens": 7, "output_tokens": 3}), REPLY),
}
"""A body of each kind, and what it has to be read as."""
FINISH_REASONS: list[tuple[Any, AnswerKind]] = [
    *((reason, AnswerKind.REPLY) for reason in ("eos", "EOS", "eos_token", "end_turn", "stop_sequence", "COMPLETE", "STOP")),
    *((reason, AnswerKind.REPLY) for reason in ("FINISH_REASON_STOP", {"type": "stop", "matched": 2}, "a reason of its own")),
    *((reason, AnswerKind.CUT) for reason in ("length", "max_tokens", "MAX_TOKENS", "maxTokens", "model_length")),
    *((reason, AnswerKind.CUT) for reason in ("max_output_tokens", "model_context_window_exceeded", "ERROR_LIMIT")),
    *((reason, AnswerKind.FILTERED) for reason in ("content_filter", "SAFETY", "RECITATION", "PROHIBITED_CONTENT")),
    *((reason, AnswerKind.FILTERED) for reason in ("content-filter", "sensitive", "guardrail_intervened", "ERROR_TOXIC")),
]
"""Reasons for an end that makers name, and the kind of a text that ends so."""
BROKEN: dict[str, tuple[dict[str, Any], int | None]] = {
    "choice-error": (
        body_of({**choice(HALF, "error"), "error": {"code": 502, "message": "upstream broke"}}),
        None,
    ),
    "choice-error-stop": (body_of({**choice(HALF), "error": {"message": "upstream broke"}}), None),
    "finish-error": (body_of(choice(HALF, "error")), None),
    "finish-network": (body_of(choice(HALF, "network_error")), None),
    "finish-abort": (body_of(choice(HALF, {"type": "abort", "message": "aborted"})), None),
    "finish-resource": (body_of(choice(HALF, "insufficient_system_resource")), None),
    "litellm-error": (
        body_of({**choice(HALF), "provider_specific_fields": {"native_finish_reason": "error", "error": {"message": "broke"}}}),
        None,
    ),
    "litellm-network": (body_of({**choice(HALF), "provider_specific_fields": {"native_finish_reason": "network_error"}}), None),
    "body-error": (error("provider returned error", code=429), None),
    "body-error-beside": (body_of(choice(HALF), error={"message": "provider returned error", "code": "502"}), None),
    "body-error-text": ({"error": "overloaded"}, None),
    "body-error-key": (error("No auth credentials found", code=401), 401),
    "body-error-model": (error("no such model", code=404), 404),
    "body-error-quota": (error("Insufficient credits", code=402), 402),
}
"""Answers with status 200 that are half of one or none, and the status of those that are final."""


def play(number: int, body: dict[str, Any]) -> Said:
    """Return what the kind of a request's model says; `ok` to a name that is none."""
    name, _, argument = body["model"].partition(":")
    messages = [message["content"] for message in body["messages"]]
    if name in MODERATED and argument and argument not in messages[-1]:
        return said(body_of(choice(SAY)))
    if name in ANSWERS:
        return said(ANSWERS[name][0])
    if name in BROKEN:
        return said(BROKEN[name][0])
    if name in FIELDS:
        return FIELDS[name][0](number, body)
    if name in LONG_KINDS:
        num = sum(len(text.split()) for text in messages)
        return long_error(name, num) if num > LONG else said(body_of(choice(SAY)))
    if name in LARGE:
        most = int(body.get("max_tokens", body.get("max_completion_tokens", 0)))
        return (
            said(LARGE[name](most), 422 if "tgi" in name else 400) if most > ROOM - 96 else said(body_of(choice(SAY, "length")))
        )
    for kinds in (MODERATED, FORBIDDEN):
        if name in kinds:
            status, document = kinds[name]
            return said(document, status) if document else Said(b"", status)
    if name in QUOTA:
        status, document, headers = QUOTA[name]
        return said(document, status, **headers) if document else Said(b"", status)
    if name == "rate":
        return said(error(f"{RATE}Please retry in 0.3s."), 429) if number % 2 == 0 else said(body_of(choice(SAY)))
    if name == "hangs":
        return Said(b"", slow_s=600.0)
    if name == "echo":
        return said(body_of(choice(f"{messages[-1]} {body.get('seed')}")))
    if name == "not-utf8":
        return Said(json.dumps(body_of(choice("i am fine")), ensure_ascii=False).encode().replace(b"fine", b"fin\xe9"))
    if name == "sse":
        lines = [b"data: " + json.dumps({"choices": [{"delta": {"content": word}}]}).encode() for word in SAY.split()]
        return Said(b"\n\n".join([*lines, b"data: [DONE]\n\n"]), headers={"Content-Type": "text/event-stream"})
    return said(body_of(choice(SAY)))


if __name__ == "__main__":
    with serving(play) as server:
        print(f"{server.url}/v1", flush=True)  # noqa: T201  # for whoever tries a kind by hand
        threading.Event().wait()
