"""Servers that speak OpenAI's protocol, asked over HTTP: several questions at once, each again where the server fails.

The key is read from the environment at each request and stands nowhere else: not in the model's name or attributes, and what a
server says of it is blotted out of errors. No redirect is followed, for it could take the key to another host.
"""

from __future__ import annotations

import email.utils
import json
import logging
import math
import os
import re
import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import replace
from http.client import HTTPException
from typing import IO, Any, NoReturn
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from envs.core.errors import ConfigError, ModelError, RefusedModelError
from policies.chat.addresses import OPENAI
from policies.chat.completions import answer_of, excerpt, is_too_long, request_of
from policies.chat.model import Access, Answer, Chat, ChatDecoding, ChatTooLongError
from policies.chat.settings import ChatModelSettings
from policies.chat.timed_http import TimedHTTPHandler, TimedHTTPSHandler
from policies.chat.usage import ChatUsage

logger = logging.getLogger(__name__)
KEYS = ("PARLEY_API_KEY", "OPENAI_API_KEY")
"""Environment variables in which a key is looked for, in this order."""
MOST_BYTES = 16 * 2**20
"""Of an answer; more is none."""
MAX_FAILED = 10
"""Calls in a row that may fail, after which a server is left alone for `longest_wait_s`."""
_SECRET = 8
"""Characters of the shortest key that is blotted out."""
_BEGINNING = 4
"""Characters of a key that a server may show of it."""
_PATH = "/chat/completions"
_BUSY = frozenset({408, 409, 425, 429, *range(500, 600)})
# No answer follows from when it was asked.
_JITTER = secrets.SystemRandom()
_LIMITS = ("max_tokens", "max_completion_tokens")


class _Again(Exception):
    """An attempt that may go better another time."""

    def __init__(self, error: ModelError, wait_s: float | None = None) -> None:
        self.error, self.wait_s = error, wait_s


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str) -> None:
        return None


