"""Trigger search: inputs that make a dialogue model say a given sentence (He & Glass 2018). Pure algorithms, without Ray.

    from parley.engine.triggers import GibbsEnum, search

Start with `searches/attack.py` for a search in one call. Then `methods/objective.py` for the loss and `hits.py` for the types
of hit, `scorers/scorer.py` for the interface to a model, and `methods/gibbs_enum.py` for the paper's search. `catalogue.py`
lists the methods; a method of one's own derives from `methods/method.py`.
"""

from parley.envs.core.errors import public

__all__, __getattr__ = public(
    __name__,
    {
        "Arca": "methods.arca",
        "AutoPrompt": "methods.hotflip",
        "Beam": "methods.beam",
        "Beast": "methods.beam",
        "Gcg": "methods.gcg",
        "GibbsEnum": "methods.gibbs_enum",
        "HitType": "hits",
        "HotFlip": "methods.hotflip",
        "Method": "methods.method",
        "Pez": "methods.pez",
        "RandomSearch": "methods.gibbs_enum",
        "Relaxation": "methods.relaxation",
        "RelaxationSettings": "methods.settings",
        "SearchSettings": "methods.settings",
        "Seq2SeqVictim": "victims",
        "Thresholds": "hits",
        "Trigger": "searches.attack",
        "TriggerObjective": "methods.objective",
        "TriggerSearch": "searches.attack",
        "UniversalVictim": "searches.batch",
        "WordMethod": "methods.method",
        "search": "searches.attack",
    },
)
