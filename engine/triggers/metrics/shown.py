"""The few inputs of a run that a screen and a file of tables show: successes first, then what came closest.

Prompts, inputs and replies are hostile text: what a terminal or Markdown would obey is spelled.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import nsmallest

from parley.engine.core.stats.tables import TextTable
from parley.envs.core.visible import visible

NUM_SHOWN = 5
"""Inputs of a run that are shown."""
_SUCCESS, _NONE = "success", "no success"
_LONGEST = 100
"""Characters of a text that are shown."""


@dataclass(frozen=True)
class ShownInput:
    """An input as it was typed, and what came of it.

    Args:
        success: whether the reply is one.
        prompt: the request; None without one.
        typed: what stood in its slots.
        target: what was wanted.
        reply: the model's; empty where it did not reply.
        no_reply: the kind of an answer that is no reply; empty of a reply.
        merit: orders inputs that are both successes, or both none; the higher the better.
        model: who replied, where there are several.
    """

    success: bool
    prompt: str | None
    typed: Sequence[str]
    target: str
    reply: str
    no_reply: str = ""
    merit: float = 0.0
    model: str = ""


def shown_inputs(inputs: Iterable[ShownInput]) -> dict[str, TextTable]:
    """Return a table of the best of some inputs with its heading; none where there is no input.

    Args:
        inputs: of a run; looked at once, one after the other.
    """
    num = num_successes = 0

    def counted() -> Iterable[ShownInput]:
        nonlocal num, num_successes
        for each in inputs:
            num, num_successes = num + 1, num_successes + each.success
            yield each

    best = nsmallest(NUM_SHOWN, counted(), key=lambda each: (not each.success, bool(each.no_reply), -each.merit))
    if not best:
        return {}
    heading = "inputs that worked" if num_successes else "no input worked; the closest"
    several, prompted = any(each.model for each in best), any(each.prompt is not None for each in best)
    columns = ("outcome", *(["model"] if several else []), "prompt" if prompted else "target", "input", "reply")
    rows = []
    for each in best:
        told = (each.prompt or "") if prompted else each.target
        typed = " ... ".join(filter(None, each.typed))
        reply = f"(no reply: {each.no_reply})" if each.no_reply else each.reply
        texts = map(_shortened, (*([each.model] if several else []), told, typed, reply))
        rows.append((_SUCCESS if each.success else _NONE, *texts))
    successes = "1 success" if num_successes == 1 else f"{num_successes:,} successes"
    note = f"{successes} of {num:,} input{'s' * (num > 1)}; at most {NUM_SHOWN} are shown, all are in the rows and on the page."
    return {heading: TextTable(columns, tuple(rows), note, texts=columns[1:])}


def _shortened(text: str) -> str:
    text = visible(text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
