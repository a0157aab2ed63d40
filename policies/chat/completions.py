"""OpenAI's protocol of chat completions: what is sent, and what comes back, read so that nothing passes for an answer but one.

Source: the "chat completions" page of OpenAI's API reference, as vLLM, llama.cpp's server and Ray Serve speak it.
"""

from __future__ import annotations

import json
import re
from typing import Any

from envs.core.errors import ModelError
from policies.chat.model import Answer, Chat, ChatDecoding

_SHOWN = 160
_TOO_LONG_CODES = frozenset({"context_length_exceeded", "exceed_context_size_error"})
"""Of OpenAI, and of llama.cpp's server."""
_TOO_LONG = re.compile(
    r"maximum (?:context|model) length|exceeds? (?:the )?(?:available |maximum )?context (?:size|length|window)|"
    r"too long to fit into the model",
    re.IGNORECASE,
)
"""In the words of those that have no code for it, such as vLLM."""


def request_of(model: str, chat: Chat, decoding: ChatDecoding, seed: int | None, limit: str) -> dict[str, Any]:
    """The body of a request.

    Args:
        model: as the server calls it.
        chat: what is asked.
        decoding: how the answer is chosen.
        seed: of what is drawn; None where nothing is.
        limit: the field that limits an answer's tokens, `max_tokens` or OpenAI's newer `max_completion_tokens`.
    """
    messages = [{"role": message.role, "content": message.content} for message in chat]
    body: dict[str, Any] = {"model": model, "messages": messages, "temperature": decoding.temperature}
    body[limit] = decoding.max_tokens
    return body if seed is None else {**body, "seed": seed % 2**63}


def answer_of(body: bytes, where: str) -> Answer:
    """The answer that a response holds.

    Raises:
        ModelError: it is empty, a page, no JSON, or lacks what the protocol says; nothing of it is taken for an answer.
    """
    if not body.strip():
        raise _malformed("the server answers nothing", where, "an empty body")
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        if is_page(body):
            fix = "name the address that ends in /v1; a page comes from a website or a gateway before the server"
            raise ModelError("the server answers a page and no completion", where=where, got=excerpt(body), fix=fix) from None
        raise _malformed("the server's answer is no JSON, or cut", where, excerpt(body)) from None
    choices = found.get("choices") if isinstance(found, dict) else None
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise _malformed("the server's answer holds no choices", where, excerpt(body))
    message = choices[0].get("message")
    text = message.get("content") if isinstance(message, dict) else None
    if text is None and isinstance(message, dict):
        # Where a model declines by a field of its own, that is what it says.
        text = message.get("refusal")
    if not isinstance(text, str):
        raise _malformed("the server's answer holds no text", where, excerpt(body))
    usage = found.get("usage")
    counts = usage if isinstance(usage, dict) else {}
    finish_reason = "length" if choices[0].get("finish_reason") == "length" else "stop"
    return Answer(text, finish_reason, _count(counts.get("prompt_tokens")), _count(counts.get("completion_tokens")))


def is_too_long(body: bytes) -> bool:
    """Whether a server refuses messages because they are longer than the model reads."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return False
    error = found.get("error", found) if isinstance(found, dict) else found
    if not isinstance(error, dict):
        return _TOO_LONG.search(str(error)) is not None
    codes = {str(error.get(name)) for name in ("code", "type")}
    return bool(codes & _TOO_LONG_CODES) or _TOO_LONG.search(str(error.get("message"))) is not None


def is_page(body: bytes) -> bool:
    """Whether it is HTML or XML."""
    return body.lstrip()[:1] == b"<"


def excerpt(body: bytes) -> str:
    """The beginning of what a server said, on one line."""
    text = " ".join(body.decode("utf-8", "replace").split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _malformed(what: str, where: str, got: str) -> ModelError:
    fix = "name a server that speaks OpenAI's protocol of chat completions, such as vLLM or llama.cpp"
    return ModelError(what, where=where, got=got, fix=fix)
