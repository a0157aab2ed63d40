"""Disturbances of runs: processes killed in the middle, clocks set back, full disks; `make chaos` counts what is lost."""
