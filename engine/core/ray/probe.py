"""Asks an address whether a Ray head is there, and whether it wants a token, before Ray is let loose on it.

Ray 2.60 waits for minutes at an address that does not answer, and neither notices nor says when this process and the
cluster disagree about tokens: actors then vanish without a reason. One call of the head's `CheckAlive`, written out as the
six frames of gRPC over HTTP/2 that it takes, settles both in milliseconds.

Sources: RFC 9113 (HTTP/2 frames), RFC 7541 (literal header fields), the gRPC protocol over HTTP/2.
"""

from __future__ import annotations

import os
import socket
from typing import BinaryIO

from parley.envs.core.errors import ClusterError

_METHOD = "/ray.rpc.NodeInfoGcsService/CheckAlive"
_DATA, _HEADERS, _SETTINGS = 0, 1, 4
_END_STREAM, _END_HEADERS = 1, 4
_OK, _UNAUTHENTICATED = b"\x0bgrpc-status\x010", b"\x0bgrpc-status\x0216"


def wants_token(address: str, timeout_s: float) -> bool | None:
    """Whether the Ray head at an address lets nobody in without a token.

    Args:
        address: host:port.
        timeout_s: seconds within which it must answer.

    Returns:
        None when it cannot be told, because the cluster uses TLS.

    Raises:
        ClusterError: it is no address, nothing answers there, or something other than a Ray head does.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "/" in host:
        raise ClusterError("this is not the address of a cluster", got=address, fix="give host:port, such as 10.0.0.1:6379")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=timeout_s) as connection:
            if os.environ.get("RAY_USE_TLS") == "1":
                return None
            connection.sendall(_call(address))
            with connection.makefile("rb") as answer:
                trailer = _last_headers(answer)
    except (OSError, OverflowError) as error:
        raise ClusterError(
            "no Ray cluster answers", where=address, got=error, fix="start one there with: ray start --head --port PORT"
        ) from error
    if _OK not in trailer and _UNAUTHENTICATED not in trailer:
        raise ClusterError(
            "something other than a Ray head answers",
            where=address,
            got=repr(trailer[:60]),
            fix="give the port of the head, 6379 unless ray start was told another",
        )
    return _UNAUTHENTICATED in trailer


def _call(address: str) -> bytes:
    """The client's side: preface, settings, one request with an empty message."""
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": _METHOD,
        ":authority": address,
        "content-type": "application/grpc",
        "te": "trailers",
    }
    fields = b"".join(b"\0" + _text(name) + _text(value) for name, value in headers.items())
    empty_message = bytes(5)
    return (
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        + _frame(_SETTINGS, 0, 0, b"")
        + _frame(_HEADERS, _END_HEADERS, 1, fields)
        + _frame(_DATA, _END_STREAM, 1, empty_message)
    )


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def _text(text: str) -> bytes:
    """A string literal without Huffman coding; 126 bytes at most, where longer lengths would need a second byte."""
    data = text.encode()[:126]
    return bytes([len(data)]) + data


def _last_headers(answer: BinaryIO) -> bytes:
    """The header block that ends the answer; what came instead when it is no HTTP/2."""
    first = True
    while len(head := answer.read(9)) == 9:
        length, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
        if first and kind != _SETTINGS:
            return head
        first = False
        payload = answer.read(length)
        if kind == _HEADERS and flags & _END_STREAM:
            return payload
    return head
