"""The only RLlib code: both sides of the game as a multi-agent environment, and their learning. Read `env.py` first."""

from envs.core.lazy import public

__all__, __getattr__ = public(
    __name__,
    {
        "DialogueReinforce": "algorithm",
        "DialogueReinforceConfig": "algorithm",
        "NegotiationMultiAgentEnv": "env",
        "NegotiatorModule": "module",
    },
)
