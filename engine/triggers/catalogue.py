"""The searches by name.

Each is a class that is made of its settings and derives from `Method` or `WordMethod` (`engine/triggers/methods/method.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parley.engine.triggers.methods.settings import SearchSettings
from parley.envs.core.errors import ConfigError
from parley.envs.core.registry import Registry

if TYPE_CHECKING:
    from parley.engine.triggers.methods.method import Method

EVOLUTION, ATTACKER = TEXT_METHODS = ("evolution", "attacker")
"""Methods that read replies alone, from words to words: `evolution.py`, `writing.py`."""
searches = Registry("search", "parley.searches")
searches.register(
    "gibbs-enum",
    "position by position, the best of the steepest words (He & Glass 2018)",
    "parley.engine.triggers.methods.gibbs_enum:GibbsEnum",
)
searches.register("random", "fresh random inputs, the best kept", "parley.engine.triggers.methods.random_search:RandomSearch")
searches.register(
    "hotflip",
    "a beam over flips, chosen by first-order change (Ebrahimi et al. 2018)",
    "parley.engine.triggers.methods.hotflip:HotFlip",
)
searches.register(
    "gcg", "random single swaps from the steepest of all positions (Zou et al. 2023)", "parley.engine.triggers.methods.gcg:Gcg"
)
searches.register(
    "autoprompt",
    "gibbs-enum with few words at drawn positions (Shin et al. 2020)",
    "parley.engine.triggers.methods.autoprompt:AutoPrompt",
)
searches.register(
    "arca",
    "coordinate by coordinate, slopes averaged over random words (Jones et al. 2023)",
    "parley.engine.triggers.methods.arca:Arca",
)
searches.register(
    "pez", "descent on embeddings, read at the nearest words (Wen et al. 2023)", "parley.engine.triggers.methods.pez:Pez"
)
searches.register(
    "beast",
    "a beam over inputs that the victim itself writes (Sadasivan et al. 2024)",
    "parley.engine.triggers.methods.beast:Beast",
)
searches.register("beam", "gibbs-enum with several inputs kept", "parley.engine.triggers.methods.beam:Beam")
searches.register(
    "relaxation",
    "gradient descent on words made continuous (He & Glass 2018, appendix A)",
    "parley.engine.triggers.methods.relaxation:Relaxation",
)


def make_method(name: str, settings: SearchSettings | None = None) -> Method:
    """A method of search with its settings.

    Args:
        name: of the list, or `path/file.py:Class` of one's own.
        settings: the paper's when None.

    Raises:
        ConfigError: no method is called so, or the class of that name derives from no `Method`.
    """
    from parley.engine.triggers.methods.method import Method

    kind = searches.get(name)
    if not (isinstance(kind, type) and issubclass(kind, Method)):
        raise ConfigError(f"{name!r} is no method of search", got=repr(kind), fix="derive it from WordMethod or Method")
    return kind(settings)
