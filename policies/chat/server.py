"""Servers that speak OpenAI's protocol, asked over HTTP: several questions at once, each again if the server fails.

`RequestShape` writes OpenAI's body of a chat completion. A field or a role that a server refuses is left out from then on. The
notes of an answer name each such change that affects how the answer is drawn. `refusals.py` reads refusals, and an answer
stopped by moderation is an answer of that kind. A key goes to its server alone.
"""

from __future__ import annotations

import ctypes
import email.utils
import errno
import json
import logging
import math
import queue
import secrets
import socket
import ssl
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from http.client import HTTPException
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from parley.envs.core.errors import ConfigError, ModelError, ParleyError, RefusedModelError
from parley.policies.chat.addresses import server_of
from parley.policies.chat.completions import HalfAnswerError, answer_of
from parley.policies.chat.connections import MOST_BYTES, Connections, ConnectTimeoutError, TooManyBytesError
from parley.policies.chat.limits import RequestLimits, StoppedError
from parley.policies.chat.logprobs import scored_reply, with_first_tokens
from parley.policies.chat.model import (
    FOLDED,
    MERGED,
    MOST_FIRST_TOKENS,
    Access,
    Answer,
    AnswerKind,
    ArrivingChatModel,
    Chat,
    ChatDecoding,
    ChatUsage,
    Message,
    ReplyScore,
    fold_system,
    merged,
)
from parley.policies.chat.refusals import (
    AgainError,
    Refusal,
    RefusalKind,
    RefusalReading,
    UnsuitedError,
    answer_without_keys,
    api_key,
    blotted,
    error_of,
    holds_keys,
    without_keys,
)
from parley.policies.chat.settings import LIMITS, ChatModelSettings

logger = logging.getLogger(__name__)
_WARNED = set[tuple[object, ...]]()
"""Warnings on the shape of requests that this process has logged, each behind the run's folder of answers."""

OWN_TEMPERATURE = "drawn at the server's own temperature"
NO_SEED = "drawn without a seed"
NO_LIMIT = "without a limit of tokens"
SHORTENED = "allowed fewer tokens than were asked for, for the messages leave no more room"
_DRAWN_BY = ("temperature", "seed")
_FEWER_FIRST_TOKENS = (5, 1)
"""First tokens that are asked for where a server refuses more."""
_ACCESS = {"no": Access.TEXT, "first": Access.FIRST_TOKENS, "reply": Access.SCORES}


