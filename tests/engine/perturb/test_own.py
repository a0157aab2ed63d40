"""Strategies of the user's own, by the names that the command line takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from parley.engine.perturb.catalogue import Resources, build, perturb_texts
from parley.engine.perturb.replies.catalogue import build_rules
from parley.engine.perturb.replies.settings import ReplySettings
from parley.engine.perturb.replies.shapes import RuleResources
from parley.engine.perturb.strategy import PerturbSettings
from parley.envs.core.errors import ConfigError

MINE = """
from parley.engine.perturb.strategy import Expectation, OnUtterances


class Shout(OnUtterances):
    name = "shout"
    expectation = Expectation.SHOULD_NOT_CHANGE

    def utterance(self, words, rng):
        return tuple(word.upper() for word in words)


class Forgetful(Shout):
    def perturb(self, contexts, seeds):
        return []


def whisper(settings, resources):
    made = Shout()
    made.name = "whisper"
    return made
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path / "mine.py"


@pytest.mark.parametrize(("name", "called"), [("Shout", "shout"), ("whisper", "whisper")])
def test_a_class_or_a_function_that_makes_one(mine: Path, name: str, called: str) -> None:
    settings = PerturbSettings()
    (made,) = build([f"{mine}:{name}"], settings, Resources(settings))
    assert made.name == called
    assert perturb_texts(["oh no"], made) == ["OH NO"]


def test_an_object_is_a_strategy_as_it_is(mine: Path) -> None:
    mine.write_text(f"{MINE}\n\nMADE = Shout()\n")
    settings = PerturbSettings()
    (made,) = build([f"{mine}:MADE"], settings, Resources(settings))
    assert perturb_texts(["oh no"], made) == ["OH NO"]


def test_a_strategy_and_a_rule_are_not_taken_for_each_other(mine: Path) -> None:
    mine.write_text(f"{MINE}\n\nclass Rule:\n    name, attacks, keeps_labels, apply = 'rule', 'positives', True, None\n")
    settings = PerturbSettings()
    resources = Resources(settings)
    with pytest.raises(ConfigError, match="this is no perturbation strategy"):
        build([f"{mine}:Rule"], settings, resources)
    with pytest.raises(ConfigError, match="this is no reply rule"):
        build_rules([f"{mine}:Shout"], RuleResources(ReplySettings(), resources))


def test_one_that_loses_contexts_is_named(mine: Path) -> None:
    settings = PerturbSettings()
    (made,) = build([f"{mine}:Forgetful"], settings, Resources(settings))
    with pytest.raises(ConfigError, match="shout made 0 contexts of 1"):
        perturb_texts(["oh no"], made)
