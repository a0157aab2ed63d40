"""An utterance alone becomes what it becomes among others."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.engine.perturb.catalogue import Resources
from parley.engine.perturb.strategies.commands import in_commands
from parley.engine.perturb.strategies.noise import CharacterNoise
from parley.engine.perturb.strategies.stopwords import StopwordDropout
from parley.engine.perturb.strategies.swap import RandomSwap
from parley.engine.perturb.strategies.texts import FlatContexts
from parley.engine.perturb.strategy import PerturbSettings, Strategy
from parley.envs.corpora.pairs.turns import Turns, Utterance

WORDS = ["no", "not", "do", "n't", "can", "without", "'s", "disk", "the", "big", "new", "i", "old", "runs", "a", "few", "of"]
WORDS += [",", ".", "...", ":)", ";-d", ":", "d", "-", "#", "sudo", "vim", "on", "in", "plug", "10.04", "runtime", "conf"]
utterances = st.lists(st.sampled_from(WORDS), max_size=20).map(tuple)
OTHERS: list[Turns] = [((("a", "new", "disk"), ("the", "old", "big", "disk", "runs")),)]


@pytest.mark.parametrize(
    "strategy",
    [
        RandomSwap(),
        RandomSwap(every=2),
        StopwordDropout(frozenset({"the", "on", "in", "a", "of", "few", "old"}), 8),
        StopwordDropout(frozenset({"the", "on", "in", "a", "of", "few", "old"}), 2),
        CharacterNoise(Resources(PerturbSettings(lexicon="built-in")), 0.5),
    ],
)
@settings(max_examples=300, deadline=None)
@given(words=utterances, seed=st.integers(0, 2**63 - 1))
def test_an_utterance_alone_becomes_what_it_becomes_among_others(strategy: Strategy, words: Utterance, seed: int) -> None:
    alone = strategy.perturb([((words,),)], [seed])
    assert alone == strategy.perturb([((words,),), *OTHERS], [seed, 1])[:1]


@settings(max_examples=300, deadline=None)
@given(words=utterances)
def test_commands_hold_the_same_words(words: Utterance) -> None:
    among = in_commands(FlatContexts([((words,),), *OTHERS])).tolist()
    assert in_commands(FlatContexts([((words,),)])).tolist() == among[: len(words)]
