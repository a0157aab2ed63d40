"""The chapters of a report, in the order of the page: one line per system."""

from __future__ import annotations

from typing import Any

from engine.report.collaboration.chapter import Collaborations
from engine.report.collaboration.hardened import HardenedFriends
from engine.report.content import Chapter
from engine.report.generation.adversarial import JudgedSystems
from engine.report.generation.training import TrainedGenerators
from engine.report.measurements.chapter import Measurements
from engine.report.negotiation.chapter import Negotiations
from engine.report.perturb.chapter import Perturbations
from engine.report.retrieval.chapter import Rankings
from engine.report.retrieval.hardened import HardenedRankers
from engine.report.retrieval.searches import RankerAttacks
from engine.report.sweeps.chapter import Sweeps
from engine.report.training.chapter import Trainings
from engine.report.triggers.chapter import TriggerSearches
from engine.report.triggers.hardened import HardenedModels

CHAPTERS: tuple[Chapter[Any], ...] = (
    Negotiations(),
    # What hardening came to stands before the attacks that measured it.
    HardenedModels(),
    TriggerSearches(),
    Perturbations(),
    HardenedRankers(),
    Rankings(),
    RankerAttacks(),
    TrainedGenerators(),
    JudgedSystems(),
    HardenedFriends(),
    Collaborations(),
    Sweeps(),
    Trainings(),
    # Last: what no other chapter knows.
    Measurements(),
)
