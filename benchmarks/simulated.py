"""A trigger search without a model: rows like those of a real one, drawn from the item's own seed stream.

What a target's row holds, and how much of it, is that of a search; what it says is drawn. So what the pool costs is measured
with nothing beside it. Apart from `pool.py`, because Ray's workers import it by name.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from parley.engine.core.ray.record import Counts, Rows, Work
from parley.engine.core.ray.worker import Shard
from parley.engine.core.runs.parts import OK, SCHEMA_VERSION
from parley.envs.core.seeds import derive_seed, stream

SEED = 1
SWEEPS, INPUT_LENGTH, TARGET_LENGTH = 5, 14, 6
KINDS = tuple(f"{prefix}-sample-{statistic}-k{k}" for prefix in ("o", "io") for statistic in ("min", "avg") for k in (1, 2))
_WORDS = tuple(f"word{number}" for number in range(8192))
_NATS_PER_DRAW = 8.0


@dataclass
class Simulated:
    """Answers at once.

    Args:
        restarts: of the search for each target.
    """

    restarts: int

    def run(self, shard: Shard[int]) -> list[dict[str, Any]]:
        """One row per target."""
        return [trigger_row(key, self.restarts) for key in shard.keys]


@dataclass(frozen=True)
class SimulatedWork(Work[int]):
    """The same as work that is recorded.

    Args:
        restarts: of the search for each target.
    """

    restarts: int

    def seed(self, key: str) -> int:
        """Return the seed of a target."""
        return target_seed(key)

    def worker(self) -> Simulated:
        """Return a worker that answers at once."""
        return Simulated(self.restarts)

    def digest(self, rows: Rows) -> Counts:
        """Return no counts."""
        return Counter()


@dataclass
class Logged(Simulated):
    """Takes its time for each item, and writes a line: its machine, the shard, the key.

    Args:
        log: file of the lines.
        seconds: for an item.
    """

    log: str
    seconds: float

    def run(self, shard: Shard[int]) -> list[dict[str, Any]]:
        """One row per target."""
        import ray

        machine = ray.get_runtime_context().get_node_id()
        for key in shard.keys:
            time.sleep(self.seconds)
            with Path(self.log).open("a", encoding="ascii") as lines:
                lines.write(f"{machine} {shard.name} {key}\n")
        return super().run(shard)


@dataclass(frozen=True)
class LoggedWork(SimulatedWork):
    """The same as work that is recorded.

    Args:
        log: file of the lines.
        seconds: for an item.
    """

    log: str
    seconds: float

    def worker(self) -> Logged:
        """Return a worker that takes its time."""
        return Logged(self.restarts, self.log, self.seconds)


@dataclass
class Computing:
    """Multiplies matrices for a while before it answers.

    Args:
        products: how many of them for an item.
        width: of the matrices.
    """

    products: int
    width: int

    def run(self, shard: Shard[int]) -> list[dict[str, Any]]:
        """One row per target, whose loss is what was computed."""
        return [trigger_row(key, 1) | {"loss": self._loss(key)} for key in shard.keys]

    def _loss(self, key: str) -> float:
        matrix = stream(SEED, "matrix", key).standard_normal((self.width, self.width), dtype=np.float32)
        state = matrix
        for _ in range(self.products):
            state = np.tanh(state @ matrix)
        return float(np.abs(state).mean())


def target_seed(key: str) -> int:
    """Return the seed of an item."""
    return derive_seed(SEED, "simulated", key)


def trigger_row(key: str, num_restarts: int) -> dict[str, Any]:
    """Return a row of `parley.engine.triggers.verbs.config.TRIGGERS`."""
    seed = target_seed(key)
    rng = stream(seed, "row")
    words = rng.integers(len(_WORDS), size=(num_restarts, INPUT_LENGTH)).tolist()
    nats = rng.random((num_restarts + 1, SWEEPS + TARGET_LENGTH)) * -_NATS_PER_DRAW
    losses = -np.sort(nats[:num_restarts, : SWEEPS + 1], axis=1)
    restarts = [_restart(number, words[number], losses[number].tolist()) for number in range(num_restarts)]
    kept = min(restarts, key=lambda restart: float(restart["loss"]))
    target_nats = nats[num_restarts, :TARGET_LENGTH].tolist()
    return {
        "item_key": key,
        "status": OK,
        "error": None,
        "seed": seed,
        "schema_version": SCHEMA_VERSION,
        "target": " ".join(_WORDS[number] for number in words[0][:TARGET_LENGTH]),
        "trigger": kept["words"],
        "restart": kept["restart"],
        "loss": kept["loss"],
        "target_words": [_WORDS[number] for number in words[0][:TARGET_LENGTH]],
        "word_log_probability": target_nats,
        "likeliest": [nats_of_word > -1 for nats_of_word in target_nats],
        "input_log_probability": target_nats[0],
        "hits": kept["hits"],
        "restarts": restarts,
    }


def _restart(number: int, words: Sequence[int], losses: list[float]) -> dict[str, Any]:
    return {
        "restart": number,
        "words": " ".join(_WORDS[word] for word in words),
        "loss": losses[-1],
        "loss_by_sweep": losses,
        "sweeps": SWEEPS,
        "visits": SWEEPS * INPUT_LENGTH,
        "accepted": words[0] % (SWEEPS * INPUT_LENGTH),
        "candidates": SWEEPS * INPUT_LENGTH * 100,
        "stopped": "limit",
        "hits": [{"type": kind, "hit": losses[-1] < limit} for limit, kind in enumerate(KINDS)],
    }
