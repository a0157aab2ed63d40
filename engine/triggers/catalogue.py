"""The methods of trigger search by name, and the lines of `parley search methods`.

Each method is a class that is made of its settings and derives from `Method` or `WordMethod`
(`engine/triggers/methods/method.py`).

A line of `parley search methods` is a method or a recipe, with the settings in which it differs from the others:

    gcg                                  a method as the settings of all lines have it
    gcg[search.buffer=10]                the same with a setting of its own; several are separated by commas
    mac                                  a recipe of parley search that is a method with a setting
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from parley.engine.triggers.methods.settings import MOMENTUM_MAC, SearchSettings
from parley.envs.core.errors import ConfigError
from parley.envs.core.registry import Registry, nearest

if TYPE_CHECKING:
    from parley.engine.triggers.methods.method import Method


EVOLUTION, ATTACKER, PRS, QCG = TEXT_METHODS = ("evolution", "attacker", "prs", "qcg")
"""Methods from words to words. `methods/evolution.py` and `methods/writing.py` read replies alone; `methods/prs.py` and
`methods/qcg.py` also the log probabilities of their first tokens."""
searches = Registry("search", "parley.searches")
searches.register(
    "gibbs-enum",
    "position by position, the best of the steepest words (He & Glass 2018)",
    "parley.engine.triggers.methods.gibbs_enum:GibbsEnum",
)
searches.register("random", "fresh random inputs, the best kept", "parley.engine.triggers.methods.gibbs_enum:RandomSearch")
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
    "parley.engine.triggers.methods.hotflip:AutoPrompt",
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
    "parley.engine.triggers.methods.beam:Beast",
)
searches.register("beam", "gibbs-enum with several inputs kept", "parley.engine.triggers.methods.beam:Beam")
searches.register(
    "relaxation",
    "gradient descent on words made continuous (He & Glass 2018, appendix A)",
    "parley.engine.triggers.methods.relaxation:Relaxation",
)


def make_method(name: str, settings: SearchSettings | None = None) -> Method:
    """Return a method of search with its settings.

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


RECIPES = {"mac": ("gcg", (f"search.momentum={MOMENTUM_MAC}",)), "he2018": ("gibbs-enum", ())}
"""Recipes with names of their own: the method and the settings of each."""
_SECTIONS = {
    EVOLUTION: ("evolution", "fitness"),
    ATTACKER: ("writing", "fitness"),
    PRS: ("evolution", "fitness", "prs"),
    QCG: ("evolution", "fitness", "qcg"),
}
"""Settings of a line by method; of those that read losses `_OF_LOSSES`."""
_OF_LOSSES = ("search", "objective")
_LINE = re.compile(r"\s*([^\[\],]+?)\s*(?:\[([^\[\]]*)\]\s*)?(?:,|$)")


@dataclass(frozen=True)
class MethodLine:
    """A line of the table.

    Args:
        label: what it is called.
        method: by its name, or `path/file.py:Class`.
        settings: that it has otherwise, "section.key=value".
    """

    label: str
    method: str
    settings: tuple[str, ...] = ()

    @property
    def folder(self) -> str:
        """Return the folder of its search."""
        return re.sub(r"[^\w.=-]+", "-", self.label).strip("-")


def read_lines(text: str) -> tuple[MethodLine, ...]:
    """Return the lines of a list between commas, each once.

    Raises:
        ConfigError: it cannot be read, two would be called alike, or a line has a setting that its method does not read.
    """
    parsed, position = [], 0
    while position < len(text):
        if (match := _LINE.match(text, position)) is None:
            fix = "--method 'gcg,gcg[search.buffer=10]'"
            raise ConfigError("this is no list of methods", where="--method", got=text[position:], fix=fix)
        parsed.append(_line(match[1], match[2] or ""))
        position = match.end()
    lines = tuple(dict.fromkeys(parsed))
    if len({line.folder for line in lines}) < len(lines):
        raise ConfigError("lines of the table would be called alike", where="--method", got=text, fix="name each once")
    return lines


def _line(name: str, settings: str) -> MethodLine:
    method, recipe_settings = RECIPES.get(name, (name, ()))
    own_settings = tuple(setting.strip() for setting in settings.split(",") if setting.strip())
    sections = _SECTIONS.get(method, _OF_LOSSES)
    for setting in own_settings:
        if (section := setting.partition(".")[0]) not in sections:
            what = f"a line of {name} has no setting {setting.partition('=')[0]!r}{nearest(section, sections)}"
            raise ConfigError(what, where="--method", fix=f"settings of {' and '.join(sections)}, as --set has them")
    label = name.rpartition(":")[2]
    return MethodLine(f"{label}[{','.join(own_settings)}]" if own_settings else label, method, recipe_settings + own_settings)
