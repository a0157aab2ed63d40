"""Limits on the requests to a chat model: at once, a minute, in all, and what they cost.

`chat.concurrency` is the most that are asked at once. A server that is busy (429, 503, or words of a description that mean it)
halves the number for this model, and each answer raises it again, by one for as many answers as are asked at once.

The other limits count a run: its processes share the sums in a file beside its answers, so that they hold over several workers
on one file system, and over a resume. Attempts that fail count as requests. Where a server does not say how many tokens it read
and wrote, they are estimated from letters. Answers under way when a limit on cost is reached are still paid for.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from parley.envs.core.errors import LimitReachedError, RunError
from parley.envs.core.storage.uris import locked
from parley.policies.chat.model import SCORED, Answer, Chat
from parley.policies.chat.settings import ChatModelSettings

SUMS = "requests.json"
"""Name of the file in a folder of answers that holds the sums."""
MAX_REQUESTS, MAX_COST = "--max-requests", "--max-cost"
LETTERS_A_TOKEN = 4
"""Letters of a token where its number is not known."""
_LOOK_S = 0.2
"""Seconds after which a waiting thread looks whether it shall stop."""


class StoppedError(Exception):
    """An error for a request that is not made because another one failed."""


class RequestLimits:
    """The limits on requests to one model, for all threads of a process.

    Args:
        name: address of the model.
        settings: the limits, and the prices.

    Attributes:
        folder: folder of a run's answers, where the sums are kept; None keeps them in this process.
    """

    def __init__(self, name: str, settings: ChatModelSettings) -> None:
        self._name, self._settings, self.folder = name, settings, None
        self._sums: dict[str, Any] = {}
        self._changed = threading.Condition()
        self._at_once, self._under_way, self._num_lowered = float(settings.concurrency), 0, 0
        self._counts = bool(settings.max_requests or settings.max_cost or settings.requests_per_minute)

    folder: Path | None

    @property
    def at_once(self) -> int:
        """The number of requests that are made at once now."""
        return int(self._at_once)

    @contextmanager
    def request(self, stop: threading.Event) -> Iterator[None]:
        """Make one request in a block, once the limits allow it; `lower` in the block says that the server is busy.

        Raises:
            LimitReachedError: no further request is allowed.
            StoppedError: `stop` was set before.
        """
        with self._changed:
            while self._under_way >= self.at_once:
                self._changed.wait(_LOOK_S)
                if stop.is_set():
                    raise StoppedError
            self._under_way += 1
        try:
            if self._counts:
                self._wait_for_turn(stop)
            yield
            with self._changed:
                self._at_once = min(float(self._settings.concurrency), self._at_once + 1 / self._at_once)
        finally:
            with self._changed:
                self._under_way -= 1
                self._changed.notify()

    @property
    def era(self) -> int:
        """The number of times that requests at once were lowered; a request that began before counts no more."""
        return self._num_lowered

    def lower(self, era: int) -> None:
        """Halve the requests at once, unless that was done since the request began."""
        with self._changed:
            if era == self._num_lowered:
                self._num_lowered += 1
                self._at_once = max(1.0, self._at_once / 2)

    def _wait_for_turn(self, stop: threading.Event) -> None:
        settings, wait_s = self._settings, 0.0
        with self._open() as sums:
            most, cost = settings.max_requests, sums["cost"]
            if most and sums["requests"] >= most:
                got = f"{sums['requests']:,} of {most:,} requests are made"
                raise self._reached("requests", got, MAX_REQUESTS, 2 * most)
            if settings.max_cost and cost >= settings.max_cost:
                guess = f", of which {sums['estimated']:,} answers are estimated, because the server does not say their tokens"
                got = f"{cost:,.4g} of {settings.max_cost:,.4g} is spent{guess * bool(sums['estimated'])}"
                raise self._reached("cost", got, MAX_COST, 2 * settings.max_cost)
            sums["requests"] += 1
            if settings.requests_per_minute:
                now = time.time()
                turn = max(now, sums["turns"].get(self._name, 0.0))
                sums["turns"][self._name] = turn + 60 / settings.requests_per_minute
                wait_s = turn - now
        if wait_s > 0 and stop.wait(wait_s):
            with self._open() as sums:
                sums["requests"] -= 1
            raise StoppedError

    def pay(self, chat: Chat, answer: Answer) -> None:
        """Add the cost of an answer, if cost is limited."""
        price_in, price_out = self._settings.prices_of(self._name)
        if not self._settings.max_cost:
            return
        letters = sum(len(message.content) for message in chat), len(answer.text + answer.reasoning)
        # A given reply is read, and one token is written behind it.
        letters = (sum(letters), LETTERS_A_TOKEN) if answer.finish_reason == SCORED else letters
        counts = answer.num_prompt_tokens, answer.num_tokens
        read, written = (
            most / LETTERS_A_TOKEN if number is None else number for number, most in zip(counts, letters, strict=True)
        )
        with self._open() as sums:
            sums["cost"] += (read * price_in + written * price_out) / 1000
            sums["estimated"] += None in counts

    def _reached(self, what: str, got: str, flag: str, more: float) -> LimitReachedError:
        fix = f"{flag} {more:g} raises it; what is answered is kept"
        return LimitReachedError(f"the limit on {what} is reached", where=self._name, got=got, fix=fix)

    @contextmanager
    def _open(self) -> Iterator[dict[str, Any]]:
        """Provide the sums of all processes, to be changed within a `with` block."""
        begun = {"requests": 0, "cost": 0.0, "estimated": 0, "turns": {}}
        if self.folder is None:
            with self._changed:
                yield self._sums.setdefault("sums", begun)
            return
        path = self.folder / SUMS
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            raise RunError("requests cannot be counted", where=path, got=error.strerror, fix="make room or mend it") from None
        with os.fdopen(descriptor, "r+") as file, locked(descriptor):
            try:
                sums = begun | json.load(file)
            except ValueError:
                sums = begun
            yield sums
            file.seek(0)
            json.dump(sums, file)
            file.truncate()
            file.flush()
