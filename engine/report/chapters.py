"""The chapters of a report, in the order of the page: one line per system."""

from __future__ import annotations

from typing import Any

from parley.engine.report.collaboration.chapter import Collaborations
from parley.engine.report.collaboration.hardened import HardenedFriends
from parley.engine.report.content import Chapter
from parley.engine.report.generation.adversarial import JudgedSystems
from parley.engine.report.generation.training import TrainedGenerators
from parley.engine.report.measurements.chapter import Measurements
from parley.engine.report.negotiation.chapter import Negotiations
from parley.engine.report.perturb.chapter import Perturbations
from parley.engine.report.retrieval.chapter import Rankings
from parley.engine.report.retrieval.hardened import HardenedRankers
from parley.engine.report.retrieval.searches import RankerAttacks
from parley.engine.report.sweeps.chapter import Sweeps
from parley.engine.report.training.chapter import Trainings
from parley.engine.report.triggers.chapter import TriggerSearches
from parley.engine.report.triggers.hardened import HardenedModels

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
