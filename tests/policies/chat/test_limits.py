"""Limits on requests: at once, a minute, in all, and what they cost; and connections that stay open."""

from __future__ import annotations

import dataclasses
import json
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from parley.envs.core.errors import LimitReachedError, OutOfRangeError
from parley.policies.chat.limits import SUMS
from parley.policies.chat.loading import load_chat_model
from parley.policies.chat.model import ANSWERS, Chat, ChatDecoding, Message
from parley.policies.chat.settings import ChatModelSettings
from tests.policies.chat.fake_server import Said, completion, serving

SETTINGS = ChatModelSettings(concurrency=8, timeout_s=20)
GREEDY = ChatDecoding(max_tokens=7)


def chats(num: int, begin: int = 0) -> list[Chat]:
    """Different questions."""
    return [(Message("user", f"question {begin + number}"),) for number in range(num)]


def yes(number: int, body: object) -> Said:
    return Said(completion("yes"))


def test_a_run_makes_no_more_requests_than_its_processes_may_together_and_a_resume_raises_that(tmp_path: Path) -> None:
    with serving(yes) as server:
        few = dataclasses.replace(SETTINGS, max_requests=5)
        first, second = (load_chat_model(server.name, few, answers=tmp_path) for _ in range(2))
        first.answer(chats(3), decoding=GREEDY)
        with pytest.raises(LimitReachedError, match=r"limit on requests(.|\n)*5 of 5(.|\n)*--max-requests 10"):
            second.answer(chats(9), decoding=GREEDY)
        assert len(server.asked) == 5
        assert len((tmp_path / ANSWERS).read_text().splitlines()) == 5, "what was answered is kept"
        more = load_chat_model(server.name, dataclasses.replace(SETTINGS, max_requests=9), answers=tmp_path)
        assert len(more.answer(chats(9), decoding=GREEDY)) == 9
        assert len(server.asked) == 9
    assert json.loads((tmp_path / SUMS).read_text())["requests"] == 9


def test_attempts_that_fail_count_as_requests(tmp_path: Path) -> None:
    with serving(lambda number, body: Said(b"no room", 500) if number < 2 else yes(number, body)) as server:
        model = load_chat_model(server.name, dataclasses.replace(SETTINGS, max_requests=3), answers=tmp_path)
        model.answer(chats(1), decoding=GREEDY)
        with pytest.raises(LimitReachedError):
            model.answer(chats(1, 1), decoding=GREEDY)


@pytest.mark.parametrize("usage", [True, False], ids=["tokens counted", "tokens estimated"])
def test_a_run_stops_at_its_cost(usage: bool, tmp_path: Path) -> None:
    body = completion("y" * 400)
    if not usage:
        body = json.dumps({"choices": [{"message": {"content": "y" * 400}, "finish_reason": "stop"}]}).encode()
    priced = dataclasses.replace(SETTINGS, concurrency=1, prices="0/1", max_cost=0.02)
    with serving(lambda number, asked: Said(body)) as server:
        model = load_chat_model(server.name, priced, answers=tmp_path)
        # 3 tokens cost 0.003, 400 letters are estimated to cost 0.1.
        with pytest.raises(LimitReachedError, match="estimated" if not usage else "limit on cost"):
            model.answer(chats(20), decoding=GREEDY)
        assert len(server.asked) == (7 if usage else 1)
    with pytest.raises(OutOfRangeError, match="prices=IN/OUT"):
        ChatModelSettings(max_cost=1.0)


def test_requests_a_minute_are_spread_over_processes(tmp_path: Path) -> None:
    times = []

    def note(number: int, body: object) -> Said:
        times.append(time.monotonic())
        return yes(number, body)

    paced = dataclasses.replace(SETTINGS, requests_per_minute=600)
    with serving(note) as server:
        models = [load_chat_model(server.name, paced, answers=tmp_path) for _ in range(2)]
        asking = [
            threading.Thread(target=model.answer, args=(chats(4, 4 * number),), kwargs={"decoding": GREEDY})
            for number, model in enumerate(models)
        ]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()
    assert len(times) == 8
    assert max(times) - min(times) > 0.6, "seven gaps of a tenth of a second, less what the first was late"


def test_a_busy_server_is_asked_less_at_once_and_then_more_again() -> None:
    def busy(number: int, body: dict[str, Any]) -> Said:
        return Said(b'{"error": {"message": "slow down"}}', 429, slow_s=0.05) if number < 8 else Said(completion("yes"))

    with serving(busy) as server:
        model = load_chat_model(server.name, SETTINGS)
        limits = model.limits  # type: ignore[attr-defined]
        lowered = []
        lower = limits.lower
        limits.lower = lambda era: (lower(era), lowered.append(limits.at_once))
        model.answer(chats(8), decoding=GREEDY)
        assert min(lowered) < 8, "requests under way together lower it once"
        assert min(lowered) >= 1
        model.answer(chats(60, 10), decoding=GREEDY)
        assert limits.at_once == 8


@contextmanager
def keeping_server() -> Iterator[tuple[str, list[int]]]:
    """A server of HTTP/1.1 that closes each connection after three answers unannounced; yields their questions."""
    asked: list[int] = []

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            index = len(asked)
            asked.append(0)
            for _ in range(3):
                size = 0
                while line := self.rfile.readline().strip():
                    if line.lower().startswith(b"content-length:"):
                        size = int(line.split(b":")[1])
                if not size:
                    return
                self.rfile.read(size)
                asked[index] += 1
                body = completion("yes")
                self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"openai:http://127.0.0.1:{server.server_address[1]}/v1#m", asked
        server.shutdown()


def test_a_connection_is_used_again_and_one_that_was_closed_meanwhile_costs_no_attempt() -> None:
    with keeping_server() as (address, asked):
        model = load_chat_model(address, dataclasses.replace(SETTINGS, concurrency=1, max_attempts=1))
        answers = model.answer(chats(8), decoding=GREEDY)
        assert [(answer.text, answer.failed_attempts) for answer in answers] == [("yes", 0)] * 8
        assert asked == [3, 3, 2]
