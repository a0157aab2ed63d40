"""Negotiation: attacks, defences, metrics, training and verbs.

`attacks/` holds the algorithms, on torch and numpy in one process without Ray. Read `attacks/reinforce.py` first, the rule by
which agents learn; `attacks/opponents.py` draws their opponents, and `attacks/adversary.py` searches for words.
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
