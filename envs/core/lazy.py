"""Public names of a package that are imported when they are first asked for, so that a package's door stays light."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def public(package: str, names: Mapping[str, str]) -> tuple[list[str], Callable[[str], Any]]:
    """What a package puts into `__all__` and `__getattr__`.

    Args:
        package: its `__name__`.
        names: the module of the package in which each public name stands, such as {"GibbsEnum": "gibbs_enum"}.

    Returns:
        The sorted names, and a function that imports one; a name is imported once.
    """

    def get(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(importlib.import_module(f"{package}.{names[name]}"), name)
        setattr(sys.modules[package], name, found)
        return found

    return sorted(names), get
