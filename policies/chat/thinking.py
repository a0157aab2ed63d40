"""Part the reasoning of a chat model from its reply, by the marks that models write.

A model may think before it replies, between marks that its template or its training gives. Servers part the two where they are
told how; others, and weights that are here, write both into one text. A start that is never closed was cut in thinking. An end
without a start follows a template that writes the start into the prompt. A mark behind the first words of a reply is text.

Sources: the chat templates of Qwen3, DeepSeek-R1, Magistral, Command A Reasoning, Seed-OSS, Kimi-VL, Apertus, Gemma 4,
MiniMax M3, LongCat, OpenThinker, MedGemma, Apriel, Granite 3.2, and gpt-oss (OpenAI's harmony format); Hunyuan, ERNIE 4.5 and
Granite 3.3 for the marks around a reply.
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
"""What stands around a reply behind thinking."""
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
        reply: what is said; empty where thinking was never closed.
        reasoning: what was thought; empty where no mark stands in the text.
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
        ended: whether the text came to its own end; False where it was cut, or nobody knows.

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
        # An end without its start: the start stood in the prompt. One in quotes is spoken of.
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
    """Return what stands before the mark of a turn's end; a mark that is spoken of, or part of a written dialogue, is text."""
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
    if known := next((pair for pair in (*MARKS, *SENTENCES) if stripped.startswith(pair[0])), None):
        return known
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
    """Parts a text of channels: the last final message is the reply, all others are reasoning."""
    parts = _CHANNEL.split(text)
    channels = [(name, _CHANNEL_END.sub("", message).strip()) for name, message in zip(parts[1::2], parts[2::2], strict=True)]
    finals = [message for name, message in channels if name == _FINAL]
    reasoning = _joined([parts[0], *(message for name, message in channels if name != _FINAL)])
    return PartedText(finals[-1] if finals else "", reasoning, bool(finals))


def _joined(parts: list[str]) -> str:
    return "\n".join(stripped for part in parts if (stripped := part.strip()))
