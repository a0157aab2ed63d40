"""Trigger search: inputs that make a dialogue model say a given sentence (He & Glass 2018). Pure algorithms, without Ray.

    from engine.triggers import GibbsEnum, search

Start with `attack.py` for a search in one call. Then `objective.py` for what is minimised and `hits.py` for what counts,
`scorer.py` for what a search asks of a model, and `gibbs_enum.py` for the paper's search. `catalogue.py` lists the methods;
one's own derives from `method.py`.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "attack": ("Trigger", "TriggerSearch", "search"),
    "beam": ("Beam",),
    "gcg": ("Gcg",),
    "gibbs_enum": ("GibbsEnum",),
    "hits": ("HitType", "Thresholds"),
    "hotflip": ("HotFlip",),
    "method": ("Method", "WordMethod"),
    "objective": ("TriggerObjective",),
    "random_search": ("RandomSearch",),
    "relaxation": ("Relaxation",),
    "settings": ("RelaxationSettings", "SearchSettings"),
    "victims": ("Seq2SeqVictim",),
}
_MODULES = {name: module for module, names in _HOMES.items() for name in names}
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    # Torch is loaded when a name that needs it is asked for, so that settings and help stay light.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
