"""Trigger search: inputs that make a dialogue model say a given sentence (He & Glass 2018). Pure algorithms, without Ray.

    from parley.engine.triggers import GibbsEnum, search

Start with `attack.py` for a search in one call. Then `objective.py` for what is minimised and `hits.py` for what counts,
`scorer.py` for what a search asks of a model, and `gibbs_enum.py` for the paper's search. `catalogue.py` lists the methods;
one's own derives from `method.py`.
"""

from parley.envs.core.lazy import public

__all__, __getattr__ = public(
    __name__,
    {
        "Arca": "arca",
        "AutoPrompt": "autoprompt",
        "Beam": "beam",
        "Beast": "beast",
        "Gcg": "gcg",
        "GibbsEnum": "gibbs_enum",
        "HitType": "hits",
        "HotFlip": "hotflip",
        "Method": "method",
        "Pez": "pez",
        "RandomSearch": "random_search",
        "Relaxation": "relaxation",
        "RelaxationSettings": "settings",
        "SearchSettings": "settings",
        "Seq2SeqVictim": "victims",
        "Thresholds": "hits",
        "Trigger": "attack",
        "TriggerObjective": "objective",
        "TriggerSearch": "attack",
        "UniversalVictim": "universal",
        "WordMethod": "method",
        "search": "attack",
    },
)
