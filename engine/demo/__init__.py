"""The demonstration, the one verb that imports all systems. Read `demo.py` first."""
