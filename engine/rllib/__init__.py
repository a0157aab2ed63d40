"""The only RLlib code: negotiation (read `env.py` first), replies (`replies.py`), edits and lies (`choosing.py`)."""

from parley.envs.core.lazy import public

__all__, __getattr__ = public(
    __name__,
    {
        "ActorCriticNegotiator": "actor_critic",
        "ChoiceReinforce": "choosing",
        "ChoiceReinforceConfig": "choosing",
        "DialogueReinforce": "algorithm",
        "DialogueReinforceConfig": "algorithm",
        "EditorModule": "editing",
        "NegotiationMultiAgentEnv": "env",
        "NegotiatorModule": "module",
        "ReplyMinMax": "replies",
        "ReplyMinMaxConfig": "replies",
        "ReplyMultiAgentEnv": "replies_env",
    },
)
