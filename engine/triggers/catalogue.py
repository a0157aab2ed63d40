"""The searches by name.

One is a class that is called with (scorer, settings, satisfied=, initial=), as `engine/triggers/method.py` has it. The
continuous relaxation is none of them: it never holds words (`engine/triggers/relaxation.py`).
"""

from __future__ import annotations

from envs.core.registry import Registry

searches = Registry("search", "parley.searches")
searches.register(
    "gibbs-enum",
    "position by position, the best of the steepest words (He & Glass 2018)",
    "engine.triggers.gibbs_enum:GibbsEnum",
)
searches.register("random", "fresh random inputs, the best kept", "engine.triggers.random_search:RandomSearch")
searches.register(
    "hotflip", "several words at once by first-order change (Ebrahimi et al. 2018)", "engine.triggers.hotflip:HotFlip"
)
searches.register("gcg", "random single swaps from the steepest of all positions (Zou et al. 2023)", "engine.triggers.gcg:Gcg")
searches.register("beam", "gibbs-enum with several inputs kept", "engine.triggers.beam:Beam")
