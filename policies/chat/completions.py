"""OpenAI's protocol of chat completions: reads the answer of a response, and parts reasoning from the reply.

Source: the "chat completions" page of OpenAI's API reference, as vLLM, SGLang, llama.cpp's server and Ray Serve speak it.
Makers add to it: reasoning beside the text (DeepSeek, OpenRouter, vLLM), texts in parts (Mistral), other reasons for an end
(Gemini, Anthropic, Mistral, Cohere), and errors inside of an answer (OpenRouter). `server.py` writes requests,
`refusals.py` reads refusals.

A model may think before it replies, between marks of its template or its training. Some servers part the two; others, and local
weights, write both into one text. Thinking without an end mark was cut. An end without a start follows a template that writes
the start into the prompt. A mark behind the first words of a reply is text.

Sources: the chat templates of Qwen3, DeepSeek-R1, Magistral, Command A Reasoning, Seed-OSS, Kimi-VL, Apertus, Gemma 4,
MiniMax M3, LongCat, OpenThinker, MedGemma, Apriel, Granite 3.2, and gpt-oss (OpenAI's harmony format); Hunyuan, ERNIE 4.5 and
Granite 3.3 for the marks around a reply.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from parley.envs.core.errors import ModelError
from parley.policies.chat.model import Answer
from parley.policies.chat.refusals import Refusal, excerpt, is_page

MARKS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
    ("\u25c1think\u25b7", "\u25c1/think\u25b7"),
    ("<|channel>thought", "<channel|>"),
    ("<mm:think>", "</mm:think>"),
    ("<longcat_think>", "</longcat_think>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<unused94>thought", "<unused95>"),
)
"""Marks of a start and an end of thinking."""
SENTENCES = (
    ("Here is my thought process:", "Here is my response:"),
    ("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"),
)
"""The same in words, which end thinking only where they began it. A whole text that begins so and never ends it is a reply."""
CHANNEL = "<|channel|>"
CHANNEL_TOKENS = frozenset((CHANNEL, "<|start|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>"))
"""Tokens of a text of channels; without the first of them they mark nothing."""
THINKING_TOKENS = frozenset(mark for pair in MARKS for mark in pair) | {"<|channel>", "<|START_RESPONSE|>", "<|END_RESPONSE|>"}
"""Marks that a tokenizer may hold as special tokens, which a text is decoded with."""
_NAMED = re.compile(
    r"<((?:\w+:|(?:\w+_)?(?:inner|internal|chain_of|hidden)[_-])?"
    r"(?:think(?:ing)?|thoughts?|reasoning|reflections?|scratch_?pad|monologue)(?:_(?:process|steps?|trace|block))?)"
    r"(?:\s+[\w:-]+\s*=[^<>]*)?>",
    re.IGNORECASE,
)
"""A start of an element whose name, and no part of it, is one of thinking, such as `<inner_thoughts>` or `<think time=3>`."""
_AROUND_REPLY = re.compile(r"<\|(?:START|END)_RESPONSE\|>|<\|(?:begin|end)_of_solution\|>|\[END FINAL RESPONSE\]")
_ELEMENT = re.compile(r"\s*<(answer|response|output)>(.*?)(?:</\1>\s*)?", re.DOTALL)
"""An element around a reply behind thinking."""
_CHANNEL = re.compile(r"(?:<\|start\|>\w+)?<\|channel\|>(\w+)(?:[^<]|<\|constrain\|>)*<\|message\|>")
_CHANNEL_END = re.compile(r"<\|(?:end|return|call)\|>")
_FINAL = "final"
_MARKLESS = re.compile(
    r"analysis(?=[A-Z])(?P<thought>.*?)assistant(?:commentary.*?assistant)?final(?P<reply>.*)|"
    r"analysis(?P<cut>(?:(?:We|I|They|The|User|This|Need|Let|It|Okay|So|Just|Maybe)\b|Let's)[ ',].*)",
    re.DOTALL,
)
"""Channels whose special tokens a server left out; without a final one only where it begins as a sentence of thinking does."""
_TOOL_CALL = re.compile(
    r"\s*(?:<tool_call>\s*(?:[{\[]|<function\b|[\w.-]+\s*<arg)|\[TOOL_CALLS\]\s*(?:[{\[]|[\w.-]+\s*(?:\[ARGS\]|\{))|"
    r"<\|python_tag\|>\s*(?:\{|[\w.]+\(|\w+ *=|import |from )|<function=[\w.-]+>|<function_call>\s*[{\[]|"
    r"<\|tool_calls?(?:_section)?_begin\|>|<\uff5ctool\u2581calls\u2581begin\uff5c>).*",
    re.DOTALL,
)
"""A call of a tool as text, which servers without a parser of it, and weights that are here, write. A text about such a mark is
none: what is called stands behind it."""
_TURN = r"<\|(?:im_start|start|start_header_id|user|system|assistant|human)\|>|<start_of_turn>|\[INST\]"
_END = r"<\|(?:im_end|eot_id|endoftext|end_of_text|eom_id|end)\|>|<end_of_turn>|<eos>|</s>"
_END_MARK = re.compile(
    # At the end of the text, behind a word or a sentence; else before the next turn, or of a text that runs on.
    rf"(?:(?<![\s\"'`(\[\u2018\u201c])|(?<=[.!?\u2026\"*])\s+|(?<![:>\s])\n\s*|\A\s*)(?:{_END})(?:"
    rf"(?:\s|{_END})*\Z|(?:\s|{_END})*(?:{_TURN}|(?:user|assistant|human)\b)|(?<=[.!?]<\|endoftext\|>))",
    re.IGNORECASE,
)
"""Special tokens that end a turn, which a server with other ends than its model's leaves in a text."""


