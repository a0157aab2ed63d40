"""Strategies on contexts (`engine/perturb/catalogue.py`), turned on right replies.

    typos       letters slip (`noise.py`); the reply stays right
    negation    the reply says no where it said yes (`negation.py`); what comes out is a wrong one

None of Li et al. 2019; both are of English alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from parley.engine.perturb.catalogue import build as build_strategies
from parley.engine.perturb.replies.resources import RuleResources
from parley.engine.perturb.replies.rule import OnReplies
from parley.engine.perturb.strategies.flat import Edits, FlatContexts
from parley.engine.perturb.strategy import ByEdits, Expectation
from parley.envs.core.errors import ConfigError
from parley.envs.ranking.groups import CandidateGroup


class PerturbedReplies(OnReplies):
    """A strategy that edits right replies.

    Args:
        name: of the rule.
        strategy: a Should-Not-Change strategy keeps labels.
    """

    attacks = "positives"

    def __init__(self, name: str, strategy: ByEdits) -> None:
        self.name = name
        self.keeps_labels = strategy.expectation is Expectation.SHOULD_NOT_CHANGE
        self._strategy = strategy

    def edits(self, groups: Sequence[CandidateGroup], flat: FlatContexts, seeds: Sequence[int]) -> Edits:
        """What is changed, see `OnReplies`."""
        return self._strategy.edits(flat, seeds)


def build_typos(resources: RuleResources) -> PerturbedReplies:
    """Typing errors."""
    return _english("typos", "character-noise", resources)


def build_negation(resources: RuleResources) -> PerturbedReplies:
    """Added negation."""
    return _english("negation", "add-negation", resources)


def _english(name: str, strategy: str, resources: RuleResources) -> PerturbedReplies:
    if resources.code != "en":
        raise ConfigError(f"{name} knows English alone", got=resources.code, fix="leave it out of the rules")
    (built,) = build_strategies([strategy], resources.shared.settings, resources.shared)
    assert isinstance(built, ByEdits), f"{strategy} says what it changes"
    return PerturbedReplies(name, built)
