"""Log probabilities in the responses of servers: of first tokens of an answer, and of the tokens of a given reply.

Three shapes are read. Chat completions show a list of tokens with the likeliest at each (`choices.0.logprobs.content`). Older
completions show lists side by side (`tokens`, `token_logprobs`, `top_logprobs`), with `echo` those of the prompt, too. vLLM
shows `prompt_logprobs`, a mapping of token ids at each place of the prompt.

A server that ignores a field answers as if nothing was asked for. That ends a run with a clear error. Log probabilities of
other tokens than those of the text are an error of the question. Fewer tokens than asked for are noted.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from parley.envs.core.errors import ModelError, RefusedModelError
from parley.policies.chat.model import SCORED, Answer
from parley.policies.chat.refusals import NO_LOGPROBS

FEWER = "fewer log probabilities of first tokens than asked for"
_LEAST = -9999.0
"""Nats that vLLM writes for minus infinity; what is below is none."""


def with_first_tokens(answer: Answer, raw: bytes, num_tokens: int, where: str) -> Answer:
    """Return an answer with its likeliest first tokens, the likeliest first.

    Args:
        answer: of a response; one that is no reply has none.
        raw: the response.
        num_tokens: number of tokens that were asked for.
        where: address of the model.

    Raises:
        RefusedModelError: the response shows none, or those of the model's reasoning.
        ModelError: it shows those of other tokens than the answer's.
    """
    if not answer.is_reply:
        return answer
    logprobs = _choice(raw).get("logprobs")
    first, likeliest = _first_of_content(logprobs) or _first_of_lists(logprobs) or ("", {})
    shown = {token: nats for token, nats in likeliest.items() if nats > _LEAST}
    if not shown:
        raise RefusedModelError("the server shows no log probabilities", where=where, got=_brief(logprobs), fix=NO_LOGPROBS)
    written = first.strip()
    thought = answer.reasoning.lstrip()
    if written and "\ufffd" not in written and not (answer.text.lstrip().startswith(written) or thought):
        what, got = "the server shows log probabilities of other tokens than its answer's", f"{first!r} of {answer.text[:40]!r}"
        raise ModelError(what, where=where, got=got, fix=NO_LOGPROBS)
    if thought:
        what, fix = "the first tokens are those of the model's reasoning", "ask a model that does not think, or turn it off"
        raise RefusedModelError(what, where=where, got=f"{thought[:40]!r} before {answer.text[:40]!r}", fix=fix)
    tokens = tuple(sorted(shown.items(), key=lambda pair: -pair[1]))
    notes = (FEWER,) if len(tokens) < num_tokens else ()
    return replace(answer, first_tokens=tokens, notes=(*answer.notes, *notes))


def scored_reply(answer: Answer, raw: bytes, reply: str, where: str) -> Answer:
    """Return a given reply as an answer (`SCORED`) whose `first_tokens` are all of its tokens with their log probabilities.

    Args:
        answer: of the response, whose tokens are counted.
        raw: the response.
        reply: that was given, at the end of the prompt.
        where: address of the model.

    Raises:
        RefusedModelError: the response shows no log probabilities of a given reply, or those of the tokens behind each.
        ModelError: it shows those of other tokens than the reply's.
    """
    shown = [tokens for tokens in (_of_prompt(raw), *_of_echo(raw)) if tokens]
    _, _, written = str(_choice(raw).get("text", "")).rpartition(reply)
    if shown and written.strip() and "".join(token for token, _ in shown[-1]).rstrip().endswith(reply.rstrip()):
        # The list should go on with what was written. llama-cpp-python lacks it for models without a first token of their own.
        what = "the server shows all log probabilities one token late"
        raise RefusedModelError(what, where=where, got=f"none of {written[:20]!r} behind the reply", fix=NO_LOGPROBS)
    if not shown:
        what = "the server shows no log probabilities of a given reply"
        raise RefusedModelError(what, where=where, got=_brief(_choice(raw).get("logprobs")), fix=NO_LOGPROBS)
    ends = [_end_of(tokens, reply) for tokens in shown]
    texts = ["".join(token for token, _ in end) for end in ends]
    for end, text in zip(ends, texts, strict=True):
        if text.strip() == reply.strip() and all(math.isfinite(nats) for _, nats in end):
            return Answer(reply, SCORED, answer.num_prompt_tokens, answer.num_tokens, first_tokens=end)
    what = "the server shows log probabilities of other tokens than the reply's"
    raise ModelError(what, where=where, got=f"{texts[0][:60]!r} for {reply[:60]!r}", fix=NO_LOGPROBS)


def _choice(raw: bytes) -> dict[str, Any]:
    try:
        document = json.loads(raw)
        choice = document["choices"][0]
    except (ValueError, LookupError, TypeError):
        return {}
    return choice if isinstance(choice, dict) else {}


def _brief(logprobs: object) -> str:
    return "logprobs: null, as if they were not asked for" if logprobs is None else f"logprobs: {json.dumps(logprobs)[:80]}"


def _first_of_content(logprobs: Any) -> tuple[str, dict[str, float]] | None:
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    if not isinstance(content, list) or not content or not isinstance(content[0], dict):
        return None
    first = content[0]
    entries = [entry for entry in first.get("top_logprobs") or [] if isinstance(entry, dict)]
    return str(first.get("token", "")), {str(entry.get("token")): _nats(entry.get("logprob")) for entry in entries}


def _first_of_lists(logprobs: Any) -> tuple[str, dict[str, float]] | None:
    """Return the same of older completions."""
    tops = logprobs.get("top_logprobs") if isinstance(logprobs, dict) else None
    if not isinstance(tops, list) or not tops or not isinstance(tops[0], dict):
        return None
    tokens = logprobs.get("tokens") or [""]
    return str(tokens[0]), {str(token): _nats(nats) for token, nats in tops[0].items()}


def _of_echo(raw: bytes) -> list[tuple[tuple[str, float], ...]]:
    """Return the tokens of an echoed prompt, without the token that was written behind it, and with it."""
    logprobs = _choice(raw).get("logprobs")
    tokens, nats = (logprobs.get("tokens"), logprobs.get("token_logprobs")) if isinstance(logprobs, dict) else (None, None)
    if not isinstance(tokens, list) or not isinstance(nats, list) or len(tokens) != len(nats):
        return []
    pairs = tuple((str(token), _nats(value)) for token, value in zip(tokens, nats, strict=True))
    return [pairs[:-1], pairs]


def _of_prompt(raw: bytes) -> tuple[tuple[str, float], ...]:
    """Return the tokens of a prompt by its `prompt_logprobs`; none if they are not there."""
    document = json.loads(raw)
    places = (document.get("prompt_logprobs") if isinstance(document, dict) else None) or _choice(raw).get("prompt_logprobs")
    # The first of a place is the prompt's own token; the others are likelier ones. The first place has none.
    own = [next(iter(place.values())) for place in places or [] if isinstance(place, dict) and place]
    return tuple((str(entry.get("decoded_token", "")), _nats(entry.get("logprob"))) for entry in own if isinstance(entry, dict))


def _end_of(tokens: Sequence[tuple[str, float]], reply: str) -> tuple[tuple[str, float], ...]:
    """Return the last tokens that have as many letters as a reply."""
    start, num_letters = len(tokens), 0
    while start and num_letters < len(reply):
        start -= 1
        num_letters += len(tokens[start][0])
    return tuple(tokens[start:])


def _nats(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        return -math.inf
    return min(0.0, float(value))
