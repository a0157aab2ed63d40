"""Jobs: one verb of the command line each, a configuration and a function that runs it.

Read `job.py` for what a job is and `catalogue.py` for the list of them.
"""

import importlib
from typing import Any

# Not by `parley.envs.core.errors` as elsewhere: the list of jobs is read for `parley --help`, which must not wait for
# Gymnasium.
_NAMES = {"check_part": "api", "run_verb": "api"}
__all__ = [*_NAMES]


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_NAMES[name]}"), name)