@dataclass(frozen=True)
class RequestShape:
    """The form of requests to one server.

    Args:
        limit_field: that limits the tokens of an answer; empty for none.
        left_out: fields of `temperature` and `seed` that are not sent.
        folds_system: whether the system's text stands in front of the user's.
        merges_turns: whether neighbours of one role are one message.
        extra: more fields.
        refused: fields for the limit that were refused.
        most_first_tokens: log probabilities of first tokens that are asked for at most.
    """

    limit_field: str = LIMITS[0]
    left_out: frozenset[str] = frozenset()
    folds_system: bool = False
    merges_turns: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)
    refused: frozenset[str] = frozenset()
    most_first_tokens: int = MOST_FIRST_TOKENS

    @classmethod
    def of(cls, settings: ChatModelSettings) -> RequestShape:
        """Return the shape that settings ask for."""
        document = settings.extra.document
        nulls = {name for name, value in document.items() if value is None}
        extra = {name: value for name, value in document.items() if value is not None}
        limit = "" if settings.limit_field in nulls else settings.limit_field
        return cls(limit, frozenset(nulls & set(_DRAWN_BY)), extra=extra, refused=frozenset(nulls & set(LIMITS)))

    def body(self, model: str, chat: Chat, decoding: ChatDecoding, seed: int | None) -> dict[str, Any]:
        """Return the body of a request.

        Args:
            model: as the server calls it.
            chat: that is answered.
            decoding: of the answer.
            seed: of the draws; None for none.
        """
        messages = [{"role": message.role, "content": message.content} for message in self._fitted(chat)]
        body: dict[str, Any] = {"model": model, "messages": messages, **self.extra}
        if "temperature" not in self.left_out:
            body["temperature"] = decoding.temperature
        if self.limit_field:
            body[self.limit_field] = decoding.max_tokens
        if seed is not None and "seed" not in self.left_out:
            body["seed"] = seed % 2**63
        if decoding.first_tokens:
            body |= {"logprobs": True, "top_logprobs": min(decoding.first_tokens, self.most_first_tokens)}
        return body

    def notes(self, chat: Chat, seed: int | None) -> tuple[str, ...]:
        """Return the notes on deviations from the request, for a chat and a seed."""
        fitted = self._fitted(chat)
        notes = {
            OWN_TEMPERATURE: "temperature" in self.left_out,
            NO_SEED: seed is not None and "seed" in self.left_out,
            NO_LIMIT: not self.limit_field,
            FOLDED: fitted != chat and any(message.role == "system" for message in chat) and self.folds_system,
            MERGED: fitted != chat and not self.folds_system,
        }
        return tuple(note for note, holds in notes.items() if holds)

    def suited(self, reading: RefusalReading, body: Mapping[str, Any]) -> RequestShape | None:
        """Return the shape that suits a refusal of a body of this shape; None if there is none."""
        name = reading.field
        roles = [message["role"] for message in body["messages"]]
        if reading.kind is RefusalKind.SYSTEM or (reading.kind is RefusalKind.TURNS and self.merges_turns):
            return replace(self, folds_system=True, merges_turns=True) if "system" in roles else None
        if reading.kind is RefusalKind.TURNS:
            return replace(self, merges_turns=True)
        if reading.kind is RefusalKind.VALUE:
            fewer = next((num for num in _FEWER_FIRST_TOKENS if num < self.most_first_tokens), None)
            return None if fewer is None else replace(self, most_first_tokens=fewer)
        if reading.kind is not RefusalKind.FIELD or name in self.extra:
            return None
        if name in _DRAWN_BY:
            return replace(self, left_out=self.left_out | {name})
        if name in LIMITS:
            refused = self.refused | {name}
            return replace(self, refused=refused, limit_field=next((other for other in LIMITS if other not in refused), ""))
        return None

    def change(self, reading: RefusalReading) -> str:
        """Return a sentence on what this shape does after a refusal of another one."""
        if reading.kind is RefusalKind.VALUE:
            return f"log probabilities of {self.most_first_tokens} first tokens are asked for"
        if reading.kind is RefusalKind.FIELD and reading.field in LIMITS and self.limit_field:
            return f"{self.limit_field} is sent instead"
        if reading.kind is RefusalKind.FIELD:
            return f"{reading.field} is left out of all requests"
        return "the system's text is sent in front of the user's" if self.folds_system else "such messages are sent as one"

    def _fitted(self, chat: Chat) -> Chat:
        if self.folds_system:
            return fold_system(chat)
        return merged(chat) if self.merges_turns else chat


MAX_FAILED = 10
"""Calls in a row that may fail before a server is left alone for `longest_wait_s`."""
MAX_UNREACHED = 3
"""Attempts to reach a server that has never answered."""
MAX_FORBIDDEN = 10
"""Refusals in a row without a reason before a harmless text is tried."""
UNEXPLAINED = "refused without a reason where other texts are answered, read as moderation"
_HARMLESS = [{"role": "user", "content": "Hello."}]
# No answer depends on the time at which it was asked for.
_JITTER = secrets.SystemRandom()
_NO_WAY = frozenset({errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN})
_UNREACHABLE = (ConnectionRefusedError, socket.gaierror, ssl.SSLCertVerificationError)


class _Question(NamedTuple):
    """A question that waits for a thread: what asks it, its number, and where its outcome goes; None if it was not asked."""

    ask: Callable[[int, threading.Event], Answer]
    number: int
    outcomes: queue.SimpleQueue[tuple[int, Answer | Exception | None]]
    stop: threading.Event


