"""The only RLlib code: the negotiation game and its learning (read `env.py` first), and edits of replies (`editing.py`)."""

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
    },
)
