"""What becomes of utterances on their way between two bots that look for the friend both have (niu2018, section 3.2).

    from parley.engine.mutual_friends import ChatKnowledge, ConfusedEntityChannel

Start with `strategies.py` for what is heard instead; `selectors.py` has bots that say nothing. The game and its lock-step loop
are `envs/mutual_friends`. Pure algorithms, without Ray.
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
