"""What was handed to Ray's meters, seen at Ray's own interface."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import pytest


@dataclass
class Metered:
    """Sums of counters and last values of gauges, by (run, job) and Ray's name of the meter."""

    seen: dict[tuple[str, str], dict[str, float]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(float)))

    def of(self, run: str, job: str) -> dict[str, float]:
        """The numbers of a run."""
        return dict(self.seen[run, job])


def watch(patch: pytest.MonkeyPatch) -> Metered:
    """Listens to every counter and gauge from now on, Ray's own included."""
    from ray.util.metrics import Counter, Gauge

    found, inc, put = Metered(), Counter.inc, Gauge.set

    def place(meter: Any) -> dict[str, float]:
        tags = meter.info["default_tags"]
        return found.seen[tags.get("run", ""), tags.get("job", "")]

    def add(meter: Any, value: float = 1.0, tags: Any = None) -> None:
        inc(meter, value, tags)
        place(meter)[meter.info["name"]] += value

    def show(meter: Any, value: float, tags: Any = None) -> None:
        put(meter, value, tags)
        place(meter)[meter.info["name"]] = value

    patch.setattr(Counter, "inc", add)
    patch.setattr(Gauge, "set", show)
    return found
