"""Servers that speak OpenAI's protocol, asked over HTTP: several questions at once, each again if the server fails.

`request_shape.py` fits requests to the server, `refusals.py` reads refusals, and an answer stopped by moderation is an answer
of that kind. A key goes to its server alone.

The whole answer, headers included, must arrive within the time limit of a question. The standard library limits each read, so a
server that sends a byte now and then could go on for ever; here the limit counts from the start of the question. Connecting has
a shorter limit of its own, which tells an address that drops packets from a slow server. No redirect is followed, because it
could take a key to another host, and no proxy is used for this machine.
"""

from __future__ import annotations

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
from collections.abc import Iterator, Sequence
from dataclasses import replace
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from io import BufferedReader, RawIOBase
from ipaddress import ip_address
from typing import IO, Any, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import (
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
    build_opener,
    getproxies,
    proxy_bypass,
)

from parley.envs.core.errors import ModelError, RefusedModelError
from parley.policies.chat.addresses import server_of
from parley.policies.chat.completions import HalfAnswerError, answer_of
from parley.policies.chat.model import Access, Answer, AnswerKind, Chat, ChatDecoding, ChatUsage
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
    without_keys,
)
from parley.policies.chat.request_shape import SHORTENED, RequestShape
from parley.policies.chat.settings import ChatModelSettings

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 10.0
"""Seconds for a connection."""


class ConnectTimeoutError(TimeoutError):
    """An error for a connection that did not come about in time, to no server or through dropped packets."""


class Opener(NamedTuple):
    """An opener of addresses and its proxy.

    Args:
        director: opens them; each request must have a timeout.
        proxy: that it asks, without a name and a password; empty for none.
    """

    director: OpenerDirector
    proxy: str


