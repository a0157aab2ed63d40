"""The shared base of the RLlib algorithms of all systems. Read `reproducible.py` first, then `distributed_rollouts.py`."""

from parley.envs.core.errors import public

__all__, __getattr__ = public(__name__, {"ActionReinforce": "reproducible", "ActionReinforceConfig": "reproducible"})
