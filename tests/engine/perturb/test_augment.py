"""The library call."""

from __future__ import annotations

import doctest

import pytest

from engine.perturb import augment, perturb_text, perturb_texts
from engine.perturb.swap import RandomSwap
from envs.core.errors import ConfigError

TEXTS = ["i tried to install the package again", "", "ok <eou> is it a new disk , or do you run the old one ?"]


def test_the_example_of_the_documentation_is_right() -> None:
    result = doctest.testmod(augment)
    assert (result.failed, result.attempted) == (0, 2)


def test_a_text_becomes_the_same_wherever_it_stands() -> None:
    alone = [perturb_text(text, "random-swap", seed=3) for text in TEXTS]
    assert perturb_texts(TEXTS[::-1], "random-swap", seed=3) == alone[::-1]
    assert alone[1] == ""


def test_other_seeds_give_other_versions() -> None:
    assert len({perturb_text(TEXTS[2], "random-swap", seed=seed) for seed in range(20)}) > 10


def test_a_strategy_of_ones_own_may_be_given() -> None:
    assert perturb_text("a b", RandomSwap(every=2)) == "b a"


def test_an_unknown_strategy_is_an_error() -> None:
    with pytest.raises(ConfigError, match="did you mean 'random-swap'"):
        perturb_text("a b", "random-swop")
