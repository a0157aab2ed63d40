"""The world: corpora, rules, rewards and Gymnasium environments, on numpy, gymnasium and pyarrow alone.

Importing this package registers the ids of `registration.py` with Gymnasium. Read `negotiation/game.py` first.
"""

from parley.envs.registration import IDS, register_environments

__all__ = ["IDS"]

register_environments()