class PartedText(NamedTuple):
    """A text in two parts.

    Args:
        reply: the reply; empty if thinking was never closed.
        reasoning: the thinking; empty if the text holds no mark.
        closed: whether thinking came to its end; True where there is none.
    """

    reply: str
    reasoning: str
    closed: bool


def part_thinking(text: str, *, begun: bool = False, ended: bool = False) -> PartedText:
    """Part reasoning and reply.

    Args:
        text: as the model wrote it, with its special tokens where they are marks.
        begun: whether the prompt ends with a start of thinking.
        ended: whether the text came to its own end; False if it was cut, or that is unknown.

    Returns:
        The parts. A text without marks is a reply as it stands.
    """
    if _CHANNEL.search(text):
        return _part_channels(text)
    if markless := _MARKLESS.fullmatch(text):
        reply = markless["reply"]
        return PartedText((reply or "").strip(), (markless["thought"] or markless["cut"]).strip(), reply is not None)
    reasoning: list[str] = []
    rest = text
    for start, end in (*MARKS, *(SENTENCES if begun else ())) if _opening(text) is None else ():
        if end not in rest:
            continue
        # An end without its start: the start was in the prompt. A mark in quotes is text.
        first = next((match.start() for match in re.finditer(rf"(?<![`'\"]){re.escape(end)}(?![`'\"])", rest)), -1)
        if first >= 0 and start not in rest[:first]:
            reasoning.append(rest[:first])
            rest, begun = rest[first + len(end) :], False
            break
    if begun:
        return PartedText("", text.strip(), False)
    while (opened := _opening(rest)) is not None:
        start, end = opened
        thought, closing, rest_of = _closed(rest.lstrip()[len(start) :], start, end)
        if not closing and ended and opened in SENTENCES:
            break
        reasoning.append(thought)
        if not closing:
            return PartedText("", _joined(reasoning), False)
        rest = rest_of
    if not reasoning:
        return PartedText(_AROUND_REPLY.sub("", text), "", True)
    reply = _AROUND_REPLY.sub("", rest)
    element = _ELEMENT.fullmatch(reply)
    return PartedText((element[2] if element else reply).strip(), _joined(reasoning), True)