class ServedChatModel:
    """A model behind a server; its texts are all that can be seen of it.

    Args:
        name: `openai:URL#MODEL`; the URL is what `/chat/completions` is put behind, such as http://127.0.0.1:8000/v1.
        settings: time limits, attempts, questions at once.

    Attributes:
        usage: what was asked.

    Raises:
        ConfigError: the address has no URL or no model, or holds a password or a query, which would be written into runs.
    """

    access = Access.TEXT

    def __init__(self, name: str, settings: ChatModelSettings) -> None:
        self._url, self._model = _parts(name)
        self.name, self._settings, self.usage = name, settings, ChatUsage()
        self._opener = build_opener(_NoRedirects, TimedHTTPHandler, TimedHTTPSHandler)
        self._limit, self._lock = _LIMITS[0], threading.Lock()
        self._last_failed: ModelError | None = None
        self._num_failed, self._failed_at, self._told = 0, -math.inf, False

    def answer(self, chats: Sequence[Chat], *, decoding: ChatDecoding, seeds: Sequence[int] = ()) -> list[Answer]:
        """Answers, see `ChatModel`."""
        found = dict(self.arriving(chats, decoding=decoding, seeds=seeds))
        return [found[place] for place in range(len(chats))]

    def arriving(
        self, chats: Sequence[Chat], *, decoding: ChatDecoding, seeds: Sequence[int] = ()
    ) -> Iterator[tuple[int, Answer]]:
        """Answers as they come, see `ArrivingChatModel`; those under way are handed over before an error is raised."""
        self._require_alive()
        drawn: Sequence[int | None] = seeds if decoding.temperature > 0 and seeds else [None] * len(chats)
        failed: ModelError | ConfigError | None = None
        refusals: list[RefusedModelError] = []
        with ThreadPoolExecutor(self._settings.concurrency, "parley-chat") as pool:
            asked: dict[Future[Answer], int] = {
                pool.submit(self._asked_unless, refusals, chat, decoding, seed): place
                for place, (chat, seed) in enumerate(zip(chats, drawn, strict=True))
            }
            try:
                for done in as_completed(asked):
                    if done.cancelled():
                        continue
                    try:
                        answer = done.result()
                        self._num_failed = 0
                    except (ModelError, ConfigError) as error:
                        failed = failed or error
                        for waiting in asked:
                            waiting.cancel()
                        continue
                    self.usage.count([answer])
                    yield asked[done], answer
            finally:
                pool.shutdown(wait=True, cancel_futures=True)
        if failed is not None:
            if isinstance(failed, ModelError):
                self._num_failed, self._failed_at, self._last_failed = self._num_failed + 1, time.monotonic(), failed
            raise failed

    def _require_alive(self) -> None:
        """Raises ModelError for a while where a server has failed many times in a row, each after all attempts."""
        wait_s, last = self._settings.longest_wait_s, self._last_failed
        if last is not None and self._num_failed >= MAX_FAILED and time.monotonic() - self._failed_at < wait_s:
            what = f"the server failed {self._num_failed} times in a row, and is left alone for {wait_s:g} s"
            raise ModelError(what, where=self.name, got=f"{last.what}: {last.got}", fix=last.fix)

    def _asked_unless(self, refusals: list[RefusedModelError], chat: Chat, decoding: ChatDecoding, seed: int | None) -> Answer:
        """One answer, unless all were refused meanwhile: no thread may ask before all others are cancelled."""
        if refusals:
            raise refusals[0]
        try:
            return self._asked(chat, decoding, seed)
        except RefusedModelError as error:
            refusals.append(error)
            raise

    def _asked(self, chat: Chat, decoding: ChatDecoding, seed: int | None) -> Answer:
        """One answer, in as many attempts as are allowed."""
        settings, failed = self._settings, 0
        for attempt in range(1, settings.max_attempts + 1):
            limit = self._limit
            body = request_of(self._model, chat, decoding, seed, limit)
            try:
                return replace(self._attempt(body), failed_attempts=failed)
            except _Again as again:
                failed += 1
                self._tell(again.error)
                if attempt == settings.max_attempts:
                    raise _after(again.error, attempt) from None
                wait_s = min(settings.first_wait_s * 2 ** (attempt - 1), settings.longest_wait_s) * _JITTER.uniform(0.5, 1)
                if again.wait_s is not None and again.wait_s > settings.longest_wait_s:
                    got = f"{again.error.got}; it asks for {again.wait_s:.0f} s of patience"
                    fix = "resume later, or --set chat.longest_wait_s=SECONDS"
                    raise ModelError(again.error.what, where=self.name, got=got, fix=fix) from None
                if again.wait_s is not None:
                    # Many are told the same, and would all come back at once.
                    wait_s = max(wait_s, again.wait_s + settings.first_wait_s * _JITTER.random())
                time.sleep(wait_s)
            except ModelError as error:
                # OpenAI's newer models call the limit otherwise, and say so.
                if limit == _LIMITS[0] and _LIMITS[1] in str(error.got):
                    self._limit = _LIMITS[1]
                    continue
                raise
        raise ModelError("the server refuses how answers are limited", where=self.name, fix="raise max_attempts to 2 at least")

    def _tell(self, error: ModelError) -> None:
        """Counts an attempt that failed, and says of the first why the answers are slow to come."""
        with self._lock:
            self.usage.failed_attempts += 1
            told, self._told = self._told, True
        if not told and (more := self._settings.max_attempts - 1):
            what = "%s: %s (%s); it is asked up to %d times more; further failures are told where they last"
            logger.warning(what, self.name, error.what, error.got, more)

    def _attempt(self, body: dict[str, Any]) -> Answer:
        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "parley"}
        if key := api_key():
            headers["Authorization"] = f"Bearer {key}"
        request = Request(self._url, json.dumps(body).encode(), headers, method="POST")
        deadline = time.monotonic() + self._settings.timeout_s
        try:
            with self._opener.open(request, timeout=self._settings.timeout_s) as response:
                raw = self._read(response, deadline)
        except HTTPError as error:
            with error:
                self._refused(error.code, error.headers.get("Retry-After"), self._said(error, deadline))
        except TimeoutError:
            raise _Again(self._late()) from None
        except (URLError, HTTPException, OSError) as error:
            reason = getattr(error, "reason", None) or error
            if isinstance(reason, TimeoutError):
                raise _Again(self._late()) from None
            got = _blotted(f"{type(reason).__name__}: {reason}"[:200])
            fix = "start the server, or mend the address"
            raise _Again(ModelError("the server cannot be reached, or broke off", where=self.name, got=got, fix=fix)) from None
        try:
            # Nor may a server that says the key again bring it into a row.
            return answer_of(_without_key(raw), self.name)
        except ModelError as error:
            told = ModelError(error.what, where=error.where, got=_blotted(str(error.got)), fix=error.fix)
            # A page stays a page; half an answer, or none, may be whole another time.
            raise (told if "page" in error.what else _Again(told)) from None

    def _read(self, response: Any, deadline: float) -> bytes:
        """A whole body, within the time of one answer; a server that drips gets no more than that."""
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
            return _without_key(self._read(error, deadline))
        except (OSError, HTTPException, ModelError):
            return b""

    def _refused(self, code: int, retry_after: str | None, body: bytes) -> NoReturn:
        said = _blotted(excerpt(body))
        got = f"HTTP {code}: {said}" if said else f"HTTP {code}"
        if code == 401:
            what = "the server takes the key for none of its own" if api_key() else "the server wants a key and there is none"
            fix = f"export {KEYS[0]}=..., which is read and never written down"
            raise RefusedModelError(what, where=self.name, got=got, fix=fix)
        if code in _BUSY:
            what = "the server asks for patience" if code == 429 else "the server fails"
            raise _Again(ModelError(what, where=self.name, got=got, fix="resume later"), _seconds(retry_after))
        fix = "mend the address openai:URL#MODEL: the URL ends in /v1, the model is one that the server lists"
        if code == 404:
            raise RefusedModelError("the server has no such address or model", where=self.name, got=got, fix=fix)
        if code == 403:
            # Some servers say so of a key, others of a text that their moderation stopped, which says nothing of the next one.
            fix = f"ask what the server lets through, with a key in {KEYS[0]} that may use this model"
        if code == 400:
            fix = "ask less, or what the server's model takes"
            if is_too_long(body):
                raise ChatTooLongError("the messages are longer than the model reads", where=self.name, got=got, fix=fix)
        raise ModelError("the server refuses the question", where=self.name, got=got, fix=fix)

    def _late(self) -> ModelError:
        got, fix = f"nothing whole within {self._settings.timeout_s:g} s", "--set chat.timeout_s=SECONDS, or resume later"
        return ModelError("the server does not answer in time", where=self.name, got=got, fix=fix)


