"""What becomes of utterances on their way between two bots that look for the friend both have (niu2018, section 3.2).

    from parley.engine.collaboration import ChatKnowledge, ConfusedHearing

Start with `strategies.py` for what is heard instead; `selectors.py` has bots that say nothing. The game and its lock-step loop
are `envs/friends`. Pure algorithms, without Ray.
"""

from parley.envs.core.lazy import public

__all__, __getattr__ = public(
    __name__,
    {
        "ChatKnowledge": "strategies",
        "ConfusedHearing": "strategies",
        "PerturbedHearing": "strategies",
        "RandomHearing": "strategies",
        "RandomSelector": "selectors",
        "StrangeHearing": "strategies",
        "Unheard": "strategies",
    },
)