def opens_thinking(prompt: str) -> bool:
    """Return whether a prompt ends with a start of thinking, as templates that make a model think write it."""
    return prompt.rstrip().endswith(tuple(start for start, _ in (*MARKS, *SENTENCES)))


def before_end_mark(reply: str) -> str:
    """Return the text before the mark of a turn's end; a quoted mark, or one in a written dialogue, is text."""
    for match in _END_MARK.finditer(reply):
        before = reply[: match.start()]
        is_struck = "</s>" in match[0] and re.search(r"<s\b", before, re.IGNORECASE)
        if not is_struck and before.count("```") % 2 == 0 and not re.search(_TURN, before.strip()[1:]):
            return before
    return reply


def is_tool_call(reply: str) -> bool:
    """Return whether a reply is the call of a tool and nothing else."""
    return _TOOL_CALL.fullmatch(reply) is not None


def _opening(text: str) -> tuple[str, str] | None:
    stripped = text.lstrip()
    if pair_of_marks := next((pair for pair in (*MARKS, *SENTENCES) if stripped.startswith(pair[0])), None):
        return pair_of_marks
    named = _NAMED.match(stripped)
    return (named[0], f"</{named[1]}>") if named else None


def _closed(text: str, start: str, end: str) -> tuple[str, str, str]:
    """Part a text at the end of a thought that was begun; thoughts within a thought have ends of their own."""
    thought, closing, rest = text.partition(end)
    while thought.count(start) > thought.count(end) and end in rest:
        more, _, rest = rest.partition(end)
        thought = f"{thought}{end}{more}"
    return thought, closing, rest


def _part_channels(text: str) -> PartedText:
    """Part a text of channels: the last final message is the reply, all others are reasoning."""
    parts = _CHANNEL.split(text)
    channels = [(name, _CHANNEL_END.sub("", message).strip()) for name, message in zip(parts[1::2], parts[2::2], strict=True)]
    finals = [message for name, message in channels if name == _FINAL]
    reasoning = _joined([parts[0], *(message for name, message in channels if name != _FINAL)])
    return PartedText(finals[-1] if finals else "", reasoning, bool(finals))


def _joined(parts: list[str]) -> str:
    return "\n".join(stripped for part in parts if (stripped := part.strip()))


SEVERAL = "one of several choices, the first taken"
TOOL_BESIDE = "a call of a tool beside the text, left out"
PART_LEFT_OUT = "a part that is no text, left out"
NO_REASON = "no reason for its end, read as a whole text"
END_MARK = "a mark of the turn's end in the text, cut there"
BROKEN_BYTES = "bytes that are no UTF-8, replaced"
OTHER_MODEL = "answered by"
"""The beginning of a note on a server that names another model than the one asked for; the end may be a date or a version."""
_ENDS: dict[str, str] = {
    **dict.fromkeys(("stop", "eos", "eostoken", "endturn", "end", "stopsequence", "stoptoken", "stopstr"), "stop"),
    **dict.fromkeys(("complete", "completed", "finish", "finished", "done", "normal"), "stop"),
    **dict.fromkeys(("length", "maxtokens", "maxoutputtokens", "maxnewtokens", "maxlength", "modellength"), "length"),
    **dict.fromkeys(("tokenlimit", "modelcontextwindowexceeded", "maxcontextlength", "errorlimit"), "length"),
    **dict.fromkeys(("contentfilter", "contentfiltered", "safety", "recitation", "blocklist", "spii"), "content_filter"),
    **dict.fromkeys(("prohibitedcontent", "imagesafety", "guardrailintervened", "sensitive", "errortoxic"), "content_filter"),
    **dict.fromkeys(("modelarmor", "moderation", "blocked"), "content_filter"),
    **dict.fromkeys(("toolcalls", "toolcall", "functioncall", "tooluse", "malformedfunctioncall"), "tool_calls"),
    **dict.fromkeys(("unexpectedtoolcall",), "tool_calls"),
    "refusal": "refusal",
    **dict.fromkeys(("error", "abort", "aborted", "cancel", "cancelled", "canceled", "timeout"), "error"),
    **dict.fromkeys(("networkerror", "insufficientsystemresource", "failed", "failure"), "error"),
}
"""Reasons for an end, in small letters alone, and what they come to; `error` is half an answer.

OpenAI; vLLM, SGLang, TGI (eos_token), Mistral (model_length, error), Cohere (COMPLETE, ERROR_TOXIC, ERROR_LIMIT), Anthropic
(end_turn, refusal, tool_use), Gemini (MAX_TOKENS, SAFETY), Bedrock (guardrail_intervened), z.ai (sensitive, network_error),
DeepSeek (insufficient_system_resource), OpenRouter (error).
"""
_REASONING = ("reasoning_content", "reasoning", "reasoning_text", "thinking", "thinking_blocks", "reasoning_details")
"""Fields beside the text that hold what was thought; the first that says anything."""
_THOUGHTS = frozenset({"thinking", "reasoning", "thought", "redacted_thinking", "reasoning_text", "summary_text"})
_TOOLS = frozenset({"tool_use", "tool_call", "function_call"})


