"""What the RLlib algorithms of all systems share. Read `reproducible.py` first, then `action_reinforce.py`."""

from parley.envs.core.errors import public

__all__, __getattr__ = public(__name__, {"ActionReinforce": "reproducible", "ActionReinforceConfig": "reproducible"})
