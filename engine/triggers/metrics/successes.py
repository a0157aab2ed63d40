"""What a success is, in words: one clause for each way to judge a reply (`parley.engine.triggers.success`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parley.envs.core.visible import visible

_SHOWN = 60
"""Characters of a pattern, or of a name, that a clause shows."""


def successful_reply(success: Mapping[str, Any], *, end: bool | None) -> str:
    """Return a clause that follows "a reply", such as "that begins with the target".

    Args:
        success: the settings `success` of a run, as JSON types.
        end: whether a reply has to end behind its target; None where it depends on the search that found an input.
    """
    by = success.get("by", "target")
    if by == "target":
        if end is None:
            return "that begins with the target, or is the target where its search wanted that"
        by = "exact" if end else "prefix"
    if by == "exact":
        return "that is the target"
    if by == "prefix":
        return "that begins with the target"
    if by == "pattern":
        return f"that matches the pattern {_shown(success['pattern'])}"
    if by == "no-refusal":
        return "without a sign of refusal"
    if by == "classifier":
        label = success.get("label")
        return f"that the classifier calls {_shown(label)}" if label else "that the classifier gives its last label"
    return "that does what is wanted, as the judge says"


def success_note(clause: str) -> str:
    """Return the first sentence of a table's note."""
    return f"Success: a reply {clause}."


def _shown(text: str) -> str:
    text = visible(str(text))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
