"""Who speaks: torch models, how they are fitted, decoded and saved.

Read `negotiator/model.py` first; `checkpoint.py` is how every model is stored, `gru.py` the recurrent core they share.
"""

from parley.envs.core.errors import public

__all__, __getattr__ = public(
    __name__,
    {
        "load_agent": "negotiator.speaker",
        "load_ranker": "ranking.rankers",
        "load_responder": "core.responders",
        "scores_of": "ranking.ranker",
    },
)
