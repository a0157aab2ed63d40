"""Who judges the fluency of a match where nobody is named: one rule, for self-play, attacks, tables and campaigns.

Reinforcement moves a model's words away from those of people, so an agent that was trained by it is no measure of how people
speak; the model that it began with is. Checkpoints say what that was, under the name that it had then: a path is looked for
where it lay beside the checkpoint's run, then from the folder that the command is typed in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from parley.engine.core.verbs.weights import checkpoint_folder, name_beside
from parley.engine.negotiation.verbs.agents import vocabulary_of
from parley.envs.core.errors import CheckpointError, StorageError
from parley.policies.core.stored import read_header
from parley.policies.negotiator.settings import KIND

NOBODY_JUDGES = "neither side is a model, so nobody judges fluency; --judge names a checkpoint that does"
_BEGAN_WITH = {"rl": "learner", "adversary": "learner", "target": "target"}
"""What a checkpoint calls the model that its training began with, by the role that reinforcement gave it."""


def judge_of(named: str, sides: Sequence[str]) -> str:
    """The checkpoint that judges fluency.

    Args:
        named: whom the user names; empty for nobody.
        sides: the agents that a judge is looked for among, the target first: the first model of them judges, or what that
            model was before any reinforcement, if it is still there.

    Returns:
        A run or checkpoint folder; empty where nobody is named and no side is a model.
    """
    if named:
        return named
    model = next((side for side in sides if side and checkpoint_folder(side) is not None), "")
    return model and _before_reinforcement(model)


def who_judges(judge: str) -> str:
    """The end of a sentence that says who judges, by what `judge_of` returned."""
    return f"fluency as {judge} finds it" if judge else NOBODY_JUDGES


def _before_reinforcement(model: str) -> str:
    """What a model was before any reinforcement; the model itself where that is not known, or not there any more."""
    ancestor, met = model, {model}
    while (start := _start(ancestor)) is not None:
        if start in met or _provenance(start) is None:
            return model
        met.add(start)
        ancestor = start
    return ancestor if ancestor == model or _same_words(model, ancestor) else model


def _start(model: str) -> str | None:
    """What the training of a model began with; None for a model that no reinforcement has made."""
    found = _provenance(model) or {}
    key = _BEGAN_WITH.get(found.get("role", ""))
    if key is None:
        return None
    # A campaign's result began, rounds ago, with what the campaign was given.
    return name_beside(checkpoint_folder(model), str(found.get("campaign_from") or found.get(key, "")))


def _provenance(model: str) -> Mapping[str, Any] | None:
    """How a model came about; None where none can be read."""
    try:
        folder = checkpoint_folder(model) if model else None
        return None if folder is None else read_header(folder, KIND).get("provenance", {})
    except (CheckpointError, StorageError):
        return None


def _same_words(model: str, other: str) -> bool:
    try:
        words, others = vocabulary_of(model), vocabulary_of(other)
    except CheckpointError:
        return False
    return words is not None and others is not None and words.digest == others.digest
