"""Speed against plain reference implementations, written here in the style a researcher would, in the same process.

`python -m benchmarks.NAME --quick` ends within a minute and prints one JSON line: what was measured, the ratio and
whether the results are identical. `python -m benchmarks --all --quick` prints one table of all (`__main__.py`).
Read `selfplay.py` first; `measure.py` is what all of them share.
"""
