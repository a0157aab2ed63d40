"""Search methods, one file each. Read `method.py` first, then `gibbs_enum.py`."""
