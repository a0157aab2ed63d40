"""Negotiators as an RLlib algorithm. Read `env.py` first, then `algorithm.py`."""

from parley.envs.core.errors import public

__all__, __getattr__ = public(
    __name__,
    {
        "ActorCriticNegotiator": "learner",
        "DialogueReinforce": "algorithm",
        "DialogueReinforceConfig": "algorithm",
        "NegotiationMultiAgentEnv": "env",
        "NegotiatorModule": "learner",
    },
)
