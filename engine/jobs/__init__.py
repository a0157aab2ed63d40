"""Jobs: one verb of the command line each, a configuration and a function that runs it.

Read `job.py` for what a job is and `catalogue.py` for the list of them.
"""

from envs.core.lazy import public

__all__, __getattr__ = public(
    __name__,
    {
        "check_part": "conformance",
    },
)
