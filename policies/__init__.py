"""Policies that speak, judge and rank: torch models, and their fitting, decoding and storage.

Read `negotiator/model.py` first; `core/checkpoint.py` stores every model, `core/gru.py` is the recurrent core they share.
"""

from parley.envs.core.errors import public

__all__, __getattr__ = public(
    __name__,
    {
        "agent_of": "negotiator.acts_agent",
        "load_agent": "negotiator.speaker",
        "load_ranker": "ranking.rankers",
        "load_responder": "core.responders",
        "scores_of": "ranking.ranker",
    },
)
