"""Run folders: the configuration, rows, events and summary of a run, and how a stopped run resumes.

Read `run_folder.py` first; `parts.py` holds the columns and files of rows, `documents.py` the JSON files and their atomic
writes, `remote_sync.py` locks and runs at URIs. No Ray, no torch.
"""

from parley.envs.core.errors import public

__all__, __getattr__ = public(__name__, {"RunFolder": "run_folder"})
