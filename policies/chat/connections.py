"""HTTP connections to one server, kept open from request to request, with a time limit on each whole answer.

The whole answer, headers included, must arrive within the limit. The standard library limits each read, so a server that sends
a byte now and then could go on for ever; here the limit counts from the start of the request. Connecting has a shorter limit of
its own, which tells an address that drops packets from a slow server. No redirect is followed, because it could take a key to
another host, and no proxy is used for this machine.

Why not `openai` and `tenacity`: 5,000 questions to a server that answers in 50 ms, 32 at once, take 0.9 s of the processor with
these connections, 9.0 s with `openai` 3.57 in threads and 12.4 s with its asyncio client; its import takes 0.7 s. It adds no
limit on a whole answer, and its typed answers drop the shapes that `completions.py` reads.
"""

from __future__ import annotations

import select
import socket
import time
from base64 import b64encode
from collections import deque
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, RemoteDisconnected
from io import BufferedReader, RawIOBase
from ipaddress import ip_address
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

CONNECT_TIMEOUT_S = 10.0
"""Seconds for a connection."""
MOST_BYTES = 16 * 2**20
"""Largest answer in bytes."""
_CLOSED_MEANWHILE = (RemoteDisconnected, BrokenPipeError, ConnectionResetError)


class ConnectTimeoutError(TimeoutError):
    """An error for a connection that did not come about in time, to no server or through dropped packets."""


class TooManyBytesError(Exception):
    """An error for an answer of more than `MOST_BYTES`."""


class Response(NamedTuple):
    """A response of a server.

    Args:
        status: of HTTP.
        headers: by name, in any case.
        body: the whole body; of a status of 300 or more what could be read of it.
    """

    status: int
    headers: Any
    body: bytes


class Connections:
    """The connections to a server; calls of several threads have one each.

    Args:
        url: an address of the server, http or https.

    Attributes:
        proxy: the proxy that is asked, without a name and a password; empty for none. It comes from the environment.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._is_tls, self._host, self._port = parts.scheme == "https", parts.hostname or "", parts.port
        bypassed = is_loopback(self._host) or proxy_bypass(parts.netloc)
        proxy = "" if bypassed else getproxies().get(parts.scheme, "")
        self._proxy = urlsplit(proxy if "://" in proxy else f"http://{proxy}") if proxy else None
        scheme, mark, rest = proxy.rpartition("://")
        self.proxy = f"{scheme}{mark}{rest.rpartition('@')[2]}"
        self._idle = deque[_TimedConnection]()

    def request(self, method: str, url: str, body: bytes | None, headers: dict[str, str], timeout_s: float) -> Response:
        """Return the response to a request, redirects included.

        Raises:
            ConnectTimeoutError: no connection came about.
            TimeoutError: the whole answer did not arrive in time.
            TooManyBytesError: the answer is too long.
            OSError: the server cannot be reached, or broke off.
            HTTPException: it speaks no HTTP, or broke off.
        """
        deadline = time.monotonic() + timeout_s
        kept = self._take()
        if kept is not None:
            try:
                return self._exchange(kept, method, url, body, headers, deadline)
            except _CLOSED_MEANWHILE:
                # A server closes connections that are idle for long, just when it is asked again.
                pass
        return self._exchange(self._new(), method, url, body, headers, deadline)

    def _take(self) -> _TimedConnection | None:
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            poll = select.poll()
            poll.register(connection.sock, select.POLLIN)
            if not poll.poll(0):
                return connection
            # The server has closed it, or speaks without being asked.
            connection.close()
        return None

    def _new(self) -> _TimedConnection:
        kind = _TimedTLSConnection if self._is_tls else _TimedConnection
        if self._proxy is None:
            return kind(self._host, self._port)
        connection = kind(self._proxy.hostname or "", self._proxy.port)
        if self._is_tls:
            connection.set_tunnel(self._host, self._port, self._proxy_headers())
        return connection

    def _proxy_headers(self) -> dict[str, str]:
        if self._proxy is None or self._proxy.username is None:
            return {}
        account = f"{unquote(self._proxy.username)}:{unquote(self._proxy.password or '')}"
        return {"Proxy-Authorization": f"Basic {b64encode(account.encode()).decode()}"}

    def _exchange(
        self, connection: _TimedConnection, method: str, url: str, body: bytes | None, headers: dict[str, str], deadline: float
    ) -> Response:
        connection.deadline = deadline
        target = urlsplit(url)._replace(fragment="")
        if self._proxy is not None and not self._is_tls:
            headers = headers | self._proxy_headers()
        else:
            target = target._replace(scheme="", netloc="")
        is_kept = False
        try:
            connection.request(method, target.geturl() or "/", body, headers)
            with connection.getresponse() as response:
                content, is_whole = _content(response, deadline)
                is_kept = is_whole and not response.will_close
                return Response(response.status, response.headers, content)
        finally:
            if is_kept:
                self._idle.append(connection)
            else:
                connection.close()


def _content(response: HTTPResponse, deadline: float) -> tuple[bytes, bool]:
    """Return the body of a response, and whether it is whole; a refusal may be cut."""
    parts, size = [], 0
    try:
        while part := response.read1(65536):
            parts.append(part)
            size += len(part)
            if time.monotonic() > deadline:
                raise TimeoutError
            if size > MOST_BYTES:
                raise TooManyBytesError
        if (promised := response.headers.get("Content-Length")) is not None and promised.isdigit() and size < int(promised):
            raise HTTPException(f"{size} bytes of {promised} came")
    except (OSError, HTTPException, TooManyBytesError):
        if response.status < 300:
            raise
        return b"", False
    return b"".join(parts), True


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine by its name or number."""
    try:
        address = ip_address(host)
    except ValueError:
        return host.lower().rstrip(".") == "localhost" or host.lower().rstrip(".").endswith(".localhost")
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


class _TimedConnection(HTTPConnection):
    """A connection whose requests end at `deadline`, by the clock of `time.monotonic`."""

    deadline = 0.0

    def __init__(self, host: str, port: int | None) -> None:
        super().__init__(host, port)
        self.response_class: Any = partial(_TimedResponse, self)

    def connect(self) -> None:
        self.timeout = min(CONNECT_TIMEOUT_S, _left(self.deadline))
        try:
            super().connect()
        except TimeoutError:
            raise ConnectTimeoutError(f"no connection within {self.timeout:.3g} s") from None

    def request(self, *args: Any, **kwargs: Any) -> None:
        if self.sock is None:
            self.connect()
        self.sock.settimeout(_left(self.deadline))
        super().request(*args, **kwargs)


class _TimedTLSConnection(_TimedConnection, HTTPSConnection):
    pass


class _TimedResponse(HTTPResponse):
    def __init__(self, connection: _TimedConnection, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp: Any = BufferedReader(_TimedReads(self.fp.detach(), sock, connection.deadline))


class _TimedReads(RawIOBase):
    """A reader of a socket with a deadline."""

    def __init__(self, raw: Any, sock: socket.socket, deadline: float) -> None:
        self._raw, self._sock, self._deadline = raw, sock, deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(_left(self._deadline))
        num_read: int | None = self._raw.readinto(buffer)
        return num_read

    def close(self) -> None:
        self._raw.close()
        super().close()


def _left(deadline: float) -> float:
    if (left := deadline - time.monotonic()) <= 0:
        raise TimeoutError
    return left
