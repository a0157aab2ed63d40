"""The public names of Parley in one namespace.

A name is imported at its first use; `dir(parley)` lists all names. The `__init__` of each folder lists its own, and names the
file to read first. `import parley` registers the environments with Gymnasium, as in `gymnasium.make("parley/Negotiation-v1")`.

    import parley

    parley.perturb_texts(["can you help me ?"], "random-swap")
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any

_ROOMS = (
    "envs",
    "envs.ranking",
    "envs.mutual_friends",
    "policies",
    "engine.negotiation",
    "engine.triggers",
    "engine.perturb",
    "engine.ranking",
    "engine.generation",
    "engine.core.stats",
    "engine.negotiation.metrics",
    "engine.triggers.metrics",
    "engine.perturb.metrics",
    "engine.core.runs",
    "engine.core.rllib",
    "engine.negotiation.rl",
    "engine.generation.rl",
    "engine.core.verbs",
    "engine.negotiation.verbs",
)


def __getattr__(name: str) -> Any:
    for room in _ROOMS:
        module = importlib.import_module(f"parley.{room}")
        if name in module.__all__:
            return getattr(module, name)
    raise AttributeError(f"module 'parley' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(name for room in _ROOMS for name in importlib.import_module(f"parley.{room}").__all__)


class _AfterGymnasium:
    """An import hook that registers the environments once Gymnasium is imported, so the command line starts without it."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
        """Return the spec of Gymnasium, which registers the environments when it is loaded; None for any other module."""
        if name != "gymnasium":
            return None
        sys.meta_path.remove(_AfterGymnasium)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_register(module: Any) -> None:
                execute(module)
                importlib.import_module("parley.envs")

            setattr(spec.loader, "exec_module", execute_and_register)  # noqa: B010  # mypy refuses a method
        return spec


if "gymnasium" in sys.modules:
    importlib.import_module("parley.envs")
else:
    sys.meta_path.insert(0, _AfterGymnasium)