class HttpRequest(NamedTuple):
    """The parts of a request, as `Connections.request` takes them."""

    method: str
    url: str
    body: bytes | None
    headers: dict[str, str]


_MOST_HEAPS = -8
"""The number of `M_ARENA_MAX` in glibc's malloc.h."""


def _share_heap() -> None:
    """Have glibc serve the threads of this process from one heap; do nothing elsewhere.

    It makes a heap for each thread, up to eight for each processor, and gives back little of what is freed there.
    """
    with suppress(AttributeError):
        ctypes.CDLL(None).mallopt(_MOST_HEAPS, 1)


class AskedChatModel(ArrivingChatModel, ABC):
    """A model outside this process, of which only texts can be seen: questions at once, attempts, waits and limits.

    Args:
        name: its address.
        settings: time limits, attempts, questions at once, and how requests look.
        url: of its server; empty for none.
        model: as the server calls it.
        proxy: that is asked, for messages; empty for none.

    Attributes:
        usage: counters of its answers.
        limits: the limits on its requests.
        answers_depend_on: settings that answers follow from beside the question.
    """

    access = Access.TEXT

    def __init__(self, name: str, settings: ChatModelSettings, *, url: str = "", model: str = "", proxy: str = "") -> None:
        self._url, self._model, self._proxy = url, model, proxy
        self.name, self._settings, self.usage = name, settings, ChatUsage()
        self.limits, self.answers_depend_on = RequestLimits(name, settings), settings.answers_depend_on
        self._shape, self._lock = RequestShape.of(settings), threading.Lock()
        _share_heap()
        self._last_failed: ModelError | None = None
        self._num_failed, self._failed_at, self._warned = 0, -math.inf, False
        self._was_reached, self._num_forbidden = False, MAX_FORBIDDEN
        self._waiting, self._num_asking = deque[_Question](), 0

    def arriving(
        self, chats: Sequence[Chat], *, decoding: ChatDecoding, seeds: Sequence[int] = ()
    ) -> Iterator[tuple[int, Answer]]:
        """Yield answers as they arrive, see `ArrivingChatModel`.

        An error is raised after the answers under way, an interrupt after those that have arrived. The asking threads are not
        waited for: they end with the process, or within the time of one answer.
        """
        drawn: Sequence[int | None] = seeds if decoding.temperature > 0 and seeds else [None] * len(chats)

        def ask(index: int, stop: threading.Event) -> Answer:
            return self._ask(chats[index], decoding, drawn[index], stop)

        for index, answer in self._arriving(ask, len(chats)):
            self.usage.count([answer])
            yield index, answer

    def _arriving(self, ask: Callable[[int, threading.Event], Answer], num: int) -> Iterator[tuple[int, Answer]]:
        """Yield what `ask` returns for each number below `num`, several at once, see `arriving`."""
        self._require_alive()
        outcomes, stop = queue.SimpleQueue[tuple[int, Answer | Exception | None]](), threading.Event()
        with self._lock:
            self._waiting.extend(_Question(ask, index, outcomes, stop) for index in range(num))
            # Calls of several threads share as many asking threads as there may be questions at once.
            num_new = min(self._settings.concurrency - self._num_asking, num)
            self._num_asking += num_new
        for _ in range(num_new):
            threading.Thread(target=self._ask_all, name="parley-chat", daemon=True).start()
        failed: list[tuple[int, Exception]] = []
        try:
            for _ in range(num):
                index, outcome = outcomes.get()
                if isinstance(outcome, Answer):
                    self._num_failed = 0
                    yield index, outcome
                elif outcome is not None:
                    failed.append((index, outcome))
        except KeyboardInterrupt:
            stop.set()
            while not outcomes.empty():
                index, outcome = outcomes.get()
                if isinstance(outcome, Answer):
                    yield index, outcome
            raise
        finally:
            stop.set()
        if failed:
            error = next((error for _, error in failed if isinstance(error, RefusedModelError)), failed[0][1])
            if isinstance(error, ModelError):
                self._num_failed, self._failed_at, self._last_failed = self._num_failed + 1, time.monotonic(), error
            if isinstance(error, ParleyError):
                error.indices = tuple(index for index, _ in failed)
            raise error

    def _require_alive(self) -> None:
        wait_s, last = self._settings.longest_wait_s, self._last_failed
        if last is not None and self._num_failed >= MAX_FAILED and time.monotonic() - self._failed_at < wait_s:
            what = f"the server failed {self._num_failed} times in a row, and is left alone for {wait_s:g} s"
            raise ModelError(what, where=self.name, got=f"{last.what}: {last.got}", fix=last.fix)

    def _ask_all(self) -> None:
        """Ask waiting questions one by one until there are none; those of a call of which one has failed are left out."""
        while True:
            with self._lock:
                if not self._waiting:
                    self._num_asking -= 1
                    return
                question = self._waiting.popleft()
            outcome: Answer | Exception | None = None
            try:
                if not question.stop.is_set():
                    outcome = question.ask(question.number, question.stop)
            except StoppedError:
                pass
            except Exception as error:
                question.stop.set()
                outcome = error
            question.outcomes.put((question.number, outcome))

    def _ask(
        self, chat: Chat, decoding: ChatDecoding, seed: int | None, stop: threading.Event, reply: str | None = None
    ) -> Answer:
        """Return one answer, in as many attempts as are allowed; none begins after `stop` is set.

        Args:
            chat: that is answered.
            decoding: of the answer.
            seed: of its draws.
            stop: ends the attempts.
            reply: a given reply; its tokens are then the `first_tokens` of the result.
        """
        failed, wanted = 0, decoding
        while True:
            shape = self._shape
            body = shape.body(self._model, chat, wanted, seed)
            if reply is not None:
                body[REPLY] = reply
            era = self.limits.era
            try:
                with self.limits.request(stop):
                    answer = self._attempt(body, wanted.max_tokens if shape.limit_field else None)
            except UnsuitedError as unsuited:
                room = unsuited.reading.room
                if room is not None and room < wanted.max_tokens:
                    wanted = replace(wanted, max_tokens=room)
                elif not self._is_suited(shape, unsuited, body):
                    raise unsuited.error from None
            except AgainError as again:
                failed += 1
                if again.is_busy:
                    self.limits.lower(era)
                most, few = self._settings.max_attempts, again.most_unreached
                never_reached = few is not None and not self._was_reached
                most = min(most, few) if few is not None and never_reached else most
                self._warn(again.error, most - 1)
                if failed >= most or stop.is_set():
                    raise _after(again.error, failed, RefusedModelError if never_reached else ModelError) from None
                self._wait(again, failed, stop)
            else:
                self.limits.pay(chat, answer)
                shortened = (SHORTENED,) if wanted is not decoding else ()
                notes = (*shape.notes(chat, seed), *shortened, *answer.notes)
                return replace(answer, failed_attempts=failed, notes=notes)

    def _wait(self, again: AgainError, failed: int, stop: threading.Event) -> None:
        """Wait before another attempt; raise the last error if that takes too long, or `stop` is set."""
        settings = self._settings
        wait_s = min(settings.first_wait_s * 2 ** (failed - 1), settings.longest_wait_s) * _JITTER.uniform(0.5, 1)
        if again.wait_s is not None and again.wait_s > settings.longest_wait_s:
            got = f"{again.error.got}; it asks for {again.wait_s:.0f} s of patience"
            fix = "resume later"
            raise ModelError(again.error.what, where=self.name, got=got, fix=fix) from None
        if again.wait_s is not None:
            # Many requests get the same time, and would all come back at once.
            wait_s = max(wait_s, again.wait_s + settings.first_wait_s * _JITTER.random())
        if stop.wait(wait_s):
            raise _after(again.error, failed, ModelError) from None

    def _warn(self, error: ModelError, more: int) -> None:
        with self._lock:
            self.usage.failed_attempts += 1
            warned, self._warned = self._warned, True
        if not warned and more:
            what = "%s: %s (%s); it is asked up to %d times more; further failures are told where they last"
            logger.warning(what, self.name, error.what, error.got, more)

    def _is_suited(self, shape: RequestShape, unsuited: UnsuitedError, body: dict[str, Any]) -> bool:
        """Return whether the shape of requests has changed since one that did not suit the server; log it once."""
        suited = shape.suited(unsuited.reading, body)
        with self._lock:
            if suited is None or suited == shape or self._shape != shape:
                return self._shape != shape
            self._shape = suited
        parts = (self.name, unsuited.error.what, unsuited.error.got, suited.change(unsuited.reading))
        # A run loads a model several times: for its first question, and for each worker.
        if (warning := (self.limits.folder, *parts)) not in _WARNED:
            _WARNED.add(warning)
            logger.warning("%s: %s (%s); %s", *parts)
        return True

    def _answer(self, raw: bytes, max_tokens: int | None) -> Answer:
        return answer_of(raw, self.name, max_tokens=max_tokens, thinking=self._settings.thinking)

    @abstractmethod
    def _exchange(self, body: dict[str, Any]) -> bytes | Answer:
        """Return the response to a body, or the answer of a refusal.

        Raises:
            AgainError: another attempt may succeed.
            UnsuitedError: another request may.
            ParleyError: none will.
        """

    def _attempt(self, body: dict[str, Any], max_tokens: int | None) -> Answer:
        return self._read(self._exchange(body), body, max_tokens)

    def _read(self, raw: bytes | Answer, body: dict[str, Any], max_tokens: int | None) -> Answer:
        """Return the answer of a response."""
        self._was_reached = True
        if isinstance(raw, Answer):
            return raw
        try:
            # A server that repeats the key must not bring it into a row.
            with_keys = holds_keys()
            clean = without_keys(raw) if with_keys else raw
            answer = self._answer(clean, max_tokens)
            self._num_forbidden = 0
            if REPLY in body:
                return scored_reply(answer, clean, body[REPLY], self.name)
            if num_first := body.get("top_logprobs"):
                answer = with_first_tokens(answer, clean, num_first, self.name)
            return answer_without_keys(answer) if with_keys else answer
        except HalfAnswerError as half:
            return self._refused(half.refusal, body)
        except ModelError as error:
            shown = type(error)(error.what, where=error.where, got=blotted(str(error.got)), fix=error.fix)
            # A page stays a page, and a stream a stream; a cut answer may be whole next time.
            is_other = any(word in error.what for word in ("page", "stream", "log probabilities", "reasoning"))
            raise (shown if is_other else AgainError(shown)) from None

    def _refused(self, refusal: Refusal, body: dict[str, Any]) -> Answer:
        """Return the answer of a refusal, or raise its error."""
        reading = refusal.read(body)
        is_text = reading.kind is RefusalKind.FORBIDDEN and self._answers_others(body)
        if reading.kind is RefusalKind.FILTERED or is_text:
            notes = (UNEXPLAINED,) if is_text else ()
            withheld = refusal.text or f"HTTP {refusal.status}"
            return answer_without_keys(Answer("", "content_filter", withheld=withheld, notes=notes))
        if reading.kind is RefusalKind.CUT_IN_THINKING:
            return Answer("", "length")
        raise self._error_of(refusal, reading)

    def _error_of(self, refusal: Refusal, reading: RefusalReading) -> Exception:
        return error_of(refusal, reading, self.name, self._url, self._proxy)

    def _answers_others(self, body: dict[str, Any]) -> bool:
        """Return whether the server answers other texts, so that a refusal without a reason is about the text.

        It does where it has answered lately, and is asked a harmless text where that is not known.
        """
        if body["messages"] == _HARMLESS:
            return False
        with self._lock:
            self._num_forbidden += 1
            if self._num_forbidden <= MAX_FORBIDDEN:
                return True
        answer = self._attempt({**body, "messages": _HARMLESS}, None)
        with self._lock:
            self.usage.count([answer])
            self._num_forbidden = 0
        return answer.kind is not AnswerKind.FILTERED

    def _late(self) -> ModelError:
        got, fix = f"nothing whole within {self._settings.timeout_s:g} s", "--set chat.timeout_s=SECONDS, or resume later"
        got = f"{got}, by the proxy {self._proxy}" if self._proxy else got
        return ModelError("the server does not answer in time", where=self.name, got=got, fix=fix)


