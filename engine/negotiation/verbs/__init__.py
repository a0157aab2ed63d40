"""Jobs of negotiation (cheng2019): plays, trainings, attacks and campaigns. Read `match.py` first, then `training.py`."""

from parley.envs.core.errors import public

__all__, __getattr__ = public(__name__, {"make_agent": "agents", "play_dialogues": "play"})
