"""The plain rules that rules on replies are clocked against make the same replies from the same draws."""

from __future__ import annotations

import os
from itertools import islice

import pytest

from benchmarks.plain_rules import PlainRules
from benchmarks.ranking_rules import SETTINGS, _different, clocked_rules
from parley.engine.perturb.catalogue import Resources
from parley.engine.perturb.replies.catalogue import SEVEN
from parley.engine.perturb.replies.shapes import RuleResources
from parley.engine.perturb.strategy import PerturbSettings
from parley.envs.ranking.compiled import load_candidates

needs_nltk = pytest.mark.skipif(not os.environ.get("NLTK_DATA"), reason="NLTK_DATA names no folder with NLTK's data")


@pytest.mark.parametrize("lexicon", ["built-in", pytest.param("nltk", marks=[pytest.mark.data, needs_nltk])])
def test_rules_and_their_plain_reference_make_the_same_replies(lexicon: str) -> None:
    groups = list(islice(load_candidates("helpdesk").splits["test"], 30))
    shared = Resources(PerturbSettings(lexicon=lexicon))
    resources = RuleResources(SETTINGS, shared, contexts={"training": [group.context for group in groups]})
    plain = PlainRules.of(shared.lexicon, resources.counts, nltk=lexicon == "nltk")
    assert [rule.name for rule in clocked_rules(SEVEN, resources) if _different(rule, plain, groups)] == []
