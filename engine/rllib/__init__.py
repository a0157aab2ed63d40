"""The only RLlib code: negotiation (read `env.py` first), edits of replies (`editing.py`), whole replies (`replies.py`)."""

from envs.core.lazy import public

__all__, __getattr__ = public(
    __name__,
    {
        "DialogueReinforce": "algorithm",
        "DialogueReinforceConfig": "algorithm",
        "EditorModule": "editing",
        "EditorReinforce": "editing",
        "EditorReinforceConfig": "editing",
        "NegotiationMultiAgentEnv": "env",
        "NegotiatorModule": "module",
        "ReplyMinMax": "replies",
        "ReplyMinMaxConfig": "replies",
        "ReplyMultiAgentEnv": "replies_env",
    },
)
