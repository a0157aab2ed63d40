"""Part the reasoning of a chat model from its reply, by the marks that models write.

A model may think before it replies, between marks that its template or its training gives. Servers part the two where they are
told how; others, and weights that are here, write both into one text. A start that is never closed was cut in thinking. An end
without a start follows a template that writes the start into the prompt. A mark behind the first words of a reply is text.

Sources: the chat templates of Qwen3, DeepSeek-R1, Magistral, Command A Reasoning, Seed-OSS, Kimi-VL, Apertus, Gemma 4,
MiniMax M3, LongCat, Granite 3.2, and gpt-oss (OpenAI's harmony format); Hunyuan, ERNIE 4.5 and Granite 3.3 for the marks around
a reply.
"""

from __future__ import annotations

import re
from typing import NamedTuple

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
)
"""Marks of a start and an end of thinking."""
SENTENCES = (("Here is my thought process:", "Here is my response:"),)
"""The same in words, which end thinking only where they began it."""
CHANNEL = "<|channel|>"
CHANNEL_TOKENS = frozenset((CHANNEL, "<|start|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>"))
"""Tokens of a text of channels; without the first of them they mark nothing."""
THINKING_TOKENS = frozenset(mark for pair in MARKS for mark in pair) | {"<|channel>", "<|START_RESPONSE|>", "<|END_RESPONSE|>"}
"""Marks that a tokenizer may hold as special tokens, which a text is decoded with."""
_AROUND_REPLY = re.compile(r"<\|(?:START|END)_RESPONSE\|>")
_ELEMENT = re.compile(r"\s*<(answer|response)>(.*?)(?:</\1>\s*)?", re.DOTALL)
"""What stands around a reply behind thinking."""
_CHANNEL = re.compile(r"(?:<\|start\|>\w+)?<\|channel\|>(\w+)[^<]*<\|message\|>")
_CHANNEL_END = re.compile(r"<\|(?:end|return|call)\|>")
_FINAL = "final"


class PartedText(NamedTuple):
    """A text in two parts.

    Args:
        reply: what is said; empty where thinking was never closed.
        reasoning: what was thought; empty where no mark stands in the text.
        closed: whether thinking came to its end; True where there is none.
    """

    reply: str
    reasoning: str
    closed: bool


def part_thinking(text: str, *, begun: bool = False) -> PartedText:
    """Part reasoning and reply.

    Args:
        text: as the model wrote it, with its special tokens where they are marks.
        begun: whether the prompt ends with a start of thinking.

    Returns:
        The parts. A text without marks is a reply as it stands.
    """
    if _CHANNEL.search(text):
        return _part_channels(text)
    reasoning: list[str] = []
    rest = text
    for start, end in MARKS:
        # An end without its start: the start stood in the prompt.
        first = rest.find(end)
        if first >= 0 and start not in rest[:first]:
            reasoning.append(rest[:first])
            rest, begun = rest[first + len(end) :], False
            break
    if begun:
        return PartedText("", text.strip(), False)
    while (opened := _opening(rest)) is not None:
        start, end = opened
        thought, closing, rest_of = rest.lstrip()[len(start) :].partition(end)
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
    return prompt.rstrip().endswith(tuple(start for start, _ in MARKS))


def _opening(text: str) -> tuple[str, str] | None:
    stripped = text.lstrip()
    return next((pair for pair in (*MARKS, *SENTENCES) if stripped.startswith(pair[0])), None)


def _part_channels(text: str) -> PartedText:
    """Parts a text of channels: the last final message is the reply, all others are reasoning."""
    parts = _CHANNEL.split(text)
    channels = [(name, _CHANNEL_END.sub("", message).strip()) for name, message in zip(parts[1::2], parts[2::2], strict=True)]
    finals = [message for name, message in channels if name == _FINAL]
    reasoning = _joined([parts[0], *(message for name, message in channels if name != _FINAL)])
    return PartedText(finals[-1] if finals else "", reasoning, bool(finals))


def _joined(parts: list[str]) -> str:
    return "\n".join(stripped for part in parts if (stripped := part.strip()))
