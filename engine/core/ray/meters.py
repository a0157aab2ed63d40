"""What Ray exports of a run while it is worked on: numbers for Prometheus, named `parley_...`, tagged by run and job, in ASCII.

They are kept by the driver, which hears of every shard anyway, so workers pay nothing for them; without a Ray session they are
not kept at all. A run's rows, not these, are what was found: the numbers are of one session, and end with it.
"""

from __future__ import annotations

import sys
from typing import Any
from urllib.parse import quote

COUNTERS = {
    "shards": "shards that came back, failed ones included",
    "items": "items of work that came back, failed ones included",
    "errors": "items that failed",
    "candidates": "inputs or sentences that attacks and searches tried",
    "hits": "targets of a search for which an input of the wanted type of hit was found",
    "dialogues": "dialogues that were played to their end",
}
"""What is counted, by name without `parley_`, and what it means; Ray exports them as `ray_parley_NAME_total`."""
GAUGES = {"items_left": "items of work that have not come back", "workers": "workers that have started"}
"""What goes up and down; Ray exports them as `ray_parley_NAME`."""
_TAGS = ("run", "job")


def ascii_text(text: str) -> str:
    """Return a text as Ray's metrics take it, other letters as percent codes such as those of a URL."""
    return "".join(letter if letter.isascii() else quote(letter, errors="surrogateescape") for letter in text)


class Meters:
    """The numbers of one run."""

    def __init__(self, run: str, job: str) -> None:
        self._counters: dict[str, Any] = {}
        self._gauges: dict[str, Any] = {}
        if "ray" not in sys.modules or not sys.modules["ray"].is_initialized():
            return
        from ray.util.metrics import Counter, Gauge

        tags = {"run": ascii_text(run), "job": ascii_text(job)}
        self._counters = {name: Counter(f"parley_{name}", text, _TAGS) for name, text in COUNTERS.items()}
        self._gauges = {name: Gauge(f"parley_{name}", text, _TAGS) for name, text in GAUGES.items()}
        for meter in (*self._counters.values(), *self._gauges.values()):
            meter.set_default_tags(tags)

    def add(self, **counts: int) -> None:
        """Counts on, by the names of `COUNTERS`."""
        for name, number in counts.items():
            assert name in COUNTERS, f"no counter is called {name}"
            # Ray counts up alone, and takes a zero for a mistake.
            if number and self._counters:
                self._counters[name].inc(number)

    def show(self, **values: int) -> None:
        """Sets the names of `GAUGES`."""
        for name, value in values.items():
            assert name in GAUGES, f"no gauge is called {name}"
            if self._gauges:
                self._gauges[name].set(value)
