"""Parley from Python: the public names of all rooms under one name that clashes with nothing.

Nothing is defined here, and a name is imported when it is first asked for. `dir(parley)` lists them; each room's own
`__init__` says which they are and in which file to read on. Importing it makes the environments known to Gymnasium, as
`gymnasium.make("parley/Negotiation-v1")`.

    import parley

    parley.perturb_texts(["can you help me ?"], "random-swap,antonym")
"""

from __future__ import annotations

import importlib
from typing import Any

import envs  # noqa: F401  # registers the environments

_ROOMS = (
    "envs",
    "envs.candidates",
    "envs.friends",
    "policies",
    "engine.negotiation",
    "engine.triggers",
    "engine.perturb",
    "engine.retrieval",
    "engine.generation",
    "engine.metrics",
    "engine.metrics.negotiation",
    "engine.metrics.triggers",
    "engine.metrics.perturb",
    "engine.store",
    "engine.rllib",
    "engine.jobs",
    "engine.jobs.negotiation",
)


def __getattr__(name: str) -> Any:
    for room in _ROOMS:
        module = importlib.import_module(room)
        if name in module.__all__:
            return getattr(module, name)
    raise AttributeError(f"module 'parley' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(name for room in _ROOMS for name in importlib.import_module(room).__all__)