def opener_of(url: str) -> Opener:
    """Return an opener of an address: by the environment's proxy, but for this machine and hosts in `no_proxy`."""
    parts = urlsplit(url)
    proxy = "" if is_loopback(parts.hostname or "") or proxy_bypass(parts.netloc) else getproxies().get(parts.scheme, "")
    handlers = (ProxyHandler({parts.scheme: proxy} if proxy else {}), _NoRedirects, TimedHTTPHandler, TimedHTTPSHandler)
    return Opener(build_opener(*handlers), _without_password(proxy))


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine by its name or number."""
    try:
        address = ip_address(host)
    except ValueError:
        return host.lower().rstrip(".") == "localhost" or host.lower().rstrip(".").endswith(".localhost")
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def _without_password(proxy: str) -> str:
    scheme, mark, rest = proxy.rpartition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}"


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str) -> None:
        return None


class _TimedReads(RawIOBase):
    """A reader of a socket with a deadline."""

    def __init__(self, raw: Any, sock: socket.socket) -> None:
        self._raw, self._sock = raw, sock
        self._deadline = time.monotonic() + (sock.gettimeout() or 0.0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(_left(self._deadline))
        num_read: int | None = self._raw.readinto(buffer)
        return num_read

    def close(self) -> None:
        self._raw.close()
        super().close()


class _TimedResponse(HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp: Any = BufferedReader(_TimedReads(self.fp.detach(), sock))


class _TimedConnection(HTTPConnection):
    response_class = _TimedResponse

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._deadline = time.monotonic() + (self.timeout or 0.0)

    def connect(self) -> None:
        whole_s = self.timeout
        self.timeout = min(CONNECT_TIMEOUT_S, _left(self._deadline))
        try:
            super().connect()
        except TimeoutError:
            raise ConnectTimeoutError(f"no connection within {self.timeout:.3g} s") from None
        finally:
            self.timeout = whole_s
        self.sock.settimeout(_left(self._deadline))

    def getresponse(self) -> HTTPResponse:
        self.sock.settimeout(_left(self._deadline))
        return super().getresponse()


class _TimedTLSConnection(_TimedConnection, HTTPSConnection):
    pass


class TimedHTTPHandler(HTTPHandler):
    """A handler of `http:` addresses; a request must have a timeout."""

    def http_open(self, req: Request) -> HTTPResponse:
        """Return the response to a request."""
        return self.do_open(_TimedConnection, req)


class TimedHTTPSHandler(HTTPSHandler):
    """A handler of `https:` addresses; a request must have a timeout."""

    def https_open(self, req: Request) -> HTTPResponse:
        """Return the response to a request."""
        return self.do_open(_TimedTLSConnection, req)


def _left(deadline: float) -> float:
    if (left := deadline - time.monotonic()) <= 0:
        raise TimeoutError
    return left


MOST_BYTES = 16 * 2**20
"""Largest answer in bytes; a longer one is an error."""
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


class ServedChatModel:
    """A model behind a server, of which only texts can be seen.

    Args:
        name: `openai:URL#MODEL`; the URL is what `/chat/completions` is put behind, such as http://127.0.0.1:8000/v1.
        settings: time limits, attempts, questions at once, and how requests look.

    Attributes:
        usage: counters of its answers.
        answers_depend_on: settings that answers follow from beside the question.

    Raises:
        ConfigError: the address has no URL or no model, or holds a password or a query, which would be written into runs.
    """

    access = Access.TEXT

    def __init__(self, name: str, settings: ChatModelSettings, *, url: str = "") -> None:
        self._url, self._model = (url, "") if url else server_of(name)
        self.name, self._settings, self.usage = name, settings, ChatUsage()
        self.answers_depend_on = settings.answers_depend_on
        self._opener, self._proxy = opener_of(self._url)
        self._shape, self._lock = RequestShape.of(settings), threading.Lock()
        self._last_failed: ModelError | None = None
        self._num_failed, self._failed_at, self._warned = 0, -math.inf, False
        self._was_reached, self._num_forbidden = False, MAX_FORBIDDEN

    def answer(self, chats: Sequence[Chat], *, decoding: ChatDecoding, seeds: Sequence[int] = ()) -> list[Answer]:
        """Return one answer to each chat, see `ChatModel`."""
        answers = dict(self.arriving(chats, decoding=decoding, seeds=seeds))
        return [answers[index] for index in range(len(chats))]

    def arriving(
        self, chats: Sequence[Chat], *, decoding: ChatDecoding, seeds: Sequence[int] = ()
    ) -> Iterator[tuple[int, Answer]]:
        """Yield answers as they arrive, see `ArrivingChatModel`.

        An error is raised after the answers under way, an interrupt after those that have arrived. The asking threads are not
        waited for: they end with the process, or within the time of one answer.
        """
        self._require_alive()
        drawn: Sequence[int | None] = seeds if decoding.temperature > 0 and seeds else [None] * len(chats)
        waiting = queue.SimpleQueue[tuple[int, Chat, int | None]]()
        for question in zip(range(len(chats)), chats, drawn, strict=True):
            waiting.put(question)
        outcomes = queue.SimpleQueue[tuple[int, Answer | Exception] | None]()
        stop = threading.Event()
        num_asking = min(self._settings.concurrency, len(chats))
        for _ in range(num_asking):
            asking = (waiting, outcomes, stop, decoding)
            threading.Thread(target=self._ask_all, args=asking, name="parley-chat", daemon=True).start()
        failed: Exception | None = None
        try:
            while num_asking:
                outcome = outcomes.get()
                if outcome is None:
                    num_asking -= 1
                elif isinstance(outcome[1], Answer):
                    yield self._counted(outcome[0], outcome[1])
                else:
                    failed = failed or outcome[1]
        except KeyboardInterrupt:
            stop.set()
            while not outcomes.empty():
                outcome = outcomes.get()
                if outcome is not None and isinstance(outcome[1], Answer):
                    yield self._counted(outcome[0], outcome[1])
            raise
        finally:
            stop.set()
        if failed is not None:
            if isinstance(failed, ModelError):
                self._num_failed, self._failed_at, self._last_failed = self._num_failed + 1, time.monotonic(), failed
            raise failed

    def _counted(self, index: int, answer: Answer) -> tuple[int, Answer]:
        self._num_failed = 0
        self.usage.count([answer])
        return index, answer

    def _require_alive(self) -> None:
        """Raise ModelError for a while after many failures in a row, each after all attempts."""
        wait_s, last = self._settings.longest_wait_s, self._last_failed
        if last is not None and self._num_failed >= MAX_FAILED and time.monotonic() - self._failed_at < wait_s:
            what = f"the server failed {self._num_failed} times in a row, and is left alone for {wait_s:g} s"
            raise ModelError(what, where=self.name, got=f"{last.what}: {last.got}", fix=last.fix)

    def _ask_all(
        self,
        waiting: queue.SimpleQueue[tuple[int, Chat, int | None]],
        outcomes: queue.SimpleQueue[tuple[int, Answer | Exception] | None],
        stop: threading.Event,
        decoding: ChatDecoding,
    ) -> None:
        """Ask questions one by one until none waits or one fails; put None when done."""
        while not stop.is_set():
            try:
                index, chat, seed = waiting.get_nowait()
            except queue.Empty:
                break
            try:
                outcomes.put((index, self._ask(chat, decoding, seed, stop)))
            except Exception as error:
                stop.set()
                outcomes.put((index, error))
        outcomes.put(None)

    def _ask(self, chat: Chat, decoding: ChatDecoding, seed: int | None, stop: threading.Event) -> Answer:
        """Return one answer, in as many attempts as are allowed; none begins after `stop` is set."""
        failed, wanted = 0, decoding
        while True:
            shape = self._shape
            body = shape.body(self._model, chat, wanted, seed)
            try:
                answer = self._attempt(body, wanted.max_tokens if shape.limit_field else None)
            except UnsuitedError as unsuited:
                room = unsuited.reading.room
                if room is not None and room < wanted.max_tokens:
                    wanted = replace(wanted, max_tokens=room)
                elif not self._is_suited(shape, unsuited, body):
                    raise unsuited.error from None
            except AgainError as again:
                failed += 1
                most, few = self._settings.max_attempts, again.most_unreached
                never_reached = few is not None and not self._was_reached
                most = min(most, few) if few is not None and never_reached else most
                self._warn(again.error, most - 1)
                if failed >= most or stop.is_set():
                    raise _after(again.error, failed, RefusedModelError if never_reached else ModelError) from None
                self._wait(again, failed, stop)
            else:
                shortened = (SHORTENED,) if wanted is not decoding else ()
                notes = (*shape.notes(chat, seed), *shortened, *answer.notes)
                return replace(answer, failed_attempts=failed, notes=notes)

    def _wait(self, again: AgainError, failed: int, stop: threading.Event) -> None:
        """Wait before another attempt; raise the last error if that takes too long, or `stop` is set."""
        settings = self._settings
        wait_s = min(settings.first_wait_s * 2 ** (failed - 1), settings.longest_wait_s) * _JITTER.uniform(0.5, 1)
        if again.wait_s is not None and again.wait_s > settings.longest_wait_s:
            got = f"{again.error.got}; it asks for {again.wait_s:.0f} s of patience"
            fix = "resume later, or --set chat.longest_wait_s=SECONDS"
            raise ModelError(again.error.what, where=self.name, got=got, fix=fix) from None
        if again.wait_s is not None:
            # Many requests get the same time, and would all come back at once.
            wait_s = max(wait_s, again.wait_s + settings.first_wait_s * _JITTER.random())
        if stop.wait(wait_s):
            raise _after(again.error, failed, ModelError) from None

    def _warn(self, error: ModelError, more: int) -> None:
        """Count a failed attempt, and log the first one."""
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
        logger.warning("%s: %s (%s); %s", self.name, unsuited.error.what, unsuited.error.got, suited.told(unsuited.reading))
        return True

    def _request(self, body: dict[str, Any]) -> Request:
        """Return the request of a body."""
        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "parley"}
        if key := api_key(self._url):
            self._require_no_proxy_reads_it()
            headers["Authorization"] = f"Bearer {key}"
        return Request(self._url, json.dumps(body).encode(), headers, method="POST")

    def _answer(self, raw: bytes, max_tokens: int | None) -> Answer:
        """Return the answer of a response without keys."""
        return answer_of(raw, self.name, max_tokens=max_tokens, thinking=self._settings.thinking)

    def _attempt(self, body: dict[str, Any], max_tokens: int | None) -> Answer:
        request = self._request(body)
        deadline = time.monotonic() + self._settings.timeout_s
        texts = [message["content"] for message in body["messages"]]
        try:
            with self._opener.open(request, timeout=self._settings.timeout_s) as response:
                raw = self._read(response, deadline)
        except HTTPError as error:
            with error:
                self._was_reached = True
                wait_s = _seconds(error.headers.get("Retry-After"))
                return self._refused(Refusal.of_response(error.code, self._said(error, deadline), texts, wait_s), body)
        except TimeoutError:
            self._was_reached = True
            raise AgainError(self._late()) from None
        except (URLError, HTTPException, OSError) as error:
            reason = getattr(error, "reason", None) or error
            if isinstance(reason, TimeoutError) and not isinstance(reason, ConnectTimeoutError):
                self._was_reached = True
                raise AgainError(self._late()) from None
            raise self._unreached(reason) from None
        self._was_reached = True
        try:
            # A server that repeats the key must not bring it into a row.
            answer = self._answer(without_keys(raw), max_tokens)
            self._num_forbidden = 0
            return answer_without_keys(answer)
        except HalfAnswerError as half:
            return self._refused(half.refusal, body)
        except ModelError as error:
            shown = ModelError(error.what, where=error.where, got=blotted(str(error.got)), fix=error.fix)
            # A page stays a page, and a stream a stream; a cut answer may be whole next time.
            is_other = "page" in error.what or "stream" in error.what
            raise (shown if is_other else AgainError(shown)) from None

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

    def _read(self, response: Any, deadline: float) -> bytes:
        """Return a whole body within the time limit of one answer."""
        parts, size = [], 0
        while part := response.read1(65536):
            parts.append(part)
            size += len(part)
            if time.monotonic() > deadline:
                raise TimeoutError
            if size > MOST_BYTES:
                fix = "ask a server of chat completions"
                raise ModelError("the server's answer is too long", where=self.name, got=f"over {MOST_BYTES:,} bytes", fix=fix)
        if (promised := response.headers.get("Content-Length")) is not None and promised.isdigit() and size < int(promised):
            raise HTTPException(f"{size} bytes of {promised} came")
        return b"".join(parts)

    def _said(self, error: HTTPError, deadline: float) -> bytes:
        try:
            return without_keys(self._read(error, deadline))
        except (OSError, HTTPException, ModelError):
            return b""

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

        True if it has answered lately; if that is not known, it is asked a harmless text.

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
            self._num_forbidden = 0
        return answer.kind is not AnswerKind.FILTERED

    def _late(self) -> ModelError:
        got, fix = f"nothing whole within {self._settings.timeout_s:g} s", "--set chat.timeout_s=SECONDS, or resume later"
        got = f"{got}, by the proxy {self._proxy}" if self._proxy else got
        return ModelError("the server does not answer in time", where=self.name, got=got, fix=fix)


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
