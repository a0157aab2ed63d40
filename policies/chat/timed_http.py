"""HTTP whose answers are whole, headers too, within the time of one question, or are none.

The standard library's time limit is one of each read: a server that sends a byte now and then could go on for ever. Here the
limit counts from when a question is asked. A connection has a limit of its own, so that an address that drops what is sent
is told from a server that thinks. No redirect is followed, for it could take a key to another host, and no proxy is
asked for what lies on this machine. What is asked, and what an answer means: `server.py`.
"""

from __future__ import annotations

import socket
import time
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from io import BufferedReader, RawIOBase
from ipaddress import ip_address
from typing import IO, Any, NamedTuple
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

CONNECT_TIMEOUT_S = 10.0
"""Seconds for a connection; a server that is there takes far fewer, whatever time it needs for an answer."""


class ConnectTimeoutError(TimeoutError):
    """No connection came about in its time: nobody is there, or something drops what is sent."""


class Opener(NamedTuple):
    """What opens addresses.

    Args:
        director: opens them; each request must have a timeout.
        proxy: that it asks, without a name and a password; empty for none.
    """

    director: OpenerDirector
    proxy: str


def opener_of(url: str) -> Opener:
    """Return what opens an address: by the proxy of the environment, unless it lies on this machine or `no_proxy` names it."""
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
    """Reads a socket until the time that it has left is up."""

    def __init__(self, raw: Any, sock: socket.socket) -> None:
        self._raw, self._sock = raw, sock
        self._deadline = time.monotonic() + (sock.gettimeout() or 0.0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(_left(self._deadline))
        found: int | None = self._raw.readinto(buffer)
        return found

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
    """Opens addresses of `http:`; a request must have a timeout."""

    def http_open(self, req: Request) -> HTTPResponse:
        """The answer to a request."""
        return self.do_open(_TimedConnection, req)


class TimedHTTPSHandler(HTTPSHandler):
    """Opens addresses of `https:`; a request must have a timeout."""

    def https_open(self, req: Request) -> HTTPResponse:
        """The answer to a request."""
        return self.do_open(_TimedTLSConnection, req)


def _left(deadline: float) -> float:
    """Seconds that are left; raises TimeoutError where none are."""
    if (left := deadline - time.monotonic()) <= 0:
        raise TimeoutError
    return left
