"""Jobs: one verb of the command line each, a configuration and a function that runs it. Read `data.py` first."""
