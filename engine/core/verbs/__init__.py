"""Jobs: the verbs of the command line, and the frame that runs them.

Read `job.py` first: it defines a job. `catalogue.py` lists all jobs.
"""

import importlib
from typing import Any

# `parley --help` reads the list of jobs and must not wait for Gymnasium, so this does not use
# `parley.envs.core.errors.public` as other packages do.
_NAMES = {"check_part": "api", "run_verb": "api"}
__all__ = [*_NAMES]


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_NAMES[name]}"), name)
