"""The first question to a target, before all others: a target that cannot be asked ends a run within seconds.

It is asked with a short limit on time and few attempts. `first_answer` returns the answer, and `understood` says what it shows
of the target: who answers, what became of the system's text, how answers end, who counts tokens, whether a seed counts, and
which log probabilities a server shows.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from http.client import HTTPException
from typing import cast

from parley.envs.core.errors import ConfigError, ModelError, RefusedModelError
from parley.envs.core.registry import nearest
from parley.policies.chat.addresses import OPENAI, is_served, server_of
from parley.policies.chat.completions import OTHER_MODEL
from parley.policies.chat.connections import Connections, TooManyBytesError
from parley.policies.chat.model import (
    FOLDED,
    MOST_FIRST_TOKENS,
    Access,
    Answer,
    Chat,
    ChatDecoding,
    ChatModel,
    ScoringChatModel,
)
from parley.policies.chat.refusals import api_key
from parley.policies.chat.server import NO_SEED, OWN_TEMPERATURE
from parley.policies.chat.settings import ChatModelSettings

_FEW_ATTEMPTS = 3
_MOST_NAMES = 8
_LEAST_WORDS = 3


def first_answer(
    load: Callable[[ChatModelSettings], ChatModel],
    settings: ChatModelSettings,
    chat: Chat,
    decoding: ChatDecoding,
    seed: int,
    timeout_s: float,
) -> Answer:
    """Return the answer of a target to its first question.

    Args:
        load: loads the target with settings.
        settings: as of all questions; those of time and attempts are shortened.
        chat: the question.
        decoding: of the answer.
        seed: of the answer, where it is drawn.
        timeout_s: seconds for the answer.

    Raises:
        ModelError: it does not answer in time, or fails; the fix names the models that a server has.
        ConfigError: it does not take the question.
    """
    timeout_s = min(settings.timeout_s, timeout_s)
    attempts = 1
    while True:
        model = load(replace(settings, timeout_s=timeout_s, max_attempts=attempts))
        try:
            return model.answer([chat], decoding=decoding, seeds=[seed] if decoding.temperature else [])[0]
        except RefusedModelError as error:
            raise _with_models(error, model.name) from None
        except ModelError as error:
            failed = error
        if attempts > 1 or "in time" in failed.what or "took more" in failed.what:
            break
        # A busy target is waited for as any other question waits.
        attempts = settings.max_attempts if "patience" in failed.what or "busy" in failed.what else _FEW_ATTEMPTS
    if "in time" in failed.what or "took more" in failed.what:
        fix = f"look at the target; if it starts slowly, --set chat.first_timeout_s={60 if timeout_s < 60 else 600}"
        raise ModelError(failed.what, where=failed.where, got=failed.got, fix=fix)
    raise failed


def _with_models(error: RefusedModelError, name: str) -> RefusedModelError:
    """Return the error with the names of the models that a server of OpenAI's protocol has, if it lacks the one asked for."""
    if not name.startswith(OPENAI) or "no such address or model" not in error.what:
        return error
    url, model = server_of(name)
    url = f"{url.removesuffix('/chat/completions')}/models"
    try:
        headers = {"Authorization": f"Bearer {key}"} if (key := api_key(url)) and url.startswith("https:") else {}
        listed = json.loads(Connections(url).request("GET", url, None, headers, 3.0).body)
        names = [str(entry["id"]) for entry in listed["data"]][:_MOST_NAMES]
    except (OSError, HTTPException, TooManyBytesError, ConfigError, ValueError, KeyError, TypeError):
        return error
    if not names or model in names:
        return error
    fix = f"it serves {', '.join(names)}{nearest(model, names)}: {name.partition('#')[0]}#{names[0]}"
    return type(error)(error.what, where=error.where, got=error.got, fix=fix)


def understood(model: ChatModel, chat: Chat, answer: Answer, decoding: ChatDecoding, seed: int) -> str:
    """Return a sentence on what the first answer shows of a target; where answers are drawn, it is asked twice more.

    Args:
        model: the target, which has kept none of these answers.
        chat: the first question.
        answer: the answer to it.
        decoding: of the answer.
        seed: of the answer.
    """
    has_system = any(message.role == "system" for message in chat)
    system = "sent in front of the user's text" if FOLDED in answer.notes else "taken" if has_system else "not tried"
    is_counted = answer.num_prompt_tokens is not None and answer.num_tokens is not None
    parts = [
        "it answers text" if answer.is_reply else f"it gives no text ({answer.kind.value})",
        *(note for note in answer.notes if note.startswith(OTHER_MODEL)),
        f"system role {system}",
        f"ends with {answer.finish_reason}",
        "tokens are counted" if is_counted else "tokens are not counted",
    ]
    if not decoding.temperature:
        parts.append("temperature 0, seed not tried")
    elif OWN_TEMPERATURE in answer.notes or NO_SEED in answer.notes:
        names = {"temperature": OWN_TEMPERATURE, "seed": NO_SEED}
        lost = " and ".join(name for name, note in names.items() if note in answer.notes)
        parts.append(f"{lost} not taken")
    else:
        same, other = (given.text for given in model.answer([chat, chat], decoding=decoding, seeds=[seed, seed + 1]))
        parts.append(_draws(answer.text, same, other))
    if is_served(model.name) and model.access >= Access.FIRST_TOKENS:
        parts.append(_logprobs(model, chat, replace(decoding, first_tokens=MOST_FIRST_TOKENS)))
    return "; ".join(parts)


def _logprobs(model: ChatModel, chat: Chat, decoding: ChatDecoding) -> str:
    """Return which log probabilities a server shows of those that its settings declare."""
    try:
        (answer,) = model.answer([chat], decoding=decoding, seeds=[0])
    except ModelError as error:
        return error.what
    shown = f"log probabilities of {len(answer.first_tokens)} first tokens"
    if model.access < Access.SCORES or not answer.is_reply:
        return shown
    try:
        cast("ScoringChatModel", model).score([chat], [answer.text])
    except ModelError as error:
        return f"{shown}, but {error.what}"
    return f"{shown}, and of given replies"


def _draws(first: str, same: str, other: str) -> str:
    if first != same:
        return "temperature honoured, seed ignored"
    if other != first:
        return "temperature and seed honoured"
    is_short = len(first.split()) < _LEAST_WORDS
    return "temperature and seed not known" if is_short else "three equal answers: temperature or seed may be ignored"
