"""What the files and folders of a run are called."""

from __future__ import annotations

CONFIG, ENVIRONMENT, EVENTS, SUMMARY, ROWS = "config.json", "environment.json", "events.jsonl", "summary.json", "rows"
UNFINISHED = "unfinished"
"""Folder of what shards under way are gone on from."""
BEGUN = "begun.json"
"""Which shards a process without actors works on; there while it does."""
LOG, LEASE = "log", "lease.json"
"""At a URI alone: the event log, in segments, and who writes the run."""
