"""The chapters of a report, in the order of the page: one line per system, imported when a run of it is shown."""

from __future__ import annotations

import importlib
from collections.abc import Collection, Iterable
from typing import Any

from parley.engine.core.page.content import Chapter
from parley.engine.core.verbs.catalogue import find
from parley.envs.core.errors import RunError

CHAPTERS = (
    "parley.engine.negotiation.page.chapter:Negotiations",
    # What hardening came to stands before the attacks that measured it.
    "parley.engine.triggers.page.hardened:HardenedModels",
    "parley.engine.triggers.page.chapter:TriggerSearches",
    "parley.engine.perturb.page.chapter:Perturbations",
    "parley.engine.ranking.page.hardened:HardenedRankers",
    "parley.engine.ranking.page.chapter:Rankings",
    "parley.engine.ranking.page.searches:RankerAttacks",
    "parley.engine.generation.page.training:TrainedGenerators",
    "parley.engine.generation.page.adversarial:JudgedSystems",
    "parley.engine.mutual_friends.page.hardened:HardenedFriends",
    "parley.engine.mutual_friends.page.chapter:Collaborations",
    "parley.engine.core.page.sweeps.chapter:Sweeps",
    "parley.engine.core.page.training.chapter:Trainings",
    # Last: what no other chapter knows.
    "parley.engine.core.page.measurements.chapter:Measurements",
)
_WITHOUT = ("core", "responders")
"""Packages whose jobs the chapters of every page show."""


def load_chapters(jobs: Iterable[str] | None = None) -> list[Chapter[Any]]:
    """Return the chapters that can own runs of some jobs, in the order of the page.

    Args:
        jobs: names as run folders carry them; all chapters where it is left out.
    """
    systems = None if jobs is None else {_system(job) for job in jobs}
    return [_load(target) for target in CHAPTERS if _is_wanted(target.split(".")[2], systems)]


def _is_wanted(system: str, systems: Collection[str] | None) -> bool:
    if systems is None or system == "core" or system in systems:
        return True
    # The demonstration holds runs of all systems; a job of another version may be of any.
    with_chapters = {target.split(".")[2] for target in CHAPTERS}
    return any(other not in with_chapters and other not in _WITHOUT for other in systems)


def _system(job: str) -> str:
    """Return the system of a job, such as "triggers"; empty for a job that this version does not have."""
    try:
        room, package = find(job).target.split(".")[1:3]
    except RunError:
        return ""
    return package if room == "engine" else "core"


def _load(target: str) -> Chapter[Any]:
    module, _, name = target.partition(":")
    chapter: Chapter[Any] = getattr(importlib.import_module(module), name)()
    return chapter
