"""Data verbs: what `parley data list|get|info|check` do. Read `data.py` first."""
