"""Ranking: contexts with right and wrong candidate replies, for models that rank. Read `groups.py` first.

A corpus is opened by its name, by the path of a file of rows, or by the name of a corpus of pairs:

    from parley.envs.ranking import CandidateOptions, load_candidates

    test = load_candidates("helpdesk", options=CandidateOptions(negatives="half")).splits["test"]
    test[0].context, test[0].candidates, test[0].labels
"""

from parley.envs.core.errors import public

__all__, __getattr__ = public(
    __name__,
    {
        "CandidateGroup": "groups",
        "CandidateOptions": "groups",
        "EditRules": "edit_game",
        "ReplyPool": "groups",
        "ResponseRankingEnv": "ranking_env",
        "load_candidates": "compiled",
    },
)