class HalfAnswerError(Exception):
    """An error in a response with status 200, which holds half an answer or none.

    Args:
        refusal: its error, with the status that it names.
    """

    def __init__(self, refusal: Refusal) -> None:
        self.refusal = refusal


@dataclass
class _Content:
    """The parts of a message by their kind."""

    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    refusal: list[str] = field(default_factory=list)
    tools: list[Any] = field(default_factory=list)
    num_left_out: int = 0


def answer_of(body: bytes, where: str, *, max_tokens: int | None = None, thinking: str = "part") -> Answer:
    """Read the answer of a response.

    Args:
        body: of a response with status 200.
        where: address of the model, for messages.
        max_tokens: that were allowed; None where nothing limits them.
        thinking: `part` to part reasoning between marks from the text, `keep` to leave it there.

    Raises:
        ModelError: the body is empty, a page, no JSON, or lacks a part of the protocol.
        HalfAnswerError: it holds an error.
    """
    if not body.strip():
        raise _malformed("the server answers nothing", where, "an empty body")
    notes = []
    text = body.decode("utf-8-sig", "replace")
    if "\ufffd" in text and "\ufffd" not in body.decode("utf-8-sig", "ignore"):
        notes.append(BROKEN_BYTES)
    try:
        document = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        if is_page(body):
            fix = "name the address that ends in /v1; a page comes from a website or a gateway before the server"
            raise ModelError("the server answers a page and no completion", where=where, got=excerpt(body), fix=fix) from None
        if body.lstrip().startswith((b"data:", b"event:")):
            fix = "turn streaming off where the server, or the gateway before it, turns it on"
            raise ModelError("the server answers a stream and no completion", where=where, got=excerpt(body), fix=fix) from None
        raise _malformed("the server's answer is no JSON, or cut", where, excerpt(body)) from None
    if isinstance(document, list) and len(document) == 1:
        document = document[0]
    if isinstance(document, dict) and document.get("error"):
        raise HalfAnswerError(Refusal.of_document(document, 200))
    choices = document.get("choices") if isinstance(document, dict) else None
    if not choices and _is_blocked(document):
        return Answer("", "content_filter", notes=tuple(notes))
    if not isinstance(choices, list) or not choices or not all(isinstance(choice, dict) for choice in choices):
        raise _malformed("the server's answer holds no choices", where, excerpt(body))
    choice = _with_own_fields(next((choice for choice in choices if choice.get("index") == 0), choices[0]))
    if len(choices) > 1:
        notes.append(SEVERAL)
    names = [re.sub(r"[\W_]", "", str(name or "").lower()) for name in (document.get("model"), where.rpartition("#")[2])]
    if "#" in where and names[0] not in names[1] and names[1] not in names[0]:
        notes.append(f"{OTHER_MODEL} {str(document['model'])[:60]!r}")
    usage = document.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    num_tokens = _count(usage.get("completion_tokens", usage.get("output_tokens")))
    finish_reason = _finish_reason(choice, notes)
    if finish_reason == "error" or choice.get("error"):
        raise HalfAnswerError(Refusal.of_document(choice if choice.get("error") else {"error": "half an answer"}, 200))
    message = choice.get("message")
    if message is None and isinstance(choice.get("text"), str):
        message = {"content": choice["text"]}
    if not isinstance(message, dict):
        raise _malformed("the server's answer holds no message", where, excerpt(body))
    content = _content(_with_own_fields(message))
    if content.num_left_out:
        notes.append(PART_LEFT_OUT)
    if finish_reason is None:
        finish_reason = "length" if num_tokens is not None and max_tokens is not None and num_tokens >= max_tokens else "stop"
        if finish_reason == "stop" and "".join(content.text).strip():
            notes.append(NO_REASON)
    return _answer(content, finish_reason, thinking, notes, usage, num_tokens)