REPLY = "reply"
"""The part of a request that holds a given reply, of which the log probability is asked for; it is sent as text."""


class ServedChatModel(AskedChatModel):
    """A model behind a server.

    `chat.logprobs` declares which log probabilities it shows. Those of first tokens come with its answers (`logprobs` and
    `top_logprobs`). Those of given replies are asked for by `prompt_logprobs` (vLLM), or by `echo` where the address ends in
    `/completions`.

    Args:
        name: `openai:URL#MODEL`; the URL is what `/chat/completions` is put behind, such as http://127.0.0.1:8000/v1, or it
            ends in `/completions` for a server that goes on with texts.
        settings: as of any model that is asked.
        url: another address than that of the name; empty for none.

    Raises:
        ConfigError: the address has no URL or no model, or holds a password or a query, which would be written into runs.
    """

    def __init__(self, name: str, settings: ChatModelSettings, *, url: str = "") -> None:
        url, model = (url, "") if url else server_of(name)
        self._connections = Connections(url)
        super().__init__(name, settings, url=url, model=model, proxy=self._connections.proxy)
        self._completes = bool(model) and not url.endswith("/chat/completions")
        self._tokenizer = None
        if settings.tokenizer and self._completes:
            from parley.policies.hugging_face.models import read_tokenizer

            self._tokenizer = read_tokenizer(settings.tokenizer, settings)
        self._is_tried = False
        self.access = _ACCESS[settings.logprobs] if model else Access.TEXT

    def score(self, chats: Sequence[Chat], replies: Sequence[str]) -> list[ReplyScore]:
        """Return the log probability of each reply as the answer to its chat, see `ScoringChatModel` and `scores_arriving`."""
        scored = dict(self.scores_arriving(chats, replies))
        return [ReplyScore.of(scored[index]) for index in range(len(chats))]

    def scores_arriving(self, chats: Sequence[Chat], replies: Sequence[str]) -> Iterator[tuple[int, Answer]]:
        """Yield the scored replies as they arrive, each with its index; they are counted.

        Raises:
            ModelError: the server shows no log probabilities of given texts, or those of other tokens.
        """

        def ask(index: int, stop: threading.Event) -> Answer:
            return self._ask(chats[index], ChatDecoding(max_tokens=1), None, stop, replies[index])

        for reply in replies:
            if not reply.strip():
                what = "a reply without tokens has no likelihood"
                raise ConfigError(what, where=self.name, got=repr(reply), fix="say something")
        if self._completes and not self._is_tried:
            # A reply that hardly ends there shows whether the server takes its log probabilities from the right places.
            trial = (Message("user", "one two"),), ChatDecoding(max_tokens=1), None, threading.Event(), "three four five"
            self.usage.count([self._ask(*trial)])
            self._is_tried = True
        for index, answer in self._arriving(ask, len(chats)):
            self.usage.count([answer])
            yield index, answer

    def _wire(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return a body as the server reads it: messages, or the text of a prompt behind an address of completions."""
        reply = body.get(REPLY)
        sent = {name: value for name, value in body.items() if name != REPLY}
        if self._completes:
            sent = {name: value for name, value in sent.items() if name not in ("messages", "logprobs", "top_logprobs")}
            sent["prompt"] = self._prompt(body) + (reply or "")
            if "top_logprobs" in body:
                sent["logprobs"] = body["top_logprobs"]
            return sent if reply is None else sent | {"echo": True, "logprobs": 1}
        if reply is None:
            return sent
        sent["messages"] = [*body["messages"], {"role": "assistant", "content": reply}]
        return sent | {"prompt_logprobs": 1, "add_generation_prompt": False, "continue_final_message": True}

    def _prompt(self, body: Mapping[str, Any]) -> str:
        messages = body["messages"]
        if self._tokenizer is None:
            return "".join(f"{message['content']}\n" for message in messages)
        from parley.policies.chat.templates import write_prompt

        text = write_prompt(self._tokenizer, tuple(Message(**message) for message in messages))
        # A server writes the token that begins all texts itself.
        return text.removeprefix(self._tokenizer.bos_token or "")

    def _request(self, body: dict[str, Any]) -> HttpRequest:
        """Return the request of a body."""
        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "parley"}
        if key := api_key(self._url):
            self._require_no_proxy_reads_it()
            headers["Authorization"] = f"Bearer {key}"
        return HttpRequest("POST", self._url, json.dumps(self._wire(body)).encode(), headers)

    def _exchange(self, body: dict[str, Any]) -> bytes | Answer:
        texts = [message["content"] for message in body["messages"]]
        try:
            status, headers, raw = self._connections.request(*self._request(body), self._settings.timeout_s)
        except TooManyBytesError:
            what, got = "the server's answer is too long", f"over {MOST_BYTES:,} bytes"
            raise ModelError(what, where=self.name, got=got, fix="ask a server of chat completions") from None
        except ConnectTimeoutError as error:
            raise self._unreached(error) from None
        except TimeoutError:
            self._was_reached = True
            raise AgainError(self._late()) from None
        except (HTTPException, OSError) as error:
            raise self._unreached(error) from None
        self._was_reached = True
        if not 200 <= status < 300:
            wait_s = _seconds(headers.get("Retry-After"))
            raw = f"moved to {place}".encode() if (place := headers.get("Location")) else raw
            # A refusal may be about what is sent to have a reply scored.
            sent = body | self._wire(body) if REPLY in body else body
            return self._refused(Refusal.of_response(status, without_keys(raw), texts, wait_s), sent)
        return raw

    def _require_no_proxy_reads_it(self) -> None:
        if self._proxy and self._url.startswith("http:"):
            host = urlsplit(self._url).hostname
            fix = f"export no_proxy={host}, name an address of https, or ask without a key"
            what = "the key would go to a proxy in the clear"
            raise RefusedModelError(what, where=self.name, got=f"http_proxy={self._proxy}", fix=fix)

    def _unreached(self, reason: object) -> AgainError:
        got = blotted(f"{type(reason).__name__}: {reason}"[:200])
        fix = "start the server, or mend the address"
        if isinstance(reason, ssl.SSLError):
            fix = "name the address as its server's certificate does, or with http: if it speaks no TLS"
        if self._proxy:
            got = f"{got}, by the proxy {self._proxy}"
            fix = f"{fix}; export no_proxy={urlsplit(self._url).hostname} to ask without the proxy"
        error = ModelError("the server cannot be reached, or broke off", where=self.name, got=got, fix=fix)
        if isinstance(reason, ConnectTimeoutError):
            return AgainError(error, most_unreached=1)
        nobody = isinstance(reason, _UNREACHABLE) or (isinstance(reason, OSError) and reason.errno in _NO_WAY)
        return AgainError(error, most_unreached=MAX_UNREACHED if nobody else None)


def _seconds(retry_after: str | None) -> float | None:
    """Return the seconds that a header asks to wait, as seconds or as a date; None if it cannot be read."""
    if retry_after is None:
        return None
    try:
        seconds = float(retry_after)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(retry_after).timestamp() - time.time()
        except ValueError:
            return None
    return max(seconds, 0.0) if math.isfinite(seconds) else None


def _after(error: ModelError, attempts: int, kind: type[ModelError]) -> ModelError:
    got = f"{error.got} ({attempts} attempts)" if attempts > 1 else error.got
    return kind(error.what, where=error.where, got=got, fix=error.fix)
