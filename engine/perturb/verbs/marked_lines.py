"""Texts before and after, on a person's screen."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.text import Text

from parley.engine.core.cli.tables import make_console
from parley.engine.perturb.strategies.changes import ChangeKind, Span, bracketed, spans
from parley.envs.core.visible import visible
from parley.envs.corpora.pairs.turns import Turns, format_turns

_STYLES = {
    ChangeKind.SAME: "",
    ChangeKind.REPLACED: "bold yellow",
    ChangeKind.INSERTED: "bold green",
    ChangeKind.DELETED: "bold red",
}
_LABEL = 27
"""Columns of the longest strategy's name."""


class MarkedLines:
    """Words before and after below each other, changed ones in colour or in brackets.

    Args:
        width: columns of the longest name.
    """

    def __init__(self, width: int = _LABEL) -> None:
        self._width = width
        self._console = make_console(stderr=False)
        self._in_colour = self._console.is_terminal and not self._console.no_color

    def __call__(self, line: int, strategy: str, texts: tuple[str, str], contexts: tuple[Turns, Turns]) -> None:
        self.show(line, strategy, *contexts)

    def show(self, line: int, name: str, before: Turns, after: Turns) -> None:
        """Prints one.

        Args:
            line: of the file, counted from 1.
            name: of what changed it.
            before: its words as they were.
            after: its words as they are.
        """
        label = f"{line:>5} {name:<{self._width}}"
        if after == before:
            sys.stdout.write(f"{label} = {visible(format_turns(before))}\n")
            return
        found = spans(before, after)
        if self._in_colour:
            for mark, side in (("-", "before"), ("+", "after")):
                self._console.print(
                    _coloured(f"{label if mark == '-' else '':<{len(label)}} {mark}", found, side), soft_wrap=True
                )
            return
        old, new = map(visible, bracketed(found))
        sys.stdout.write(f"{label} - {old}\n{'':<{len(label)}} + {new}\n")


def _coloured(start: str, found: Sequence[Span], side: str) -> Text:
    text = Text(start)
    for span in found:
        if words := getattr(span, side):
            text.append(" ").append(" ".join(words), _STYLES[span.kind])
    return text
