"""Replies to recorded contexts, judged as human or not: `parley/Reply-v1` and its two-sided form. Read `game.py` first."""

from parley.envs.core.errors import public

__all__, __getattr__ = public(
    __name__,
    {"ReplyEnv": "reply_env", "ReplyGame": "game", "ReplyJudge": "game", "ReplyRules": "game", "RecordedOverlap": "game"},
)
