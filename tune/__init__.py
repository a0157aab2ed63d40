"""Ray Tune sweeps over the engine's jobs; the outermost room, imported by nothing.

`plan.py` holds the sweeps that come with Parley, `trial.py` what a sweep knows and keeps, `driver.py` the only code that
touches Ray Tune. Ray's own package of the same name is always written `from ray import tune as ray_tune`, so that the two
cannot be confused.
"""
