"""Lines of `parley search methods`: a method, or a recipe, and what it has otherwise than the others.

gcg                                  a method as the settings of all lines have it
gcg[search.buffer=10]                the same with a setting of its own; several are separated by commas
mac                                  a recipe of parley search that is a method with a setting
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from parley.engine.triggers.catalogue import ATTACKER, EVOLUTION
from parley.engine.triggers.methods.settings import MOMENTUM_MAC
from parley.envs.core.errors import ConfigError
from parley.envs.core.registry import nearest

RECIPES = {"mac": ("gcg", (f"search.momentum={MOMENTUM_MAC}",)), "he2018": ("gibbs-enum", ())}
"""Recipes that are called otherwise than their methods, with what they have beside these."""
_SECTIONS = {EVOLUTION: ("evolution", "fitness"), ATTACKER: ("writing", "fitness")}
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
        """The folder of its search."""
        return re.sub(r"[^\w.=-]+", "-", self.label).strip("-")


def read_lines(text: str) -> tuple[MethodLine, ...]:
    """The lines of a list between commas, each once.

    Raises:
        ConfigError: it cannot be read, two would be called alike, or a line has a setting that its method does not read.
    """
    found, place = [], 0
    while place < len(text):
        if (match := _LINE.match(text, place)) is None:
            fix = "--method 'gcg,gcg[search.buffer=10]'"
            raise ConfigError("this is no list of methods", where="--method", got=text[place:], fix=fix)
        found.append(_line(match[1], match[2] or ""))
        place = match.end()
    lines = tuple(dict.fromkeys(found))
    if len({line.folder for line in lines}) < len(lines):
        raise ConfigError("lines of the table would be called alike", where="--method", got=text, fix="name each once")
    return lines


def _line(name: str, settings: str) -> MethodLine:
    method, own = RECIPES.get(name, (name, ()))
    asked = tuple(each.strip() for each in settings.split(",") if each.strip())
    sections = _SECTIONS.get(method, _OF_LOSSES)
    for each in asked:
        if (section := each.partition(".")[0]) not in sections:
            what = f"a line of {name} has no setting {each.partition('=')[0]!r}{nearest(section, sections)}"
            raise ConfigError(what, where="--method", fix=f"settings of {' and '.join(sections)}, as --set has them")
    label = name.rpartition(":")[2]
    return MethodLine(f"{label}[{','.join(asked)}]" if asked else label, method, own + asked)
