"""Which knobs: Ray Tune sweeps over the engine's jobs, the outermost room, imported by nothing.

Ray's own package of the same name is always written `from ray import tune as ray_tune`, so that the two cannot be confused.
"""