def api_key() -> str:
    """The key of this process's environment; empty where there is none.

    Raises:
        ConfigError: it holds what no header can; the message does not show it.
    """
    for variable in KEYS:
        if key := os.environ.get(variable, "").strip():
            if not key.isascii() or not key.isprintable() or " " in key:
                fix = "export it anew, without quotes, blanks and line breaks inside"
                raise ConfigError("the key holds characters that no key has", where=variable, fix=fix)
            return key
    return ""


def _parts(name: str) -> tuple[str, str]:
    """The URL of completions and the model of an address."""
    url, _, model = name.removeprefix(OPENAI).partition("#")
    fix = f"{OPENAI}http://127.0.0.1:8000/v1#MODEL, with the model as the server calls it"
    try:
        found = urlsplit(url)
        host = found.hostname
        _ = found.port
    except ValueError:
        raise ConfigError("this is no address of a server", got=OPENAI + "...", fix=fix) from None
    # Shown without what may be a key.
    shown = f"{OPENAI}{found.scheme}://{host or ''}{found.path}#{model}"
    if found.username is not None or found.password is not None or found.query:
        what = "the address of a server holds a password or a query, and addresses are written into runs"
        raise ConfigError(what, got=shown, fix=f"leave it out; a key is read from {KEYS[0]} or {KEYS[1]}")
    if found.scheme not in ("http", "https") or not host:
        raise ConfigError("this is no address of a server", got=shown, fix=fix)
    if not model:
        raise ConfigError("the address of a server names no model", got=shown, fix=fix)
    path = found.path.rstrip("/")
    return f"{found.scheme}://{found.netloc}{path if path.endswith(_PATH) else path + _PATH}", model


def _seconds(retry_after: str | None) -> float | None:
    """What a header asks to wait, given as seconds or as a date; None where it says nothing that can be read."""
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


def _without_key(body: bytes) -> bytes:
    """What a server said without the key; one as short as those that servers without keys are given is no secret."""
    key = api_key()
    if len(key) < _SECRET:
        return body
    # JSON may write a slash in two ways.
    return body.replace(key.encode(), b"[key]").replace(key.replace("/", r"\/").encode(), b"[key]")


def _blotted(text: str) -> str:
    """What an error shows, without the key as it is or as a server shortens it."""
    shown = _without_key(text.encode()).decode()
    key = api_key()
    begins = rf"|\b{re.escape(key[:_BEGINNING])}[\w*.…-]*" if len(key) >= _SECRET else ""
    return re.sub(rf"\b(sk|pk|key)-[\w*.…-]{{4,}}|[\w.-]*\*{{3,}}[\w*.-]*{begins}", "[key]", shown)


def _after(error: ModelError, attempts: int) -> ModelError:
    got = f"{error.got} ({attempts} attempts)" if attempts > 1 else error.got
    return ModelError(error.what, where=error.where, got=got, fix=error.fix)
