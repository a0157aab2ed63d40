"""Attacks on dialogue agents as pure algorithms: torch and numpy, one process, no Ray.

`reinforce.py` is the learning rule of the RL attack, of goal-based agents and of hardened targets, `opponents.py` says whom a
learner meets; `transfer.py` plugs learned sentences in; `adversary.py` and below search for words.
"""

from parley.envs.core.errors import public

__all__, __getattr__ = public(
    __name__,
    {
        "Opponent": "attacks.opponents",
        "ReinforceConfig": "attacks.settings",
        "TrainingRoster": "attacks.opponents",
        "TransferAgent": "attacks.tactics",
    },
)
