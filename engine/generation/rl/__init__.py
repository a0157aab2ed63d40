"""Adversarial REINFORCE and REGS as an RLlib algorithm. Read `replies.py` first."""

from parley.envs.core.errors import public

__all__, __getattr__ = public(
    __name__, {"ReplyMinMax": "replies", "ReplyMinMaxConfig": "replies", "ReplyMultiAgentEnv": "reply_modules"}
)
