"""Jobs: the verbs of the command line, and the frame that runs them.

Read `job.py` first: it defines a job. `catalogue.py` lists all jobs.
"""

from parley.envs.core.errors import public

__all__, __getattr__ = public(__name__, {"check_part": "api", "run_verb": "api"})