def _answer(
    content: _Content, finish_reason: str, thinking: str, notes: list[str], usage: dict[str, Any], num_tokens: int | None
) -> Answer:
    """Return the answer that some content comes to, by why it ended."""
    reply, reasoning, withheld = "".join(content.text), list(content.reasoning), ""
    if thinking == "part":
        parted = part_thinking(reply, ended=finish_reason == "stop")
        reply = parted.reply
        reasoning += [parted.reasoning] if parted.reasoning.strip() else []
        finish_reason = finish_reason if parted.closed or finish_reason != "stop" else "length"
        if (ended := before_end_mark(reply)) != reply:
            # Text behind the end of a turn is the next turn, which nobody asked for.
            reply, finish_reason = ended, "stop" if finish_reason == "length" else finish_reason
            notes.append(END_MARK)
        if is_tool_call(reply):
            content.tools.append(reply.strip())
            reply = ""
    if finish_reason in ("content_filter", "refusal"):
        reply, withheld = "", "\n".join(filter(None, (reply.strip(), *content.refusal)))
    elif reply.strip():
        if content.tools:
            notes.append(TOOL_BESIDE)
        finish_reason = "stop" if finish_reason == "tool_calls" else finish_reason
    elif content.refusal:
        finish_reason, withheld = "refusal", "\n".join(content.refusal)
    elif content.tools:
        tools = content.tools[0] if len(content.tools) == 1 else content.tools
        finish_reason, withheld = "tool_calls", json.dumps(tools)
    if not reply.strip() and not reasoning and (num_hidden := _num_hidden(usage)):
        reasoning = [f"({num_hidden} tokens of reasoning that the server does not show)"]
    num_prompt_tokens = _count(usage.get("prompt_tokens", usage.get("input_tokens")))
    shown = "\n".join(thought.strip() for thought in reasoning)
    return Answer(
        reply,
        finish_reason,
        num_prompt_tokens,
        num_tokens,
        reasoning=shown,
        withheld=withheld,
        notes=tuple(dict.fromkeys(notes)),
    )


