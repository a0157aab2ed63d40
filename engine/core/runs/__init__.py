"""Run folders: what a run was asked to do, what it did, and how it goes on after it was stopped.

Read `run_folder.py` first; `schemas.py` holds the columns of the rows, `parts.py` one file of rows, `documents.py`
atomic writes. No Ray, no torch.
"""

from parley.envs.core.errors import public

__all__, __getattr__ = public(__name__, {"RunFolder": "run_folder"})
