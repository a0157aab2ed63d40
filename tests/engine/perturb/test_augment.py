"""The library call."""

from __future__ import annotations

import doctest
from unicodedata import normalize

import pytest

from parley.engine.perturb import catalogue as augment
from parley.engine.perturb import perturb_text, perturb_texts
from parley.engine.perturb.strategies.swap import RandomSwap
from parley.engine.perturb.strategy import PerturbSettings
from parley.envs.core.errors import ConfigError
from parley.envs.corpora.pairs.turns import parse_turns

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


@pytest.mark.parametrize("strategy", ["random-swap", "stopword-dropout", "antonym"])
def test_texts_that_look_the_same_become_the_same(strategy: str) -> None:
    hindi = "\u0939\u093f\u0928\u094d\u0926\u0940"
    said = f"i opened the caf\u00e9 menu <eou> {hindi} \u00e9 <eot> is the na\u00efve old way of ours right ?"
    hidden = "\u200b".join(normalize("NFD", said))
    for seed in range(5):
        after = perturb_text(said, strategy, seed=seed, settings=PerturbSettings(lexicon="built-in"))
        other = perturb_text(hidden, strategy, seed=seed, settings=PerturbSettings(lexicon="built-in"))
        assert parse_turns(after) == parse_turns(other) != parse_turns(said)
        assert [word for word in after.split() if word.startswith("<")] == ["<eou>", "<eot>"]
        assert set(after.split()) >= {"caf\u00e9", hindi, "na\u00efve"}


def test_an_unknown_strategy_is_an_error() -> None:
    with pytest.raises(ConfigError, match="did you mean 'random-swap'"):
        perturb_text("a b", "random-swop")
