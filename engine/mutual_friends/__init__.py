"""Mutual friends: channels that change utterances between two bots that look for their common friend (niu2018, section 3.2).

    from parley.engine.mutual_friends import ChatKnowledge, ConfusedEntityChannel

`channels.py` changes what a listener hears. The game and its lock-step loop are `envs/mutual_friends`. Channels are pure
algorithms, without Ray.
"""

from parley.envs.core.errors import public

__all__, __getattr__ = public(
    __name__,
    {
        "ChatKnowledge": "channels",
        "ConfusedEntityChannel": "channels",
        "PerturbedChannel": "channels",
        "RandomChannel": "channels",
        "RandomSelector": "channels",
        "UnknownWordChannel": "channels",
        "MuteChannel": "channels",
    },
)
