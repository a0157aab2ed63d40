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
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
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


class _AfterImport:
    """An import hook that calls a function once a module is imported.

    Args:
        name: name of the module.
        action: function of the module.
    """

    def __init__(self, name: str, action: Callable[[ModuleType], None]) -> None:
        self._name, self._action, self._is_searching = name, action, False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return the spec of the module, which calls the function when it is loaded; None for any other module."""
        if name != self._name or self._is_searching:
            return None
        self._is_searching = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._is_searching = False
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_act(module: ModuleType) -> None:
                execute(module)
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                    self._action(module)

            setattr(spec.loader, "exec_module", execute_and_act)  # noqa: B010  # mypy refuses a method
        return spec


def after_import(name: str, action: Callable[[ModuleType], None]) -> Callable[[], None]:
    """Call a function of a module: at once if it is imported, else when it is.

    Args:
        name: name of the module.
        action: function of the module.

    Returns:
        A function that cancels the call.
    """
    if name in sys.modules:
        action(sys.modules[name])
        return lambda: None
    hook = _AfterImport(name, action)
    sys.meta_path.insert(0, hook)

    def cancel() -> None:
        if hook in sys.meta_path:
            sys.meta_path.remove(hook)

    return cancel


# The command line starts without Gymnasium.
after_import("gymnasium", lambda _: importlib.import_module("parley.envs").register_environments())
