"""Jobs: one verb of the command line each, a configuration and a function that runs it.

Read `job.py` for what a job is and `catalogue.py` for the list of them.
"""

from typing import Any

__all__ = ["check_part"]


def __getattr__(name: str) -> Any:
    # Not by `envs.core.lazy` as elsewhere: the list of jobs is read for `parley --help`, which must not wait for Gymnasium.
    if name != "check_part":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from engine.jobs.conformance import check_part

    return check_part
