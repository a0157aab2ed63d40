"""Negotiators as an RLlib algorithm. Read `env.py` first, then `algorithm.py`."""

from parley.envs.core.lazy import public

__all__, __getattr__ = public(
    __name__,
    {
        "ActorCriticNegotiator": "actor_critic",
        "DialogueReinforce": "algorithm",
        "DialogueReinforceConfig": "algorithm",
        "NegotiationMultiAgentEnv": "env",
        "NegotiatorModule": "module",
    },
)
