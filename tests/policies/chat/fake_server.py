"""A server of OpenAI's protocol in a thread, which says what its test wrote down for it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def completion(text: str | None, reason: str = "stop", **more: Any) -> bytes:
    usage = {"prompt_tokens": 7, "completion_tokens": 3}
    return json.dumps({"choices": [{"message": {"content": text, **more}, "finish_reason": reason}], "usage": usage}).encode()


@dataclass
class Said:
    """One response."""

    body: bytes
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    promised: int | None = None
    """Bytes that the header says there are, where it lies."""
    slow_s: float = 0.0
    drip_s: float = 0.0
    """Seconds between two bytes."""
    headers_drip_s: float = 0.0
    """The same before the body."""


@dataclass
class FakeServer:
    """What is asked of it, and what it says.

    Args:
        says: of the number of a request and its body.
    """

    says: Callable[[int, dict[str, Any]], Said]
    asked: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    most_at_once: int = 0
    url: str = ""

    @property
    def name(self) -> str:
        """Its address as a chat model."""
        return self.named("fake")

    def named(self, model: str) -> str:
        """Return its address with another model; `answer_kinds.play` answers by the model's name."""
        return f"openai:{self.url}/v1#{model}"


@contextmanager
def serving(says: Callable[[int, dict[str, Any]], Said]) -> Iterator[FakeServer]:
    """A server while the block runs."""
    fake, lock, now = FakeServer(says), threading.Lock(), [0]

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            self.do_POST()

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
            with lock:
                number = len(fake.asked)
                fake.asked.append(body)
                fake.headers.append(dict(self.headers))
                fake.paths.append(self.path)
                now[0] += 1
                fake.most_at_once = max(fake.most_at_once, now[0])
            try:
                said = fake.says(number, body)
                time.sleep(said.slow_s)
            finally:  # before the answer goes out: who has it may already ask again
                with lock:
                    now[0] -= 1
            try:
                self.send_response(said.status)
                for key, value in said.headers.items():
                    self.send_header(key, value)
                self.send_header("Content-Length", str(len(said.body) if said.promised is None else said.promised))
                if said.headers_drip_s:
                    for byte in b"".join([*self._headers_buffer, b"\r\n"]):
                        self.wfile.write(bytes([byte]))
                        time.sleep(said.headers_drip_s)
                    self._headers_buffer.clear()
                else:
                    self.end_headers()
                if said.drip_s:
                    for place in range(len(said.body)):
                        self.wfile.write(said.body[place : place + 1])
                        time.sleep(said.drip_s)
                else:
                    self.wfile.write(said.body)
            except (BrokenPipeError, ConnectionResetError):
                pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    fake.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