def _finish_reason(choice: dict[str, Any], notes: list[str]) -> str | None:
    """Return why a choice ended, in our words or `error`; None if that is missing. An unknown reason is noted."""
    details = choice.get("finish_details")
    reason = choice.get("finish_reason") or (details if isinstance(details, dict) else None) or choice.get("stop_reason")
    if isinstance(reason, dict):
        reason = reason.get("type")
    if not isinstance(reason, str) or not reason.strip():
        finish_reason = None
    elif (finish_reason := _ENDS.get(_plain(reason))) is None:
        notes.append(f"an end for the unknown reason {reason[:40]!r}, read as a whole text")
        finish_reason = "stop"
    # A gateway may say `stop` for an answer that its provider cut or stopped; LiteLLM does so for a broken one.
    native = choice.get("native_finish_reason")
    more = _ENDS.get(_plain(native)) if isinstance(native, str) else None
    return more if finish_reason in (None, "stop") and more in ("length", "content_filter", "error") else finish_reason


def _with_own_fields(part: dict[str, Any]) -> dict[str, Any]:
    """Return a part of an answer with the fields that LiteLLM moves aside, unknown to OpenAI's protocol."""
    provider_fields = part.get("provider_specific_fields")
    return (
        {**provider_fields, **{name: value for name, value in part.items() if value is not None}}
        if isinstance(provider_fields, dict)
        else part
    )


def _is_blocked(document: object) -> bool:
    """Return whether an answer without choices reports that moderation stopped the question, as of Azure and Gemini."""
    if not isinstance(document, dict):
        return False
    feedback = document.get("promptFeedback") or document.get("prompt_feedback")
    if isinstance(feedback, dict) and (feedback.get("blockReason") or feedback.get("block_reason")):
        return True
    return '"filtered": true' in json.dumps(document.get("prompt_filter_results"))


def _plain(reason: str) -> str:
    return re.sub(r"[^a-z]", "", reason.lower()).removeprefix("finishreason")


def _content(message: dict[str, Any]) -> _Content:
    """Return the parts of a message by their kind."""
    parts = _Content()
    content = message.get("content")
    for part in content if isinstance(content, list) else [content]:
        _read_part(part, parts)
    for name in _REASONING:
        if thoughts := list(_texts(message.get(name))):
            parts.reasoning = [*parts.reasoning, "".join(thoughts)]
            break
    parts.refusal += _texts(message.get("refusal"))
    for name in ("tool_calls", "function_call"):
        if message.get(name):
            parts.tools.append(message[name])
    return parts


def _read_part(part: object, parts: _Content) -> None:
    if isinstance(part, str):
        parts.text.append(part)
    elif isinstance(part, dict):
        kind = part.get("type", "text")
        if kind in _THOUGHTS or part.get("thought") is True:
            parts.reasoning += _texts({name: value for name, value in part.items() if name != "type"})
        elif kind == "refusal":
            parts.refusal += _texts(part.get("refusal", part.get("text")))
        elif kind in _TOOLS:
            parts.tools.append(part)
        elif isinstance(part.get("text"), str):
            parts.text.append(part["text"])
        else:
            parts.num_left_out += 1
    elif part is not None:
        parts.num_left_out += 1


def _texts(value: object) -> Iterator[str]:
    """Yield the texts of a value that makers shape as they like: a text, a part with a text, or a list of these."""
    if isinstance(value, str):
        if value.strip():
            yield value
    elif isinstance(value, list):
        for part in value:
            yield from _texts(part)
    elif isinstance(value, dict):
        for name in ("thinking", "reasoning", "text", "summary", "content", "refusal"):
            yield from _texts(value.get(name))


def _num_hidden(usage: dict[str, Any]) -> int:
    details = usage.get("completion_tokens_details") or usage.get("output_tokens_details")
    number = details.get("reasoning_tokens") if isinstance(details, dict) else usage.get("reasoning_tokens")
    return _count(number) or 0


def _count(value: object) -> int | None:
    """Return a number of tokens, which some servers write as 7.0 or "7"; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return int(number) if math.isfinite(number) and number >= 0 and number.is_integer() else None


def _malformed(what: str, where: str, got: str) -> ModelError:
    fix = "name a server that speaks OpenAI's protocol of chat completions, such as vLLM or llama.cpp"
    return ModelError(what, where=where, got=got, fix=fix)
