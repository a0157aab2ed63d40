"""Servers that break HTTP itself, byte by byte: each ends with one clear error, or with the answer; none hangs."""

from __future__ import annotations

import gzip
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from parley.envs.core.errors import ModelError
from parley.policies.chat.loading import load_chat_model
from parley.policies.chat.model import ChatDecoding, Message
from parley.policies.chat.settings import ChatModelSettings
from tests.policies.chat.fake_server import completion

QUICK = ChatModelSettings(max_attempts=2, timeout_s=1.5, concurrency=2)
GREEDY = ChatDecoding(max_tokens=8)
BODY = completion("hello")
LENGTH = b"Content-Length: %d\r\n" % len(BODY)


def whole(head: bytes, body: bytes = BODY) -> bytes:
    return b"HTTP/1.1 " + head + b"\r\n" + body


@contextmanager
def raw_server(says: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that reads a request and does to its connection what a test says, again and again; yields its address."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=64)

    def answer(connection: socket.socket) -> None:
        with connection:
            try:
                while b"\r\n\r\n" in connection.recv(65536):
                    says(connection)
            except OSError:
                pass

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"openai:http://127.0.0.1:{listening.getsockname()[1]}/v1#m"
    finally:
        listening.close()


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def endless(start: bytes, again: bytes) -> Callable[[socket.socket], None]:
    def say(connection: socket.socket) -> None:
        connection.sendall(start)
        while True:
            connection.sendall(again)

    return say


def slowly(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    time.sleep(9)


def says(data: bytes, then: Callable[[socket.socket], None] = lambda connection: None) -> Callable[[socket.socket], None]:
    def say(connection: socket.socket) -> None:
        connection.sendall(data)
        then(connection)

    return say


def end(connection: socket.socket) -> None:
    connection.shutdown(socket.SHUT_RDWR)


ANSWERED = {
    "in chunks": whole(b"200 OK\r\nTransfer-Encoding: chunked\r\n", b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)),
    "after a word to wait": b"HTTP/1.1 100 Continue\r\n\r\n" + whole(b"200 OK\r\n" + LENGTH),
    "without a reason": whole(b"200\r\n" + LENGTH),
    "with more than it promised": whole(b"200 OK\r\n" + LENGTH, BODY + b"and more"),
    "twice": 2 * whole(b"200 OK\r\n" + LENGTH),
    "with a mark of its order": whole(b"200 OK\r\nContent-Length: %d\r\n" % (len(BODY) + 3), b"\xef\xbb\xbf" + BODY),
}
BROKEN: dict[str, tuple[Callable[[socket.socket], None], str]] = {
    "no HTTP": (says(b"220 mail.example.com ESMTP\r\n", end), "BadStatusLine"),
    "noise": (says(bytes(range(256)), end), "BadStatusLine"),
    "nothing": (end, "RemoteDisconnected"),
    "a reset": (reset, "reset|Disconnected"),
    "a reset within the answer": (says(whole(b"200 OK\r\n" + LENGTH)[:-9], reset), "broke off"),
    "a status that is no number": (says(whole(b"fine OK\r\n" + LENGTH), end), "BadStatusLine"),
    "headers without an end": (endless(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"), "headers|in time"),
    "a header without an end": (endless(b"HTTP/1.1 200 OK\r\nX: ", b"y" * 9000), "LineTooLong"),
    "a size of a chunk that is no number": (
        says(whole(b"200 OK\r\nTransfer-Encoding: chunked\r\n", b"zz\r\nhello\r\n"), end),
        "IncompleteRead|broke off",
    ),
    "a chunk that is cut": (says(whole(b"200 OK\r\nTransfer-Encoding: chunked\r\n", b"ff\r\nhello"), end), "broke off"),
    "a body without an end": (endless(whole(b"200 OK\r\n", b""), b" " * 2**20), "too long"),
    "half a head, and silence": (slowly, "in time"),
    "pressed bytes that nobody asked for": (
        says(whole(b"200 OK\r\nContent-Encoding: gzip\r\nConnection: close\r\n", gzip.compress(BODY)), end),
        "no JSON",
    ),
    "bytes of nothing": (says(whole(b"200 OK\r\nContent-Length: 99\r\n", b"\0" * 99)), "no JSON"),
    "no content": (says(whole(b"204 No Content\r\nContent-Length: 0\r\n", b"")), "answers nothing"),
    "a size below nothing": (says(whole(b"200 OK\r\nContent-Length: -5\r\n"), end), "hello"),
}


@pytest.mark.parametrize("name", ANSWERED)
def test_odd_answers_are_read_and_each_question_gets_its_own(name: str) -> None:
    with raw_server(says(ANSWERED[name])) as address:
        model = load_chat_model(address, QUICK)
        answers = model.answer([(Message("user", f"question {number}"),) for number in range(6)], decoding=GREEDY)
    assert [answer.text for answer in answers] == ["hello"] * 6


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_server_is_told_in_time(name: str) -> None:
    say, told = BROKEN[name]
    began = time.monotonic()
    with raw_server(say) as address:
        if told == "hello":
            (answer,) = load_chat_model(address, QUICK).answer([(Message("user", "hi"),)], decoding=GREEDY)
            assert answer.text == told
        else:
            with pytest.raises(ModelError, match=told) as raised:
                load_chat_model(address, QUICK).answer([(Message("user", "hi"),)], decoding=GREEDY)
            assert raised.value.where == address
            assert raised.value.fix
    assert time.monotonic() - began < 20 * QUICK.timeout_s, "two attempts, and no more"
